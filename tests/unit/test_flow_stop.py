"""Whoever does not stop when told, stops in another way, or raises what nobody expects, harms only its own work."""

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from baton import Escalate, Handoff, HandoffFailed, Relay, ReturnProtocol, Send, TimedOut
from baton.errors import Fenced
from baton.testing import virtual
from baton.testing.contracts import flaws


@pytest.fixture
def relay():
    with Relay(backoff=0.05) as opened:
        yield opened
        assert flaws(opened.store) == []


def polite(relay, name):
    """An agent that looks now and then whether it should stop, and then answers."""

    @relay.agent(name)
    async def work(turn):
        while not turn.cancelled:  # noqa: ASYNC110 - that is how it looks
            await asyncio.sleep(0)
        return "stopped"


async def served(relay, until, seconds=5.0):
    """Serve until this is so."""
    stop = asyncio.Event()
    serving = asyncio.ensure_future(relay.work(stop))
    async with asyncio.timeout(seconds):
        while not until():  # noqa: ASYNC110 - the store does not say when
            await asyncio.sleep(0.005)
    stop.set()
    await serving


# --- stopping one is no cancellation of others ----------------------------------------------------------


def test_a_loser_that_answers_when_told_to_stop_harms_nobody(relay):
    polite(relay, "polite")

    @relay.agent("fast")
    async def fast(turn):
        await asyncio.sleep(0.01)
        return "fast"

    @relay.agent("lead")
    async def lead(turn):
        return (await turn.broadcast(["fast", "polite"], "x", aggregate="any")).output

    async def main():
        runs = [relay.run("lead", f"work {n}") for n in range(20)]
        return [result.output for result in await asyncio.gather(*runs)]

    assert asyncio.run(main()) == ["fast"] * 20
    assert {one.status for one in relay.store.find(to_agent="polite")} == {"cancelled"}


@pytest.mark.parametrize("swallows", [False, True])
def test_a_part_that_is_called_off_does_not_cancel_its_parent(relay, swallows):
    if swallows:

        @relay.agent("child")
        async def child(turn):
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return "I go on"

    else:
        polite(relay, "child")

    @relay.agent("lead")
    async def lead(turn):
        answer = await turn.delegate("child", "x")
        try:
            async with asyncio.timeout(0.05):
                await asyncio.sleep(30)
        except TimeoutError:
            return f"goes on after {answer.status}: {asyncio.current_task().cancelling()}"

    async def main():
        run = asyncio.create_task(relay.run("lead", "t"))
        while not (found := relay.store.find(to_agent="child", state="claimed")):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        relay.cancel(found[0].id, by="ada")
        return (await run).output

    assert asyncio.run(main()) == "goes on after failed: 0"


def test_a_cancellation_from_outside_counts_beside_that_of_a_lost_claim(relay):
    polite(relay, "child")

    @relay.agent("lead")
    async def lead(turn):
        await turn.delegate("child", "x")
        await asyncio.sleep(30)

    async def main():
        run = asyncio.create_task(relay.run("lead", "t"))
        while not (found := relay.store.find(to_agent="child", state="claimed")):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        relay.cancel(found[0].id, by="ada")
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    assert [one.status for one in relay.store.find(to_agent="lead")] == ["offered"]


# --- nobody works beside one that does not stop ---------------------------------------------------------


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_second_attempt_waits_for_the_end_of_the_first(relay, in_thread):
    live, most, seen = [0], [0], []

    def begin(turn):
        live[0] += 1
        most[0] = max(most[0], live[0])
        seen.append((turn.attempt, turn.cancelled))

    async def stubborn(turn):
        begin(turn)
        until = time.monotonic() + (2.2 if turn.attempt == 1 else 0.0)
        while time.monotonic() < until:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        live[0] -= 1
        return f"attempt {turn.attempt}"

    def blocked(turn):
        begin(turn)
        time.sleep(2.2 if turn.attempt == 1 else 0.0)
        live[0] -= 1
        return f"attempt {turn.attempt}"

    relay.agent("a")(blocked if in_thread else stubborn)
    protocol = ReturnProtocol(expected=True, timeout=0.2, on_timeout="retry")

    async def main():
        await relay.run("a", "t", wait=False, max_attempts=8, return_protocol=protocol)
        await served(relay, lambda: relay.store.find()[0].ended, 10)

    asyncio.run(main())
    assert most == [1]
    assert seen[0] == (1, False)
    assert len(seen) > 1
    assert not seen[-1][1]
    assert relay._crew.outlasting == relay._crew.running == {}
    assert [one.status for one in relay.store.find()] == ["completed"]


# --- what an agent may raise ----------------------------------------------------------------------------


class Quit(BaseException):
    pass


def test_an_exception_that_nobody_expects_is_a_failed_answer(relay):
    runs = []

    @relay.agent("a")
    async def a(turn):
        runs.append(turn.attempt)
        raise Quit("enough")

    with pytest.raises(HandoffFailed, match="Quit: enough"):
        relay.run_sync("a", "t", max_attempts=2, timeout=5)
    assert runs == [1]


