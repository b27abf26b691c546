"""P11, P14-P17: what happens when nobody answers, or too late. In virtual time."""

import asyncio
from itertools import pairwise

import msgspec
import pytest

from baton import Defer, Fenced, HandoffFailed, Profile, Reject, Relay, clock
from baton.errors import LimitExceeded, TimedOut
from baton.flow.recover import Facts, due_step
from baton.lifecycle import Event, State
from baton.protocol.codec import to_time
from baton.protocol.handoff import Handoff, ReturnProtocol
from baton.testing import virtual

SQL = ["sql"]


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened


def elsewhere(relay, name, **profile):
    """An agent that is registered, but that no process serves."""
    with clock.use(virtual.VirtualClock()):
        with_agent(relay, name, None, **profile)
    del relay._crew.agents[name]


def with_agent(relay, name, body, **profile):
    relay.agent(name, **profile)(body or (lambda turn: None))


async def answer(turn):
    return f"by {turn.handoff.to_agent}"


def trail(relay, handoff_id):
    return [r.event_type for r in relay.audit.query(handoff_id=handoff_id)]


def request(to_agent, **fields):
    return Handoff(from_agent="user", to_agent=to_agent, task="work", **fields)


def late(on_timeout, timeout=100.0):
    return ReturnProtocol(expected=True, timeout=timeout, on_timeout=on_timeout)


async def minding(relay, seconds):
    """Let the supervisor of an idle worker run."""
    stop = asyncio.Event()
    task = asyncio.create_task(relay.work(stop))
    await asyncio.sleep(seconds)
    stop.set()
    await task


def test_without_acknowledgement_in_30_s_another_agent_gets_the_work(relay):
    elsewhere(relay, "away", capabilities=SQL)
    with_agent(relay, "able", answer, capabilities=SQL)

    async def main():
        run = asyncio.create_task(relay.run("away", "work", workflow_id="w"))
        await asyncio.sleep(29)
        before = relay.result("w")
        return before, await run, asyncio.get_running_loop().time()

    before, result, took = virtual.run(main())
    assert (before.status, result.output) == ("running", "by able")
    assert 29 < took < 93
    assert {row.profile.agent_id: row.available for row in relay.store.agents()} == {
        "away": False,
        "able": True,
    }
    (handoff,) = relay.store.find(workflow_id="w")
    events = trail(relay, handoff.id)
    assert events == ["initiated", "unavailable", "rerouted", "accepted", "completed"]


def test_an_unavailable_agent_gets_no_new_work_until_it_is_back(relay):
    elsewhere(relay, "away", capabilities=SQL)
    with_agent(relay, "able", answer, capabilities=SQL)

    async def main():
        await relay.run("away", "work")
        second = await relay.run("away", "more work")
        with_agent(relay, "away", answer, capabilities=SQL)
        return second.output, (await relay.run("away", "even more")).output

    assert virtual.run(main()) == ("by able", "by away")


def test_critical_work_goes_to_a_person_at_once(relay):
    elsewhere(relay, "away", capabilities=SQL)
    with_agent(relay, "able", answer, capabilities=SQL)

    async def main():
        made = relay.hand_off(request("away", priority="critical"))
        await minding(relay, 65)
        return relay.get(made.id), relay.alerts()

    parked, alerts = virtual.run(main())
    assert parked.status == "parked"
    assert [one.subject for one in alerts] == [parked.id]
    assert trail(relay, parked.id) == ["initiated", "parked"]


def test_without_an_alternative_it_stays_offered_and_says_so_once(relay):
    elsewhere(relay, "away")
    with_agent(relay, "other", answer)

    async def main():
        made = relay.hand_off(request("away"))
        await minding(relay, 600)
        alerts = relay.alerts()
        with_agent(relay, "away", answer)
        await minding(relay, 5)
        return made.id, alerts, relay.get(made.id)

    handoff_id, alerts, done = virtual.run(main())
    assert [one.subject for one in alerts] == [handoff_id]
    assert done.status == "completed"


