"""The audit trail as JSON Lines, to be read and verified without the store.

One record per line, its bytes exactly as they were hashed; the first line of a segment carries the segment:

    {"n":1,"digest":"…","segment":{"n":1,"first":1,"last":2,"root":"…","previous":"","sealed_at":…},"record":{…}}
    {"n":2,"digest":"…","record":{…}}

A file holds whole segments and is named for its range. It appears whole or not at all and is never changed.
Beside them stand the tombstones of what was pruned from the log, one per line.
"""

from __future__ import annotations

import fcntl
import os
import re
from binascii import hexlify
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from struct import iter_unpack
from typing import BinaryIO, Protocol

import msgspec

from baton.errors import Malformed, StoreError
from baton.protocol.codec import MAX_DOCUMENT
from baton.stores.base import Entry, Segment
from baton.stores.tombstone import Graves

FILE_ROWS = 10_000
TOMBSTONES = "tombstones.jsonl"
_BATCH = 1000
_BLOCK = 1 << 18  # it and its lines fit into the cache of a core
_NAME = re.compile(r"(\d{12,18})-(\d{12,18})\.jsonl", re.ASCII)
_PROJECT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_MAX_LINE = MAX_DOCUMENT + 1024
_RECORD = b'","record":'
_BEGIN = _RECORD + b"{"
_SEGMENT = b'","segment":'
_LINE = re.compile(rb'\{"n":([1-9]\d{0,17}),"digest":"([0-9a-f]{64})"(?:,"segment":(\{[^{}]*\}))?,"record":(\{.*\})\}')


class Sealed(Protocol):
    """What an export needs of a store."""

    def segments(self) -> list[Segment]: ...
    def sealed(self, first: int, last: int) -> list[Entry]: ...
    def tombstones(self) -> list[bytes]: ...


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one segment that follow one another; `segment` stands with its first ones."""

    segment: Segment | None = None
    first: int = 0
    records: Sequence[bytes] = ()
    digests: Sequence[bytes] = ()  # in hex
    edited: Sequence[int] = ()  # the positions of records that do not match their digest
    place: str = ""
    damaged: bool = False


def export(store: Sealed, root: str | Path, project: str) -> list[Path]:
    """Write what was sealed since the last export; the new files below core/logs/<project>/handoff-audit."""
    if not _PROJECT.fullmatch(project):
        raise Malformed(f"project {project!r:.120}: use 1 to 100 letters, digits, '.', '_' or '-', not '.' first")
    folder = Path(root) / "core" / "logs" / project / "handoff-audit"
    if not store.segments() and not folder.exists():
        with _opened(Path(root), ()):
            return []  # and no folder for nothing
    with _opened(Path(root), ("core", "logs", project, "handoff-audit")) as handle:
        # Two exporters at once would write overlapping files.
        fcntl.flock(handle, fcntl.LOCK_EX)
        found = store.tombstones()
        segments = store.segments()
        done = _watermark(handle, segments, Graves(found, lambda _: True), folder)
        new = [one for one in segments if one.first > done]
        written = [folder / _write(handle, _name(*_range(group)), _lines(store, group)) for group in _files(new)]
        if found and found != _tombstones(handle):
            _write(handle, TOMBSTONES, (one + b"\n" for one in found))
        return written


@contextmanager
def _opened(root: Path, names: Sequence[str]) -> Iterator[int]:
    """Open a directory step by step, so that no link on the way leads elsewhere."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        handle = os.open(root, flags)
    except OSError as error:
        raise StoreError(f"{root}: {error.strerror}; give a directory to export into") from None
    try:
        for name in names:
            try:
                os.mkdir(name, 0o755, dir_fd=handle)
                os.fsync(handle)
            except FileExistsError:
                pass
            try:
                inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=handle)
            except OSError:
                raise StoreError(f"{root}: {'/'.join(names)}: {name} is a link or no directory; remove it") from None
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _watermark(handle: int, segments: Sequence[Segment], graves: Graves, folder: Path) -> int:
    """The last record that the newest file and those before it hold; it must come from this log."""
    ranges = sorted((int(m[2]), int(m[1])) for name in os.listdir(handle) if (m := _NAME.fullmatch(name)))
    if not ranges:
        return 0
    last, first = ranges[-1]
    name = _name(first, last)
    held: Segment | None = None
    try:
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=handle)
    except OSError as error:
        raise StoreError(f"{folder / name}: {error.strerror}; remove it and export again") from None
    with os.fdopen(file, "rb") as stream:
        for part in _parts(stream, name):
            held = part.segment or held
    if held is not None and held.last == last:
        grave = graves.over(last)
        pruned = grave is not None and grave.n <= held.n <= grave.to and (last < grave.last or held.root == grave.root)
        if pruned or held in segments:
            return last
    raise StoreError(f"{folder}: {name} does not come from this log; export to another project, or move it away")


