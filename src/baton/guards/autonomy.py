"""Nobody gets work that is beyond what it may decide by itself, and nobody hands work where it may not."""

from __future__ import annotations

from baton.guards.base import ALLOW, Facts, Verdict
from baton.protocol.handoff import HUMAN, SUPERVISOR, Handoff
from baton.protocol.limits import RISKS, Autonomy, Limits


def target_allowed(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """The sender hands work only to the agents in its `allowed_targets`."""
    sender = facts.sender
    if sender is None or sender.allowed_targets is None:
        return ALLOW
    if handoff.to_agent in sender.allowed_targets or handoff.to_agent in {HUMAN, SUPERVISOR}:
        return ALLOW
    allowed = ", ".join(sender.allowed_targets) or "none but a person"
    return _refusal(
        "allowed_targets",
        f"{handoff.from_agent} may not hand work to {handoff.to_agent}",
        f"choose one of: {allowed}; or let the operator add {handoff.to_agent}",
        allowed,
    )


def hops(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """The chain is no longer than the autonomy of its sender and its receiver."""
    for agent in (facts.sender, facts.target):
        if agent is None or agent.autonomy_budget is None or handoff.to_agent == HUMAN:
            continue
        most = agent.autonomy_budget.max_hops
        if most is not None and handoff.hop > most:
            return _refusal(
                "max_hops",
                f"this is hop {handoff.hop} and {agent.agent_id} takes part up to hop {most}",
                f"answer without another handoff, hand it to {HUMAN}, or raise max_hops of {agent.agent_id}",
                f"hop {most} or less",
            )
    return ALLOW


def autonomy_suffices(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """The receiver has at least the autonomy that the work is said to need."""
    needed = handoff.validation.autonomy_budget
    if needed is None or facts.target is None or facts.target.autonomy_budget is None:
        return ALLOW
    held = facts.target.autonomy_budget
    gaps = _gaps(needed, held)
    if not gaps:
        return ALLOW
    return _refusal(
        "autonomy_budget",
        f"{handoff.to_agent} has less autonomy than this needs: " + ", ".join(gap for gap, _ in gaps),
        f"ask for less, choose an agent with more, or raise autonomy_budget of {handoff.to_agent}",
        ", ".join(most for _, most in gaps),
    )


def risk(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """Work riskier than the receiver may take goes up instead."""
    if facts.target is None or facts.target.autonomy_budget is None:
        return ALLOW
    level, most = handoff.audit.risk_level, facts.target.autonomy_budget.max_risk
    if RISKS.index(level) <= RISKS.index(most):
        return ALLOW
    reason = (
        f"max_risk: the risk is {level} and {handoff.to_agent} may take {most}; escalate it, choose an agent "
        f"with more autonomy, or raise max_risk of {handoff.to_agent}"
    )
    return Verdict("escalate", reason, "NotAuthorised", "max_risk", f"{most} risk or lower")


def accepting(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """An agent that accepts no handoffs still answers the request that starts a workflow."""
    if facts.target is None or facts.target.accepts_handoffs or handoff.hop == 0:
        return ALLOW
    reason = (
        f"accepts_handoffs: {handoff.to_agent} accepts no handoffs; choose another agent, or register it "
        "with accepts_handoffs=True"
    )
    return Verdict("reject", reason, "NotAuthorised", "accepts_handoffs", "requests that start a workflow")


def _gaps(needed: Autonomy, held: Autonomy) -> list[tuple[str, str]]:
    """What is needed and what is there, where it is too little; None is no limit and asks for nothing."""
    gaps = []
    # "high" is the default: it cannot be told from a risk that nobody stated. `audit.risk_level` states it.
    if needed.max_risk != "high" and RISKS.index(needed.max_risk) > RISKS.index(held.max_risk):
        gaps.append((f"max_risk {needed.max_risk} of {held.max_risk}", f"max_risk {held.max_risk}"))
    for name in ("max_tokens", "max_cost", "max_hops"):
        wanted, most = getattr(needed, name), getattr(held, name)
        if wanted is not None and most is not None and wanted > most:
            gaps.append((f"{name} {wanted} of {most}", f"{name} {most}"))
    return gaps


def _refusal(limit: str, hit: str, cure: str, allowed: str) -> Verdict:
    return Verdict("refuse", f"{limit}: {hit}; {cure}", "NotAuthorised", limit, allowed)
