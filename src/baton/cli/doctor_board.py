"""`doctor`, as far as it is about the board of the working directory, and `doctor --race`."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from baton.board import files, programs, requests, trust
from baton.board.root import Board, board_of
from baton.cli.check import Check
from baton.errors import BatonError
from baton.stores.mounts import NETWORK, file_system

RACERS = 8
TRIED = b"# t\n**Tags**: #needs-fix\n"


def board_checks() -> Iterator[Check]:
    """Nothing where no board is: neither a log nor TAGS.md."""
    board, _ = board_of(".")
    if not Path(board.log.path).exists() and not Path(board.path("TAGS.md")).exists():
        return
    kind = file_system(Path(board.root))
    cure = "put the board on a local disk: locks of several machines do not see one another there"
    yield Check("board", kind not in NETWORK, f"{board.root} on {kind or 'a local disk as far as can be told'}", cure)
    yield _exchange(board)
    yield _log(board)
    yield from _settings(board)


def _exchange(board: Board) -> Check:
    """Whether a file can be changed here as the board does it; tried on one that is removed again."""
    try:
        with tempfile.TemporaryDirectory(dir=board.root, prefix=".baton-doctor-") as folder:
            path = Path(folder, "x.md")
            path.write_bytes(TRIED)
            files.change(str(path), lambda data: data + b"\n")
            good = path.read_bytes() == TRIED + b"\n"
    except (OSError, BatonError) as error:
        return Check("change", ok=False, found=str(error), cure="make the folder writable")
    return Check("change", good, "a file is changed in one step", "report it with the name of the file system")


def _log(board: Board) -> Check:
    try:
        count = sum(1 for _ in board.log.records())
    except BatonError as error:
        return Check("log", ok=False, found=str(error), cure="compare it with a backup; the tags are untouched")
    return Check("log", ok=True, found=f"{count} records, each bound to the one before it")


def _settings(board: Board) -> Iterator[Check]:
    changed = [one.name for one in trust.changes(board)]
    said = f"what does not count yet: {', '.join(changed[:5])}" if changed else "all that is there counts"
    yield Check("trust", not changed, said, "look at them with `baton trust`", optional=True)
    try:
        routes = requests.routes(board)
        yield Check("table", ok=True, found=f"{len(routes)} rows of §TAG_DISPATCH")
        rows = programs.load(Path(board.root), trust.judge(board))
        fault = programs.missing(rows.of(""))
        yield Check("program", not fault, rows.default, fault, optional=True)
    except BatonError as error:
        yield Check("settings", ok=False, found=str(error))


def race_check(count: int) -> Check:
    """Let processes claim the same files on this file system, ours and as it should not be done."""
    from baton.testing import race
    from baton.testing.tagged import claimer, fill, naive_claimer

    with tempfile.TemporaryDirectory(dir=".", prefix=".baton-race-") as folder:
        root = str(Path(folder).resolve())
        ours = race(functools.partial(claimer, root), fill(root, count), RACERS)
        naive = race(functools.partial(naive_claimer, root), fill(root, count), RACERS)
    said = (
        f"{count} items, {RACERS} processes, {ours.attempts / ours.seconds:,.0f} tries a second: {ours.doubles} "
        f"claimed twice, {ours.unclaimed} by nobody; read-change-rename on the same disk: {naive.doubles} claimed twice"
    )
    good = not ours.doubles and not ours.unclaimed
    return Check("race", good, said, "do not use this file system for a board, and report its kind")
