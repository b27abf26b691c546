"""P6: work that somebody cannot decide goes up the ladder, and the last one is a person. In virtual time."""

import asyncio

import pytest

from baton import (
    Autonomy,
    Budget,
    BudgetExceeded,
    Command,
    Escalate,
    HandoffFailed,
    Limits,
    Malformed,
    Message,
    Reject,
    Relay,
    answer,
    clock,
)
from baton.errors import ApprovalDenied, Fenced, IllegalTransition
from baton.guards import health
from baton.protocol.context import Context
from baton.protocol.handoff import Handoff, ReturnProtocol
from baton.testing import virtual

LADDER = ["reviewer", "architect", "human"]


@pytest.fixture
def relay():
    with Relay(escalation=LADDER) as opened:
        yield opened


def trail(relay, handoff_id):
    return [(one.event_type, one.to_agent) for one in relay.audit.query(handoff_id=handoff_id)]


def events(relay, handoff_id):
    return [event for event, _ in trail(relay, handoff_id)]


def elsewhere(relay, name, **profile):
    """An agent that is registered, but that no process serves."""
    with clock.use(virtual.VirtualClock()):
        relay.agent(name, **profile)(lambda turn: None)
    del relay._crew.agents[name]


def passes(relay, *names, seen=None, **profile):
    """Agents that decide nothing."""
    for name in names:

        async def body(turn):
            if seen is not None:
                seen.append(turn)
            return Escalate(f"{turn.handoff.to_agent} may not decide", assessment={"by": turn.handoff.to_agent})

        relay.agent(name, **profile)(body)


def decides(relay, name, seen=None, **profile):
    async def body(turn):
        if seen is not None:
            seen.append(turn)
        return f"{name} decided"

    relay.agent(name, **profile)(body)


async def parked(relay, run):
    """Let the work run until a person has to decide."""
    for _ in range(2000):
        if waiting := relay.waiting():
            return waiting[0]
        assert not run.done(), run
        await asyncio.sleep(0.5)
    raise AssertionError("nothing waits for a person")


def until_parked(relay, agent, **options):
    """The handoff that waits for a person, and what came of the run after ana answered."""

    async def main():
        run = asyncio.ensure_future(relay.run(agent, "work", workflow_id="w", **options))
        waiting = await parked(relay, run)
        alerts = relay.alerts()
        relay.give_back(waiting.id, "ana decided", by="ana")
        return waiting, alerts, await run

    return virtual.run(main())


# --- the same handoff moves up --------------------------------------------------------------------------


def test_the_same_handoff_goes_up_rung_by_rung_and_then_to_a_person(relay):
    passes(relay, "worker", "reviewer", "architect")
    waiting, (alert,), result = until_parked(relay, "worker", priority="high")
    assert (waiting.status, waiting.attempt, waiting.epoch, waiting.priority) == ("parked", 3, 3, "high")
    assert result.output == "ana decided"
    assert result.handoffs == ()
    assert trail(relay, waiting.id) == [
        ("initiated", "worker"),
        ("accepted", "worker"),
        ("escalated", "reviewer"),
        ("accepted", "reviewer"),
        ("escalated", "architect"),
        ("accepted", "architect"),
        ("parked", "architect"),
        ("completed", "architect"),
    ]
    assert alert.subject == waiting.id
    assert alert.text == (
        "worker: worker may not decide; reviewer: reviewer may not decide; architect: architect may not decide; "
        "a person has to decide"
    )
    assert relay.alerts() == []
    assert relay.audit.verify().ok


def test_each_levels_assessment_is_in_the_trail(relay):
    passes(relay, "worker", "reviewer", "architect")
    waiting, _, _ = until_parked(relay, "worker")
    said = relay.assessments(waiting.id)
    assert [(one.agent, one.to, one.reason, one.content, one.by) for one in said] == [
        (name, to, f"{name} may not decide", {"by": name}, name)
        for name, to in [("worker", "reviewer"), ("reviewer", "architect"), ("architect", "human")]
    ]
    up = [one for one in relay.audit.query(handoff_id=waiting.id) if one.event_type in {"escalated", "parked"}]
    assert [one.decision_rationale for one in up] == [
        f"{name} may not decide" for name in ("worker", "reviewer", "architect")
    ]
    assert [one.epoch for one in up] == [1, 2, 3]


