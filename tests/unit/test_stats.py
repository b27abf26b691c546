"""The numbers: how they are summed, over which time, and how Prometheus reads them."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from baton import Command, Handoff, Limits, Malformed, Refused, Relay, clock
from baton.errors import Deadlock
from baton.protocol.exposition import exposition
from baton.protocol.stats import Flow, Seen, SeenContext, Spread, spread, summed
from baton.testing.virtual import VirtualClock

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def seen(handoff, seconds, event, status="", **more):
    moment = BEGAN + timedelta(seconds=seconds)
    return Seen(handoff, moment, event, more.pop("to", "b"), "w", context_snapshot=SeenContext(status), **more)


def test_a_spread_is_by_nearest_rank():
    assert spread([]) == Spread(0, None, None, None)
    assert spread([4]) == Spread(1, 4.0, 4, 4)
    assert spread(range(1, 101)) == Spread(100, 50.5, 50, 99)
    assert spread(range(1, 1001)).p99 == 990


def test_times_are_from_offer_to_first_claim_from_last_claim_to_end_and_in_all():
    records = [
        seen("1", 0, "initiated", "offered"),
        seen("1", 2, "accepted", "claimed"),
        seen("1", 3, "retried", "deferred"),
        seen("1", 5, "resumed", "offered"),
        seen("1", 6, "accepted", "claimed"),
        seen("1", 10, "completed", "completed"),
        seen("1", 50, "late", "completed"),
    ]
    found = summed(records, [("a", "b", "completed", 1, 7, 2_500_000)], [Flow("w", 0, 7, 2.5, ("b", "gone"))], {"b"})
    assert (found.latency.to_accept.average, found.latency.working.average, found.latency.to_end.average) == (2, 4, 10)
    assert found.events == {"accepted": 2, "completed": 1, "resumed": 1, "retried": 1}
    [agent] = found.agents
    assert (agent.name, agent.success, agent.tokens, agent.cost, agent.working.p99) == ("b", 1.0, 7, 2.5, 4)
    assert [(one.name, one.handoffs, one.agents) for one in found.workflows] == [("w", 0, ("b",))]


def test_what_was_offered_before_the_window_is_left_out_with_all_that_follows():
    records = [seen("old", 1, "accepted", "claimed"), seen("old", 2, "completed", "completed")]
    found = summed(records, [], [Flow("w", 0, 0, 0.0)], set())
    assert (found.events, found.latency.to_end.count, found.workflows) == ({}, 0, ())


def test_deadlocks_and_loops_are_counted():
    with Relay() as relay:

        @relay.agent("locker")
        def locker(turn):
            raise Deadlock("lock: a waits for b, b for a")

        relay.agent("ping")(lambda turn: Command(goto="pong"))
        relay.agent("pong")(lambda turn: Command(goto="ping"))
        with pytest.raises(Exception, match="a waits for b"):
            relay.run_sync("locker", "x")
        with pytest.raises(Refused):
            relay.run_sync("ping", "x", limits=Limits(max_handoffs=50))
        found = relay.stats()
    assert (found.deadlocks, found.loops_caught) == (1, 1)


@pytest.mark.parametrize("place", [":memory:", "file"])
def test_since_counts_what_was_offered_since(place, tmp_path):
    source = VirtualClock()
    url = place if place == ":memory:" else tmp_path / "work.db"
    with clock.use(source), Relay(url) as relay:
        relay.agent("b")(lambda turn: "done")
        for _ in range(20):
            relay.hand_off(Handoff(from_agent="a", to_agent="b", task="x"))
            source.advance(60)
        moment = datetime.fromtimestamp((clock.now() - 300_000_000) / 1e6, UTC)
        counts = [relay.stats(since=since).handoffs.total for since in (None, "1h", "5m", 299, moment, 1)]
        workflows = [relay.stats(since=since).per_workflow.count for since in (None, "5m", 1)]
        assert counts == [20, 20, 5, 4, 5, 0]
        assert workflows == [20, 5, 0]
        with pytest.raises(Malformed, match="since"):
            relay.stats(since="soon")


class Counting:
    """A store that counts the audit records that are read from it."""

    def __init__(self, store):
        self._store = store
        self.read = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def audit(self, **where):
        found = self._store.audit(**where)
        self.read += len(found)
        return found


def test_a_window_does_not_read_the_whole_history():
    source = VirtualClock()
    with clock.use(source), Relay() as relay:
        relay.agent("b")(lambda turn: "done")
        for _ in range(500):
            relay.hand_off(Handoff(from_agent="a", to_agent="b", task="x"))
            source.advance(1)
        relay.store = Counting(relay.store)
        assert relay.stats(since=10).handoffs.total == 10
        few, relay.store.read = relay.store.read, 0
        assert relay.stats().handoffs.total == 500
        assert few < 50 < 500 <= relay.store.read
        relay.store = relay.store._store


def test_prometheus_reads_the_exposition_whatever_the_names():
    hostile = 'b"} evil 1 \\ é→{x="'
    with Relay() as relay:

        @relay.agent(hostile)
        async def agent(turn):
            await turn.charge(tokens=40, cost=0.5)
            return "done"

        relay.run_sync(hostile, "x")
        relay.agent("broken")(lambda turn: 1 // 0)
        for _ in range(3):
            with pytest.raises(Exception, match="ZeroDivision"):
                relay.run_sync("broken", "x")
        text = exposition(relay.stats())
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert text.endswith("\n")
    tokens = {one.labels["agent"]: one.value for one in families["baton_agent_tokens"].samples}
    assert tokens == {hostile: 40, "broken": 0}
    assert {one.labels["state"]: one.value for one in families["baton_handoffs"].samples} == {
        "completed": 1,
        "failed": 3,
    }
    by_name = {one.name: one.value for one in families["baton_to_end_seconds"].samples}
    assert by_name["baton_to_end_seconds_count"] == 4
    assert {one.labels["state"] for one in families["baton_breaker_failures"].samples} == {"open"}
    assert "evil" not in families
