"""Any order of steps, with stale claims, dead holders, lapse of time and reopened files, against a model.

BATON_STATEFUL=N runs N examples of 60 steps instead of 300.
"""

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from baton import clock
from baton.errors import Fenced, IllegalTransition
from baton.flow.recover import Facts, reclaim
from baton.guards.base import Verdict
from baton.lifecycle import ENDED, OPEN, Event, State, after
from baton.protocol.handoff import rank
from baton.protocol.limits import Limits
from baton.stores import open_store
from baton.stores.base import Claim, Step
from baton.testing.contracts import flaws
from baton.testing.contracts.evidence import MANY
from baton.testing.contracts.work import allow, always, answer, delegation, following, request
from baton.testing.virtual import VirtualClock

EXAMPLES = int(os.environ.get("BATON_STATEFUL", "300"))
LIMIT, RESERVE, LITTLE, LEASE = 300, 30, 5, 60_000_000
ACK = int(Limits().ack_seconds * 1e6)
BY_HOLDER = sorted(event for event in Event if after(State.CLAIMED, event) and event is not Event.REMIND)
BY_OTHERS = sorted(set(Event) - {Event.ACCEPT})
INITIAL = {"allow": State.OFFERED, "ask": State.WAITING, "reject": State.REJECTED, "refuse": State.REFUSED}

pick = st.integers(0, 10_000)
tokens = st.integers(0, 60)
some = always(Verdict(reserve_tokens=LITTLE))


def has(*states):
    """A rule for when something is in one of these states."""
    return precondition(lambda self: any(item.state in states for item in self.items.values()))


@dataclass
class Item:
    id: str
    agent: str
    workflow: str
    parent: str
    line: str
    priority: int
    seq: int
    state: State = State.OFFERED
    epoch: int = 0
    attempt: int = 0
    holder: str = ""
    due: int | None = None
    lease: int | None = None
    reserved: int = 0
    spent: int = 0
    audit: int = 1
    told: bool = False  # what people heard of it is still open
    fresh: object = field(default=None, repr=False)


