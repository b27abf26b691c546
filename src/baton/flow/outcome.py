"""What a workflow came to, or where it stands, as whoever asked for it sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from baton.flow.variables import after
from baton.lifecycle import ENDED, State
from baton.protocol.handoff import Handoff
from baton.protocol.results import Return, failed
from baton.protocol.variables import changes

if TYPE_CHECKING:
    from baton.flow.crew import Crew


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow came to."""

    workflow_id: str
    conversation_id: str
    status: str  # completed, running, failed, waiting, parked, …
    output: Any = None  # what the last agent answered
    error: str = ""  # the name of the error and what it said
    state: dict[str, Any] = {}  # the shared variables at the end
    handoffs: tuple[Handoff, ...] = ()  # those between agents; the request that began it is none of them
    tokens: int = 0  # what was used in all
    answer: Return | None = None  # the whole return


def result(crew: Crew, root: Handoff) -> Result:
    """What the workflow of this first handoff came to."""
    flow = crew.store.workflow(root.workflow_id)
    listed = crew.store.find(workflow_id=root.workflow_id, limit=100_000)
    line = [one for one in listed if one.line_id == root.id]
    tail = next((one for one in line if one.id == root.answer_id), line[-1])
    said = answer(crew, root.id) if root.answer_id else None
    return Result(
        workflow_id=root.workflow_id,
        conversation_id=root.conversation_id,
        status=_status(tail, said),
        output=said.output if said else None,
        error=said.error if said else "",
        state=dict((after(crew, tail, said) if said else crew.variables(tail.context.state_ref)).values),
        handoffs=tuple(one for one in listed if one.hop),
        tokens=flow.tokens_spent if flow else 0,
        answer=said,
    )


def answer(crew: Crew, line_id: str) -> Return:
    """The answer of a line of work, with all that its agents changed on the way."""
    said = crew.store.returned(line_id)
    if said is None:
        return failed("HandoffFailed: ended without an answer (cancelled)", retryable=False)
    head = crew.store.get(line_id)
    tail = (crew.store.get(head.answer_id) if head is not None and head.answer_id else None) or head
    if head is None or tail is None:
        return said
    if not said.handoff_id:  # the supervisor ended it in the agent's place
        said = msgspec.structs.replace(said, handoff_id=tail.id, from_agent=tail.to_agent, to_agent=tail.from_agent)
    if tail.id == head.id:
        return said
    whole = after(crew, tail, said)
    changed = changes(crew.variables(head.context.state_ref), whole)
    updates = msgspec.structs.replace(said.context_updates, variables_changed=changed)
    return msgspec.structs.replace(said, context_updates=updates, state_ref=whole.ref)


def _status(tail: Handoff, answer: Return | None) -> str:
    if tail.state in ENDED or tail.state in {State.WAITING, State.PARKED}:
        return tail.status
    return "running" if answer is None else tail.status
