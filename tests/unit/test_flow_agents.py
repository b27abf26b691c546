"""No behaviour of an agent harms the work."""

import asyncio
import time

import pytest

from baton import HandoffFailed, Limits, Profile, Relay
from baton.errors import LoopDetected, TimedOut
from baton.protocol.handoff import Handoff, ReturnProtocol
from baton.testing import virtual
from baton.testing.agents import Crashing, Looping, Lying, Obedient, Silent, Slow


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened


def test_a_silent_agent_is_cut_off(relay):
    relay.add("silent", Silent())
    with pytest.raises(TimedOut):
        virtual.run(relay.run("silent", "work", return_protocol=ReturnProtocol(timeout=50)))
    assert relay.store.held() == []


def test_a_slow_agent_is_waited_for(relay):
    relay.add("slow", Slow(5000))
    assert virtual.run(relay.run("slow", "work")).output == "at last"


def test_a_lying_agent_answers_only_in_its_own_name(relay):
    relay.add("victim", Silent())
    lying = Lying()
    relay.add("lying", lying)

    async def main():
        run = asyncio.create_task(relay.run("victim", "important work", workflow_id="v"))
        await asyncio.sleep(1)
        (victim,) = relay.store.find(workflow_id="v")
        lying.handoff_id = victim.id
        result = await relay.run("lying", "work")
        untouched = relay.get(victim.id) == victim
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        return result, untouched

    result, untouched = virtual.run(main())
    assert untouched
    assert (result.answer.from_agent, result.answer.to_agent) == ("lying", "user")
    assert result.answer.handoff_id == relay.store.find(workflow_id=result.workflow_id)[0].id


def test_a_looping_agent_is_stopped(relay):
    relay.add("ping", Looping("pong"))
    relay.add("pong", Looping("ping"))
    with pytest.raises(LoopDetected):
        relay.run_sync("ping", "work", limits=Limits(max_handoffs=100))


def test_a_crashing_agent_is_tried_again_as_often_as_allowed(relay):
    protocol = ReturnProtocol(on_failure="retry")
    relay.add("twice", Crashing(times=2))
    relay.add("always", Crashing())
    assert virtual.run(relay.run("twice", "work", return_protocol=protocol)).output == "work"
    with pytest.raises(HandoffFailed, match="the agent broke"):
        virtual.run(relay.run("always", "work", return_protocol=protocol), seed=1)
    assert len(relay._crew.agents["always"].turns) == 3


def test_fake_agents_keep_their_turns():
    async def main():
        obedient = Obedient("yes")
        async with Relay() as relay:
            relay.add("it", obedient)
            await relay.run("it", "work")
        return [turn.task for turn in obedient.turns], obedient.closed

    assert asyncio.run(main()) == (["work"], 1)


def test_a_worker_keeps_no_heap_of_old_failures(relay):
    relay.add("broken", Crashing(error=ValueError("no")))

    async def main():
        for number in range(300):
            relay.hand_off(Handoff(from_agent="user", to_agent="broken", task=f"{number}"))
        stop = asyncio.Event()
        worker = asyncio.create_task(relay.work(stop))
        while not all(one.ended for one in relay.store.find()):
            relay.store.reset_breaker("agent:broken")
            relay.store.reset_breaker("route:user->broken")
            await asyncio.sleep(1)
        stop.set()
        await worker

    virtual.run(main())
    assert len(relay._crew.failures) <= 256


@pytest.mark.parametrize("url", [":memory:", "many.db"])
def test_an_agent_more_costs_the_same_among_many(tmp_path, url):
    with Relay(url if url == ":memory:" else tmp_path / url, durability="process") as relay:

        def cost(first):
            began = time.process_time()
            for number in range(first, first + 100):
                relay.add(f"agent{number}", Obedient())
            return time.process_time() - began

        few = min(cost(number) for number in range(0, 300, 100))
        for number in range(300, 3000):
            relay.store.register(Profile(agent_id=f"agent{number}"))
        assert min(cost(number) for number in range(3000, 3300, 100)) < 5 * few  # reading all each time: 40 times
