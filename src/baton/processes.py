"""Processes by number and time of their begin, for a number alone is soon another one's; how they are ended.

And what a child gets of the environment of who starts it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from baton import clock

POLL = 0.02
# What every child gets of this process's environment. No keys, no agents of keys, nothing of baton: who starts it names
# those.
PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TERM", "COLORTERM",
    "NO_COLOR", "XDG_*",
)  # fmt: skip
PATIENCE = 5.0  # seconds that a killed process may take to be gone


class Process(NamedTuple):
    """One that lives; what has ended and was not fetched by its parent does not."""

    pid: int
    parent: int
    group: int
    session: int
    started: str


def passed(own: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """What a child gets out of `own`: what all get, and what is named, as NAME or PREFIX*."""
    wanted = (*PASSED, *names)
    return {name: value for name, value in own.items() if any(fnmatchcase(name, one) for one in wanted)}


def started(pid: int) -> str | None:
    """When a living process began, in the words of this system; None where there is no such process."""
    found = _stat(pid) if _PROC else table().get(pid)
    return found.started if found else None


def table() -> dict[int, Process]:
    """All that live."""
    found = map(_stat, _numbers()) if _PROC else map(_line, _ps())
    return {one.pid: one for one in found if one}


class Family:
    """A process, those of its session, and all that came from them; who was once seen belongs to it for good."""

    def __init__(self, pid: int, began: str, others: Iterable[Process] | None = None) -> None:
        """`others` are the children that this process had before: it adopts orphans, so all newer ones belong to it."""
        self.pid, self.began = pid, began
        self.known: dict[int, str] = {}
        self.others = None if others is None else {(one.pid, one.started) for one in others}

    def living(self) -> list[Process]:
        """Those of the family that live, this process left out."""
        rows = table()
        first = rows.get(self.pid)
        found = {one.pid for one in rows.values() if self.known.get(one.pid) == one.started}
        if first is None or first.started == self.began:
            # A number is not given again while a session has it, so without the first one it still is his session.
            found |= {one.pid for one in rows.values() if self.pid in {one.pid, one.session, one.group}}
        if self.others is not None:
            found |= {one.pid for one in _children(rows) if (one.pid, one.started) not in self.others}
        children: dict[int, list[int]] = {}
        for one in rows.values():
            children.setdefault(one.parent, []).append(one.pid)
        waiting = list(found)
        while waiting:
            new = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
            found.update(new)
            waiting += new
        found.discard(os.getpid())
        self.known.update((pid, rows[pid].started) for pid in found)
        return [rows[pid] for pid in sorted(found)]


def children() -> list[Process]:
    """The living children of this process."""
    return _children(table())


def end(pid: int, began: str, grace: float, others: Iterable[Process] | None = None) -> list[Process]:
    """SIGTERM to a process and its family, after `grace` seconds SIGKILL; who is still there after that."""
    family, told = Family(pid, began, others), set[tuple[int, str]]()
    kill_from = clock.monotonic() + grace
    while living := family.living():
        now = clock.monotonic()
        if now >= kill_from + PATIENCE:
            break
        if now >= kill_from:
            _send(living, signal.SIGKILL)
        else:
            new = [one for one in living if (one.pid, one.started) not in told]
            _send(new, signal.SIGTERM)
            _send(new, signal.SIGCONT)  # a stopped one cannot end
            told |= {(one.pid, one.started) for one in new}
        time.sleep(POLL)
    return living


def _children(rows: Mapping[int, Process]) -> list[Process]:
    return [one for one in rows.values() if one.parent == os.getpid()]


def _send(processes: Iterable[Process], number: signal.Signals) -> None:
    for one in processes:
        with suppress(ProcessLookupError, PermissionError):
            if not hasattr(os, "pidfd_open"):
                os.kill(one.pid, number)
                continue
            handle = os.pidfd_open(one.pid)
            try:
                if started(one.pid) == one.started:  # so that the handle is of this one and of no later one
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


# --- what the system says -------------------------------------------------------------------------

_PROC = Path("/proc/self/stat").exists()


def _numbers() -> list[int]:
    with os.scandir("/proc") as found:
        return [int(one.name) for one in found if one.name.isdigit()]


def _stat(pid: int) -> Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in b"ZX":
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), fields[19].decode())


def _ps() -> list[str]:
    """Where there is no /proc: everybody, with the time in whole seconds."""
    argv = ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=10).stdout.splitlines()


def _line(line: str) -> Process | None:
    pid, parent, group, state, began = line.split(None, 4)
    if state.startswith("Z"):
        return None
    return Process(int(pid), int(parent), int(group), int(group), began.strip())
