"""C6, C11: what no other test shows of loops and numbers."""

import pytest

from baton import Command, Limits, Refused, Relay
from baton.protocol.artifacts import Artifact
from baton.protocol.context import Context
from baton.protocol.handoff import Handoff, fingerprint


def test_the_digest_of_the_work_is_the_same_in_every_process_and_knows_no_counters():
    context = Context(artifacts=(Artifact(id="1", path="a.py"),), context_variables={"tries": 1})
    first = Handoff(from_agent="a", to_agent="b", task="fix it", goal="green", context=context)
    later = Handoff(
        id="7", from_agent="a", to_agent="c", task="fix it", goal="green", hop=3, attempt=2, context=context
    )
    assert fingerprint(first) == fingerprint(later)
    assert fingerprint(first) == "69ba15955bb13a7289411abccced6fddbc656fcdc31bc8dd4c224c1480e6b73f"
    assert fingerprint(Handoff(from_agent="a", to_agent="b", task="fix it", goal="green")) != fingerprint(first)


def test_numbers_of_loops_breakers_tokens_and_latency():
    with Relay() as relay:

        @relay.agent("planner")
        async def planner(turn):
            await turn.charge(tokens=40)
            return Command(goto="coder")

        @relay.agent("coder")
        async def coder(turn):
            await turn.charge(tokens=2)
            return Command(goto="planner")

        relay.agent("broken")(lambda turn: 1 // 0)
        with pytest.raises(Refused):
            relay.run_sync("planner", "ping", limits=Limits(max_handoffs=100))
        for number in range(3):
            with pytest.raises(Exception, match="ZeroDivisionError"):
                relay.run_sync("broken", f"work {number}")
        found = relay.stats()
    assert {one.name: one.tokens for one in found.agents} == {"planner": 80, "coder": 2, "broken": 0}
    assert (found.loops_caught, found.deadlocks) == (1, 0)
    assert ("agent:broken", "open", 3) in [(one.subject, one.state, one.failures) for one in found.breakers]
    assert [one.handoffs for one in found.workflows] == [0, 0, 0, 3]
    for spread in (found.latency.to_accept, found.latency.working, found.latency.to_end):
        assert 0 <= spread.p50 <= spread.p99
        assert 0 <= spread.average <= spread.p99
