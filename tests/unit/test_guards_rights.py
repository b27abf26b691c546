from itertools import product

import pytest

from baton.guards import ALLOW, Facts
from baton.guards.approval import approved
from baton.guards.autonomy import accepting, autonomy_suffices, hops, risk, target_allowed
from baton.guards.capability import capable, registered
from baton.guards.capacity import has_capacity
from baton.guards.health import available
from baton.protocol import Autonomy, Handoff, Limits, Profile
from baton.protocol.handoff import Rationale, Requirement, Validation
from baton.protocol.limits import RISKS


def handoff(**fields):
    return Handoff(**{"id": "h1", "from_agent": "a", "to_agent": "b", "hop": 1, **fields})


def at_risk(level, **fields):
    return handoff(audit=Rationale(risk_level=level), **fields)


def needing(*required, strictly=False):
    capabilities = tuple(Requirement(capability_id=name, min_proficiency=least) for name, least in required)
    return handoff(validation=Validation(required_capabilities=capabilities, required_strictly=strictly))


def asking(**autonomy):
    return handoff(validation=Validation(autonomy_budget=Autonomy(**autonomy)))


def receiver(**fields):
    return Facts(now=0, target=Profile(agent_id="b", **fields))


def is_refusal(verdict, kind, error, limit, *parts):
    assert (verdict.kind, verdict.error, verdict.limit) == (kind, error, limit)
    assert verdict.allowed
    for part in (limit, *parts):
        assert part in verdict.reason, verdict.reason


@pytest.mark.parametrize(("level", "most"), list(product(RISKS, RISKS)))
def test_risk_above_the_receivers_goes_up(level, most):
    verdict = risk(at_risk(level), receiver(autonomy_budget=Autonomy(max_risk=most)), Limits())
    if RISKS.index(level) <= RISKS.index(most):
        assert verdict is ALLOW
    else:
        is_refusal(verdict, "escalate", "NotAuthorised", "max_risk", level, most, "escalate it")


def test_an_agent_without_an_autonomy_budget_has_no_limit_of_its_own():
    for guard in (risk, hops, autonomy_suffices):
        assert guard(at_risk("high", hop=99), receiver(), Limits()) is ALLOW
        assert guard(at_risk("high", hop=99, to_agent="human"), Facts(now=0), Limits()) is ALLOW


@pytest.mark.parametrize(
    ("needed", "held", "hit"),
    [
        ({"max_tokens": 100}, {"max_tokens": 100}, ""),
        ({"max_tokens": 101}, {"max_tokens": 100}, "max_tokens 101 of 100"),
        ({"max_tokens": 100}, {}, ""),
        ({}, {"max_tokens": 100}, ""),
        ({"max_cost": 0.5}, {"max_cost": 0.25}, "max_cost 0.5 of 0.25"),
        ({"max_hops": 2}, {"max_hops": 1}, "max_hops 2 of 1"),
        ({"max_hops": 0}, {"max_hops": 0}, ""),
        ({"max_risk": "medium"}, {"max_risk": "low"}, "max_risk medium of low"),
        ({"max_risk": "low"}, {"max_risk": "low"}, ""),
        ({"max_tokens": 10}, {"max_tokens": 10, "max_risk": "low"}, ""),  # a bare number states no risk
    ],
)
def test_required_autonomy(needed, held, hit):
    verdict = autonomy_suffices(asking(**needed), receiver(autonomy_budget=Autonomy(**held)), Limits())
    if hit:
        is_refusal(verdict, "refuse", "NotAuthorised", "autonomy_budget", hit, "ask for less")
    else:
        assert verdict is ALLOW


@pytest.mark.parametrize("who", ["sender", "target"])
@pytest.mark.parametrize(("hop", "most", "fine"), [(0, 0, True), (1, 0, False), (2, 2, True), (3, 2, False)])
def test_max_hops_of_the_sender_and_of_the_receiver(who, hop, most, fine):
    agent = Profile(agent_id="x", autonomy_budget=Autonomy(max_hops=most))
    facts = Facts(**{"now": 0, who: agent})
    verdict = hops(handoff(hop=hop), facts, Limits())
    if fine:
        assert verdict is ALLOW
    else:
        is_refusal(verdict, "refuse", "NotAuthorised", "max_hops", f"hop {hop}", "raise max_hops of x")
    assert hops(handoff(hop=hop, to_agent="human"), facts, Limits()) is ALLOW


@pytest.mark.parametrize(
    ("targets", "to", "fine"),
    [
        (None, "b", True),
        (("b",), "b", True),
        (("c",), "b", False),
        ((), "b", False),
        ((), "human", True),
    ],
)
def test_allowed_targets(targets, to, fine):
    facts = Facts(now=0, sender=Profile(agent_id="a", allowed_targets=targets))
    verdict = target_allowed(handoff(to_agent=to), facts, Limits())
    if fine:
        assert verdict is ALLOW
    else:
        is_refusal(verdict, "refuse", "NotAuthorised", "allowed_targets", "a may not hand work to b", "choose one")