def test_the_next_rung_sees_everything_and_what_was_said_below(relay):
    seen = []
    history = tuple(Message("user", f"note {number}") for number in range(8))
    passes(relay, "worker", "reviewer", seen=seen)
    decides(relay, "architect", seen)
    result = virtual.run(relay.run("worker", "work", context=Context(conversation_history=history)))
    assert result.output == "architect decided"
    worker, reviewer, architect = [[(one.name, one.content) for one in turn.messages] for turn in seen]
    notes = [("", f"note {number}") for number in range(8)]
    by_worker = ("worker", 'worker may not decide\n\n{"by":"worker"}')
    by_reviewer = ("reviewer", 'reviewer may not decide\n\n{"by":"reviewer"}')
    assert worker == notes[3:]
    assert reviewer == [*notes, by_worker]
    assert architect == [*notes, by_worker, by_reviewer]


def test_what_was_said_stays_in_the_conversation_of_the_line(relay):
    seen = []
    relay.agent("worker")(lambda turn: Escalate("two readings", assessment="a or b"))
    relay.agent("reviewer")(lambda turn: Command(goto="writer", task="write it as a", reason="a it is"))
    decides(relay, "writer", seen)
    assert virtual.run(relay.run("worker", "work")).output == "writer decided"
    said = [(one.name, one.content) for one in seen[0].messages]
    assert said == [("", "work"), ("worker", "two readings\n\na or b"), ("reviewer", "a it is")]


def test_secrets_in_an_assessment_are_masked(relay):
    key = "sk-ant-api03-" + "a1B2" * 20
    seen = []
    relay.agent("worker")(lambda turn: Escalate(f"{key} does not work", assessment={"key": key}))
    decides(relay, "reviewer", seen)
    virtual.run(relay.run("worker", "work"))
    assert "does not work" in seen[0].messages[-1].content
    assert key not in seen[0].messages[-1].content
    assert key not in str(relay.audit.query())


def test_without_a_ladder_a_person_decides_at_once():
    with Relay() as relay:
        passes(relay, "worker")
        decides(relay, "reviewer")
        waiting, _, result = until_parked(relay, "worker")
        assert events(relay, waiting.id) == ["initiated", "accepted", "parked", "completed"]
        assert result.output == "ana decided"


def test_where_agents_hand_nothing_on_a_person_decides():
    with Relay(escalation=LADDER, handoffs=False) as relay:
        passes(relay, "worker")
        decides(relay, "reviewer")
        waiting, _, _ = until_parked(relay, "worker")
        assert waiting.to_agent == "worker"


# --- who is passed over ---------------------------------------------------------------------------------


def test_rungs_that_are_not_there_or_away_are_passed_over_and_named():
    with Relay(escalation=["reviwer", "away", "timid", "modest", "architect"]) as relay:
        passes(relay, "worker")
        decides(relay, "architect")
        relay.agent("away")(lambda turn: None)
        relay.store.mark("away", lambda known: health.failed(known, "no pulse", relay.store.now()))
        relay.agent("timid", autonomy=Autonomy(max_risk="low"))(lambda turn: None)
        relay.agent("modest", accepts_handoffs=False)(lambda turn: None)
        result = virtual.run(relay.run("worker", "work", workflow_id="w", risk="medium"))
        assert result.output == "architect decided"
        (up,) = [one for one in relay.audit.query() if one.event_type == "escalated"]
        assert up.detail["escalation"]["passed_over"] == {
            "reviwer": "it is not registered",
            "away": "suspect: no pulse",
            "timid": "max_risk: low risk or lower",
            "modest": "accepts_handoffs: requests that start a workflow",
        }


