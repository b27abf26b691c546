"""Between rows and records: what is written of a handoff, and the audit record of each step."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from baton.guards.base import Breaker, Facts
from baton.lifecycle import State
from baton.protocol.audit import AuditRecord, Snapshot
from baton.protocol.codec import canonical_record, to_microseconds, to_time
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.protocol.profile import Profile
from baton.protocol.results import Return

if TYPE_CHECKING:
    from baton.stores.base import Step

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


def read_handoff(row: Any) -> Handoff:
    """A handoff from spec, state, attempt, epoch, reroutes, holder, due_at, answer_id, to_agent."""
    spec, state, attempt, epoch, reroutes, holder, due_at, answer_id, to_agent = row[:9]
    return replace(
        read_spec(spec),
        state=_STATES[state],
        attempt=attempt,
        epoch=epoch,
        reroutes=reroutes,
        holder=holder or "",
        due_at=None if due_at is None else to_time(due_at),
        answer_id=answer_id or "",
        to_agent=to_agent,
    )


def write_spec(handoff: Handoff) -> bytes:
    """What of a handoff never changes; the rest lives in columns."""
    return canonical_record(
        replace(
            handoff, state=State.OFFERED, attempt=0, epoch=0, reroutes=0, holder="", due_at=None, answer_id=""
        )
    )


def workflow_facts(now: int, row: Any, *, load: int = 0, loops: tuple[int, int] = (0, 0), breakers: tuple[Breaker, ...] = ()) -> Facts:  # fmt: skip
    """Facts from handoffs, agents, four sums, created_at, target profile, available, sender profile."""
    handoffs, agents, tokens_spent, tokens_reserved, cost_spent, cost_reserved, started, target, available, sender = row
    return Facts(
        now,
        started,
        handoffs,
        read_agents(agents),
        tokens_spent,
        tokens_reserved,
        cost_spent,
        cost_reserved,
        loops[0],
        loops[1],
        read_profile(sender),
        read_profile(target),
        available != 0,
        load,
        breakers,
    )


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says beside the handoff itself; a Step has the same fields."""

    reason: str = ""
    by: str = ""
    detail: dict[str, Any] = {}
    result: Return | None = None


def record(handoff: Handoff, moment: int, event: str, note: Note | Step, previous: str) -> tuple[bytes, bytes]:
    """The audit record of one event, as bytes and digest; `handoff` already stands in its new state."""
    duration = tokens = outcome = None
    if note.result is not None:
        duration = (moment - to_microseconds(handoff.timestamp)) // 1000
        tokens = note.result.audit.tokens_consumed or None
        outcome = "failed" if note.result.status == "timeout" else note.result.status
    context = handoff.context
    data = canonical_record(
        AuditRecord(
            handoff_id=handoff.id,
            timestamp=to_time(moment),
            event_type=event,
            from_agent=handoff.from_agent,
            to_agent=handoff.to_agent,
            handoff_type=handoff.type,
            workflow_id=handoff.workflow_id,
            reason=note.reason,
            context_snapshot=Snapshot(
                task_id=context.task_id,
                task_status=handoff.state.value,
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
    return data, sha256(data).digest()
