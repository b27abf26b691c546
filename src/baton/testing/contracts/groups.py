"""The promises of `Store` about groups: made together, paid for together, closed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import Fenced
from baton.guards.base import ALLOW, Facts, Verdict
from baton.lifecycle import Event, State
from baton.protocol.groups import Aggregation
from baton.protocol.limits import Limits
from baton.protocol.results import failed
from baton.testing.contracts.contract import HandoffContract, refuses
from baton.testing.contracts.evidence import flaws, names
from baton.testing.contracts.work import allow, always, answer, claim_of, delegation, following, refuse, request

if TYPE_CHECKING:
    from baton.protocol.handoff import Handoff
    from baton.stores.base import Offer

RESERVE = 100
SET_ASIDE = always(Verdict(reserve_tokens=RESERVE))


def suffices(_handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
    """Let pass what the workflow can pay for."""
    left = (limits.max_tokens or 0) - facts.tokens_spent - facts.tokens_reserved
    enough = left >= RESERVE
    return Verdict(reserve_tokens=RESERVE) if enough else Verdict("refuse", "too little", "BudgetExceeded")


class GroupContract(HandoffContract):
    """Subclass with `make`."""

    def asked(self, parent: Handoff, count: int = 3, mode: Any = "all", **more: Any) -> list[Offer]:
        """One offer for each of so many agents."""
        field = "verdict" if mode == "majority" else ""
        rule = Aggregation(mode=mode, field=field, asked=count)
        more = {"type": "broadcast", "broadcast_group_id": f"g-{parent.id}", "aggregation": rule, **more}
        return [delegation(parent, f"b{n}", part=f"k:{n}", **more) for n in range(count)]

    def group(self, mode: Any = "all", count: int = 3) -> tuple[Handoff, list[Handoff]]:
        """A parent and those whom it asked, all of them at work."""
        parent = self.claimed()
        made, verdict = self.store.offer_all(self.asked(parent, count, mode), allow)
        assert verdict == ALLOW
        return parent, [self.store.claim(claim_of(one.id), allow).handoff for one in made]

    def states(self, handoffs: list[Handoff]) -> list[str]:
        """Where they stand."""
        return [self.store.get(one.id).status for one in handoffs]

    def reserved(self, parent: Handoff) -> int:
        """How many tokens of the workflow are set aside."""
        return int(self.store.workflow(parent.workflow_id).tokens_reserved)

    def vote(self, handoff: Handoff, value: str) -> None:
        """Complete it with this vote."""
        self.step(handoff, Event.COMPLETE, result=answer({"verdict": value}))  # type: ignore[arg-type]

    def test_a_group_is_made_once(self) -> None:
        parent = self.claimed()
        offers = self.asked(parent)
        made, _ = self.store.offer_all(offers, allow)
        again, _ = self.store.offer_all([*self.asked(parent), *self.asked(parent, 4)[3:]], refuse)
        assert [one.id for one in again[:3]] == [one.id for one in made] == [one.handoff.id for one in offers]
        assert again[3].state is State.REFUSED
        assert self.store.workflow(parent.workflow_id).handoffs == 3
        assert flaws(self.store) == []

    def test_what_all_of_them_need_is_set_aside_at_once_or_nothing_is_made(self) -> None:
        parent = self.claimed(request(limits=Limits(max_tokens=5 * RESERVE)))
        made, verdict = self.store.offer_all(self.asked(parent, 3), suffices)
        assert verdict == ALLOW
        assert self.store.workflow(parent.workflow_id).tokens_reserved == 3 * RESERVE
        more = [delegation(parent, part=f"l:{n}", broadcast_group_id="h") for n in range(3)]
        (refused,), verdict = self.store.offer_all(more, suffices)
        assert (refused.state, verdict.error) == (State.REFUSED, "BudgetExceeded")
        assert len(self.store.find(parent_id=parent.id)) == 4
        flow = self.store.workflow(parent.workflow_id)
        assert (flow.tokens_reserved, flow.handoffs) == (3 * RESERVE, 3)
        first = self.store.claim(claim_of(made[0].id), suffices)
        assert first.won  # what was set aside for it is there for it
        assert self.store.workflow(parent.workflow_id).tokens_reserved == 3 * RESERVE
        self.step(first.handoff, Event.COMPLETE, result=answer(tokens=7))
        self.step(made[1], Event.CANCEL)
        flow = self.store.workflow(parent.workflow_id)
        assert (flow.tokens_reserved, flow.tokens_spent) == (RESERVE, 7)
        assert flaws(self.store) == []

    def test_a_group_that_was_refused_stays_refused_when_it_is_asked_again(self) -> None:
        parent = self.claimed(request(limits=Limits(max_tokens=2 * RESERVE)))
        (refused,), first = self.store.offer_all(self.asked(parent, 3), suffices)
        (again,), second = self.store.offer_all(self.asked(parent, 3), suffices)
        assert (first.error, again.id) == ("BudgetExceeded", refused.id)
        assert (second.kind, second.error, second.reason) == ("refuse", "BudgetExceeded", "too little")
        assert [one.id for one in self.store.find(parent_id=parent.id)] == [refused.id]
        assert flaws(self.store) == []

    def test_what_waits_for_a_person_has_its_budget_set_aside(self) -> None:
        parent = self.claimed(request(limits=Limits(max_tokens=3 * RESERVE)))

        def decide(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
            verdict = suffices(handoff, facts, limits)
            waits = verdict.kind == "allow" and handoff.to_agent != "b2" and not handoff.approved_by
            return msgspec.structs.replace(verdict, kind="ask", error="ApprovalDenied") if waits else verdict

        made, _ = self.store.offer_all(self.asked(parent, 3), decide)
        assert self.states(made) == ["waiting", "waiting", "offered"]
        (refused,), verdict = self.store.offer_all([delegation(parent, broadcast_group_id="h")], suffices)
        assert (refused.state, verdict.error) == (State.REFUSED, "BudgetExceeded")
        assert self.reserved(parent) == 3 * RESERVE
        self.step(made[2], Event.ASK)  # by whoever takes it: it waits now, and keeps what it was given
        self.step(made[2], Event.APPROVE, by="ana")
        approved = self.step(made[0], Event.APPROVE, by="ana").handoff
        assert (approved.state, self.reserved(parent)) == (State.OFFERED, 3 * RESERVE)
        assert self.store.claim(claim_of(approved.id), decide).won
        assert self.reserved(parent) == 3 * RESERVE
        self.step(made[1], Event.DENY, by="ana")
        assert self.reserved(parent) == 2 * RESERVE
        assert flaws(self.store) == []

    def test_guards_count_those_before_in_the_group(self) -> None:
        parent, seen = self.claimed(), []

        def look(_handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
            seen.append((facts.handoffs, facts.more, facts.agents))
            return ALLOW

        self.store.offer_all(self.asked(parent, 3), look)
        assert seen == [(0, 2, ("a",)), (1, 1, ("a", "b0")), (2, 0, ("a", "b0", "b1"))]
        assert self.store.workflow(parent.workflow_id).agents == ("a", "b0", "b1", "b2")

    def test_a_refusal_of_one_leaves_the_others(self) -> None:
        parent = self.claimed()

        def decide(handoff: Handoff, _facts: Facts, _limits: Limits) -> Verdict:
            return ALLOW if handoff.to_agent != "b1" else Verdict("refuse", "not to b1", "NotAuthorised")

        made, verdict = self.store.offer_all(self.asked(parent, 3), decide)
        assert verdict == ALLOW
        assert self.states(made) == ["offered", "refused", "offered"]

    def test_where_one_is_not_there_nobody_is_asked(self) -> None:
        parent = self.claimed()

        def decide(handoff: Handoff, _facts: Facts, _limits: Limits) -> Verdict:
            return ALLOW if handoff.to_agent != "b1" else Verdict("refuse", "who?", "UnknownAgent")

        made, verdict = self.store.offer_all(self.asked(parent, 3), decide)
        assert (verdict.error, self.states(made)) == ("UnknownAgent", ["refused"])
        assert len(self.store.find(parent_id=parent.id)) == 1

    def test_only_the_current_claim_may_ask(self) -> None:
        parent = self.claimed()
        offers = [msgspec.structs.replace(one, parent_epoch=parent.epoch) for one in self.asked(parent)]
        self.step(parent, Event.RELEASE)
        refuses(Fenced, self.store.offer_all, offers, allow)
        assert len(self.store.find()) == 1

    def test_all_waits_for_everybody(self) -> None:
        _, group = self.group("all")
        self.step(group[0], Event.COMPLETE, result=answer())
        self.step(group[1], Event.FAIL, result=failed("no"))
        assert self.states(group) == ["completed", "failed", "claimed"]

    def test_the_first_success_of_any_calls_off_the_others(self) -> None:
        parent, group = self.group("any", 4)
        self.step(group[0], Event.FAIL, result=failed("no"))
        self.step(group[1], Event.RELEASE)
        assert self.states(group) == ["failed", "offered", "claimed", "claimed"]
        below = self.claimed(delegation(group[2], part="below"))
        self.step(group[3], Event.COMPLETE, result=answer("first"))
        assert self.states([*group, below]) == ["failed", "cancelled", "cancelled", "completed", "cancelled"]
        assert names(self.store, group[2].id)[-1] == "cancelled"
        assert "decided without it" in self.store.returned(group[2].id).error
        refuses(Fenced, self.step, group[2], Event.COMPLETE, result=answer("second"))
        assert self.store.get(parent.id).state is State.CLAIMED
        assert flaws(self.store) == []

    def test_the_end_of_a_line_counts_and_not_its_beginning(self) -> None:
        _, group = self.group("any", 2)
        head = group[0]
        then = following(head, "c", broadcast_group_id=head.broadcast_group_id, aggregation=head.aggregation)
        moved = self.step(head, Event.COMPLETE, result=answer("on"), then=then)
        assert self.states(group) == ["completed", "claimed"]
        last = self.store.claim(claim_of(moved.then.id), allow).handoff
        self.step(last, Event.COMPLETE, result=answer("end"))
        assert self.states(group) == ["completed", "cancelled"]
        assert flaws(self.store) == []

    def test_a_majority_decides_as_soon_as_it_is_there(self) -> None:
        _, group = self.group("majority", 5)
        self.vote(group[0], "yes")
        self.vote(group[1], "no")
        self.step(group[2], Event.FAIL, result=failed("ill"))
        self.vote(group[3], "yes")
        assert self.states(group)[4] == "claimed"
        self.vote(group[4], "yes")
        assert flaws(self.store) == []
        _, group = self.group("majority", 5)
        for one in group[:3]:
            self.vote(one, "yes")
        assert self.states(group) == ["completed", "completed", "completed", "cancelled", "cancelled"]

    def test_a_majority_that_is_impossible_calls_off_the_rest(self) -> None:
        _, group = self.group("majority", 4)
        self.vote(group[0], "yes")
        self.vote(group[1], "no")
        assert self.states(group)[2:] == ["claimed", "claimed"]
        self.step(group[2], Event.FAIL, result=failed("ill"))
        assert self.states(group) == ["completed", "completed", "failed", "cancelled"]
        assert names(self.store, group[3].id).count("cancelled") == 1
        assert flaws(self.store) == []

    def test_whose_answer_nobody_waits_for_is_no_part_of_the_question(self) -> None:
        for ends_first in (True, False):
            parent = self.claimed()
            group_id, protocol = f"g-{parent.id}", request().handoff.return_protocol
            more: dict[str, Any] = {"broadcast_group_id": group_id, "return_protocol": protocol}
            aside = delegation(parent, "c", part="k:9", type="broadcast", **more)
            made, _ = self.store.offer_all([*self.asked(parent, 2, "any"), aside], allow)
            first, other, beside = (self.store.claim(claim_of(one.id), allow).handoff for one in made)
            if ends_first:
                self.step(beside, Event.COMPLETE, result=answer("beside"))
                assert self.states([first, other]) == ["claimed", "claimed"]
            self.step(first, Event.COMPLETE, result=answer("won"))
            self.step(parent, Event.COMPLETE, result=answer())
            assert self.states([other, beside]) == ["cancelled", "completed" if ends_first else "claimed"]
        assert flaws(self.store) == []

    def test_the_end_of_the_parent_calls_off_its_group_once(self) -> None:
        parent, group = self.group("any", 3)
        self.step(parent, Event.COMPLETE, result=answer())
        assert self.states(group) == ["cancelled"] * 3
        assert [names(self.store, one.id).count("cancelled") for one in group] == [1, 1, 1]
        assert flaws(self.store) == []