def test_the_person_reads_who_was_passed_over(relay):
    passes(relay, "worker")
    _, (alert,), _ = until_parked(relay, "worker")
    assert alert.text == (
        "worker may not decide; reviewer was passed over: it is not registered; "
        "architect was passed over: it is not registered; a person has to decide"
    )


def test_a_rung_that_had_the_work_before_is_not_asked_again(relay):
    relay.agent("reviewer")(lambda turn: Escalate("not mine"))
    relay.agent("architect")(lambda turn: Reject("nor mine"))
    passes(relay, "worker")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work", workflow_id="w", max_attempts=9))
        waiting = await parked(relay, run)
        relay.reroute(waiting.id, "worker", by="ana", reason="try once more")
        again = await parked(relay, run)
        relay.give_back(again.id, "ana decided", by="ana")
        await run
        return again

    again = virtual.run(main())
    assert again.to_agent == "worker"
    assert [one.to for one in relay.assessments(again.id)] == ["reviewer", "architect", "human", "human"]


def test_what_a_person_says_when_sending_it_back_reaches_the_agent(relay):
    seen = []

    async def worker(turn):
        seen.append(turn)
        return "done" if turn.attempt == 2 else Escalate("a or b?")

    relay.agent("worker")(worker)

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work"))
        waiting = await parked(relay, run)
        relay.reroute(waiting.id, "worker", by="ana", reason="take a")
        return await run

    assert virtual.run(main()).output == "done"
    assert [(one.name, one.content) for one in seen[1].messages][-2:] == [("worker", "a or b?"), ("ana", "take a")]


def test_a_rung_that_refuses_is_passed_over_upwards(relay):
    passes(relay, "worker")
    relay.agent("reviewer", capabilities=["law"])(lambda turn: Reject("not my trade"))
    decides(relay, "beside", capabilities=["law"])
    decides(relay, "architect")
    result = virtual.run(relay.run("worker", "work", workflow_id="w"))
    assert result.output == "architect decided"
    (handoff,) = relay.store.find(workflow_id="w")
    assert events(relay, handoff.id)[3:] == ["accepted", "rejected", "escalated", "accepted", "completed"]
    assert [(one.agent, one.reason, one.by) for one in relay.assessments(handoff.id)] == [
        ("worker", "worker may not decide", "worker"),
        ("reviewer", "not my trade", "supervisor"),
    ]


def test_a_rung_that_does_not_acknowledge_is_passed_over_after_30_s(relay):
    passes(relay, "worker")
    elsewhere(relay, "reviewer")
    decides(relay, "architect")

    async def main():
        result = await relay.run("worker", "work", workflow_id="w")
        return result.output, asyncio.get_running_loop().time()

    output, took = virtual.run(main())
    assert output == "architect decided"
    assert 29 < took < 93
    (handoff,) = relay.store.find(workflow_id="w")
    assert events(relay, handoff.id)[2:] == ["escalated", "unavailable", "escalated", "accepted", "completed"]
    assert {row.profile.agent_id for row in relay.store.agents() if not row.available} == {"reviewer"}


def test_a_rung_whose_breaker_is_open_is_passed_over(relay):
    broken = []

    async def reviewer(turn):
        broken.append(1)
        raise OSError("ill")

    relay.agent("reviewer")(reviewer)
    decides(relay, "architect")
    passes(relay, "worker")

    async def main():
        for _ in range(3):
            with pytest.raises(HandoffFailed):
                await relay.run("reviewer", "work")
        return await relay.run("worker", "work", workflow_id="w")

    assert virtual.run(main()).output == "architect decided"
    assert len(broken) == 3
    (handoff,) = relay.store.find(workflow_id="w")
    assert events(relay, handoff.id)[2:] == ["escalated", "rejected", "escalated", "accepted", "completed"]


def test_a_full_rung_is_waited_for(relay):
    passes(relay, "worker")

    async def reviewer(turn):
        await asyncio.sleep(100)
        return "reviewer decided"

    relay.agent("reviewer", max_concurrent_tasks=1)(reviewer)

    async def main():
        return await asyncio.gather(relay.run("reviewer", "its own"), relay.run("worker", "work", workflow_id="w"))

    assert virtual.run(main())[1].output == "reviewer decided"
    (handoff,) = relay.store.find(workflow_id="w")
    assert events(relay, handoff.id) == ["initiated", "accepted", "escalated", "accepted", "completed"]


