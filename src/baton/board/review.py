"""What waits for a person on the board, and what a person decides about it.

What is shown is kept with its digest, and only that is decided on: who finds something else in the file is told to look
again. Nothing here asks anybody: a decision is made by who calls it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from baton import clock
from baton.board import approvals, dispatch, files, find, moves, promote
from baton.board.actor import Actor
from baton.board.alerts import Alert
from baton.board.alerts import listed as open_alerts
from baton.board.ancestry import refuse_agents
from baton.board.approvals import Sight, Terms
from baton.board.moves import Move
from baton.board.promote import Inline
from baton.board.root import Board
from baton.board.sections import first_line
from baton.board.tags import Tag, Text, effort, priority, state_of
from baton.errors import BatonError, Conflict

Decision = Literal["approve", "next", "dismiss", "defer", "return"]
DEFERRED = "deferred"
STALE = 24 * 3600 * clock.SECOND
ATTEMPTS = 3
RECOVERY = b"\n## Recovery"
MEANING = {
    "P0": "critical: blocks everything else", "P1": "important: soon", "P2": "normal",
    "S": "under 30 min", "M": "30 min to 2 h", "L": "over 2 h",
}  # fmt: skip


class Item(msgspec.Struct, frozen=True):
    """An item as it was read; `line` is 0 for a whole file. What is decided on is `sight`, or the `words` of a line."""

    path: str
    noun: str
    state: str
    line: int
    title: str
    summary: str
    priority: str
    effort: str
    since: int
    attempts: int
    sight: Sight
    words: bytes
    text: str

    @property
    def name(self) -> str:
        """How it is named on a command line."""
        return f"{self.path}:{self.line}" if self.line else self.path


class Waiting(msgspec.Struct, frozen=True):
    """What waits for a person, the most pressing first; each item stands in one list only."""

    alerts: list[Alert]
    stale: list[Item]
    exhausted: list[Item]
    groups: dict[str, list[Item]]

    def items(self) -> list[Item]:
        """Everything that can be decided on."""
        return [*self.stale, *self.exhausted, *(item for group in self.groups.values() for item in group)]


def waiting(board: Board, folder: str = "") -> Waiting:
    """What waits below a folder, or on the whole board."""
    needs, stale, exhausted, groups = list[Item](), list[Item](), list[Item](), dict[str, list[Item]]()
    for item in items(board, folder or board.root):
        if item.state == "next":
            if clock.now() - item.since > STALE:
                stale.append(item)
        elif item.attempts >= ATTEMPTS:
            exhausted.append(item)
        else:
            needs.append(item)
    for item in sorted(needs, key=lambda one: (one.noun, one.priority, one.since, one.path, one.line)):
        groups.setdefault(item.noun, []).append(item)
    return Waiting(open_alerts(board), stale, exhausted, groups)


def items(board: Board, path: str) -> list[Item]:
    """What can be decided on in a file or below a folder, in order of the paths."""
    found = (item for item in _items(board, path) if item.noun not in dispatch.BY_PERSONS)
    return [item for item in found if not _has_request(board, item)]


def again(board: Board, item: Item) -> Item | None:
    """The same item as it stands now; None where it waits no more."""
    try:
        data = files.read(board.path(item.path))
    except BatonError:
        return None
    there = [one for one in _read(board, item.path, data) if one.noun == item.noun and one.state == item.state]
    if not item.line:
        return next((one for one in there if not one.line), None)
    inside = [one for one in there if one.line]
    return next((one for one in inside if one.line == item.line), None)


def decide(board: Board, item: Item, decision: Decision, actor: Actor, terms: Terms | None = None) -> str:
    """Do what a person said; where the item stands then. Conflict: it is not what was shown."""
    refuse_agents(board)
    if decision == "defer":
        board.log.append(DEFERRED, item.path, item.noun, by=actor.by, **({"line": item.line} if item.line else {}))
        return item.name
    if decision == "return":
        approvals.revoke(_move(board, item, "needs"), actor, "it waited too long")
        return item.path
    if decision == "dismiss":
        return _dismiss(board, item, actor)
    to = "delegated" if decision == "approve" else "next"
    if item.state != "needs":
        raise Conflict(f"{item.name}: it is #{item.state}-{item.noun}; only what is in needs is approved")
    terms = terms or Terms()
    if item.line:
        return _promote(board, item, to, actor, terms)
    approvals.approve(_move(board, item, to), actor, msgspec.structs.replace(terms, sight=item.sight))
    return item.path


def unpromoted(board: Board, folder: str, actor: Actor) -> list[str]:
    """Go on with what was killed while it got a request; the requests that are linked now."""
    found = [_inline(item) for item in _items(board, folder or board.root) if _has_request(board, item)]
    return promote.finish(board, found, actor)


def _promote(board: Board, item: Item, to: str, actor: Actor, terms: Terms) -> str:
    request, data = promote.promote(board, _inline(item), actor)
    if not data:
        raise Conflict(f"{item.name}: it had a request already, {request}; look at that, then decide")
    move = Move(board, board.path(request), item.noun, "needs", to)
    approvals.approve(move, actor, msgspec.structs.replace(terms, sight=approvals.sight(board, request, data)))
    return request


def _dismiss(board: Board, item: Item, actor: Actor) -> str:
    if item.state == "next":
        approvals.revoke(_move(board, item, "needs"), actor, "dismissed")
        item = msgspec.structs.replace(item, state="needs")
    move = _move(board, item, None)
    move.line = item.line

    def also(data: bytes) -> bytes:
        now = promote.line_of(files.read(move.path), item.line) if item.line else b""
        if now != item.words or (not item.line and approvals.sight(board, item.path, data).body != item.sight.body):
            raise Conflict(f"{item.name}: it is not what was shown any more; look at it again, then decide")
        return data

    move.also = also
    moves.make(move, actor)
    return item.path


def _move(board: Board, item: Item, to: str | None) -> Move:
    return Move(board, board.path(item.path), item.noun, item.state, to)


def _inline(item: Item) -> Inline:
    return Inline(item.path, item.noun, item.line, item.words)


# --- reading --------------------------------------------------------------------------------------


def _items(board: Board, folder: str) -> list[Item]:
    """Everything below a folder that is in needs or next, in order of the paths."""
    paths = {hit.path for pattern in ("needs-*", "next-*") for hit in find.find(pattern, [folder])}
    found = []
    for path in sorted(paths):
        real = str(Path(path).resolve())
        try:
            found += _read(board, board.name(real), files.read(real))
        except BatonError:
            continue  # it went away meanwhile, or is no text of the board
    return found


def _read(board: Board, name: str, data: bytes) -> list[Item]:
    text = Text(data)
    seen: dict[tuple[int, str], Item] = {}
    for tag in text.tags:
        state, _ = state_of(tag.name) or ("", "")
        place = (tag.line if tag.inline else 0, tag.name)
        if place not in seen and (state == "needs" or (state == "next" and not tag.inline)):
            seen[place] = _item(board, name, text, tag)
    return list(seen.values())


def _has_request(board: Board, item: Item) -> bool:
    """Whether it got a request and only its line was not changed yet: then it stands in the list once, as that."""
    begun = promote.unfinished(board, _inline(item)) if item.line else None
    return begun is not None and Path(board.path(begun[1])).exists()


def _item(board: Board, name: str, text: Text, tag: Tag) -> Item:
    state, noun = state_of(tag.name) or ("", "")
    line = tag.line if tag.inline else 0
    names = [one.name for one in (text.at(line) if line else text.own())]
    words = promote.line_of(text.data, line) if line else b""
    return Item(
        path=name,
        noun=noun,
        state=state,
        line=line,
        title=text.item(line) if line else text.title(),
        summary=f"in {text.title() or name}" if line else first_line(text.data),
        priority=priority(names),
        effort=effort(names) or "",
        since=_since(board, name, noun, line),
        attempts=0 if line else text.data.count(RECOVERY),
        sight=Sight(approvals.sight(board, name, text.data).body, approvals.weights_of(text, line)),
        words=words,
        text=text.data.decode("utf-8", "replace"),
    )


def _since(board: Board, name: str, noun: str, line: int) -> int:
    """Since when it waits, by the log; else when the file was saved last."""
    record = moves.standing(board.log.history(name, noun), line)
    if record is not None:
        return int(record["time"])
    return Path(board.path(name)).stat().st_mtime_ns // 1000
