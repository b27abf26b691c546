import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.guards import ALLOW, Breaker, Facts
from baton.guards.breaker import (
    COOL_DOWN,
    LONGEST,
    THRESHOLD,
    after_failure,
    after_nothing,
    after_success,
    cool_down,
    failure,
    rested,
    settled,
    state,
    subjects,
)
from baton.lifecycle import Event
from baton.protocol import Handoff, Limits, Return

AGENT = Breaker("agent:b", "error")
OPEN = Breaker("agent:b", "error", failures=3, opens=1, opened_at=0)
ROUTE = Breaker("route:a->b", "timeout", failures=5, opens=2, opened_at=0)


def handoff(handoff_id="h1"):
    return Handoff(id=handoff_id, from_agent="a", to_agent="b")


def judge(*breakers, now=0, handoff_id="h1"):
    return rested(handoff(handoff_id), Facts(now=now, breakers=breakers), Limits())


def test_it_opens_at_the_third_failure_in_a_row():
    assert THRESHOLD == 3
    breaker = AGENT
    for count in range(1, THRESHOLD):
        breaker = after_failure(breaker, 7)
        assert (breaker.failures, state(breaker, 7)) == (count, "closed")
        assert judge(breaker, now=7) is ALLOW
    breaker = after_failure(breaker, 7)
    assert (breaker.opens, breaker.opened_at, state(breaker, 7)) == (1, 7, "open")


def test_a_success_in_between_starts_the_count_again():
    breaker = after_failure(after_failure(AGENT, 0), 0)
    assert after_success(breaker, 0) == AGENT
    assert after_success(AGENT, 0) is None


@pytest.mark.parametrize(
    ("opens", "seconds"),
    [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 600), (7, 600), (1000, 600)],
)
def test_the_cool_down_doubles_up_to_ten_minutes(opens, seconds):
    assert cool_down(Breaker("agent:b", "error", opens=opens)) == seconds * 1_000_000


@pytest.mark.parametrize(
    ("now", "mode"),
    [(0, "open"), (COOL_DOWN - 1, "open"), (COOL_DOWN, "half-open"), (10 * COOL_DOWN, "half-open")],
)
def test_it_half_opens_when_the_cool_down_is_over(now, mode):
    assert state(OPEN, now) == mode


def test_open_rejects_and_says_for_how_long():
    verdict = judge(OPEN, now=18_000_000)
    assert (verdict.kind, verdict.error, verdict.limit) == ("reject", "BreakerOpen", "breaker")
    for part in ("agent:b", "3 failures (error)", "12 s", "another agent", "baton breaker reset agent:b"):
        assert part in verdict.reason
    assert verdict.allowed == "one probe in 12 s"


def test_half_open_lets_exactly_one_handoff_probe():
    probing = Breaker("agent:b", "error", failures=3, opens=1, opened_at=0, probing="h1")
    assert judge(OPEN, now=COOL_DOWN).probe
    assert judge(probing, now=COOL_DOWN, handoff_id="h1").probe  # a second attempt of the probe itself
    verdict = judge(probing, now=COOL_DOWN, handoff_id="h2")
    assert (verdict.kind, verdict.error, verdict.probe) == ("reject", "BreakerOpen", False)
    assert "handoff h1 probes it" in verdict.reason


def test_the_way_to_a_person_has_no_breaker():
    facts = Facts(now=0, breakers=(Breaker("agent:human", "unavailable", 3, 1, 0),))
    assert rested(Handoff(from_agent="a", to_agent="human"), facts, Limits()) is ALLOW


def test_the_route_counts_as_well_as_the_agent():
    assert judge(OPEN, ROUTE, now=COOL_DOWN).kind == "reject"
    assert "route:a->b" in judge(OPEN, ROUTE, now=COOL_DOWN).reason
    assert judge(OPEN, ROUTE, now=2 * COOL_DOWN).probe
    assert subjects(handoff()) == ("agent:b", "route:a->b")


def test_a_probe_that_fails_opens_for_longer_and_one_that_succeeds_closes():
    probing = Breaker("agent:b", "error", failures=3, opens=1, opened_at=0, probing="h1")
    again = after_failure(probing, COOL_DOWN, "h1")
    assert (again.opens, again.opened_at, again.probing) == (2, COOL_DOWN, "")
    assert after_success(probing, COOL_DOWN, "h1") == AGENT
    assert after_nothing(probing, "h1") == OPEN


def test_older_work_does_not_decide_for_the_probe():
    probing = Breaker("agent:b", "error", failures=3, opens=1, opened_at=0, probing="h1")
    late = after_failure(probing, COOL_DOWN, "h0")
    assert (late.opens, late.opened_at, late.probing) == (1, 0, "h1")
    assert after_success(probing, COOL_DOWN, "h0") is None
    assert after_nothing(probing, "h0") is None
    assert after_success(OPEN, 1, "h0") is None
    assert after_failure(OPEN, 1, "h0").opened_at == 0