def test_a_rung_that_needs_an_approval_waits_for_it(relay):
    passes(relay, "worker")
    decides(relay, "reviewer")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work", limits=Limits(approve=("reviewer",))))
        waiting = await parked(relay, run)
        relay.approve(waiting.id, by="ana")
        return waiting.status, (await run).output

    assert virtual.run(main()) == ("waiting", "reviewer decided")


# --- what makes the supervisor move it ------------------------------------------------------------------


def test_late_work_goes_up_with_a_note_and_the_old_owner_is_fenced(relay):
    seen = []

    async def slow(turn):
        await asyncio.sleep(100_000)

    relay.agent("slow", capabilities=["sql"])(slow)
    decides(relay, "beside", capabilities=["sql"])
    decides(relay, "reviewer", seen)

    async def main():
        made = relay.hand_off(
            Handoff(
                from_agent="user",
                to_agent="slow",
                task="work",
                return_protocol=ReturnProtocol(timeout=100, on_timeout="escalate"),
            )
        )
        old = relay.claim("slow", lease=1000).handoff
        stop = asyncio.Event()
        serving = asyncio.create_task(relay.work(stop))
        await asyncio.sleep(140)
        stop.set()
        await serving
        with pytest.raises(Fenced):
            relay.give_back(made.id, "too late", epoch=old.epoch)
        return relay.get(made.id)

    done = virtual.run(main())
    assert (done.status, done.to_agent) == ("completed", "reviewer")
    assert events(relay, done.id) == [
        *("initiated", "accepted", "reminded", "timeout", "escalated", "accepted", "completed", "late")
    ]
    last = seen[0].messages[-1]
    assert (last.name, last.role) == ("supervisor", "user")
    assert last.content.startswith("slow: TimedOut: slow has not answered by ")


def test_failed_work_goes_up_with_the_failure(relay):
    seen = []

    async def worker(turn):
        return answer({"half": 1}, status="failed")

    relay.agent("worker")(worker)
    decides(relay, "reviewer", seen)
    assert virtual.run(relay.run("worker", "work", on_failure="escalate")).output == "reviewer decided"
    assert seen[0].messages[-1].content == 'failed\n\n{"half":1}'


def test_an_exception_goes_up_and_counts_against_its_agent(relay):
    async def worker(turn):
        raise OSError("the line went dead")

    relay.agent("worker")(worker)
    decides(relay, "reviewer")
    virtual.run(relay.run("worker", "work", on_failure="escalate", workflow_id="w"))
    (handoff,) = relay.store.find(workflow_id="w")
    assert [one.reason for one in relay.assessments(handoff.id)] == ["OSError: the line went dead"]
    assert {row.subject: row.failures for row in relay.store.breakers()} == {"agent:worker": 1, "route:user->worker": 1}


def test_work_that_must_not_be_repeated_goes_to_a_person_and_not_to_a_rung(relay):
    async def pay(turn):
        raise OSError("the line went dead")

    relay.agent("pay", idempotent=False)(pay)
    decides(relay, "reviewer")
    waiting, (alert,), _ = until_parked(relay, "pay", on_failure="escalate")
    assert waiting.to_agent == "pay"
    assert alert.text == "OSError: the line went dead; pay is not idempotent; a person has to decide"


def test_a_risk_above_the_autonomy_goes_up(relay):
    seen = []
    decides(relay, "worker", capabilities=["sql"], autonomy=Autonomy(max_risk="low"))
    decides(relay, "beside", capabilities=["sql"])
    decides(relay, "reviewer", seen)
    result = virtual.run(relay.run("worker", "work", risk="high", workflow_id="w"))
    assert result.output == "reviewer decided"
    (handoff,) = relay.store.find(workflow_id="w")
    assert events(relay, handoff.id) == ["initiated", "rejected", "escalated", "accepted", "completed"]
    assert seen[0].messages[-1].content.startswith("worker: max_risk: the risk is high and worker may take low")


