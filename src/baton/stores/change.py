"""What one operation wants written: rows, audit records, sums, all in one transaction or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import astuple

if TYPE_CHECKING:
    from baton.guards.base import Breaker
    from baton.protocol.context import Blob
    from baton.stores.base import Workflow
    from baton.stores.rows import Row


class Made(msgspec.Struct, frozen=True, gc=False):
    """A handoff to be inserted."""

    row: Row
    spec: bytes
    fingerprint: bytes
    created_at: int


class Audited(msgspec.Struct, frozen=True, gc=False):
    """An audit row to be inserted."""

    handoff_id: str
    task_id: str
    from_agent: str
    to_agent: str
    opens: bool  # it brings in parties by which the records of its handoff are found
    record: bytes
    digest: bytes


class Sums:
    """What one transaction adds to the counts of a workflow."""

    __slots__ = ("agents", "cost_reserved", "cost_spent", "handoffs", "tokens_reserved", "tokens_spent", "workflow_id")

    def __init__(self, workflow_id: str) -> None:
        self.workflow_id = workflow_id
        self.handoffs = 0
        self.agents: tuple[str, ...] | None = None  # all that took part, where one is new
        self.tokens_reserved = self.cost_reserved = self.tokens_spent = self.cost_spent = 0


class Change(msgspec.Struct, kw_only=True, gc=False):
    """Everything that a transaction writes."""

    blobs: list[Blob] = []
    workflow: Workflow | None = None
    made: list[Made] = []
    moved: list[Row] = []
    audit: list[Audited] = []
    freed: list[str] = []  # handoffs whose locks end with their claim
    new: list[bytes] = []  # the handoffs and returns in it
    said: list[str] = []  # in the audit records, beside what their handoffs say
    sums: Sums | None = None
    breakers: list[Breaker] = []  # one without failures is forgotten
    settled: list[tuple[str, str]] = []  # whose alerts are over, and by whom
    alerts: list[tuple[str, str]] = []  # subject and text, raised after that
    answered: list[tuple[str, str]] = []  # the head of a line, and the handoff that answered it

    def forget(self) -> None:
        """Want nothing of it written any more."""
        for name, nothing in zip(Change.__struct_fields__, astuple(Change()), strict=True):
            setattr(self, name, nothing)

    def text(self) -> bytes:
        """All that is new in it, to look through for secrets: what a record says beyond it, its handoff said before."""
        return b"\n".join((*self.new, "\n".join(self.said).encode()))
