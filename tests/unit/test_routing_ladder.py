"""Who is next up: pure."""

import pytest

from baton import Malformed
from baton.routing.ladder import Next, as_ladder, next_up

LADDER = ("reviewer", "architect", "human")


@pytest.mark.parametrize(
    ("agent", "used", "to"),
    [
        ("worker", 0, "reviewer"),
        ("reviewer", 0, "architect"),
        ("reviewer", 1, "architect"),
        ("architect", 0, "human"),
        ("architect", 2, "human"),
    ],
)
def test_a_rung_goes_to_the_next_one_and_anybody_else_to_the_first(agent, used, to):
    assert next_up(LADDER, agent, {}, used, 3) == Next(to)
    assert next_up(LADDER[:-1], agent, {}, used, 3) == Next(to)


def test_without_a_ladder_a_person_is_next():
    assert next_up((), "worker", {}, 0, 3) == Next("human")
    assert next_up(("human",), "worker", {}, 0, 3) == Next("human")


def test_a_closed_rung_is_passed_over_with_the_reason():
    closed = {"reviewer": "it is away", "elsewhere": "it is away"}
    assert next_up(LADDER, "worker", closed, 0, 3) == Next("architect", "", {"reviewer": "it is away"})
    closed["architect"] = "it was asked already"
    assert next_up(LADDER, "worker", closed, 0, 3) == Next(
        "human", "", {"reviewer": "it is away", "architect": "it was asked already"}
    )


def test_nobody_goes_down():
    assert next_up(LADDER, "architect", {}, 0, 3).to == "human"
    assert next_up(LADDER, "reviewer", {"architect": "it is away"}, 0, 3).to == "human"


@pytest.mark.parametrize(("most", "agents"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (None, 5)])
def test_the_last_edge_that_counts_is_a_persons_and_is_never_counted_out(most, agents):
    ladder, at, used = ("a", "b", "c", "d", "e"), "worker", 0
    while (found := next_up(ladder, at, {}, used, most)).to != "human":
        at, used = found.to, used + 1
    assert used == agents
    assert bool(found.why) == (most is not None and agents < len(ladder))
    if most is not None:
        assert next_up(ladder, "worker", {}, most + 10, most).to == "human"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["reviewer", "reviewer"], "stands on the ladder twice"),
        (["human", "reviewer"], "human is always the last one"),
        ("reviewer", "expected a list of names"),
        (["re\nviewer"], "printable"),
        ([""], "printable"),
    ],
)
def test_a_ladder_that_cannot_be_climbed_is_refused(given, error):
    with pytest.raises(Malformed, match=error):
        as_ladder(given)


def test_a_ladder_as_configured():
    assert as_ladder(["reviewer", "architect", "human"]) == LADDER
    assert as_ladder([]) == ()
