"""Calling work off: it goes back at once, nobody else notices, and it can be taken up again."""

import asyncio
import random
import threading
import time

import pytest

from baton import Command, Handoff, HandoffFailed, Relay, Send, TimedOut


@pytest.fixture(params=["memory", "file"])
def relay(request, tmp_path):
    url = ":memory:" if request.param == "memory" else str(tmp_path / "team.db")
    with Relay(url, durability="process") as opened:
        yield opened


def with_steps(relay, count=3):
    for number in range(count):

        async def step(turn, number=number):
            for _ in range(5):
                await asyncio.sleep(0)
            last = number == count - 1
            return turn.task if last else Command(goto=f"step{number + 1}", update={f"k{number}": number})

        relay.agent(f"step{number}")(step)
    return relay


def test_a_cancelled_run_gives_the_work_back_at_once(relay):
    attempts = []

    @relay.agent("slow")
    async def slow(turn):
        attempts.append(turn.attempt)
        if len(attempts) == 1:
            await asyncio.sleep(30)
        return "done"

    async def main():
        run = asyncio.create_task(relay.run("slow", "work", workflow_id="w"))
        while not attempts:  # noqa: ASYNC110 - the body says when
            await asyncio.sleep(0)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        left = relay.store.find(workflow_id="w")[0]
        return run.cancelled(), left.status, left.attempt, await relay.resume("w")

    cancelled, status, attempt, result = asyncio.run(main())
    assert (cancelled, status, attempt) == (True, "offered", 0)
    assert (result.output, attempts) == ("done", [1, 1])
    events = [r.event_type for r in relay.audit.query(to_agent="slow")]
    assert events == ["initiated", "accepted", "released", "accepted", "completed"]


def test_runs_cancelled_at_any_moment_leave_no_claim_and_disturb_no_other(relay):
    with_steps(relay)
    chance = random.Random(7)

    async def wave(number):
        runs = [
            asyncio.create_task(relay.run("step0", f"task {number} {n}", workflow_id=f"{number}.{n}")) for n in range(8)
        ]
        called_off = runs[::2]
        for one in called_off:
            for _ in range(chance.randrange(25)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() / 500)
            one.cancel()
        async with asyncio.timeout(20):
            results = await asyncio.gather(*runs, return_exceptions=True)
        assert [getattr(r, "output", r) for r in results[1::2]] == [f"task {number} {n}" for n in (1, 3, 5, 7)]
        return sum(one.cancelled() for one in called_off)

    async def main():
        cancelled = sum([await wave(number) for number in range(25)])
        held = relay.store.held()
        begun = [flow.id for flow in relay.store.workflows(limit=1000)]
        async with asyncio.timeout(20):
            for one in begun:
                await relay.resume(one)
        return cancelled, held, begun

    cancelled, held, begun = asyncio.run(main())
    assert cancelled > 10
    assert held == []
    assert all(relay.result(one).status == "completed" for one in begun)
    assert all(h.attempt == 1 for h in relay.store.find(limit=10_000))


def test_cancel_stops_a_running_body(relay):
    seen = []

    @relay.agent("slow")
    async def slow(turn):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.append(turn.cancelled)
            raise

    async def main():
        run = asyncio.create_task(relay.run("slow", "work", workflow_id="w"))
        while not relay.store.held():  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.01)
        relay.cancel(relay.store.find(workflow_id="w")[0].id, by="ada", reason="not needed")
        async with asyncio.timeout(5):
            return await asyncio.gather(run, return_exceptions=True)

    (error,) = asyncio.run(main())
    assert isinstance(error, HandoffFailed)
    assert "not needed" in str(error)
    assert error.result.status == "cancelled"
    assert seen == [True]


def test_cancel_of_a_parent_calls_its_open_children_off(relay):
    @relay.agent("parent")
    async def parent(turn):
        return (await turn.delegate("child", "part")).output

    @relay.agent("child")
    async def child(turn):
        await asyncio.sleep(30)

    async def main():
        run = asyncio.create_task(relay.run("parent", "work", workflow_id="w"))
        while len(relay.store.held()) < 2:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.01)
        relay.cancel(relay.store.find(workflow_id="w")[0].id, by="ada")
        async with asyncio.timeout(5):
            await asyncio.gather(run, return_exceptions=True)

    asyncio.run(main())
    assert [h.status for h in relay.store.find(workflow_id="w")] == ["cancelled", "cancelled"]


def test_cancelling_a_child_alone_answers_its_parent(relay):
    @relay.agent("parent")
    async def parent(turn):
        answer = await turn.delegate("child", "part")
        return f"{answer.status}: {answer.error}"

    @relay.agent("child")
    async def child(turn):
        await asyncio.sleep(30)

    async def main():
        run = asyncio.create_task(relay.run("parent", "work", workflow_id="w"))
        while len(relay.store.held()) < 2:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.01)
        relay.cancel(relay.store.find(workflow_id="w")[1].id, by="ada", reason="not needed")
        async with asyncio.timeout(5):
            return await run

    assert "not needed" in asyncio.run(main()).output


