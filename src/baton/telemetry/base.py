"""What a hook is told, and what it may do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from baton.lifecycle import StepName
from baton.protocol.handoff import Handoff


class Passed(msgspec.Struct, frozen=True, gc=False):
    """One step of a handoff that is over. Times in microseconds since 1970 (UTC)."""

    step: StepName
    handoff: Handoff  # as it stands after the step
    began: int
    ended: int
    outcome: str = ""  # what came of it: a guard's verdict, a state, the name of an error

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.ended - self.began) / 1e6


class Hook:
    """Is told of every step that this process takes. What it raises is logged, and stops nothing."""

    def passed(self, step: Passed) -> None:
        """One step is over."""

    def carry(self, handoff: Handoff, began: int) -> str:  # noqa: ARG002 - for those that trace
        """The `traceparent` that a handoff takes along, which is made right now and was due since `began`."""
        return handoff.traceparent

    def working(self, handoff: Handoff) -> AbstractContextManager[object]:  # noqa: ARG002 - for those that trace
        """What surrounds the work of the agent."""
        return nullcontext()

    def joined(self, parent_id: str, parts: Sequence[Handoff]) -> None:
        """One handoff waited for the answers of several, and has them."""
