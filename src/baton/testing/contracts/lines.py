"""The promises of `Store` about lines: who answers whom, and what ends with whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from baton.errors import Fenced
from baton.guards.base import Verdict
from baton.lifecycle import Event, State
from baton.protocol.handoff import ReturnProtocol
from baton.protocol.limits import Limits
from baton.stores.base import Step
from baton.testing.contracts.contract import HandoffContract, refuses
from baton.testing.contracts.evidence import flaws, names
from baton.testing.contracts.work import allow, always, answer, claim_of, delegation, following, refuse, request

if TYPE_CHECKING:
    from baton.guards.base import Facts
    from baton.protocol.handoff import Handoff


class LineContract(HandoffContract):
    """Subclass with `make`."""

    def test_the_end_of_a_line_answers_its_first(self) -> None:
        first = last = self.claimed()
        for agent in ("b", "c"):
            moved = self.step(last, Event.COMPLETE, result=answer("on"), then=following(last, agent))
            assert moved.handoff.answer_id == ""
            last = self.store.claim(claim_of(moved.then.id), allow).handoff
        assert self.store.get(first.id).answer_id == ""
        self.step(last, Event.COMPLETE, result=answer("the end"))
        assert self.store.get(first.id).answer_id == last.id
        assert self.store.returned(first.id).output == "the end"
        assert flaws(self.store) == []

    def test_an_end_calls_off_what_was_delegated(self) -> None:
        parent = self.claimed()
        done, moved_on, open_, works = (self.claimed(delegation(parent, part=part)) for part in "1234")
        self.step(done, Event.COMPLETE, result=answer("half"))
        onward = self.step(moved_on, Event.COMPLETE, result=answer("on"), then=following(moved_on, "c")).then
        onward = self.store.claim(claim_of(onward.id), allow).handoff
        step = Step(id=onward.id, event=Event.COMPLETE, epoch=1, result=answer(), then=following(onward))
        assert self.store.advance(step, refuse).then.ended  # the newest of its line, but not where the work stands
        self.step(open_, Event.RELEASE)
        below = self.claimed(delegation(works, part="below"))
        self.step(parent, Event.COMPLETE, result=answer())
        for part in (onward, open_, works, below):
            assert self.store.get(part.id).state is State.CANCELLED, part
        assert self.store.get(done.id).state is State.COMPLETED
        assert self.store.get(moved_on.id).answer_id == onward.id
        assert self.store.returned(works.id).error.startswith("Cancelled: the work that it was a part of")
        assert names(self.store, below.id)[-1] == "cancelled"
        refuses(Fenced, self.step, works, Event.COMPLETE, result=answer("late"))
        assert flaws(self.store) == []

    def test_a_cancel_calls_off_what_nobody_waits_for_too_and_another_end_does_not(self) -> None:
        alone = ReturnProtocol(expected=False)
        for event in (Event.CANCEL, Event.COMPLETE, Event.FAIL):
            parent = self.claimed()
            beside, awaited = self.claimed(delegation(parent, return_protocol=alone)), self.claimed(delegation(parent))
            on_its_way = following(beside, "c", return_protocol=alone)
            below = self.claimed(delegation(awaited, return_protocol=alone))
            moved_on = self.step(beside, Event.COMPLETE, result=answer("on"), then=on_its_way).then
            done = self.claimed(delegation(parent))
            left = self.claimed(delegation(done, return_protocol=alone))
            self.step(done, Event.COMPLETE, result=answer())
            self.step(parent, event, result=answer())
            off, on = State.CANCELLED, State.OFFERED if event is not Event.CANCEL else State.CANCELLED
            # What was below work that is called off is called off with it; what completed work left behind goes on.
            assert self.states(awaited, below, moved_on, left) == [off, off, on, State.CLAIMED], event
        assert flaws(self.store) == []

    def test_work_that_is_parked_keeps_its_parts(self) -> None:
        parent = self.claimed()
        part = self.claimed(delegation(parent, part="1"))
        self.step(parent, Event.PARK)
        assert self.store.get(part.id).state is State.CLAIMED
        self.store.advance(Step(id=parent.id, event=Event.COMPLETE, by="ana", result=answer("by hand")))
        assert self.store.get(part.id).state is State.CANCELLED

    def test_a_parent_that_works_is_left_alone(self) -> None:
        parent = self.claimed()
        self.step(self.claimed(delegation(parent)), Event.COMPLETE, result=answer())
        assert self.store.get(parent.id) == parent

    def test_where_the_next_handoff_is_refused_the_step_is_not_taken(self) -> None:
        handoff = self.claimed()
        step = Step(id=handoff.id, event=Event.COMPLETE, epoch=1, result=answer(), then=following(handoff))
        moved = self.store.advance(step, refuse)
        assert (moved.verdict.kind, moved.then.state) == ("refuse", State.REFUSED)
        assert self.store.get(handoff.id) == handoff
        self.step(handoff, Event.COMPLETE, result=answer("instead"))
        assert self.store.returned(handoff.id).output == "instead"
        assert flaws(self.store) == []

    def test_the_next_handoff_is_judged_on_what_the_step_spends_and_gives_back(self) -> None:
        aside, seen = always(Verdict(reserve_tokens=100, reserve_cost=9)), []
        first = self.store.claim(claim_of(self.offer(request(limits=Limits(max_tokens=1000))).id), aside).handoff
        self.store.spend(first.id, first.epoch, 30, 2)
        part = self.store.claim(claim_of(self.offer(delegation(first)).id), aside).handoff

        def look(_handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
            seen.append((facts.tokens_spent, facts.tokens_reserved, facts.cost_spent, facts.cost_reserved))
            return Verdict(reserve_tokens=70)

        then = msgspec.structs.replace(following(first), take=claim_of(""))
        result = answer(tokens=250, cost=0.000005)
        step = Step(id=first.id, event=Event.COMPLETE, epoch=first.epoch, result=result, then=then)
        moved = self.store.advance(step, look, look)
        assert seen == [(250, 0, 5, 0)] * 2
        assert (moved.then.state, self.store.get(part.id).state) == (State.CLAIMED, State.CANCELLED)
        flow = self.store.workflow(first.workflow_id)
        assert (flow.tokens_spent, flow.tokens_reserved, flow.cost_spent, flow.cost_reserved) == (250, 70, 5, 0)
        assert flaws(self.store) == []

    def test_where_the_next_handoff_is_refused_what_was_used_counts_and_nothing_else_happens(self) -> None:
        aside = always(Verdict(reserve_tokens=100))
        first = self.store.claim(claim_of(self.offer(request(limits=Limits(max_tokens=1000))).id), aside).handoff
        part = self.claimed(delegation(first))
        step = Step(id=first.id, event=Event.COMPLETE, epoch=1, result=answer(tokens=250), then=following(first))
        for _ in range(2):  # tried again, it is not counted again
            self.store.advance(step, refuse)
            assert self.states(first, part) == [State.CLAIMED, State.CLAIMED]
            flow = self.store.workflow(first.workflow_id)
            assert (flow.tokens_spent, flow.tokens_reserved, flow.handoffs) == (250, 0, 1)
        self.step(first, Event.FAIL, result=answer())
        assert self.store.workflow(first.workflow_id).tokens_spent == 250
        assert flaws(self.store) == []

    def states(self, *handoffs: Handoff) -> list[State]:
        """Where they stand."""
        return [self.store.get(one.id).state for one in handoffs]