@pytest.mark.parametrize("seconds", [1, 29, 200])
def test_work_that_nobody_took_fails_when_its_time_is_over(relay, seconds):
    elsewhere(relay, "away")
    with_agent(relay, "boss", None)

    async def main():
        reply = await relay.delegate("away", "work", from_agent="boss", timeout=seconds)
        return reply, asyncio.get_running_loop().time()

    reply, took = virtual.run(main())
    assert reply.status == "timeout"
    assert seconds <= took < seconds + 1


def test_late_work_is_reminded_and_then_fails(relay):
    started = []

    async def slow(turn):
        started.append(turn.attempt)
        await asyncio.sleep(100_000)

    with_agent(relay, "slow", slow)

    async def main():
        with pytest.raises(TimedOut, match="nor after a reminder"):
            await relay.run("slow", "work", return_protocol=late("fail"), workflow_id="w")
        return asyncio.get_running_loop().time()

    took = virtual.run(main())
    assert 130 <= took < 135
    (handoff,) = relay.store.find(workflow_id="w")
    assert trail(relay, handoff.id) == ["initiated", "accepted", "reminded", "timeout", "failed"]
    assert started == [1]


def test_a_time_out_that_fails_the_work_is_told_to_the_sender_and_to_a_person(relay):
    async def slow(turn):
        await asyncio.sleep(100_000)

    async def boss(turn):
        reply = await turn.delegate("slow", "part", timeout=100, on_timeout="fail")
        return reply.status

    with_agent(relay, "slow", slow)
    with_agent(relay, "boss", boss)
    result = virtual.run(relay.run("boss", "work"))
    assert result.output == "timeout"
    (part,) = result.handoffs
    assert part.status == "failed"
    (alert,) = relay.alerts()
    assert alert.subject == part.id
    assert alert.text.startswith("TimedOut: slow has not answered by ")


def test_an_answer_within_the_grace_counts(relay):
    async def slow(turn):
        await asyncio.sleep(120)
        return "just in time"

    with_agent(relay, "slow", slow)
    result = virtual.run(relay.run("slow", "work", return_protocol=late("fail"), workflow_id="w"))
    assert result.output == "just in time"
    (handoff,) = relay.store.find(workflow_id="w")
    assert trail(relay, handoff.id) == ["initiated", "accepted", "reminded", "completed"]


def test_late_work_is_tried_again_after_2_s_then_4_s(relay):
    started = []

    async def slow(turn):
        started.append((turn.attempt, round(asyncio.get_running_loop().time())))
        await asyncio.sleep(100_000)

    with_agent(relay, "slow", slow)

    async def main():
        with pytest.raises(TimedOut):
            await relay.run("slow", "work", return_protocol=late("retry"), workflow_id="w")

    virtual.run(main())
    assert [attempt for attempt, _ in started] == [1, 2, 3]
    pauses = [after - before - 130 for (_, before), (_, after) in pairwise(started)]
    assert [2 <= pauses[0] <= 4, 4 <= pauses[1] <= 6] == [True, True]
    (handoff,) = relay.store.find(workflow_id="w")
    once = ["accepted", "reminded", "timeout"]
    assert trail(relay, handoff.id) == [
        *("initiated", *once, "retried", "resumed"),
        *(*once, "retried", "resumed"),
        *(*once, "failed"),
    ]


def test_a_failure_is_tried_again_where_the_request_says_so(relay):
    started = []

    async def shaky(turn):
        started.append(asyncio.get_running_loop().time())
        if turn.attempt < 3:
            raise OSError("gone")
        return "at last"

    with_agent(relay, "shaky", shaky)
    protocol = ReturnProtocol(on_failure="retry")
    assert virtual.run(relay.run("shaky", "work", return_protocol=protocol)).output == "at last"
    pauses = [after - before for before, after in pairwise(started)]
    assert 2 <= pauses[0] < 3
    assert 4 <= pauses[1] < 5


def test_late_work_escalates_to_another_agent_and_then_to_a_person(relay):
    async def slow(turn):
        await asyncio.sleep(100_000)

    with_agent(relay, "slow", slow, capabilities=SQL)
    with_agent(relay, "slower", slow, capabilities=SQL)

    async def main():
        run = asyncio.create_task(relay.run("slow", "work", return_protocol=late("escalate"), workflow_id="w"))
        await asyncio.sleep(300)
        (parked,) = relay.waiting()
        relay.give_back(parked.id, "by hand", by="ada")
        return parked, await run

    parked, result = virtual.run(main())
    assert (parked.status, result.output) == ("parked", "by hand")
    once = ["accepted", "reminded", "timeout"]
    assert trail(relay, parked.id) == ["initiated", *once, "escalated", *once, "parked", "completed"]


