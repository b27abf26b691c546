"""The programs of the README, as a user writes them."""

import asyncio
import time

import pytest

from baton import BatonError, Command, HandoffFailed, Relay


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    return ":memory:" if request.param == "memory" else str(tmp_path / "team.db")


@pytest.fixture
def relay(url):
    with Relay(url, durability="process") as opened:
        yield opened


def with_billing(relay):
    @relay.agent("triage", capabilities=["triage"])
    async def triage(turn):
        return Command(goto="billing", update={"customer": 42}, reason="a billing question")

    @relay.agent("billing", capabilities=["billing", "refunds"])
    async def billing(turn):
        return f"refunded customer {turn.state['customer']}"

    return relay


def test_the_readme_program(relay):
    with_billing(relay)
    result = asyncio.run(relay.run("triage", "please refund me"))
    assert result.output == "refunded customer 42"
    assert [(h.from_agent, h.to_agent, h.status) for h in result.handoffs] == [("triage", "billing", "completed")]
    records = relay.audit.query(to_agent="billing")
    assert [r.event_type for r in records] == ["initiated", "accepted", "completed"]
    assert result.state == {"customer": 42}
    assert relay.audit.verify().ok


def test_synchronous_agents(relay):
    @relay.agent("triage")
    def triage(turn):
        turn.progress("looking")
        return Command(goto="billing", update={"customer": 42})

    @relay.agent("billing")
    def billing(turn):
        price = turn.delegate("prices", "what did it cost?")
        return f"refunded {price.output} to {turn.state['customer']}"

    @relay.agent("prices")
    def prices(turn):
        return 7

    assert relay.run_sync("triage", "please refund me").output == "refunded 7 to 42"


def test_many_synchronous_agents_that_wait_for_each_other(relay):
    """Each has a thread of its own: a shared pool would be full of those who wait."""

    @relay.agent("outer")
    def outer(turn):
        turn.charge(1)
        return turn.delegate("inner", f"part of {turn.task}").output

    @relay.agent("inner")
    def inner(turn):
        turn.charge(1)
        time.sleep(0.01)
        return turn.task

    async def main():
        async with asyncio.timeout(20):
            return await asyncio.gather(*(relay.run("outer", f"task {n}") for n in range(16)))

    assert [r.output for r in asyncio.run(main())] == [f"part of task {n}" for n in range(16)]


def test_run_sync(relay):
    assert with_billing(relay).run_sync("triage", "please refund me").output == "refunded customer 42"


def test_stream_tells_each_step_in_order(relay):
    with_billing(relay)

    async def main():
        return [(event, h.to_agent) async for event, h in relay.stream("triage", "please refund me")]

    assert asyncio.run(main()) == [
        ("initiated", "triage"),
        ("accepted", "triage"),
        ("completed", "triage"),
        ("initiated", "billing"),
        ("accepted", "billing"),
        ("completed", "billing"),
        ("end", "triage"),
    ]


def test_a_stream_that_is_left_stops_the_work(relay):
    started = []

    @relay.agent("slow")
    async def slow(turn):
        started.append(turn.attempt)
        await asyncio.sleep(30)

    async def main():
        stream = relay.stream("slow", "work", workflow_id="w")
        async for event, _ in stream:
            if event == "accepted":
                await asyncio.sleep(0)
                break
        await stream.aclose()

    asyncio.run(main())
    assert started == [1]
    assert relay.result("w").status == "running"
    assert relay.store.find(workflow_id="w")[0].status == "offered"


def test_async_with_closes_the_agents(url):
    class Transport:
        closed = 0

        async def run(self, turn):
            return turn.task.upper()

        async def aclose(self):
            self.closed += 1

    transport = Transport()

    async def main():
        async with Relay(url) as relay:
            relay.add("shouter", transport)
            return await relay.run("shouter", "hello")

    assert asyncio.run(main()).output == "HELLO"
    assert transport.closed == 1


def test_one_relay_on_two_event_loops_one_after_the_other(relay):
    with_billing(relay)
    for _ in range(2):
        assert asyncio.run(relay.run("triage", "please refund me")).output == "refunded customer 42"


