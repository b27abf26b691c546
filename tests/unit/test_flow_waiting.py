"""Work that does not go on says why, at once, and what lets it go on."""

import asyncio
import logging

import pytest

from baton import BatonError, Escalate, Handoff, HandoffFailed, Limits, Profile, Reject, Relay, TimedOut
from baton.testing import virtual


@pytest.fixture
def relay(tmp_path):
    with Relay(str(tmp_path / "team.db"), limits=Limits(approve=("pay",)), durability="process") as opened:
        opened.agent("pay")(lambda turn: "paid")
        yield opened


def waits(relay, agent, caplog, seconds=2.0):
    """What is logged, told and raised while a run waits in vain, and the handoff that it waits for."""
    told = []
    relay.listen(lambda event, one: told.append(one) if event == "waits" else None)
    with caplog.at_level(logging.WARNING, "baton"), pytest.raises(TimedOut) as raised:
        virtual.run(relay.run(agent, "work", timeout=seconds, workflow_id="w"))
    said = [record.getMessage() for record in caplog.records if record.name == "baton"]
    assert len(said) == len(told) == 1, said
    assert said[0] in str(raised.value)
    assert str(raised.value).startswith("workflow w: not finished within 2 s: ")
    assert raised.value.result.workflow_id == "w"
    assert relay.waits_for("w") == said
    return said[0], told[0]


def test_an_approval(relay, caplog):
    said, one = waits(relay, "pay", caplog)
    store = relay.store.url
    assert said == f"user → pay waits for a person: `baton approve {one.id[:8]} --store {store}`"


def test_an_approval_of_a_part(relay, caplog):
    @relay.agent("clerk")
    async def clerk(turn):
        await turn.delegate("pay", "send 900")

    said, one = waits(relay, "clerk", caplog)
    assert said.startswith(f"clerk → pay waits for a person: `baton approve {one.id[:8]} ")


def test_a_question(relay, caplog):
    @relay.agent("clerk")
    async def clerk(turn):
        await turn.ask("which colour?")

    said, one = waits(relay, "clerk", caplog)
    assert said.startswith("clerk asks 'which colour?' and waits for a person: `baton handoff return ")
    assert one.id[:8] in said


@pytest.mark.parametrize("back", [Reject("not my trade"), Escalate("not my trade")])
def test_parked_work(relay, caplog, back):
    relay.agent("clerk")(lambda turn: back)
    said, one = waits(relay, "clerk", caplog)
    assert said.startswith("user → clerk waits for a person: ")
    assert f"`baton handoff reroute {one.id[:8]} AGENT --store" in said
    if isinstance(back, Escalate):
        assert "not my trade; " in said


def test_what_waits_in_memory_names_the_call():
    with Relay(limits=Limits(approve=("pay",))) as relay:
        relay.agent("pay")(lambda turn: "paid")
        relay.run_sync("pay", "work", wait=False, workflow_id="w")
        (waiting,) = relay.waiting()
        assert relay.waits_for("w") == [f'user → pay waits for a person: `relay.approve("{waiting.id}", by=…)`']


def test_nothing_is_said_of_work_that_goes_on(relay, caplog):
    relay.agent("quick")(lambda turn: "done")
    relay.run_sync("quick", "work", workflow_id="w")
    assert caplog.records == []
    assert relay.waits_for("w") == []


def test_a_time_out_says_where_the_work_stands(relay):
    relay.store.register(Profile(agent_id="elsewhere"))

    @relay.agent("slow")
    async def slow(turn):
        await asyncio.sleep(100)

    @relay.agent("shaky")
    async def shaky(turn):
        raise ValueError("no")

    for seed, (agent, said) in enumerate(
        [
            ("elsewhere", "no worker of elsewhere has taken it"),
            ("slow", r"it stands at slow \(offered\)"),
            ("shaky", r"shaky goes on in 1 s \(attempt 1 of 3 is over\)"),
        ]
    ):
        with pytest.raises(TimedOut, match=said):
            virtual.run(relay.run(agent, "work", timeout=1, on_failure="retry"), seed=seed)


# --- breakers ----------------------------------------------------------------------------------------


def broken(relay):
    cured = []

    @relay.agent("flaky")
    async def flaky(turn):
        if not cured:
            raise ValueError("no such file")
        return "cured"

    return cured


async def fail(relay, times, **options):
    for _ in range(times):
        with pytest.raises(HandoffFailed):
            await relay.run("flaky", "work", **options)