def test_a_probe_decides_even_when_the_clock_went_back():
    probing = Breaker("agent:b", "error", failures=3, opens=1, opened_at=COOL_DOWN, probing="h1")
    assert after_success(probing, COOL_DOWN - 5, "h1") == AGENT
    assert after_failure(probing, COOL_DOWN - 5, "h1").probing == ""


@pytest.mark.parametrize(
    ("event", "result", "cause", "expected"),
    [
        (Event.MISS, None, "", "unavailable"),
        (Event.RECLAIM, None, "", None),
        (Event.FAIL, Return(status="failed"), "", "error"),
        (Event.RETRY, Return(status="failed"), "", "error"),
        (Event.RETRY, None, "timeout", "timeout"),
        (Event.FAIL, Return(status="timeout"), "", "timeout"),
        (Event.ESCALATE, None, "timeout", "timeout"),
        (Event.FAIL, Return(status="failed", retryable=False), "", None),
        (Event.FAIL, None, "", None),
        (Event.ESCALATE, None, "", None),
        (Event.COMPLETE, Return(), "", None),
    ],
)
def test_what_counts_as_a_failure(event, result, cause, expected):
    assert failure(event, result, cause) == expected


@pytest.mark.parametrize(
    "event",
    [Event.REJECT, Event.DENY, Event.DEFER, Event.CANCEL, Event.RELEASE, Event.REROUTE],
)
def test_answers_are_no_failures(event):
    assert failure(event, Return(status="failed")) is None


def test_an_outcome_moves_all_breakers_of_a_handoff():
    rows = settled(handoff(), (), "error", 5)
    assert rows == (Breaker("agent:b", "error", 1), Breaker("route:a->b", "error", 1))
    assert settled(handoff(), rows, "success", 6) == (AGENT, Breaker("route:a->b", "error"))
    assert settled(handoff(), (), "success", 6) == ()
    assert settled(handoff(), rows, "", 6) == ()


def test_a_probe_that_fails_in_another_way_is_over_as_well():
    probing = Breaker("agent:b", "error", failures=3, opens=1, opened_at=0, probing="h1")
    rows = {row.failure: row for row in settled(handoff("h1"), [probing], "timeout", COOL_DOWN)}
    assert rows["error"].probing == ""
    assert rows["timeout"].failures == 1


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "claim", "error", "timeout", "success", "nothing"]),
        st.integers(0, 5),
        st.integers(0, 100_000_000),
    ),
    max_size=60,
)


@given(EVENTS)
def test_any_history_keeps_one_probe_and_always_half_opens_again(events):
    """A store in miniature: rows by class, and the handoffs that run now."""
    rows: dict[tuple[str, str], Breaker] = {}
    running: set[str] = set()
    probes: set[str] = set()
    now = 0
    for number, (what, which, wait) in enumerate(events):
        now += wait
        if what == "claim":
            verdict = judge(*rows.values(), now=now, handoff_id=f"h{number}")
            open_now = any(state(row, now) == "open" for row in rows.values())
            assert (verdict.kind == "reject") is (open_now or bool(probes))
            if verdict.kind == "allow":
                running.add(f"h{number}")
            if verdict.probe:
                probes.add(f"h{number}")
                for key, row in rows.items():
                    if row.opened_at is not None:
                        rows[key] = Breaker(*(getattr(row, name) for name in row.__struct_fields__[:-1]), f"h{number}")
        elif running:
            done = sorted(running)[which % len(running)]
            outcome = "" if what == "nothing" else what
            for row in settled(handoff(done), rows.values(), outcome, now):
                old = rows.get((row.subject, row.failure), row)
                assert cool_down(row) >= cool_down(old) or not row.failures
                assert cool_down(row) <= LONGEST
                if old.opened_at is None and row.failures < THRESHOLD:
                    assert state(row, now) == "closed"
                rows[row.subject, row.failure] = row
                if not row.failures:
                    del rows[row.subject, row.failure]
            running.discard(done)
            probes.discard(done)
        assert len(probes) <= 1
        assert {row.probing for row in rows.values() if row.probing} <= probes
        for row in rows.values():
            assert (row.opened_at is not None) is (row.failures >= THRESHOLD)
            assert state(row, now + LONGEST) != "open"


def by_hand(*breakers, begins=True, sender="user", handoff_id="h1"):
    work = Handoff(id=handoff_id, from_agent=sender, to_agent="b")
    return rested(work, Facts(now=0, breakers=breakers, begins=begins), Limits())


def test_what_a_person_starts_may_probe_at_once():
    assert by_hand(OPEN).probe
    assert by_hand(OPEN, begins=False).error == "BreakerOpen"
    assert by_hand(OPEN, sender="a").error == "BreakerOpen"


def test_but_not_beside_another_probe():
    probing = Breaker("agent:b", "error", failures=3, opens=1, opened_at=0, probing="h0")
    assert "handoff h0 probes it" in by_hand(probing).reason
    assert by_hand(probing, handoff_id="h0").probe