def test_a_risk_that_is_seen_at_the_claim_goes_up(relay):
    elsewhere(relay, "worker", autonomy=Autonomy(max_risk="high"))
    decides(relay, "reviewer")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work", risk="high"))
        await asyncio.sleep(1)
        decides(relay, "worker", autonomy=Autonomy(max_risk="low"))
        return (await run).output

    assert virtual.run(main()) == "reviewer decided"


def test_spending_beyond_the_autonomy_goes_up(relay):
    relay.agent("greedy", autonomy=Autonomy(max_tokens=100))(lambda turn: turn.charge(200))
    decides(relay, "reviewer")

    async def greedy(turn):
        await turn.charge(200)

    relay._crew.agents["greedy"].function = greedy
    relay._crew.agents["greedy"]._asynchronous = True
    assert virtual.run(relay.run("greedy", "work")).output == "reviewer decided"


def test_critical_work_that_nobody_takes_goes_up_at_once(relay):
    elsewhere(relay, "away", capabilities=["sql"])
    decides(relay, "beside", capabilities=["sql"])
    decides(relay, "reviewer")
    result = virtual.run(relay.run("away", "work", priority="critical", workflow_id="w"))
    assert result.output == "reviewer decided"


# --- how often, and what it may cost --------------------------------------------------------------------


def test_the_last_of_three_escalations_is_a_persons():
    with Relay(escalation=["a", "b", "c", "d"]) as relay:
        passes(relay, "worker", "a", "b", "c", "d")
        waiting, (alert,), _ = until_parked(relay, "worker", max_attempts=9)
        assert waiting.to_agent == "b"
        assert alert.text.endswith("max_escalations 3: the last one goes to a person; a person has to decide")


@pytest.mark.parametrize(("most", "last"), [(0, "worker"), (1, "worker"), (2, "a"), (None, "d")])
def test_a_limit_of_the_workflow_or_of_the_relay_says_how_often(most, last):
    for here, there in [(Limits(max_escalations=most), {}), (Limits(), {"limits": Limits(max_escalations=most)})]:
        with Relay(escalation=["a", "b", "c", "d"], limits=here) as relay:
            passes(relay, "worker", "a", "b", "c", "d")
            waiting, _, _ = until_parked(relay, "worker", max_attempts=9, **there)
            assert waiting.to_agent == last


def test_attempts_are_counted_over_all_levels_and_used_up_they_park(relay):
    passes(relay, "worker", "reviewer", "architect")
    waiting, (alert,), _ = until_parked(relay, "worker", max_attempts=2)
    assert (waiting.to_agent, waiting.attempt) == ("reviewer", 2)
    assert "max_attempts 2 are used up; a person has to decide" in alert.text


def test_a_person_who_sends_it_back_grants_one_more_try_and_no_second(relay):
    passes(relay, "worker", "reviewer", "architect")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work", workflow_id="w", timeout=3600))
        waiting = await parked(relay, run)
        relay.reroute(waiting.id, "architect", by="ana", reason="look again")
        again = await parked(relay, run)
        relay.agent("clerk")(lambda turn: f"the clerk, as {turn.messages[-1].name} says")
        relay.reroute(again.id, "clerk", by="ben", reason="just write it down")
        return waiting, again, (await run).output

    waiting, again, said = virtual.run(main())
    assert (waiting.attempt, waiting.max_attempts, again.attempt) == (3, 3, 3)
    assert (again.to_agent, again.epoch) == ("architect", 4)
    assert said == "the clerk, as ben says"
    trail = relay.audit.query(handoff_id=waiting.id)
    assert [one.event_type for one in trail].count("accepted") == 5
    granted = [(one.by, one.detail["granted"]) for one in trail if "granted" in one.detail]
    assert granted == [(name, "one more try, for all 3 were used up") for name in ("ana", "ben")]


