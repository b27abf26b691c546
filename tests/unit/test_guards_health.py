"""What follows for an agent's health from what was seen of it."""

from hypothesis import given
from hypothesis import strategies as st

from baton.guards import health
from baton.guards.health import Health

MINUTE = 60_000_000


def after(count, known=None, **more):
    known = known or Health()
    for number in range(count):
        known = health.failed(known, f"failure {number + 1}", number * MINUTE, **more)
    return known


def test_one_failure_makes_suspect_and_three_in_a_row_unavailable():
    assert [after(count).state for count in range(5)] == [
        "available", "suspect", "suspect", "unavailable", "unavailable",
    ]  # fmt: skip
    assert after(2).since == 0
    assert after(4) == Health("unavailable", "failure 4", 2 * MINUTE, 4)


def test_the_threshold_is_the_operators():
    assert [after(count, threshold=1).state for count in (0, 1)] == ["available", "unavailable"]
    assert after(4, threshold=5).state == "suspect"


def test_a_check_that_passes_forgets_the_failures():
    well = health.passed(after(5, ill=True), 7)
    assert (well.state, well.reason, well.failures, well.ill, well.since) == ("available", "", 0, False, 7)
    assert after(1, well).state == "suspect"
    assert health.passed(Health(), 7) == Health()


def test_offers_that_nobody_takes_are_one_silence():
    once = health.unanswered(Health(), "no word", 5)
    assert (once.state, once.failures, once.since) == ("suspect", 1, 5)
    assert health.unanswered(once, "no word", 6) == once


def test_a_worker_that_shows_itself_ends_silence_but_not_illness():
    shown = health.seen(after(3), 9)
    assert (shown.state, shown.seen_at, shown.served) == ("available", 9, True)
    ill = health.seen(after(3, ill=True), 9)
    assert (ill.state, ill.seen_at) == ("unavailable", 9)
    assert health.acknowledged(after(3, ill=True), 9).state == "unavailable"
    assert health.acknowledged(after(3), 9).state == "available"


def test_only_who_was_served_once_can_be_silent():
    assert not health.silent(Health(seen_at=0), 31, 30)
    served = Health(seen_at=0, served=True)
    assert [health.silent(served, now, 30) for now in (-5, 29, 30)] == [False, False, True]


def test_a_check_begins_once_in_each_interval_also_where_the_clock_goes_back():
    first = health.checked(Health(), 100, 60)
    assert first.checked_at == 100
    assert health.checked(first, 159, 60) is first
    assert health.checked(first, 160, 60).checked_at == 160
    assert health.checked(first, 40, 60).checked_at == 40


@given(st.lists(st.sampled_from(["failed", "ill", "unanswered", "passed", "seen", "acknowledged"])), st.integers(1, 4))
def test_whatever_happens_state_and_failures_agree(events, threshold):
    known = Health()
    for now, event in enumerate(events):
        if event in {"failed", "ill"}:
            known = health.failed(known, "x", now, threshold, ill=event == "ill")
        elif event == "unanswered":
            known = health.unanswered(known, "x", now)
        else:
            known = getattr(health, event)(known, now)
        assert (known.state == "available") == (known.failures == 0) == (not health.said(known))
        assert known.failures or not known.ill
        if event == "passed":
            assert known.state == "available"
        if event == "failed" and known.failures >= threshold:
            assert known.state == "unavailable"
