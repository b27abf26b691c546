"""The five triggers start a handoff by themselves, from what the runtime sees."""

from __future__ import annotations

import asyncio

import pytest

from baton import Autonomy, Command, Escalate, HandoffFailed, Limits, Relay, answer
from baton.errors import NotCapable, TimedOut
from baton.protocol.artifacts import Artifact
from baton.testing import virtual


def passed(result):
    return [(one.from_agent, one.to_agent, one.reason) for one in result.handoffs]


def test_a_finished_task_goes_to_the_next_in_the_sequence():
    with Relay(":memory:", sequence={"implementer": "reviewer"}) as relay:

        @relay.agent("implementer")
        async def implementer(turn):
            return answer("the code", update={"files": 2}, artifacts=(Artifact(id="patch", path="a.patch"),), tokens=7)

        @relay.agent("reviewer")
        async def reviewer(turn):
            return f"{turn.messages[-1].content}: {turn.state['files']} files, {turn.handoff.context.artifacts[0].path}"

        result = relay.run_sync("implementer", "build it")
        assert result.output == "the code: 2 files, a.patch"
        assert passed(result) == [("implementer", "reviewer", "implementer is done, reviewer comes next")]
        assert result.tokens == 7
        assert relay.store.find(to_agent="implementer")[0].status == "completed"


def test_a_failed_task_does_not_go_on():
    with Relay(":memory:", sequence={"implementer": "reviewer"}) as relay:

        @relay.agent("implementer")
        async def implementer(turn):
            return answer("half of it", status="failed")

        relay.agent("reviewer")(lambda turn: "never")
        with pytest.raises(HandoffFailed):
            relay.run_sync("implementer", "build it")
        assert relay.store.find(to_agent="reviewer") == []


def test_a_missing_capability_goes_to_whom_the_routing_map_names():
    with Relay(":memory:", routes={"security": ("second",)}) as relay:
        relay.agent("first", capabilities=["security"])(lambda turn: "first")
        relay.agent("second", capabilities={"security": 0.4})(lambda turn: "second")

        @relay.agent("implementer")
        async def implementer(turn):
            return Command(needs=("security",), task="look at the login")

        result = relay.run_sync("implementer", "build it")
        assert result.output == "second"
        assert passed(result) == [("implementer", "second", "implementer lacks security")]


def test_a_capability_that_nobody_has_is_a_clear_error():
    with Relay(":memory:") as relay:

        @relay.agent("implementer")
        async def implementer(turn):
            return Command(needs=("alchemy",))

        with pytest.raises(NotCapable, match="nobody here can do alchemy"):
            relay.run_sync("implementer", "build it")


def parked(relay, agent):
    async def main():
        task = asyncio.ensure_future(relay.run(agent, "work"))
        while not relay.waiting():
            await relay._crew.hub.changed(5, lambda: bool(relay.waiting()))
        relay.give_back(relay.waiting()[0].id, "a person's answer", by="eve")
        return await task

    return asyncio.run(main())


def test_work_beyond_the_autonomy_goes_up_to_a_person():
    with Relay(":memory:") as relay:

        @relay.agent("greedy", autonomy=Autonomy(max_tokens=100))
        async def greedy(turn):
            await turn.charge(80)
            await turn.charge(80)
            return "went on all the same"

        assert parked(relay, "greedy").output == "a person's answer"
        events = [record.event_type for record in relay.audit.query(to_agent="greedy")]
        assert events == ["initiated", "accepted", "parked", "completed"]


def test_an_agent_that_escalates_waits_for_a_person():
    with Relay(":memory:") as relay:
        relay.agent("worker")(lambda turn: Escalate("two readings of the order are possible"))
        assert parked(relay, "worker").output == "a person's answer"


def test_a_timeout_is_noticed_reminded_and_ended():
    async def main():
        relay = Relay(":memory:")

        @relay.agent("slow", max_execution_time=60)
        async def slow(turn):
            await asyncio.sleep(86400)

        with pytest.raises(TimedOut, match="nor after a reminder"):
            await relay.run("slow", "work", limits=Limits())
        return [record.event_type for record in relay.audit.query(to_agent="slow")]

    assert virtual.run(main()) == ["initiated", "accepted", "reminded", "timeout", "failed"]
