"""One SQLite database: opening it safely, one writer at a time, migrations, and batches that share one sync."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

import apsw

from baton import clock
from baton.errors import StoreError
from baton.lifecycle import State
from baton.stores.mounts import NETWORK, file_system

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

Durability = Literal["power", "process"]

SAFE_WAL = 3_051_003
MEMORY = ":memory:"


class _Forks:
    """How many forks lie between this process and the one that was asked first; asking the system costs more."""

    def __init__(self) -> None:
        self.seen = 0
        self.opened: WeakSet[Database] = WeakSet()
        os.register_at_fork(after_in_child=self._count)

    def _count(self) -> None:
        self.seen += 1
        for database in self.opened:
            # Shared with the parent, it would keep the lock of a parent that dies while it writes.
            database.close_gate()


@cache
def _forks() -> _Forks:
    return _Forks()


def statements(name: str) -> dict[str, str]:
    """The named statements of one SQL file."""
    named: dict[str, str] = {}
    for part in (files("baton.stores") / "sql" / name).read_text(encoding="utf-8").split("-- name: ")[1:]:
        title, _, body = part.partition("\n")
        named[title.strip()] = body.strip().rstrip(";")
    return named


class Database:
    """A connection shared by the threads of one process; a file gate orders the writers of several."""

    def __init__(self, path: str, *, durability: Durability = "power", vfs: str | None = None) -> None:
        self.path = path
        self.on_disk = path != MEMORY
        self._lock = threading.RLock()
        self._gate = -1
        self._made_gate = False
        self._depth = 0
        self._forks = _forks()
        self._born = self._forks.seen
        self._forks.opened.add(self)
        if self.on_disk:
            self._prepare_file(Path(path))
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        try:
            self.connection = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=200)
            self.execute = self.connection.execute
            self._configure(durability)
            self._migrate()
        except BaseException as error:
            self.close()
            if isinstance(error, apsw.NotADBError) and self._made_gate:
                Path(f"{path}.gate").unlink(missing_ok=True)  # nobody writes what is no store
            if isinstance(error, apsw.Error):
                raise StoreError(f"{path}: {error}; give another file, or restore this one from a backup") from error
            raise

    def _prepare_file(self, path: Path) -> None:
        kind = file_system(path.parent)
        if kind in NETWORK:
            raise StoreError(
                f"{path}: on a network file system ({kind}), where SQLite's log gets corrupted; "
                "use a local disk, or a PostgreSQL store"
            )
        if not path.name or path.is_dir():
            raise StoreError(f"store {str(path)!r}: a folder; name a file in it, or :memory: to keep nothing")
        if path.is_file() and (names := path.stat().st_nlink) > 1:
            raise StoreError(
                f"{path}: has {names} names (hard links), each with a log of its own, so that work would be lost; "
                f"keep one of them (`find . -samefile {quote(str(path))}` lists them)"
            )
        try:
            with suppress(FileExistsError):
                path.parent.mkdir(mode=0o700)  # one folder, and not a path to it that may be misspelled
            self._made_gate = not os.path.lexists(f"{path}.gate")
            self._gate = os.open(f"{path}.gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            # Not opened when it is there: closing it would drop the locks of another connection of ours.
            with self._exclusive(), suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self.close()
            raise StoreError(f"{path}: {error.strerror}; choose a folder that exists and is writable") from error

    def _configure(self, durability: Durability) -> None:
        if self.on_disk and apsw.SQLITE_VERSION_NUMBER < SAFE_WAL:
            raise StoreError(f"SQLite {apsw.sqlite_lib_version()} can corrupt its log; install apsw 3.51.3 or newer")
        self.connection.set_busy_timeout(10_000)
        level = "FULL" if durability == "power" else "NORMAL"
        if self.on_disk:
            with self._exclusive():
                self.execute("PRAGMA journal_mode = WAL")
        for pragma in (
            f"synchronous = {level}",
            "temp_store = MEMORY",
            "trusted_schema = OFF",
            "cache_size = -16000",
        ):
            self.execute(f"PRAGMA {pragma}")

    def _exclusive(self) -> _Gate:
        return _Gate(self._gate)

    def _migrate(self) -> None:
        folder = files("baton.stores") / "sql"
        numbered = sorted(item.name for item in folder.iterdir() if item.name[:4].isdigit())
        with self:
            (found,) = self.row("PRAGMA user_version")
            if found > len(numbered):
                raise StoreError(
                    f"{self.path}: written by a newer baton (schema {found}, this one knows {len(numbered)}); upgrade"
                )
            for number, name in enumerate(numbered[found:], found + 1):
                script = (folder / name).read_text(encoding="utf-8")
                self.execute(script.replace("/* states */", ", ".join(f"'{state}'" for state in State)))
                self.execute(f"PRAGMA user_version = {number}")
            self.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('id', ?)", (clock.new_id(),))

    def __enter__(self) -> None:
        """Begin a transaction; inside another one, a part of it that can fail alone."""
        self._refuse_fork()
        self._lock.acquire()
        try:
            if self._depth:
                self.execute(f"SAVEPOINT s{self._depth}")
            else:
                if self._gate >= 0:
                    fcntl.flock(self._gate, fcntl.LOCK_EX)
                try:
                    self.execute("BEGIN IMMEDIATE")
                except BaseException:
                    self._ungate()
                    raise
            self._depth += 1
        except BaseException as failure:
            self._lock.release()
            if isinstance(failure, apsw.Error):
                raise self._failed(failure) from failure
            raise

    def _refuse_fork(self) -> None:
        """Before the lock: another thread of the parent may have held it, and nobody here gives it back."""
        if self._born != self._forks.seen:
            raise StoreError(f"{self.path}: opened before a fork; open the store again in the child process")

    def _failed(self, error: apsw.Error) -> StoreError:
        if isinstance(error, apsw.ConnectionClosedError):
            return StoreError(
                f"{self.path}: this relay is closed; open a new Relay on it, and close it when all is done"
            )
        return StoreError(f"{self.path}: {error}; nothing was changed; make sure the disk has room")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        try:
            if self._depth:
                if kind is not None and self.connection.in_transaction:
                    self.execute(f"ROLLBACK TO s{self._depth}")
                if self.connection.in_transaction:
                    self.execute(f"RELEASE s{self._depth}")
            elif kind is None:
                self._commit()
            elif self.connection.in_transaction:
                self.execute("ROLLBACK")
            if isinstance(error, apsw.Error):
                raise self._failed(error) from error
        finally:
            if not self._depth:
                self._ungate()
            self._lock.release()

    def _commit(self) -> None:
        try:
            self.execute("COMMIT")
        except apsw.Error as error:
            if self.connection.in_transaction:
                self.execute("ROLLBACK")
            raise StoreError(f"{self.path}: could not commit: {error}; nothing was changed") from error

    def _ungate(self) -> None:
        if self._gate >= 0:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def batch(self, operations: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run several operations in one transaction; each yields its result or its own error."""
        results: list[Any] = []
        with self:
            for operation in operations:
                try:
                    results.append(operation())
                except Exception as error:
                    if not self.connection.in_transaction:  # SQLite gave up the whole of it
                        raise
                    results.append(error)
        return results

    def row(self, sql: str, bindings: Any = ()) -> Any:
        """The first row of a query, or None."""
        self._refuse_fork()
        with self._lock:
            try:
                return self.execute(sql, bindings).fetchone()
            except apsw.Error as error:
                raise self._failed(error) from error

    def rows(self, sql: str, bindings: Any = ()) -> list[Any]:
        """All rows of a query."""
        self._refuse_fork()
        with self._lock:
            try:
                return self.execute(sql, bindings).fetchall()
            except apsw.Error as error:
                raise self._failed(error) from error

    def now(self) -> int:
        """The store's time: of the one host that the file is on."""
        return clock.now()

    def close(self) -> None:
        """Close the database and its gate."""
        with self._lock:
            if connection := getattr(self, "connection", None):
                connection.close()
            self.close_gate()

    def close_gate(self) -> None:
        """Give up the gate: at the end, and in a child, where another process goes on with it."""
        gate, self._gate = self._gate, -1
        if gate >= 0:
            os.close(gate)


class _Gate:
    def __init__(self, gate: int) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        fcntl.flock(self._gate, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._gate, fcntl.LOCK_UN)