def test_a_loop_that_was_stopped_in_the_middle_does_not_harm_the_next(relay):
    with_billing(relay)

    @relay.agent("slow")
    async def slow(turn):
        await asyncio.sleep(30)

    async def stopped():
        runs = [asyncio.create_task(relay.run("slow", f"work {n}")) for n in range(4)]
        await asyncio.sleep(0.05)
        runs[0].cancel()

    asyncio.run(stopped())
    assert asyncio.run(relay.run("triage", "please refund me")).output == "refunded customer 42"
    assert relay.store.held() == []


def test_32_runs_at_once(relay):
    with_billing(relay)

    async def main():
        return await asyncio.gather(*(relay.run("triage", f"refund order {n}") for n in range(32)))

    results = asyncio.run(main())
    assert {r.output for r in results} == {"refunded customer 42"}
    assert len({r.workflow_id for r in results}) == 32
    assert len(relay.audit.query(to_agent="billing")) == 32 * 3
    assert relay.audit.verify().ok


def test_one_cancelled_run_among_many_disturbs_no_other(relay):
    with_billing(relay)

    async def main():
        runs = [asyncio.create_task(relay.run("triage", f"refund order {n}")) for n in range(16)]
        for turn, one in enumerate(runs[::4]):
            for _ in range(turn):
                await asyncio.sleep(0)
            one.cancel()
        async with asyncio.timeout(20):
            return await asyncio.gather(*runs, return_exceptions=True)

    results = asyncio.run(main())
    others = [r for n, r in enumerate(results) if n % 4]
    assert [getattr(r, "output", r) for r in others] == ["refunded customer 42"] * 12


def test_the_same_workflow_id_attaches(relay):
    calls = []

    @relay.agent("once")
    async def once(turn):
        calls.append(turn.attempt)
        await asyncio.sleep(0.05)
        return len(calls)

    async def main():
        return await asyncio.gather(*(relay.run("once", "work", workflow_id="w") for _ in range(4)))

    assert {r.output for r in asyncio.run(main())} == {1}
    assert relay.run_sync("once", "work", workflow_id="w").output == 1
    assert calls == [1]


def test_without_wait_a_worker_does_the_work(relay):
    with_billing(relay)

    async def main():
        begun = await relay.run("triage", "please refund me", wait=False)
        stop = asyncio.Event()
        worker = asyncio.create_task(relay.work(stop))
        try:
            done = await relay.run("triage", "please refund me", workflow_id=begun.workflow_id, timeout=10)
        finally:
            stop.set()
        return begun.status, done.output, await worker

    status, output, taken = asyncio.run(main())
    assert (status, output) == ("running", "refunded customer 42")
    assert taken <= 2


def test_a_worker_that_is_cancelled_gives_its_work_back(relay):
    @relay.agent("slow")
    async def slow(turn):
        await asyncio.sleep(30)

    async def main():
        await relay.run("slow", "work", wait=False, workflow_id="w")
        worker = asyncio.create_task(relay.work())
        while not relay.store.held():  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.01)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return relay.store.find(workflow_id="w")[0]

    left = asyncio.run(main())
    assert (left.status, left.attempt) == ("offered", 0)


def test_the_error_of_the_body_is_the_cause(relay):
    @relay.agent("broken")
    async def broken(turn):
        raise ZeroDivisionError("seven by nothing")

    with pytest.raises(HandoffFailed, match="ZeroDivisionError: seven by nothing") as caught:
        relay.run_sync("broken", "divide")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.result.status == "failed"
    assert relay.audit.query(to_agent="broken")[-1].event_type == "failed"


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, float("nan"), {"a": object()}, b"\xff", 10**400, "\ud800"],
    ids=list("abcdefg"),
)
def test_an_answer_that_cannot_be_stored_fails_with_a_reason(relay, value):
    @relay.agent("odd")
    async def odd(turn):
        return value

    with pytest.raises(BatonError) as caught:
        relay.run_sync("odd", "answer")
    assert relay.audit.query(to_agent="odd")[-1].event_type == "failed"
    assert len(str(caught.value)) > 20


def test_a_body_that_raises_cancelled_by_itself_has_failed(relay):
    calls = []

    @relay.agent("odd")
    async def odd(turn):
        calls.append(1)
        raise asyncio.CancelledError

    with pytest.raises(HandoffFailed, match="CancelledError"):
        relay.run_sync("odd", "work", timeout=5)
    assert calls == [1]
