"""Steps 8 to 10: what an agent gave back becomes one step, with the next handoff in the same commit."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import Malformed
from baton.flow import escalate
from baton.flow.crew import give_back, objection
from baton.flow.prepare import advanced, authored, follow, named
from baton.flow.trigger import see
from baton.flow.variables import wrote
from baton.lifecycle import Event, State
from baton.protocol.codec import check, plain, to_time
from baton.protocol.context import Message
from baton.protocol.fields import identifier
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
from baton.protocol.variables import changes
from baton.stores.base import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from baton.flow.crew import Crew, Running
    from baton.protocol.context import Blob
    from baton.protocol.handoff import Handoff
    from baton.protocol.variables import Variables
    from baton.stores.base import Moved

replace = msgspec.structs.replace
MILLISECOND = timedelta(milliseconds=1)


def settle(crew: Crew, handoff: Handoff, value: Any, running: Running | None = None) -> Step:
    """The step that follows from what the agent gave back."""
    value, done = _due(crew, handoff, value)
    if isinstance(value, Command) and not crew.leads_out(value):
        if crew.trace is not None:
            crew.trace.due(handoff.id)
        return _move(crew, handoff, value, done, running)
    if isinstance(value, Escalate):
        way, owner = escalate.ahead(crew, handoff), {"epoch": handoff.epoch, "by": handoff.to_agent}
        return escalate.step(handoff, way, value.reason, content=value.assessment, **owner)
    if isinstance(value, Reject):
        return _step(handoff, Event.REJECT, reason=value.reason)
    if isinstance(value, Defer):
        due = crew.store.now() + int(value.seconds * 1e6)
        return _step(handoff, Event.DEFER, reason=value.reason, due_at=due, uncount=True)
    said = _onward(value) if isinstance(value, Command) else replace(checked(as_return(value)), onward={})
    result, blobs, detail = answered(crew, handoff, _signed(crew, handoff, said), running)
    if result.status in {"success", "partial"}:
        return _complete(crew, handoff, result, blobs, detail)
    step = fail(crew, handoff, result)
    return replace(step, blobs=[*step.blobs, *blobs], detail={**step.detail, **detail}) if blobs else step


def _due(crew: Crew, handoff: Handoff, value: Any) -> tuple[Any, Return | None]:
    own = crew.profiles.get(handoff.to_agent)
    if own is not None and own.reports is not None:
        from baton.flow import report

        value, done = report.follow(crew, handoff, own.reports, value)
        if done is not None:
            return value, done
    return see(crew, handoff, value)


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
        history_ref="",
        state_ref="",
    )


def answered(
    crew: Crew, handoff: Handoff, result: Return, running: Running | None = None, writer: str = ""
) -> tuple[Return, list[Blob], dict[str, Any]]:
    """An answer as it is stored, with what has to be stored for it, and what the audit says of it.

    Whatever it changes was in the scope of its agent, or of the `writer` who answers in its place.
    """
    said = result.context_updates
    before = crew.variables(handoff.context.state_ref)
    after, decided = _written(crew, handoff, said.variables_changed, running, writer)
    if after is before and not said.artifacts_produced:
        return result, [], {}
    ref, blobs = crew.freeze(after)
    made = authored(crew, handoff, said.artifacts_produced, running.artifacts if running else (), writer)
    updates = Updates(variables_changed=changes(before, after), artifacts_produced=made)
    result = replace(result, context_updates=updates, state_ref="" if after is before else ref)
    return result, blobs, decided


def _written(
    crew: Crew, handoff: Handoff, update: Mapping[str, Any], running: Running | None, writer: str = ""
) -> tuple[Variables, dict[str, Any]]:
    """The variables after a turn: with what its parts changed, then what it wrote itself; the last decides."""
    gained = running.gained if running else None
    variables = gained.variables if gained else crew.variables(handoff.context.state_ref)
    decided = running.decided if running else []
    if update:
        variables, own = wrote(crew, writer or handoff.to_agent, variables, update)
        decided = [*decided, *own]
    return variables, {"decisions": decided} if decided else {}


def _said(handoff: Handoff, result: Return) -> list[Message]:
    if result.messages or not isinstance(result.output, str) or not result.output:
        return list(result.messages)
    return [Message("assistant", result.output, name=handoff.to_agent)]


def _complete(crew: Crew, handoff: Handoff, result: Return, blobs: list[Blob], detail: dict[str, Any]) -> Step:
    variables = crew.variables(handoff.context.state_ref)
    context, messages = advanced(crew, handoff, variables, _said(handoff, result))
    result = replace(result, messages=(), history_ref=context.history_ref if messages else "")
    return _step(handoff, Event.COMPLETE, result=result, blobs=[*blobs, *messages], detail=detail)


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
    row = crew.store.agent(agent)
    return row is None or row.profile.idempotent


def _move(crew: Crew, handoff: Handoff, command: Command, done: Return | None, running: Running | None) -> Step:
    if not isinstance(command.goto, str):
        raise Malformed("Command.goto: a list of Send needs broadcast; name one agent")
    if command.goto not in crew.agents:
        identifier(command.goto, "Command.goto")
    goto = command.goto
    said = _said(handoff, done) if done else []
    if not said and command.reason:
        said = [Message("assistant", command.reason, name=handoff.to_agent)]
    variables, detail = _written(crew, handoff, command.update, running)
    made = tuple(command.artifacts) + named(command.update, handoff.to_agent)
    made = authored(crew, handoff, made, running.artifacts if running else ())
    context, blobs = advanced(crew, handoff, variables, said, made)
    if done is None:
        body = Result(body=f"handed off to {goto}")
        done = Return(result=body, audit=Account(tokens_consumed=command.tokens))
    result = replace(_signed(crew, handoff, done), messages=(), context_updates=Updates(), to_agent=goto)
    then = follow(crew, handoff, command, goto, context, blobs)
    return _step(handoff, Event.COMPLETE, reason=then.handoff.reason, result=result, then=then, detail=detail)


def _onward(command: Command) -> Return:
    """The answer of a relay inside another one, which tells the outer one where the work goes."""
    onward = {name: plain(getattr(command, name)) for name in ("goto", "reason", "task", "artifacts", "needs")}
    check(command.update, "Command.update")
    onward["update"] = command.update
    return checked(Return(onward=onward, audit=Account(tokens_consumed=command.tokens)))


async def apply(crew: Crew, step: Step) -> Moved:
    """Commit a step and say so."""
    if crew.trace is not None:
        crew.trace.settled(step.id)
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
