"""C4-C8, P12, P13, P15, P20, C13: what is not allowed does not happen, and the error says what would be."""

import asyncio

import pytest

from baton import Autonomy, BatonError, Budget, Command, Limits, Refused, Relay
from baton.errors import (
    BudgetExceeded,
    HandoffFailed,
    HandoffsDisabled,
    Held,
    LimitExceeded,
    LoopDetected,
    NotAuthorised,
)
from baton.protocol.handoff import Handoff, Rationale, Requirement, Validation
from baton.testing import virtual


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened


def chain(relay, count):
    """Agents a0, a1, … where each hands on to the next, with a task of its own."""
    for number in range(count):

        async def step(turn, number=number):
            return Command(goto=f"a{number + 1}", task=f"part {number}") if number + 1 < count else "end"

        relay.agent(f"a{number}")(step)
    return relay


def test_five_handoffs_by_default(relay):
    assert chain(relay, 6).run_sync("a0", "work").output == "end"
    with Relay() as longer, pytest.raises(LimitExceeded) as caught:
        chain(longer, 7).run_sync("a0", "work", workflow_id="w")
    assert "max_handoffs: 5 handoffs were made in this workflow, 1 more would be 6, and 5 are allowed" in str(
        caught.value
    )
    assert "Limits(max_handoffs=6)" in str(caught.value)
    assert caught.value.result.status == "failed"


def test_an_explicit_limit_replaces_the_default(relay):
    assert chain(relay, 30).run_sync("a0", "work", limits=Limits(max_handoffs=200)).output == "end"


def test_the_relays_own_limit_is_a_ceiling_for_every_run():
    with Relay(limits=Limits(max_handoffs=2)) as relay, pytest.raises(LimitExceeded, match="2 are allowed"):
        chain(relay, 6).run_sync("a0", "work", limits=Limits(max_handoffs=200))


def test_a_run_cannot_lift_the_approval_that_the_relay_asks_for():
    with Relay(limits=Limits(approve=("a1",), approve_risk="high", approval_seconds=10)) as relay:
        chain(relay, 2)
        with pytest.raises(Refused, match="approve"):
            virtual.run(relay.run("a0", "work", limits=Limits(max_handoffs=9)))


def test_ping_pong_with_nothing_new_is_a_loop(relay):
    @relay.agent("writer")
    async def writer(turn):
        return Command(goto="critic")

    @relay.agent("critic")
    async def critic(turn):
        return Command(goto="writer")

    with pytest.raises(LoopDetected, match=r"nothing new|same task"):
        relay.run_sync("writer", "an essay", limits=Limits(max_handoffs=50))
    assert len(relay.store.find()) <= 6


def test_a_declared_loop_may_run_as_often_as_declared(relay):
    rounds = []

    @relay.agent("writer")
    async def writer(turn):
        return Command(goto="critic")

    @relay.agent("critic")
    async def critic(turn):
        rounds.append(1)
        return "good" if len(rounds) == 3 else Command(goto="writer")

    loops = {"writer->critic": 3, "critic->writer": 3}
    limits = Limits(max_handoffs=50, loops=loops)
    assert relay.run_sync("writer", "an essay", limits=limits).output == "good"


def test_charge_stops_the_work_in_the_middle(relay):
    reached = []

    @relay.agent("a")
    async def a(turn):
        for step in range(10):
            await turn.charge(tokens=40)
            reached.append(step)

    with pytest.raises(
        BudgetExceeded, match="max_tokens: 120 tokens used or set aside in this workflow, 100 tokens allowed"
    ):
        relay.run_sync("a", "work", limits=Limits(max_tokens=100), workflow_id="w")
    assert reached == [0, 1]
    flow = relay.store.workflow("w")
    assert (flow.tokens_spent, flow.tokens_reserved) == (120, 0)


