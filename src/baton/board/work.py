"""`run /SKILL FILE`: claim an item, start the program that does it, watch it, and say how it ended.

The claim comes first, with its owner, epoch and lock in one record; only then does the program start. What it starts
inherits the lock, so that work whose watcher was killed can be told from work that is over. When the program ends, what
it left running is ended, too, and the item is done, or back on the list with the reason.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from baton import clock, config, processes
from baton.board import files, programs, sessions, wrote
from baton.board.actor import Actor, Claim, from_shell
from baton.board.evidence import Verdict, Worker
from baton.board.moves import Move, make, origin_of, standing
from baton.board.programs import Program
from baton.board.recovery import Finding, Recovery, Rules, lock_path
from baton.board.root import Board
from baton.board.sessions import SessionState
from baton.board.subreaper import adopt_orphans
from baton.board.tags import Text
from baton.errors import BatonError, Refused, safe
from baton.protocol import codec
from baton.stores import holder

LOOK = 0.5  # seconds between two looks at what the program does
WRITE = 5.0  # seconds between two signs of life in the state file
GRACE = 10.0
PR_SET_PDEATHSIG = 1
ALONE = "Finish it alone: others cannot be asked for work."
WITH_OTHERS = "For work of another kind, ask others: `baton request new SKILL TOPIC` writes a request."
AGENT_LOG = "agent.log"
STARTABLE = ("delegated", "next")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done: an item of a board, by which skill and program, in which mode."""

    board: Board
    path: str  # the real one
    noun: str
    skill: str
    program: Program
    mode: programs.Mode
    rules: Rules
    longest: float | None = None  # seconds, then it is ended
    definition: str = ""  # a file that says what kind of agent it is
    handoffs: bool = False  # whether it may ask others for work

    @property
    def name(self) -> str:
        """The file as the log knows it."""
        return self.board.name(self.path)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended."""

    status: sessions.Status
    reason: str
    session: str
    claim: int
    exit: int | None = None


def claimed(task: Task, actor: Actor, more: dict[str, str]) -> tuple[Path, int]:
    """Claim what a person approved, for who does the work: the folder of its session, and the epoch of the claim."""
    data = files.read(task.path)
    approved = task.rules.approved(task.name, task.noun, data)
    if isinstance(approved, str):
        raise Refused(f"{task.name}: {approved}; `baton review` shows it to a person")
    folder = sessions.make(task.board, task.skill, Text(data).title() or Path(task.path).stem)
    session = task.board.name(str(folder))
    origin = origin_of(task.board, task.path, 0, task.noun, list(STARTABLE))
    move = Move(task.board, task.path, task.noun, origin, "claimed")
    move.more = {"session": session, "skill": task.skill, "approval": approved.at, **more}
    move.also = lambda text: wrote.below_tags(task.board, task.name, text, f"Session: {session}")
    try:
        return folder, make(move, actor)
    except BaseException:
        folder.rmdir()
        raise


def caller(board: Board) -> Actor:
    """Who called this command, as the holder of work that it is about to do itself.

    An agent under a claim runs its commands in shells that end at once; what stands for it is the holder of its claim.
    """
    given = from_shell()
    if given.claim is not None:
        record = standing(board.log.history(given.claim.path, given.claim.noun))
        if record is not None and record["event"] == "claimed" and record["at"] == given.claim.epoch:
            return Actor(given.by, str(record["holder"]))
    return given


class Work:
    """One run of one item, from the claim to the end of all that was started for it."""

    def __init__(self, task: Task, show: Callable[[str], object] | None = None) -> None:
        """`show` is given what a program without a window says, line by line."""
        self.task = task
        self._show = show
        self._shown = 0
        self.folder = Path()
        self.epoch = 0
        self._stopped = 0
        self._others: list[processes.Process] | None = None  # children of this process that it had before
        self._state: SessionState | None = None

    def run(self, say: Callable[[str], object] = lambda _text: None) -> Outcome:
        """Do it. An item that somebody else has is `Held`, one that nobody approved is `Refused`."""
        lock_id = clock.new_id().replace("-", "")
        lock = self._lock(lock_id)
        try:
            self._claim(lock_id)
            say(f"claimed {self.task.name}#{self.task.noun} (claim {self.epoch}) in {self.session}")
            return self._supervise(lock)
        finally:
            os.close(lock)
            lock_path(self.task.board, lock_id).unlink(missing_ok=True)

    @property
    def session(self) -> str:
        """The session's folder as the log knows it."""
        return self.task.board.name(str(self.folder))

    def stop(self, number: int, _frame: object = None) -> None:
        """A signal handler: end the program, and then this."""
        self._stopped = number

    # --- claim ----------------------------------------------------------------------------------------

    def _lock(self, lock_id: str) -> int:
        path = lock_path(self.task.board, lock_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(number, fcntl.LOCK_EX)
        return number

    def _claim(self, lock_id: str) -> None:
        task = self.task
        actor = Actor(f"/{task.skill}", holder.identity(), supervised=True)
        self.folder, self.epoch = claimed(task, actor, {"lock": lock_id, "program": task.program.name})

    # --- watch ----------------------------------------------------------------------------------------

    def _supervise(self, lock: int) -> Outcome:
        self._others = processes.children() if adopt_orphans() else None
        before = {one: signal.signal(one, self.stop) for one in (signal.SIGTERM, signal.SIGHUP)}
        # In a window a person interrupts the program with Ctrl-C, which this process behind it hears, too.
        shown = self.task.mode == "interactive"
        before[signal.SIGINT] = signal.signal(signal.SIGINT, _deaf if shown else self.stop)
        try:
            code, fault = self._watched(lock)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        outcome = self._settled(code, fault)
        self._tell(phase="ended", status=outcome.status, exit=code)
        return outcome

    def _watched(self, lock: int) -> tuple[int | None, str]:
        """The exit code of the program, and why it was ended or never started."""
        self._tell(phase="starting", status="starting")
        try:
            child = self._start(lock)
        except (OSError, ValueError, BatonError) as error:
            return None, f"{self.task.program.name} could not be started: {error}"
        began = processes.started(child.pid) or ""
        self.task.board.log.append(
            "started",
            self.task.name,
            self.task.noun,
            epoch=self.epoch,
            agent=holder.name_of(child.pid),
            session=self.session,
        )
        try:
            return self._until_end(child)
        finally:
            processes.end(child.pid, began, GRACE, self._others)
            child.wait()
            _reap()

    def _start(self, lock: int) -> subprocess.Popen[bytes]:
        task = self.task
        values = {
            "request": task.path,
            "skill": task.skill,
            "session": str(self.folder),
            "root": task.board.root,
            "prompt": prompt(task, self.folder),
        }
        argv = programs.command(task.program, task.mode, values)
        claim = Claim(task.name, task.noun, self.epoch)
        more = {"BATON_CLAIM": str(claim), "BATON_SESSION": str(self.folder), "BATON_ROOT": task.board.root}
        more["BATON_HANDOFFS"] = "on" if task.handoffs else "off"
        environment = programs.environment(task.program, config.environment(), more)
        output: Any = None
        if task.mode == "headless":
            output = (self.folder / AGENT_LOG).open("ab")
        try:
            return subprocess.Popen(
                argv,
                cwd=task.board.root,
                env=environment,
                pass_fds=(lock,),
                stdin=subprocess.DEVNULL if output else None,
                stdout=output,
                stderr=output,
                start_new_session=output is not None,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has but one thread
            )
        finally:
            if output:
                output.close()

    def _until_end(self, child: subprocess.Popen[bytes]) -> tuple[int | None, str]:
        begun = told = clock.monotonic()
        seen = self._progress()
        self._tell(phase="working", status="running", agent=child.pid, heartbeat=codec.to_time(clock.now()))
        while True:
            try:
                return child.wait(LOOK), ""
            except subprocess.TimeoutExpired:
                pass
            finally:
                self._follow(ended=child.returncode is not None)
            now = clock.monotonic()
            if self._stopped:
                return None, f"stopped by {signal.Signals(self._stopped).name}"
            if self.task.longest is not None and now - begun > self.task.longest:
                return None, f"ended after {self.task.longest:g} s, the longest that it may take"
            if (progress := self._progress()) != seen and now - told >= WRITE:
                seen, told = progress, now
                self._tell(heartbeat=codec.to_time(clock.now()))

    def _follow(self, *, ended: bool) -> None:
        """Show what the program has said since the last look: whole lines, and at its end the rest."""
        if self._show is None or self.task.mode != "headless":
            return
        with (self.folder / AGENT_LOG).open("rb") as log:
            log.seek(self._shown)
            text = log.read()
        text = text if ended else text[: text.rfind(b"\n") + 1]
        self._shown += len(text)
        for line in text.decode(errors="replace").splitlines():
            self._show(line)

    def _progress(self) -> tuple[object, ...]:
        """What changes while the program works: its request, and the files of its session but for what we write."""
        seen = []
        try:
            files_of = [one for one in self.folder.iterdir() if not one.name.startswith(sessions.FILE)]
        except OSError:
            files_of = []
        for path in (Path(self.task.path), *sorted(files_of)):
            try:
                found = path.stat()
            except OSError:
                continue
            seen.append((path.name, found.st_size, found.st_mtime_ns))
        return tuple(seen)

    def _tell(self, **fields: Any) -> None:
        """Write the state file; work goes on where it can't be written."""
        if self._state is None:
            host, boot, pid, started, _ = holder.identity().split("/")
            self._state = SessionState(
                pid=int(pid), started=started, boot=boot, host=host, skill=self.task.skill,
                request=safe(self.task.name), noun=self.task.noun, claim=self.epoch, program=self.task.program.name,
                begun=codec.to_time(clock.now()),
            )  # fmt: skip
        self._state = msgspec.structs.replace(self._state, **fields)
        try:
            sessions.write(self.folder, self._state)
        except OSError as error:
            print(f"{self.folder / sessions.FILE}: {error.strerror}; the work goes on", file=sys.stderr)  # noqa: T201

    # --- end ------------------------------------------------------------------------------------------

    def _settled(self, code: int | None, fault: str) -> Outcome:
        """What the item is now; one that its program left claimed goes the way of all failed work."""
        task = self.task
        record = standing(task.board.log.history(task.name, task.noun))
        ended = Outcome(status="completed", reason="", session=self.session, claim=self.epoch, exit=code)
        if record is None or record["at"] != self.epoch:
            event = record["event"] if record else "gone"
            return msgspec.structs.replace(
                ended, reason=f"it is {event}", status="completed" if event == "done" else "stopped"
            )
        reason = fault or f"{task.program.name} ended with {code}, and the item was not done"
        try:
            data = files.read(task.path)
        except BatonError:
            data = b""  # it is gone; what is done about it says so
        recovery = Recovery(task.board, task.rules)
        found = Finding(
            path=task.name, noun=task.noun, verdict=Verdict.DEAD, reason=reason, tag="claimed", logged="claimed",
            seen=self.epoch, worker=Worker.DEAD, session=self.session,
            attempts=recovery.attempts(task.name, task.noun, data),
        )  # fmt: skip
        action = recovery.settle(found)
        status: sessions.Status = (
            "completed" if action.startswith("completed") else "stopped" if self._stopped else "failed"
        )
        return msgspec.structs.replace(ended, reason=f"{reason}: {action}", status=status)


def prompt(task: Task, folder: Path) -> str:
    """What the program is told; names of files are the only thing in it that is not ours, and are quoted."""
    item = f"#claimed-{task.noun}"
    path, session = shlex.quote(task.path), shlex.quote(str(folder))
    definition = shlex.quote(task.definition)
    who = f"You are the agent that the file {definition} describes: read it first. " if task.definition else ""
    return (
        f"{who}Do the work of the skill /{task.skill}. The request is the file {path}: read it first. It is claimed "
        f"for you ({item}). Write what you do into the folder {session}. When the work is done, write the response "
        f"with `baton respond {path}` and then run `baton tag swap {path} '{item}' '#done-{task.noun}'`. "
        f"{WITH_OTHERS if task.handoffs else ALONE} If you cannot do it, say why in the session's folder and end."
    )


def inline_steps(task: Task, folder: Path, claim: Claim) -> list[str]:
    """What is left to do for who does the work without an agent of its own."""
    under, path, session = (shlex.quote(one) for one in (str(claim), task.path, str(folder)))
    first = [f"read {shlex.quote(task.definition)}: it says how to work"] if task.definition else []
    return [
        *first,
        f"read {path} and do what it asks; what you write goes into {session}",
        f"BATON_CLAIM={under} baton respond {path} --summary '…'",
        f"BATON_CLAIM={under} baton tag swap {path} '#claimed-{task.noun}' '#done-{task.noun}'",
    ]


def _deaf(_number: int, _frame: object) -> None:
    """Hear nothing; a handler, since what is ignored would be ignored by the program, too."""


def _die_with_parent() -> None:
    """Between fork and exec: the program ends when who watches it is killed. Only Linux can do that."""
    if sys.platform == "linux":
        import ctypes

        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before
            os._exit(1)


def _reap() -> None:
    """Fetch all children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
