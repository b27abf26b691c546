"""Step 2: put together what is passed on: the request, its context, and what has to be stored with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from baton import clock
from baton.errors import Malformed
from baton.flow.escalate import heard
from baton.flow.variables import begun
from baton.protocol.artifacts import Artifact, inside, readable
from baton.protocol.context import Blob, Context, Message, append
from baton.protocol.handoff import SUPERVISED, SUPERVISOR, USER, Handoff, checked, fingerprint
from baton.protocol.limits import smaller
from baton.protocol.secrets import redact, suspicious
from baton.stores.base import Offer, Workflow

if TYPE_CHECKING:
    from baton.flow.crew import Crew
    from baton.protocol.limits import Limits
    from baton.protocol.results import Command
    from baton.protocol.variables import Variables

replace = msgspec.structs.replace
ASKED = "broadcast"  # in the metadata of the supervisor's own handoff: whom to ask, and how


def begin(crew: Crew, request: Handoff, limits: Limits, state: Mapping[str, Any] | None = None) -> Offer:
    """The first handoff of a workflow: a person's or program's request to an agent."""
    if crew.trace is not None:
        crew.trace.due()
    crew.check_approve(limits)
    crew.check_routes()
    request = checked(from_outside(request))
    handoff_id = request.id or clock.new_id()
    workflow_id = request.workflow_id or clock.new_id()
    context = request.context
    said = context.conversation_history or (Message("user", request.task),)
    history, messages = append("", [redacted(message) for message in said])
    state_ref, values = crew.freeze(begun(crew, request, state))
    handoff = replace(
        request,
        id=handoff_id,
        workflow_id=workflow_id,
        conversation_id=request.conversation_id or workflow_id,
        root_id=handoff_id,
        line_id=handoff_id,
        context=replace(
            context,
            task_id=context.task_id or workflow_id,
            artifacts=placed(crew, context.artifacts),
            conversation_history=(),
            context_variables={},
            history_ref=history,
            state_ref=state_ref,
        ),
    )
    if crew.trace is not None:
        handoff = crew.trace.prepared(handoff)
    flow = Workflow(id=workflow_id, root_id=handoff_id, conversation_id=handoff.conversation_id, limits=limits)
    return Offer(handoff=handoff, fingerprint=fingerprint(handoff), blobs=[*messages, *values], workflow=flow)


def from_outside(request: Handoff) -> Handoff:
    """A request without what only the supervisor writes: it begins a workflow and answers nobody's delegation."""
    return replace(request, **_UNWRITTEN)


_PLAIN = Handoff(from_agent="", to_agent="")
_UNWRITTEN = {name: getattr(_PLAIN, name) for name in (*SUPERVISED, "parent_id", "part", "aggregation") if name != "id"}


def request(to_agent: str, task: str, **fields: Any) -> Handoff:
    """A request as a record, with what is not named at its default."""
    return Handoff(from_agent=fields.pop("from_agent", USER), to_agent=to_agent, task=task, **fields)


def redacted(message: Message) -> Message:
    """A message without secrets."""
    content, name, reasoning = message.content, message.name, message.reasoning
    if not message.tool_calls and not suspicious(f"{content}\n{name}\n{reasoning}".encode(errors="surrogatepass")):
        return message
    calls = tuple(
        replace(call, name=redact(call.name), arguments=redact(call.arguments)) for call in message.tool_calls
    )
    return replace(message, content=redact(content), name=redact(name), reasoning=redact(reasoning), tool_calls=calls)


def follow(crew: Crew, before: Handoff, command: Command, to_agent: str, context: Context, blobs: list[Blob]) -> Offer:
    """The next handoff of the same line: ownership moves from one agent to the next."""
    handoff = Handoff(
        id=clock.new_id(),
        from_agent=before.to_agent,
        to_agent=to_agent,
        task=command.task or before.task,
        goal=before.goal,
        reason=command.reason,
        context=context,
        workflow_id=before.workflow_id,
        conversation_id=before.conversation_id,
        parent_id=before.id,
        root_id=before.root_id,
        line_id=before.line_id,
        hop=before.hop + 1,
        depth=before.depth,
        priority=before.priority,
        deadline=before.deadline,
        traceparent=before.traceparent,
        max_attempts=before.max_attempts,
        return_protocol=before.return_protocol,
        budget=before.budget,
        broadcast_group_id=before.broadcast_group_id,
        aggregation=before.aggregation,
    )
    if crew.trace is not None:
        handoff = crew.trace.prepared(handoff)
    # Where the receiver lives in this process, offer and claim share a commit: no moment without an owner.
    take = crew.claim if to_agent in crew.agents else None
    return Offer(handoff=handoff, fingerprint=fingerprint(handoff), blobs=blobs, take=take)


