"""Whether this process belongs to an agent that works on the board: then it decides nothing that is a person's.

The log says which processes watch over claimed work. Such a wrapper stays the parent of all that its agent starts (see
`subreaper`), so the way up leads to it whatever the agent does to its environment, session and parents. A window that
an agent opens in the tmux session of a wrapper has another parent, the server, so its terminal is looked at too.
Doubt is not consent: what cannot be told is refused.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from baton import config, processes
from baton.board import moves
from baton.board.log import Log
from baton.board.root import Board
from baton.errors import NotAuthorised
from baton.stores import holder

CLAIM = b"BATON_CLAIM="
HOLDER = b'"holder":"'
FARTHEST = 200  # how many parents are looked at
PATIENCE = 5  # seconds for another program to answer
UNTOLD = "-"  # where a holder says when its process began, and the system does not tell


class Process(msgspec.Struct, frozen=True):
    """One process as the kernel describes it; `terminal` is 0 where it has none."""

    pid: int
    parent: int
    terminal: int
    started: str


class Worker(msgspec.Struct, frozen=True):
    """Who claimed something on this machine since it was started, and lives."""

    process: Process
    item: tuple[str, str]
    epoch: int
    supervised: bool


def refuse_agents(board: Board) -> None:
    """Raise where this process, or what it came from, works on the board for somebody else."""
    if why := evidence(board):
        raise NotAuthorised(
            f"this is for a person, and {why}; a person says it in a terminal of their own, where no agent runs"
        )


def evidence(board: Board) -> str:
    """What shows that an agent asks; empty where nothing does."""
    if config.board_claim():
        return "BATON_CLAIM is set"
    line = list(_upwards(os.getpid()))
    for one in line[1:]:
        if _claims(one.pid):
            return f"process {one.pid}, from which this one comes, works under BATON_CLAIM"
    if not line:
        return "the system does not say from which process this one comes"
    workers, hidden = _workers(board)
    for other in _others(board):  # an agent of another board is no person here either
        workers += [one for one in _workers(other)[0] if one.supervised]
    if hidden:
        return f"{hidden} is worked on in another container of this machine, which may be this one's"
    return _related(board, line, workers) or _same_terminal(line, workers) or _same_session(line, workers)


def _related(board: Board, line: list[Process], workers: list[Worker]) -> str:
    above = {(one.pid, one.started) for one in line}
    for one in workers:
        if (one.process.pid, one.process.started) in above and (one.supervised or _stands(board, one.item, one.epoch)):
            return f"process {one.process.pid}, from which this one comes, holds {'#'.join(one.item)}"
    return ""


def _same_terminal(line: list[Process], workers: list[Worker]) -> str:
    """A wrapper runs in this terminal, so what is typed here may come from its agent."""
    mine = {line[0].terminal, *_open_terminals()} - {0}
    for one in workers:
        if one.supervised and one.process.terminal in mine:
            return f"process {one.process.pid}, which holds {'#'.join(one.item)}, runs in this terminal"
    return ""


def _same_session(line: list[Process], workers: list[Worker]) -> str:
    """This process runs in a tmux session in which a wrapper runs, too."""
    above = {one.pid for one in line}
    mine = {line[0].terminal, *(one.terminal for one in line)} - {0}
    for worker in workers:
        server = _tmux(worker.process.pid) if worker.supervised else 0
        if server not in above:
            continue
        panes = _panes(_socket(server))
        if panes is None:
            return f"process {worker.process.pid} runs in a tmux that does not answer, and so does this one"
        theirs = {session for session, terminal, _ in panes if terminal == worker.process.terminal}
        if any(session in theirs and (terminal in mine or pid in above) for session, terminal, pid in panes):
            return f"process {worker.process.pid}, which holds {'#'.join(worker.item)}, runs in this tmux session"
    return ""


# --- processes ------------------------------------------------------------------------------------


def _upwards(pid: int) -> Iterator[Process]:
    """A process, its parent, and so on."""
    for _ in range(FARTHEST):
        found = _process(pid)
        if found is None:
            return
        yield found
        pid = found.parent
        if pid <= 0:
            return


def _process(pid: int) -> Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _asked(pid)
    return Process(pid, int(fields[1]), int(fields[4]), fields[19])


def _asked(pid: int) -> Process | None:
    """A process where there is no /proc, as on macOS: its number has to do, for nobody tells when it was started."""
    command = ["ps", "-o", "ppid=", "-o", "tty=", "-p", str(pid)]
    try:
        parent, terminal = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout.split()
        return Process(pid, int(parent), _number(f"/dev/{terminal}"), UNTOLD)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _claims(pid: int) -> bool:
    """Whether a process was started to work under a claim; that of another user is nobody of ours."""
    return any(word.startswith(CLAIM) for word in _environment(pid))


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _open_terminals() -> set[int]:
    """The terminals that this process reads from or writes to."""
    found = set()
    for number in range(3):
        try:
            if os.isatty(number):
                found.add(os.fstat(number).st_rdev)
        except OSError:
            continue
    return found


def _tmux(pid: int) -> int:
    """The tmux server below which a process runs; 0 where none is above it."""
    for one in _upwards(pid):
        try:
            if Path(f"/proc/{one.pid}/comm").read_text(errors="replace").startswith("tmux"):
                return one.pid
        except OSError:
            continue
    return 0


def _socket(server: int) -> str:
    """Where a server listens; empty where the kernel does not say."""
    try:
        links = {os.readlink(one) for one in Path(f"/proc/{server}/fd").iterdir()}
        rows = [line.split(maxsplit=7) for line in Path("/proc/net/unix").read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    there = (row[7] for row in rows if len(row) == 8 and f"socket:[{row[6]}]" in links)
    return next((path for path in there if path.startswith("/")), "")


def _panes(socket: str) -> list[tuple[str, int, int]] | None:
    """The session, the terminal and the process of every pane; None where tmux does not say."""
    command = ["tmux", "-S", socket, "list-panes", "-a", "-F", "#{session_id} #{pane_pid} #{pane_tty}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        rows = [line.split(" ", 2) for line in done.stdout.splitlines()]
        return [(session, _number(terminal), int(pid)) for session, pid, terminal in rows]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _number(terminal: str) -> int:
    try:
        return Path(terminal).stat().st_rdev
    except OSError:
        return 0


# --- who works ------------------------------------------------------------------------------------


def _others(board: Board) -> Iterator[Board]:
    """The other boards of this user on which a wrapper has a lock; that it is gone, the log tells."""
    for folder in {lock.parent.parent for lock in Path(config.state_home()).glob("boards/*/workers/*.lock")}:
        log = Log(str(folder), "")
        first = next(log.records(), None)
        log.close()
        if first is not None and (other := Board(str(first["path"]))).state != board.state:
            yield other


def _workers(board: Board) -> tuple[list[Worker], str]:
    """Who claimed something in this boot and lives, and an item whose worker can't be seen from here."""
    host, boot = holder.here()
    found: dict[tuple[int, str], Worker] = {}
    for record in board.log.of("claimed", f"/{boot}/", _living(host)):
        if str(record["holder"]).count("/") != 4:
            continue
        where, _, pid, started, _ = str(record["holder"]).split("/")
        item = (str(record["path"]), str(record["noun"]))
        if where != host:
            if record.get("supervised") and _stands(board, item, int(record["at"])):
                return [], "#".join(item)
            continue
        process = _process(int(pid)) if pid.isdecimal() else None
        if process is not None and process.started == started.partition(".")[0]:
            key = (process.pid, item[0] + "#" + item[1])
            found[key] = Worker(process, item, int(record["at"]), bool(record.get("supervised")))
    return list(found.values()), ""


def _living(host: str) -> Callable[[bytes], bool]:
    """Whether who claimed may live: most of a long log was written by processes that are gone."""
    here, pids = host.encode(), {str(pid).encode() for pid in processes.table()}

    def likely(line: bytes) -> bool:
        at = line.find(HOLDER) + len(HOLDER)
        words = line[at : at + 400].split(b"/", 3)
        return len(words) < 4 or words[0] != here or words[2] in pids

    return likely


def _stands(board: Board, item: tuple[str, str], epoch: int) -> bool:
    record = moves.standing(board.log.history(*item))
    return record is not None and record["at"] == epoch
