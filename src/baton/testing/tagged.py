"""Files of a board for a race: made in bulk, claimed as the board does it, and as it should not be done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from baton.board.actor import Actor
from baton.board.moves import Move, make
from baton.board.root import Board
from baton.errors import Conflict, Held
from baton.stores import holder
from baton.testing.saves import naive_change

TEXT = b"# Fix\n**Tags**: #delegated-fix #P1\n\n" + b"more of it\n" * 100


def fill(root: str, count: int) -> list[str]:
    """That many files with one item each; their names."""
    names = [f"{number}.md" for number in range(count)]
    for name in names:
        Path(root, name).write_bytes(TEXT)
    return names


def claimer(root: str, owner: str) -> Callable[[str], bool]:
    """Claims as the board does, for one process; its log stands in the same folder."""
    os.environ["XDG_STATE_HOME"] = f"{root}/.state"
    board, me = Board(root), Actor(owner, holder.identity())

    def take(item: str) -> bool:
        try:
            make(Move(board, board.path(item), "fix", "delegated", "claimed"), me)
        except (Held, Conflict):
            return False
        return True

    return take


def naive_claimer(root: str, owner: str) -> Callable[[str], bool]:
    """Reads, looks, and puts a new file in the place: how many tools do it."""

    def edit(data: bytes) -> bytes:
        if b"#delegated-fix" not in data:
            raise Held(owner)
        return data.replace(b"#delegated-fix", b"#claimed-fix")

    def take(item: str) -> bool:
        try:
            naive_change(f"{root}/{item}", edit)
        except (Held, FileNotFoundError):
            return False
        return True

    return take
