import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.guards import ALLOW, Facts
from baton.guards.budget import affordable, left_cost, left_tokens, reserve
from baton.protocol import Budget, Handoff, Limits
from baton.protocol.limits import MILLION


def handoff(budget=None, to="b"):
    return Handoff(id="h1", from_agent="a", to_agent=to, hop=1, budget=budget)


def tokens(number):
    return Budget(max_tokens=number)


@pytest.mark.parametrize(
    ("limit", "spent", "reserved", "budget", "allowed"),
    [
        (None, 10**9, 10**9, None, True),
        (None, 10**9, 10**9, tokens(10**9), True),
        (100, 0, 0, None, True),
        (100, 60, 39, None, True),
        (100, 60, 40, None, False),
        (100, 60, 50, None, False),
        (0, 0, 0, None, False),
        (100, 60, 10, tokens(30), True),
        (100, 60, 10, tokens(31), False),
        (100, 100, 0, tokens(0), True),
        (0, 0, 0, tokens(0), True),
        (100, 100, 0, tokens(1), False),
        (100, 60, 10, Budget(max_cost=5.0), True),
    ],
)
def test_tokens(limit, spent, reserved, budget, allowed):
    facts = Facts(now=0, tokens_spent=spent, tokens_reserved=reserved)
    for guard in (affordable, reserve):
        verdict = guard(handoff(budget), facts, Limits(max_tokens=limit))
        assert (verdict.kind == "allow") is allowed
        if not allowed:
            assert (verdict.kind, verdict.error, verdict.limit) == ("refuse", "BudgetExceeded", "max_tokens")
            assert verdict.reason.startswith("max_tokens: ")
            assert "tokens" in verdict.allowed


@pytest.mark.parametrize(
    ("limit", "spent", "budget", "allowed"),
    [
        (None, 10**12, None, True),
        (2.5, 2_499_999, None, True),
        (2.5, 2_500_000, None, False),
        (0, 0, None, False),
        (2.5, 2_000_000, Budget(max_cost=0.5), True),
        (2.5, 2_000_000, Budget(max_cost=0.500001), False),
        (0.3, 200_000, Budget(max_cost=0.1), True),  # exact, where floats would say 0.09999…
    ],
)
def test_money(limit, spent, budget, allowed):
    facts = Facts(now=0, cost_spent=spent)
    for guard in (affordable, reserve):
        verdict = guard(handoff(budget), facts, Limits(max_cost=limit))
        assert (verdict.kind == "allow") is allowed
        if not allowed:
            assert (verdict.kind, verdict.error, verdict.limit) == ("refuse", "BudgetExceeded", "max_cost")


def test_what_others_hold_is_named():
    verdict = affordable(handoff(tokens(400)), Facts(now=0, tokens_reserved=75), Limits(max_tokens=450))
    assert "375 tokens of 450 tokens left in this workflow, 75 tokens set aside for work under way" in verdict.reason
    assert "set aside" not in affordable(handoff(tokens(9)), Facts(now=0), Limits(max_tokens=8)).reason


def test_a_budget_that_is_too_high_is_told_what_is_left():
    facts = Facts(now=0, tokens_spent=60, tokens_reserved=10, cost_spent=2_000_000)
    verdict = affordable(handoff(tokens(31)), facts, Limits(max_tokens=100))
    assert "31 tokens" in verdict.reason
    assert "30 tokens of 100 tokens left" in verdict.reason
    assert "Budget(max_tokens=30)" in verdict.reason
    verdict = affordable(handoff(tokens(1)), facts, Limits(max_tokens=70))
    assert "0 tokens of 70 tokens left" in verdict.reason
    assert "higher Limits(max_tokens=…)" in verdict.reason
    verdict = affordable(handoff(Budget(max_cost=1.0)), facts, Limits(max_cost=2.5))
    assert "a cost of 0.5 of a cost of 2.5 left" in verdict.reason
    assert "Budget(max_cost=0.5)" in verdict.reason


@pytest.mark.parametrize(
    ("made", "most", "limit", "budget", "expected"),
    [
        (0, 5, 600, None, 100),  # the first request of a workflow and the five that may come
        (1, 5, 600, None, 120),
        (5, 5, 600, None, 600),
        (9, 5, 600, None, 600),
        (0, 0, 600, None, 600),
        (0, None, 600, None, 100),
        (50, None, 600, None, 100),
        (0, 5, 3, None, 1),
        (0, 5, None, None, 0),
        (0, 5, None, tokens(70), 70),
        (0, 5, 600, tokens(70), 70),
        (0, 5, 600, tokens(0), 0),
    ],
)
def test_what_is_set_aside(made, most, limit, budget, expected):
    verdict = reserve(handoff(budget), Facts(now=0, handoffs=made), Limits(max_handoffs=most, max_tokens=limit))
    assert (verdict.kind, verdict.reserve_tokens, verdict.reserve_cost) == ("allow", expected, 0)
    assert expected or verdict is ALLOW


def test_money_is_set_aside_in_millionths():
    verdict = reserve(handoff(), Facts(now=0, handoffs=4), Limits(max_cost=1.0))
    assert (verdict.reserve_tokens, verdict.reserve_cost) == (0, MILLION // 2)


def test_a_person_costs_nothing():
    facts = Facts(now=0, tokens_spent=100)
    assert affordable(handoff(to="human"), facts, Limits(max_tokens=100)) is ALLOW
    assert reserve(handoff(to="human"), facts, Limits(max_tokens=100)) is ALLOW


SIZES = st.none() | st.integers(0, 2000)


@given(
    limit=SIZES, cap=SIZES, own=SIZES, own_cost=SIZES, spent=st.integers(0, 1500), held=st.integers(0, 1500),
    made=st.integers(0, 10), most=st.none() | st.integers(0, 8),
)  # fmt: skip
def test_what_is_set_aside_is_there_and_never_negative(limit, cap, own, own_cost, spent, held, made, most):
    limits = Limits(max_tokens=limit, max_cost=None if cap is None else cap / MILLION, max_handoffs=most)
    facts = Facts(now=0, handoffs=made, tokens_spent=spent, tokens_reserved=held, cost_spent=spent)
    budget = Budget(max_tokens=own, max_cost=None if own_cost is None else own_cost / MILLION)
    verdict = reserve(handoff(budget), facts, limits)
    assert (verdict.kind == "allow") is (affordable(handoff(budget), facts, limits) is ALLOW)
    pairs = (
        (verdict.reserve_tokens, left_tokens(facts, limits), own),
        (verdict.reserve_cost, left_cost(facts, limits), own_cost),
    )
    for amount, left, asked in pairs:
        assert amount >= 0
        assert left is None or amount <= max(left, 0)
        if asked is not None and verdict.kind == "allow":
            assert amount == asked


@given(limit=st.integers(0, 10_000), most=st.integers(0, 8), uses=st.lists(st.floats(0, 1), min_size=30))
def test_a_workflow_never_sets_aside_more_than_its_limit(limit, most, uses):
    limits, spent, held = Limits(max_tokens=limit, max_handoffs=most), 0, []
    for made, use in enumerate(uses[: most + 1]):
        facts = Facts(now=0, handoffs=made, tokens_spent=spent, tokens_reserved=sum(held))
        verdict = reserve(handoff(), facts, limits)
        if verdict.kind == "allow":
            held.append(verdict.reserve_tokens)
        if held and use > 0.5:
            spent += int(held.pop(0) * use)
        assert spent + sum(held) <= limit
