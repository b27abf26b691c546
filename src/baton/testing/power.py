"""Take the power away at any moment, and see what a disk may then hold.

A workload is recorded once: every change of every file, every sync, every acknowledgement. Then images
of the disk are made for moments of the record. What was synced before the moment is there. What was not
may be there, be missing, or be torn at sectors of 512 bytes, each write for itself, so that a later one
can survive an earlier one. A sync of a file makes its content durable, not its name: names (created,
renamed, deleted) become durable with a sync of their directory, which SQLite does by itself, and before
that survive up to any one of them, in order. Directories themselves always survive.
"""

from __future__ import annotations

import functools
import os
import pickle
import random
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from baton.testing.children import Child, Tell, in_clean_process, scratch
from baton.testing.faults import Check, Findings, Prepare, Violation, Workload, prepared, problems
from baton.testing.taps import Operation, Perform, tapped

SECTOR = 512
STYLES = ("drop", "keep", "some", "torn")


@dataclass(frozen=True)
class PowerReport(Findings):
    """What was recorded and replayed; `lossy` images lost at least one change."""

    operations: int
    syncs: int
    acknowledged: int
    images: int
    lossy: int


@dataclass(frozen=True, slots=True)
class Event:
    """A change, a sync with the number of events that it covers, or an acknowledgement."""

    operation: Operation | None
    covers: int = 0
    acknowledged: str = ""


