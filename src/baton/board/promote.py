"""Give work inside a text a file of its own: a request with its words and weights, linked in its place.

First the log says which request the line becomes, then the request is written, then the line changes. Whatever is
killed in between, `promote` goes on with the same request: no work is lost, and none is there twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from baton.board import files, requests, template, wrote
from baton.board.actor import Actor
from baton.board.approvals import WEIGHTS
from baton.board.root import Board
from baton.board.tags import Tag, Text, escaped, state_of
from baton.digest import sha256
from baton.errors import Conflict

PROMOTING = "promoting"
PROMOTED = "promoted"


class Inline(msgspec.Struct, frozen=True):
    """Work inside a text: its file, noun and line as they were seen, `words` being the whole line."""

    path: str
    noun: str
    line: int
    words: bytes


def line_of(data: bytes, number: int) -> bytes:
    """A line of a text, from 1, without its end."""
    lines = data.split(b"\n")
    return lines[number - 1].removesuffix(b"\r") if 0 < number <= len(lines) else b""


def promote(board: Board, seen: Inline, actor: Actor) -> tuple[str, bytes]:
    """Make a request of it; its name, and its text if it was written just now.

    A line that is not what was seen is a Conflict.
    """
    begun = unfinished(board, seen)
    at, request = begun or _begin(board, seen, actor)
    data = _request(board, seen, request, actor)
    made = files.create(board.path(request), data)
    linked = _link(board, seen, request)
    board.log.append(PROMOTED, seen.path, seen.noun, of=at, request=request, by=actor.by)
    if not linked:
        raise Conflict(f"{seen.path}: line {seen.line} was changed just now, and {request} says what it said; see both")
    return request, data if made else b""


def unfinished(board: Board, seen: Inline) -> tuple[int, str] | None:
    """The promotion of this line that was begun and not ended, and its request."""
    ended: set[str | int] = set()
    for record in board.log.history(seen.path, seen.noun):
        if record["event"] == PROMOTED:
            ended.add(record["of"])
        elif record["event"] == PROMOTING and record["at"] not in ended and record["words"] == _digest(seen.words):
            return int(record["at"]), str(record["request"])
    return None


def finish(board: Board, found: Iterable[Inline], actor: Actor) -> list[str]:
    """End what was begun and whose request is there; the requests."""
    ended = []
    for seen in found:
        begun = unfinished(board, seen)
        if begun is not None and os.path.lexists(board.path(begun[1])):
            ended.append(promote(board, seen, actor)[0])
    return ended


def _begin(board: Board, seen: Inline, actor: Actor) -> tuple[int, str]:
    data = files.read(board.path(seen.path))
    if _place(data, seen) is None:
        raise Conflict(f"{seen.path}: line {seen.line} is not what was shown any more; look at it again, then decide")
    stem = f"{seen.noun.upper().replace('-', '_')}_REQUEST_{template.topic_name(_topic(seen))}"
    folder = os.path.dirname(board.path(seen.path))
    for number in range(1, 10_000):
        path = os.path.join(folder, f"{stem}.md" if number == 1 else f"{stem}_{number}.md")
        if not os.path.lexists(path):
            request = board.name(path)
            words = {"words": _digest(seen.words), "request": request}
            return board.log.append(PROMOTING, seen.path, seen.noun, by=actor.by, **words), request
    raise Conflict(f"{folder}/{stem}: ten thousand of that name; say something else on line {seen.line}")


def _request(board: Board, seen: Inline, request: str, actor: Actor) -> bytes:
    """What stands in the request: the words of the line, where they come from, and its weights."""
    text = Text(seen.words)
    weights = tuple(dict.fromkeys(tag.name for tag in text.tags if tag.name in WEIGHTS))
    topic = _topic(seen)
    words = {"topic": topic, "noun": seen.noun, "session": os.path.dirname(request) or ".", "requester": actor.by}
    form = template.read(board, seen.noun, "REQUEST")
    made = template.filled(form, words, {}) + f"\n## Promoted From\n*   **File**: {template.plain(seen.path)}\n"
    said = template.plain(text.item(1)) or topic
    return requests.checked(f"{made}*   **Line**: {seen.line}\n*   **Text**: {said}\n".encode(), seen.noun, weights)


def _topic(seen: Inline) -> str:
    words = " ".join(template.plain(Text(seen.words).item(1)).split())
    return words[: template.TOPIC].strip() or f"{seen.noun} in {Path(seen.path).stem}"[: template.TOPIC]


def _link(board: Board, seen: Inline, request: str) -> bool:
    """Escape the tag, and say where the work went; False where the line is gone."""
    link = f"[{Path(request).name}]({Path(request).name})".encode()

    def edit(data: bytes) -> bytes:
        if link in data or (place := _place(data, seen)) is None:
            return data
        line = escaped(data, _tags(data, place[0], seen.noun))
        grown = len(line) - len(data)
        new = line[place[0] : place[1] + grown] + b" \xe2\x86\x92 " + link
        return wrote.instead(board, seen.path, data, place, new)

    return link in files.change(board.path(seen.path), edit)


def _place(data: bytes, seen: Inline) -> tuple[int, int] | None:
    """Where the line stands now: where it was seen, else the one place where such a line stands."""
    places, start = dict[int, tuple[int, int]](), 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.removesuffix(b"\r") == seen.words and _tags(data, start, seen.noun):
            places[number] = (start, start + len(seen.words))
        start += len(line) + 1
    if seen.line in places:
        return places[seen.line]
    return next(iter(places.values())) if len(places) == 1 else None


def _tags(data: bytes, start: int, noun: str) -> list[Tag]:
    """The inline tags of the line that begins here which say that it waits."""
    line = data.count(b"\n", 0, start) + 1
    return [tag for tag in Text(data).at(line) if state_of(tag.name) == ("needs", noun)]


def _digest(words: bytes) -> str:
    hashed: str = sha256(words).hexdigest()
    return hashed
