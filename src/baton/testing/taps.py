"""Where writes pass: a SQLite VFS and the functions of `os` that change files, opened to a tap.

A tap is called with each operation before it happens and with the function that performs it. It may
count, record, perform half of it, refuse it with an OSError, or end the process.
Code that kept its own reference to a function of `os`, or writes from C, is not seen.
"""

from __future__ import annotations

import _pyio  # type: ignore[import-not-found] # its files write through os, so a tap sees them
import builtins
import errno
import fcntl
import io
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw

_CREATES = apsw.SQLITE_OPEN_CREATE
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
_TEMPORARY = apsw.SQLITE_OPEN_DELETEONCLOSE
_NAME = "baton-tap"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change: kind is create, write, truncate, sync, delete, rename or link.

    `size` is the new length of a truncate, `target` the new name of a rename or link, and `directory`
    says that the entries of the directory became durable as well.
    """

    kind: str
    path: str
    offset: int = 0
    data: bytes = b""
    size: int = 0
    target: str = ""
    directory: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {Path(self.path).name}"


Perform = Callable[[bytes], Any]
Tap = Callable[[Operation, Perform], Any]


@contextmanager
def tapped(tap: Tap, where: Collection[str] = ("sqlite", "files")) -> Iterator[None]:
    """Open SQLite (`sqlite`) and the functions of `os` and `open` (`files`) to a tap for a while."""
    unknown = set(where) - {"sqlite", "files"}
    if unknown or not where:
        raise ValueError(f"where= is any of 'sqlite' and 'files', not {sorted(unknown)}")
    with ExitStack() as stack:
        if "sqlite" in where:
            vfs = _TapVFS(tap)
            stack.callback(vfs.unregister)
        if "files" in where:
            stack.enter_context(_patched(tap))
        yield


def _through_sqlite(tap: Tap, operation: Operation, perform: Perform) -> Any:
    try:
        return tap(operation, perform)
    except OSError as error:
        kind = apsw.FullError if error.errno == errno.ENOSPC else apsw.IOError
        raise kind(str(error)) from error


class _TapVFS(apsw.VFS):
    """The default VFS with a tap on it; it becomes the default, so that the code under test is unchanged."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._base = next(name for name in apsw.vfs_names() if name != _NAME)
        super().__init__(_NAME, self._base, makedefault=True)

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None or flags[0] & _TEMPORARY:
            return apsw.VFSFile(self._base, name, flags)

        def perform(_: bytes) -> _TapFile:
            return _TapFile(self._base, name, flags, (path, self._tap))

        if flags[0] & _CREATES and not Path(path).exists():
            opened: apsw.VFSFile = _through_sqlite(self._tap, Operation("create", path), perform)
            return opened
        return perform(b"")

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802
        def perform(_: bytes) -> None:
            super(_TapVFS, self).xDelete(filename, syncdir)

        _through_sqlite(self._tap, Operation("delete", filename, directory=syncdir), perform)


