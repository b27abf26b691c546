"""An agent holds at most as much work at once as it said."""

from __future__ import annotations

from baton.guards.base import ALLOW, Facts, Verdict
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits


def has_capacity(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """Reject work for an agent at its `max_concurrent_tasks`."""
    target = facts.target
    if target is None or target.max_concurrent_tasks is None or facts.load < target.max_concurrent_tasks:
        return ALLOW
    most = target.max_concurrent_tasks
    reason = (
        f"at_capacity: {handoff.to_agent} works on {facts.load} of {most}; wait until one ends, choose "
        f"another agent, or raise max_concurrent_tasks of {handoff.to_agent}"
    )
    return Verdict("reject", reason, "AtCapacity", "max_concurrent_tasks", f"at most {most} at once")
