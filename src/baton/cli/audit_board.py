"""`audit`, as far as it is about the board: its log is a trail of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from baton.board.root import Board, board_of
from baton.board.tags import is_name
from baton.cli.screen import Columns
from baton.protocol.codec import iso, to_time

if TYPE_CHECKING:
    from baton.board.log import Record
    from baton.cli.call import Call

TRAIL = Columns(("TIME", "ITEM", "EVENT", "BY", "WHAT"), of="--item", spare=("BY",), folded=True)
FILE = "board.jsonl"
KNOWN = frozenset({"at", "time", "event", "path", "noun", "by", "prev", "chain"})
MACHINES = frozenset({"body", "words", "lock", "holder", "agent", "supervised"})  # --json has them


def board_here() -> Board | None:
    """The board of the working directory, if anything was ever done on it."""
    board, _ = board_of(".")
    return board if Path(board.log.path).exists() else None


def query(call: Call, item: str, limit: int) -> None:
    """List what was done with an item, or with all items of a file."""
    path, found, noun = item.rpartition("#")
    named = bool(found) and is_name(noun)
    board, real = board_of(path if named else item)
    name = board.name(real)
    records = [
        one
        for one in (board.log.records() if Path(board.log.path).exists() else ())
        if one["path"] == name and (not named or one["noun"] == noun)
    ][:limit]
    rows = [
        (
            f"{to_time(int(one['time'])):%m-%d %H:%M:%S}",
            f"{one['path']}#{one['noun']}",
            one["event"],
            one.get("by", ""),
            _rest(one),
        )
        for one in records
    ]
    call.screen.table(TRAIL, rows, records)
    if not records:
        call.screen.hint(f"nothing was done with {item}; `baton tag find '#*'` shows what is tagged")


def _rest(record: Record) -> str:
    said = {name: value for name, value in record.items() if name not in KNOWN | MACHINES and value != ""}
    if "expires" in said:
        said["expires"] = f"{to_time(int(said['expires'])):%Y-%m-%d %H:%M}"
    return ", ".join(f"{name} {value}" for name, value in said.items())


def verified() -> dict[str, Any]:
    """Check each record of the board here against the one before it; nothing where no board is."""
    board = board_here()
    if board is None:
        return {}
    count = sum(1 for _ in board.log.records())  # a broken one is an error
    return {"board": {"ok": True, "records": count, "log": board.log.path}}


def export(board: Board, folder: Path) -> Path:
    """Write the whole log in the words of the protocol, beside what a store exports."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    beside = path.with_name(f".{FILE}.new")
    with beside.open("wb") as file:
        for line in _lines(board.log.records()):
            file.write(line)
    beside.replace(path)
    return path


def _lines(records: Iterable[Record]) -> Iterator[bytes]:
    for one in records:
        about = {
            "timestamp": iso(int(one["time"])),
            "event_type": one["event"],
            "handoff_id": f"{one['path']}#{one['noun']}",
            "from_agent": "board",
            "to_agent": one["noun"],
        }
        more = {name: value for name, value in one.items() if name not in {"time", "event", "path", "noun"}}
        yield msgspec.json.encode({**about, **more}) + b"\n"
