"""The items of a tree, in memory: made by one scan, kept up by what changes, thrown away at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from baton.board import files, tree
from baton.board.root import Board
from baton.board.tags import Text, priority, state_of
from baton.errors import BatonError


class Item(msgspec.Struct, frozen=True):
    """A piece of work and where it stands, by the tag of its file. The weight is 0 for P0."""

    path: str  # below the root
    noun: str
    state: str
    weight: int = 2


class Items:
    """What is tagged below a folder."""

    def __init__(self, board: Board, folder: str) -> None:
        self.board = board
        self.folder = folder
        self._found: dict[str, tuple[Item, ...]] = {}

    def scan(self) -> None:
        """Read everything."""
        self._found = {}
        for path in documents(self.folder):
            self._take(path)

    def update(self, paths: Iterable[str]) -> None:
        """Read what changed."""
        for path in paths:
            self._take(path)

    def within(self, *states: str) -> Iterator[Item]:
        """The items in some states."""
        for items in self._found.values():
            yield from (item for item in items if item.state in states)

    def _take(self, path: str) -> None:
        try:
            found = items_of(self.board.name(path), files.read(path))
        except BatonError:
            found = ()  # it is gone, or no text of the board
        if found:
            self._found[path] = found
        else:
            self._found.pop(path, None)


def items_of(name: str, data: bytes) -> tuple[Item, ...]:
    """The items of one file."""
    if b"**Tags**:" not in data:
        return ()
    names = [tag.name for tag in Text(data).own()]
    weight = int(priority(names)[1])
    return tuple(Item(name, found[1], found[0], weight) for one in names if (found := state_of(one)))


def texts(board: Board, folder: str) -> Iterator[tuple[str, bytes]]:
    """The names and the bytes of those that can be read."""
    for path in documents(folder):
        try:
            yield board.name(path), files.read(path)
        except BatonError:
            continue  # it went away, or is no text of the board


def documents(folder: str) -> Iterator[str]:
    """The Markdown files below a folder that belong to the board."""
    folders = [folder]
    while folders:
        found, more = tree.look_into(folders.pop())
        folders += more
        yield from found
