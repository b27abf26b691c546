"""What a user remembers of pruning, apart from the log: a secret that signs tombstones, and a line for each."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from baton import clock
from baton.errors import AuditBroken, StoreError
from baton.stores.seal import own_file, sync_folder
from baton.stores.tombstone import is_signed, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from baton.stores.base import Tombstone

KEY = "audit-key"
NOTES = "audit-tombstones.jsonl"
_SIZE = 72  # two ids


class Noted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tombstone as its witness knows it."""

    first: int
    last: int
    root: str
    time: int
    by: str
    mac: str


class Witness:
    """One user's word on the tombstones of one log."""

    def __init__(self, folder: Path, log: str) -> None:
        self._secret = folder / KEY
        self._notes = folder / log / NOTES

    def sign(self, tombstone: Tombstone) -> Tombstone:
        """Sign, and note it durably, before anything is removed."""
        one = signed(tombstone, self._key() or self._new_key())
        line = Noted(first=one.first, last=one.last, root=one.root, time=one.time, by=one.by, mac=one.mac)
        self._notes.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = own_file(self._notes, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with os.fdopen(file, "r+b", buffering=0) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            data = stream.read()
            stream.truncate(data.rfind(b"\n") + 1)  # half a line of a writer that died
            stream.write(msgspec.json.encode(line) + b"\n")
            os.fsync(stream)
        if not data:
            sync_folder(self._notes.parent)
            sync_folder(self._notes.parent.parent)
        return one

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else prunes this log with the same memory meanwhile."""
        folder = self._notes.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def noted(self) -> list[Noted]:
        """The tombstones that were made here, oldest first."""
        try:
            file = own_file(self._notes, os.O_RDONLY)
        except FileNotFoundError:
            return []
        with os.fdopen(file, "rb") as stream:
            lines = stream.read().split(b"\n")[:-1]
        try:
            return [msgspec.json.decode(line, type=Noted) for line in lines]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AuditBroken(f"{self._notes}: a line is damaged ({error}); compare it with a backup") from None

    def judge(self) -> Callable[[Tombstone], bool]:
        """Whether a tombstone was made here and stands as it was made."""
        key, noted = self._key(), {one.mac for one in self.noted()}
        return lambda one: bool(key) and one.mac in noted and is_signed(one, key)

    def _key(self) -> bytes:
        """The secret; empty where there is none yet, or only a part of one."""
        try:
            file = own_file(self._secret, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        with os.fdopen(file, "rb") as stream:
            if stat.S_IMODE(os.fstat(file).st_mode) & 0o077:
                raise StoreError(f"{self._secret}: others can read it; chmod 600 {self._secret}, and see who could")
            key = stream.read()
        return key if len(key) == _SIZE else b""

    def _new_key(self) -> bytes:
        self._secret.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = own_file(self._secret, os.O_RDWR | os.O_CREAT)
        with os.fdopen(file, "r+b", buffering=0) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            key = stream.read()
            if len(key) != _SIZE:  # new, or its writer died: nothing is signed before it is durable
                key = (clock.new_id() + clock.new_id()).encode()
                stream.seek(0)
                stream.write(key)
                stream.truncate()
                os.fsync(stream)
                sync_folder(self._secret.parent)
        return key