class Recorder:
    """A tap that remembers; a sync covers what was there when it began."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lock = threading.Lock()

    def __call__(self, operation: Operation, perform: Perform) -> Any:
        """Perform and remember an operation, a sync after it is done and anything else before."""
        if operation.kind == "sync":
            covers = len(self.events)
            result = perform(b"")
            self._append(Event(operation, covers))
            return result
        self._append(Event(operation))
        result = perform(operation.data)
        if operation.kind == "delete" and operation.directory:
            self._append(Event(_directory_sync(operation.path), len(self.events)))
        return result

    def acknowledge(self, line: str) -> None:
        self._append(Event(None, acknowledged=line))

    def _append(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)


def _directory_sync(path: str) -> Operation:
    return Operation("sync", str(Path(path).parent), directory=True)


class Disk:
    """What is durable, what is pending, and the images that a power cut can make of them."""

    def __init__(self, root: Path, stage: Path) -> None:
        self._root = str(root)
        self._contents: dict[int, bytearray] = {}
        self._durable: dict[str, int] = {}
        self._pending: dict[int, list[tuple[int, Operation]]] = defaultdict(list)
        self._moves: list[tuple[int, dict[str, int | None]]] = []
        self._at = 0
        for file in stage.rglob("*"):
            if file.is_file():
                name = str(root / file.relative_to(stage))
                self._durable[name] = self._new(file.read_bytes())
        self._names = dict(self._durable)

    def _new(self, content: bytes) -> int:
        self._contents[len(self._contents)] = bytearray(content)
        return len(self._contents) - 1

    def apply(self, event: Event) -> None:
        """Let one recorded event happen."""
        operation, at = event.operation, self._at
        self._at += 1
        if operation is None or operation.kind == "ignored" or not operation.path.startswith(self._root):
            return
        path, target = operation.path, operation.target
        match operation.kind:
            case "create":
                self._move({path: self._new(b"")}, at)
            case "delete":
                self._move({path: None}, at)
            case "rename":
                self._move({target: self._names.get(path), path: None}, at)
            case "link":
                self._move({target: self._names.get(path)}, at)
            case "sync":
                self._sync(operation, event.covers)
            case _:
                if path in self._names:
                    self._pending[self._names[path]].append((at, operation))

    def _move(self, names: dict[str, int | None], at: int) -> None:
        self._moves.append((at, names))
        _rename(self._names, names)

    def _sync(self, operation: Operation, covers: int) -> None:
        number = self._names.get(operation.path)
        if number is not None:
            pending = self._pending[number]
            for _, change in (entry for entry in pending if entry[0] < covers):
                _change(self._contents[number], change)
            self._pending[number] = [entry for entry in pending if entry[0] >= covers]
        if operation.directory:
            directory = operation.path if number is None else str(Path(operation.path).parent)
            later = []
            for at, names in self._moves:
                if at < covers and any(str(Path(name).parent) == directory for name in names):
                    _rename(self._durable, names)
                else:
                    later.append((at, names))
            self._moves = later

    def image(self, chance: random.Random, style: str) -> tuple[dict[str, bytes], bool]:
        """Return the files that a power cut leaves now, and whether it lost anything."""
        names = dict(self._durable)
        kept = {"drop": 0, "keep": len(self._moves)}.get(style, chance.randint(0, len(self._moves)))
        for _, move in self._moves[:kept]:
            _rename(names, move)
        lossy = kept < len(self._moves)
        files: dict[int, bytes] = {}
        for number in sorted(set(names.values())):
            content = bytearray(self._contents[number])
            for _, change in self._pending[number]:
                for part in _survivors(change, chance, style):
                    _change(content, part)
                lossy = lossy or style != "keep"
            files[number] = bytes(content)
        return {os.path.relpath(name, self._root): files[number] for name, number in names.items()}, lossy


def _rename(names: dict[str, int], move: dict[str, int | None]) -> None:
    for name, number in move.items():
        if number is None:
            names.pop(name, None)
        else:
            names[name] = number


def _change(content: bytearray, operation: Operation) -> None:
    size, end = len(content), operation.offset + len(operation.data)
    if operation.kind == "truncate":
        del content[operation.size :]
        content.extend(bytes(operation.size - len(content)))
    else:
        if end > size:
            content.extend(bytes(end - size))
        content[operation.offset : end] = operation.data


def _survivors(operation: Operation, chance: random.Random, style: str) -> Iterator[Operation]:
    fate = style if style in {"drop", "keep"} else chance.choice(("drop", "keep", style))
    if fate == "torn" and operation.kind == "write":
        yield from (part for part in _sectors(operation) if chance.random() < 0.5)
    elif fate == "keep":
        yield operation


def _sectors(operation: Operation) -> Iterator[Operation]:
    begin, end = operation.offset, operation.offset + len(operation.data)
    edges = [begin, *range(begin - begin % SECTOR + SECTOR, end, SECTOR), end]
    for left, right in pairwise(edges):
        yield replace(operation, offset=left, data=operation.data[left - begin : right - begin])


def power_loss(
    workload: Workload,
    check: Check,
    *,
    images: int = 1000,
    seed: int = 0,
    prepare: Prepare | None = None,
    ignore_sync: bool | str = False,
) -> PowerReport:
    """Record a workload, cut the power at many moments, and check each image that is left.

    With `ignore_sync` the disk lies: it acknowledges syncs and does nothing; a text restricts that to
    files whose names end so ("-wal"). A check that finds nothing then is too gentle.
    """
    return in_clean_process(_power_loss, workload, check, prepare, ignore_sync, images, seed)


def _power_loss(
    workload: Workload,
    check: Check,
    prepare: Prepare | None,
    ignore_sync: bool | str,  # noqa: FBT001 - passed on as it came
    images: int,
    seed: int,
) -> PowerReport:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        root = Path(name).resolve()
        stage = prepared(prepare, root / "stage")
        shutil.copytree(stage, root / "run")
        events = [_lied(event, ignore_sync) for event in _recorded(workload, root)]
        replay = _Replay(check, root, events, seed)
        moments = _moments(len(events), images, seed)
        share = -(-len(moments) // (os.cpu_count() or 1))
        parts = [moments[first : first + share] for first in range(0, len(moments), share)]
        children = [Child(functools.partial(replay.run, part)) for part in parts]
        outcomes = [child.finish(60 + 0.5 * share) for child in children]
    failed = [outcome for outcome in outcomes if outcome.status]
    if failed:
        raise RuntimeError(f"a replay ended with {failed[0].status}: {failed[0].of(b'E')}")
    lossy = sum(len(outcome.of(b"L")) for outcome in outcomes)
    if not lossy:
        raise AssertionError("no image lost anything: the workload writes nothing that the recorder sees")
    changes = [event.operation for event in events if event.operation]
    return PowerReport(
        violations=tuple(Violation(*text.split("\n", 1)) for each in outcomes for text in each.of(b"V")),
        seconds=time.perf_counter() - began,
        operations=len(changes),
        syncs=sum(operation.kind == "sync" for operation in changes),
        acknowledged=len(events) - len(changes),
        images=len(moments),
        lossy=lossy,
    )


def _recorded(workload: Workload, root: Path) -> list[Event]:
    record = root / "record"

    def body(_: Tell) -> None:
        recorder = Recorder()
        with tapped(recorder):
            workload(str(root / "run"), recorder.acknowledge)
        record.write_bytes(pickle.dumps(recorder.events))

    outcome = Child(body).finish()
    if outcome.status:
        raise RuntimeError(f"the workload fails by itself: {outcome.status} {outcome.of(b'E')}")
    events: list[Event] = pickle.loads(record.read_bytes())  # noqa: S301 - our own child wrote it
    return events


def _lied(event: Event, ignore: bool | str) -> Event:  # noqa: FBT001 - passed on as it came
    operation = event.operation
    if operation is None or operation.kind != "sync":
        return event
    lies = operation.path.endswith(ignore) if isinstance(ignore, str) else ignore
    return replace(event, operation=replace(operation, kind="ignored")) if lies else event


def _moments(events: int, images: int, seed: int) -> list[tuple[int, int]]:
    # Every boundary as often as there are images for all of them; the rest by chance.
    rounds, rest = divmod(images, events + 1)
    chosen = random.Random(seed).sample(range(events + 1), rest)
    every = [(moment, number) for moment in range(events + 1) for number in range(rounds)]
    return sorted(every + [(moment, rounds) for moment in chosen])


@dataclass(frozen=True)
class _Replay:
    check: Check
    root: Path
    events: list[Event]
    seed: int

    def run(self, moments: list[tuple[int, int]], tell: Tell) -> None:
        disk, at = Disk(self.root / "run", self.root / "stage"), 0
        acknowledged: list[str] = []
        for moment, number in moments:
            for event in self.events[at:moment]:
                disk.apply(event)
                if event.operation is None:
                    acknowledged.append(event.acknowledged)
            at = moment
            chance = random.Random(f"{self.seed}/{moment}/{number}")
            style = STYLES[number % 4] if number < 4 else chance.choice(STYLES[2:])
            files, lossy = disk.image(chance, style)
            if lossy:
                tell(b"L", "")
            where = f"seed {self.seed}, moment {moment} of {len(self.events)}, image {number} ({style})"
            for problem in self._problems(files, acknowledged):
                tell(b"V", f"{where}\n{problem}")

    def _problems(self, files: dict[str, bytes], acknowledged: list[str]) -> list[str]:
        with tempfile.TemporaryDirectory(dir=self.root) as directory:
            for folder in (path for path in (self.root / "run").rglob("*") if path.is_dir()):
                Path(directory, folder.relative_to(self.root / "run")).mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                file = Path(directory, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch(mode=0o600)  # what is on it is known, not who could read it
                file.write_bytes(content)
            return problems(self.check, directory, list(acknowledged))
