"""Whether the audit trail is still what was written.

Three things hold it together: each record's digest, each handoff's chain (a record names the one before it),
and the segments' roots. One pass recomputes all three from the stored bytes. It needs memory for the list of
segments, one batch of rows and the last digest of each handoff (of many handoffs, in a temporary file).
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from baton.stores import export
from baton.stores.base import Segment
from baton.stores.chain import Heads, in_hex, links, predecessors, read_labels
from baton.stores.report import Finding, Report
from baton.stores.seal import EVERY, LATE, Checkpoint, Log, root_over
from baton.stores.tombstone import Graves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from baton.stores.base import Tombstone
    from baton.stores.witness import Witness

    Row = tuple[int, bytes, bytes, bytes]  # place, handoff, record, digest
    RowsOf = Callable[[int, int], Sequence[Row]]
    Where = Callable[[int], dict[str, Any]]

BATCH = 1000
UNSEALED = 50_000
FINDINGS = 100
_SANE = 1_000_000  # rows in one segment; a forged row may claim any number


def verify(
    source: Log | str | Path,
    *,
    checkpoints: Iterable[Checkpoint] = (),
    deep: bool = False,
    witness: Witness | None = None,
) -> Report:
    """Check a store, an export directory, or one export file, against itself and the checkpoints.

    With `deep`, a store's other copies too: the columns by which records are found, and what each handoff says
    is its newest record (else only of the handoffs that have records to be sealed). Without a witness, tombstones
    are taken at their word.
    """
    confirms = witness.judge() if witness else _anybody
    if isinstance(source, str | Path):
        path = Path(source)
        walk = _Walk(Graves(export.read_tombstones(path), confirms), whole=path.is_dir(), copy=True)
        _walk_export(walk, path)
        return walk.report(checkpoints)
    while True:
        found = source.tombstones()
        walk = _Walk(Graves(found, confirms, source.id), whole=True)
        _walk_store(walk, source, deep=deep)
        if source.tombstones() == found:  # else it was pruned meanwhile
            return walk.report(checkpoints)


def _anybody(_: Tombstone) -> bool:
    return True


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """A run of records, the digests (in hex) that stand beside them, and which of the two do not agree."""

    records: Sequence[bytes]
    digests: Sequence[bytes]
    edited: Sequence[int]
    names: Sequence[bytes] = ()


class _Walk:
    """One pass over a log, batch by batch in its public order."""

    def __init__(self, graves: Graves, *, whole: bool, copy: bool = False) -> None:
        self.graves = graves
        self.whole = whole  # else it begins somewhere, and what came before is taken as given
        self.copy = copy  # may be kept for longer than the log itself
        self.heads = Heads()
        self.begun: Segment | None = None
        self.due: tuple[int, int, str] | None = (1, 1, "") if whole else None  # the next segment, record, root before
        self.roots: dict[int, str] = {}
        self.ends: dict[int, str] = {}
        self.digests: list[bytes] = []
        self.sealed = True
        self.repeats = False
        self.seq = 0  # where the row stands that was read last
        self.records = self.segments = self.unsealed = self.duplicates = self.pruned = self.problems = 0
        self.findings: list[Finding] = []
        self.heads.pass_by([], [digest.encode() for digest in graves.ends()])
        for grave in graves:
            self.ends[grave.first - 1], self.ends[grave.last] = grave.previous, grave.root
        for which in graves.invalid:
            self.find("tombstone", place=which)

    def find(self, kind: str, **where: Any) -> None:
        self.problems += 1
        if len(self.findings) < FINDINGS:
            self.findings.append(Finding(kind=kind, **where))

    def begin(self, segment: Segment) -> None:
        """Expect the rows of this segment; one that was seen before must be the same again."""
        self.digests = []
        self.repeats = segment.n in self.roots
        if self.repeats:
            return
        self._pass_over(segment.first)
        if self.due is None:
            self.ends[segment.first - 1] = segment.previous
        elif (segment.n, segment.first, segment.previous) != self.due and not self._is_kept_longer(segment):
            if segment.first > self.due[1]:
                self.find("missing", n=self.due[1], to=segment.first - 1)
            self.find("segment", n=segment.first, to=segment.last, segment=segment.n)
        self.begun = self.begun or segment
        self.due = (segment.n + 1, segment.last + 1, segment.root)
        self.segments += 1
        self.roots[segment.n] = self.ends[segment.last] = segment.root

    def _pass_over(self, to: int | None) -> None:
        """Go on behind the records that were pruned, up to this one."""
        while self.due and (to is None or self.due[1] < to) and (grave := self.graves.over(self.due[1])):
            n, first, root = self.due
            if first == grave.first and (n, root) != (grave.n, grave.previous):
                self.find("segment", n=grave.first, to=grave.last, segment=grave.n)
            self.pruned += (grave.last + 1 if to is None else min(grave.last + 1, to)) - first
            self.due = (grave.to + 1, grave.last + 1, grave.root)

    def _is_kept_longer(self, segment: Segment) -> bool:
        """Whether a copy still has what was pruned from the log."""
        grave = self.graves.over(segment.first)
        return self.copy and grave is not None and grave.n <= segment.n <= grave.to and segment.last <= grave.last

    def rows(self, rows: Rows, where: Where) -> None:
        """Check records against their digests, their handoffs' names, and the records before them."""
        for index in rows.edited:
            self.find("edited", **where(index))
        self.digests += rows.digests
        if self.repeats:
            self.duplicates += len(rows.records)
            return
        # Nothing but its chain answers for a record that is not sealed, so all of it is read.
        later = predecessors(rows.records, rows.names) if self.sealed and not rows.edited else None
        if later is not None and self.heads.pass_by(later, rows.digests):
            return
        tied = links(rows.records)
        names = [link.handoff_id for link in tied]
        for index in _differing([name.encode() for name in names], rows.names) if rows.names else ():
            self.find("mislabelled", **where(index))
        for index in self.heads.follow([link.previous.encode() for link in tied], rows.digests):
            # A part of a log may follow records that are not in it.
            if self.whole:
                self.find("unlinked", **{"handoff_id": names[index], **where(index)})

    def end(self, segment: Segment) -> None:
        """Check the rows of a segment against its root."""
        known = self.roots[segment.n]
        if root_over(segment, b"".join(self.digests)) != segment.root or segment.root != known:
            self.find("root", n=segment.first, to=segment.last, segment=segment.n)
        if not self.repeats:
            self.records += len(self.digests)
        self.digests = []

    def report(self, checkpoints: Iterable[Checkpoint]) -> Report:
        """Compare with the checkpoints, and sum up."""
        if self.whole:
            self._pass_over(None)
        agreed, first, last = 0, self.begun.first if self.begun else 0, self.due[1] - 1 if self.due else 0
        for point in checkpoints:
            if self.ends.get(point.n) == point.root:
                agreed += 1
            elif self.whole and point.n > last:
                self.find("cut", n=last + 1, to=point.n)
            elif (self.whole or first - 1 <= point.n <= last) and not self.graves.over(point.n):
                self.find("rewritten", n=point.n)
        return Report(
            first=first,
            last=last,
            root=self.due[2] if self.due else "",
            records=self.records,
            segments=self.segments,
            unsealed=self.unsealed,
            duplicates=self.duplicates,
            checkpoints=agreed,
            pruned=self.pruned,
            tombstones=len(self.graves.valid),
            problems=self.problems,
            findings=tuple(self.findings),
        )


