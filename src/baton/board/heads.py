"""Where the newest record of each item stands in the log: a table on disk that may be thrown away any time.

It is only used while the log is locked, and only in the boot that wrote it: after a power cut the pages of a file may
be of different age. Whatever of the log it does not know yet is read before it is asked.
"""

from __future__ import annotations

import os

from baton.digest import sha256

MAGIC = b"heads 1\n"
HEADER = 96  # magic, boot (16), position up to which the log is known, slots, used, chain (32)
SLOT = 24  # key (16), position
FEWEST = 1024


def key_of(path: str, noun: str) -> bytes:
    """The name of an item in the table."""
    digest: bytes = sha256(f"{noun}\0{path}".encode("utf-8", "surrogateescape")).digest()
    return digest[:16]


class Heads:
    """The table; `upto` is how much of the log it knows, `chain` the digest of the record before that place."""

    __slots__ = ("_boot", "_number", "_path", "chain", "slots", "upto", "used")

    def __init__(self, path: str, boot: str) -> None:
        self._path = path
        self._boot = sha256(boot.encode()).digest()[:16]
        self._number = -1
        self.chain = bytes(32)
        self.upto = self.used = 0
        self.slots = FEWEST

    def load(self, size: int) -> None:
        """Take the table that stands there, unless it is of another boot or of another log."""
        if self._number < 0:
            self._number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        elif os.fstat(self._number).st_nlink == 0:  # another process made a larger one
            self.close()
            self.load(size)
            return
        head = os.pread(self._number, HEADER, 0)
        numbers = [int.from_bytes(head[at : at + 8], "little") for at in (24, 32, 40)]
        known, slots, used = numbers
        fits = os.fstat(self._number).st_size == HEADER + slots * SLOT and FEWEST <= slots >= 2 * used
        if head[:24] != MAGIC + self._boot or known > size or not fits:
            self.forget()
            return
        self.upto, self.slots, self.used = numbers
        self.chain = head[48:80]

    def forget(self) -> None:
        """Begin with an empty table."""
        os.ftruncate(self._number, 0)
        os.ftruncate(self._number, HEADER + FEWEST * SLOT)
        self.upto, self.slots, self.used, self.chain = 0, FEWEST, 0, bytes(32)

    def get(self, key: bytes) -> int:
        """Where the newest record of this item stands; -1 where there is none."""
        return self._look(key)[1]

    def put(self, key: bytes, position: int) -> None:
        """Note the newest record of an item."""
        slot, before = self._look(key)
        if before < 0:
            if 2 * (self.used + 1) > self.slots:
                self._grow()
                slot, _ = self._look(key)
            self.used += 1
        os.pwrite(self._number, key + position.to_bytes(8, "little"), HEADER + slot * SLOT)

    def note(self, key: bytes, position: int) -> None:
        """Note the newest record of an item, and that the log is known up to here; without room, forget all."""
        try:
            self.put(key, position)
            self.save(self.upto, self.chain)
        except OSError:
            self.forget()

    def save(self, upto: int, chain: bytes) -> None:
        """Say how much of the log is in the table now."""
        self.upto, self.chain = upto, chain
        numbers = b"".join(number.to_bytes(8, "little") for number in (upto, self.slots, self.used))
        os.pwrite(self._number, MAGIC + self._boot + numbers + chain, 0)

    def close(self) -> None:
        """Give the file back."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def _look(self, key: bytes) -> tuple[int, int]:
        """The slot of this key, or the free one where it belongs, and what stands there."""
        slot = int.from_bytes(key[:8], "little") % self.slots
        while True:
            found = os.pread(self._number, SLOT, HEADER + slot * SLOT)
            if found[:16] == key:
                return slot, int.from_bytes(found[16:], "little")
            if not any(found):
                return slot, -1
            slot = (slot + 1) % self.slots

    def _grow(self) -> None:
        """Move to a table of twice the size, which takes the place of this one when it is complete."""
        old, begun = os.pread(self._number, self.slots * SLOT, HEADER), self._number
        made = f"{self._path}.new"
        self._number = os.open(made, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.slots, self.used = 2 * self.slots, 0
        os.ftruncate(self._number, HEADER + self.slots * SLOT)
        for at in range(0, len(old), SLOT):
            if any(entry := old[at : at + SLOT]):
                self.put(entry[:16], int.from_bytes(entry[16:], "little"))
        self.save(self.upto, self.chain)
        os.close(begun)
        os.rename(made, self._path)
