"""Whose work, or which risk, a person approves before it starts."""

from __future__ import annotations

from baton.guards.base import ALLOW, Facts, Verdict
from baton.protocol.handoff import HUMAN, Handoff
from baton.protocol.limits import RISKS, Limits


def approved(handoff: Handoff, _facts: Facts, limits: Limits) -> Verdict:
    """Wait for a person where `approve` names the receiver, or the risk is `approve_risk` or higher."""
    if (not limits.approve and limits.approve_risk is None) or handoff.to_agent == HUMAN or handoff.approved_by:
        return ALLOW
    if handoff.to_agent in limits.approve or "*" in limits.approve:
        return _ask(handoff, "approve", f"work for {handoff.to_agent}")
    level = handoff.audit.risk_level
    if limits.approve_risk is not None and RISKS.index(level) >= RISKS.index(limits.approve_risk):
        return _ask(handoff, "approve_risk", f"{level} risk")
    return ALLOW


def _ask(handoff: Handoff, limit: str, what: str) -> Verdict:
    reason = (
        f"{limit}: a person approves {what} first; `baton approve {handoff.id}` lets it start, "
        f"`baton deny {handoff.id}` ends it"
    )
    return Verdict("ask", reason, "ApprovalDenied", limit, "after an approval")
