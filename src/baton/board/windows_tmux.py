"""Agents as tmux windows: a person can look at each, and tmux itself remembers them.

Every argument of tmux is made here, from ids, from a name out of a safe alphabet, and from base64: nothing that stands
in a file reaches its parser or its formats. A window is ours by an option that it carries; no other is ever closed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from baton import processes
from baton.board.jobs import GRACE, NAME, Job, Ticket, Window, settled, undead
from baton.clock import SECOND
from baton.errors import Malformed, NotFound, TimedOut, Unfinished

SESSION = "dispatch"
OLDEST = (3, 0)
OPTION = "@baton"
_SECONDS = 15  # that one command of tmux may take
_IDS = re.compile(r"(@\d+) (%\d+) (\d+)\n", re.ASCII)
_VERSION = re.compile(r"tmux (?:next-)?(\d+)\.(\d+)", re.ASCII)
_SOCKET = re.compile(r"[A-Za-z0-9_.-]{1,80}", re.ASCII)
# What tmux says where there is no server, or one without sessions, which is about to end.
_NOBODY = (
    "no server running", "No such file or directory", "Connection refused", "server exited", "lost server",
    "no current target", "no sessions", "can't find",
)  # fmt: skip
_FIELDS = "|".join(
    f"#{{{name}}}"
    for name in (
        "window_id", "pane_id", "pane_pid", "pane_dead_status", "pane_dead_signal", "window_activity", "pid",
        OPTION,
    )
)  # fmt: skip


def fault() -> str:
    """Why tmux cannot be used here; empty where it can."""
    if shutil.which("tmux") is None:
        return "tmux: not found on PATH; install tmux, or let agents run as plain processes"
    said = subprocess.run(["tmux", "-V"], capture_output=True, text=True, check=False, timeout=_SECONDS).stdout.strip()
    version = _VERSION.match(said)
    if version and (int(version[1]), int(version[2])) < OLDEST:
        return f"{said} is too old; install {OLDEST[0]}.{OLDEST[1]} or later, or let agents run as plain processes"
    return ""


class Tmux:
    """The `Windows` of one tmux server: the usual one, or that of a socket's name."""

    shows = True

    def __init__(self, folder: Path, socket: str | None = None) -> None:
        if socket is not None and not _SOCKET.fullmatch(socket):
            raise Malformed(f"tmux socket {socket!r:.80}; use letters, digits, dot, - and _")
        self.folder = folder
        self._unknown: set[str] = set()
        self._tmux = ["tmux"] if socket is None else ["tmux", "-L", socket]

    def start(self, job: Job) -> Window:
        """Open a window, mark it as ours, and only then let the program start."""
        ticket = Ticket(self.folder, job.noun, lambda name: any(one.name == name for one in self.list()))
        try:
            window, pane, pid = self._opened(ticket)
            made = Window(
                id=window, name=ticket.name, noun=job.noun, item=job.item, request=job.request, pid=pid,
                started=processes.started(pid) or "", begun=ticket.begun, active=ticket.begun, running=True,
            )  # fmt: skip
            self._mark(made, pane)
            ticket.go(job)
        finally:
            ticket.close()
        return made

    def list(self) -> list[Window]:
        """The windows that carry our option, wherever a person moved them."""
        return sorted((one.window for one in self._panes()), key=lambda one: (one.begun, one.name))

    def stop(self, window: Window, grace: float = GRACE) -> Window:
        """End the program, and close its pane if it still is ours; what a person opened beside it stays."""
        if left := processes.end(window.pid, window.started, grace):
            raise undead(window, left)
        for pane in self._panes():
            last = pane.window
            if (last.id, last.pid, last.started) == (window.id, window.pid, window.started):
                # Asked and done in one step of the server: after a restart the same id is another window.
                ours = f"#{{==:#{{{OPTION}}},{pane.mark}}}"
                self._asked("if-shell", "-F", "-t", pane.id, ours, f"kill-pane -t {pane.id}")
                return last
        return msgspec.structs.replace(window, running=False)

    def attach(self, window: Window) -> tuple[str, ...]:
        """Attach to the session, at this window."""
        return *self._tmux, "attach-session", "-t", f"={SESSION}:{window.id}"

    def attached(self) -> bool:
        """Whether a client shows the session."""
        return bool(self._asked("list-clients", "-t", f"={SESSION}", "-F", "#{client_pid}").strip())

    def _panes(self) -> Sequence[_Pane]:
        """Our panes. tmux learns how a program ended a little after the end, and old ones never learn of a signal."""
        panes = settled(self._looked)
        self._unknown.update(one.mark for one in panes if one.unsettled)
        return panes

    def _looked(self) -> tuple[Sequence[_Pane], bool]:
        lines = self._asked("list-panes", "-a", "-F", _FIELDS).splitlines()
        panes = [one for one in map(_pane, lines) if one]
        left = [one for one in panes if one.unsettled and one.mark not in self._unknown]
        for one in left:  # now and then tmux misses an end for good, until the next SIGCHLD, which harms nobody
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one.server, signal.SIGCHLD)
        return panes, not left

    def _opened(self, ticket: Ticket) -> tuple[str, str, int]:
        launch = ticket.argv("exec")
        if not NAME.fullmatch(ticket.name) or any(one.endswith(";") for one in launch):
            raise Malformed(f"{launch!r:.300}: tmux would take the ; for its own; install baton at another place")
        more = ["-n", ticket.name, "-P", "-F", "#{window_id} #{pane_id} #{pane_pid}", "--", *launch]
        said = fault = ""
        for _ in range(5):  # the session may come and go meanwhile, by others
            status, said, fault = self._run("new-window", "-d", "-t", f"={SESSION}:", *more)
            if status and _is_nobody(fault):
                status, said, fault = self._run("new-session", "-d", "-s", SESSION, "-x", "200", "-y", "50", *more)
            if status == 0:
                break
            time.sleep(processes.POLL)
        found = _IDS.fullmatch(said)
        if found is None:
            raise Unfinished(
                f"tmux new-window: {fault.strip() or said.strip()!r:.200}; look with `tmux list-windows -a`"
            )
        return found[1], found[2], int(found[3])

    def _mark(self, window: Window, pane: str) -> None:
        options = {
            "remain-on-exit": "on",
            "automatic-rename": "off",
            "allow-rename": "off",
            OPTION: _mark(window, pane),
        }
        argv: list[str] = []
        for name, value in options.items():
            argv += [*([";"] if argv else []), "set-option", "-w", "-t", window.id, name, value]
        argv += [";", "set-option", "-t", f"={SESSION}:", "destroy-unattached", "off"]
        status, _, fault = self._run(*argv)
        if status:
            raise Unfinished(f"{window.name}: tmux set-option: {fault.strip():.200}; nothing was started")

    def _asked(self, *argv: str) -> str:
        """What a command says; nothing where there is no server or no session."""
        status, said, fault = self._run(*argv)
        if status and not _is_nobody(fault):
            raise Unfinished(
                f"tmux {argv[0]}: {fault.strip():.200}; look with `{' '.join(self._tmux)} list-windows -a`"
            )
        return "" if status else said

    def _run(self, *argv: str) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                [*self._tmux, *argv], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SECONDS
            )
        except FileNotFoundError:
            raise NotFound("tmux: not found on PATH; install tmux, or let agents run as plain processes") from None
        except subprocess.TimeoutExpired:
            raise TimedOut(f"tmux {argv[0]}: no answer in {_SECONDS} s; is its server stopped?") from None
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def _is_nobody(fault: str) -> bool:
    return any(sign in fault for sign in _NOBODY)