def test_who_hands_on_after_using_all_of_it_hands_on_nothing(relay):
    worked = []

    @relay.agent("a")
    async def a(turn):
        return Command(goto="b", tokens=turn.state["used"])

    @relay.agent("b")
    async def b(turn):
        worked.append(turn.task)
        while True:
            await turn.charge(tokens=1)

    limits = Limits(max_tokens=1000)
    for used in (1000, 1200):
        with pytest.raises(BudgetExceeded, match="0 tokens of 1000 tokens left"):
            relay.run_sync("a", "work", limits=limits, state={"used": used}, workflow_id=f"all {used}")
        flow = relay.store.workflow(f"all {used}")
        assert (flow.tokens_spent, flow.tokens_reserved) == (used, 0)
    assert worked == []
    with pytest.raises(BudgetExceeded, match="1001 tokens used"):
        relay.run_sync("a", "work", limits=limits, state={"used": 999}, workflow_id="nearly")
    assert relay.store.workflow("nearly").tokens_spent == 1001


def test_money_is_counted_in_the_same_way(relay):
    @relay.agent("a")
    async def a(turn):
        for _ in range(10):
            await turn.charge(cost=0.04)

    with pytest.raises(BudgetExceeded, match=r"max_cost: .* 0\.1 allowed"):
        relay.run_sync("a", "work", limits=Limits(max_cost=0.1), workflow_id="w")
    assert relay.store.workflow("w").cost_reserved == 0


def test_money_is_set_aside_and_settled(relay):
    seen = []

    def look():
        flow = relay.store.workflow("w")
        seen.append((flow.tokens_spent, flow.tokens_reserved))

    @relay.agent("a")
    async def a(turn):
        look()
        answer = await turn.delegate("b", "part", budget=Budget(max_tokens=300))
        look()
        return answer.output

    @relay.agent("b")
    async def b(turn):
        look()
        await turn.charge(100)
        look()
        return "part"

    result = relay.run_sync("a", "work", workflow_id="w", limits=Limits(max_tokens=1000), budget=500)
    assert seen == [(0, 500), (0, 800), (100, 700), (100, 500)]
    assert result.tokens == 100
    assert relay.store.workflow("w").tokens_reserved == 0


def test_what_others_set_aside_cannot_be_set_aside_again(relay):
    @relay.agent("a")
    async def a(turn):
        await turn.delegate("b", "part", budget=600)

    @relay.agent("b")
    async def b(turn):
        return "never"

    with pytest.raises(BudgetExceeded, match=r"600 tokens, with 200 tokens of 1000 tokens left"):
        relay.run_sync("a", "work", limits=Limits(max_tokens=1000), budget=800)


def test_a_part_never_has_more_than_the_whole(relay):
    @relay.agent("a")
    async def a(turn):
        return (await turn.delegate("b", "part", budget=600)).output

    @relay.agent("b")
    async def b(turn):
        return turn.handoff.budget.max_tokens

    assert relay.run_sync("a", "work", budget=500).output == 500


@pytest.mark.parametrize(("tier", "count", "allowed"), [("simple", 1, True), ("simple", 2, False), ("medium", 3, True)])
def test_a_tier_bounds_handoffs_and_agents(relay, tier, count, allowed):
    chain(relay, count)
    if allowed:
        assert relay.run_sync("a0", "work", complexity=tier).output == "end"
    else:
        with pytest.raises(LimitExceeded, match="max_handoffs"):
            relay.run_sync("a0", "work", complexity=tier)


def test_complexity_auto_chooses_the_tier_by_the_task(relay):
    chain(relay, 3)
    with pytest.raises(LimitExceeded, match="max_handoffs"):
        relay.run_sync("a0", "What is a handoff?", complexity="auto")
    task = "Redesign the whole backend service, migrate every table, then rewrite the tests and deploy it"
    assert relay.run_sync("a0", task, complexity="auto").output == "end"


def test_an_agent_never_holds_more_than_it_may(tmp_path):
    with Relay(str(tmp_path / "team.db"), durability="process") as relay:
        at_work, most = [], []

        @relay.agent("one", max_concurrent_tasks=1)
        async def one(turn):
            at_work.append(turn.task)
            most.append(len(at_work))
            await asyncio.sleep(0.02)
            at_work.remove(turn.task)
            return turn.task

        async def main():
            return await asyncio.gather(*(relay.run("one", f"task {n}", timeout=20) for n in range(5)))

        assert [r.output for r in asyncio.run(main())] == [f"task {n}" for n in range(5)]
        assert set(most) == {1}
        assert "rejected" not in {r.event_type for r in relay.audit.query(to_agent="one")}