def test_a_body_that_raises_generator_exit_does_not_run_for_ever(relay):
    runs = []

    @relay.agent("a")
    async def a(turn):
        runs.append(turn.attempt)
        raise GeneratorExit

    async def main():
        begun = await relay.run("a", "t", wait=False, max_attempts=2)
        await served(relay, lambda: relay.result(begun.workflow_id).status == "failed" or len(runs) > 5)

    asyncio.run(main())
    assert runs == [1, 2]


@pytest.mark.parametrize("later", [False, True])
def test_an_agent_that_cancels_its_own_task_does_not_run_for_ever(tmp_path, later):
    runs, relay = [], Relay(tmp_path / "team.db", durability="process")

    @relay.agent("a")
    async def a(turn):
        runs.append(turn.attempt)
        task = asyncio.current_task()
        if later:
            asyncio.get_running_loop().call_later(0.01, task.cancel)
            await asyncio.sleep(30)
        task.cancel()
        return "done"

    async def main():
        await relay.run("a", "t", wait=False, max_attempts=2)
        await served(relay, lambda: relay.store.find()[0].status in {"failed", "parked"} or len(runs) > 5)

    with relay:
        asyncio.run(main())
        assert runs == [1, 2]


def test_a_hook_that_raises_anything_stops_nothing(relay):
    @relay.agent("a")
    async def a(turn):
        return turn.task

    def hook(passed):
        raise asyncio.CancelledError if passed.step == "accept" else SystemExit

    def listen(event, handoff):
        raise SystemExit

    relay.observe(hook)
    relay.listen(listen)
    assert relay.run_sync("a", "t").output == "t"


def test_stop_iteration_of_a_function_is_a_failed_answer(relay):
    @relay.agent("a")
    def a(turn):
        return next(iter([]))

    with pytest.raises(HandoffFailed, match="StopIteration"):
        relay.run_sync("a", "t", timeout=5)


def test_a_fence_of_another_store_is_a_failed_answer(relay):
    runs = []

    @relay.agent("a")
    def a(turn):
        runs.append(turn.attempt)
        raise Fenced("of another relay")

    with pytest.raises(Fenced, match="of another relay"):
        relay.run_sync("a", "t", timeout=5)
    assert runs == [1]


# --- work for whose answer nobody waits -----------------------------------------------------------------


def logging_team(relay, log):
    relay.agent("log")(log)

    @relay.agent("fast")
    async def fast(turn):
        return "fast"

    @relay.agent("lead")
    async def lead(turn):
        await turn.broadcast([Send("log", returns=False), Send("fast")], "x")
        return "done"


def test_a_run_waits_only_for_what_its_own_workflow_left(relay):
    async def log(turn):
        await asyncio.sleep(30)

    logging_team(relay, log)

    async def main():
        first = asyncio.create_task(relay.run("lead", "go"))
        while not relay.store.find(to_agent="log", state="claimed"):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        other = await relay.run("fast", "another", timeout=5)
        assert not first.done()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        return other.output

    assert asyncio.run(main()) == "fast"


def test_what_was_left_may_run_a_workflow_of_its_own(relay):
    async def log(turn):
        return (await relay.run("fast", "its own")).output

    logging_team(relay, log)
    assert virtual.run(relay.run("lead", "go", timeout=60)).output == "done"
    assert [one.status for one in relay.store.find(to_agent="log")] == ["completed"]


def test_a_worker_that_stops_gives_back_what_was_left_too(relay):
    async def log(turn):
        await asyncio.sleep(30)

    logging_team(relay, log)

    async def main():
        relay.hand_off(Handoff(from_agent="user", to_agent="lead", task="go"))
        await served(relay, lambda: relay.store.find(to_agent="log", state="claimed"))

    asyncio.run(main())
    assert [(one.status, one.attempt) for one in relay.store.find(to_agent="log")] == [("offered", 0)]


def test_a_resumed_workflow_does_what_was_left(relay):
    began, done = threading.Event(), []

    async def log(turn):
        began.set()
        if len(done) == 0:
            done.append(0)
            await asyncio.sleep(30)
        done.append(turn.attempt)

    logging_team(relay, log)

    async def main():
        with pytest.raises(TimedOut):
            await relay.run("lead", "go", workflow_id="w", timeout=0.3)
        for task in list(relay._crew.asides):  # as when the process is told to stop
            task.cancel()
        await asyncio.sleep(0.05)
        assert [one.status for one in relay.store.find(to_agent="log")] == ["offered"]
        await relay.resume("w")

    asyncio.run(main())
    assert done == [0, 1]


@pytest.mark.parametrize("way", ["run", "delegate"])
def test_who_asks_waits_for_what_was_left_but_not_for_a_person(relay, way):
    ended = []

    async def log(turn):
        await asyncio.sleep(0.05)
        ended.append(turn.task)
        return Escalate("not mine")

    logging_team(relay, log)

    async def main():
        async with asyncio.timeout(5):
            if way == "run":
                return (await relay.run("lead", "go")).output
            return (await relay.delegate("lead", "go", from_agent="ci")).output

    assert asyncio.run(main()) == "done"
    assert ended == ["x"]
    assert [one.status for one in relay.store.find(to_agent="log")] == ["parked"]