def delegate(parent: Handoff, to_agent: str, task: str, key: str, **fields: Any) -> Handoff:
    """A part of the work for another agent; the parent keeps the ownership and waits for the answer."""
    handoff_id = clock.new_id()
    fields.setdefault("priority", parent.priority)
    given = fields.get("deadline")
    fields["deadline"] = min(filter(None, (given, parent.deadline)), default=None)
    fields["budget"] = smaller(parent.budget, fields.get("budget"))
    return checked(
        request(
            to_agent,
            task,
            id=handoff_id,
            from_agent=parent.from_agent if parent.to_agent == SUPERVISOR else parent.to_agent,
            part=key,
            workflow_id=parent.workflow_id,
            conversation_id=parent.conversation_id,
            parent_id=parent.id,
            root_id=parent.root_id,
            line_id=handoff_id,
            hop=parent.hop + 1,
            depth=parent.depth + 1,
            traceparent=parent.traceparent,
            **{"type": "delegation", **fields},
        )
    )


def request_of(crew: Crew, handoff: Handoff) -> str:
    """What the workflow was asked for at first, for those that come later."""
    root = crew.store.get(handoff.root_id)
    return root.task if root and root.id != handoff.id else ""


def scoped(
    crew: Crew, parent: Handoff, variables: Variables, task: str, before: Iterable[Message] = ()
) -> tuple[Context, list[Blob]]:
    """The context of a delegation: the variables that it sees, the parent's history by reference, and the subtask.

    `before` is what was said to the parent beside that history.
    """
    asked = redacted(Message("user", task, name=parent.to_agent))
    history, messages = append(parent.context.history_ref, [*before, asked])
    state_ref, values = crew.freeze(variables)
    context = replace(parent.context, history_ref=history, state_ref=state_ref, completed_work={})
    if parent.to_agent == SUPERVISOR:  # what one is asked is not for the others
        metadata = {name: value for name, value in context.metadata.items() if name != ASKED}
        context = replace(context, metadata=metadata)
    return context, [*messages, *values]


def advanced(
    crew: Crew, before: Handoff, variables: Variables, said: list[Message], made: tuple[Artifact, ...] = ()
) -> tuple[Context, list[Blob]]:
    """The context after an agent's turn: the variables as they are now, its messages appended, its artifacts added."""
    context = before.context
    history_ref = context.history_ref
    if made:
        replaced = {item.id for item in made}
        kept = tuple(item for item in context.artifacts if item.id not in replaced)
        context = replace(context, artifacts=(*kept, *made))
    state_ref, blobs = crew.freeze(variables)
    if below := heard(crew, before):
        said = [*below, *said]
    if said:
        history_ref, messages = append(history_ref, [redacted(message) for message in said])
        blobs = [*blobs, *messages]
    if state_ref == context.state_ref and history_ref == context.history_ref:
        return context, []
    return replace(context, state_ref=state_ref, history_ref=history_ref), blobs


def named(update: Mapping[str, Any], author: str) -> tuple[Artifact, ...]:
    """Artifacts that an update gives as names and paths; a name without a path is still to be made."""
    given = update.get("artifacts")
    if not given:
        return ()
    if not isinstance(given, Mapping):
        raise Malformed("update.artifacts: expected an object of names and paths")
    return tuple(
        Artifact(id=name, path=path, created_by=author) for name, path in given.items() if isinstance(path, str)
    )


def authored(
    crew: Crew, handoff: Handoff, artifacts: tuple[Artifact, ...], of_parts: tuple[Artifact, ...] = (), by: str = ""
) -> tuple[Artifact, ...]:
    """What comes back from a handoff: its agent made it, but for what was there before, or what its parts made."""
    if not artifacts:
        return ()
    makers = {_thing(item): item.created_by for item in (*handoff.context.artifacts, *of_parts)}
    author = by or handoff.to_agent
    return tuple(replace(item, created_by=makers.get(_thing(item), author)) for item in placed(crew, artifacts))


def _thing(item: Artifact) -> tuple[str, str, str]:
    return item.id, item.path, item.digest


def placed(crew: Crew, artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    """The artifacts, all of them inside the roots that are allowed here."""
    made = readable(artifacts, "artifacts")
    return tuple(replace(item, path=inside(item.path, crew.settings.roots)) for item in made)
