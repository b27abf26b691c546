"""Between rows and records: what is written of a handoff, and the audit record of each step."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import BatonError, Malformed
from baton.lifecycle import State
from baton.protocol.audit import AuditRecord, Snapshot, write_record
from baton.protocol.codec import canonical_record, faithful, to_time
from baton.protocol.fields import identifier
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.protocol.profile import Profile
from baton.protocol.results import Return, failed
from baton.protocol.secrets import redact_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from baton.stores.base import Step

    Clean = Callable[[bytes], bytes]

MILLISECOND = timedelta(milliseconds=1)

replace = msgspec.structs.replace
read_spec = msgspec.json.Decoder(Handoff).decode
UNREADABLE = "cannot be read: "  # so begins the warning of a handoff of which this is not all
_OF_SPEC = {field.encode_name: field.type for field in msgspec.structs.fields(Handoff)}
_OF_LIMITS = {field.encode_name: field.type for field in msgspec.structs.fields(Limits)}
ILL = (msgspec.MsgspecError, BatonError, ValueError)  # what reading a row that somebody else wrote may raise
logger = logging.getLogger("baton")
read_agents = msgspec.json.Decoder(tuple[str, ...]).decode
_STATES = {state.value: state for state in State}
_read_limits = msgspec.json.Decoder(Limits).decode
_read_profile = msgspec.json.Decoder(Profile).decode
_read_return = msgspec.json.Decoder(Return).decode


def legible(data: bytes, handoff_id: str) -> Handoff:
    """What never changes of a handoff; of one that somebody spoiled, what can be read, and a warning that says so."""
    try:
        return read_spec(data)
    except ILL as error:
        kept, lost = _salvaged(data, _OF_SPEC)
        for name in ("from_agent", "to_agent"):
            kept.setdefault(name, "?")
        why = f"{UNREADABLE}{', '.join(lost) or 'any of it'} ({error})"
        return Handoff(**{**kept, "id": handoff_id, "warnings": (*kept.get("warnings", ()), why)})


def unreadable(handoff: Handoff) -> str:
    """What cannot be read of a handoff that came from a store; empty where all can."""
    return next((one for one in handoff.warnings if one.startswith(UNREADABLE)), "") if handoff.warnings else ""


def _salvaged(data: bytes, fields: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields of a stored record that can be read, and the names of those that cannot."""
    kept: dict[str, Any] = {}
    lost: list[str] = []
    try:
        raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except ILL:
        return kept, lost
    for name, value in raw.items():
        try:
            kept[name] = msgspec.json.decode(value, type=fields[name])
        except (*ILL, KeyError):
            lost.append(name)
    return {name: value for name, value in kept.items() if name in fields}, lost


def read_return(data: bytes) -> Return:
    """An answer as stored; one that cannot be read is a failure."""
    try:
        return _read_return(data)
    except ILL as error:
        return failed(f"Malformed: the stored answer {UNREADABLE}{error}; ask for the work again", retryable=False)


@lru_cache(maxsize=1024)
def read_limits(data: bytes) -> Limits:
    """Limits as stored; the same bytes are read once. What cannot be read of them allows nothing."""
    try:
        return _read_limits(data)
    except ILL as error:
        kept, lost = _salvaged(data, _OF_LIMITS)
        closed: dict[str, Any] = {name: 0 for name in lost if name.startswith("max_")}
        if not kept or {"approve", "approve_risk"} & set(lost):
            closed["approve"] = ("*",)
        logger.warning("limits of a workflow: %s cannot be read (%s), and allow nothing", ", ".join(lost), error)
        try:
            return Limits(**{**kept, **closed})
        except BatonError:
            return Limits(max_handoffs=0, max_tokens=0, max_cost=0, approve=("*",))


@lru_cache(maxsize=4096)
def read_profile(data: bytes | None) -> Profile | None:
    """A profile as stored; the same bytes are read once."""
    if data is None:
        return None
    try:
        return _read_profile(data)
    except ILL as error:
        agent_id = _salvaged(data, {"agent_id": str})[0].get("agent_id")
        if not agent_id:
            raise Malformed(f"agent: a profile {UNREADABLE}{error}; restore the store from a backup") from None
        why = f"its profile {UNREADABLE}{error}; register {agent_id} again"
        return Profile(agent_id=agent_id, description=why, accepts_handoffs=False, allowed_targets=())


def registered(profile: Profile) -> bytes:
    """A profile as a store keeps it."""
    identifier(profile.agent_id, "agent_id")
    return redact_bytes(faithful(profile, _read_profile, "profile")[0])


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
    """A handoff from its spec, the columns that `stands` takes, and its id."""
    return stands(legible(row[0], row[10]), row[1:10])


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
