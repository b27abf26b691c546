"""The record that is written before or with every step, never after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from baton.protocol.codec import Record, Time
from baton.protocol.limits import Risk

INITIATED = "initiated"
TIMEOUT = "timeout"
LATE = "late"
FENCED = "fenced"
UP = "escalation"  # in the detail of a record: from whom work went up to whom, and what that level found


class Snapshot(Record, frozen=True, kw_only=True):
    """The context at that moment, by digest."""

    task_id: str = ""
    task_status: str = ""
    context_variables_hash: str = ""
    artifact_count: int = 0


class AuditRecord(Record, frozen=True, kw_only=True):
    """One immutable line of the trail; what is not known is absent, not zero."""

    # These two stand first, so that a verifier finds them without reading the rest.
    previous: str = ""  # digest of the record before it of the same handoff
    handoff_id: str
    timestamp: Time
    event_type: str
    from_agent: str
    to_agent: str
    handoff_type: str
    workflow_id: str = ""
    reason: str = ""
    context_snapshot: Snapshot = Snapshot()
    decision_rationale: str = ""
    risk_level: Risk = "low"
    duration_ms: int | None = None
    tokens_consumed: int | None = None
    outcome: Literal["success", "partial", "failed"] | None = None
    attempt: int = 0
    epoch: int = 0
    by: str = ""
    detail: dict[str, Any] = {}


write_record = msgspec.json.Encoder(order="deterministic").encode  # fields as above, the keys of `detail` sorted
read_record = msgspec.json.Decoder(AuditRecord).decode


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """What one level said when the work went up."""

    agent: str  # who had the work
    to: str  # who decides next; `human` where a person does
    reason: str  # the rationale
    content: Any = None  # what was found out
    by: str = ""  # who says so: the agent itself, or the supervisor in its place
    at: Time


def assessments(trail: Iterable[AuditRecord]) -> list[Assessment]:
    """What the levels said, lowest first."""
    return [
        Assessment(
            agent=up["from"],
            to=up["to"],
            reason=one.decision_rationale,
            content=up.get("assessment"),
            by=one.by,
            at=one.timestamp,
        )
        for one in trail
        if (up := one.detail.get(UP)) is not None
    ]
