r"""The public order of the audit trail, and what is remembered of it outside.

A step writes its audit row in its own transaction, without a global lock. A sealer gives the committed rows
their public numbers 1, 2, 3, … in segments. A segment's root is

    SHA-256( "<previous root> <n> <first> <last> <sealed_at>\n" + the rows' digests in hex, in order )

so a root stands for everything before it. What a root cannot know is that something came after it: that is
what checkpoints, kept outside the log, are for.
"""

from __future__ import annotations

import fcntl
import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from baton.errors import AuditBroken, Conflict, StoreError
from baton.stores.base import Entry, Row, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SEGMENT_ROWS = 1000
LATE = 10_000  # how many rows may commit before one whose number is lower
EVERY = -(2**63)
CHECKPOINTS = "audit-checkpoints.jsonl"
_ATTEMPTS = 1000  # each lost race is another sealer's progress
_TAIL = 1024  # longer than any checkpoint line


class Log(Protocol):
    """What sealing and verifying need of a store."""

    @property
    def id(self) -> str: ...
    def now(self) -> int: ...
    def unsealed(self, limit: int, after: int = ...) -> list[Entry]: ...
    def add_segment(self, segment: Segment, seqs: Sequence[int]) -> None: ...
    def segments(self) -> list[Segment]: ...
    def sealed(self, first: int, last: int) -> list[Entry]: ...
    def last_segment(self) -> Segment | None: ...
    def unsealed_rows(self, limit: int, after: int = ...) -> Sequence[Row]: ...
    def sealed_rows(self, first: int, last: int) -> Sequence[Row]: ...
    def audited(self) -> int: ...
    def labelled(self, limit: int, after: int = ...) -> list[tuple[int, int, bytes, tuple[bytes, ...]]]: ...
    def headless(self, handoffs: Sequence[str] | None = None) -> list[str]: ...
    def tombstones(self) -> list[bytes]: ...


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log reached record `n`, and its segment ended with this root."""

    n: int
    root: str
    time: int


def root_of(segment: Segment, digests: Iterable[str]) -> str:
    """The root that a segment with these digests must have."""
    return root_over(segment, "".join(digests).encode())


def root_over(segment: Segment, digests: bytes) -> str:
    """The root over digests that are joined already."""
    head = f"{segment.previous} {segment.n} {segment.first} {segment.last} {segment.sealed_at}\n"
    return sha256(head.encode() + digests).hexdigest()


def seal(store: Log, *, limit: int = SEGMENT_ROWS) -> int:
    """Seal all committed rows, at most `limit` in one segment; how many this call sealed.

    A row that commits late gets the next free number. Any number of processes may seal at once, and die.
    """
    done = lost = 0
    while lost < _ATTEMPTS:
        # The segment is read before the rows: if another sealer comes between, it no longer fits.
        last = store.last_segment()
        rows = store.unsealed(limit, _settled(store, last))
        if not rows:
            return done
        try:
            store.add_segment(_next(last, rows, store.now()), [row.seq for row in rows])
        except Conflict:
            lost += 1
            continue
        done += len(rows)
        if len(rows) < limit:
            return done
    raise Conflict(f"other processes sealed first {lost} times in a row; run fewer sealers")


def _settled(store: Log, last: Segment | None) -> int:
    """Rows up to this one need not be looked at again."""
    rows = store.sealed(last.last, last.last) if last else []
    return rows[0].seq - LATE if rows else EVERY


def _next(last: Segment | None, rows: Sequence[Entry], now: int) -> Segment:
    first = last.last + 1 if last else 1
    segment = Segment(
        n=last.n + 1 if last else 1,
        first=first,
        last=first + len(rows) - 1,
        root="",
        previous=last.root if last else "",
        sealed_at=now,
    )
    return msgspec.structs.replace(segment, root=root_of(segment, (row.digest for row in rows)))


def checkpoint(directory: str | Path, store: Log) -> Checkpoint | None:
    """Note durably how far the sealed log reaches; None while nothing is sealed."""
    folder = Path(directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / CHECKPOINTS
    file = own_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = _newest(file, path)
        last = store.last_segment()
        if known and (last is None or last.last < known.n):
            raise AuditBroken(
                f"the log ends at record {last.last if last else 0}, but a checkpoint says that it reached "
                f"{known.n}: its end was cut off, or this is another log; see `baton audit verify`"
            )
        if last is None or (known and known.n == last.last and known.root == last.root):
            return known
        if known and known.n == last.last:
            raise AuditBroken(f"record {known.n}: a checkpoint holds another root; see `baton audit verify`")
        found = Checkpoint(n=last.last, root=last.root, time=store.now())
        line = msgspec.json.encode(found) + b"\n"
        if os.write(file, line) != len(line):
            raise StoreError(f"{path}: the disk is full; make room and try again")
        os.fsync(file)
        if known is None:
            sync_folder(folder)
            sync_folder(folder.parent)
        return found
    finally:
        os.close(file)


def checkpoints(directory: str | Path) -> list[Checkpoint]:
    """All checkpoints in a directory, oldest first; none where there is no file."""
    path = Path(directory) / CHECKPOINTS
    try:
        file = own_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return []
    with os.fdopen(file, "rb") as stream:
        # What stands after the last newline was never acknowledged.
        return [_read(line, path) for line in stream.read().split(b"\n")[:-1]]


def _newest(file: int, path: Path) -> Checkpoint | None:
    """Read the last whole line; half a line of a writer that died is dropped."""
    size = os.fstat(file).st_size
    tail = os.pread(file, _TAIL, max(0, size - _TAIL))
    whole, newline, torn = tail.rpartition(b"\n")
    if torn:
        if not newline and size > _TAIL:
            raise AuditBroken(f"{path}: damaged at its end; compare it with a backup")
        os.ftruncate(file, size - len(torn))
    return _read(whole.rpartition(b"\n")[2], path) if newline else None


def _read(line: bytes, path: Path) -> Checkpoint:
    try:
        return msgspec.json.decode(line, type=Checkpoint)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AuditBroken(f"{path}: a line is damaged ({error}); compare it with a backup") from None


def own_file(path: Path, flags: int) -> int:
    """Open a regular file of this user; no link, no device."""
    try:
        file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "is a link" if path.is_symlink() else error.strerror
        raise StoreError(f"{path}: {why}; give a directory of your own for checkpoints") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise StoreError(f"{path}: not a regular file; give a directory of your own for checkpoints")
    return file


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