def _walk_store(walk: _Walk, store: Log, *, deep: bool) -> None:
    fresh = store.segments()
    while True:
        for group in _groups(fresh):
            _walk_group(walk, store.sealed_rows, group)
        tail = _unsealed_rows(store, walk)
        # Rows that were sealed in between are in neither list, and later ones point to them: look again.
        fresh = store.segments()[walk.segments :]
        if not fresh:
            break
    walk.unsealed = len(tail)
    walk.sealed = walk.repeats = False
    for start in range(0, len(tail), BATCH):
        _walk_rows(walk, tail[start : start + BATCH], [0] * BATCH)
    if len(tail) == UNSEALED:
        walk.find("unread", seq=tail[-1][0])
    named = None if deep else list({name.decode(errors="replace") for _, name, _, _ in tail})
    for handoff_id in store.headless(named):
        walk.find("lost", handoff_id=handoff_id)
    _look_below(walk, store)
    if deep:
        _walk_labels(walk, store.labelled)


def _look_below(walk: _Walk, store: Log) -> None:
    """Where a tombstone stands there is nothing else."""
    for grave in walk.graves:
        if store.sealed_rows(grave.first, grave.last) or walk.roots.keys() & range(grave.n, grave.to + 1):
            walk.find("returned", n=grave.first, to=grave.last)