@pytest.mark.parametrize("url", [":memory:", "file"])
def test_a_part_that_comes_back_to_who_waits_for_it_is_taken(tmp_path, url):
    with Relay(tmp_path / "team.db" if url == "file" else url, durability="process") as relay:

        @relay.agent("one", max_concurrent_tasks=1)
        async def one(turn):
            if turn.task != "start":
                return "back"
            return (await turn.delegate("two", "part")).output

        @relay.agent("two")
        async def two(turn):
            return (await turn.delegate("one", "part of the part")).output

        assert relay.run_sync("one", "start", timeout=5).output == "back"


def test_a_part_of_the_probe_belongs_to_the_probe():
    relay, ill = Relay(limits=Limits(max_handoffs=50)), [True]

    @relay.agent("one")
    async def one(turn):
        if ill[0]:
            raise OSError("ill")
        return (await turn.delegate("one", "part")).output if turn.task == "start" else "back"

    async def main():
        for n in range(3):
            with pytest.raises(HandoffFailed):
                await relay.run("one", f"broken {n}")
        ill[0] = False
        await asyncio.sleep(60)
        return (await relay.run("one", "start", from_agent="program", timeout=300)).output

    with relay:
        assert virtual.run(main()) == "back"
        assert [one for one in relay.store.breakers() if one.subject == "agent:one"] == []


def test_three_failures_open_the_breaker_and_one_probe_closes_it(relay):
    broken = [True]

    @relay.agent("shaky")
    async def shaky(turn):
        if broken[0]:
            raise OSError("no route to host")
        return "fine"

    def by_an_agent(task, **options):
        return relay.run("shaky", task, from_agent="boss", **options)

    async def main():
        for _ in range(3):
            with pytest.raises(HandoffFailed):
                await by_an_agent("work")
        open_now = await by_an_agent("work", wait=False)
        await asyncio.sleep(29)
        with pytest.raises(BatonError):
            await by_an_agent("work", timeout=0.1)
        await asyncio.sleep(2)
        with pytest.raises(HandoffFailed):
            await by_an_agent("a probe that fails")
        await asyncio.sleep(31)
        still = await by_an_agent("work", wait=False)
        await asyncio.sleep(30)
        broken[0] = False
        closed = await by_an_agent("a probe that succeeds")
        return open_now.status, still.status, closed.output, relay.store.breakers()

    open_now, still, output, breakers = virtual.run(main())
    assert (open_now, still, output, breakers) == ("running", "running", "fine", [])
    said = [r.reason for r in relay.audit.query(to_agent="shaky") if r.event_type == "rejected"]
    assert len(said) == 3
    assert all("breaker agent:shaky: " in one and "open for" in one for one in said)


def test_too_little_autonomy_is_refused_and_too_much_risk_goes_up(relay):
    @relay.agent("junior", autonomy=Autonomy(max_risk="low", max_tokens=100))
    async def junior(turn):
        return "never"

    @relay.agent("senior", capabilities=["db"])
    async def senior(turn):
        return "by senior"

    needs = Validation(autonomy_budget=Autonomy(max_tokens=5000))
    with pytest.raises(NotAuthorised, match="max_tokens 5000 of 100"):
        relay.run_sync("junior", "work", validation=needs)
    risky = {
        "audit": Rationale(risk_level="high"),
        "validation": Validation(required_capabilities=(Requirement(capability_id="db"),)),
    }
    assert virtual.run(relay.run("junior", "drop the table", **risky)).output == "by senior"


