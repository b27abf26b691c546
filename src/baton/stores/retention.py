"""How long a record is kept: decided from what the records themselves say.

A workflow is kept as a whole, for the longest of the periods that apply to it, counted from its newest record:

- *active*: while anything of it is open, and that long after everything in it has ended,
- *completed*: where any of its handoffs was completed,
- *escalations*: where any of its handoffs was escalated or had to be decided by a person.

What cannot be read, or is not known to have ended, is kept.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from baton.errors import Malformed, Refused
from baton.lifecycle import AUDIT_NAME, ENDED, Event
from baton.protocol.codec import seconds, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DAY = 86_400_000_000
ACTIVE, COMPLETED, ESCALATIONS = "active", "completed", "escalations"
CLASSES = (ACTIVE, COMPLETED, ESCALATIONS)
_UP = {AUDIT_NAME[Event.ESCALATE], AUDIT_NAME[Event.PARK]}
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


class Told(msgspec.Struct, frozen=True, gc=False):
    """What of a record retention needs."""

    handoff_id: str
    timestamp: datetime
    event_type: str
    handoff_type: str = ""
    workflow_id: str = ""
    context_snapshot: _Stood = _Stood()

    @property
    def whole(self) -> str:
        """What it is kept with."""
        return self.workflow_id or self.handoff_id


_read = msgspec.json.Decoder(Told).decode


def read_told(record: bytes) -> Told | None:
    """A record as retention reads it; None for what cannot be read."""
    try:
        told = _read(record)
        return told if told.timestamp.tzinfo else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class Life(msgspec.Struct, gc=False):
    """What the records say of one workflow."""

    newest: int = 0
    records: int = 0
    completed: bool = False
    escalated: bool = False
    pruned: bool = False  # some of it is gone already, so all of it may go

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
        self._open: dict[str, str] = {}  # handoffs that have not ended, and their workflows

    def add(self, told: Iterable[Told]) -> None:
        """Take records in the order in which they were written."""
        for one in told:
            life = self._of.get(one.whole)
            if life is None:
                life = self._of[one.whole] = Life()
            life.records += 1
            life.newest = max(life.newest, to_microseconds(one.timestamp))
            life.completed |= one.event_type == _DONE
            life.escalated |= one.event_type in _UP or one.handoff_type == "escalation"
            if one.context_snapshot.task_status in _ENDS:
                self._open.pop(one.handoff_id, None)
            else:
                self._open[one.handoff_id] = one.whole

    def open(self) -> list[str]:
        """The handoffs whose newest record is no end."""
        return list(self._open)

    def ended_before(self, handoff_id: str) -> None:
        """Its end is among what was pruned, and with it the right to keep the rest."""
        self._of[self._open.pop(handoff_id)].pruned = True

    def may_go(self, periods: Periods, now: int) -> dict[str, Life]:
        """The workflows whose time is over."""
        kept = set(self._open.values())
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


def last_of_each(told: Sequence[Told], digests: Sequence[str], gone: Iterable[str]) -> tuple[str, ...]:
    """Of a run that is removed: the digests that what remains refers to, by its records or its handoffs' rows."""
    left, ends = set(gone), {}
    for one, digest in zip(told, digests, strict=True):
        if one.whole not in left:
            ends[one.handoff_id] = digest
    return tuple(ends.values())
