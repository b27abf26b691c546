"""What must agree in any store at any time: states with the trail, digests with bytes, sums with parts."""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from baton.lifecycle import AUDIT_NAME, Event, State
from baton.protocol.audit import FENCED, INITIATED, LATE, AuditRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from baton.protocol.handoff import Handoff
    from baton.stores.base import Store

MANY = 1_000_000
_ENDS = {AUDIT_NAME[event] for event in (Event.COMPLETE, Event.FAIL, Event.CANCEL, Event.DENY)}
_read = msgspec.json.Decoder(AuditRecord).decode


def trail(store: Store, handoff_id: str) -> list[AuditRecord]:
    """The audit records of one handoff, in order."""
    return [_read(entry.record) for entry in store.audit(handoff_id=handoff_id, limit=MANY)]


def names(store: Store, handoff_id: str) -> list[str]:
    """The names of one handoff's audit events, in order."""
    return [record.event_type for record in trail(store, handoff_id)]


def flaws(store: Store) -> list[str]:
    """Say everything that does not agree; empty for a sound store."""
    handoffs = store.find(limit=MANY)
    trails: dict[str, list[AuditRecord]] = {handoff.id: [] for handoff in handoffs}
    found, heads = [], dict.fromkeys(trails, "")
    for entry in store.audit(limit=MANY):
        record = _read(entry.record)
        if record.handoff_id not in trails or entry.handoff_id != record.handoff_id:
            found.append(f"{record.handoff_id}: an audit record without its handoff")
            continue
        if sha256(entry.record).hexdigest() != entry.digest:
            found.append(f"{record.handoff_id}: {record.event_type} does not match its digest")
        if record.previous != heads[record.handoff_id]:
            found.append(f"{record.handoff_id}: {record.event_type} does not follow the record before it")
        heads[record.handoff_id] = entry.digest
        trails[record.handoff_id].append(record)
    for handoff in handoffs:
        found += [f"{handoff.id}: {flaw}" for flaw in _trail_flaws(handoff, trails[handoff.id])]
    return [*found, *_sum_flaws(store, handoffs)]


def _trail_flaws(handoff: Handoff, records: list[AuditRecord]) -> Iterator[str]:
    events = [record.event_type for record in records]
    if events[:1] != [INITIATED] or events.count(INITIATED) != 1:
        yield f"begins with {events[:1]} and not with one {INITIATED}"
        return
    last = records[-1]
    told = (last.context_snapshot.task_status, last.attempt, last.epoch, last.to_agent)
    stands = (handoff.state.value, handoff.attempt, handoff.epoch, handoff.to_agent)
    if told != stands:
        yield f"the trail says {told}, the state {stands}"
    accepted = [record.epoch for record in records if record.event_type == "accepted"]
    if accepted != list(range(1, handoff.epoch + 1)):
        yield f"epoch {handoff.epoch}, but the trail has accepted {accepted}"
    ended = [number for number, event in enumerate(events) if event in _ENDS]
    if len(ended) > 1 or (ended and set(events[ended[0] + 1 :]) - {LATE, FENCED}):
        yield f"something happened after its end: {events}"
    if (handoff.state is State.CLAIMED) != bool(handoff.holder):
        yield f"{handoff.state} and held by {handoff.holder!r}"


def _sum_flaws(store: Store, handoffs: list[Handoff]) -> Iterator[str]:
    made: dict[str, int] = defaultdict(int)
    claimed: set[str] = set()
    for handoff in handoffs:
        root = handoff.id == handoff.root_id
        made[handoff.workflow_id] += not root and not _was_refused(store, handoff)
        begun = handoff.state in {State.OFFERED, State.WAITING} and handoff.broadcast_group_id
        if handoff.state is State.CLAIMED or begun:
            claimed.add(handoff.workflow_id)
    for workflow_id, count in made.items():
        flow = store.workflow(workflow_id)
        if flow is None:
            yield f"workflow {workflow_id}: missing"
            continue
        if flow.handoffs != count:
            yield f"workflow {workflow_id}: {flow.handoffs} handoffs counted, {count} made"
        reserved, spent = (flow.tokens_reserved, flow.cost_reserved), (flow.tokens_spent, flow.cost_spent)
        if min(*reserved, *spent) < 0:
            yield f"workflow {workflow_id}: reserved {reserved}, spent {spent}"
        if any(reserved) and workflow_id not in claimed:
            yield f"workflow {workflow_id}: {reserved} set aside, and nobody works"


def _was_refused(store: Store, handoff: Handoff) -> bool:
    """Refused when it was offered: a person's refusal comes later, and that handoff counts."""
    return handoff.state is State.REFUSED and "denied" not in names(store, handoff.id)