def test_a_return_of_an_old_attempt_is_late_and_changes_nothing(relay):
    with_agent(relay, "slow", None)

    async def main():
        made = relay.hand_off(request("slow", return_protocol=late("retry")))
        old = relay.claim("slow").handoff
        await minding(relay, 0)
        for _ in range(80):
            await asyncio.sleep(2)
            relay.recover()
        new = relay.claim("slow", handoff_id=made.id).handoff
        before = relay.get(made.id)
        with pytest.raises(Fenced, match="claim 1 of slow is no longer current"):
            relay.give_back(made.id, "too late", epoch=old.epoch)
        assert relay.get(made.id) == before
        relay.give_back(made.id, "in time", epoch=new.epoch)
        with pytest.raises(Fenced):
            relay.give_back(made.id, "much too late", epoch=old.epoch)
        return made, new

    made, new = virtual.run(main())
    assert (new.attempt, new.epoch) == (2, 2)
    assert relay.result(made.workflow_id).output == "in time"
    assert trail(relay, made.id)[-3:] == ["late", "completed", "late"]
    assert relay.audit.verify().ok


def test_deferred_work_comes_back_and_its_attempt_does_not_count(relay):
    started = []

    async def later(turn):
        started.append((turn.attempt, round(asyncio.get_running_loop().time())))
        return Defer("the night is cheaper", seconds=3600) if len(started) == 1 else "done"

    with_agent(relay, "later", later)
    result = virtual.run(relay.run("later", "work", workflow_id="w"))
    assert result.output == "done"
    assert [attempt for attempt, _ in started] == [1, 1]
    assert 3600 <= started[1][1] - started[0][1] < 3602
    (handoff,) = relay.store.find(workflow_id="w")
    assert trail(relay, handoff.id) == ["initiated", "accepted", "deferred", "resumed", "accepted", "completed"]
    reasons = [r.reason for r in relay.audit.query(handoff_id=handoff.id) if r.event_type == "deferred"]
    assert reasons == ["the night is cheaper"]


def by(seconds):
    return to_time(virtual.START + int(seconds * clock.SECOND))


@pytest.mark.parametrize("seconds", [1, 40])
def test_work_that_its_agent_put_off_ends_at_its_deadline(relay, seconds):
    with_agent(relay, "later", lambda turn: Defer("tomorrow", seconds=86_400))

    async def main():
        with pytest.raises((TimedOut, LimitExceeded)):
            await relay.run("later", "work", deadline=by(seconds), workflow_id="w")
        return asyncio.get_running_loop().time()

    assert seconds <= virtual.run(main()) <= seconds + 2
    (handoff,) = relay.store.find(workflow_id="w")
    assert trail(relay, handoff.id) == ["initiated", "accepted", "deferred", "resumed", "failed"]


def test_a_retry_ends_at_its_deadline_however_long_the_pause(relay):
    started = []

    def breaks(turn):
        started.append(turn.attempt)
        raise OSError("no")

    with_agent(relay, "breaks", breaks)

    async def main():
        with pytest.raises((TimedOut, LimitExceeded)):
            await relay.run("breaks", "work", deadline=by(40), on_failure="retry", max_attempts=9)
        return asyncio.get_running_loop().time()

    assert 40 <= virtual.run(main()) <= 42
    assert started == [1, 2, 3, 4]  # the last one after the rest of its breaker; then a pause of 16 s


def test_rejected_work_waits_for_the_rest_of_its_agent_up_to_its_deadline():
    work = msgspec.structs.replace(request("b", deadline=by(40)), state=State.REJECTED)
    early, late = virtual.START + 39 * clock.SECOND, virtual.START + 40 * clock.SECOND
    assert due_step(work, Facts(now=early, rests=True)) is None
    step = due_step(work, Facts(now=late, rests=True))
    assert (step.event, step.result.status) == (Event.FAIL, "timeout")