class Lifecycle(RuleBasedStateMachine):
    items: dict[str, Item]

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        self.clock = self.stack.enter_context(clock.use(VirtualClock()))
        self.path = self.stack.enter_context(tempfile.TemporaryDirectory()) + "/store.db"
        self.items, self.spent, self.handoffs = {}, {}, {}
        self.epochs, self.ended = {}, {}

    def teardown(self):
        if hasattr(self, "store"):
            assert flaws(self.store) == []
            self.store.close()
        self.stack.close()

    @initialize(on_disk=st.booleans())
    def begin(self, on_disk):
        self.on_disk = on_disk
        self.store = self.opened()
        self.request("a", "normal", "allow")

    def opened(self):
        return open_store(self.path if self.on_disk else ":memory:", durability="process")

    # --- the model ---------------------------------------------------------------------------------

    def chosen(self, number, *states):
        """One item in these states; of all, one that is still open two times out of three."""
        states = states or (OPEN if number % 3 else frozenset(State))
        found = [item for item in self.items.values() if item.state in states] or list(self.items.values())
        return found[number // 3 % len(found)]

    def made(self, offer, kind="allow"):
        handoff, now = offer.handoff, self.store.now()
        state = INITIAL[kind]
        item = Item(
            handoff.id,
            handoff.to_agent,
            handoff.workflow_id,
            handoff.parent_id,
            handoff.line_id,
            rank(handoff.priority),
            len(self.items),
            state,
        )
        item.due = {State.OFFERED: now + ACK, State.REJECTED: now}.get(state)
        item.audit += state is not State.OFFERED
        self.items[handoff.id] = item
        self.spent.setdefault(item.workflow, 0)
        count = offer.workflow is None and state is not State.REFUSED
        self.handoffs[item.workflow] = self.handoffs.get(item.workflow, 0) + count
        return item

    def reserved(self, workflow):
        return sum(item.reserved for item in self.items.values() if item.workflow == workflow)

    def won(self, item, holder, reserve):
        item.state, item.holder, item.told = State.CLAIMED, holder, False
        item.epoch, item.attempt = item.epoch + 1, item.attempt + 1
        item.lease = item.due = self.store.now() + LEASE
        item.reserved, item.spent = reserve, 0
        item.audit += 1

    def moved(self, item, event, *, used=None, due=None, uncount=False):
        before, item.state = item.state, after(item.state, event)
        item.told = item.state is State.PARKED if item.state is not before else item.told
        item.audit += 1
        if used is not None:
            extra = max(0, used - item.spent)
            item.spent += extra
            self.spent[item.workflow] += extra
        if event is Event.REMIND:
            item.due = min(item.lease, item.due if due is None else due)
            return
        item.reserved, item.holder, item.lease = 0, "", None
        item.due = self.store.now() if due is None and item.state is State.REJECTED else due
        item.attempt -= uncount and item.attempt > 0
        if item.state in ENDED:
            for part in list(self.items.values()):
                if self.items[part.line].parent == item.id and part.state in OPEN:
                    self.moved(part, Event.CANCEL)

    # --- the rules ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.spent) < 3)
    @rule(agent=st.sampled_from("ab"), priority=st.sampled_from(["critical", "high", "normal", "low"]),
          kind=st.sampled_from(["allow", "allow", "allow", "ask", "reject", "refuse"]))  # fmt: skip
    def request(self, agent, priority, kind):
        offer = request(agent, priority=priority, limits=Limits(max_tokens=LIMIT))
        self.store.offer(offer, always(Verdict(kind)))
        self.made(offer, kind)

    @has(State.CLAIMED)
    @precondition(lambda self: len(self.items) < 12)
    @rule(number=pick, agent=st.sampled_from("abc"), kind=st.sampled_from(["allow", "allow", "ask", "refuse"]))
    def delegate(self, number, agent, kind):
        parent = self.chosen(number, State.CLAIMED)
        offer = delegation(self.store.get(parent.id), agent, part=str(number % 4))
        before = {item.id for item in self.items.values() if item.parent == parent.id}
        handoff, _ = self.store.offer(offer, always(Verdict(kind)))
        if handoff.id not in before:
            self.made(offer, kind)

    @has(State.CLAIMED)
    @precondition(lambda self: len(self.items) < 12)
    @rule(number=pick, used=tokens)
    def delegate_and_end(self, number, used):
        parent = self.chosen(number, State.CLAIMED)
        offer = delegation(self.store.get(parent.id), "c")
        self.store.offer(offer, allow)
        child = self.made(offer)
        assert self.store.claim(Claim(holder="x", id=child.id, lease=LEASE), some).won
        self.won(child, "x", LITTLE)
        self.store.advance(Step(id=child.id, event=Event.COMPLETE, epoch=1, result=answer(tokens=used)), allow)
        self.moved(child, Event.COMPLETE, used=used)

    @has(State.CLAIMED)
    @rule(
        number=pick,
        event=st.sampled_from([Event.RELEASE, Event.RECLAIM]),
        holder=st.sampled_from("xyz"),
        used=st.none() | tokens,
    )
    def change_hands(self, number, event, holder, used):
        item = self.chosen(number, State.CLAIMED)
        result = None if used is None else answer(tokens=used)
        self.store.advance(Step(id=item.id, event=event, epoch=item.epoch, result=result), allow)
        self.moved(item, event, used=used)
        assert self.store.claim(Claim(holder=holder, id=item.id, lease=LEASE), some).won
        self.won(item, holder, LITTLE)

    @rule(number=pick, holder=st.sampled_from("xyz"))
    def claim_one(self, number, holder):
        item = self.chosen(number)
        granted = self.store.claim(Claim(holder=holder, id=item.id, lease=LEASE), self.affords)
        fits = self.spent[item.workflow] + self.reserved(item.workflow) + RESERVE <= LIMIT
        assert granted.won == (item.state is State.OFFERED and fits)
        if granted.won:
            self.won(item, holder, RESERVE)

    @rule(agents=st.sampled_from(["a", "b", "ab", "abc", ""]), holder=st.sampled_from("xyz"))
    def claim_next(self, agents, holder):
        queue = [item for item in self.items.values() if item.state is State.OFFERED and item.agent in tuple(agents)]
        granted = self.store.claim(Claim(holder=holder, agents=tuple(agents), lease=LEASE), some)
        assert granted.won == bool(queue)
        if queue:
            first = min(queue, key=lambda item: (item.priority, item.seq))
            assert granted.handoff.id == first.id
            self.won(first, holder, LITTLE)

    @staticmethod
    def affords(handoff, facts, limits):
        left = limits.max_tokens - facts.tokens_spent - facts.tokens_reserved
        return Verdict(reserve_tokens=RESERVE) if left >= RESERVE else Verdict("refuse")

    @has(State.CLAIMED)
    @rule(
        number=pick,
        event=st.sampled_from(BY_HOLDER),
        used=st.none() | tokens,
        uncount=st.booleans(),
        delay=st.none() | st.integers(0, 100_000_000),
    )
    def step(self, number, event, used, uncount, delay):
        item = self.chosen(number, State.CLAIMED)
        due = None if delay is None else self.store.now() + delay
        result = None if used is None else answer(tokens=used)
        step = Step(id=item.id, event=event, epoch=item.epoch, result=result, due_at=due, uncount=uncount)
        self.store.advance(step, allow)
        self.moved(item, event, used=used, due=due, uncount=uncount)
        if item.state in ENDED:  # the same again: the first acknowledgement may have been lost
            assert self.store.advance(step, allow).handoff.state is item.state

    @has(State.CLAIMED)
    @precondition(lambda self: len(self.items) < 12)
    @rule(number=pick, agent=st.sampled_from("abc"), kind=st.sampled_from(["allow", "ask", "refuse"]), used=tokens)
    def hand_on(self, number, agent, kind, used):
        item = self.chosen(number, State.CLAIMED)
        then = following(self.store.get(item.id), agent)
        step = Step(id=item.id, event=Event.COMPLETE, epoch=item.epoch, result=answer(tokens=used), then=then)
        moved = self.store.advance(step, always(Verdict(kind)))
        if kind != "refuse":
            self.moved(item, Event.COMPLETE, used=used)
        elif (extra := max(0, used - item.spent)) > 0:  # the step is not taken, and the tokens are gone
            item.spent, item.reserved = item.spent + extra, item.reserved - min(item.reserved, extra)
            self.spent[item.workflow] += extra
        self.made(then, kind)
        assert moved.then.id == then.handoff.id

    @rule(number=pick, event=st.sampled_from(BY_HOLDER), back=st.integers(1, 3), used=st.none() | tokens)
    def stale_step(self, number, event, back, used):
        item = self.chosen(number)
        epoch = item.epoch - back + (item.state is not State.CLAIMED and item.state not in ENDED)
        if epoch >= 1:
            result = None if used is None else answer("stale", tokens=used)
            with pytest.raises(Fenced):
                self.store.advance(Step(id=item.id, event=event, epoch=epoch, result=result), allow)
            item.audit += 1

    @rule(
        number=pick,
        event=st.sampled_from([*BY_OTHERS, *[Event.REMIND] * 4]),
        delay=st.none() | st.integers(0, 100_000_000),
    )
    def decide(self, number, event, delay):
        item = self.chosen(number)
        due = None if delay is None else self.store.now() + delay
        step = Step(id=item.id, event=event, due_at=due, by="supervisor")
        if after(item.state, event) is None:
            with pytest.raises(IllegalTransition):
                self.store.advance(step, allow)
        else:
            self.store.advance(step, allow)
            self.moved(item, event, due=due)
            item.told = item.told or event is Event.FAIL  # a person hears of what the supervisor gave up

    @rule(number=pick, stale=st.booleans(), lease=st.integers(1, 3 * LEASE))
    def renew(self, number, stale, lease):
        item = self.chosen(number)
        current = item.state is State.CLAIMED and not stale
        assert self.store.renew(item.id, item.epoch - stale, lease) == current
        if current:
            item.lease = item.due = self.store.now() + lease
            timeout = self.store.timers(item.id)[1]
            item.due = item.due if timeout is None else min(item.due, timeout)

    @rule(number=pick, stale=st.booleans(), used=tokens)
    def spend(self, number, stale, used):
        item = self.chosen(number)
        if item.state is not State.CLAIMED or stale:
            with pytest.raises(Fenced):
                self.store.spend(item.id, item.epoch - stale, used, 0)
            return
        extra = max(0, used - item.reserved)
        total = self.spent[item.workflow] + self.reserved(item.workflow) + extra
        told = self.store.spend(item.id, item.epoch, used, 0)
        assert (told.kind == "allow") == (not extra or total <= LIMIT)
        item.reserved -= used - extra
        item.spent += used
        self.spent[item.workflow] += used

    @rule(seconds=st.floats(0.001, 200))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def holders_die_and_their_work_is_taken_back(self):
        self.clock.advance(LEASE / 1e6)
        for handoff in self.store.due(MANY):
            item = self.items[handoff.id]  # what it was a part of may have failed just before
            if item.state is State.CLAIMED and item.lease <= self.store.now():
                step = reclaim(handoff, Facts(now=self.store.now(), ack=ACK), "its lease is over")
                event, due = step.event, step.due_at
                assert event is Event.FAIL or handoff.attempt < handoff.max_attempts
                self.store.advance(step, allow)
                self.moved(item, event, due=due)
                item.told = event is Event.FAIL

    @precondition(lambda self: self.on_disk)
    @rule(closes=st.booleans())
    def reopen(self, closes):
        before, self.store = self.store, self.store if closes else self.opened()
        before.close()
        if closes:
            self.store = self.opened()

    # --- what always holds -------------------------------------------------------------------------

    @invariant()
    def the_store_is_as_the_model_says(self):
        if not hasattr(self, "store"):
            return
        found = {handoff.id: handoff for handoff in self.store.find(limit=MANY)}
        assert set(found) == set(self.items)
        for item in self.items.values():
            handoff = found[item.id]
            assert (handoff.state, handoff.epoch, handoff.attempt, handoff.holder) == (
                item.state, item.epoch, item.attempt, item.holder,
            )  # fmt: skip
            assert handoff.epoch >= self.epochs.get(item.id, 0)
            self.epochs[item.id] = handoff.epoch
            if handoff.ended:
                assert self.ended.setdefault(item.id, handoff.state) is handoff.state

    @invariant()
    def sums_are_right(self):
        for workflow, spent in self.spent.items():
            flow = self.store.workflow(workflow)
            assert (flow.tokens_spent, flow.tokens_reserved) == (spent, self.reserved(workflow))
            assert flow.handoffs == self.handoffs[workflow]
        if hasattr(self, "store"):
            told = sorted(item.id for item in self.items.values() if item.told)
            assert sorted(alert.subject for alert in self.store.alerts()) == told

    @invariant()
    def every_step_has_its_record(self):
        if hasattr(self, "store"):
            assert len(self.store.audit(limit=MANY)) == sum(item.audit for item in self.items.values())

    @invariant()
    def what_is_due_is_due(self):
        if hasattr(self, "store"):
            now = self.store.now()
            overdue = {item.id for item in self.items.values() if item.due is not None and item.due <= now}
            assert {handoff.id for handoff in self.store.due(MANY)} == overdue


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
