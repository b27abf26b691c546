"""Items of the board behind the promise of every store: exclusive ownership with a fencing epoch.

An item is named `PATH#NOUN`; its noun is the agent that it is for. Its tag says where it stands, its log who holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from baton import clock
from baton.board import files
from baton.board.actor import Actor
from baton.board.answered import demand
from baton.board.items import texts
from baton.board.moves import STATES, WITHDRAWN, Move, make, standing
from baton.board.tags import PRIORITIES, Text, priority, state_of
from baton.errors import Conflict, Fenced, Malformed, NotFound, Refused
from baton.guards.base import Facts
from baton.lifecycle import ENDED, Event, State
from baton.protocol.handoff import PRIORITIES as RANKS
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.stores.base import Claim, Decide, Grant, Moved, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from baton.board.log import Record
    from baton.board.root import Board

BY_TAG = {
    "needs": State.WAITING,
    "delegated": State.OFFERED,
    "next": State.OFFERED,
    "claimed": State.CLAIMED,
    "done": State.COMPLETED,
}
# The moves that make up an event of a claimed item, and what the log calls an end that the tag cannot tell.
MOVES: dict[Event, tuple[tuple[str | None, ...], str]] = {
    Event.COMPLETE: (("done",), ""),
    Event.RELEASE: (("needs", "delegated"), ""),
    Event.RECLAIM: (("needs", "delegated"), ""),
    Event.FAIL: (("needs",), State.FAILED),
    Event.CANCEL: (("needs", None), State.CANCELLED),
}
RENEWED = "renewed"


class FileClaims:
    """The items of one board, for whoever claims work without asking whether it stands in a store or in files."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def close(self) -> None:
        """Give the log back."""
        self.board.log.close()

    def get(self, item: str) -> Handoff | None:
        """An item as it stands; None where neither a tag nor the log knows it."""
        name, noun = named(item)
        try:
            text = Text(files.read(self.board.path(name)))
        except NotFound:
            text = Text(b"")
        tag = next((state for state, of in _states(text) if of == noun), "")
        history = list(self.board.log.history(name, noun))
        return _handoff(item, tag, history, text) if tag or history else None

    def claim(self, claim: Claim, decide: Decide) -> Grant:
        """Take one item, or the most urgent one of some nouns."""
        if claim.id:
            return self._take(claim, claim.id, decide)
        for item in self._offered(claim.agents):
            if (grant := self._take(claim, item, decide)).won:
                return grant
        return Grant()

    def renew(self, item: str, epoch: int, lease: int) -> bool:
        """Prolong the lease of the current claim."""
        name, noun = named(item)
        record = standing(self.board.log.history(name, noun))
        if record is None or record["event"] != "claimed" or record["at"] != epoch:
            return False
        self.board.log.append(RENEWED, name, noun, epoch=epoch, until=clock.now() + lease)
        return True

    def advance(self, step: Step, decide: Decide | None = None, accept: Decide | None = None) -> Moved:  # noqa: ARG002 - no second step follows on the board
        """Apply one event by the claim of its epoch, or by whoever may decide for it."""
        name, noun = named(step.id)
        record = standing(self.board.log.history(name, noun))
        if (ended := self._repeated(step, record)) is not None:
            return Moved(ended)
        if step.event not in MOVES:
            raise Malformed(f"{step.id}: the board has no {step.event.value}; it knows {', '.join(MOVES)}")
        if step.event is Event.COMPLETE:
            demand(self.board, self.board.path(name), noun, files.read(self.board.path(name)))
        origin, (to, outcome) = "claimed", MOVES[step.event]
        for state in to:
            move = Move(self.board, self.board.path(name), noun, origin, state)
            move.seen = int(record["at"]) if record is not None else -1
            move.more = {"epoch": step.epoch or 0, "reason": step.reason, "outcome": outcome}
            if state == "delegated":  # under the approval that it had
                move.more["approval"] = _approval(self.board.log.history(name, noun))
            if step.uncount:
                move.more["uncount"] = 1
            make(move, Actor(step.by or "supervisor", ""))
            origin, record = state or "", standing(self.board.log.history(name, noun))
        found = self.get(step.id)
        if found is None:
            raise NotFound(f"{step.id}: it is gone; `baton tag find` shows what is there")
        return Moved(found)

    def due(self, limit: int = 100) -> list[Handoff]:
        """What is claimed and whose lease is over, the longest first."""
        over = []
        for name, data in texts(self.board, self.board.root):
            for state, noun in _states(Text(data)):
                if state == "claimed":
                    until = _lease(self.board.log.history(name, noun))
                    if until and until <= clock.now():
                        over.append((until, f"{name}#{noun}"))
        found = (self.get(item) for _, item in sorted(over)[:limit])
        return [handoff for handoff in found if handoff is not None]

    def _take(self, claim: Claim, item: str, decide: Decide) -> Grant:
        name, noun = named(item)
        found = self.get(item)
        if found is None or found.state is not State.OFFERED:
            return Grant(handoff=found)
        verdict = decide(found, Facts(now=clock.now()), Limits())
        if verdict.kind != "allow":
            return Grant(handoff=found, verdict=verdict)
        text = Text(files.read(self.board.path(name)))
        origin = next((state for state, of in _states(text) if of == noun), "delegated")
        move = Move(self.board, self.board.path(name), noun, origin, "claimed")
        move.more = {"until": clock.now() + claim.lease}
        try:
            make(move, Actor(claim.holder, claim.holder))
        except (Conflict, NotFound, Refused):
            return Grant(handoff=self.get(item))
        return Grant(handoff=self.get(item), won=True)

    def _repeated(self, step: Step, record: Record | None) -> Handoff | None:
        """The item, where this step is one that was taken already; else whether its claim still counts."""
        found = self.get(step.id)
        if found is None:
            raise NotFound(f"{step.id}: no such item; `baton tag find` shows what is there")
        if found.state in ENDED:
            wanted = State.COMPLETED if step.event is Event.COMPLETE else MOVES.get(step.event, ((), ""))[1]
            if found.state == wanted and record is not None and record.get("epoch") == step.epoch:
                return found
        if step.epoch is not None and (found.state is not State.CLAIMED or found.epoch != step.epoch):
            name, noun = named(step.id)
            self.board.log.append("late", name, noun, epoch=step.epoch, to=step.event.value)
            raise Fenced(f"{step.id}: claim {step.epoch} is over; what it did is not applied")
        return None

    def _offered(self, nouns: Sequence[str]) -> Iterator[str]:
        """What may be taken: urgent first, then by the time of its approval, then by path."""
        found = []
        for name, data in texts(self.board, self.board.root):
            text = Text(data)
            for state, noun in _states(text):
                if state == "delegated" and noun in nouns:
                    history = list(self.board.log.history(name, noun))
                    found.append((_rank(history, text), _approved(history), name, noun))
        for _, _, name, noun in sorted(found):
            yield f"{name}#{noun}"