def test_a_mismatch_goes_along_the_routes_and_then_to_a_person():
    with Relay(routes={"sql": ("b", "c", "d", "e")}) as relay:
        for name in "abcdef":

            async def no(turn):
                from baton import Reject

                return Reject("I cannot do this")

            relay.agent(name, capabilities=[] if name == "a" else ["sql"])(no)
        needs = Validation(required_capabilities=(Requirement(capability_id="sql"),))

        async def main():
            run = asyncio.create_task(relay.run("a", "work", validation=needs, workflow_id="w"))
            await asyncio.sleep(30)
            (parked,) = relay.waiting()
            alerts = relay.alerts()
            relay.give_back(parked.id, "by hand", by="ada")
            return parked, alerts, (await run).output

        parked, alerts, output = virtual.run(main())
        assert (parked.status, parked.reroutes, parked.to_agent) == ("parked", 3, "d")
        assert [one.subject for one in alerts] == [parked.id]
        assert output == "by hand"
        rerouted = [r.to_agent for r in relay.audit.query(task_id="w") if r.event_type == "rerouted"]
        assert rerouted == ["b", "c", "d"]


def test_after_a_refused_handoff_the_sender_finishes_alone():
    with Relay(independent=True) as relay:
        turns = []

        @relay.agent("a")
        async def a(turn):
            turns.append(turn.alone)
            return f"alone: {turn.task}" if turn.alone else Command(goto="nobody")

        result = relay.run_sync("a", "work")
        assert result.output == "alone: work"
        assert turns[0] == ""
        assert "nobody" in turns[1]
        assert relay.audit.query(to_agent="nobody")[-1].event_type == "rejected"
        assert relay.store.find(to_agent="a")[0].attempt == 1


def test_who_finishes_alone_still_has_the_work_for_those_who_wait(tmp_path):
    """The refused handoff is the newest of the line, and the one where the work stands is another."""
    with Relay(tmp_path / "store.db", independent=True) as relay, Relay(tmp_path / "store.db") as waiting:

        @relay.agent("a")
        async def a(turn):
            return Command(goto="b")

        @relay.agent("b")
        async def b(turn):
            if not turn.alone:
                return Command(goto="nobody")
            with pytest.raises(Held, match="claim 1"):
                await waiting.resume("w")
            return "alone"

        assert relay.run_sync("a", "work", workflow_id="w").output == "alone"


def test_nobody_gets_past_a_budget_by_working_alone():
    with Relay(independent=True, limits=Limits(max_tokens=100)) as relay:
        turns = []

        @relay.agent("a")
        async def a(turn):
            turns.append(turn.alone)
            try:
                await turn.charge(150)
            except BudgetExceeded:
                return Command(goto="b")

        @relay.agent("b")
        async def b(turn):
            return "never"

        with pytest.raises(BudgetExceeded):
            relay.run_sync("a", "work")
        assert turns == [""]


def test_nobody_gets_past_a_refused_approval_by_working_alone():
    with Relay(independent=True, limits=Limits(approve=("b",))) as relay:
        turns = []

        @relay.agent("a")
        async def a(turn):
            turns.append(turn.alone)
            return Command(goto="b")

        @relay.agent("b")
        async def b(turn):
            return "never"

        async def main():
            run = asyncio.create_task(relay.run("a", "work"))
            await asyncio.sleep(1)
            (asked,) = relay.waiting()
            relay.deny(asked.id, by="ada", reason="not today")
            return await asyncio.gather(run, return_exceptions=True)

        (error,) = virtual.run(main())
        assert type(error).__name__ == "ApprovalDenied"
        assert "ada said no: not today" in str(error)
        assert turns == [""]


def test_with_handoffs_off_the_agent_finishes_alone():
    with Relay(handoffs=False) as relay:
        refused = []

        @relay.agent("a")
        async def a(turn):
            try:
                await turn.delegate("b", "part")
            except HandoffsDisabled as error:
                refused.append(str(error))
            return f"alone: {turn.task}" if turn.alone else Command(goto="b")

        @relay.agent("b")
        async def b(turn):
            return "never"

        assert relay.run_sync("a", "work").output == "alone: work"
        assert "handoffs are off" in refused[0]
        assert relay.audit.query(to_agent="b") == []


def test_with_handoffs_off_an_agent_that_insists_fails():
    with Relay(handoffs=False) as relay:

        @relay.agent("a")
        async def a(turn):
            return Command(goto="b")

        @relay.agent("b")
        async def b(turn):
            return "never"

        with pytest.raises(HandoffsDisabled, match="a works alone"):
            relay.run_sync("a", "work")
        assert relay.audit.query(to_agent="b") == []


