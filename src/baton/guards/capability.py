"""Whether the receiver exists, and can do what the work needs."""

from __future__ import annotations

from msgspec.structs import replace

from baton.guards.base import ALLOW, Facts, Verdict
from baton.protocol.handoff import HUMAN, Handoff, Requirement
from baton.protocol.limits import Limits
from baton.protocol.profile import Profile


def registered(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """Refuse work for an agent that nobody registered; a person needs no registration."""
    if facts.target is not None or handoff.to_agent == HUMAN:
        return ALLOW
    reason = (
        f"agent {handoff.to_agent}: not registered; `baton agents list` shows who is, "
        f"`baton agents register {handoff.to_agent}` adds it"
    )
    return Verdict("refuse", reason, "UnknownAgent", "registered", "a registered agent")


def capable(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """All capabilities: allow. Some: allow with a warning, or reject where they are strict. None: reject."""
    required = handoff.validation.required_capabilities
    if not required or facts.target is None:
        return ALLOW
    gaps = [_gap(one, facts.target) for one in required if not _has(one, facts.target)]
    if not gaps:
        return ALLOW
    gap = ", ".join(gaps)
    if len(gaps) < len(required) and not handoff.validation.required_strictly:
        return replace(ALLOW, warnings=(f"{handoff.to_agent} lacks {gap}",))
    reason = (
        f"required_capabilities: {handoff.to_agent} has {len(required) - len(gaps)} of {len(required)} and "
        f"lacks {gap}; choose an agent that has them (`baton agents match`), require less, or add them"
    )
    allowed = "all of them" if handoff.validation.required_strictly else "at least one of them"
    return Verdict("reject", reason, "NotCapable", "required_capabilities", allowed)


def _has(required: Requirement, agent: Profile) -> bool:
    proficiency = agent.abilities.get(required.capability_id)
    return proficiency is not None and proficiency >= required.min_proficiency


def _gap(required: Requirement, agent: Profile) -> str:
    proficiency = agent.abilities.get(required.capability_id)
    if proficiency is None:
        return required.capability_id
    return f"{required.capability_id} (proficiency {proficiency:g} of {required.min_proficiency:g})"