def test_a_reroute_before_the_attempts_are_used_up_grants_nothing(relay):
    passes(relay, "worker")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work", workflow_id="w"))
        relay.reroute((await parked(relay, run)).id, "worker", by="ana")
        return await parked(relay, run)

    again = virtual.run(main())
    assert again.attempt == 2
    assert not any("granted" in one.detail for one in relay.audit.query(handoff_id=again.id))


def test_one_budget_holds_for_all_levels(relay):
    spent = []

    def level(name, tokens):
        async def body(turn):
            await turn.charge(tokens)
            spent.append(tokens)
            return Escalate("not mine") if name == "worker" else "decided"

        relay.agent(name)(body)

    level("worker", 600)
    level("reviewer", 600)
    with pytest.raises(BudgetExceeded, match="1200 tokens used or set aside in this handoff, 1000 tokens allowed"):
        virtual.run(relay.run("worker", "work", budget=Budget(max_tokens=1000)))
    assert spent == [600]


def test_where_the_workflow_can_pay_nobody_else_a_person_decides(relay):
    async def worker(turn):
        await turn.charge(600)
        return Escalate("not mine")

    relay.agent("worker")(worker)
    decides(relay, "reviewer")
    waiting, (alert,), _ = until_parked(relay, "worker", budget=Budget(max_tokens=1000), limits=Limits(max_tokens=1000))
    assert waiting.to_agent == "reviewer"
    assert alert.text.startswith("worker: not mine; reviewer: max_tokens: ")


# --- asking upwards, and going on with the answer -------------------------------------------------------


def asks(relay, name="worker", **options):
    async def body(turn):
        answered = await turn.escalate("a or b?", **{"rationale": "the order has two readings", **options})
        return f"{answered.from_agent} said {answered.output}"

    relay.agent(name)(body)


def test_an_agent_asks_upwards_and_goes_on_with_the_decision(relay):
    seen = []
    asks(relay)
    decides(relay, "reviewer", seen)
    result = virtual.run(relay.run("worker", "work", priority="high"))
    assert result.output == "reviewer said reviewer decided"
    (asked,) = result.handoffs
    assert (asked.from_agent, asked.to_agent, asked.type, asked.priority) == (
        "worker",
        "reviewer",
        "escalation",
        "high",
    )
    assert asked.audit.decision_rationale == "the order has two readings"
    initiated = relay.audit.query(handoff_id=asked.id)[0]
    assert (initiated.handoff_type, initiated.decision_rationale) == ("escalation", "the order has two readings")
    assert [one.content for one in seen[0].messages] == ["work", "a or b?"]


def test_whoever_is_asked_may_send_it_further_up(relay):
    seen = []
    asks(relay)
    passes(relay, "reviewer")
    decides(relay, "architect", seen)
    result = virtual.run(relay.run("worker", "work"))
    assert result.output == "architect said architect decided"
    assert [one.content for one in seen[0].messages] == [
        "work",
        "a or b?",
        'reviewer may not decide\n\n{"by":"reviewer"}',
    ]


def test_the_depth_goes_on_when_the_one_who_was_asked_asks_by_itself():
    with Relay(escalation=["a", "b", "c", "d"]) as relay:
        for name in ("worker", "a", "b"):
            asks(relay, name)
        decides(relay, "c")

        async def main():
            run = asyncio.ensure_future(relay.run("worker", "work"))
            waiting = await parked(relay, run)
            relay.give_back(waiting.id, "take a", by="ana")
            return waiting, await run

        waiting, result = virtual.run(main())
        assert (waiting.from_agent, waiting.to_agent, waiting.status) == ("b", "human", "offered")
        assert result.output == "a said b said ana said take a"


def test_depth_counts_both_ways_of_going_up():
    with Relay(escalation=["a", "b", "c", "d"]) as relay:
        passes(relay, "worker")
        asks(relay, "a")
        passes(relay, "b", "c")
        waiting, _, result = until_parked(relay, "worker")
        assert (waiting.from_agent, waiting.to_agent, waiting.status) == ("a", "b", "parked")
        assert result.output == "ana said ana decided"


