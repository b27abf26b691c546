"""Session folders, and the `.state.json` in each: what the work of one agent looks like from outside.

The file is for people and their tools. It stands in the repository, so nothing is decided by it but how old the last
sign of progress is; who holds an item stands in the log.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from baton import clock, config
from baton.errors import BatonError, Malformed
from baton.protocol import codec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from baton.board.root import Board

FILE = ".state.json"
FOLDER = "sessions"
LONGEST = 60
Status = Literal["starting", "running", "waiting", "completed", "failed", "stopped"]
_ODD = re.compile(r"[^A-Z0-9]+")


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the file. `pid` with `started`, `boot` and `host` is the process that watches the agent."""

    pid: int
    started: str
    boot: str
    host: str
    skill: str
    phase: str = ""
    status: Status = "starting"
    heartbeat: codec.Time | None = None  # the last sign of progress
    begun: codec.Time | None = None
    request: str = ""
    noun: str = ""
    claim: int = 0
    program: str = ""
    agent: int = 0  # the process of the agent itself
    exit: int | None = None


def folder_name(skill: str, topic: str, now: int) -> str:
    """`YYYY_MM_DD_NAME`, out of letters that are safe everywhere."""
    day = codec.iso(now)[:10].replace("-", "_")
    return f"{day}_{safe_name(f'{skill}_{topic}')[:LONGEST].strip('_') or 'WORK'}"


def safe_name(words: str) -> str:
    """Words as a part of a file name: A to Z, digits and `_`; a letter with a mark, such as ü, loses only the mark."""
    bare = "".join(one for one in unicodedata.normalize("NFKD", words) if not unicodedata.combining(one))
    return _ODD.sub("_", bare.upper()).strip("_")


def make(board: Board, skill: str, topic: str) -> Path:
    """A new folder for one piece of work; a second one on the same day is numbered."""
    above, name = Path(board.root, FOLDER), folder_name(skill, topic, clock.now())
    above.mkdir(exist_ok=True)
    if above.resolve() != above:
        raise Malformed(f"{above}: it leads out of the board; make it a folder")
    for number in range(1, 10_000):
        made = above / (name if number == 1 else f"{name}_{number}")
        try:
            made.mkdir()
        except FileExistsError:
            continue
        return made
    raise Malformed(f"{above / name}: ten thousand of that name today; remove some")


def write(folder: Path, state: SessionState) -> None:
    """Replace the file; a reader sees the old one or the new one."""
    beside = folder / f"{FILE}.{os.getpid()}"
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
    beside.replace(folder / FILE)


def read(folder: Path) -> SessionState | None:
    """What the file says; None where there is none that can be read."""
    try:
        return msgspec.json.decode(config.read_file(folder / FILE), type=SessionState)
    except (BatonError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def every(board: Board) -> Iterator[tuple[Path, SessionState]]:
    """All sessions that tell something, the oldest first."""
    try:
        folders = sorted(Path(board.root, FOLDER).iterdir())
    except OSError:
        return
    for folder in folders:
        if not folder.is_symlink() and (state := read(folder)) is not None:
            yield folder, state


def beaten(state: SessionState | None) -> int:
    """When progress was seen last, in microseconds; 0 where nobody can tell."""
    return codec.to_microseconds(state.heartbeat) if state is not None and state.heartbeat is not None else 0
