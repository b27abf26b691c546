"""The promises of `Claims`: exclusive ownership with a fencing epoch."""

from __future__ import annotations

from typing import Any

from baton.errors import Fenced
from baton.lifecycle import ENDED, Event, State
from baton.protocol.handoff import Handoff, Priority
from baton.stores.base import Claim, Grant, Step
from baton.testing.contracts.contract import Contract, refuses
from baton.testing.contracts.work import LEASE, allow, answer, claim_of, request


class ClaimsContract(Contract):
    """Subclass with `make`; where `put` and `look` do not fit your claims, override them too."""

    def put(self, agent: str = "a", priority: Priority = "normal") -> str:
        """Make one item that an agent may claim; its id."""
        handoff, _ = self.store.offer(request(agent, priority=priority), allow)
        return str(handoff.id)

    def look(self, item: str) -> Handoff:
        """The item as it stands."""
        found: Handoff = self.store.get(item)
        return found

    def take(self, item: str, holder: str = "h") -> Grant:
        """Claim one item."""
        granted: Grant = self.store.claim(claim_of(item, holder), allow)
        return granted

    def next(self, *agents: str, holder: str = "h") -> str:
        """Claim whatever is next for some agents; its id, or nothing."""
        granted = self.store.claim(Claim(holder=holder, agents=agents, lease=LEASE), allow)
        return granted.handoff.id if granted.won else ""

    def step(self, item: str, event: Event, epoch: int | None = None, **more: Any) -> Handoff:
        """Apply one event."""
        moved: Handoff = self.store.advance(Step(id=item, event=event, epoch=epoch, **more), allow).handoff
        return moved

    def held(self) -> tuple[str, int]:
        """A claimed item and the epoch of its claim."""
        granted = self.take(item := self.put())
        assert granted.won
        assert granted.handoff is not None
        return item, granted.handoff.epoch

    def test_a_claim_has_one_winner(self) -> None:
        item = self.put()
        grants = [self.take(item, holder) for holder in ("x", "y", "z")]
        assert [grant.won for grant in grants] == [True, False, False]
        assert self.look(item).holder == "x"
        assert all(grant.handoff and grant.handoff.holder == "x" for grant in grants)

    def test_nothing_to_take_is_no_error(self) -> None:
        assert self.store.claim(Claim(holder="h", agents=("a",)), allow) == Grant()
        assert self.store.claim(Claim(holder="h"), allow) == Grant()
        self.put("b")
        assert self.next("a") == ""

    def test_a_claim_gives_one_owner_one_attempt_and_one_epoch(self) -> None:
        item, epoch = self.held()
        found = self.look(item)
        assert (found.state, found.holder, found.attempt, found.epoch) == (State.CLAIMED, "h", 1, epoch)

    def test_epochs_only_grow(self) -> None:
        item, epochs = self.put(), []
        for event in (Event.RELEASE, Event.RECLAIM, Event.RELEASE):
            granted = self.take(item)
            assert granted.handoff is not None
            epochs.append(granted.handoff.epoch)
            self.step(item, event, uncount=event is Event.RELEASE)
        assert epochs == sorted(set(epochs))
        assert self.look(item).epoch == epochs[-1]

    def test_urgent_first_then_in_order_over_several_agents(self) -> None:
        ranks: list[Priority] = ["low", "normal", "high", "normal", "critical", "high"]
        items = [self.put("ab"[number % 2], priority) for number, priority in enumerate(ranks)]
        taken = [self.next("a", "b") for _ in range(7)]
        assert taken == [items[4], items[2], items[5], items[1], items[3], items[0], ""]

    def test_released_work_keeps_its_place(self) -> None:
        first, second = self.put(), self.put()
        self.take(first)
        self.step(first, Event.RELEASE)
        assert [self.next("a"), self.next("a")] == [first, second]

    def test_a_stale_epoch_is_fenced_and_changes_nothing(self) -> None:
        item, stale = self.held()
        self.step(item, Event.RECLAIM)
        events = (Event.COMPLETE, Event.FAIL, Event.DEFER, Event.REJECT, Event.RELEASE)
        for _ in range(2):  # once while it is offered, once while another has it
            before = self.look(item)
            for event in events:
                refuses(Fenced, self.step, item, event, stale)
                assert self.look(item) == before
            self.take(item, "other")
        self.step(item, Event.COMPLETE, self.look(item).epoch, result=answer())
        refuses(Fenced, self.step, item, Event.COMPLETE, stale)
        assert self.look(item).state is State.COMPLETED

    def test_a_repeated_end_is_no_second_end(self) -> None:
        for event in (Event.COMPLETE, Event.FAIL, Event.CANCEL):
            item, epoch = self.held()
            first = self.step(item, event, epoch, result=answer())
            again = self.step(item, event, epoch, result=answer())
            assert again.state is first.state
            assert first.state in ENDED

    def test_another_claim_does_not_pass_for_a_repetition(self) -> None:
        item, stale = self.held()
        self.step(item, Event.RELEASE)
        self.take(item, "other")
        self.step(item, Event.COMPLETE, self.look(item).epoch, result=answer())
        refuses(Fenced, self.step, item, Event.COMPLETE, stale)

    def test_an_expired_lease_is_due(self) -> None:
        item, _ = self.held()
        assert self.store.due() == []
        self.wait(LEASE / 1e6 + 0.1)
        assert [handoff.id for handoff in self.store.due()] == [item]

    def test_renewing_prolongs_the_lease(self) -> None:
        item, epoch = self.held()
        assert self.store.renew(item, epoch, 10 * LEASE)
        self.wait(2 * LEASE / 1e6)
        assert self.store.due() == []
        self.wait(9 * LEASE / 1e6)
        assert [handoff.id for handoff in self.store.due()] == [item]

    def test_only_the_current_claim_is_renewed(self) -> None:
        item, epoch = self.held()
        assert not self.store.renew(item, epoch + 1, LEASE)
        self.step(item, Event.RELEASE)
        assert not self.store.renew(item, epoch, LEASE)
        self.take(item)
        current = self.look(item).epoch
        assert not self.store.renew(item, epoch, LEASE)
        assert self.store.renew(item, current, LEASE)
        self.step(item, Event.COMPLETE, current, result=answer())
        assert not self.store.renew(item, current, LEASE)

    def test_the_longest_overdue_comes_first_and_no_more_than_asked_for(self) -> None:
        items = []
        for _ in range(3):
            items.append(self.held()[0])
            self.wait(0.1)
        self.wait(LEASE / 1e6 + 0.1)
        assert [handoff.id for handoff in self.store.due()] == items
        assert [handoff.id for handoff in self.store.due(2)] == items[:2]

    def test_what_has_ended_is_not_due(self) -> None:
        item, epoch = self.held()
        self.step(item, Event.COMPLETE, epoch, result=answer())
        self.wait(2 * LEASE / 1e6)
        assert self.store.due() == []