def test_who_waits_for_the_answer_is_not_asked_for_it(relay):
    asks(relay)
    asks(relay, "helper")
    decides(relay, "architect")

    async def reviewer(turn):
        return (await turn.delegate("helper", "look at it")).output

    relay.agent("reviewer", max_concurrent_tasks=1)(reviewer)
    result = virtual.run(relay.run("worker", "work", limits=Limits(max_escalations=4)))
    assert result.output == "reviewer said architect said architect decided"


def test_the_answer_is_remembered_when_the_body_runs_again(relay):
    seen = []

    async def worker(turn):
        answered = await turn.escalate("a or b?", rationale="two readings")
        if turn.attempt == 1:
            raise OSError("gone")
        return answered.output

    relay.agent("worker")(worker)
    decides(relay, "reviewer", seen)
    assert virtual.run(relay.run("worker", "work", on_failure="retry")).output == "reviewer decided"
    assert len(seen) == 1


def test_an_escalation_says_why(relay):
    errors = []

    async def worker(turn):
        for options in ({}, {"rationale": " "}):
            try:
                await turn.escalate("a or b?", **options)
            except Malformed as error:
                errors.append(str(error))

    relay.agent("worker")(worker)
    virtual.run(relay.run("worker", "work"))
    assert errors == ["audit.decision_rationale: empty; an escalation says why (rationale=…)"] * 2


def test_a_function_without_async_asks_upwards_too(relay):
    @relay.agent("worker")
    def worker(turn):
        return turn.escalate("a or b?", rationale="two readings").output

    decides(relay, "reviewer")
    assert relay.run_sync("worker", "work").output == "reviewer decided"


def test_a_guard_that_closes_the_rung_leaves_the_way_to_a_person(relay):
    asks(relay)
    decides(relay, "reviewer")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work", limits=Limits(max_handoffs=0)))
        waiting = await parked(relay, run)
        relay.give_back(waiting.id, "take a", by="ana")
        return waiting, await run

    waiting, result = virtual.run(main())
    assert (waiting.to_agent, waiting.type) == ("human", "escalation")
    assert result.output == "ana said take a"


def test_a_denied_rung_is_not_gone_round(relay):
    async def worker(turn):
        with pytest.raises(ApprovalDenied):
            await turn.escalate("a or b?", rationale="two readings")
        return "alone, then"

    relay.agent("worker")(worker)
    decides(relay, "reviewer")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work", limits=Limits(approve=("reviewer",))))
        waiting = await parked(relay, run)
        relay.deny(waiting.id, by="ana")
        return (await run).output

    assert virtual.run(main()) == "alone, then"


def test_a_rung_that_is_late_or_fails_passes_it_on(relay):
    asks(relay, timeout=100)

    async def reviewer(turn):
        await asyncio.sleep(100_000)

    async def architect(turn):
        raise OSError("ill")

    relay.agent("reviewer")(reviewer)
    relay.agent("architect")(architect)
    waiting, (alert,), result = until_parked(relay, "worker")
    assert waiting.to_agent == "architect"
    assert "reviewer: TimedOut: " in alert.text
    assert "architect: OSError: ill; a person has to decide" in alert.text
    assert result.output == "ana said ana decided"


def test_a_rung_that_is_full_for_too_long_is_passed_over(relay):
    asks(relay, timeout=60)

    async def reviewer(turn):
        await asyncio.sleep(1000)

    relay.agent("reviewer", max_concurrent_tasks=1)(reviewer)
    decides(relay, "architect")

    async def main():
        busy = asyncio.ensure_future(relay.run("reviewer", "its own"))
        await asyncio.sleep(1)
        result = await relay.run("worker", "work")
        await busy
        return result.output, [row.profile.agent_id for row in relay.store.agents() if not row.available]

    assert virtual.run(main()) == ("architect said architect decided", [])