def test_a_sender_that_is_no_agent_may_hand_work_to_anybody():
    assert target_allowed(handoff(from_agent="user"), Facts(now=0), Limits()) is ALLOW


def test_an_agent_that_accepts_no_handoffs():
    closed = receiver(accepts_handoffs=False)
    is_refusal(
        accepting(handoff(), closed, Limits()),
        "reject",
        "NotAuthorised",
        "accepts_handoffs",
        "choose another",
    )
    assert accepting(handoff(hop=0), closed, Limits()) is ALLOW
    assert accepting(handoff(), receiver(), Limits()) is ALLOW


@pytest.mark.parametrize(
    ("required", "strictly", "kind", "gap"),
    [
        ([], False, "allow", ""),
        ([], True, "allow", ""),
        ([("sql", 0.0)], True, "allow", ""),
        ([("sql", 0.5)], False, "allow", ""),
        ([("sql", 0.51)], False, "reject", "sql (proficiency 0.5 of 0.51)"),
        ([("art", 0.0)], False, "reject", "art"),
        ([("sql", 0.0), ("art", 0.0)], False, "allow", "art"),
        ([("sql", 0.0), ("art", 0.0)], True, "reject", "art"),
        ([("sql", 0.9), ("zero", 0.0)], False, "allow", "sql (proficiency 0.5 of 0.9)"),
        ([("art", 0.0), ("sea", 0.0)], False, "reject", "art, sea"),
    ],
)
def test_capabilities(required, strictly, kind, gap):
    known = receiver(capabilities={"sql": 0.5, "zero": 0.0})
    verdict = capable(needing(*required, strictly=strictly), known, Limits())
    assert verdict.kind == kind
    if kind == "reject":
        is_refusal(verdict, "reject", "NotCapable", "required_capabilities", f"lacks {gap}", "choose an agent")
    elif gap:
        assert verdict.warnings == (f"b lacks {gap}",)
    else:
        assert verdict is ALLOW


def test_an_unknown_receiver_is_refused_and_a_person_is_not():
    verdict = registered(handoff(), Facts(now=0), Limits())
    is_refusal(verdict, "refuse", "UnknownAgent", "registered", "agent b", "baton agents register b")
    assert registered(handoff(), receiver(), Limits()) is ALLOW
    assert registered(handoff(to_agent="human"), Facts(now=0), Limits()) is ALLOW


def test_an_unavailable_receiver_is_rejected():
    verdict = available(handoff(), Facts(now=0, away="suspect: silent"), Limits())
    is_refusal(
        verdict, "reject", "Refused", "available", "b is suspect and gets no new work (silent)", "choose another agent"
    )
    assert available(handoff(), Facts(now=0), Limits()) is ALLOW
    assert available(handoff(to_agent="human"), Facts(now=0, away="suspect: silent"), Limits()) is ALLOW


@pytest.mark.parametrize(
    ("load", "most", "fine"), [(0, 1, True), (1, 1, False), (2, 1, False), (4, 5, True), (99, None, True)]
)
def test_capacity(load, most, fine):
    facts = Facts(now=0, load=load, target=Profile(agent_id="b", max_concurrent_tasks=most))
    verdict = has_capacity(handoff(), facts, Limits())
    if fine:
        assert verdict is ALLOW
    else:
        assert verdict.reason.startswith("at_capacity")
        is_refusal(
            verdict,
            "reject",
            "AtCapacity",
            "max_concurrent_tasks",
            f"{load} of {most}",
            "wait until one ends",
        )


@pytest.mark.parametrize(
    ("limits", "level", "to", "limit"),
    [
        (Limits(), "high", "b", ""),
        (Limits(approve=("b",)), "low", "b", "approve"),
        (Limits(approve=("c",)), "low", "b", ""),
        (Limits(approve=("*",)), "low", "b", "approve"),
        (Limits(approve=("*",)), "low", "human", ""),
        (Limits(approve_risk="low"), "low", "b", "approve_risk"),
        (Limits(approve_risk="medium"), "low", "b", ""),
        (Limits(approve_risk="medium"), "medium", "b", "approve_risk"),
        (Limits(approve_risk="medium"), "high", "b", "approve_risk"),
        (Limits(approve=("c",), approve_risk="high"), "high", "b", "approve_risk"),
    ],
)
def test_approval(limits, level, to, limit):
    verdict = approved(at_risk(level, to_agent=to), Facts(now=0), limits)
    if limit:
        is_refusal(verdict, "ask", "ApprovalDenied", limit, "baton approve h1", "baton deny h1")
    else:
        assert verdict is ALLOW
