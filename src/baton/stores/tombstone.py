"""What stands for pruned segments: signed, and chained like the segments that it stands for."""

from __future__ import annotations

import hmac
from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from baton.errors import Conflict
from baton.stores.base import Segment, Tombstone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

replace = msgspec.structs.replace
written_tombstone = msgspec.json.Encoder(order="deterministic").encode
_read = msgspec.json.Decoder(Tombstone).decode


def signed(tombstone: Tombstone, key: bytes) -> Tombstone:
    """The same with the code that only the holder of the key can make."""
    data = written_tombstone(replace(tombstone, mac=""))
    return replace(tombstone, mac=hmac.digest(key, data, "sha256").hex())


def is_signed(tombstone: Tombstone, key: bytes) -> bool:
    """Whether a holder of the key made it, as it stands."""
    return hmac.compare_digest(signed(tombstone, key).mac, tombstone.mac)


def fits(tombstone: Tombstone, run: Sequence[Segment], newest: Segment | None) -> None:
    """Refuse to remove anything but the very run that was looked at; the newest segment always stays."""
    stands = (
        len(run) == tombstone.to - tombstone.n + 1
        and (run[0].n, run[0].first, run[0].previous) == (tombstone.n, tombstone.first, tombstone.previous)
        and (run[-1].last, run[-1].root) == (tombstone.last, tombstone.root)
    )
    if not stands or newest is None or newest.n <= tombstone.to:
        raise Conflict(f"segments {tombstone.n} to {tombstone.to}: not as they were a moment ago; prune again")


class Graves:
    """The valid tombstones of a log, by the records that they stand for; and how many are not valid."""

    def __init__(self, found: Sequence[bytes], confirms: Callable[[Tombstone], bool], log: str = "") -> None:
        self.invalid: list[str] = []
        read = []
        for data in found:
            try:
                one = _read(data)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self.invalid.append("a tombstone that cannot be read")
                continue
            if log in {"", one.log} and 1 <= one.n <= one.to and one.first <= one.last and confirms(one):
                read.append(one)
            else:
                self.invalid.append(described(one))
        self.valid: list[Tombstone] = []
        for one in sorted(read, key=lambda one: one.first):
            if self.valid and one.first <= self.valid[-1].last:
                self.invalid.append(described(one))
            else:
                self.valid.append(one)
        self._firsts = [one.first for one in self.valid]

    def __iter__(self) -> Iterator[Tombstone]:
        return iter(self.valid)

    def over(self, n: int) -> Tombstone | None:
        """The tombstone that stands for this record."""
        at = bisect_right(self._firsts, n) - 1
        return self.valid[at] if at >= 0 and n <= self.valid[at].last else None

    def begins(self) -> set[str]:
        """The digests of records that pruned ones followed."""
        return {digest for one in self.valid for digest in one.begins}

    def ends(self) -> set[str]:
        """The digests of pruned records that others may follow."""
        return {digest for one in self.valid for digest in one.ends}


def described(one: Tombstone) -> str:
    """Which tombstone."""
    return f"tombstone of records {one.first} to {one.last}"