def _unsealed_rows(store: Log, walk: _Walk) -> Sequence[Row]:
    # They nearly always stand at the end. Where the numbers agree there are no others, and no need to look.
    tail = store.unsealed_rows(UNSEALED, walk.seq - LATE)
    return tail if walk.records + len(tail) == store.audited() else store.unsealed_rows(UNSEALED, EVERY)


def _walk_labels(walk: _Walk, labelled: Callable[[int, int], list[tuple[int, int, bytes, tuple[bytes, ...]]]]) -> None:
    """Compare the columns by which records are found with the records."""
    after = EVERY
    while rows := labelled(BATCH, after):
        for seq, n, record, keys in rows:
            labels = read_labels(record)
            if labels is not None and keys != tuple(key.encode() for key in labels[1:]):
                walk.find("mislabelled", n=n, seq=seq, handoff_id=labels[0])
        after = rows[-1][0]


def _groups(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Small neighbours together, so that they are read at once."""
    group: list[Segment] = []
    for segment in segments:
        fits = group and segment.first == group[-1].last + 1 and segment.last - group[0].first < BATCH
        if group and not fits:
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _walk_group(walk: _Walk, rows_of: RowsOf, group: Sequence[Segment]) -> None:
    if len(group) == 1:
        _walk_segment(walk, rows_of, group[0])
        return
    rows = rows_of(group[0].first, group[-1].last)
    if len(rows) != group[-1].last - group[0].first + 1:
        for segment in group:
            _walk_segment(walk, rows_of, segment)
        return
    at = 0
    for segment in group:
        count = segment.last - segment.first + 1
        walk.begin(segment)
        _walk_rows(walk, rows[at : at + count], range(segment.first, segment.last + 1))
        walk.end(segment)
        at += count


def _walk_segment(walk: _Walk, rows_of: RowsOf, segment: Segment) -> None:
    walk.begin(segment)
    if segment.last - segment.first >= _SANE:
        walk.find("segment", n=segment.first, to=segment.last, segment=segment.n)
        return
    for first in range(segment.first, segment.last + 1, BATCH):
        numbers: Sequence[int] = range(first, min(first + BATCH, segment.last + 1))
        rows = rows_of(numbers[0], numbers[-1])
        if len(rows) != len(numbers):
            single = [(n, row) for n in numbers for row in rows_of(n, n)] if rows else []
            there = {n for n, _ in single}
            for n in numbers:
                if n not in there:
                    walk.find("missing", n=n, segment=segment.n)
            numbers, rows = [n for n, _ in single], [row for _, row in single]
        _walk_rows(walk, rows, numbers)
    walk.end(segment)


def _walk_rows(walk: _Walk, rows: Sequence[Row], numbers: Sequence[int]) -> None:
    def where(index: int) -> dict[str, Any]:
        seq, name, _, _ = rows[index]
        return {"n": numbers[index], "seq": seq, "handoff_id": name.decode(errors="replace")}

    records = [row[2] for row in rows]
    noted = [row[3] for row in rows]
    actual = [sha256(record).digest() for record in records]
    edited = [] if actual == noted else _differing(actual, noted)
    names = [row[1] for row in rows]
    walk.seq = rows[-1][0] if rows else walk.seq
    walk.rows(Rows(records=records, digests=in_hex(noted), edited=edited, names=names), where)


def _differing(ones: Sequence[bytes], others: Sequence[bytes]) -> list[int]:
    return [index for index, (one, other) in enumerate(zip(ones, others, strict=True)) if one != other]


def _walk_export(walk: _Walk, path: Path) -> None:
    current: Segment | None = None
    due = 0
    for part in export.read(path):
        if part.segment is not None:
            if current is not None:
                walk.end(current)
            current, due = part.segment, part.segment.first
            walk.begin(current)
        if part.damaged or current is None:
            walk.find("unreadable", place=part.place)
        if part.records and current is not None:
            if part.first > due:
                walk.find("missing", n=due, to=part.first - 1, segment=current.n, place=part.place)
            rows = Rows(records=part.records, digests=part.digests, edited=part.edited)
            walk.rows(rows, partial(_numbered, part))
            due = part.first + len(part.records)
    if current is not None:
        walk.end(current)


def _numbered(part: export.Part, index: int) -> dict[str, Any]:
    return {"n": part.first + index, "place": part.place}
