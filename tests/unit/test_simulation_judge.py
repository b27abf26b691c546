"""The judge of the simulation takes a rest that was promised for no delay, and nothing else."""

import pytest

from baton.guards import Breaker
from baton.lifecycle import State
from baton.protocol import Handoff
from baton.testing.simulation.judge import rest

OPENED = 5_000_000


def work(state=State.OFFERED, to_agent="b", from_agent="a"):
    return Handoff(id="h1", from_agent=from_agent, to_agent=to_agent, state=state)


def opened(opens=1, subject="agent:b", at=OPENED):
    return Breaker(subject, "error", failures=2 + opens, opens=opens, opened_at=at)


def left(*breakers, now=OPENED, handoffs=None):
    return rest([work()] if handoffs is None else handoffs, breakers, now)


@pytest.mark.parametrize(
    ("opens", "seconds"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 600), (7, 600), (1000, 600)]
)
def test_a_rest_doubles_up_to_ten_minutes(opens, seconds):
    assert left(opened(opens)) == seconds
    assert left(opened(opens), now=OPENED + seconds * 1_000_000 - 1) == pytest.approx(0, abs=1e-5)
    assert left(opened(opens), now=OPENED + seconds * 1_000_000) == 0
    assert left(opened(opens), now=OPENED + 9_000_000_000) == 0


@pytest.mark.parametrize("state", State)
def test_only_work_that_nobody_has_waits_for_it(state):
    assert bool(left(opened(), handoffs=[work(state)])) is (state in {State.OFFERED, State.REJECTED})


@pytest.mark.parametrize("subject", ["agent:a", "agent:c", "route:c->b", "route:b->a"])
def test_the_rest_of_another_is_no_reason(subject):
    assert left(opened(subject=subject)) == 0


def test_a_route_rests_too():
    assert left(opened(subject="route:a->b")) == 30


def test_failures_that_opened_nothing_are_no_rest():
    assert left(Breaker("agent:b", "error", failures=2)) == 0


def test_work_with_two_rests_waits_for_the_longer_one():
    assert left(opened(1), opened(3, "route:a->b")) == 120


def test_of_several_works_the_next_to_go_on_is_looked_at_first():
    both = [work(), work(to_agent="c")]
    assert left(opened(2), opened(1, "agent:c"), handoffs=both) == 30


def test_what_does_not_rest_hides_no_rest_beside_it():
    assert left(opened(2), handoffs=[work(to_agent="c"), work()]) == 60
    assert left(handoffs=[]) == 0