def _files(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    for segment in segments:
        group.append(segment)
        if segment.last - group[0].first + 1 >= FILE_ROWS:
            yield group
            group = []
    if group:
        yield group


def _range(segments: Sequence[Segment]) -> tuple[int, int]:
    return segments[0].first, segments[-1].last


def _name(first: int, last: int) -> str:
    return f"{first:012d}-{last:012d}.jsonl"


def _write(handle: int, name: str, lines: Iterable[bytes]) -> str:
    """A file that appears whole or not at all."""
    draft = f".{name}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        file = os.open(draft, flags, 0o600, dir_fd=handle)
    except OSError as error:
        raise StoreError(f"{draft}: {error.strerror}; remove it and export again") from None
    with os.fdopen(file, "wb") as stream:
        stream.writelines(lines)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(draft, name, src_dir_fd=handle, dst_dir_fd=handle)
    os.fsync(handle)
    return name


def _lines(store: Sealed, segments: Sequence[Segment]) -> Iterator[bytes]:
    for segment in segments:
        for first in range(segment.first, segment.last + 1, _BATCH):
            last = min(first + _BATCH - 1, segment.last)
            rows = store.sealed(first, last)
            if len(rows) != last - first + 1:
                raise StoreError(f"records {first} to {last}: some are gone; run `baton audit verify`")
            for n, row in enumerate(rows, first):
                yield _line(n, row, segment if n == segment.first else None)


def _line(n: int, row: Entry, segment: Segment | None) -> bytes:
    middle = b'","segment":%b,"record":' % msgspec.json.encode(segment) if segment else _RECORD
    return b'{"n":%d,"digest":"%b%b%b}\n' % (n, row.digest.encode(), middle, row.record)


def read_tombstones(path: Path) -> list[bytes]:
    """What stands beside exported files for records that are gone."""
    try:
        folder = os.open(path if path.is_dir() else path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return _tombstones(folder)
    finally:
        os.close(folder)


def _tombstones(handle: int) -> list[bytes]:
    try:
        file = os.open(TOMBSTONES, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{TOMBSTONES}: {error.strerror}; remove it and export again") from None
    with os.fdopen(file, "rb") as stream:
        return stream.read().splitlines()


def read(path: Path) -> Iterator[Part]:
    """Read an export, one file or a directory of them, in parts of bounded size."""
    if not path.is_dir():
        names = [path]
    else:
        found = ((_NAME.fullmatch(item.name), item) for item in path.iterdir())
        # Where ranges overlap, the longer file goes first, and the others repeat whole segments.
        order = sorted((int(match[1]), -int(match[2]), item) for match, item in found if match)
        names = [item for _, _, item in order]
    for file in names:
        try:
            handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}; give an export file or directory") from None
        with os.fdopen(handle, "rb") as stream:
            yield from _parts(stream, file.name)


def _parts(stream: BinaryIO, name: str) -> Iterator[Part]:
    rest, number = b"", 1
    while block := stream.read(_BLOCK):
        lines = BytesIO(block).readlines()  # much faster than to split, which looks at every byte in turn
        lines[0] = rest + lines[0]
        rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
        yield from _runs(lines, name, number)
        number += len(lines)
        if len(rest) > _MAX_LINE:
            break
    if rest:
        yield Part(place=f"{name}:{number}", damaged=True)


def _runs(lines: Sequence[bytes], name: str, number: int) -> Iterator[Part]:
    """Group lines whose numbers follow one another."""
    at = due = odd = 0
    while at < len(lines):
        place = f"{name}:{number + at}"
        usual = due and at >= odd and not lines[at].startswith(_SEGMENT, 80 + len(str(due)))
        part = _plain(lines, at, due, place) if usual else None
        if part is None:
            # After something unusual some lines are read singly, so that no line is hashed many times.
            odd = at + _BATCH if usual else odd
            head = _head(lines[at][:-1])
            if head is None:
                part = Part(place=place, damaged=True)
            else:
                n, digest, segment, record = head
                edited = () if sha256(record).hexdigest().encode() == digest else (0,)
                part = Part(segment=segment, first=n, records=[record], digests=[digest], edited=edited, place=place)
        yield part
        taken = len(part.records)
        due = part.first + taken if taken else 0
        at += max(1, taken)


def _plain(lines: Sequence[bytes], at: int, due: int, place: str) -> Part | None:
    """Read lines of which only the records are not known beforehand; None where the first is another."""
    width = len(str(due))
    start = 91 + width  # of the record, behind the number and the digest
    run = lines[at : min(at + _BATCH, at + 10**width - due)]
    heads = b"".join([line[: start + 1] for line in run])
    if len(heads) != (start + 1) * len(run):
        return None
    numbers, digests, marks = zip(*iter_unpack(f"{start - 75}s64s12s", heads), strict=True)
    if marks.count(_BEGIN) != len(marks):  # the next segment begins
        count = next(index for index, mark in enumerate(marks) if mark != _BEGIN)
        run, numbers, digests = run[:count], numbers[:count], digests[:count]
    before, behind = '{"n":', ',"digest":"'
    expected = before + (behind + before).join(map(str, range(due, due + len(run)))) + behind
    if b"".join(numbers) != expected.encode() or {line[-3:] for line in run} != {b"}}\n"}:
        return None
    records = [line[start:-2] for line in run]
    if hexlify(b"".join([sha256(record).digest() for record in records])) != b"".join(digests):
        return None
    return Part(first=due, records=records, digests=digests, place=place)


def _head(line: bytes) -> tuple[int, bytes, Segment | None, bytes] | None:
    """Read any line, the one that carries a segment too; None for what no export writes."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    try:
        segment = msgspec.json.decode(match[3], type=Segment) if match[3] else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return int(match[1]), match[2], segment, match[4]