@pytest.mark.parametrize("lease", [60.0, 2.0, 0.4])
def test_a_heartbeat_renews_the_lease_of_a_long_body(lease):
    with Relay(lease=lease) as relay:

        async def long(turn):
            await asyncio.sleep(lease * 10)
            return turn.attempt

        with_agent(relay, "long", long)
        assert virtual.run(relay.run("long", "work")).output == 1
        assert "reclaimed" not in {r.event_type for r in relay.audit.query()}


def test_a_lost_claim_cancels_the_body():
    with Relay() as relay:
        ended = []

        async def long(turn):
            if turn.attempt == 2:
                return "second"
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append((turn.cancelled, round(asyncio.get_running_loop().time())))

        with_agent(relay, "long", long)

        async def main():
            run = asyncio.create_task(relay.run("long", "work", workflow_id="w"))
            await asyncio.sleep(10)
            (handoff,) = relay.store.find(workflow_id="w")
            from baton.lifecycle import Event
            from baton.stores.base import Step

            relay.store.advance(Step(id=handoff.id, event=Event.RECLAIM, reason="by another process"))
            return (await run).output

        assert virtual.run(main()) == "second"
        assert len(ended) == 1
        assert ended[0][0] is True
        assert ended[0][1] <= 11


def test_a_lease_that_is_over_and_not_renewed_is_taken_back(relay):
    with_agent(relay, "gone", None)

    async def main():
        made = relay.hand_off(request("gone"))
        seen = []
        for _ in range(3):
            taken = relay.claim("gone", holder="another-host/boot/1/2/x", lease=50).handoff
            seen.append((taken.attempt, taken.epoch))
            await asyncio.sleep(49)
            relay.recover()
            assert relay.get(made.id).status == "claimed"
            await asyncio.sleep(2)
            relay.recover()
        return made, seen

    made, seen = virtual.run(main())
    assert seen == [(1, 1), (2, 2), (3, 3)]
    assert relay.get(made.id).status == "failed"
    assert trail(relay, made.id) == [
        "initiated",
        *["accepted", "reclaimed"] * 2,
        *["accepted", "failed"],
    ]
    assert "max_attempts 3 are used up" in relay.result(made.workflow_id).error


def test_run_with_a_timeout_of_its_own_leaves_the_work_to_be_resumed(relay):
    async def slow(turn):
        await asyncio.sleep(50)
        return "done"

    with_agent(relay, "slow", slow)

    async def main():
        with pytest.raises(TimedOut, match="resume"):
            await relay.run("slow", "work", timeout=10, workflow_id="w")
        return await relay.resume("w")

    assert virtual.run(main()).output == "done"


def test_failing_three_times_names_the_last_reason(relay):
    async def broken(turn):
        raise OSError(f"attempt {turn.attempt}")

    with_agent(relay, "broken", broken)
    with pytest.raises(HandoffFailed, match="attempt 3"):
        virtual.run(relay.run("broken", "work", return_protocol=ReturnProtocol(on_failure="retry")))


def test_work_that_must_not_be_repeated_goes_to_a_person_instead(relay):
    started = []

    async def pay(turn):
        started.append(1)
        raise OSError("the line went dead")

    with_agent(relay, "pay", pay, idempotent=False)

    async def main():
        run = asyncio.create_task(
            relay.run("pay", "work", return_protocol=ReturnProtocol(on_failure="retry"), workflow_id="w")
        )
        await asyncio.sleep(60)
        waiting = relay.waiting()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        return waiting

    (parked,) = virtual.run(main())
    assert (parked.status, started) == ("parked", [1])


def test_what_a_receiver_said_is_kept_with_its_estimate():
    with Relay() as relay:
        relay.store.register(Profile(agent_id="a"))
        work = relay.hand_off(Handoff(from_agent="user", to_agent="a", task="work"))
        assert relay.acceptance(work.id) is None
        taken = relay.claim("a", estimate=90).handoff
        said = relay.acceptance(work.id)
        assert (said.status, said.reason) == ("accepted", "")
        assert (said.estimated_completion - said.acknowledged_at).total_seconds() == pytest.approx(90, abs=1)
        relay.give_back(taken.id, Reject("not my trade"), epoch=taken.epoch)
        assert relay.acceptance(work.id).reason == "not my trade"
