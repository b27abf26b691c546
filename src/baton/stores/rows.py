"""Between rows and records: what is written of a handoff, and the audit record of each step."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import Malformed
from baton.lifecycle import State
from baton.protocol.audit import AuditRecord, Snapshot, write_record
from baton.protocol.codec import canonical_record, to_time
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.protocol.profile import Profile
from baton.protocol.results import Return
from baton.protocol.secrets import redact_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from baton.stores.base import Step

    Clean = Callable[[bytes], bytes]

MILLISECOND = timedelta(milliseconds=1)

replace = msgspec.structs.replace
read_spec = msgspec.json.Decoder(Handoff).decode
read_agents = msgspec.json.Decoder(tuple[str, ...]).decode
_STATES = {state.value: state for state in State}
_read_limits = msgspec.json.Decoder(Limits).decode
_read_profile = msgspec.json.Decoder(Profile).decode
read_return = msgspec.json.Decoder(Return).decode


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


class Row(msgspec.Struct, frozen=True, gc=False):
    """A handoff as it stands in a store, with what only the store keeps of it. Times in microseconds."""

    handoff: Handoff
    head: str  # the digest of its newest audit record
    due_at: int | None = None
    lease_until: int | None = None
    timeout_at: int | None = None
    reminded: bool = False
    tokens_reserved: int = 0
    cost_reserved: int = 0
    tokens_spent: int = 0  # by all claims, the current one included
    cost_spent: int = 0
    tokens_before: int = 0  # by those before the current one
    cost_before: int = 0
    result: bytes | None = None
    breakers: bool = True  # whether any breaker counts failures, as far as known
    locks: bool = True  # whether there are any locks, as far as known
    told: bool = False  # whether an alert about it is open
    parts: bool = False  # whether it delegated anything


_FRESH: dict[str, Any] = {
    "state": State.OFFERED, "attempt": 0, "epoch": 0, "reroutes": 0, "holder": "", "due_at": None, "answer_id": "",
    "approved_by": "",
}  # fmt: skip
_standing = attrgetter(*_FRESH)
_UNTOUCHED = tuple(_FRESH.values())


def stored(handoff: Handoff, clean: Clean) -> tuple[Handoff, bytes]:
    """A handoff as a store keeps it, and the bytes of what of it never changes; the rest lives in columns.

    Nobody else can still change a part of it.
    """
    standing = _standing(handoff)
    data = canonical_record(handoff if standing == _UNTOUCHED else replace(handoff, **_FRESH))
    spec = clean(data)
    context = handoff.context
    if spec is not data or context.completed_work or context.metadata or context.context_variables:
        handoff = replace(read_spec(spec), **dict(zip(_FRESH, standing, strict=True)))
    return handoff, spec


FOUND = frozenset(
    (
        "id", "workflow_id", "parent_id", "line_id", "from_agent", "to_agent", "state", "holder", "conversation_id",
        "broadcast_group_id",
    )
)  # fmt: skip
AUDITED = frozenset(("handoff_id", "task_id", "from_agent", "to_agent"))


def wanted(where: dict[str, Any], known: frozenset[str]) -> dict[str, set[str]]:
    """The values that each key may have; a key without a value asks nothing."""
    if unknown := sorted(where.keys() - known):
        raise Malformed(f"find: {', '.join(unknown)}: not a key; known: {', '.join(sorted(known))}")
    given = {name: [value] if isinstance(value, str) else value for name, value in where.items() if value is not None}
    return {name: {str(item) for item in values} for name, values in given.items()}


class Note(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a record says beside the handoff itself; a Step has the same fields."""

    reason: str = ""
    by: str = ""
    rationale: str = ""
    detail: dict[str, Any] = {}
    result: Return | None = None


def record(handoff: Handoff, moment: datetime, event: str, note: Note | Step, previous: str) -> bytes:
    """The audit record of one event; `handoff` already stands in its new state."""
    duration = tokens = outcome = None
    if note.result is not None:
        duration = (moment - handoff.timestamp) // MILLISECOND
        tokens = note.result.audit.tokens_consumed or None
        outcome = "failed" if note.result.status == "timeout" else note.result.status
    context = handoff.context
    return write_record(
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
            decision_rationale=note.rationale or handoff.audit.decision_rationale,
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


def written(value: msgspec.Struct) -> bytes:
    """A record as bytes without secrets, in whatever field they stood."""
    return redact_bytes(canonical_record(value))
