"""A claim that is lost while its body runs: the body is told, and nobody else."""

import asyncio

import pytest

from baton import Relay
from baton.flow import execute
from baton.lifecycle import Event
from baton.stores.base import Step
from baton.testing import virtual


@pytest.fixture
def relay():
    with Relay(":memory:") as opened:
        yield opened


def take_back(relay):
    """As another process does that finds the lease over."""
    [one] = relay.store.find(state="claimed")
    relay.store.advance(Step(id=one.id, event=Event.RECLAIM, by="supervisor"))
    relay._crew.hub.notify()


def test_a_body_is_told_although_its_own_process_took_the_work_again(relay):
    left = []

    @relay.agent("a")
    async def a(turn):
        if turn.attempt > 1:
            return "second"
        try:
            await asyncio.Event().wait()
        finally:
            left.append(turn.cancelled)

    async def main():
        run = asyncio.create_task(relay.run("a", "work"))
        await asyncio.sleep(0.1)
        serve = asyncio.create_task(relay.work())
        take_back(relay)
        result = await asyncio.wait_for(run, 60)
        serve.cancel()
        return result

    assert virtual.run(main()).output == "second"
    assert left == [True]


def test_a_run_goes_on_whose_body_ended_just_before_it_was_told(relay):
    gate, tasks = asyncio.Event(), []

    @relay.agent("a")
    async def a(turn):
        tasks.append(asyncio.current_task())
        await gate.wait()
        return turn.attempt

    async def main():
        run = asyncio.create_task(relay.run("a", "work"))
        await asyncio.sleep(0.1)
        take_back(relay)
        gate.set()
        execute.drop_lost(relay._crew)
        return await run

    assert virtual.run(main()).output == 2


def test_a_body_that_swallows_it_leaves_nothing_to_what_its_task_does_next(relay):
    counts = []

    @relay.agent("a")
    async def a(turn):
        counts.append(asyncio.current_task().cancelling())
        if turn.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "too late"
        return "again"

    async def main():
        run = asyncio.create_task(relay.run("a", "work"))
        await asyncio.sleep(0.1)
        take_back(relay)
        execute.drop_lost(relay._crew)
        return await run

    assert virtual.run(main()).output == "again"
    assert counts == [0, 0]


def test_a_run_that_is_called_off_just_when_its_claim_is_lost_is_called_off(relay):
    @relay.agent("a")
    async def a(turn):
        await asyncio.Event().wait()

    async def main():
        run = asyncio.create_task(relay.run("a", "work"))
        await asyncio.sleep(0.1)
        take_back(relay)
        execute.drop_lost(relay._crew)
        await asyncio.sleep(0)
        run.cancel()
        await asyncio.wait([run], timeout=60)
        return run.cancelled()

    assert virtual.run(main())
