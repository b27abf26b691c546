"""Remove what was kept long enough: whole segments, the rows of what is over, content without owner.

The rows of a workflow go first, whatever happens to its records. A segment goes when every record in it may go,
wherever it stands in the log; the newest one always stays. Neighbours go together, up to a thousand records in one
transaction with the tombstone that stands for them. So whenever it is interrupted, what is left is a log that verifies.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from baton.errors import Conflict
from baton.protocol.codec import to_microseconds
from baton.stores.base import Entry, Segment, Tombstone
from baton.stores.retention import LEAST, Lives, Periods, Told, loose_ends, read_told
from baton.stores.sweep import sweep
from baton.stores.tombstone import Graves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from baton.stores.base import Store
    from baton.stores.retention import Life

PAGE = 1000
RUN_ROWS = 1000  # removed in one transaction,
WORKFLOWS = 100  # and of these


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants what pruned, and why."""

    by: str
    reason: str = ""
    periods: Periods = LEAST
    dry_run: bool = False


class Pruned(msgspec.Struct, kw_only=True):
    """What was removed, or would be."""

    dry_run: bool = False
    records: int = 0
    bytes: int = 0  # of these records
    segments: int = 0
    tombstones: int = 0
    workflows: int = 0
    skipped: int = 0  # records that something happened beside meanwhile; the next time
    alerts: int = 0
    contents: int = 0
    content_bytes: int = 0
    stored: dict[str, int] = {}  # records by class: all,
    over: dict[str, int] = {}  # those whose time is over,
    removed: dict[str, int] = {}  # and those of them in segments of which nothing has to stay


class _Run:
    """Neighbouring segments that go together."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.told: list[Told] = []
        self.bytes = 0

    def add(self, segment: Segment, told: list[Told], entries: list[Entry]) -> None:
        self.segments.append(segment)
        self.told += told
        self.bytes += sum(len(entry.record) for entry in entries)


def prune(store: Store, order: Order, sign: Callable[[Tombstone], Tombstone]) -> Pruned:
    """Remove what may go now, of a log that is known to be sound."""
    now = store.now()
    lives, seen = _survey(store)
    over = lives.may_go(order.periods, now)
    done = Pruned(dry_run=order.dry_run, stored=lives.classes(), over=_by_class(over.values()))
    done.workflows = _forget(store, over, None if order.dry_run else seen)
    removed: Counter[str] = Counter()
    for run in _runs(store, over):
        count = Counter(one.whole for one in run.told)
        gone = {whole for whole, records in count.items() if over[whole].records == records}
        if not order.dry_run:
            try:
                store.bury(sign(_tombstone(store, order, run, over, gone)))
            except Conflict:
                done.skipped += len(run.told)
                continue
        for whole, records in count.items():
            over[whole].records -= records
            removed[over[whole].kept_as] += records
        done.records += len(run.told)
        done.bytes += run.bytes
        done.segments += len(run.segments)
        done.tombstones += 1
    done.removed = dict(removed)
    if not order.dry_run:
        done.alerts = store.forget_alerts(now - order.periods.completed)
        done.contents, done.content_bytes = sweep(store)
    return done


def _survey(store: Store) -> tuple[Lives, int]:
    """What the records say of every workflow, and up to which one."""
    lives, after = Lives(), 0
    while page := store.audit(after=after, limit=PAGE):
        after = page[-1].seq
        lives.add(told for entry in page if (told := read_told(entry.record, entry.digest)) is not None)
    lives.ended_before(Graves(store.tombstones(), lambda _: True).begins())  # of a log that is known to be sound
    return lives, after


def _forget(store: Store, over: dict[str, Life], seen: int | None) -> int:
    """Remove the rows of what is over before any record of it: nothing can happen to it any more then.

    What is open after all, or has newer records than were seen, stays. Without `seen` it is only counted.
    """
    names = list(over)
    if seen is None:
        return sum(store.workflow(name) is not None for name in names)
    count = 0
    for first in range(0, len(names), WORKFLOWS):
        removed, stay = store.forget(names[first : first + WORKFLOWS], seen)
        count += removed
        for name in stay:
            del over[name]
    return count


def _runs(store: Store, over: dict[str, Life]) -> Iterator[_Run]:
    """Segments of which nothing has to stay, in order, those together that stand together."""
    run = _Run()
    for segment in store.segments()[:-1]:
        entries = store.sealed(segment.first, segment.last)
        told = [
            one for entry in entries if (one := read_told(entry.record, entry.digest)) is not None and one.whole in over
        ]
        goes = len(told) == segment.last - segment.first + 1
        follows = run.segments and run.segments[-1].n + 1 == segment.n
        if run.told and not (goes and follows and len(run.told) + len(told) <= RUN_ROWS):
            yield run
            run = _Run()
        if goes:
            run.add(segment, told, entries)
    if run.told:
        yield run


def _tombstone(store: Store, order: Order, run: _Run, over: dict[str, Life], gone: set[str]) -> Tombstone:
    first, last = run.segments[0], run.segments[-1]
    ends, begins = loose_ends(run.told, over, gone)
    times = [to_microseconds(one.timestamp) for one in run.told]
    return Tombstone(
        log=store.id,
        n=first.n,
        to=last.n,
        first=first.first,
        last=last.last,
        previous=first.previous,
        root=last.root,
        oldest=min(times),
        newest=max(times),
        classes=dict(Counter(over[one.whole].kept_as for one in run.told)),
        ends=tuple(ends),
        begins=tuple(begins),
        time=store.now(),
        by=order.by,
        reason=order.reason,
    )


def _by_class(lives: Iterable[Life]) -> dict[str, int]:
    count: Counter[str] = Counter()
    for life in lives:
        count[life.kept_as] += life.records
    return dict(count)
