"""The promises of `Store` about records: what is written together, once, in order, and answered to whom."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from baton.errors import Fenced, NotFound
from baton.guards.base import ALLOW, Facts, Verdict
from baton.guards.health import Health
from baton.guards.health import failed as failed_check
from baton.lifecycle import Event, State
from baton.protocol.codec import EPOCH, canonical_record, digest, to_microseconds
from baton.protocol.context import Blob
from baton.protocol.handoff import Rationale, ReturnProtocol
from baton.protocol.limits import Limits
from baton.protocol.profile import Profile
from baton.protocol.results import failed
from baton.stores.base import Offer, Step
from baton.testing.contracts.contract import HandoffContract, refuses
from baton.testing.contracts.evidence import flaws, names, trail
from baton.testing.contracts.work import (
    LEASE,
    allow,
    answer,
    claim_of,
    delegation,
    following,
    refuse,
    request,
)

if TYPE_CHECKING:
    from baton.protocol.handoff import Handoff


SECRET = "sk-" + "proj-" + "a1B2c3D4e5" * 4


def breaks(*_: Any) -> Verdict:
    """A guard with a bug."""
    raise LookupError("a guard broke")


class StoreContract(HandoffContract):
    """Subclass with `make`."""

    def everything(self) -> tuple[Any, ...]:
        """All that a step could have changed."""
        read = self.store
        return read.find(), read.audit(), read.workflows(), read.alerts(), read.breakers()

    # --- one transaction ---------------------------------------------------------------------------

    def test_every_step_writes_its_record_with_it(self) -> None:
        handoff = self.claimed()
        assert names(self.store, handoff.id) == ["initiated", "accepted"]
        self.step(handoff, Event.COMPLETE, result=answer())
        records = trail(self.store, handoff.id)
        assert [record.event_type for record in records] == ["initiated", "accepted", "completed"]
        assert [record.context_snapshot.task_status for record in records] == [
            "offered",
            "claimed",
            "completed",
        ]
        assert [record.epoch for record in records] == [0, 1, 1]
        assert flaws(self.store) == []

    def test_a_cause_is_written_before_what_follows_from_it(self) -> None:
        handoff = self.claimed()
        self.step(handoff, Event.RETRY, cause="timeout")
        assert names(self.store, handoff.id)[2:] == ["timeout", "retried"]
        assert flaws(self.store) == []

    def test_a_step_says_why_in_its_record_where_it_has_reasons_of_its_own(self) -> None:
        handoff = self.claimed(request(audit=Rationale(decision_rationale="as ordered")))
        self.step(handoff, Event.ESCALATE, to_agent="b", reason="words", rationale="beyond me", detail={"from": "a"})
        assert [one.decision_rationale for one in trail(self.store, handoff.id)] == [
            "as ordered",
            "as ordered",
            "beyond me",
        ]
        assert trail(self.store, handoff.id)[-1].detail == {"from": "a"}
        assert flaws(self.store) == []

    def test_a_guard_that_breaks_leaves_nothing(self) -> None:
        handoff, waiting = self.claimed(), self.offer()
        before = self.everything()
        refuses(LookupError, self.store.offer, request(), breaks)
        refuses(LookupError, self.store.claim, claim_of(waiting.id), breaks)
        step = Step(id=handoff.id, event=Event.COMPLETE, epoch=1, result=answer(), then=following(handoff))
        refuses(LookupError, self.store.advance, step, breaks)
        assert self.everything() == before

    def test_a_claim_that_is_refused_leaves_nothing(self) -> None:
        handoff = self.offer()
        before = self.everything()
        grant = self.store.claim(claim_of(handoff.id), refuse)
        assert (grant.won, grant.verdict.limit) == (False, "max_handoffs")
        assert self.everything() == before

    def test_in_a_batch_each_succeeds_or_fails_alone(self) -> None:
        first, second = request(), request()
        store = self.store
        results = store.batch(
            [
                lambda: store.offer(first, allow),
                lambda: store.offer(second, breaks),
                lambda: store.claim(claim_of(first.handoff.id), allow),
            ]
        )
        assert isinstance(results[1], LookupError)
        assert results[2].won
        assert [handoff.id for handoff in store.find()] == [first.handoff.id]
        assert flaws(store) == []

    def test_what_is_not_there_is_not_found(self) -> None:
        assert self.store.get("nowhere") is None
        assert self.store.workflow("nowhere") is None
        assert self.store.returned("nowhere") is None
        refuses(NotFound, self.store.fetch, digest(b"nowhere"))
        refuses(NotFound, self.store.claim, claim_of("nowhere"), allow)
        refuses(NotFound, self.store.advance, Step(id="nowhere", event=Event.CANCEL))
        refuses(NotFound, self.store.offer, delegation(request().handoff), allow)

    # --- offers ------------------------------------------------------------------------------------

    def test_the_same_key_under_one_parent_is_made_once(self) -> None:
        parent, other = self.claimed(), self.claimed()
        first = self.offer(delegation(parent, part="k"))
        assert self.offer(delegation(parent, part="k")).id == first.id
        assert self.offer(delegation(parent, part="l")).id != first.id
        assert self.offer(delegation(other, part="k")).id != first.id
        assert len(self.store.find(parent_id=parent.id)) == 2
        assert flaws(self.store) == []

    def test_a_workflow_begins_once(self) -> None:
        first = request()
        made = self.offer(first)
        assert self.offer(first) == self.store.get(made.id)
        assert len(self.store.find()) == len(self.store.workflows()) == 1

    def test_a_refused_offer_is_written_down_and_does_not_count(self) -> None:
        parent = self.claimed()
        refused = self.offer(delegation(parent), Verdict("refuse", "no more", limit="max_handoffs"))
        assert self.store.get(refused.id).state is State.REFUSED
        assert names(self.store, refused.id) == ["initiated", "rejected"]
        assert self.store.workflow(parent.workflow_id).handoffs == 0
        assert "no more" in self.store.returned(refused.id).error
        assert not self.store.claim(claim_of(refused.id), allow).won
        assert flaws(self.store) == []

    def test_handoffs_and_agents_are_counted(self) -> None:
        parent = self.claimed()
        for agent in ("b", "b", "c"):
            self.offer(delegation(parent, agent))
        flow = self.store.workflow(parent.workflow_id)
        assert (flow.handoffs, flow.agents) == (3, ("a", "b", "c"))

    def test_guards_see_the_facts(self) -> None:
        self.store.register(Profile(agent_id="a"))
        self.store.register(Profile(agent_id="b", capabilities={"x": 1.0}))
        self.store.mark("b", lambda known: failed_check(known, "silent", self.store.now()))
        parent, seen = self.claimed(), []

        def look(_handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
            seen.append((facts, limits))
            return ALLOW

        child = self.store.offer(delegation(parent), look)[0]
        self.store.claim(claim_of(child.id), look)
        for facts, limits in seen:
            assert facts.sender is not None
            assert facts.target is not None
            assert (facts.sender.agent_id, facts.target.agent_id, facts.away) == ("a", "b", "suspect: silent")
            assert facts.now == self.store.now()
            assert limits == Limits()
        assert [facts.handoffs for facts, _ in seen] == [0, 1]

    def test_loops_are_counted_along_the_chain(self) -> None:
        seen = []

        def look(_handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
            seen.append((facts.repeats, facts.visits))
            return ALLOW

        last = self.claimed()
        for agent in ("b", "a", "b", "a"):
            last = self.store.offer(following(last, agent), look)[0]
        assert seen == [(0, 0), (0, 1), (1, 1), (1, 2)]

    # --- fencing -----------------------------------------------------------------------------------

    def test_a_late_return_is_kept_as_late_and_not_applied(self) -> None:
        stale = self.claimed()
        self.store.advance(Step(id=stale.id, event=Event.RECLAIM))
        current = self.store.claim(claim_of(stale.id, "other"), allow).handoff
        late = answer("late", tokens=5)
        refuses(Fenced, self.step, stale, Event.COMPLETE, result=late, then=following(stale))
        assert self.store.get(stale.id) == current
        assert self.store.returned(stale.id) is None
        record = trail(self.store, stale.id)[-1]
        assert record.event_type == "late"
        assert self.store.fetch(record.detail["result"]) == canonical_record(late)
        self.step(current, Event.COMPLETE, result=answer("right"))
        refuses(Fenced, self.step, stale, Event.DEFER)
        assert names(self.store, stale.id)[-2:] == ["completed", "fenced"]
        assert self.store.returned(stale.id).output == "right"
        assert len(self.store.find()) == 1
        assert flaws(self.store) == []

    def test_an_acknowledged_end_repeated_is_a_no_op(self) -> None:
        handoff = self.claimed()
        self.step(handoff, Event.COMPLETE, result=answer())
        before = self.everything()
        assert self.step(handoff, Event.COMPLETE, result=answer()).handoff.state is State.COMPLETED
        assert self.everything() == before

    def test_a_return_after_a_person_decided_is_late_and_no_repetition(self) -> None:
        handoff = self.claimed()
        self.store.advance(Step(id=handoff.id, event=Event.PARK))
        self.store.advance(Step(id=handoff.id, event=Event.COMPLETE, by="p", result=answer("the person's")))
        refuses(Fenced, self.step, handoff, Event.COMPLETE, result=answer("the agent's"))
        assert names(self.store, handoff.id)[-1] == "late"
        assert self.store.returned(handoff.id).output == "the person's"

    # --- waiting -----------------------------------------------------------------------------------

    def test_approval(self) -> None:
        waits = self.offer(verdict=Verdict("ask", "risky"))
        assert names(self.store, waits.id) == ["initiated", "approval_requested"]
        assert not self.store.claim(claim_of(waits.id), allow).won
        self.step(waits, Event.APPROVE, by="p")
        assert self.store.claim(claim_of(waits.id), allow).won
        denied = self.offer(verdict=Verdict("ask"))
        self.step(denied, Event.DENY, by="p", result=failed("denied by p"))
        assert self.store.get(denied.id).state is State.REFUSED
        assert self.store.returned(denied.id).error == "denied by p"
        assert trail(self.store, denied.id)[-1].by == "p"
        assert flaws(self.store) == []

    def test_when_things_become_due(self) -> None:
        limits, now = Limits(ack_seconds=7.0, approval_seconds=60.0), self.store.now()
        soon = EPOCH + timedelta(microseconds=now + 3_000_000)
        offered = self.offer(request(limits=limits))
        asked = self.offer(request(limits=limits), Verdict("ask"))
        rejected = self.offer(request(limits=limits), Verdict("reject"))
        urgent = self.offer(request(limits=limits, deadline=soon))
        short = ReturnProtocol(expected=True, timeout=5.0)
        hasty = self.offer(request(limits=limits, return_protocol=short))
        self.offer(request("human", limits=limits, return_protocol=short))
        pondered = self.offer(request(limits=limits, return_protocol=short), Verdict("ask"))
        expected = {rejected.id: 0, urgent.id: 3, hasty.id: 5, offered.id: 7, asked.id: 60, pondered.id: 60}
        due = {h.id: h.due_at for h in self.store.find() if h.due_at is not None}
        assert {i: (to_microseconds(at) - now) / 1e6 for i, at in due.items()} == expected
        assert self.store.next_due() == now
        self.wait(100)
        assert [handoff.id for handoff in self.store.due()] == list(expected)

    def test_a_claim_is_due_at_its_deadline_at_the_latest(self) -> None:
        soon = EPOCH + timedelta(microseconds=self.store.now() + LEASE // 2)
        handoff = self.claimed(request(deadline=soon))
        assert handoff.due_at == soon
        assert self.store.renew(handoff.id, handoff.epoch, 10 * LEASE)
        assert self.store.get(handoff.id).due_at == soon

    def test_a_reminder_hides_no_expired_lease(self) -> None:
        handoff = self.claimed()
        self.step(handoff, Event.REMIND, due_at=self.store.now() + 100 * LEASE)
        lease_until, _, reminded = self.store.timers(handoff.id)
        assert reminded
        assert lease_until == self.store.now() + LEASE
        self.wait(LEASE / 1e6 + 0.1)
        assert [due.id for due in self.store.due()] == [handoff.id]

    def test_looking_again_later(self) -> None:
        handoff = self.offer()
        now = self.store.now()
        assert self.store.postpone(handoff, now + 5)
        assert to_microseconds(self.store.get(handoff.id).due_at) == now + 5
        self.store.claim(claim_of(handoff.id), allow)
        assert not self.store.postpone(handoff, now + 9)

    def test_parking_tells_somebody(self) -> None:
        handoff = self.claimed()
        self.step(handoff, Event.PARK, reason="nobody knows")
        (alert,) = self.store.alerts()
        assert (alert.subject, alert.text) == (handoff.id, "nobody knows")
        assert self.store.resolve_alert(alert.id, "p")
        assert not self.store.resolve_alert(alert.id, "q")
        assert self.store.alerts() == []
        assert [found.resolved_by for found in self.store.alerts(unresolved=False)] == ["p"]

    # --- beside the handoffs -----------------------------------------------------------------------

    def test_content_is_stored_once_and_unchanged(self) -> None:
        blob = Blob(digest(b"content"), b"content")
        for _ in range(2):
            first = request()
            self.offer(
                Offer(
                    handoff=first.handoff,
                    fingerprint=first.fingerprint,
                    blobs=[blob],
                    workflow=first.workflow,
                )
            )
        assert self.store.fetch(blob.digest) == b"content"

    def test_the_registry(self) -> None:
        self.store.register(Profile(agent_id="b", description="old"))
        self.store.register(Profile(agent_id="a"))
        self.store.mark("b", lambda known: failed_check(known, "silent", self.store.now()))
        self.claimed()
        assert [(row.available, row.load) for row in self.store.agents()] == [(True, 1), (False, 0)]
        self.wait(5)
        self.store.seen(["b"])
        self.store.register(Profile(agent_id="b", description="new"))
        assert [self.store.agent(name) for name in ("a", "b", "c")] == [*(listed := self.store.agents()), None]
        assert listed[1].profile.description == "new"
        assert listed[1].health == Health(seen_at=self.store.now(), served=True)

    def test_whose_own_check_failed_is_not_well_because_it_is_registered(self) -> None:
        self.store.register(Profile(agent_id="a"))
        self.store.seen(["a"])
        for _ in range(3):
            self.store.mark("a", lambda known: failed_check(known, "down", self.store.now(), ill=True))
        before = self.store.agents()[0].health
        assert (before.state, before.failures, before.ill) == ("unavailable", 3, True)
        self.wait(5)
        for description in ("", "another"):
            self.store.register(Profile(agent_id="a", description=description))
            row = self.store.agents()[0]
            assert row.profile.description == description
            assert row.health == replace(before, seen_at=self.store.now())

    def test_health_is_remembered_and_changed_in_one_step(self) -> None:
        self.store.register(Profile(agent_id="a"))
        now = self.store.now()
        for number in range(3):
            self.wait(60)
            changed = self.store.mark("a", lambda known: failed_check(known, f"check {number}", self.store.now()))  # noqa: B023
            assert changed == self.store.agents()[0].health
        health = self.store.agents()[0].health
        assert (health.state, health.reason, health.failures) == ("unavailable", "check 2", 3)
        assert health.since == self.store.now()
        assert self.store.mark("a", lambda known: known) is None
        assert self.store.mark("nobody", lambda known: known) is None
        self.wait(5)
        self.store.seen(["a", "nobody"])
        back = Health(since=self.store.now(), seen_at=self.store.now(), served=True)
        assert self.store.agents()[0].health == back
        assert health.seen_at == now

    def test_a_reason_keeps_no_secret(self) -> None:
        self.store.register(Profile(agent_id="a"))
        self.store.mark("a", lambda known: failed_check(known, f"bad key {SECRET}", self.store.now()))
        assert SECRET not in self.store.agents()[0].health.reason
        assert "bad key" in self.store.agents()[0].health.reason

    def test_a_change_of_health_that_fails_leaves_nothing(self) -> None:
        self.store.register(Profile(agent_id="a"))
        before = self.store.agents()

        def broken(_: Health) -> Health:
            raise LookupError("a rule broke")

        refuses(LookupError, self.store.mark, "a", broken)
        assert self.store.agents() == before

    def test_failures_in_a_row_open_a_breaker_and_a_person_closes_it(self) -> None:
        for _ in range(3):
            assert all(breaker.opened_at is None for breaker in self.store.breakers())
            self.step(self.claimed(), Event.FAIL, result=failed("broken"))
        agent, route = self.store.breakers()
        assert (agent.subject, route.subject) == ("agent:a", "route:user->a")
        assert (agent.failures, agent.opened_at) == (3, self.store.now())
        assert self.store.reset_breaker("agent:a") == 1
        assert self.store.breakers() == [route]

    def test_a_success_closes_the_breaker(self) -> None:
        self.step(self.claimed(), Event.FAIL, result=failed("broken"))
        self.step(self.claimed(), Event.COMPLETE, result=answer())
        assert self.store.breakers() == []

    def test_finding(self) -> None:
        first, second = self.claimed(request("a")), self.offer(request("b"))
        child = self.offer(delegation(first, "b"))
        find = self.store.find
        assert [h.id for h in find(to_agent="b")] == [second.id, child.id]
        assert [h.id for h in find(to_agent="b", newest=True, limit=1)] == [child.id]
        assert [h.id for h in find(workflow_id=first.workflow_id, state="claimed")] == [first.id]
        assert [h.id for h in find(state=["claimed", "offered"])] == [first.id, second.id, child.id]
        assert [h.id for h in find(conversation_id=first.workflow_id)] == [first.id, child.id]
        assert self.store.held() == [(first.id, "h")]
        entries = self.store.audit(to_agent="b")
        assert [entry.handoff_id for entry in entries] == [second.id, child.id]
        assert self.store.audit(to_agent="b", after=entries[0].seq) == entries[1:]
