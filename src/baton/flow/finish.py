"""Steps 8 to 10: what an agent gave back becomes one step, with the next handoff in the same commit."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import Malformed
from baton.flow import escalate
from baton.flow.crew import give_back, objection
from baton.flow.prepare import advanced, follow, placed
from baton.flow.trigger import see
from baton.lifecycle import Event, State
from baton.protocol.codec import canonical, check, to_time
from baton.protocol.context import Message, merge
from baton.protocol.handoff import HUMAN
from baton.protocol.results import (
    Account,
    Command,
    Defer,
    Escalate,
    Reject,
    Result,
    Return,
    Updates,
    as_return,
    checked,
    failed,
)
from baton.protocol.secrets import redact_value
from baton.stores.base import Step

if TYPE_CHECKING:
    from baton.flow.crew import Crew
    from baton.protocol.handoff import Handoff
    from baton.stores.base import Moved

replace = msgspec.structs.replace
MILLISECOND = timedelta(milliseconds=1)


def settle(crew: Crew, handoff: Handoff, value: Any) -> Step:
    """The step that follows from what the agent gave back."""
    value, done = see(crew, handoff, value)
    if isinstance(value, Command):
        return _move(crew, handoff, value, done)
    if isinstance(value, Escalate):
        way, owner = escalate.ahead(crew, handoff), {"epoch": handoff.epoch, "by": handoff.to_agent}
        return escalate.step(handoff, way, value.reason, content=value.assessment, **owner)
    if isinstance(value, Reject):
        return _step(handoff, Event.REJECT, reason=value.reason)
    if isinstance(value, Defer):
        due = crew.store.now() + int(value.seconds * 1e6)
        return _step(handoff, Event.DEFER, reason=value.reason, due_at=due, uncount=True)
    result = _signed(crew, handoff, replace(checked(as_return(value)), onward={}))
    if result.status in {"success", "partial"}:
        return _complete(crew, handoff, result)
    return fail(crew, handoff, result)


def _step(handoff: Handoff, event: Event, **fields: Any) -> Step:
    return Step(id=handoff.id, event=event, epoch=handoff.epoch, by=handoff.to_agent, **fields)


def _signed(crew: Crew, handoff: Handoff, result: Return) -> Return:
    """The return with the supervisor's own entries; an agent cannot answer in another's name."""
    check(result.result.body, "the answer")
    now = to_time(crew.store.now())
    return replace(
        result,
        handoff_id=handoff.id,
        from_agent=handoff.to_agent,
        to_agent=handoff.from_agent,
        duration_ms=(now - handoff.timestamp) // MILLISECOND,
        audit=replace(result.audit, completion_time=now),
    )


def _said(handoff: Handoff, result: Return) -> list[Message]:
    if result.messages or not isinstance(result.output, str) or not result.output:
        return list(result.messages)
    return [Message("assistant", result.output, name=handoff.to_agent)]


def _complete(crew: Crew, handoff: Handoff, result: Return) -> Step:
    context, blobs = advanced(crew, handoff, {}, _said(handoff, result))
    changed = redact_value(result.context_updates.variables_changed)
    canonical(changed, "variables_changed")
    merge(crew.state(handoff.context.state_ref), changed)  # refuses what could not be merged later
    made = placed(crew, result.context_updates.artifacts_produced)
    updates = replace(result.context_updates, variables_changed=changed, artifacts_produced=made)
    result = replace(result, messages=(), context_updates=updates, history_ref=context.history_ref if blobs else "")
    return _step(handoff, Event.COMPLETE, result=result, blobs=blobs)


def fail(crew: Crew, handoff: Handoff, result: Return, cause: str = "") -> Step:
    """The step after a failure or time-out: again after a pause, up, or the end."""
    protocol = handoff.return_protocol
    policy = protocol.on_timeout if cause == "timeout" else protocol.on_failure
    again = policy == "retry" and result.retryable and handoff.attempt < handoff.max_attempts
    if again and not _repeatable(crew, handoff.to_agent):
        policy = "escalate"
    elif again:
        due = crew.store.now() + int(crew.settings.backoff * 2 ** (handoff.attempt - 1) * 1e6)
        return _step(handoff, Event.RETRY, reason=result.error, due_at=due, cause=cause, result=result)
    if policy == "escalate" and handoff.to_agent != HUMAN:  # the no of a person is the last word
        way = escalate.ahead(crew, handoff)
        if not _repeatable(crew, handoff.to_agent):
            way = escalate.to_person(way, f"{handoff.to_agent} is not idempotent")
        owner: dict[str, Any] = {"epoch": handoff.epoch, "by": handoff.to_agent, "cause": cause, "result": result}
        return escalate.step(handoff, way, result.error or result.status, content=result.output, **owner)
    return _step(handoff, Event.FAIL, reason=result.error, cause=cause, result=result)


def _repeatable(crew: Crew, agent: str) -> bool:
    return all(row.profile.idempotent for row in crew.store.agents() if row.profile.agent_id == agent)


def _move(crew: Crew, handoff: Handoff, command: Command, done: Return | None) -> Step:
    if not isinstance(command.goto, str):
        raise Malformed("Command.goto: a list of Send needs broadcast; name one agent")
    if crew.nested and command.graph == Command.PARENT:
        onward = {
            "goto": command.goto,
            "update": command.update,
            "reason": command.reason,
            "task": command.task,
        }
        result = Return(onward=onward, audit=Account(tokens_consumed=command.tokens))
        return _complete(crew, handoff, _signed(crew, handoff, result))
    said = _said(handoff, done) if done else []
    if not said and command.reason:
        said = [Message("assistant", command.reason, name=handoff.to_agent)]
    context, blobs = advanced(crew, handoff, command.update, said, command.artifacts)
    if done is None:
        body = Result(body=f"handed off to {command.goto}")
        done = Return(result=body, audit=Account(tokens_consumed=command.tokens))
    result = replace(_signed(crew, handoff, done), messages=(), context_updates=Updates(), to_agent=command.goto)
    then = follow(crew, handoff, command, command.goto, context, blobs)
    return _step(handoff, Event.COMPLETE, reason=then.handoff.reason, result=result, then=then)


async def apply(crew: Crew, step: Step) -> Moved:
    """Commit a step and say so."""
    moved = await crew.commit(
        lambda: crew.store.advance(step, crew.judge_offer, crew.judge_claim), lambda moved: give_back(crew, moved.then)
    )
    if moved.verdict.kind != "refuse":
        crew.tell(moved.handoff.status, moved.handoff)
    if moved.then is not None:
        crew.tell("initiated", moved.then)
        if moved.then.state is State.CLAIMED:
            crew.tell("accepted", moved.then)
    return moved


def refused(crew: Crew, handoff: Handoff, moved: Moved) -> Step:
    """The end of a handoff whose next one was refused."""
    verdict = moved.verdict
    reason = objection(crew, verdict, moved.then.to_agent if moved.then else "")
    result = _signed(crew, handoff, failed(f"{verdict.error}: {reason}", retryable=False))
    return _step(handoff, Event.FAIL, reason=reason, result=result)