def test_a_program_asks_upwards(relay):
    seen = []
    decides(relay, "reviewer", seen)
    decides(relay, "architect")

    async def main():
        first = await relay.escalate("ship it?", from_agent="ci", rationale="a flaky test", state={"build": 7})
        second = await relay.escalate("ship it?", from_agent="reviewer", rationale="a flaky test", risk="high")
        return first, second

    first, second = virtual.run(main())
    assert (first.from_agent, first.output) == ("reviewer", "reviewer decided")
    assert second.from_agent == "architect"
    assert (seen[0].handoff.type, seen[0].state) == ("escalation", {"build": 7})
    with pytest.raises(Malformed, match="an escalation says why"):
        virtual.run(relay.escalate("ship it?", from_agent="ci"))


def test_a_program_asks_a_person_where_nobody_else_is():
    with Relay() as relay:

        async def main():
            run = asyncio.ensure_future(relay.escalate("ship it?", from_agent="ci", rationale="a flaky test"))
            waiting = await parked(relay, run)
            relay.give_back(waiting.id, "ship it", by="ana")
            return await run

        said = virtual.run(main())
        assert (said.from_agent, said.output) == ("ana", "ship it")


# --- a person's answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["parked", "asked"])
def test_a_persons_answer_counts_once(relay, way):
    (passes if way == "parked" else asks)(relay, "worker")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work"))
        waiting = await parked(relay, run)
        relay.give_back(waiting.id, "yes", by="ana")
        with pytest.raises(
            IllegalTransition, match=r"completed by ana before; it is completed, with .*changes nothing"
        ):
            relay.give_back(waiting.id, "no", by="eve")
        return waiting, await run

    waiting, result = virtual.run(main())
    assert result.output in {"yes", "ana said yes"}
    assert relay.store.returned(waiting.id).output == "yes"
    assert events(relay, waiting.id).count("completed") == 1


def test_an_answer_to_work_that_moved_on_is_refused(relay):
    passes(relay, "worker")

    async def reviewer(turn):
        await asyncio.sleep(10)
        return "done"

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work"))
        waiting = await parked(relay, run)
        relay.agent("reviewer")(reviewer)
        relay.reroute(waiting.id, "reviewer", by="ana")
        with pytest.raises(IllegalTransition, match="rerouted by ana before; it is offered, with reviewer"):
            relay._answer_for_person(waiting, "too late", "eve")
        return (await run).output

    assert virtual.run(main()) == "done"


@pytest.mark.parametrize("value", [Escalate("up"), Reject("no"), Command(goto="worker")])
def test_nobody_stands_above_a_person(relay, value):
    passes(relay, "worker")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work"))
        waiting = await parked(relay, run)
        with pytest.raises(Malformed, match="nobody stands above a person"):
            relay.give_back(waiting.id, value, by="ana")
        relay.give_back(waiting.id, "yes", by="ana")
        await run

    virtual.run(main())


def test_work_of_a_dead_rung_is_parked_when_its_attempts_are_used_up(relay):
    passes(relay, "worker")
    elsewhere(relay, "reviewer")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work", max_attempts=2, workflow_id="w"))
        await asyncio.sleep(1)
        (handoff,) = relay.store.find(workflow_id="w")
        relay.claim("reviewer", handoff_id=handoff.id, holder="another-host/boot/1/2/x", lease=10)
        waiting = await parked(relay, run)
        relay.give_back(waiting.id, "ana decided", by="ana")
        return waiting, (await run).output

    waiting, output = virtual.run(main())
    assert (waiting.status, waiting.to_agent, output) == ("parked", "reviewer", "ana decided")


@pytest.mark.parametrize("way", ["parked", "asked"])
def test_the_no_of_a_person_is_the_last_word(relay, way):
    answers = []

    async def worker(turn):
        answers.append(await turn.escalate("a or b?", rationale="two readings"))

    relay.agent("worker")(worker)
    if way == "parked":
        passes(relay, "reviewer")

    async def main():
        run = asyncio.ensure_future(relay.run("worker", "work"))
        waiting = await parked(relay, run)
        relay.give_back(waiting.id, answer(status="failed"), by="ana")
        await run

    virtual.run(main())
    assert [(one.from_agent, one.status) for one in answers] == [("ana", "failed")]
    assert relay.alerts() == []
