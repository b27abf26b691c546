import pytest

from baton.guards.triggers import (
    capability_mismatch,
    escalation,
    explicit_request,
    task_completion,
    timeout,
)
from baton.protocol import Autonomy, Handoff, Profile, Return
from baton.protocol.handoff import Requirement
from baton.protocol.results import Command, Defer, Send

NOW = 1_000_000_000_000_000
SECOND = 1_000_000


@pytest.mark.parametrize(
    ("status", "following", "due"),
    [
        ("success", "reviewer", True),
        ("success", "", False),
        ("success", None, False),
        ("partial", "reviewer", False),
        ("failed", "reviewer", False),
    ],
)
def test_task_completion(status, following, due):
    trigger = task_completion(Return(from_agent="implementer", status=status), following)
    assert (trigger is not None) is due
    if trigger:
        assert trigger.kind == "task_completion"
        assert trigger.reason == "implementer is done, reviewer comes next"


@pytest.mark.parametrize(
    ("required", "lacking"),
    [
        ([], ""),
        ([("code", 0.0)], ""),
        ([("code", 0.8)], ""),
        ([("code", 0.9)], "code"),
        ([("security", 0.0)], "security"),
        ([("security", 0.0), ("code", 0.0), ("law", 0.1)], "security, law"),
    ],
)
def test_capability_mismatch(required, lacking):
    agent = Profile(agent_id="implementer", capabilities={"code": 0.8})
    needs = [Requirement(capability_id=name, min_proficiency=least) for name, least in required]
    trigger = capability_mismatch(agent, needs)
    if lacking:
        assert (trigger.kind, trigger.reason) == ("capability_mismatch", f"implementer lacks {lacking}")
    else:
        assert trigger is None


@pytest.mark.parametrize(
    ("autonomy", "risk", "tokens", "cost", "reason"),
    [
        (None, "high", 10**9, 10**9, ""),
        (Autonomy(max_risk="medium"), "medium", 0, 0, ""),
        (Autonomy(max_risk="medium"), "high", 0, 0, "the risk is high and worker may take medium"),
        (Autonomy(max_risk="low"), "medium", 0, 0, "the risk is medium and worker may take low"),
        (Autonomy(max_tokens=10), "low", 10, 0, ""),
        (Autonomy(max_tokens=10), "low", 11, 0, "worker has used 11 of 10 (tokens)"),
        (Autonomy(max_cost=0.5), "low", 0, 500_000, ""),
        (Autonomy(max_cost=0.5), "low", 0, 500_001, "worker has used 0.500001 of 0.5 (money)"),
    ],
)
def test_escalation(autonomy, risk, tokens, cost, reason):
    trigger = escalation(Profile(agent_id="worker", autonomy_budget=autonomy), risk, tokens, cost)
    if reason:
        assert (trigger.kind, trigger.reason) == ("escalation", reason)
    else:
        assert trigger is None


@pytest.mark.parametrize(("ends", "due"), [(None, False), (1, False), (0, True), (-1, True)])
def test_timeout(ends, due):
    handoff = Handoff(from_agent="a", to_agent="worker")
    trigger = timeout(handoff, None if ends is None else NOW + ends, NOW)
    assert (trigger is not None) == due
    if due:
        assert (trigger.kind, trigger.reason[:28]) == ("timeout", "worker has not answered by 2")


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Command(goto="architect"), "implementer asks for architect"),
        (Command(goto="architect", reason="unclear"), "unclear"),
        (Command(goto=[Send("a"), Send("b")]), "implementer asks for a, b"),
        (Return(), None),
        (Defer("later"), None),
        ("text", None),
    ],
)
def test_explicit_request(outcome, reason):
    trigger = explicit_request("implementer", outcome)
    if reason is None:
        assert trigger is None
    else:
        assert (trigger.kind, trigger.reason) == ("explicit_request", reason)
