"""Which work starts now: the order, P0 alone, the caps, the pace, and a reason for each that waits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.board.dispatch import DEFAULT, Route
from baton.board.order import SECOND, Candidate, Running, Slots, plan
from baton.errors import Malformed

FREE = Slots(agents=0, pause=0)
NOW = 1_000 * SECOND


def item(path, noun="fix", weight=2, approved=1, held=""):
    return Candidate(path, noun, weight, approved, held)


def started(found):
    return [one.item.path for one in found.start]


def why(found):
    return {one.item.path: one.why for one in found.waits}


def test_priority_then_the_table_then_approval_then_path():
    items = [
        item("e", "chores", 1),
        item("d", "loop", 2, 5),
        item("c", "implementation", 2, 9),
        item("b2", "fix", 2, 7),
        item("b1", "fix", 2, 7),
        item("a", "fix", 2, 3),
    ]
    assert started(plan(items, [], DEFAULT, FREE, NOW)) == ["e", "a", "b1", "b2", "c", "d"]


def test_nothing_lower_starts_beside_a_p0_and_nothing_that_runs_is_ended():
    items = [item("low"), item("high", weight=1), item("now", weight=0), item("too", "chores", weight=0)]
    found = plan(items, [Running("old", "fix")], DEFAULT, FREE, NOW)
    assert started(found) == ["now", "too"]
    assert why(found) == {"low": "P0", "high": "P0"}
    assert found.waits[0].reason == "P0 'now' comes first, and nothing lower starts beside it"


@pytest.mark.parametrize(
    ("life", "blocks"),
    [("working", True), ("waiting", True), ("idle", True), ("unknown", True), ("stuck", False), ("dead", False)],
)
def test_a_p0_that_runs_blocks_while_it_is_alive_and_not_stuck(life, blocks):
    found = plan([item("low")], [Running("p", "fix", 0, life)], DEFAULT, FREE, NOW)
    assert started(found) == ([] if blocks else ["low"])


@pytest.mark.parametrize(
    ("p0", "slots", "blocks"),
    [
        (item("p", weight=0, approved=None), FREE, False),
        (item("p", weight=0, held="no tmux"), FREE, False),
        (item("p", "unheard", 0), FREE, False),
        (item("p", "chores", 0), Slots(agents=0, skills={"chores": 0}, pause=0), False),
        (item("p", "chores", 0), Slots(agents=0, skills={"chores": 1}, pause=0), True),
        (item("p", weight=0), Slots(agents=1, pause=0), True),
    ],
)
def test_a_p0_blocks_only_if_it_can_start_once_there_is_room(p0, slots, blocks):
    found = plan([item("low"), p0], [Running("old", "chores")], DEFAULT, slots, NOW)
    assert ("low" in started(found)) is not blocks
    if blocks:
        assert why(found)["low"] == "P0"


def test_each_that_waits_has_its_reason():
    slots = Slots(agents=3, skills={"fix": 1, "loop": 0})
    running = [Running("r1", "fix"), Running("r2", "gone", life="unknown")]
    items = [
        item("new", "research"), item("second", "chores"), item("r1"), item("no", approved=None), item("other", "x"),
        item("cap"), item("zero", "loop"), item("window", "brainstorm", held="there is no tmux"),
    ]  # fmt: skip
    found = plan(items, running, DEFAULT, slots, NOW)
    assert started(found) == ["new"]
    said = {one.item.path: one.reason for one in found.waits}
    assert said == {
        "second": "3 of 3 agents run (max_agents)",
        "r1": "an agent has it already (working)",
        "no": "nobody approved it; `baton review` shows it",
        "other": "§TAG_DISPATCH has no row for #delegated-x; add one, or take the item back with `baton review`",
        "cap": "1 of 1 agents run /fix",
        "zero": "the cap of /loop is 0; raise it",
        "window": "there is no tmux",
    }
    assert found.again is None  # only a change helps


def test_one_start_in_a_second():
    slots = Slots(agents=0)
    items = [item("a"), item("b")]
    first = plan(items, [], DEFAULT, slots, NOW)
    assert (started(first), why(first), first.again) == (["a"], {"b": "pace"}, NOW + SECOND)
    soon = plan(items[1:], [], DEFAULT, slots, NOW + 400_000, started=NOW)
    assert (started(soon), soon.again) == ([], NOW + SECOND)
    then = plan(items[1:], [], DEFAULT, slots, NOW + SECOND, started=NOW)
    assert (started(then), then.again) == (["b"], None)
    back = plan(items[1:], [], DEFAULT, slots, NOW, started=NOW + 3600 * SECOND)  # the clock went back
    assert started(back) == ["b"]


def test_the_dead_are_out_of_the_way_and_all_others_count():
    slots = Slots(agents=1, pause=0)
    assert started(plan([item("a")], [Running("a", "fix", life="dead")], DEFAULT, slots, NOW)) == ["a"]
    for life in ("stuck", "unknown", "idle", "waiting"):
        assert started(plan([item("a")], [Running("b", "fix", life=life)], DEFAULT, slots, NOW)) == []
        assert started(plan([item("a")], [Running("a", "fix", life=life)], DEFAULT, FREE, NOW)) == []


def test_values_out_of_range_are_refused():
    for make in (
        lambda: Candidate("a", "fix", 3),
        lambda: Slots(agents=-1),
        lambda: Slots(agents=1, skills={"fix": -1}),
        lambda: Slots(agents=1, pause=float("nan")),
    ):
        with pytest.raises(Malformed):
            make()


NOUNS = [*DEFAULT, "unheard"]
ITEMS = st.lists(
    st.builds(
        Candidate,
        st.sampled_from([f"p{n}" for n in range(9)]),
        st.sampled_from(NOUNS),
        st.integers(0, 2),
        st.none() | st.integers(0, 5),
        st.sampled_from(["", "", "", "no tmux"]),
    ),
    max_size=12,
)
LIVES = st.sampled_from(["working", "waiting", "idle", "stuck", "unknown", "dead"])
RUNNING = st.lists(
    st.builds(Running, st.sampled_from([f"p{n}" for n in range(9)]), st.sampled_from(NOUNS), st.integers(0, 2), LIVES),
    max_size=5,
)
SLOTS = st.builds(
    Slots,
    st.integers(0, 4),
    st.dictionaries(st.sampled_from([one.skill for one in DEFAULT.values()]), st.integers(0, 2), max_size=3),
    st.sampled_from([0, 1.0]),
)


@settings(max_examples=400, deadline=None)
@given(ITEMS, RUNNING, SLOTS, st.none() | st.integers(NOW - 2 * SECOND, NOW + SECOND), st.randoms())
def test_no_order_of_the_input_changes_the_answer(items, running, slots, last, chance):
    found = plan(items, running, DEFAULT, slots, NOW, last)
    mixed, other = list(items), list(running)
    chance.shuffle(mixed)
    chance.shuffle(other)
    assert plan(mixed, other, dict(reversed(DEFAULT.items())), slots, NOW, last) == found


@settings(max_examples=400, deadline=None)
@given(ITEMS, RUNNING, SLOTS, st.none() | st.integers(NOW - 2 * SECOND, NOW))
def test_what_starts_is_approved_alone_within_the_caps_and_all_else_has_a_reason(items, running, slots, last):
    found = plan(items, running, DEFAULT, slots, NOW, last)
    alive = {(one.path, one.noun): one for one in running if one.life != "dead"}
    starts = {(one.item.path, one.item.noun) for one in found.start}
    assert len(starts) == len(found.start)
    assert not starts & alive.keys()
    assert all(one.item.approved is not None and not one.item.held for one in found.start)
    assert all(one.route == DEFAULT[one.item.noun] for one in found.start)
    waiting = {(one.item.path, one.item.noun) for one in found.waits}
    assert waiting | starts == {(one.path, one.noun) for one in items}
    assert all(one.reason for one in found.waits)

    weights = {one.item.weight for one in found.start}
    assert weights == {0} or 0 not in weights
    if any(one.weight == 0 and one.life != "stuck" and one.life != "dead" for one in running):
        assert weights <= {0}
    if slots.agents and found.start:
        assert len(alive) + len(starts) <= slots.agents
    for skill, cap in slots.skills.items():
        begun = sum(one.route.skill == skill for one in found.start)
        there = sum(DEFAULT[noun].skill == skill for _, noun in alive if noun in DEFAULT)
        assert not begun or begun + there <= cap
    if slots.pause:
        assert len(found.start) <= 1
        assert last is None or not found.start or NOW - last >= SECOND
    if found.again is not None:
        assert found.again > NOW


@settings(max_examples=200, deadline=None)
@given(ITEMS)
def test_all_that_may_start_is_started_one_by_one_until_nothing_waits_for_its_turn(items):
    routes = {**DEFAULT, "unheard": Route("unheard", "unheard", "agent", 9)}
    done, now, last = [], NOW, None
    for _ in range(100):
        have = {(one.path, one.noun) for one in done}
        left = [one for one in items if (one.path, one.noun) not in have]
        found = plan(left, [], routes, Slots(agents=1), now, last)
        if not found.start and found.again is None:
            break
        done += [one.item for one in found.start]
        now, last = found.again or now + SECOND, now if found.start else last
    assert {(one.path, one.noun) for one in done} == {
        (one.path, one.noun) for one in items if one.approved is not None and not one.held
    }
    assert [one.weight for one in done] == sorted(one.weight for one in done)
