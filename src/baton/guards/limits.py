"""How many handoffs, agents and levels, and how long. The way to a person is never cut off by a count."""

from __future__ import annotations

from baton.guards.base import ALLOW, Facts, Verdict
from baton.protocol.codec import iso, to_microseconds
from baton.protocol.handoff import HUMAN, SUPERVISOR, Handoff
from baton.protocol.limits import Limits

_NO_AGENTS = {HUMAN, SUPERVISOR}  # who asks several for a program, and who decides, are none


def handoffs(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
    """At most `max_handoffs` in a workflow; its first request and further attempts are none."""
    allowed = limits.max_handoffs
    needed = facts.handoffs + 1 + facts.more
    if allowed is None or needed <= allowed or handoff.hop == 0:
        return ALLOW
    if handoff.attempt or handoff.reroutes or handoff.to_agent == HUMAN:
        return ALLOW
    return _refusal(
        "max_handoffs",
        f"{facts.handoffs} handoffs were made in this workflow, {1 + facts.more} more would be {needed}, "
        f"and {allowed} are allowed",
        f"answer without another handoff, or start it with Limits(max_handoffs={needed})",
        f"at most {allowed} handoffs",
    )


def agents(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
    """At most `max_agents` different agents in a workflow."""
    allowed = limits.max_agents
    if allowed is None:
        return ALLOW
    present = [name for name in facts.agents if name not in _NO_AGENTS]
    together = len(present) + (handoff.to_agent not in present)
    if together <= allowed or handoff.to_agent in _NO_AGENTS:
        return ALLOW
    known = ", ".join(present) or "none"
    return _refusal(
        "max_agents",
        f"{handoff.to_agent} would be agent {together} of {allowed} in this workflow",
        f"choose one that takes part already ({known}), or start it with Limits(max_agents={together})",
        f"at most {allowed} agents",
    )


def depth(handoff: Handoff, _facts: Facts, limits: Limits) -> Verdict:
    """Delegations nest at most `max_depth` deep."""
    allowed = limits.max_depth
    if allowed is None or handoff.depth <= allowed or handoff.to_agent == HUMAN:
        return ALLOW
    return _refusal(
        "max_depth",
        f"this delegation is nested {handoff.depth} deep and {allowed} are allowed",
        f"do the work here, hand it off as a whole, or start with Limits(max_depth={handoff.depth})",
        f"depth {allowed} or less",
    )


def seconds(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
    """A workflow lasts at most `max_seconds`."""
    allowed = limits.max_seconds
    if allowed is None or facts.now - facts.started_at < allowed * 1e6 or handoff.to_agent == HUMAN:
        return ALLOW
    taken = (facts.now - facts.started_at) / 1e6
    return _refusal(
        "max_seconds",
        f"the workflow has taken {taken:g} s of {allowed:g} s",
        "give it more time with Limits(max_seconds=…), or start a new workflow",
        f"handoffs within {allowed:g} s of the start",
    )


def deadline(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """Nothing starts after its deadline."""
    if handoff.deadline is None or handoff.to_agent == HUMAN:
        return ALLOW
    last = to_microseconds(handoff.deadline)
    if facts.now < last:
        return ALLOW
    return _refusal(
        "deadline",
        f"the deadline {iso(last)} passed {(facts.now - last) / 1e6:g} s ago",
        "send it again with a later deadline= or none",
        f"before {iso(last)}",
    )


def _refusal(limit: str, hit: str, cure: str, allowed: str) -> Verdict:
    return Verdict("refuse", f"{limit}: {hit}; {cure}", "LimitExceeded", limit, allowed)


def attempts(handoff: Handoff, _facts: Facts, _limits: Limits) -> Verdict:
    """Refuse one more try when `max_attempts` are used up, over all paths: retries, reroutes and escalations."""
    if handoff.attempt < handoff.max_attempts:
        return ALLOW
    reason = (
        f"max_attempts: {handoff.to_agent} would be try {handoff.attempt + 1} of {handoff.max_attempts}; "
        "look at what failed, then send it again, with a higher max_attempts if it may be repeated"
    )
    return Verdict("refuse", reason, "LimitExceeded", "max_attempts", f"{handoff.max_attempts} tries")
