"""What is started in a window, what is known of it, and the ticket on which a start travels."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from baton import clock
from baton.errors import Malformed, TooLarge, Unfinished
from baton.processes import POLL, Process

T = TypeVar("T")

LAUNCH = str(Path(__file__).with_name("launch.py"))
NAME = re.compile(r"agent-[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*", re.ASCII)
MAX_PATH = 4096
MAX_JOB = 1024 * 1024
GRACE = 10.0  # seconds between the request to end and the order
STALE = 600
SETTLED = 5.0  # seconds in which who watches a program has noticed its end


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to start: for which item (`item` is its path below the root), which program, where, and with what around."""

    noun: str
    item: str
    request: str
    argv: tuple[str, ...]
    folder: str
    environment: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if len(self.noun) > 60 or not NAME.fullmatch(f"agent-{self.noun}"):
            raise Malformed(f"noun {self.noun!r:.80}; use letters, digits and single hyphens")
        for field, path in (("item", self.item), ("request", self.request), ("folder", self.folder)):
            if not path or "\0" in path or len(os.fsencode(path)) > MAX_PATH:
                raise Malformed(f"{field}: {path!r:.80}; a path has 1 to {MAX_PATH} bytes and no NUL")
        texts = [*self.argv, *self.environment, *self.environment.values()]
        if not self.argv or not self.argv[0] or any("\0" in one for one in texts):
            raise Malformed(f"{self.request!r:.80}: no program, or a NUL in its arguments or environment; remove it")
        if any(not name or "=" in name for name in self.environment):
            raise Malformed(f"{self.request!r:.80}: a variable without a name, or with = in it; rename it")
        if sum(len(os.fsencode(one)) for one in texts) > MAX_JOB:
            raise TooLarge(f"{self.request!r:.80}: more than {MAX_JOB} bytes to start a program with; use a file")


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. The program is known by `pid` and `started` together; `status` is its exit code, or minus a signal.

    `status` is None while it runs, and where nobody saw how it ended. `active` is when something was written last.
    """

    id: str
    name: str
    noun: str
    item: str
    request: str
    pid: int
    started: str
    begun: int
    active: int
    running: bool
    status: int | None = None
    log: str = ""


class Ticket:
    """What `launch.py` waits for: a file that stays locked and empty until `go`, or until this process dies."""

    def __init__(self, folder: Path, noun: str, taken: Callable[[str], bool]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(folder)
        self.begun = clock.now()
        first = f"agent-{noun}-{self.begun // clock.SECOND}"
        number = 1
        while True:
            self.name = first if number == 1 else f"{first}-{number}"
            self.path = folder / f"{self.name}.start"
            number += 1
            if self._made() and not self._taken(taken):
                return

    def _taken(self, taken: Callable[[str], bool]) -> bool:
        # Asked when the ticket is there: who had the name before has marked its window before it gave up its ticket.
        try:
            if not taken(self.name):
                return False
        except BaseException:
            self.close()
            raise
        self.close()
        return True

    def _made(self) -> bool:
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return False
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def argv(self, mode: Literal["exec", "keep"]) -> list[str]:
        """The command that waits for this ticket."""
        return [sys.executable, "-I", "-S", LAUNCH, mode, str(self.path)]

    def go(self, job: Job, **more: Any) -> None:
        """Let the program start."""
        document = {
            "argv": [_letters(one) for one in job.argv],
            "folder": _letters(job.folder),
            "environment": {_letters(name): _letters(value) for name, value in job.environment.items()},
            **more,
        }
        data = json.dumps(document).encode("ascii")
        if os.write(self._file, data) != len(data):
            raise Unfinished(f"{self.path}: not written as a whole; is the disk full?")
        os.close(self._file)
        self._file = -1

    def close(self) -> None:
        """Nothing is to be started any more by this ticket."""
        if self._file >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def _letters(text: str) -> str:
    """The bytes of a text as letters, so that whoever reads them needs not know the encoding of file names."""
    return os.fsencode(text).decode("latin-1")


def _sweep(folder: Path) -> None:
    """Remove the tickets of those who died half-way, long enough ago that nobody waits for them."""
    for path in folder.glob("*.start"):
        with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
            if clock.now() - os.fstat(file.fileno()).st_mtime_ns // 1000 > STALE * clock.SECOND:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def settled(look: Callable[[], tuple[T, bool]]) -> T:
    """What a look found, once all that ended have their status; or when that takes too long."""
    deadline = clock.monotonic() + SETTLED
    while True:
        found, done = look()
        if done or clock.monotonic() >= deadline:
            return found
        time.sleep(POLL)


def undead(window: Window, left: Iterable[Process]) -> Unfinished:
    """The error when not all of a family could be ended."""
    who = ", ".join(str(one.pid) for one in left)
    return Unfinished(
        f"{window.name}: process {who} does not end, not even by SIGKILL; the window stays open. It may wait for a disk"
        " or belong to another user: look with `ps -o pid,stat,user,wchan -p PID`"
    )