def named(item: str) -> tuple[str, str]:
    """The path and the noun of an item."""
    name, _, noun = item.rpartition("#")
    if not name or not noun:
        raise Malformed(f"{item[:80]!r}: not an item of the board; write PATH#NOUN")
    return name, noun


def _states(text: Text) -> list[tuple[str, str]]:
    return [found for tag in text.own() if (found := state_of(tag.name))]


def _rank(history: list[Record], text: Text) -> int:
    """0 for critical to 3 for low, which the tag cannot say and the record can."""
    said = next((one["rank"] for one in history if "rank" in one), "")
    return 3 if said == 3 else PRIORITIES.index(priority([tag.name for tag in text.own()]))


def _approved(history: list[Record]) -> int:
    """The approval since its last end, as the place of its record: what goes back keeps its turn."""
    first = 0
    for record in history:
        if record["event"] == "done" or record.get("outcome"):
            break
        if record["event"] == "delegated":
            first = int(record["at"])
    return first


def _approval(history: Iterator[Record]) -> int:
    """The newest approval under which an item moved; 0 where there is none."""
    return next((int(record["approval"]) for record in history if "approval" in record), 0)


def _lease(history: Iterator[Record]) -> int:
    """Until when the current claim counts without a renewal."""
    for record in history:
        if record["event"] in {RENEWED, "claimed"}:
            return int(record.get("until", 0))
    return 0


def _handoff(item: str, tag: str, history: list[Record], text: Text) -> Handoff:
    withdrawn = {record["of"] for record in history if record["event"] == WITHDRAWN}
    moves = [one for one in history if one["event"] in STATES and one["at"] not in withdrawn]
    claims = [one for one in moves if one["event"] == "claimed"]
    outcome = str(moves[0].get("outcome", "")) if moves else ""
    fields: dict[str, Any] = {}
    if tag == "claimed" and claims and moves[0] is claims[0]:
        fields["holder"] = str(claims[0]["holder"])
    state = State(outcome) if outcome else BY_TAG.get(tag, State.CANCELLED)
    name, noun = named(item)
    return Handoff(
        id=item,
        from_agent="board",
        to_agent=noun,
        task=text.title() or name,
        priority=RANKS[_rank(history, text)],
        state=state,
        epoch=int(claims[0]["at"]) if claims else 0,
        attempt=len(claims) - sum(1 for one in moves if one.get("uncount")),
        **fields,
    )
