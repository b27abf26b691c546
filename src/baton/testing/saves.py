"""Let a person save a file again and again while somebody else changes it all the time; count what is lost.

A save is lost when it is neither in the file nor in a file that was kept beside it. The harness proves something only
while it is rough enough: `naive_change`, which reads, edits and replaces, must lose some.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from baton.board import files
from baton.board.tags import Text, replaced
from baton.errors import BatonError
from baton.testing.children import PATIENCE, Child, Tell, in_clean_process

Change = Callable[[str, Callable[[bytes], bytes]], object]
Save = Callable[[Path, bytes], None]
STATES = {"delegated-fix": "claimed-fix", "claimed-fix": "delegated-fix"}
SETTLE = 2.0  # a change that is undone shows the older text for a moment
ENOUGH = 3  # lost saves after which nobody saves any more


@dataclass(frozen=True)
class SavesResult:
    """How many saves there were, how many of them are gone, how many stand in a file of their own, and what changed."""

    saves: int
    lost: int
    kept: int
    reported: int
    changes: int


def by_rename(path: Path, data: bytes) -> None:
    """Save like an editor that writes a second file and gives it the name."""
    second = path.with_name(f".{path.name}.swp")
    second.write_bytes(data)
    second.replace(path)


def in_place(path: Path, data: bytes) -> None:
    """Save like an editor that empties the file and writes it."""
    path.write_bytes(data)


def without_truncation(path: Path, data: bytes) -> None:
    """Save like an editor that writes over what is there and cuts off the rest."""
    number = os.open(path, os.O_WRONLY)
    try:
        os.write(number, data)
        os.ftruncate(number, len(data))
    finally:
        os.close(number)


def naive_change(path: str, edit: Callable[[bytes], bytes]) -> None:
    """How not to do it: read, edit, replace."""
    file = Path(path)
    second = file.with_name(f".{file.name}.{os.getpid()}")
    second.write_bytes(edit(file.read_bytes()))
    second.replace(file)


def saves(directory: str, save: Save, count: int, change: Change = files.change) -> SavesResult:
    """Save a file so many times in one process while another one changes its tag as fast as it can."""
    return in_clean_process(_saves, directory, save, count, change)


def _saves(directory: str, save: Save, count: int, change: Change) -> SavesResult:
    path = Path(directory, "fix.md")
    path.write_bytes(_text(0))
    stop = Path(directory, "stop")
    changer = Child(functools.partial(_changes, path, stop, change))
    try:
        lost = _person(path, save, count)
    finally:
        stop.touch()
        outcome = changer.finish(PATIENCE)
    if outcome.status:
        raise RuntimeError(f"the changes ended with {outcome.status}: {outcome.of(b'E')}")
    kept = [_number(file.read_bytes()) for file in path.parent.glob("*.displaced-*")]
    return SavesResult(
        saves=count,
        lost=len(lost - set(kept)),
        kept=len(kept),
        reported=int(outcome.of(b"R")[0]),
        changes=int(outcome.of(b"C")[0]),
    )


def _text(number: int, tag: str = "delegated-fix") -> bytes:
    return f"# Fix\n**Tags**: #{tag} #P1\n\nsave {number}\n{'and more of it ' * 200}\n".encode()


def _number(data: bytes) -> int:
    line = data.partition(b"\nsave ")[2].partition(b"\n")[0]
    return int(line) if line.isdigit() else -1


def _person(path: Path, save: Save, count: int) -> set[int]:
    """Save so often; the saves that were gone when the next one was due."""
    lost = set()
    for number in range(1, count + 1):
        tags = [tag.name for tag in Text(path.read_bytes()).own()]
        save(path, _text(number, tags[0] if tags else "delegated-fix"))
        time.sleep(0.0005 * (number % 3))
        until = time.monotonic() + SETTLE
        while _number(path.read_bytes()) != number:
            if time.monotonic() > until:
                lost.add(number)
                break
            time.sleep(0.001)
        if len(lost) >= ENOUGH:
            break
    return lost


def _toggled(data: bytes) -> bytes:
    own = Text(data).own()
    tag = next((one for one in own if one.name in STATES), None)
    return data if tag is None else replaced(data, [tag], [STATES[tag.name]])


def _changes(path: Path, stop: Path, change: Change, tell: Tell) -> None:
    changes = reported = 0
    while not stop.exists():
        try:
            with suppress(FileNotFoundError):
                change(str(path), _toggled)
                changes += 1
        except BatonError as error:
            reported += "is kept in" in str(error)
    tell(b"C", str(changes))
    tell(b"R", str(reported))
