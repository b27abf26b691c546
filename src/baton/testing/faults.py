"""Kill, tear or fail a workload at every write-side operation, and check what it leaves behind.

A workload is `workload(directory, acknowledge)`: it works in the directory and calls `acknowledge(line)`
after each thing that it promises to keep. A check is `check(directory, acknowledged)`: it opens what is
there after the fault, as a user would, and raises or returns what is wrong. Both must be importable.

`kill_sweep` works inside the process and is portable; `strace_sweep` works from outside on any program,
on Linux. Both fail when they hit nothing: a fault that did not happen proves nothing.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

from baton.testing.children import PATIENCE, Child, Outcome, Tell, in_clean_process, scratch
from baton.testing.taps import Operation, Perform, tapped

Mode = Literal["kill", "torn", "EIO", "ENOSPC"]
Workload = Callable[[str, Callable[[str], None]], object]
Check = Callable[[str, list[str]], str | Iterable[str] | None]
Prepare = Callable[[str], object]

MODES = ("kill", "torn", "EIO", "ENOSPC")


@dataclass(frozen=True)
class Violation:
    """What the check found, and where the fault was."""

    point: str
    detail: str


@dataclass(frozen=True)
class Findings:
    """What a sweep of any kind found."""

    violations: tuple[Violation, ...]
    seconds: float

    def assert_clean(self) -> None:
        """Raise with the first violations, if there are any."""
        first = "\n".join(f"- {found.point}: {found.detail}" for found in self.violations[:5])
        if self.violations:
            raise AssertionError(f"{len(self.violations)} violations, the first:\n{first}")


@dataclass(frozen=True)
class SweepReport(Findings):
    """Faults delivered at `points` of the `calls` that were aimed at: `kills` ended the process, `errors` came back."""

    calls: int
    points: int
    kills: int
    errors: int
    acknowledged: int
    operations: tuple[str, ...] = field(repr=False)


def problems(check: Check, directory: str, acknowledged: list[str]) -> list[str]:
    """Return what a check finds, be it returned or raised."""
    try:
        found = check(directory, acknowledged)
        return [found] if isinstance(found, str) else list(found or ())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return ["".join(traceback.format_exception(error)).strip()]


class Fuse:
    """A tap that burns at the n-th operation: before it, in the middle of a write, or with an error."""

    def __init__(self, at: int, mode: Mode, tell: Tell) -> None:
        self._at, self._mode, self._tell = at, mode, tell
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, operation: Operation, perform: Perform) -> Any:
        """Let the operation pass, or burn."""
        if self._mode == "torn" and operation.kind != "write":
            return perform(operation.data)
        with self._lock:
            self._count += 1
            burns = self._count == self._at
            full = self._mode == "ENOSPC" and self._count > self._at and operation.kind in {"write", "create"}
        if burns:
            self._tell(b"F", str(operation))
        if not (burns or full):
            return perform(operation.data)
        if self._mode in {"EIO", "ENOSPC"}:
            number = getattr(errno, self._mode)
            raise OSError(number, os.strerror(number), operation.path)
        if self._mode == "torn" and len(operation.data) > 1:
            perform(operation.data[: len(operation.data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


def kill_sweep(
    workload: Workload,
    check: Check,
    *,
    where: Collection[str] = ("sqlite", "files"),
    mode: Mode = "kill",
    prepare: Prepare | None = None,
    every: int = 1,
) -> SweepReport:
    """Run a workload once per write-side operation, with a fault at that operation; check each time.

    `where` names what is tapped (see `taps`), `prepare(directory)` sets the stage once and without
    faults, `every` takes each n-th point only. "torn" cuts writes in half; "ENOSPC" lasts.
    """
    if mode not in MODES or every < 1:
        raise ValueError(f"mode= is one of {', '.join(MODES)} and every= at least 1, not {mode!r}, {every!r}")
    return in_clean_process(_sweep, workload, check, prepare, tuple(where), mode, every)


def _sweep(
    workload: Workload,
    check: Check,
    prepare: Prepare | None,
    where: tuple[str, ...],
    mode: Mode,
    every: int,
) -> SweepReport:
    tally = _Tally()
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        root = Path(name).resolve()
        stage = prepared(prepare, root / "stage")
        for point in count(1, every):
            directory = str(shutil.copytree(stage, root / "run"))
            outcome = _strike(functools.partial(workload, directory), where, mode, point)
            reached = outcome.of(b"F")
            if not reached and (outcome.status or outcome.hung):
                raise RuntimeError(f"the workload fails by itself: {outcome.status} {outcome.of(b'E')}")
            acknowledged = outcome.of(b"A")
            found = ["the workload hangs"] if outcome.hung else []
            found += _inspected(check, directory, acknowledged)
            tally.add(f"{point} {reached[0] if reached else 'no fault'}", acknowledged, found)
            shutil.rmtree(directory)
            if not reached:
                return tally.report(len(tally.operations))
            tally.hit(reached[0], killed=outcome.killed)
    raise AssertionError("unreachable")


def _silent(*_: object) -> None: ...


def _strike(
    workload: Callable[[Callable[[str], None]], object], where: tuple[str, ...], mode: Mode, point: int
) -> Outcome:
    def body(tell: Tell) -> None:
        # An injected error is also printed where it can't be raised, as when a connection is dropped.
        sys.unraisablehook = sys.excepthook = _silent
        with tapped(Fuse(point, mode, tell), where):
            workload(functools.partial(tell, b"A"))

    return Child(body).finish()


def _inspected(check: Check, directory: str, acknowledged: list[str]) -> list[str]:
    def body(tell: Tell) -> None:
        for problem in problems(check, directory, acknowledged):
            tell(b"V", problem)

    outcome = Child(body).finish()
    broken = [f"the check ended with {outcome.status}: {outcome.of(b'E')}"] if outcome.status else []
    return outcome.of(b"V") + broken


@dataclass
class _Tally:
    began: float = field(default_factory=time.perf_counter)
    operations: list[str] = field(default_factory=list)
    kills: int = 0
    acknowledged: int = 0
    violations: list[Violation] = field(default_factory=list)

    def add(self, point: str, acknowledged: list[str], found: list[str]) -> None:
        self.acknowledged += len(acknowledged)
        self.violations += [Violation(point, detail) for detail in found]

    def hit(self, operation: str, *, killed: bool) -> None:
        self.operations.append(operation)
        self.kills += killed

    def report(self, calls: int) -> SweepReport:
        points = len(self.operations)
        if not points:
            raise AssertionError("no operation was hit: the workload writes nothing that the sweep sees")
        return SweepReport(
            violations=tuple(self.violations),
            seconds=time.perf_counter() - self.began,
            calls=calls,
            points=points,
            kills=self.kills,
            errors=points - self.kills,
            acknowledged=self.acknowledged,
            operations=tuple(self.operations),
        )


def prepared(prepare: Prepare | None, directory: Path) -> Path:
    """Make a directory and let `prepare` set the stage in it, in a process of its own."""
    directory.mkdir(parents=True)
    if prepare is not None:
        outcome = Child(lambda _: prepare(str(directory))).finish()
        if outcome.status:
            raise RuntimeError(f"prepare failed: {outcome.status} {outcome.of(b'E')}")
    return directory


SYSCALLS = (
    *("write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "ftruncate", "truncate"),
    *("openat", "unlink", "unlinkat", "link", "linkat", "rename", "renameat", "renameat2"),
)
_CALL = re.compile(r"(\d+) +(\w+)\((.*)")


def strace_sweep(
    argv: Sequence[str],
    check: Check,
    *,
    syscalls: Collection[str] = SYSCALLS,
    mode: Literal["kill", "EIO", "ENOSPC"] = "kill",
    prepare: Prepare | None = None,
    every: int = 1,
) -> SweepReport:
    """Do as `kill_sweep` with any program, from outside: strace faults each system call that writes.

    `{directory}` in an argument becomes the directory; each line on standard output is an
    acknowledgement. Only calls that concern the directory are hit. Check and prepare run right here.
    """
    tally = _Tally()
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        root = Path(name).resolve()
        stage, log = root / "stage", root / "log"
        stage.mkdir()
        if prepare is not None:
            prepare(str(stage))
        shutil.copytree(stage, root / "run")
        _traced(argv, root, "-e", "trace=none")  # the first run may write caches, by calls that no later one makes
        shutil.rmtree(root / "run")
        shutil.copytree(stage, root / "run")
        calls = ",".join(f"?{call}" for call in syscalls)
        _traced(argv, root, "-y", "-e", f"trace={calls}")
        points = _points(log.read_text(errors="replace"), str(root / "run"))[::every]
        for call, number in points:
            shutil.rmtree(root / "run")
            shutil.copytree(stage, root / "run")
            fault = "signal=KILL" if mode == "kill" else f"error={mode}"
            # Never --seccomp-bpf: with it nothing is injected.
            options = ("-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={number}")
            acknowledged = _traced(argv, root, *options, may_fail=True)
            traced, point = log.read_text(errors="replace"), f"{call} {number}"
            tally.add(point, acknowledged, problems(check, str(root / "run"), acknowledged))
            killed = "+++ killed by SIGKILL" in traced
            if killed or "(INJECTED)" in traced:
                tally.hit(point, killed=killed)
    return tally.report(len(points))


def _traced(argv: Sequence[str], root: Path, *options: str, may_fail: bool = False) -> list[str]:
    command = [part.replace("{directory}", str(root / "run")) for part in argv]
    strace = ["strace", "-f", "-o", str(root / "log"), *options, "--", *command]
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(strace, stdout=subprocess.PIPE, stderr=errors, timeout=PATIENCE, check=False)
        errors.seek(0)
        if done.returncode and not may_fail:
            raise RuntimeError(f"{argv[0]} fails by itself: {errors.read().decode(errors='replace')}")
    return done.stdout.decode().splitlines()


def _points(log: str, directory: str) -> list[tuple[str, int]]:
    # strace counts the calls of each name in each process from 1, whatever they concern.
    seen: Counter[tuple[str, str]] = Counter()
    points: set[tuple[str, int]] = set()
    for pid, call, rest in _CALL.findall(log):
        seen[pid, call] += 1
        writes = not call.startswith("open") or "O_CREAT" in rest or "O_TRUNC" in rest
        if writes and directory in rest:
            points.add((call, seen[pid, call]))
    return sorted(points)
