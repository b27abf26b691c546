"""The moves of an item: is it legal, is it the owner's to make, then log and file, in this order."""

from __future__ import annotations

from baton.board import files
from baton.board.actor import same_process
from baton.board.tags import Tag, Text, refusal, replaced, state_of
from baton.errors import Conflict, Fenced, Held, NotFound, Refused
from baton.stores import holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from baton.board.actor import Actor
    from baton.board.log import Record
    from baton.board.root import Board

REMOVED = "removed"
WITHDRAWN = "withdrawn"
LATE = "late"
STATES = frozenset({"needs", "delegated", "next", "claimed", "done", REMOVED})


class Move:
    """One move of one item of the board."""

    __slots__ = ("also", "board", "forced", "line", "more", "noun", "origin", "path", "seen", "to")

    def __init__(self, board: Board, path: str, noun: str, origin: str, to: str | None) -> None:
        self.board = board
        self.path = path  # the real one
        self.noun = noun
        self.origin = origin  # the state it must be in
        self.to = to  # None: the tag is removed
        self.line = 0  # of an inline tag; 0 is the Tags line
        self.more: dict[str, str | int] = {}  # what else goes into the record
        self.also: Callable[[bytes], bytes] | None = None  # what else changes in the text, in the same step
        self.seen = -1  # the record that somebody with the right to decided on; the move counts while it is the newest
        self.forced = False

    @property
    def name(self) -> str:
        """The file as the log knows it."""
        return self.board.name(self.path)


def make(move: Move, actor: Actor) -> int:
    """Make a move; the position of its record, which is the epoch where it claims."""
    log, positions = move.board.log, list[int]()
    if not move.forced:
        _legal(move)

    def edit(data: bytes) -> bytes:
        tag = _tag(move, data)
        if move.seen >= 0:
            _unchanged(move)
        elif move.origin == "claimed" and not move.forced:
            _owned(move, actor)
        new = replaced(data, [tag], [f"{move.to}-{move.noun}"] if move.to else [])
        return move.also(new) if move.also is not None else new

    def note(_old: bytes, _new: bytes) -> None:
        fields: Record = {"from": move.origin, "by": actor.by, **move.more}
        if move.to == "claimed":
            fields.update(holder=actor.holder, supervised=int(actor.supervised))
        if move.forced:
            fields["forced"] = 1
        positions.append(log.append(move.to or REMOVED, move.name, move.noun, **fields))

    try:
        files.change(move.path, edit, note)
    except BaseException:
        if positions:
            log.append(WITHDRAWN, move.name, move.noun, of=positions[0], by=actor.by)
        raise
    return positions[0]


def standing(history: Iterable[Record]) -> Record | None:
    """The newest record of an item that says where it stands, of its history with the newest first."""
    withdrawn = set()
    for record in history:
        if record["event"] == WITHDRAWN:
            withdrawn.add(record["of"])
        elif record["event"] in STATES and record["at"] not in withdrawn:
            return record
    return None


def _legal(move: Move) -> None:
    to = [f"{move.to}-{move.noun}"] if move.to else []
    if reason := refusal([f"{move.origin}-{move.noun}"], to):
        raise Refused(f"{move.name}: {reason}")


def _tag(move: Move, data: bytes) -> Tag:
    """The tag that is to move; else who was faster."""
    text = Text(data)
    there = text.at(move.line) if move.line else text.own()
    states = [tag for tag in there if (state_of(tag.name) or ("", ""))[1] == move.noun]
    for tag in states:
        if tag.name == f"{move.origin}-{move.noun}":
            return tag
    raise _lost(move, [tag.name for tag in states])


def _lost(move: Move, found: list[str]) -> Exception:
    where = f"line {move.line}" if move.line else "the Tags line"
    wanted = f"{move.name}: no #{move.origin}-{move.noun} on {where}"
    if f"claimed-{move.noun}" in found:
        record = standing(move.board.log.history(move.name, move.noun))
        if record is not None and record["event"] == "claimed":
            return Held(f"{wanted}: already claimed by {holder.readable(str(record['holder']))} (claim {record['at']})")
        return Held(f"{wanted}: already claimed, by somebody of whom the log knows nothing")
    if found:
        return Conflict(f"{wanted}: it is #{', #'.join(found)} by now")
    return NotFound(f"{wanted}; `baton tag find '#*-{move.noun}'` shows where it stands")


def _unchanged(move: Move) -> None:
    record = standing(move.board.log.history(move.name, move.noun))
    if record is None or record["at"] != move.seen:
        raise Conflict(f"{move.name}: somebody moved #{move.origin}-{move.noun} just now; look again")


def _owned(move: Move, actor: Actor) -> None:
    """What is claimed moves on by its owner, or when its owner is certainly gone."""
    record = standing(move.board.log.history(move.name, move.noun))
    mine = actor.claim
    if mine is not None and (mine.path, mine.noun) == (move.name, move.noun):
        if record is None or record["at"] != mine.epoch:
            move.board.log.append(LATE, move.name, move.noun, by=actor.by, epoch=mine.epoch, to=move.to or REMOVED)
            raise Fenced(f"{move.name}: claim {mine.epoch} is over, a newer one counts; nothing was changed")
        return
    if record is None or record["event"] != "claimed":
        return  # a tag that somebody wrote by hand; the log says that this move was made without a claim
    owner = str(record["holder"])
    if same_process(owner, actor.holder) or holder.life(owner) == "dead":
        return
    raise Held(
        f"{move.name}: {holder.readable(owner)} holds it (claim {record['at']}) and is not known to be dead; "
        "end it first, or --force if you know better"
    )
