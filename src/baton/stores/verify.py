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
from baton.stores.seal import EVERY, LATE, Checkpoint, Log, root_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Row = tuple[int, bytes, bytes, bytes]  # place, handoff, record, digest
    RowsOf = Callable[[int, int], Sequence[Row]]
    Where = Callable[[int], dict[str, Any]]

BATCH = 1000
UNSEALED = 50_000
FINDINGS = 100
_SANE = 1_000_000  # rows in one segment; a forged row may claim any number

MEANING = {
    "edited": "the record is not the one that was written: its bytes do not match its digest",
    "mislabelled": "the row stands under other names than its record, so queries miss it",
    "unlinked": "it does not follow the handoff's record before it: one was changed, removed or forged",
    "lost": "the newest record of this handoff is gone, or is not the one that was written",
    "missing": "records that were sealed are gone",
    "root": "these records or their order are not what was sealed: one was changed, moved, added or removed",
    "segment": "this segment does not continue the one before it: segments were removed, moved or rewritten",
    "rewritten": "a checkpoint holds another root for this point: the log was rewritten after it was taken",
    "cut": "the log ends before a checkpoint that it had reached: its end was cut off (or not exported yet)",
    "replaced": "it stood at this place, and now another log stands there: bring it back from a backup, "
    "or, if this was meant, say so with `baton audit verify --accept-new`",
    "unreadable": "a line is not what an export writes: it was damaged or changed",
    "unread": "more rows wait to be sealed than one pass looks at: seal them and verify again",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong: what, where (public numbers `n` to `to`), and what it means."""

    kind: str
    n: int = 0  # 0: not sealed
    to: int = 0
    seq: int = 0  # in the store
    handoff_id: str = ""
    segment: int = 0
    place: str = ""  # file and line of an export

    @property
    def meaning(self) -> str:
        return MEANING[self.kind]

    def __str__(self) -> str:
        span = f"record {self.n}" if self.to in {0, self.n} else f"records {self.n} to {self.to}"
        parts = [
            span if self.n else "",
            f"row {self.seq}" if self.seq else "",
            f"handoff {self.handoff_id}" if self.handoff_id else "",
            f"segment {self.segment}" if self.segment else "",
            self.place,
        ]
        return f"{self.kind}: {', '.join(filter(None, parts)) or 'log'}: {self.meaning}"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` read and what it found; `findings` holds the first hundred of `problems`."""

    first: int = 0
    last: int = 0
    root: str = ""
    records: int = 0
    segments: int = 0
    unsealed: int = 0
    duplicates: int = 0  # exported twice, with the same content
    checkpoints: int = 0  # that the log agrees with
    problems: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        span = f" ({self.first} to {self.last})" if self.first > 1 else ""
        read = f"{_counted(self.records, 'record')}{span}"
        more = f"; {self.unsealed} more not sealed yet" if self.unsealed else ""
        if self.checkpoints:
            more += f"; {_counted(self.checkpoints, 'checkpoint')} {'agrees' if self.checkpoints == 1 else 'agree'}"
        if self.ok:
            return f"verified: {read}, all as written{more}"
        rest = [f"and {self.problems - len(self.findings)} more"] if self.problems > len(self.findings) else []
        head = f"BROKEN: {_counted(self.problems, 'finding')} in {read}{more}"
        return "\n".join([head, *map(str, self.findings), *rest])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def verify(source: Log | str | Path, *, checkpoints: Iterable[Checkpoint] = (), deep: bool = False) -> Report:
    """Check a store, an export directory, or one export file, against itself and the checkpoints.

    With `deep`, a store's other copies too: the columns by which records are found, and what each handoff says
    is its newest record (else only of the handoffs that have records to be sealed).
    """
    if not isinstance(source, str | Path):
        walk = _Walk(whole=True)
        _walk_store(walk, source, deep=deep)
    else:
        path = Path(source)
        walk = _Walk(whole=path.is_dir())
        _walk_export(walk, path)
    return walk.report(checkpoints)


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """A run of records, the digests (in hex) that stand beside them, and which of the two do not agree."""

    records: Sequence[bytes]
    digests: Sequence[bytes]
    edited: Sequence[int]
    names: Sequence[bytes] = ()


class _Walk:
    """One pass over a log, batch by batch in its public order."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole  # else it begins somewhere, and what came before is taken as given
        self.heads = Heads()
        self.begun: Segment | None = None
        self.last: Segment | None = None
        self.roots: dict[int, str] = {}
        self.ends: dict[int, str] = {}
        self.digests: list[bytes] = []
        self.sealed = True
        self.repeats = False
        self.seq = 0  # where the row stands that was read last
        self.records = self.segments = self.unsealed = self.duplicates = self.problems = 0
        self.findings: list[Finding] = []

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
        last = self.last
        if last is None and not self.whole:
            self.ends[segment.first - 1] = segment.previous
        else:
            due = (last.n + 1, last.last + 1, last.root) if last else (1, 1, "")
            if (segment.n, segment.first, segment.previous) != due:
                if segment.first > due[1]:
                    self.find("missing", n=due[1], to=segment.first - 1)
                self.find("segment", n=segment.first, to=segment.last, segment=segment.n)
        self.begun = self.begun or segment
        self.last = segment
        self.segments += 1
        self.roots[segment.n] = self.ends[segment.last] = segment.root

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
        agreed, first, last = 0, self.begun.first if self.begun else 0, self.last.last if self.last else 0
        for point in checkpoints:
            if self.ends.get(point.n) == point.root:
                agreed += 1
            elif self.whole and point.n > last:
                self.find("cut", n=last + 1, to=point.n)
            elif self.whole or first - 1 <= point.n <= last:
                self.find("rewritten", n=point.n)
        return Report(
            first=first,
            last=last,
            root=self.last.root if self.last else "",
            records=self.records,
            segments=self.segments,
            unsealed=self.unsealed,
            duplicates=self.duplicates,
            checkpoints=agreed,
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
    if deep:
        _walk_labels(walk, store.labelled)


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
