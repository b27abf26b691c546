"""What starts a handoff by itself. Pure observations: they say that there is a reason, and do nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from baton.protocol.codec import iso
from baton.protocol.handoff import Handoff, Requirement
from baton.protocol.limits import MILLION, RISKS, Autonomy, Risk, micro
from baton.protocol.profile import Profile
from baton.protocol.results import Command, Return

Kind = Literal["task_completion", "capability_mismatch", "escalation", "timeout", "explicit_request"]


class Trigger(msgspec.Struct, frozen=True):
    """That a handoff is due, and why."""

    kind: Kind
    reason: str


def task_completion(result: Return, following: str | None) -> Trigger | None:
    """The agent has finished, and another comes next in the sequence."""
    if not result.success or not following:
        return None
    return Trigger("task_completion", f"{result.from_agent or 'the agent'} is done, {following} comes next")


def capability_mismatch(agent: Profile, required: Iterable[Requirement]) -> Trigger | None:
    """The next piece of work needs what the agent lacks."""
    lacking = [
        one.capability_id for one in required if agent.abilities.get(one.capability_id, -1.0) < one.min_proficiency
    ]
    if not lacking:
        return None
    return Trigger("capability_mismatch", f"{agent.agent_id} lacks {', '.join(lacking)}")


def escalation(agent: Profile, risk: Risk, tokens: int = 0, cost: int = 0) -> Trigger | None:
    """A decision is riskier, or has cost more, than the agent may decide by itself. Money in millionths."""
    held = agent.autonomy_budget or Autonomy()
    if RISKS.index(risk) > RISKS.index(held.max_risk):
        return Trigger("escalation", f"the risk is {risk} and {agent.agent_id} may take {held.max_risk}")
    if held.max_tokens is not None and tokens > held.max_tokens:
        return Trigger("escalation", f"{agent.agent_id} has used {tokens} of {held.max_tokens} (tokens)")
    if held.max_cost is not None and cost > (micro(held.max_cost) or 0):
        return Trigger("escalation", f"{agent.agent_id} has used {cost / MILLION} of {held.max_cost} (money)")
    return None


def timeout(handoff: Handoff, timeout_at: int | None, now: int) -> Trigger | None:
    """The work is past the earliest of its deadline, the time its sender waits, and the longest its agent may take."""
    if timeout_at is None or now < timeout_at:
        return None
    return Trigger("timeout", f"{handoff.to_agent} has not answered by {iso(timeout_at)}")


def explicit_request(agent: str, outcome: object) -> Trigger | None:
    """The agent asked for another one."""
    if not isinstance(outcome, Command):
        return None
    to = outcome.goto if isinstance(outcome.goto, str) else ", ".join(send.agent for send in outcome.goto)
    return Trigger("explicit_request", outcome.reason or f"{agent} asks for {to or 'somebody who can do it'}")