def test_a_limit_inside_a_delegation_counts_for_the_whole_workflow(relay):
    @relay.agent("boss")
    async def boss(turn):
        answers = [await turn.delegate("a0", f"task {n}") for n in range(3)]
        return [answer.error for answer in answers]

    chain(relay, 3)
    with pytest.raises(LimitExceeded, match="max_handoffs"):
        relay.run_sync("boss", "work")


def queued(relay, to_agent, count=1):
    return [relay.hand_off(Handoff(from_agent="user", to_agent=to_agent, task=f"{to_agent} {n}")) for n in range(count)]


def test_an_agent_that_is_full_holds_up_no_other_agent_of_its_worker(relay):
    async def slow(turn):
        await asyncio.sleep(100)

    relay.agent("busy", max_concurrent_tasks=1)(slow)

    @relay.agent("free")
    async def free(turn):
        return "done"

    async def main():
        queued(relay, "busy", 3)
        (other,) = queued(relay, "free")
        stop = asyncio.Event()
        worker = asyncio.create_task(relay.work(stop))
        await asyncio.sleep(5)
        stop.set()
        await worker
        return relay.get(other.id).status

    assert virtual.run(main()) == "completed"


@pytest.mark.parametrize("where", [":memory:", "team.db"])
def test_those_who_wait_for_a_full_agent_do_not_wake_one_another(tmp_path, monkeypatch, where):
    claims = []
    monkeypatch.chdir(tmp_path)
    with Relay(where) as relay:
        claim = relay.store.claim

        def counted(*args):
            claims.append(1)
            assert len(claims) < 200, "they wake one another, and time stands still"
            return claim(*args)

        monkeypatch.setattr(relay.store, "claim", counted)

        @relay.agent("busy", max_concurrent_tasks=1)
        async def busy(turn):
            await asyncio.sleep(10)

        async def main():
            await asyncio.gather(*(relay.run("busy", f"{number}") for number in range(3)))

        virtual.run(main())
    assert len(claims) > 2  # each of them looks twice a second


def test_queued_work_waits_while_the_breaker_of_its_only_agent_is_open(relay):
    broken = [True]

    @relay.agent("shaky")
    async def shaky(turn):
        if broken[0]:
            raise OSError("no route to host")
        return "fine"

    async def main():
        made = queued(relay, "shaky", 5)
        stop = asyncio.Event()
        worker = asyncio.create_task(relay.work(stop, slots=1))
        await asyncio.sleep(10)
        before = [relay.get(one.id).status for one in made]
        broken[0] = False
        await asyncio.sleep(40)
        stop.set()
        await worker
        return before, [relay.get(one.id).status for one in made]

    before, after = virtual.run(main())
    assert before == ["failed"] * 3 + ["offered"] * 2
    assert after == ["failed"] * 3 + ["completed"] * 2
    assert relay.alerts() == []


def test_queued_work_goes_elsewhere_while_the_breaker_of_its_agent_is_open(relay):
    @relay.agent("shaky", capabilities=["sql"])
    async def shaky(turn):
        raise OSError("no route to host")

    @relay.agent("sound", capabilities=["sql"])
    async def sound(turn):
        return "fine"

    async def main():
        made = queued(relay, "shaky", 5)
        stop = asyncio.Event()
        worker = asyncio.create_task(relay.work(stop, slots=1))
        await asyncio.sleep(10)
        stop.set()
        await worker
        return [(relay.get(one.id).status, relay.get(one.id).to_agent) for one in made]

    assert virtual.run(main()) == [("failed", "shaky")] * 3 + [("completed", "sound")] * 2


def test_new_work_waits_while_the_breaker_of_its_only_agent_is_open(relay):
    broken = [True]

    @relay.agent("shaky")
    async def shaky(turn):
        if broken[0]:
            raise OSError("no route to host")
        return "fine"

    async def main():
        for _ in range(3):
            with pytest.raises(HandoffFailed):
                await relay.run("shaky", "work")
        broken[0] = False
        return await asyncio.gather(*(relay.run("shaky", "work", timeout=200) for _ in range(3)))

    assert [one.output for one in virtual.run(main())] == ["fine"] * 3
    assert relay.alerts() == []
