"""What every process was told by the store, and whether one order of all of it explains every answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from baton.lifecycle import ENDED, Event, State, after
from baton.testing.races import Attempt, linearizable

if TYPE_CHECKING:
    from baton.stores.base import Grant, Moved, Step
    from baton.stores.rows import Row


class Call:
    """One call of one process, from its begin to its answer."""

    __slots__ = ("args", "began", "kind", "touched")

    def __init__(self, kind: str, args: tuple[Any, ...], began: int) -> None:
        self.kind = kind
        self.args = args
        self.began = began
        self.touched: list[tuple[str, str, str]] = []  # item, kind, process: what it did, as the store wrote it


class History:
    """All calls that make, claim or move a handoff, in their order."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.now = 0
        self.call: Call | None = None
        self._batch: int | None = None

    def begin(self, kind: str, args: tuple[Any, ...]) -> Call:
        """A process asks for something."""
        self.now += 1
        self.call = Call(kind, args, self.now)
        return self.call

    def open(self) -> None:
        """Several calls in one transaction."""
        self._batch = len(self.attempts)

    def close(self, *, kept: bool) -> None:
        """They were committed together, or none of them."""
        first, self._batch = self._batch or 0, None
        self.now += 1
        last = [replace(one, end=self.now) for one in self.attempts[first:]] if kept else []
        self.attempts[first:] = last

    def made(self, row: Row) -> None:
        """The store wrote a new handoff."""
        if self.call is not None:
            stands = f"{row.handoff.state.value}#{row.handoff.epoch}"
            self.call.touched.append((row.handoff.id, "made", stands))

    def moved(self, row: Row) -> None:
        """The store moved a handoff."""
        call, handoff = self.call, row.handoff
        if call is None:
            return
        if call.kind == "claim":
            call.touched.append((handoff.id, "claim", str(handoff.epoch)))
        elif call.kind == "advance" and call.args[0].id == handoff.id:
            call.touched.append((handoff.id, call.args[0].event.value, _epoch(call.args[0])))
        else:
            call.touched.append((handoff.id, Event.CANCEL.value, ""))

    def _note(self, call: Call, item: str, kind: str, process: str, *, ok: bool | None) -> None:
        self.attempts.append(Attempt(process, kind, item, call.began, self.now, ok))

    def answered(self, call: Call, came: Any) -> None:
        """The process got its answer."""
        self.now += 1
        if call.kind == "claim":
            own = self._claimed(call, came)
        else:
            own = self._advanced(call, came) if call.kind == "advance" else ""
        for item, kind, process in call.touched:
            if item != own:
                self._note(call, item, kind, process, ok=True)

    def _claimed(self, call: Call, grant: Grant) -> str:
        if grant.handoff is None:
            return ""
        if grant.won:
            self._note(call, grant.handoff.id, "claim", str(grant.handoff.epoch), ok=True)
        elif grant.handoff.state is State.CLAIMED:
            self._note(call, grant.handoff.id, "claim", "", ok=False)
        return grant.handoff.id

    def _advanced(self, call: Call, moved: Moved) -> str:
        step: Step = call.args[0]
        if moved.verdict.kind != "refuse":
            self._note(call, step.id, step.event.value, _epoch(step), ok=True)
        return step.id

    def refused(self, call: Call, *, fenced: bool) -> None:
        """The process was told no; where its claim is not the current one, that says how the handoff stands."""
        self.now += 1
        if call.kind == "advance" and fenced:
            step: Step = call.args[0]
            self._note(call, step.id, step.event.value, _epoch(step), ok=False)

    def unknown(self, call: Call) -> None:
        """The process died before it got an answer: what it did happened at any time, or never."""
        for item, kind, process in call.touched:
            self._note(call, item, kind, process, ok=None)

    def explained(self) -> bool:
        """Whether there is one order, each call between its begin and its answer."""
        return linearizable(self.attempts, _after)


def _epoch(step: Step) -> str:
    return "" if step.epoch is None else str(step.epoch)


def _after(attempt: Attempt, stands: str) -> str | None:
    """What follows from an attempt where a handoff stands so; None where it cannot have been answered so."""
    if attempt.kind == "made":
        return None if stands else attempt.process
    if not stands:
        return None
    name, _, epoch = stands.partition("#")
    if attempt.kind == "claim":
        then = f"claimed#{int(epoch) + 1}" if name == State.OFFERED.value else None
        if attempt.ok is False:
            return stands if then is None else None
        return then if then == f"claimed#{attempt.process}" else None
    return _stepped(attempt, stands, State(name), epoch)


def _stepped(attempt: Attempt, stands: str, state: State, epoch: str) -> str | None:
    following = after(state, Event(attempt.kind))
    mine = not attempt.process or (state is State.CLAIMED and epoch == attempt.process)
    then = f"{following.value}#{epoch}" if following is not None and mine else None
    if attempt.ok is False:
        return stands if then is None else None
    if then is None and state in ENDED and epoch == attempt.process:
        return stands if state is after(State.CLAIMED, Event(attempt.kind)) else None  # the same answer once more
    return then
