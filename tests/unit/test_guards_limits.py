from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton import errors
from baton.guards import ALLOW, Facts, decide
from baton.guards import limits as guards
from baton.guards.loops import loop
from baton.protocol import Handoff, Limits
from baton.protocol.codec import to_time

NOW = 1_000_000_000_000_000


def handoff(**fields):
    return Handoff(**{"id": "h1", "from_agent": "a", "to_agent": "b", "hop": 1, **fields})


def facts(**fields):
    return Facts(**{"now": NOW, "started_at": NOW, **fields})


def speaks(verdict, *parts):
    """Every refusal names its limit, the values and a cure."""
    assert issubclass(getattr(errors, verdict.error), errors.BatonError)
    assert verdict.limit
    assert verdict.allowed
    assert "; " in verdict.reason
    for part in parts:
        assert str(part) in verdict.reason, verdict.reason


@pytest.mark.parametrize(
    ("made", "limit", "fields", "allowed"),
    [
        (4, 5, {}, True),
        (5, 5, {}, False),
        (6, 5, {}, False),
        (0, 0, {}, False),
        (0, 0, {"hop": 0}, True),
        (0, 1, {}, True),
        (1000, None, {}, True),
        (5, 5, {"attempt": 1}, True),
        (5, 5, {"reroutes": 1}, True),
        (5, 5, {"to_agent": "human"}, True),
    ],
)
def test_max_handoffs(made, limit, fields, allowed):
    verdict = guards.handoffs(handoff(**fields), facts(handoffs=made), Limits(max_handoffs=limit))
    assert (verdict is ALLOW) is allowed
    if not allowed:
        assert (verdict.kind, verdict.error, verdict.limit) == ("refuse", "LimitExceeded", "max_handoffs")
        speaks(verdict, "max_handoffs", made, limit, f"Limits(max_handoffs={made + 1})")


@pytest.mark.parametrize(("made", "more", "allowed"), [(0, 4, True), (0, 6, False), (3, 2, False)])
def test_a_group_is_told_how_many_it_needs(made, more, allowed):
    verdict = guards.handoffs(handoff(), facts(handoffs=made, more=more), Limits(max_handoffs=5))
    assert (verdict is ALLOW) == allowed
    if not allowed:
        speaks(verdict, f"{made} handoffs were made", f"Limits(max_handoffs={made + 1 + more})")


@pytest.mark.parametrize(
    ("present", "to", "limit", "allowed"),
    [
        (("a",), "b", 2, True),
        (("a", "c"), "b", 2, False),
        (("a", "b"), "b", 2, True),
        (("a", "b", "c"), "b", 2, False),
        ((), "b", 1, True),
        ((), "b", 0, False),
        (("a",) * 1000, "b", None, True),
        (("a", "c"), "human", 2, True),
        (("supervisor", "a"), "b", 2, True),
        (("supervisor", "human", "a"), "b", 2, True),
        (("supervisor", "human", "a", "c"), "b", 2, False),
        ((), "supervisor", 0, True),
    ],
)
def test_max_agents(present, to, limit, allowed):
    verdict = guards.agents(handoff(to_agent=to), facts(agents=present), Limits(max_agents=limit))
    assert (verdict is ALLOW) is allowed
    if not allowed:
        assert (verdict.kind, verdict.error, verdict.limit) == ("refuse", "LimitExceeded", "max_agents")
        speaks(verdict, "max_agents", *(set(present) - {"supervisor", "human"}), "Limits(max_agents=")
        assert "supervisor" not in verdict.reason


@pytest.mark.parametrize(
    ("depth", "limit", "to", "allowed"),
    [(16, 16, "b", True), (17, 16, "b", False), (1, 0, "b", False), (0, 0, "b", True), (99, None, "b", True),
     (17, 16, "human", True)],
)  # fmt: skip
def test_max_depth(depth, limit, to, allowed):
    verdict = guards.depth(handoff(depth=depth, to_agent=to), facts(), Limits(max_depth=limit))
    assert (verdict is ALLOW) is allowed
    if not allowed:
        assert (verdict.kind, verdict.error) == ("refuse", "LimitExceeded")
        speaks(verdict, "max_depth", depth, limit, f"Limits(max_depth={depth})")


@pytest.mark.parametrize(
    ("taken", "limit", "to", "allowed"),
    [(59_999_999, 60, "b", True), (60_000_000, 60, "b", False), (0, 0, "b", False), (10**15, None, "b", True),
     (0, 0.5, "b", True), (500_000, 0.5, "b", False), (10**12, 60, "human", True)],
)  # fmt: skip
def test_max_seconds(taken, limit, to, allowed):
    verdict = guards.seconds(handoff(to_agent=to), facts(started_at=NOW - taken), Limits(max_seconds=limit))
    assert (verdict is ALLOW) is allowed
    if not allowed:
        assert (verdict.kind, verdict.error, verdict.limit) == ("refuse", "LimitExceeded", "max_seconds")
        speaks(verdict, "max_seconds", f"{limit:g} s", "Limits(max_seconds=")


