"""What a workflow came to, or where it stands, as whoever asked for it sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from baton.lifecycle import ENDED, State
from baton.protocol.context import merge
from baton.protocol.handoff import Handoff
from baton.protocol.results import Return

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    answer = crew.store.returned(root.id) if root.answer_id else None
    changed: Mapping[str, Any] = answer.context_updates.variables_changed if answer else {}
    return Result(
        workflow_id=root.workflow_id,
        conversation_id=root.conversation_id,
        status=_status(tail, answer),
        output=answer.output if answer else None,
        error=answer.error if answer else "",
        state=merge(crew.state(tail.context.state_ref), changed),
        handoffs=tuple(one for one in listed if one.hop),
        tokens=flow.tokens_spent if flow else 0,
        answer=answer,
    )


def _status(tail: Handoff, answer: Return | None) -> str:
    if tail.state in ENDED or tail.state in {State.WAITING, State.PARKED}:
        return tail.status
    return "running" if answer is None else tail.status
