"""A person's yes: for which text, which weights, which way of doing it, and until when.

An approval is a record in the board's log, outside of the repository, written before the tag moves. A tag by itself
starts nothing: whoever starts work asks `standing_approval`, which says yes only where the newest approval of the item
fits what stands in the file now.
"""

from __future__ import annotations

import msgspec

from baton import clock, config
from baton.board import moves, wrote
from baton.board.actor import Actor
from baton.board.ancestry import refuse_agents
from baton.board.moves import Move
from baton.board.resolved import resolved
from baton.board.root import Board
from baton.board.tags import EFFORTS, PRIORITIES, Text, state_of
from baton.errors import Conflict, Malformed, Refused
from baton.protocol import codec

APPROVED = "approved"
REVOKED = "revoked"
WEIGHTS = frozenset(PRIORITIES + EFFORTS)


class Sight(msgspec.Struct, frozen=True):
    """What there is to see of an item: the digest of its text, and its weights."""

    body: str
    weights: str


class Terms(msgspec.Struct, frozen=True):
    """What a person says yes to: what was shown, whose next skill it is, for how many seconds."""

    sight: Sight | None = None
    session: str = ""
    lasts: float | None = None


class Approval(msgspec.Struct, frozen=True):
    """An approval as the log has it; `at` is the position of its record, `time` and `expires` are microseconds."""

    at: int
    path: str
    noun: str
    to: str
    by: str
    time: int
    expires: int
    sight: Sight
    skill: str = ""
    mode: str = ""
    program: str = ""
    session: str = ""

    def misfit(self, skill: str, mode: str, program: str) -> str:
        """Why work may not be done in this way; empty where it may."""
        for what, said, now in (
            ("skill", self.skill, skill),
            ("mode", self.mode, mode),
            ("program", self.program, program),
        ):
            if said and said != now:
                return f"it was approved for the {what} {said[:60]!r}, and by now that is {(now or 'none')[:60]!r}"
        return ""


def sight(board: Board, name: str, data: bytes) -> Sight:
    """What there is to see of an item in a text."""
    return Sight(wrote.digest(board, name, data), weights_of(Text(data)))


def weights_of(text: Text, line: int = 0) -> str:
    """The weights on the Tags line, or on a line of the body, in one order."""
    there = text.at(line) if line else text.own()
    return " ".join(sorted({tag.name for tag in there} & WEIGHTS))


def approve(move: Move, actor: Actor, terms: Terms | None = None) -> int:
    """Let an item go on from needs: note the approval, then move the tag. The position of the move's record.

    Where `terms` say what the person saw, and something else stands in the file by now, it is a Conflict.
    """
    refuse_agents(move.board)
    terms = terms or Terms()
    who = dict(zip(("skill", "mode", "program"), resolved(move.board, move.noun), strict=True))
    if (move.origin, move.to in moves.APPROVED) != ("needs", True):
        raise Malformed(f"{move.name}: an approval takes an item from needs to delegated or next, nowhere else")
    if move.line:
        raise Refused(
            f"{move.name}: line {move.line}: work inside a text has no place of its own; `baton review` approves it, "
            "and gives it a request"
        )
    log, before, given = move.board.log, move.also, list[tuple[Sight, int]]()

    def also(data: bytes) -> bytes:
        data = before(data) if before is not None else data
        found = sight(move.board, move.name, data)
        if terms.sight is not None and found != terms.sight:
            raise Conflict(f"{move.name}: it is not what was shown any more; look at it again, then decide")
        if not given or given[-1][0] != found:  # somebody saved it in between
            given.append(
                (found, log.append(APPROVED, move.name, move.noun, **_record(move, actor, terms, found), **who))
            )
            move.more["approval"] = given[-1][1]
        return data

    move.also = also
    try:
        return moves.make(move, actor)
    except BaseException:
        for _, at in given:
            log.append(REVOKED, move.name, move.noun, of=at, by=actor.by, why="the tag did not move")
        raise