def test_a_function_that_cannot_be_stopped_keeps_its_claim_until_it_ends(relay):
    end, told = threading.Event(), []

    @relay.agent("slow")
    def slow(turn):
        end.wait(10)
        told.append((turn.attempt, turn.cancelled))

    async def main():
        with pytest.raises(TimedOut):
            await relay.run("slow", "work", workflow_id="w", timeout=0.05)
        relay.store.renew(relay.store.find()[0].id, 1, 0)
        relay.recover()
        while_it_works = [(one.status, one.attempt) for one in relay.store.find()]
        end.set()
        return while_it_works, await relay.resume("w")

    while_it_works, result = asyncio.run(main())
    assert while_it_works == [("claimed", 1)]
    assert told == [(1, True), (1, False)]
    assert result.status == "completed"


def test_a_worker_that_stops_leaves_such_a_function_its_claim(relay):
    began, end = threading.Event(), threading.Event()

    @relay.agent("slow")
    def slow(turn):
        began.set()
        end.wait(10)
        return Command(goto="next")

    async def main():
        stop = asyncio.Event()
        relay.hand_off(Handoff(from_agent="user", to_agent="slow", task="work"))
        serving = asyncio.ensure_future(relay.work(stop))
        await asyncio.to_thread(began.wait)
        stop.set()
        await serving

    asyncio.run(main())
    held = [(one.status, one.attempt) for one in relay.store.find()]
    threading.Timer(0.1, end.set).start()
    store = relay.store
    while store.find()[0].status == "claimed":
        time.sleep(0.005)
    assert held == [("claimed", 1)]
    assert [(one.to_agent, one.status, one.attempt) for one in store.find()] == [("slow", "offered", 0)]


def test_closing_waits_for_such_a_function_unless_it_is_let_go(tmp_path):
    for leaves in (False, True):
        path = tmp_path / f"{leaves}.db"
        end, ended = threading.Event(), []
        with Relay(path) as relay:

            @relay.agent("slow")
            def slow(turn, end=end, ended=ended):
                ended.append(end.wait(0.3))

            with pytest.raises(TimedOut):
                relay.run_sync("slow", "work", timeout=0.05)
            if leaves:
                relay.let_go()
        assert ended == ([] if leaves else [False])
        with Relay(path) as again:
            assert [(one.status, one.attempt) for one in again.store.find()] == [("offered", 0)]
        end.set()


def test_a_function_that_waits_for_others_stops_waiting(relay):
    heard = []

    @relay.agent("parent")
    def parent(turn):
        try:
            return turn.delegate("child", "part").output
        finally:
            heard.append(turn.cancelled)

    @relay.agent("child")
    async def child(turn):
        await asyncio.sleep(30)

    async def main():
        run = asyncio.create_task(relay.run("parent", "work", workflow_id="w"))
        while len(relay.store.held()) < 2:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.01)
        run.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(run, return_exceptions=True)
        return run.cancelled()

    assert asyncio.run(main())
    relay.close()
    assert heard == [True]


def test_a_function_whose_claim_is_lost_holds_nobody_up(relay):
    began, end = threading.Event(), threading.Event()

    @relay.agent("slow")
    def slow(turn):
        began.set()
        end.wait(10)
        return "late"

    async def main():
        run = asyncio.create_task(relay.run("slow", "work", workflow_id="w"))
        await asyncio.to_thread(began.wait)
        relay.cancel(relay.store.find(workflow_id="w")[0].id, by="ada")
        async with asyncio.timeout(5):
            await asyncio.gather(run, return_exceptions=True)

    asyncio.run(main())
    assert not end.is_set()
    end.set()
    assert relay.result("w").status == "cancelled"


def test_who_cancels_the_whole_stops_what_nobody_waits_for_too(relay):
    works, stopped = set(), set()

    @relay.agent("part")
    async def part(turn):
        works.add(turn.task)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            stopped.add(turn.task)
            raise

    @relay.agent("lead")
    async def lead(turn):
        return (await turn.broadcast([Send("part", task="awaited"), Send("part", task="beside", returns=False)])).output

    async def main():
        run = asyncio.create_task(relay.run("lead", "work", workflow_id="w"))
        while len(works) < 2:  # noqa: ASYNC110 - the bodies say when
            await asyncio.sleep(0.01)
        root = relay.store.find(to_agent="lead")[0]
        relay.cancel(root.id, by="ada")
        async with asyncio.timeout(10):
            return await asyncio.gather(run, return_exceptions=True)

    (error,) = asyncio.run(main())
    assert "called off by ada" in str(error)
    assert stopped == {"awaited", "beside"}
    assert {one.status for one in relay.store.find(workflow_id="w")} == {"cancelled"}
