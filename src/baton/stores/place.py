"""Which logs stood at one place, remembered with the checkpoints: so one that was removed or replaced is missed."""

from __future__ import annotations

import fcntl
import os
from hashlib import sha256
from pathlib import Path

import msgspec

from baton import config
from baton.errors import AuditBroken
from baton.stores.seal import checkpoints, own_file, sync_folder
from baton.stores.witness import Witness


class Stood(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A log stood here; with `instead_of`, a person said that it may stand where those stood."""

    log: str
    time: int
    by: str = ""
    reason: str = ""
    instead_of: tuple[str, ...] = ()


class Place:
    """The path of a store, as the user's own records know it."""

    def __init__(self, url: str, given: str | Path | None = None) -> None:
        name = sha256(str(Path(url.removeprefix("sqlite://")).resolve()).encode()).hexdigest()[:16]
        self._base = config.state_dir() / "checkpoints" if given is None else Path(given)
        self._folder = self._base / name if given is None else self._base
        self._path = self._folder / f"{name}.jsonl"

    def checkpoints(self, log: str) -> Path:
        """Where the checkpoints of one log stand."""
        return self._folder / log

    def witness(self, log: str) -> Witness:
        """What this user remembers of pruning that log, wherever it stands."""
        return Witness(self._base, log)

    def stood(self) -> list[Stood]:
        """What was noted, oldest first."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        try:
            return [msgspec.json.decode(line, type=Stood) for line in data.split(b"\n")[:-1]]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AuditBroken(f"{self._path}: a line is damaged ({error}); compare it with a backup") from None

    def others(self, log: str) -> list[str]:
        """The logs that stood here, but for this one and those that it may stand for."""
        noted = self.stood()
        known = {log, *(other for one in noted if one.log == log for other in one.instead_of)}
        return list(dict.fromkeys(one.log for one in noted if one.log not in known))

    def described(self, log: str) -> str:
        """A log, and how far it is known to have come."""
        points = checkpoints(self.checkpoints(log))
        return f"log {log}, which reached record {points[-1].n}" if points else f"log {log}"

    def note(self, stood: Stood) -> None:
        """Write one line durably; half a line of a writer that died is dropped."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = own_file(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with os.fdopen(file, "r+b", buffering=0) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            data = stream.read()
            stream.truncate(data.rfind(b"\n") + 1)
            stream.write(msgspec.json.encode(stood) + b"\n")
            os.fsync(stream)
        sync_folder(self._folder)