@pytest.mark.parametrize(("microseconds", "allowed"), [(None, True), (1, True), (0, False), (-1_500_000, False)])
def test_deadline(microseconds, allowed):
    deadline = None if microseconds is None else to_time(NOW) + timedelta(microseconds=microseconds)
    verdict = guards.deadline(handoff(deadline=deadline), facts(), Limits())
    assert (verdict is ALLOW) is allowed
    if not allowed:
        assert (verdict.kind, verdict.error, verdict.limit) == ("refuse", "LimitExceeded", "deadline")
        speaks(verdict, "deadline", "2001-09-09", "deadline=")


@given(
    made=st.integers(0, 20),
    limit=st.integers(0, 20),
    present=st.sets(st.sampled_from("abcdefg")),
    most=st.integers(0, 7),
    depth=st.integers(0, 20),
    deepest=st.integers(0, 20),
)
def test_nothing_is_allowed_past_a_limit(made, limit, present, most, depth, deepest):
    limits = Limits(max_handoffs=limit, max_agents=most, max_depth=deepest)
    known = facts(handoffs=made, agents=tuple(present))
    verdict = decide((guards.handoffs, guards.agents, guards.depth), handoff(depth=depth), known, limits)
    after = (made + 1 <= limit, len(present | {"b"}) <= most, depth <= deepest)
    assert (verdict.kind == "allow") is all(after)


@given(limit=st.integers(0, 8))
def test_a_workflow_makes_exactly_as_many_handoffs_as_its_limit_allows(limit):
    made = 0
    while guards.handoffs(handoff(), facts(handoffs=made), Limits(max_handoffs=limit)).kind == "allow":
        made += 1
    assert made == limit


@pytest.mark.parametrize(
    ("repeats", "visits", "limits", "fields", "hit"),
    [
        (0, 0, Limits(), {}, ""),
        (0, 1, Limits(), {}, ""),
        (0, 2, Limits(), {}, "max_same_visits"),
        (1, 1, Limits(), {}, "loops"),
        (5, 5, Limits(), {"hop": 0}, ""),
        (0, 0, Limits(max_same_visits=0), {}, "max_same_visits"),
        (0, 1, Limits(max_same_visits=1), {}, "max_same_visits"),
        (0, 1, Limits(), {"from_agent": "b"}, "loops"),
        (1, 2, Limits(), {"from_agent": "b"}, "loops"),
        (0, 0, Limits(), {"from_agent": "b"}, ""),
        (3, 4, Limits(loops={"a->b": 3}), {}, ""),
        (4, 5, Limits(loops={"a->b": 3}), {}, "loops"),
        (0, 1, Limits(loops={"a->b": 0}), {}, ""),
        (1, 2, Limits(loops={"a->b": 0}), {}, "loops"),
        (0, 3, Limits(loops={"c->b": 3}), {}, ""),
        (0, 4, Limits(loops={"c->b": 3}), {}, "max_same_visits"),
        (1, 1, Limits(loops={"c->b": 3}), {}, "loops"),
        (1, 1, Limits(loops={"b->a": 3}), {}, "loops"),
        (0, 2, Limits(loops={"c->bb": 9}), {}, "max_same_visits"),
        (2, 3, Limits(loops={"b->b": 2}), {"from_agent": "b"}, ""),
        (3, 4, Limits(loops={"b->b": 2}), {"from_agent": "b"}, "loops"),
    ],
)
def test_loops(repeats, visits, limits, fields, hit):
    verdict = loop(handoff(**fields), facts(repeats=repeats, visits=visits), limits)
    assert verdict.limit == hit
    if hit:
        assert (verdict.kind, verdict.error) == ("refuse", "LoopDetected")
        speaks(verdict, hit, "->b", "new task=", "attach an artifact", "Limits(loops={")
    else:
        assert verdict is ALLOW


@given(
    edges=st.dictionaries(st.sampled_from(["a->b", "b->a", "c->b", "a->c", "b->b"]), st.integers(0, 4)),
    path=st.lists(st.sampled_from("abc"), min_size=60, max_size=60),
)
def test_a_walk_with_nothing_new_ends_and_no_edge_repeats_more_than_declared(edges, path):
    limits = Limits(loops=edges)
    made: list[tuple[str, str]] = [("user", "a")]
    for to in path:
        step = (made[-1][1], to)
        known = facts(repeats=made.count(step), visits=sum(there == to for _, there in made))
        if loop(handoff(from_agent=step[0], to_agent=to), known, limits) is ALLOW:
            made.append(step)
    for edge in set(made):
        assert made.count(edge) <= edges.get("->".join(edge), 0) + 1
    assert len(made) <= 1 + 9 * 5


@pytest.mark.parametrize("number", [1, 3])
def test_the_cure_in_the_message_is_a_cure(number):
    known = facts(repeats=number, visits=number)
    limits = Limits() if number == 1 else Limits(loops={"a->b": number - 1})
    verdict = loop(handoff(), known, limits)
    declared = eval(verdict.reason.rpartition("declare ")[2], {"Limits": Limits})
    assert loop(handoff(), known, declared) is ALLOW
