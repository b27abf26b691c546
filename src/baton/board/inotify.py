"""What Linux tells of folders: inotify, bound by ctypes, which is loaded only when a watch is opened.

The kernel watches single folders. A new folder may hold files and folders before its watch stands; so it is
watched first and looked into afterwards, and all that is found there counts as changed.
"""

from __future__ import annotations

import errno
import os

from baton.board.tree import is_document, is_folder, look_into

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CLOSE_WRITE, MOVED_FROM, MOVED_TO = 0x8, 0x40, 0x80
CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x100, 0x200, 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
ONLYDIR, DONT_FOLLOW, ISDIR = 0x01000000, 0x02000000, 0x40000000

SELF = DELETE_SELF | MOVE_SELF
FOLDER = CLOSE_WRITE | MOVED_TO | MOVED_FROM | CREATE | DELETE | SELF | ONLYDIR

CHUNK = 1 << 16  # some 1,500 events; bigger buffers are fresh mappings each time
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
FULL = (errno.ENOSPC, errno.ENOMEM)


class Queue:
    """One inotify instance."""

    def __init__(self) -> None:
        import ctypes
        from struct import Struct

        libc = ctypes.CDLL(None, use_errno=True)
        self._errno = ctypes.get_errno
        self._add, self._remove = libc.inotify_add_watch, libc.inotify_rm_watch
        self._add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
        self._event = Struct("iIII")
        self.fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise self._error("inotify")

    def _error(self, path: str) -> OSError:
        number = self._errno()
        return OSError(number, os.strerror(number), path)

    def add(self, path: str, mask: int) -> int:
        """Watch a folder; the number of its watch, which is the same for the same folder."""
        number: int = self._add(self.fd, os.fsencode(path), mask)
        if number < 0:
            raise self._error(path)
        return number

    def remove(self, number: int) -> None:
        """Stop watching; a watch that ended by itself is none."""
        self._remove(self.fd, number)

    def read(self) -> Iterator[tuple[int, int, str]]:
        """The events of one read: watch, what happened, name."""
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return
        place, size = 0, self._event.size
        while place < len(data):
            number, mask, _, length = self._event.unpack_from(data, place)
            place += size + length
            yield number, mask, os.fsdecode(data[place - length : place].rstrip(b"\0"))

    def close(self) -> None:
        os.close(self.fd)


class Inotify:
    """A tree of folders, or the folders where one file may be replaced."""

    def __init__(self, places: dict[str, frozenset[str]]) -> None:
        """Watch each folder for its names; one without names is a tree of documents."""
        self.changed: set[str] = set()
        self.moved = False  # what is watched may be elsewhere, or no more
        self.rescan = False  # something went that nobody can list
        self.overflowed = False
        self.refused: dict[str, OSError] = {}  # folders that the kernel does not watch, nor what is below
        self._places = places
        self._paths: dict[int, str] = {}
        self._above: set[int] = set()
        self._queue = Queue()
        for folder in places:
            self._look_above(folder)
        for folder, names in places.items():
            if names:
                self._watch(folder, FOLDER)
            else:
                self._descend(folder, FOLDER)
        self.changed.clear()

    def fileno(self) -> int:
        return self._queue.fd

    def close(self) -> None:
        self._queue.close()

    def _watch(self, folder: str, mask: int) -> bool:
        try:
            self._paths[self._queue.add(folder, mask)] = folder
        except OSError as error:
            if error.errno not in GONE:
                self.refused[folder] = error
            elif folder in self._places:
                self.moved = True  # just now, and nobody else will tell
            return False
        return True

    def _descend(self, folder: str, mask: int = FOLDER | DONT_FOLLOW) -> None:
        """Watched first, looked into afterwards: what is made in between is seen twice, not never."""
        waiting = [folder]
        while waiting:
            folder = waiting.pop()
            if self._watch(folder, mask):
                documents, folders = look_into(folder)
                self.changed.update(documents)
                waiting += folders
            mask = FOLDER | DONT_FOLLOW

    def _look_above(self, folder: str) -> None:
        """Notice when a folder above is moved: those below are told nothing of it."""
        folder = os.path.realpath(folder)
        above = ""
        while above != folder:
            try:
                self._above.add(self._queue.add(folder, SELF | ONLYDIR))
            except OSError as error:
                if error.errno in FULL:
                    return  # what is to be watched finds no room either, and says so
            above, folder = folder, os.path.dirname(folder)

    def read(self) -> None:
        """Take the next events in; what came of them stands in the public fields."""
        for number, mask, name in self._queue.read():
            if mask & OVERFLOW:
                self.overflowed = True
            elif mask & (SELF | UNMOUNT):
                self.moved = self.moved or number in self._above
                self.rescan = self.rescan or bool(mask & UNMOUNT)
            elif mask & IGNORED:
                self._paths.pop(number, None)
            elif (folder := self._paths.get(number)) is not None:
                self._happened(folder, mask, name)

    def _happened(self, folder: str, mask: int, name: str) -> None:
        path = os.path.join(folder, name)
        if names := self._places.get(folder):
            if name in names:
                self.changed.add(path)
        elif not mask & ISDIR:
            if is_document(name):
                self.changed.add(path)
        elif is_folder(name):
            if mask & MOVED_FROM:
                self._forget(path)
            elif mask & (CREATE | MOVED_TO):
                self._descend(path)

    def _forget(self, top: str) -> None:
        """A folder was moved away, with files that nobody listed."""
        below = top + os.sep
        for number in [n for n, path in self._paths.items() if path == top or path.startswith(below)]:
            del self._paths[number]
            self._queue.remove(number)
        self.rescan = True