def test_who_starts_again_by_hand_does_not_wait(relay, caplog):
    cured = broken(relay)

    async def main():
        began = asyncio.get_running_loop().time()
        await fail(relay, 6)
        cured.append(True)
        result = await relay.run("flaky", "work")
        return result.output, asyncio.get_running_loop().time() - began, relay.store.breakers()

    assert virtual.run(main()) == ("cured", 0, [])
    assert caplog.records == []


def test_what_is_started_by_hand_is_a_probe_and_there_is_one_at_a_time(relay):
    broken(relay)

    @relay.agent("slow")
    async def slow(turn):
        await asyncio.sleep(5)
        raise ValueError("no")

    async def main():
        for _ in range(3):
            with pytest.raises(HandoffFailed):
                await relay.run("slow", "work")
        probe, other = (asyncio.ensure_future(relay.run("slow", f"{n}", timeout=20, workflow_id=f"{n}")) for n in "12")
        await asyncio.sleep(1)
        running = [relay.result(n).handoffs or relay.result(n).status for n in "12"], len(relay.store.held())
        return running, await asyncio.gather(probe, other, return_exceptions=True)

    (_, held), (first, second) = virtual.run(main())
    assert held == 1
    assert (type(first).__name__, type(second).__name__) == ("HandoffFailed", "TimedOut")


def test_others_wait_and_hear_until_when(relay, caplog):
    cured = broken(relay)

    async def main():
        await fail(relay, 3)
        cured.append(True)
        result = await relay.run("flaky", "work", from_agent="boss")
        return result.output

    assert virtual.run(main()) == "cured"
    said = [record.getMessage() for record in caplog.records]
    wanted = "flaky rests until 00:00:30 UTC after 3 failures (ValueError: no such file); `baton breaker reset flaky "
    assert said == [f"{wanted}--store {relay.store.url}` lets it work now"]


def test_a_retry_that_the_breaker_holds_up_says_so_once(relay, caplog):
    broken(relay)
    with pytest.raises(HandoffFailed):
        virtual.run(relay.run("flaky", "work", on_failure="retry", max_attempts=4))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("flaky rests until ")
    assert "after 3 failures (ValueError: no such file); `baton breaker reset flaky" in said[0]


def test_a_queue_of_work_is_held_up_although_people_sent_it(relay):
    """Nobody looks at each of them: the breaker is what keeps them from burning money."""
    broken(relay)

    async def main():
        made = [relay.hand_off(Handoff(from_agent="user", to_agent="flaky", task=f"{n}")) for n in range(5)]
        stop = asyncio.Event()
        worker = asyncio.create_task(relay.work(stop, slots=1))
        await asyncio.sleep(5)
        late = relay.hand_off(Handoff(from_agent="user", to_agent="flaky", task="late"))
        await asyncio.sleep(5)
        stop.set()
        await worker
        return [relay.get(one.id).status for one in [*made, late]]

    assert virtual.run(main()) == [*["failed"] * 3, *["offered"] * 3]


def test_a_part_is_held_up_although_a_person_started_the_whole(relay):
    broken(relay)

    @relay.agent("parent")
    async def parent(turn):
        for n in range(4):
            await turn.delegate("flaky", f"part {n}")

    with pytest.raises(BatonError, match="flaky rests until"):
        virtual.run(relay.run("parent", "work", timeout=10))


@pytest.mark.parametrize("workers", [1, 2])
def test_who_looks_for_work_and_finds_none_wakes_nobody(relay, workers):
    """Else a worker and a line that waits, or two workers, wake one another without a pause."""
    looks = []
    real = relay.store.claim

    def counted(*args):
        looks.append(1)
        assert len(looks) < 1000, "it looks for work without a pause"
        return real(*args)

    relay.agent("here")(lambda turn: None)
    relay.store.register(Profile(agent_id="elsewhere"))
    relay.store.claim = counted

    async def main():
        stop = asyncio.Event()
        serving = [asyncio.create_task(relay.work(stop)) for _ in range(workers)]
        waiting = asyncio.create_task(relay.run("elsewhere", "work"))
        await asyncio.sleep(20)
        waiting.cancel()
        stop.set()
        await asyncio.gather(*serving)
        await asyncio.gather(waiting, return_exceptions=True)

    virtual.run(main())
    assert 20 * workers <= len(looks) <= 60 * workers