def _mark(window: Window, pane: str) -> str:
    """What the option says: all that is known of the window, in letters that mean nothing to tmux."""
    fields = (
        pane, str(window.pid), window.started, str(window.begun), window.name, window.noun, window.item, window.request,
    )  # fmt: skip
    return ".".join(urlsafe_b64encode(os.fsencode(one)).decode().rstrip("=") for one in fields)


class _Pane(NamedTuple):
    id: str
    mark: str
    window: Window
    server: int  # its process

    @property
    def unsettled(self) -> bool:
        """Whether the program has ended and tmux does not say how."""
        return not self.window.running and self.window.status is None


def _pane(line: str) -> _Pane | None:
    """What a line of `list-panes` says of a pane, if it is ours."""
    try:
        window, pane, pid, status, number, active, server, mark = line.split("|", 7)
        own, first, began, begun, name, noun, item, request = (_text(one) for one in mark.split("."))
        if own != pane or first != pid:
            return None
        # Not what tmux thinks: to tmux a pane lives as long as anybody writes to it.
        running = began != "" and processes.started(int(pid)) == began
        ended = _signal(number) if number else int(status) if status else None
        found = Window(
            id=window, name=name, noun=noun, item=item, request=request, pid=int(pid), started=began, begun=int(begun),
            active=max(int(begun), int(active or 0) * SECOND), running=running, status=None if running else ended,
        )  # fmt: skip
        return _Pane(pane, mark, found, int(server))
    except ValueError:
        return None  # no mark, or one that we did not make


def _signal(word: str) -> int | None:
    """The signal that ended a program, as tmux writes it: a number or a name, as the system has it."""
    found = int(word) if word.isdigit() else getattr(signal, f"SIG{word.upper().removeprefix('SIG')}", None)
    return -found if found else None


def _text(word: str) -> str:
    return os.fsdecode(urlsafe_b64decode(word + "=" * (-len(word) % 4)))
