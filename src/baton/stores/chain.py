"""Each handoff's records form a chain: a record names the digest of the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADS = 500_000


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


class Heads:
    """The digests that no record has followed yet: the last record of each handoff so far.

    A digest commits to its handoff, so the handoff's id is not needed. Beyond `HEADS` of them they move to a
    temporary file.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._spilled: Any = None

    def follow(self, previous: Sequence[str], digests: Sequence[str]) -> list[int]:
        """Take records in order; the positions of those whose predecessor is not there."""
        given, wanted = set(digests), set(previous)
        wanted.discard("")
        # Sets are several times faster than looking at each record, and nearly always enough.
        usual = len(wanted) == len(previous) - previous.count("") and wanted - given <= self._open
        unlinked = [] if usual else self._one_by_one(previous, digests)
        if usual:
            self._open |= given
            self._open -= wanted
        if len(self._open) > HEADS:
            self._spill()
        return unlinked

    def _one_by_one(self, previous: Sequence[str], digests: Sequence[str]) -> list[int]:
        unlinked = []
        for index, (before, digest) in enumerate(zip(previous, digests, strict=True)):
            if before in self._open:
                self._open.remove(before)
            elif before and not self._was_spilled(before):
                unlinked.append(index)
            self._open.add(digest)
        return unlinked

    def _was_spilled(self, digest: str) -> bool:
        if self._spilled is None:
            return False
        self._spilled.execute("DELETE FROM head WHERE digest = ?", (digest,))
        return bool(self._spilled.changes())

    def _spill(self) -> None:
        if self._spilled is None:
            import apsw

            self._spilled = apsw.Connection("")  # nobody else sees it
            self._spilled.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF")
            self._spilled.execute("CREATE TABLE head (digest TEXT PRIMARY KEY) WITHOUT ROWID")
        self._spilled.execute("BEGIN")
        rows = [(digest,) for digest in sorted(self._open)]
        self._spilled.executemany("INSERT OR IGNORE INTO head VALUES (?)", rows)
        self._spilled.execute("COMMIT")
        self._open.clear()