def _record(move: Move, actor: Actor, terms: Terms, found: Sight) -> dict[str, str | int]:
    lasts = codec.seconds(config.approval_lasts() if terms.lasts is None else terms.lasts, "BATON_APPROVAL_LASTS")
    return {
        "to": str(move.to),
        "by": actor.by,
        "body": found.body,
        "weights": found.weights,
        "expires": clock.now() + int(lasts * clock.SECOND),
        **({"session": terms.session} if terms.session else {}),
    }


def again(move: Move, actor: Actor, approval: Approval) -> int:
    """Let an item go on from needs under the approval that it still has, as after the death of its worker."""

    def also(data: bytes) -> bytes:
        found = standing_approval(move.board, move.name, move.noun, data, clock.now())
        if isinstance(found, str) or found.at != approval.at:
            raise Conflict(f"{move.name}: {found if isinstance(found, str) else 'it has another approval by now'}")
        return data

    move.also, move.more["approval"] = also, approval.at
    return moves.make(move, actor)


def revoke(move: Move, actor: Actor, why: str) -> int:
    """Take an approval back: the item waits for a person again. The position of the move's record."""
    refuse_agents(move.board)
    log = move.board.log
    for record in log.history(move.name, move.noun):
        if record["event"] == APPROVED:
            log.append(REVOKED, move.name, move.noun, of=int(record["at"]), by=actor.by, why=why)
            break
    return moves.make(move, actor)


def standing_approval(board: Board, name: str, noun: str, data: bytes, now: int) -> Approval | str:
    """The approval under which an item may be started as it stands in this text; else why there is none."""
    record = _newest(board, name, noun)
    if isinstance(record, str):
        return record
    approval = _read(record)
    if now >= approval.expires:
        return f"the approval of {approval.by} expired"
    states = {item[0] for tag in Text(data).own() if (item := state_of(tag.name)) is not None and item[1] == noun}
    if len(states) != 1:
        return f"its Tags line has {len(states)} tags that say where #{noun} stands"
    if (state := states.pop()) in moves.APPROVED and state != approval.to:
        return f"{approval.by} approved it for #{approval.to}-{noun}, and it is #{state}-{noun}"
    found = sight(board, name, data)
    if found.weights != approval.sight.weights:
        return f"{approval.by} approved it with the weights {approval.sight.weights or 'none'!r}, not {found.weights!r}"
    if found.body != approval.sight.body:
        return f"its text was changed after {approval.by} approved it"
    return approval


def _newest(board: Board, name: str, noun: str) -> dict[str, str | int] | str:
    """The record of the approval under which an item last moved, if nothing ended it since."""
    withdrawn: set[str | int] = set()
    moved: set[str | int] = set()
    for record in board.log.history(name, noun):
        event, at = record["event"], record["at"]
        if event in {moves.WITHDRAWN, REVOKED}:
            withdrawn.add(record["of"])
        elif at in withdrawn or record.get("line"):
            continue
        elif event in moves.APPROVED:
            if "approval" not in record:
                return f"{record['by']} moved it by force, and nobody approved it"
            moved.add(record["approval"])
        elif event == APPROVED and at in moved:
            return record
        elif event in {"done", moves.REMOVED} or (event == "needs" and record.get("from") != "claimed"):
            return "nobody approved it since it was " + ("put on the list" if event == "needs" else str(event))
    if withdrawn & moved:
        return "its approval was revoked"
    return "nobody approved it"


def _read(record: dict[str, str | int]) -> Approval:
    def text(field: str) -> str:
        return str(record.get(field, ""))

    return Approval(
        at=int(record["at"]),
        path=text("path"),
        noun=text("noun"),
        to=text("to"),
        by=text("by"),
        time=int(record["time"]),
        expires=int(record["expires"]),
        sight=Sight(text("body"), text("weights")),
        skill=text("skill"),
        mode=text("mode"),
        program=text("program"),
        session=text("session"),
    )
