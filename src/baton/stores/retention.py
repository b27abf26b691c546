"""How long a record is kept: decided from what the records themselves say.

A workflow is kept as a whole, for the longest of the periods that apply to it, counted from its newest record:

- *active*: while anything of it is open, and that long after everything in it has ended,
- *completed*: where any of its handoffs was completed,
- *escalations*: where any of its handoffs was escalated or had to be decided by a person.

What cannot be read, or is not known to have ended, is kept.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import Malformed, Refused
from baton.lifecycle import AUDIT_NAME, ENDED, Event
from baton.protocol.audit import FENCED, LATE
from baton.protocol.codec import seconds, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

DAY = 86_400_000_000
ACTIVE, COMPLETED, ESCALATIONS = "active", "completed", "escalations"
CLASSES = (ACTIVE, COMPLETED, ESCALATIONS)
_UP = {AUDIT_NAME[Event.ESCALATE], AUDIT_NAME[Event.PARK]}
_AFTER = {LATE, FENCED}
_DONE = AUDIT_NAME[Event.COMPLETE]
_ENDS = {state.value for state in ENDED}


class Periods(msgspec.Struct, frozen=True, kw_only=True):
    """How long each class is kept, in microseconds."""

    active: int = 30 * DAY  # after the end
    completed: int = 90 * DAY
    escalations: int = 180 * DAY


LEAST = Periods()


def as_periods(keep: Mapping[str, float | str | timedelta], *, shorter: bool) -> Periods:
    """Periods of which some were named; below what is the least only where a person said so."""
    if unknown := sorted(keep.keys() - set(CLASSES)):
        raise Malformed(f"keep: {unknown[0]!r:.60} is no class; known: {', '.join(CLASSES)}")
    periods = Periods(**{name: int(seconds(value, f"keep.{name}") * 1e6) for name, value in keep.items()})
    for name in CLASSES:
        if getattr(periods, name) < getattr(LEAST, name) and not shorter:
            days = getattr(LEAST, name) // DAY
            raise Refused(f"keep.{name}: at least {days} days; a person may say that a shorter time is meant")
    return periods


class _Stood(msgspec.Struct, frozen=True, gc=False):
    task_status: str = ""


class _Detail(msgspec.Struct, frozen=True, gc=False):
    escalation: Any = None  # `UP` of the audit record


class Told(msgspec.Struct, frozen=True, gc=False):
    """What of a record retention needs."""

    handoff_id: str
    timestamp: datetime
    digest: str = ""  # of the record itself
    event_type: str = ""
    previous: str = ""
    handoff_type: str = ""
    workflow_id: str = ""
    context_snapshot: _Stood = _Stood()
    detail: _Detail = _Detail()

    @property
    def went_up(self) -> bool:
        """Whether it tells of work that went up to another level, or to a person."""
        return self.event_type in _UP or self.handoff_type == "escalation" or self.detail.escalation is not None

    @property
    def whole(self) -> str:
        """What it is kept with."""
        return self.workflow_id or self.handoff_id

    @property
    def ended(self) -> bool:
        """Whether its handoff had ended then."""
        return self.context_snapshot.task_status in _ENDS


_read = msgspec.json.Decoder(Told).decode


def read_told(record: bytes, digest: str) -> Told | None:
    """A record as retention reads it; None for what cannot be read."""
    try:
        told = _read(record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return msgspec.structs.replace(told, digest=digest) if told.timestamp.tzinfo else None


class Life(msgspec.Struct, gc=False):
    """What the records say of one workflow."""

    newest: int = 0
    records: int = 0
    completed: bool = False
    escalated: bool = False
    late: bool = False  # something was written after an end
    pruned: bool = False  # an end of it is gone already, so all of it may go

    @property
    def kept_as(self) -> str:
        """The class by which it is kept."""
        return ESCALATIONS if self.escalated else COMPLETED if self.completed else ACTIVE

    def kept_until(self, periods: Periods) -> int:
        """The moment from which it may go, once everything in it has ended."""
        longest = periods.active
        if self.completed:
            longest = max(longest, periods.completed)
        if self.escalated:
            longest = max(longest, periods.escalations)
        return self.newest + longest


class Lives:
    """Every workflow that the records tell of."""

    def __init__(self) -> None:
        self._of: dict[str, Life] = {}
        self._open: dict[str, Told] = {}  # the newest records of handoffs that have not ended

    def add(self, told: Iterable[Told]) -> None:
        """Take records in the order in which they were written."""
        for one in told:
            life = self._of.get(one.whole)
            if life is None:
                life = self._of[one.whole] = Life()
            life.records += 1
            life.newest = max(life.newest, to_microseconds(one.timestamp))
            life.completed |= one.event_type == _DONE
            life.escalated |= one.went_up
            life.late |= one.event_type in _AFTER
            if one.ended:
                self._open.pop(one.handoff_id, None)
            else:
                self._open[one.handoff_id] = one

    def ended_before(self, begins: set[str]) -> None:
        """These records were followed by others that were pruned, and so were over then."""
        for one in [one for one in self._open.values() if one.digest in begins]:
            del self._open[one.handoff_id]
            self._of[one.whole].pruned = True

    def may_go(self, periods: Periods, now: int) -> dict[str, Life]:
        """The workflows whose time is over."""
        kept = {one.whole for one in self._open.values()}
        return {
            name: life
            for name, life in self._of.items()
            if name not in kept and (life.pruned or life.kept_until(periods) <= now)
        }

    def classes(self) -> dict[str, int]:
        """How many records there are of each class."""
        count = dict.fromkeys(CLASSES, 0)
        for life in self._of.values():
            count[life.kept_as] += life.records
        return count


def loose_ends(told: Sequence[Told], over: Mapping[str, Life], gone: Container[str]) -> tuple[list[str], list[str]]:
    """Of a run that is removed: its digests that records elsewhere follow, and those elsewhere that it followed."""
    ends, begins = {}, []
    for one in told:
        if one.whole in gone:
            continue
        if one.handoff_id not in ends and one.previous:
            begins.append(one.previous)
        ends[one.handoff_id] = one
    return [one.digest for one in ends.values() if not one.ended or over[one.whole].late], begins
