"""Tags of work within a text, though work stands on the Tags line: found, put between backticks, judged."""

from __future__ import annotations

import os
from os.path import isdir, join

from baton.board import files, moves, tree
from baton.board.answered import RESPONSE
from baton.board.find import Hit, find, hits_in, start
from baton.board.root import board_of
from baton.board.tags import ALERT, RESOLVED, Tag, Text, escaped, state_of
from baton.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from baton.board.actor import Actor
    from baton.board.moves import Event

ESCAPED = "escaped"


def is_work(name: str) -> bool:
    """Whether a tag says that work waits or was done, or an alert stands; weights and other words do not."""
    return state_of(name) is not None or name in {ALERT, RESOLVED}


def mentions(path: str) -> list[Hit]:
    """The inline tags of that kind in a file, or in all files below a folder."""
    return [hit for hit in find("*", [path]) if hit.inline and is_work(hit.name)]


def escape(path: str, actor: Actor) -> int:
    """Put those of one file between backticks; how many there were."""
    board, real = board_of(path)
    names: list[str] = []

    def edit(data: bytes) -> bytes:
        found = _inline(Text(data))
        names[:] = [tag.name for tag in found]
        return escaped(data, found)

    def events(_old: bytes, _new: bytes) -> list[Event]:
        return [(ESCAPED, "", {"tags": " ".join(names)})]

    moves.write(board, real, edit, events, actor)
    return len(names)


def _inline(text: Text) -> list[Tag]:
    return [tag for tag in text.tags if tag.inline and is_work(tag.name)]


def faults(folder: str, requests: list[str]) -> list[tuple[str, int, str]]:
    """What keeps a session from being complete: file, line, what is wrong. `requests` are those that it was given."""
    shown, real, _ = start(folder)
    if not isdir(real):
        raise NotFound(f"{folder}: not a folder; name the folder of a session")
    found = []
    for name in sorted(os.listdir(real)):
        path = join(real, name)
        if tree.is_document(name) and not os.path.islink(path):
            hits = hits_in(join(shown, name), files.read(path), "*")
            found += [
                (hit.path, hit.line, f"#{hit.name}: {(hit.text(0) or '').strip()}")
                for hit in hits
                if hit.inline and is_work(hit.name)
            ]
    for request in requests:
        found += _unanswered(request)
    return found


def _unanswered(request: str) -> list[tuple[str, int, str]]:
    """What is wrong with a request that a session was given."""
    try:
        data = files.read(board_of(request)[1])
    except NotFound:
        return [(request, 0, "the request is not there")]
    waiting = [(request, hit.line, f"#{hit.name} still waits") for hit in hits_in(request, data, "needs-*")]
    if "REQUEST" in os.path.basename(request).upper() and not any(
        line.rstrip() == RESPONSE for line in data.split(b"\n")
    ):
        waiting.append((request, 0, "no `## Response`; `baton respond` writes one"))
    return waiting