class _TapFile(apsw.VFSFile):
    def __init__(
        self, base: str, name: str | apsw.URIFilename | None, flags: list[int], tapped: tuple[str, Tap]
    ) -> None:
        # SQLite syncs the directory with the first sync of a journal that it may have created.
        self._directory = bool(flags[0] & _CREATES and flags[0] & _JOURNALS)
        self._path, self._tap = tapped
        super().__init__(base, name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        def perform(part: bytes) -> None:
            super(_TapFile, self).xWrite(part, offset)

        _through_sqlite(self._tap, Operation("write", self._path, offset, bytes(data)), perform)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        def perform(_: bytes) -> None:
            super(_TapFile, self).xTruncate(newsize)

        _through_sqlite(self._tap, Operation("truncate", self._path, size=newsize), perform)

    def xSync(self, flags: int) -> None:  # noqa: N802
        def perform(_: bytes) -> None:
            super(_TapFile, self).xSync(flags)

        _through_sqlite(self._tap, Operation("sync", self._path, directory=self._directory), perform)
        self._directory = False


class _Files:
    """The functions of `os` that change files, each going through a tap; names follow descriptors."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._names: dict[int, str] = {}
        self._real = SimpleNamespace(**vars(os))

    def _kind(self, fd: int) -> int:
        return stat.S_IFMT(self._real.fstat(fd).st_mode)

    def _path(self, path: Any, dir_fd: int | None = None) -> str:
        if isinstance(path, int):
            return self._names.get(path, f"descriptor {path}")
        base = "" if dir_fd is None else self._names.get(dir_fd, "")
        return str(Path(base, os.fsdecode(path)).absolute())

    def _written(self, fd: int, data: bytes, offset: int | None, perform: Perform) -> int:
        if self._kind(fd) != stat.S_IFREG:
            return int(perform(data))
        if offset is None:
            appends = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
            offset = self._real.fstat(fd).st_size if appends else self._real.lseek(fd, 0, os.SEEK_CUR)
        return int(self._tap(Operation("write", self._path(fd), offset, data), perform))

    def write(self, fd: int, data: Any) -> int:
        return self._written(fd, bytes(data), None, lambda part: self._real.write(fd, part))

    def writev(self, fd: int, buffers: Any) -> int:
        return self.write(fd, b"".join(buffers))

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        return self._written(fd, bytes(data), offset, lambda part: self._real.pwrite(fd, part, offset))

    def pwritev(self, fd: int, buffers: Any, offset: int, _flags: int = 0) -> int:
        return self.pwrite(fd, b"".join(buffers), offset)

    def fsync(self, fd: Any) -> None:
        self._synced(fd, self._real.fsync)

    def fdatasync(self, fd: Any) -> None:
        self._synced(fd, getattr(self._real, "fdatasync", self._real.fsync))

    def _synced(self, fd: Any, sync: Callable[[int], None]) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        directory = self._kind(number) == stat.S_IFDIR
        self._tap(Operation("sync", self._path(number), directory=directory), lambda _: sync(number))

    def truncate(self, path: Any, length: int) -> None:
        operation = Operation("truncate", self._path(path), size=length)
        self._tap(operation, lambda _: self._real.truncate(path, length))

    def ftruncate(self, fd: int, length: int) -> None:
        self.truncate(fd, length)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = self._path(path, dir_fd)

        def perform(_: bytes) -> int:
            return int(self._real.open(path, flags, mode, dir_fd=dir_fd))

        exists = Path(name).exists()
        if flags & os.O_CREAT and not exists:
            fd = int(self._tap(Operation("create", name), perform))
        elif flags & os.O_TRUNC and exists:
            fd = int(self._tap(Operation("truncate", name), perform))
        else:
            fd = perform(b"")
        self._names[fd] = name
        return fd

    def close(self, fd: int) -> None:
        self._names.pop(fd, None)
        self._real.close(fd)

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        old, new = self._path(src, src_dir_fd), self._path(dst, dst_dir_fd)
        self._tap(
            Operation("rename", old, target=new),
            lambda _: self._real.replace(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd),
        )
        gone = {new: f"{new} (replaced)", old: new}
        self._names = {fd: gone.get(name, name) for fd, name in self._names.items()}

    replace = rename

    def link(self, src: Any, dst: Any, **options: Any) -> None:
        old = self._path(src, options.get("src_dir_fd"))
        new = self._path(dst, options.get("dst_dir_fd"))
        self._tap(Operation("link", old, target=new), lambda _: self._real.link(src, dst, **options))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        operation = Operation("delete", self._path(path, dir_fd))
        self._tap(operation, lambda _: self._real.unlink(path, dir_fd=dir_fd))

    remove = unlink


_PATCHES = (
    *("write", "writev", "pwrite", "pwritev", "fsync", "fdatasync", "truncate", "ftruncate"),
    *("open", "close", "rename", "replace", "link", "unlink", "remove"),
)


@contextmanager
def _patched(tap: Tap) -> Iterator[None]:
    files = _Files(tap)
    before = [(os, name, getattr(os, name)) for name in _PATCHES if hasattr(os, name)]
    openers = [(io, "open", io.open), (builtins, "open", builtins.open)]
    try:
        for module, name, _ in before:
            setattr(module, name, getattr(files, name))
        for place, name, _ in openers:
            setattr(place, name, _pyio.open)
        yield
    finally:
        for home, name, function in [*before, *openers]:
            setattr(home, name, function)
