"""What `tag add`, `tag remove` and `tag swap` mean: which of it is a move of an item, and which only an edit."""

from __future__ import annotations

from os.path import basename

from baton.board import moves
from baton.board.moves import Move
from baton.board.root import board_of
from baton.board.tags import STATES, Tag, Text, added, is_name, refusal, replaced, state_of
from baton.board.tree import is_document
from baton.errors import Conflict, Malformed, NotAuthorised, NotFound, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from baton.board.actor import Actor
    from baton.board.moves import Event
    from baton.board.root import Board

TAGGED = "tagged"


class Place:
    """Where tags are changed: the Tags line of a file (line 0), or one line of its body."""

    __slots__ = ("board", "forced", "line", "path")

    def __init__(self, board: Board, path: str, line: int = 0, *, forced: bool = False) -> None:
        self.board = board
        self.path = path  # the real one
        self.line = line
        self.forced = forced

    @property
    def name(self) -> str:
        """The file as the log knows it."""
        return self.board.name(self.path)

    @property
    def words(self) -> str:
        """For people."""
        return f"line {self.line}" if self.line else "the Tags line"

    def tags(self, text: Text) -> list[Tag]:
        """The tags that stand here."""
        return text.at(self.line) if self.line else text.own()


class Done:
    """What was done: how the item is named now, where it has one, and the record that says so."""

    __slots__ = ("changed", "epoch", "noun", "state")

    def __init__(self, state: str = "", noun: str = "", epoch: int = 0, *, changed: bool = True) -> None:
        self.state = state
        self.noun = noun
        self.epoch = epoch
        self.changed = changed


def place_of(path: str, line: int, actor: Actor, *, forced: bool) -> Place:
    """The place that a command means; only a person may change it by force."""
    if forced and actor.claim is not None:
        raise NotAuthorised("--force is for people; this program works under BATON_CLAIM, so make a legal move")
    board, real = board_of(path)
    if forced:
        from baton.board.ancestry import refuse_agents

        refuse_agents(board)
    return Place(board, real, line, forced=forced)


def read_names(text: str) -> list[str]:
    """Tag names from a comma list, with or without `#`, each once."""
    names = [word.strip().removeprefix("#") for word in text.split(",")]
    for name in names:
        if not is_name(name):
            raise Malformed(f"{name[:60]!r} is no tag: letters and digits from a letter on, in words joined by hyphens")
    return list(dict.fromkeys(names))


def add(place: Place, names: list[str], actor: Actor) -> Done:
    """Put tags on the Tags line; of the lifecycle only `needs-X`, which puts work on the list."""
    _legal(place, [], names)
    if not is_document(basename(place.path)):
        cure = "name a Markdown file: one that ends in .md and is not hidden"
        raise Malformed(f"{place.path}: nobody looks for tags there, and a Tags line could spoil it; {cure}")

    def edit(data: bytes) -> bytes:
        for name in names:
            if not place.forced:
                _alone(place, Text(data), name)
            data = added(data, name)
        return data

    def events(old: bytes, new: bytes) -> list[Event]:
        before = {tag.name for tag in Text(old).own()}
        return _events([tag.name for tag in Text(new).own() if tag.name not in before], [], place)

    positions = moves.write(place.board, place.path, edit, events, actor)
    return _done(names, positions)


def remove(place: Place, names: list[str], actor: Actor) -> Done:
    """Take tags away; of the lifecycle only `needs-X`, which dismisses the item."""
    _legal(place, names, [])

    def edit(data: bytes) -> bytes:
        found = [tag for tag in place.tags(Text(data)) if tag.name in names]
        if place.line and not found:
            raise NotFound(f"{place.name}: no #{', #'.join(names)} on {place.words}; nothing was changed")
        return replaced(data, found, [])

    def events(old: bytes, _new: bytes) -> list[Event]:
        gone = [tag.name for tag in place.tags(Text(old)) if tag.name in names]
        return _events([], list(dict.fromkeys(gone)), place)

    positions = moves.write(place.board, place.path, edit, events, actor)
    return _done([], positions)


def swap(place: Place, old: list[str], new: list[str], actor: Actor) -> Done:
    """Replace those of the old tags that are there; where they are an item's, it makes the move to the new state."""
    move = _move(place, old, new)
    if move is None:
        return _swap_words(place, old, new, actor)
    if moves.already(move, actor):
        return Done("claimed", move.noun, actor.claim.epoch if actor.claim else 0, changed=False)
    if move.origin == "needs" and move.to in moves.APPROVED:
        from baton.board.approvals import approve

        return Done(str(move.to), move.noun, approve(move, actor))
    return Done(move.to or moves.REMOVED, move.noun, moves.make(move, actor))


