"""Step 1: see in what an agent gave back that a handoff is due, and to whom.

Agents suggest, the supervisor routes: a command may name an agent or only what the next one must be able to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import NotCapable
from baton.guards.triggers import capability_mismatch, explicit_request, task_completion
from baton.protocol.handoff import Requirement, Validation
from baton.protocol.results import Command, Return, as_return, checked
from baton.routing.matching import alternatives

if TYPE_CHECKING:
    from baton.flow.crew import Crew
    from baton.protocol.handoff import Handoff

replace = msgspec.structs.replace


def see(crew: Crew, handoff: Handoff, value: Any) -> tuple[Any, Return | None]:
    """What follows: a command that is ready to go with the return behind it, or the value as it was."""
    if isinstance(value, Command) and crew.leads_out(value):
        return value, None  # who can do it is for the relay around this one to say
    if isinstance(value, Command):
        return _routed(crew, handoff, value), None
    following = crew.settings.sequence.get(handoff.to_agent)
    if following is None or (not isinstance(value, Return) and isinstance(value, msgspec.Struct)):
        return value, None
    result = checked(as_return(value))
    trigger = task_completion(replace(result, from_agent=handoff.to_agent), following)
    if trigger is None:
        return value, None
    updates = result.context_updates
    command = Command(
        goto=following,
        update=updates.variables_changed,
        reason=trigger.reason,
        tokens=result.audit.tokens_consumed,
        artifacts=updates.artifacts_produced,
    )
    return command, result


def _routed(crew: Crew, handoff: Handoff, command: Command) -> Command:
    if command.goto:
        asked = explicit_request(handoff.to_agent, command)
        return command if command.reason or asked is None else replace(command, reason=asked.reason)
    required = tuple(Requirement(capability_id=name) for name in command.needs)
    profile = crew.profiles[handoff.to_agent]
    wanted = replace(handoff, validation=Validation(required_capabilities=required))
    rows = crew.store.agents()
    found = alternatives(
        wanted,
        [row.profile for row in rows],
        crew.settings.routes,
        away=[row.profile.agent_id for row in rows if not row.available],
        loads={row.profile.agent_id: row.load for row in rows},
    )
    if not found:
        raise NotCapable(
            f"needs: nobody here can do {', '.join(command.needs) or 'that'}; register an agent with these "
            "capabilities, name one with goto, or go on yourself"
        )
    mismatch = capability_mismatch(profile, required)
    reason = command.reason or (mismatch.reason if mismatch else "")
    return replace(command, goto=found[0], reason=reason)
