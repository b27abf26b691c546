"""The same work again with nothing new.

Looked at over the whole chain of handoffs, so that cycles of any length are found. A loop that is meant, such
as a reviewer who sends drafts back, is declared with its own number.
"""

from __future__ import annotations

from baton.guards.base import ALLOW, Facts, Verdict
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits


def loop(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
    """Refuse a handoff that was already made with the same content, and one visit too many."""
    if not facts.visits and not facts.repeats and limits.max_same_visits != 0:
        return ALLOW
    if handoff.hop == 0:
        return ALLOW
    edge = f"{handoff.from_agent}->{handoff.to_agent}"
    declared = limits.loops.get(edge)
    if declared is not None:
        return ALLOW if facts.repeats <= declared else _too_often(edge, facts.repeats, declared)
    # Work that is handed to its own sender came to that sender once already.
    repeats = facts.visits if handoff.from_agent == handoff.to_agent else facts.repeats
    if repeats:
        return _repeated(edge, repeats)
    allowed = _visits(handoff.to_agent, limits)
    return (
        ALLOW if allowed is None or facts.visits < allowed else _visited(edge, handoff.to_agent, facts.visits, allowed)
    )


def _visits(agent: str, limits: Limits) -> int | None:
    """How often the same content may reach an agent; a declared loop adds the first time."""
    if limits.max_same_visits is None:
        return None
    declared = [number + 1 for edge, number in limits.loops.items() if edge.endswith(f"->{agent}")]
    return max(limits.max_same_visits, *declared) if declared else limits.max_same_visits


def _repeated(edge: str, repeats: int) -> Verdict:
    hit = f"{edge} was already made {repeats} time{'s' * (repeats != 1)} with the same task, goal and artifacts"
    return _refusal("loops", f"{hit}, and 0 repeats are allowed", _cure(edge, 3), "a first time for this content")


def _too_often(edge: str, repeats: int, declared: int) -> Verdict:
    hit = f"this would be repeat {repeats} of {edge} with nothing new, and {declared} are declared"
    return _refusal("loops", hit, _cure(edge, repeats), f"{declared} repeats of {edge}")


def _visited(edge: str, agent: str, visits: int, allowed: int) -> Verdict:
    hit = f"the same task, goal and artifacts came to {agent} {visits} times, and {allowed} are allowed"
    return _refusal("max_same_visits", hit, _cure(edge, max(3, visits)), f"{allowed} visits with the same content")


def _cure(edge: str, number: int) -> str:
    return f'give a new task=, attach an artifact, or declare Limits(loops={{"{edge}": {number}}})'


def _refusal(limit: str, hit: str, cure: str, allowed: str) -> Verdict:
    return Verdict("refuse", f"{limit}: {hit}; {cure}", "LoopDetected", limit, allowed)