def _move(place: Place, old: list[str], new: list[str]) -> Move | None:
    """The move of an item that a swap is; None where only other tags change."""
    before = [item for name in old if (item := state_of(name)) is not None]
    after = [item for name in new if (item := state_of(name)) is not None]
    if not before and not after:
        return None
    nouns = {noun for _, noun in before + after}
    if len(nouns) > 1 or len(after) > 1 or not before:
        raise Malformed(
            f"{place.name}: one item moves at a time, from states of it to one state, as in "
            "`baton tag swap FILE '#delegated-fix' '#claimed-fix'`"
        )
    noun = nouns.pop()
    to = after[0][0] if after else None
    origin = moves.origin_of(place.board, place.path, place.line, noun, [state for state, _ in before])
    move = Move(place.board, place.path, noun, origin, to)
    move.line, move.forced = place.line, place.forced
    gone = [name for name in old if state_of(name) is None]
    come = [name for name in new if state_of(name) is None]
    if gone or come:
        move.also = lambda data: _with_words(place, data, gone, come)
        move.more = {name: " ".join(words) for name, words in (("removed", gone), ("added", come)) if words}
    return move


def _with_words(place: Place, data: bytes, gone: list[str], come: list[str]) -> bytes:
    """The text with other tags changed beside the move of an item."""
    found = [tag for tag in place.tags(Text(data)) if tag.name in gone]
    if found:
        return replaced(data, found, come)
    if come and place.line:
        raise Conflict(f"{place.name}: no #{', #'.join(gone) or '…'} on {place.words} in whose place a tag could stand")
    for name in come:
        data = added(data, name)
    return data


def _swap_words(place: Place, old: list[str], new: list[str], actor: Actor) -> Done:
    """Swap tags that are no item's, such as weights."""

    def edit(data: bytes) -> bytes:
        there = place.tags(Text(data))
        found = [tag for tag in there if tag.name in old]
        if not found:
            raise NotFound(f"{place.name}: no #{', #'.join(old)} on {place.words}; nothing was changed")
        return replaced(data, found, new)

    def events(before: bytes, after: bytes) -> list[Event]:
        was = {tag.name for tag in place.tags(Text(before))}
        now = {tag.name for tag in place.tags(Text(after))}
        return _events([name for name in new if name not in was], [name for name in old if name in was - now], place)

    return _done([], moves.write(place.board, place.path, edit, events, actor))


def _legal(place: Place, old: list[str], new: list[str]) -> None:
    if not place.forced and (reason := refusal(old, new)):
        raise Refused(f"{place.name}: {reason}. A person may --force it")


def _alone(place: Place, text: Text, name: str) -> None:
    """An item has one state: a new one isn't begun beside it."""
    item = state_of(name)
    if item is None:
        return
    for tag in place.tags(text):
        found = state_of(tag.name)
        if found is not None and found[1] == item[1] and tag.name != name:
            raise Conflict(f"{place.name}: it is #{tag.name} already; an item has one state")


def _events(come: list[str], gone: list[str], place: Place) -> list[Event]:
    """The records of an edit: one for each item that came or went, one for all other tags."""
    where = {"line": place.line} if place.line else {}
    forced = {"forced": 1} if place.forced else {}
    begun = [item for name in come if (item := state_of(name)) is not None]
    ended = [item for name in gone if (item := state_of(name)) is not None]
    events: list[Event] = [(state, noun, {"from": "", **where, **forced}) for state, noun in begun]
    events += [(moves.REMOVED, noun, {"from": state, **where, **forced}) for state, noun in ended]
    words = {
        key: " ".join(name for name in names if state_of(name) is None)
        for key, names in (("added", come), ("removed", gone))
    }
    words = {key: text for key, text in words.items() if text}
    if words:
        events.append((TAGGED, "", {**words, **where, **forced}))
    return events


def _done(names: list[str], positions: list[int]) -> Done:
    item = next((item for name in names if (item := state_of(name)) is not None), None)
    state, noun = item or ("", "")
    return Done(state, noun, positions[0] if positions else 0, changed=bool(positions))


def meant(name: str) -> str:
    """The state of work that a name misspells; none where it is one, or is like none."""
    head, hyphen, _ = name.partition("-")
    if not hyphen or head in STATES:
        return ""
    from difflib import get_close_matches

    return next(iter(get_close_matches(head, STATES, n=1, cutoff=0.8)), "")


def read_pattern(text: str) -> str:
    """The name that is looked for, in which `*` stands for any text."""
    pattern = text.removeprefix("#")
    words = pattern.replace("*", "").replace("-", "")
    if not pattern.isascii() or not (words.isalnum() or pattern == "*"):
        raise Malformed(f"{text[:60]!r} is no tag to look for; write one as '#needs-fix' or '#needs-*', in quotes")
    return pattern
