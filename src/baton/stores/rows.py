"""Between rows and records: what is written of a handoff, and the audit record of each step."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from baton.lifecycle import State
from baton.protocol.audit import AuditRecord, Snapshot, write_record
from baton.protocol.codec import canonical_record, to_time
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.protocol.profile import Profile
from baton.protocol.results import Return
from baton.protocol.secrets import redact_bytes

if TYPE_CHECKING:
    from baton.stores.base import Step

MILLISECOND = timedelta(milliseconds=1)

replace = msgspec.structs.replace
read_spec = msgspec.json.Decoder(Handoff).decode
read_agents = msgspec.json.Decoder(tuple[str, ...]).decode
_STATES = {state.value: state for state in State}
_read_limits = msgspec.json.Decoder(Limits).decode
_read_profile = msgspec.json.Decoder(Profile).decode


@lru_cache(maxsize=1024)
def read_limits(data: bytes) -> Limits:
    """Limits as stored; the same bytes are read once."""
    return _read_limits(data)


@lru_cache(maxsize=4096)
def read_profile(data: bytes | None) -> Profile | None:
    """A profile as stored; the same bytes are read once."""
    return None if data is None else _read_profile(data)


def stands(spec: Handoff, row: Any) -> Handoff:
    """A handoff from its unchanging part and the columns that change, in the order of the next line."""
    state, attempt, epoch, reroutes, holder, due_at, answer_id, to_agent, approved_by = row
    return replace(
        spec,
        state=_STATES[state],
        attempt=attempt,
        epoch=epoch,
        reroutes=reroutes,
        holder=holder or "",
        due_at=None if due_at is None else to_time(due_at),
        answer_id=answer_id or "",
        approved_by=approved_by or "",
        to_agent=to_agent,
    )


def read_handoff(row: Any) -> Handoff:
    """A handoff from its spec and the columns that `stands` takes."""
    return stands(read_spec(row[0]), row[1:10])


def as_spec(handoff: Handoff) -> Handoff:
    """What of a handoff never changes; the rest lives in columns."""
    plain: dict[str, Any] = {"holder": "", "due_at": None, "answer_id": "", "approved_by": ""}
    return replace(handoff, state=State.OFFERED, attempt=0, epoch=0, reroutes=0, **plain)


class Stand(msgspec.Struct, frozen=True):
    """A handoff as it stands in the store, with what only the store keeps of it."""

    handoff: Handoff
    audit_head: str
    tokens_reserved: int
    cost_reserved: int
    tokens_spent: int
    cost_spent: int
    lease_until: int | None
    breakers: bool  # whether any breaker counts failures


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says beside the handoff itself; a Step has the same fields."""

    reason: str = ""
    by: str = ""
    detail: dict[str, Any] = {}
    result: Return | None = None


def record(handoff: Handoff, moment: datetime, event: str, note: Note | Step, previous: str) -> tuple[bytes, bytes]:
    """The audit record of one event, as bytes and digest; `handoff` already stands in its new state."""
    duration = tokens = outcome = None
    if note.result is not None:
        duration = (moment - handoff.timestamp) // MILLISECOND
        tokens = note.result.audit.tokens_consumed or None
        outcome = "failed" if note.result.status == "timeout" else note.result.status
    context = handoff.context
    data = write_record(
        AuditRecord(
            handoff_id=handoff.id,
            timestamp=moment,
            event_type=event,
            from_agent=handoff.from_agent,
            to_agent=handoff.to_agent,
            handoff_type=handoff.type,
            workflow_id=handoff.workflow_id,
            reason=note.reason,
            context_snapshot=Snapshot(
                task_id=context.task_id,
                task_status=handoff.state,
                context_variables_hash=context.state_ref,
                artifact_count=len(context.artifacts),
            ),
            decision_rationale=handoff.audit.decision_rationale,
            risk_level=handoff.audit.risk_level,
            duration_ms=duration,
            tokens_consumed=tokens,
            outcome=outcome,
            attempt=handoff.attempt,
            epoch=handoff.epoch,
            by=note.by,
            detail=note.detail,
            previous=previous,
        )
    )
    data = redact_bytes(data)
    return data, sha256(data).digest()


def written(value: msgspec.Struct) -> bytes:
    """A record as bytes without secrets, in whatever field they stood."""
    return redact_bytes(canonical_record(value))
