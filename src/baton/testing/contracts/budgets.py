"""The promises about money and tokens: set aside at the claim, settled at the end, never negative."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baton.errors import Fenced
from baton.guards.base import ALLOW, Verdict
from baton.lifecycle import TABLE, Event, State
from baton.protocol.limits import Budget, Limits
from baton.stores.base import Step
from baton.testing.contracts.contract import Contract, refuses
from baton.testing.contracts.evidence import flaws
from baton.testing.contracts.work import allow, always, answer, claim_of, delegation, request

if TYPE_CHECKING:
    from baton.protocol.handoff import Handoff
    from baton.protocol.results import Return

RESERVE = always(Verdict(reserve_tokens=100, reserve_cost=5_000_000))


class BudgetContract(Contract):
    """Subclass with `make`."""

    def begin(self, **limits: float) -> Handoff:
        """Make a handoff and claim it with 100 tokens and 5.0 set aside."""
        made = self.store.offer(request(limits=Limits(max_tokens=1000, max_cost=50.0, **limits)), allow)[0]  # type: ignore[arg-type]
        return self.again(made.id)

    def again(self, handoff_id: str) -> Handoff:
        """Claim with the same reserve."""
        grant = self.store.claim(claim_of(handoff_id), RESERVE)
        assert grant.won
        claimed: Handoff = grant.handoff
        return claimed

    def sums(self, handoff: Handoff) -> tuple[int, int, int, int]:
        """Tokens reserved and spent, cost reserved and spent."""
        flow = self.store.workflow(handoff.workflow_id)
        return flow.tokens_reserved, flow.tokens_spent, flow.cost_reserved, flow.cost_spent

    def end(self, handoff: Handoff, event: Event, result: Return | None = None) -> None:
        """Apply an event with the handoff's own epoch."""
        self.store.advance(Step(id=handoff.id, event=event, epoch=handoff.epoch, result=result))

    def test_a_claim_sets_aside(self) -> None:
        assert self.sums(self.begin()) == (100, 0, 5_000_000, 0)

    def test_an_end_gives_back_the_rest_and_counts_what_was_used(self) -> None:
        handoff = self.begin()
        self.end(handoff, Event.COMPLETE, answer(tokens=30, cost=1.5))
        assert self.sums(handoff) == (0, 30, 0, 1_500_000)

    def test_every_way_out_gives_back(self) -> None:
        outs = {event for event in TABLE[State.CLAIMED] if event is not Event.REMIND}
        for event in outs:
            handoff = self.begin()
            self.end(handoff, event)
            assert self.sums(handoff) == (0, 0, 0, 0), event
        assert flaws(self.store) == []

    def test_spending_on_the_way_comes_from_what_was_set_aside(self) -> None:
        handoff = self.begin()
        assert self.store.spend(handoff.id, handoff.epoch, 30, 1_000_000) == ALLOW
        assert self.sums(handoff) == (70, 30, 4_000_000, 1_000_000)
        assert self.store.spend(handoff.id, handoff.epoch, 90, 0) == ALLOW
        assert self.sums(handoff) == (0, 120, 4_000_000, 1_000_000)

    def test_what_was_counted_on_the_way_is_not_counted_again(self) -> None:
        handoff = self.begin()
        self.store.spend(handoff.id, handoff.epoch, 30, 1_000_000)
        self.end(handoff, Event.COMPLETE, answer(tokens=40, cost=1.5))
        assert self.sums(handoff) == (0, 40, 0, 1_500_000)

    def test_more_was_counted_than_the_return_says(self) -> None:
        handoff = self.begin()
        self.store.spend(handoff.id, handoff.epoch, 30, 1_000_000)
        self.end(handoff, Event.COMPLETE, answer(tokens=10))
        assert self.sums(handoff) == (0, 30, 0, 1_000_000)

    def test_every_attempt_is_counted(self) -> None:
        handoff = self.begin()
        self.store.spend(handoff.id, handoff.epoch, 30, 0)
        self.end(handoff, Event.RETRY, answer(tokens=50, cost=1.0))
        self.store.advance(Step(id=handoff.id, event=Event.WAKE))
        second = self.again(handoff.id)
        self.store.spend(second.id, second.epoch, 10, 0)
        self.end(second, Event.COMPLETE, answer(tokens=50, cost=1.0))
        assert self.sums(handoff) == (0, 100, 0, 2_000_000)

    def test_a_reminder_takes_nothing_away(self) -> None:
        handoff = self.begin()
        self.store.spend(handoff.id, handoff.epoch, 30, 0)
        self.store.advance(Step(id=handoff.id, event=Event.REMIND, due_at=self.store.now() + 1))
        assert self.sums(handoff) == (70, 30, 5_000_000, 0)
        self.end(handoff, Event.COMPLETE, answer(tokens=40))
        assert self.sums(handoff) == (0, 40, 0, 0)

    def test_spending_too_much_is_told_and_counted(self) -> None:
        handoff = self.begin()
        spend = self.store.spend
        assert spend(handoff.id, handoff.epoch, 1000, 0) == ALLOW
        told = spend(handoff.id, handoff.epoch, 1, 0), spend(handoff.id, handoff.epoch, 0, 50_000_001)
        assert [(one.kind, one.error, one.limit) for one in told] == [
            ("refuse", "BudgetExceeded", "max_tokens"),
            ("refuse", "BudgetExceeded", "max_cost"),
        ]
        assert "1001 tokens used or set aside in this workflow, 1000 tokens allowed" in told[0].reason
        assert self.sums(handoff) == (0, 1001, 0, 50_000_001)

    def test_other_limits_and_its_own_budget_hold_too(self) -> None:
        spend, most = self.store.spend, Limits(max_tokens=200, max_cost=1.0)
        handoff = self.begin()
        assert spend(handoff.id, handoff.epoch, 200, 0, most) == ALLOW
        assert spend(handoff.id, handoff.epoch, 1, 0, most).allowed == "at most 200 tokens"
        assert spend(handoff.id, handoff.epoch, 0, 5_000_001, most).limit == "max_cost"
        part = self.store.offer(delegation(handoff, budget=Budget(max_tokens=50)), allow)[0]
        first = self.again(part.id)
        assert spend(first.id, first.epoch, 50, 1_000_000) == ALLOW
        self.end(first, Event.RELEASE)
        second = self.again(part.id)  # what an earlier claim used, stays used
        told = spend(second.id, second.epoch, 1, 0)
        assert (told.limit, told.allowed) == ("max_tokens", "at most 50 tokens")
        assert "in this handoff" in told.reason

    def test_what_others_set_aside_is_not_there_to_spend(self) -> None:
        handoff = self.begin()
        other = self.store.offer(delegation(handoff), allow)[0]
        self.again(other.id)
        assert self.store.spend(handoff.id, handoff.epoch, 900, 0) == ALLOW
        assert self.store.spend(handoff.id, handoff.epoch, 1, 0).limit == "max_tokens"

    def test_a_stale_claim_spends_and_settles_nothing(self) -> None:
        handoff = self.begin()
        self.store.advance(Step(id=handoff.id, event=Event.RECLAIM))
        refuses(Fenced, self.store.spend, handoff.id, handoff.epoch, 10, 0)
        refuses(Fenced, self.end, handoff, Event.COMPLETE, answer(tokens=10))
        assert self.sums(handoff) == (0, 0, 0, 0)
        self.again(handoff.id)
        refuses(Fenced, self.end, handoff, Event.COMPLETE, answer(tokens=10))
        assert self.sums(handoff) == (100, 0, 5_000_000, 0)

    def test_a_repeated_return_is_counted_once(self) -> None:
        handoff = self.begin()
        for _ in range(2):
            self.end(handoff, Event.COMPLETE, answer(tokens=30))
        assert self.sums(handoff) == (0, 30, 0, 0)

    def test_the_sum_is_what_everybody_used(self) -> None:
        root = self.begin()
        used = 0
        for tokens in (1, 20, 300):
            child = self.again(self.store.offer(delegation(root), allow)[0].id)
            self.store.spend(child.id, child.epoch, tokens // 2, 0)
            self.end(child, Event.COMPLETE, answer(tokens=tokens))
            used += tokens
        assert self.sums(root) == (100, used, 5_000_000, 0)
        self.end(root, Event.COMPLETE, answer(tokens=7))
        assert self.sums(root) == (0, used + 7, 0, 0)
        assert flaws(self.store) == []
