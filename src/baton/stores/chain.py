"""Each handoff's records form a chain: a record names the digest of the one before it."""

from __future__ import annotations

from binascii import hexlify
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADS = 500_000
_FIRST = b'{"handoff_id":"'
_LATER = b'{"previous":"'
_THEN = b'","handoff_id":"'
_P = _LATER[2:3]
_DIGEST, _END = len(_LATER), len(_LATER) + 64
_NAME = _END + len(_THEN)


class Link(msgspec.Struct, gc=False):
    """What of a record ties it to the one before it."""

    handoff_id: str = ""
    previous: str = ""


_read = msgspec.json.Decoder(Link).decode


def links(records: Sequence[bytes]) -> list[Link]:
    """Read the ties of records; what is not a record follows nothing."""
    try:
        return [_read(record) for record in records]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return [_read_any(record) for record in records]


def _read_any(record: bytes) -> Link:
    try:
        return _read(record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Link("", "unreadable")


def predecessors(records: Sequence[bytes], names: Sequence[bytes]) -> list[bytes] | None:
    """Cut out what records name as before them; None unless all look as they are written, under these names.

    It looks at the beginnings only. So it is for records whose bytes a root answers for.
    """
    later = [record for record in records if record[2:3] == _P]
    first = [record for record in records if record[2:3] != _P] if len(later) < len(records) else []
    if {record[: len(_FIRST)] for record in first} - {_FIRST}:
        return None
    if {record[:_DIGEST] for record in later} - {_LATER} or {record[_END:_NAME] for record in later} - {_THEN}:
        return None
    if names and not _stand_under(records, names):
        return None
    return [record[_DIGEST:_END] for record in later]


def _stand_under(records: Sequence[bytes], names: Sequence[bytes]) -> bool:
    joined = b"".join(names)
    width = len(names[0])
    if len(joined) != width * len(names) or b'"' in joined or b"\\" in joined:  # written in another way within a record
        return False
    one, two, skip = _NAME, _NAME + width + 1, _NAME - len(_FIRST)
    found = [record[one:two] if record[2:3] == _P else record[one - skip : two - skip] for record in records]
    return b"".join(found) == b'"'.join(names) + b'"'


class _Context(msgspec.Struct, frozen=True, gc=False):
    task_id: str = ""


class _Labels(msgspec.Struct, frozen=True, gc=False):
    handoff_id: str
    from_agent: str
    to_agent: str
    context_snapshot: _Context = _Context()


_read_labels = msgspec.json.Decoder(_Labels).decode


def read_labels(record: bytes) -> tuple[str, str, str, str] | None:
    """The handoff of a record, and the task, sender and receiver by which it is found."""
    try:
        labels = _read_labels(record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return labels.handoff_id, labels.context_snapshot.task_id, labels.from_agent, labels.to_agent


class Heads:
    """The digests, in hex, that no record has followed yet: the last record of each handoff so far.

    A digest commits to its handoff, so the handoff's id is not needed. Beyond `HEADS` of them they move to a
    temporary file.
    """

    def __init__(self) -> None:
        self._open: set[bytes] = set()
        self._spilled: Any = None

    def follow(self, previous: Sequence[bytes], digests: Sequence[bytes]) -> list[int]:
        """Take records in order; the positions of those whose predecessor is not there."""
        unlinked = []
        if not self.pass_by([before for before in previous if before], digests):
            unlinked = self._one_by_one(previous, digests)
        return unlinked

    def pass_by(self, previous: Sequence[bytes], digests: Sequence[bytes]) -> bool:
        """Take records at once, given whom they follow; False, and nothing taken, if one follows nothing known."""
        # Sets are several times faster than looking at each record, and nearly always enough.
        given, wanted = set(digests), set(previous)
        if len(wanted) != len(previous) or not wanted - given <= self._open:
            return False
        self._open -= wanted
        self._open |= given - wanted
        if len(self._open) > HEADS:
            self._spill()
        return True

    def _one_by_one(self, previous: Sequence[bytes], digests: Sequence[bytes]) -> list[int]:
        unlinked = []
        for index, (before, digest) in enumerate(zip(previous, digests, strict=True)):
            if before in self._open:
                self._open.remove(before)
            elif before and not self._was_spilled(before):
                unlinked.append(index)
            self._open.add(digest)
        if len(self._open) > HEADS:
            self._spill()
        return unlinked

    def _was_spilled(self, digest: bytes) -> bool:
        if self._spilled is None:
            return False
        self._spilled.execute("DELETE FROM head WHERE digest = ?", (digest,))
        return bool(self._spilled.changes())

    def _spill(self) -> None:
        if self._spilled is None:
            import apsw

            self._spilled = apsw.Connection("")  # nobody else sees it
            self._spilled.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF")
            self._spilled.execute("CREATE TABLE head (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        self._spilled.execute("BEGIN")
        rows = [(digest,) for digest in sorted(self._open)]
        self._spilled.executemany("INSERT OR IGNORE INTO head VALUES (?)", rows)
        self._spilled.execute("COMMIT")
        self._open.clear()


def in_hex(digests: Sequence[bytes]) -> list[bytes]:
    """Digests as records write them."""
    return list(map(hexlify, digests))
