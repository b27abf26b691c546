"""The whole table: every event in every state goes where `lifecycle.TABLE` says, or changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from baton.errors import IllegalTransition
from baton.guards.base import ALLOW, Verdict
from baton.lifecycle import AUDIT_NAME, ENDED, TABLE, Event, State, after
from baton.protocol.codec import EPOCH
from baton.stores.base import Step
from baton.testing.contracts.contract import Contract, refuses
from baton.testing.contracts.evidence import flaws, names
from baton.testing.contracts.work import allow, always, answer, claim_of, request

if TYPE_CHECKING:
    from baton.protocol.handoff import Handoff

_OFFERED = {
    State.WAITING: Verdict("ask"),
    State.REFUSED: Verdict("refuse"),
    State.REJECTED: Verdict("reject"),
}
_FROM_CLAIM = {
    State.DEFERRED: Event.DEFER,
    State.PARKED: Event.PARK,
    State.COMPLETED: Event.COMPLETE,
    State.FAILED: Event.FAIL,
    State.CANCELLED: Event.CANCEL,
}
_WAITS = {State.OFFERED, State.WAITING, State.DEFERRED, State.REJECTED}


class TransitionContract(Contract):
    """Subclass with `make`."""

    def reach(self, state: State, **fields: Any) -> Handoff:
        """Bring a new handoff into a state."""
        handoff: Handoff = self.store.offer(request(**fields), always(_OFFERED.get(state, ALLOW)))[0]
        if state is State.CLAIMED or state in _FROM_CLAIM:
            handoff = self.store.claim(claim_of(handoff.id), allow).handoff
        if state in _FROM_CLAIM:
            handoff = self.store.advance(Step(id=handoff.id, event=_FROM_CLAIM[state])).handoff
        assert handoff.state is state
        return handoff

    def test_a_legal_event_goes_where_the_table_says(self) -> None:
        for state, row in TABLE.items():
            for event, expected in row.items():
                if event is Event.ACCEPT:
                    continue
                handoff = self.reach(state)
                moved = self.store.advance(Step(id=handoff.id, event=event)).handoff
                assert moved.state is expected, (state, event)
                assert self.store.get(handoff.id) == moved, (state, event)
                assert names(self.store, handoff.id)[-1] == AUDIT_NAME[event]
        assert flaws(self.store) == []

    def test_what_nobody_works_on_is_looked_at_by_its_deadline(self) -> None:
        now = self.store.now()
        soon, sooner = EPOCH + timedelta(microseconds=now + 3_000_000), now + 1_000_000
        for state, row in TABLE.items():
            for event in (event for event, then in row.items() if then in _WAITS):
                for due, expected in ((now + 3_600_000_000, soon), (sooner, EPOCH + timedelta(microseconds=sooner))):
                    handoff = self.reach(state, deadline=soon)
                    moved = self.store.advance(Step(id=handoff.id, event=event, due_at=due)).handoff
                    assert moved.due_at == expected, (state, event)
                    assert self.store.get(handoff.id) == moved, (state, event)
        self.wait(4)
        put_off = [one for one in self.store.find() if one.state in _WAITS]
        assert {one.id for one in put_off} <= {one.id for one in self.store.due()}
        assert {one.state for one in put_off} == _WAITS

    def test_an_illegal_event_changes_nothing(self) -> None:
        pairs = [(state, event) for state in State for event in Event if after(state, event) is None]
        for state in State:
            handoff = self.reach(state)
            before = (
                self.store.get(handoff.id),
                names(self.store, handoff.id),
                self.store.timers(handoff.id),
            )
            for event in (event for at, event in pairs if at is state):
                refuses(IllegalTransition, self.store.advance, Step(id=handoff.id, event=event))
            stands = (
                self.store.get(handoff.id),
                names(self.store, handoff.id),
                self.store.timers(handoff.id),
            )
            assert stands == before, state
        assert flaws(self.store) == []

    def test_what_people_were_told_is_over_when_the_work_moves_on(self) -> None:
        for state, row in TABLE.items():
            for event, then in row.items():
                handoff = self.reach(state)
                told = self.store.raise_alert(handoff.id, "look at it")
                other = self.store.raise_alert("other", "look at that")
                if event is Event.ACCEPT:
                    by = self.store.claim(claim_of(handoff.id), allow).handoff.holder
                else:
                    by = self.store.advance(Step(id=handoff.id, event=event, by="somebody")).handoff and "somebody"
                found = {one.id: one for one in self.store.alerts(unresolved=False)}
                assert found[told].resolved_by == ("" if then is state else by), (state, event)
                assert (found[told].resolved_at is None) == (then is state), (state, event)
                assert self.store.resolve_alert(other, "p")
                fresh = [one for one in self.store.alerts() if one.subject == handoff.id and one.id != told]
                assert len(fresh) == (then is State.PARKED), (state, event)

    def test_only_a_claim_accepts(self) -> None:
        for state in State:
            handoff = self.reach(state)
            refuses(IllegalTransition, self.store.advance, Step(id=handoff.id, event=Event.ACCEPT))
            assert self.store.get(handoff.id) == handoff

    def test_a_step_can_expect_a_state(self) -> None:
        handoff = self.reach(State.CLAIMED)
        wrong = Step(id=handoff.id, event=Event.CANCEL, expect=State.OFFERED)
        refuses(IllegalTransition, self.store.advance, wrong)
        assert self.store.get(handoff.id) == handoff
        right = Step(id=handoff.id, event=Event.CANCEL, expect=State.CLAIMED)
        assert self.store.advance(right).handoff.state is State.CANCELLED

    def test_only_what_is_offered_is_claimed(self) -> None:
        for state in set(State) - {State.OFFERED}:
            handoff = self.reach(state)
            grant = self.store.claim(claim_of(handoff.id, "other"), allow)
            assert (grant.won, grant.handoff) == (False, self.store.get(handoff.id))
            assert grant.handoff.holder != "other"

    def test_an_end_is_an_end(self) -> None:
        for state in ENDED:
            handoff = self.reach(state)
            for event in Event:
                refuses(IllegalTransition, self.store.advance, Step(id=handoff.id, event=event, result=answer()))
            assert self.store.get(handoff.id).state is state
