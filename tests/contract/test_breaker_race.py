"""Half-open lets one handoff through: of many processes that ask at once, exactly one gets to probe."""

import functools

from msgspec.structs import replace

from baton import clock, guards
from baton.guards import breaker
from baton.lifecycle import Event
from baton.protocol.limits import Limits
from baton.protocol.results import failed
from baton.stores import open_store
from baton.stores.base import Step
from baton.testing import race
from baton.testing.contracts import flaws
from baton.testing.contracts.work import allow, answer, claim_of, request
from baton.testing.virtual import VirtualClock

PROCESSES, ROUNDS = 8, 60


def rested(handoff, facts, limits):
    return guards.decide((breaker.rested,), handoff, facts, limits)


def half_open(path, agents):
    """A store in which every one of these agents failed and rested, with work for each process."""
    past = VirtualClock(start=clock.now() - 2 * breaker.COOL_DOWN)
    store = open_store(path, durability="process")
    with clock.use(past):
        for agent in agents:
            for _ in range(breaker.THRESHOLD):
                made = store.offer(request(agent), allow)[0]
                held = store.claim(claim_of(made.id), allow).handoff
                store.advance(Step(id=made.id, event=Event.FAIL, epoch=held.epoch, result=failed("broken")))
    now = store.now()
    assert {breaker.state(row, now) for row in store.breakers()} == {"half-open"}
    store.batch([functools.partial(store.offer, request(agent), allow) for agent in agents for _ in range(PROCESSES)])
    return store


def prober(path, owner):
    """The work of each process is chosen before anybody takes any."""
    store = open_store(path, durability="process")
    number = int(owner.removeprefix("racer-"))
    mine = {}
    for one in store.find(state="offered", limit=ROUNDS * PROCESSES):
        mine.setdefault(one.to_agent, []).append(one.id)
    return lambda agent: store.claim(claim_of(mine[agent][number], owner), rested).won


def test_exactly_one_process_probes(tmp_path):
    path = str(tmp_path / "store.db")
    agents = [f"agent-{number}" for number in range(ROUNDS)]
    store = half_open(path, agents)
    result = race(functools.partial(prober, path), agents, PROCESSES)
    assert (result.doubles, result.unclaimed) == (0, 0)
    assert len({owner for owners in result.winners_per_item.values() for owner in owners}) > 1
    probing = {row.subject: row.probing for row in store.breakers()}
    for agent in agents:
        (held,) = store.find(to_agent=agent, state="claimed")
        assert held.holder == result.winners_per_item[agent][0]
        assert probing[f"agent:{agent}"] == probing[f"route:user->{agent}"] == held.id
    assert flaws(store) == []
    after_the_probe(store, agents[0], agents[1])
    store.close()


def after_the_probe(store, good, bad):
    """A probe that succeeds lets the others through, one that fails none."""
    for agent, event, result in ((good, Event.COMPLETE, answer()), (bad, Event.FAIL, failed("broken"))):
        (held,) = store.find(to_agent=agent, state="claimed")
        store.advance(Step(id=held.id, event=event, epoch=held.epoch, result=result), allow)
    now = store.now()
    states = {row.subject: breaker.state(row, now) for row in store.breakers()}
    assert f"agent:{good}" not in states
    assert states[f"agent:{bad}"] == "open"
    assert all(store.claim(claim_of(one.id), rested).won for one in store.find(to_agent=good, state="offered"))
    refused = [store.claim(claim_of(one.id), rested) for one in store.find(to_agent=bad, state="offered")]
    assert {grant.verdict.error for grant in refused} == {"BreakerOpen"}


class Unheeding:
    """How not to do it: look at the breaker first, and take the work in a second transaction."""

    def __init__(self, path):
        self._path = path

    def __call__(self, owner):
        store = open_store(self._path, durability="process")
        number = int(owner.removeprefix("racer-"))
        mine = {}
        for one in store.find(state="offered", limit=ROUNDS * PROCESSES):
            mine.setdefault(one.to_agent, []).append(one)

        def take(agent):
            work = mine[agent][number]
            facts = replace(guards.Facts(store.now()), breakers=tuple(self._of(store, agent)))
            if rested(work, facts, Limits()).kind != "allow":
                return False
            return store.claim(claim_of(work.id, owner), probing).won

        return take

    @staticmethod
    def _of(store, agent):
        return [row for row in store.breakers() if row.subject == f"agent:{agent}"]


def probing(handoff, facts, limits):
    return replace(guards.ALLOW, probe=True)


def test_the_same_harness_catches_who_looks_first_and_takes_later(tmp_path):
    path = str(tmp_path / "store.db")
    agents = [f"agent-{number}" for number in range(ROUNDS)]
    store = half_open(path, agents)
    result = race(Unheeding(path), agents, PROCESSES)
    assert result.doubles > 0
    store.close()
