import timeit

import pytest
from msgspec.structs import replace

from baton import errors
from baton.guards import ALLOW, CLAIM, GROUP, OFFER, Breaker, Facts, Verdict, decide
from baton.protocol import Autonomy, Budget, Handoff, Limits, Profile
from baton.protocol.codec import EPOCH
from baton.protocol.handoff import Rationale, Requirement, Validation

NOW = 10**15
FINE = Handoff(id="h1", from_agent="a", to_agent="b", hop=1)
KNOWN = Facts(now=NOW, started_at=NOW, target=Profile(agent_id="b"), sender=Profile(agent_id="a"))


def test_the_order_at_the_offer():
    assert [guard.__name__ for guard in OFFER] == [
        "registered", "handoffs", "agents", "depth", "seconds", "deadline", "loop", "affordable",
        "target_allowed", "hops", "autonomy_suffices", "risk", "accepting", "capable", "available", "rested",
        "approved",
    ]  # fmt: skip


def test_the_order_at_the_claim():
    assert [guard.__name__ for guard in CLAIM] == [
        "attempts",
        "seconds",
        "deadline",
        "risk",
        "approved",
        "has_capacity",
        "rested",
        "reserve",
    ]


def test_everything_that_can_be_wrong_is_said_in_that_order():
    """Start with every rule broken, cure what is named, and see the next."""
    broken = replace(
        FINE,
        depth=9,
        deadline=EPOCH,
        budget=Budget(max_tokens=9),
        audit=Rationale(risk_level="high"),
        validation=Validation(
            autonomy_budget=Autonomy(max_tokens=9), required_capabilities=(Requirement(capability_id="art"),)
        ),
    )
    target = Profile(agent_id="b", autonomy_budget=Autonomy(max_risk="low", max_tokens=1), accepts_handoffs=False)
    facts = Facts(
        now=NOW,
        handoffs=1,
        agents=("a", "c"),
        repeats=1,
        visits=1,
        sender=Profile(agent_id="a", allowed_targets=(), autonomy_budget=Autonomy(max_hops=0)),
        away="suspect: silent",
        breakers=(Breaker("agent:b", "error", 3, 1, NOW),),
    )
    limits = Limits(
        max_handoffs=1,
        max_agents=2,
        max_depth=1,
        max_seconds=1,
        max_tokens=8,
        approve=("b",),
        approve_risk="high",
    )

    def handing(**fields):
        return lambda handoff, facts, limits: (replace(handoff, **fields), facts, limits)

    def knowing(**fields):
        return lambda handoff, facts, limits: (handoff, replace(facts, **fields), limits)

    def limiting(**fields):
        return lambda handoff, facts, limits: (handoff, facts, replace(limits, **fields))

    def receiving(**fields):
        return lambda handoff, facts, limits: (
            handoff, replace(facts, target=replace(facts.target, **fields)), limits,
        )  # fmt: skip

    cures = {
        "registered": knowing(target=target),
        "max_handoffs": limiting(max_handoffs=2),
        "max_agents": limiting(max_agents=3),
        "max_depth": handing(depth=1),
        "max_seconds": knowing(started_at=NOW),
        "deadline": handing(deadline=None),
        "loops": knowing(repeats=0, visits=0),
        "max_tokens": handing(budget=Budget(max_tokens=8)),
        "allowed_targets": knowing(sender=replace(facts.sender, allowed_targets=("b",))),
        "max_hops": knowing(sender=None),
        "autonomy_budget": handing(validation=replace(broken.validation, autonomy_budget=None)),
        "max_risk": receiving(autonomy_budget=None),
        "accepts_handoffs": receiving(accepts_handoffs=True),
        "required_capabilities": receiving(capabilities={"art": 1.0}),
        "available": knowing(away=""),
        "breaker": knowing(breakers=()),
        "approve": limiting(approve=()),
        "approve_risk": limiting(approve_risk=None),
    }
    said, state = [], (broken, facts, limits)
    kinds = []
    while (verdict := decide(OFFER, *state)).kind != "allow":
        assert issubclass(getattr(errors, verdict.error), errors.BatonError)
        assert "; " in verdict.reason
        assert verdict.allowed
        said.append(verdict.limit)
        kinds.append(verdict.kind)
        state = cures[verdict.limit](*state)
    assert said == list(cures)
    assert kinds == ["refuse"] * 11 + ["escalate"] + ["reject"] * 4 + ["ask"] * 2


def test_what_nobody_objects_to_is_the_shared_allow():
    for order in (OFFER, CLAIM):
        assert decide(order, FINE, KNOWN, Limits()) is ALLOW


def always(verdict):
    return lambda handoff, facts, limits: verdict


def never(handoff, facts, limits):
    pytest.fail("asked after an objection")


def test_warnings_are_collected_and_grants_are_kept():
    order = (
        always(Verdict(warnings=("one",), probe=True)),
        always(ALLOW),
        always(Verdict(warnings=("two",), reserve_tokens=5, reserve_cost=7)),
    )
    verdict = decide(order, FINE, KNOWN, Limits())
    assert verdict == Verdict(warnings=("one", "two"), probe=True, reserve_tokens=5, reserve_cost=7)


@pytest.mark.parametrize(("kind", "aside"), [("refuse", 0), ("reject", 0), ("escalate", 0), ("ask", 5)])
def test_the_first_objection_wins_and_grants_nothing_but_money_to_what_waits(kind, aside):
    order = (
        always(Verdict(warnings=("one",), probe=True, reserve_tokens=5)),
        always(Verdict(kind, "why", limit="approve", warnings=("two",))),
        never,
    )
    verdict = decide(order, FINE, KNOWN, Limits())
    assert verdict == Verdict(kind, "why", limit="approve", warnings=("one", "two"), reserve_tokens=aside)


def test_in_a_group_money_is_set_aside_before_a_person_is_asked():
    verdict = decide(GROUP, FINE, KNOWN, Limits(max_tokens=600, approve=("b",)))
    assert (verdict.kind, verdict.limit, verdict.reserve_tokens) == ("ask", "approve", 100)
    short = decide(GROUP, FINE, replace(KNOWN, tokens_spent=600), Limits(max_tokens=600, approve=("b",)))
    assert (short.kind, short.error) == ("refuse", "BudgetExceeded")


def test_nobody_is_asked_about_what_is_refused_anyway():
    limits = Limits(approve=("*",), max_handoffs=0)
    assert decide(OFFER, FINE, KNOWN, limits).kind == "refuse"
    assert decide(OFFER, replace(FINE, hop=0), KNOWN, limits).kind == "ask"


def test_a_probe_is_granted_at_the_claim():
    facts = replace(KNOWN, breakers=(Breaker("agent:b", "error", 3, 1, 0),))
    verdict = decide(CLAIM, FINE, facts, Limits(max_tokens=600))
    assert (verdict.kind, verdict.probe, verdict.reserve_tokens) == ("allow", True, 100)


def test_guards_do_not_change_their_arguments_and_always_agree():
    facts = replace(KNOWN, handoffs=5)
    first = decide(OFFER, FINE, facts, Limits())
    assert decide(OFFER, FINE, facts, Limits()) == first
    assert facts == replace(KNOWN, handoffs=5)


def test_a_decision_costs_microseconds():
    """Loose, for busy machines: the real numbers stand in benchmarks/."""
    limits, count = Limits(max_tokens=10_000, max_agents=5, max_seconds=60.0), 2000
    best = min(timeit.repeat(lambda: decide(OFFER, FINE, KNOWN, limits), number=count, repeat=5)) / count
    assert best < 50e-6
