"""A whole relay as one agent of another."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from baton.errors import NotFound
from baton.protocol.codec import convert
from baton.protocol.results import Command, Return
from baton.protocol.variables import DECISIONS, listed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from baton.agents.base import Turn


class Runs(Protocol):
    """What is needed of the inner relay."""

    @property
    def run(self) -> Callable[..., Awaitable[Any]]: ...
    def result(self, workflow_id: str) -> Any: ...
    async def aclose(self) -> None: ...


class RelayAgent:
    """Runs a workflow of the inner relay for each turn; the same handoff finds its workflow again."""

    def __init__(self, inner: Runs, entry: str) -> None:
        self._inner = inner
        self._entry = entry

    async def run(self, turn: Turn) -> Any:
        """Hand the task to the inner relay's entry agent and bring its answer out."""
        result = await self._inner.run(
            self._entry,
            turn.task,
            workflow_id=self._workflow(turn),
            conversation_id=turn.handoff.conversation_id,
            state=turn.state,
        )
        answer: Return = result.answer
        changed = dict(answer.context_updates.variables_changed)
        decided = [one["description"] for one in changed.pop(DECISIONS, ())]  # out there they are this agent's
        onward = answer.onward.get("update", {})
        decided += listed(onward.get(DECISIONS, ()))
        changed = {**changed, **onward, **({DECISIONS: decided} if decided else {})}
        if answer.onward:
            command = convert(answer.onward, Command, "onward")
            return msgspec.structs.replace(command, tokens=result.tokens, update=changed)
        return Return(
            status=answer.status,
            result=answer.result,
            audit=msgspec.structs.replace(answer.audit, tokens_consumed=result.tokens),
            context_updates=msgspec.structs.replace(answer.context_updates, variables_changed=changed),
        )

    def _workflow(self, turn: Turn) -> str:
        """The workflow that an earlier attempt began and did not end, else one for this attempt."""
        first = turn.handoff.id
        for earlier in [first, *(f"{first}.{attempt}" for attempt in range(2, turn.attempt))]:
            with suppress(NotFound):
                if self._inner.result(earlier).status != "failed":
                    return earlier
        return first if turn.attempt == 1 else f"{first}.{turn.attempt}"

    async def aclose(self) -> None:
        """Close the inner relay."""
        await self._inner.aclose()
