"""Waiting for changes of one file, or of the Markdown files in a tree.

A watch is armed when it is opened: open it, look, and only then wait. It tells where to look and never what is there;
one change may be told twice. On Linux the kernel tells (`inotify.py`), elsewhere `watchfiles` gives hints, and where
neither can, files are looked at again and again (`polling.py`).
"""

from __future__ import annotations

import os
import select
import sys

from baton import clock
from baton.errors import Malformed, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Literal, Self

    from baton.board.inotify import Inotify
    from baton.board.polling import Polling

    Way = Literal["auto", "inotify", "watchfiles", "polling"]

WAYS = ("auto", "inotify", "watchfiles", "polling")
EVERY = 0.5
LONGEST = 86_400.0  # poll takes a C int of milliseconds
SETTLE = 0.2  # editors take a file away for a moment when they save it


class Changes:
    """What a wait came to; false when it came to nothing."""

    __slots__ = ("gone", "paths", "rescan")

    def __init__(self) -> None:
        self.paths: set[str] = set()  # files that appeared, changed or went
        self.rescan = False  # events were lost, or whole folders went: look at everything
        self.gone = False  # what is watched is not there

    def __bool__(self) -> bool:
        return bool(self.paths) or self.rescan or self.gone

    def __repr__(self) -> str:
        return f"Changes(paths={sorted(self.paths)}, rescan={self.rescan}, gone={self.gone})"


class Watch:
    """A watch on one file or on a tree; one thread waits, any thread or signal handler may `stop` it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        way: Way = "auto",
        every: float = EVERY,
        warn: Callable[[str], object] | None = None,
    ) -> None:
        """Arm it. `way` is how to watch, `every` the seconds between two looks where files are polled."""
        self.path = os.path.abspath(path)
        self.stopped = False
        self.rearmed = 0  # how often it was armed anew, because events were lost or the place was another one
        self._every = every
        self._say = warn or _warn
        self._said: set[str | int | None] = set()  # reasons
        self._tree = os.path.isdir(self.path)
        if not os.path.isdir(self.path if self._tree else os.path.dirname(self.path)):
            raise NotFound(f"{self.path}: there is no such folder to watch; name a file or a folder that is there")
        if way not in WAYS:
            raise Malformed(f"{way!r:.40}: no way to watch; one of {', '.join(WAYS)}")
        self.way: Way = self._choose() if way == "auto" else way
        self._kernel: Inotify | None = None
        self._polling: Polling | None = None
        self._away: float | None = None
        self._reading, self._writing = os.pipe()
        self._epoll: select.epoll | None = None
        try:
            os.set_blocking(self._reading, False)
            os.set_blocking(self._writing, False)
            if self.way == "inotify":
                self._epoll = select.epoll()
                self._epoll.register(self._reading, select.EPOLLIN)
            self._arm()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """A descriptor for selectors: when it can be read, `wait(0)` has something to tell, or nearly so."""
        return self._reading if self._epoll is None else self._epoll.fileno()

    def stop(self) -> None:
        """End the wait, and all further ones at once; for another thread, or a signal handler."""
        self.stopped = True
        self._wake()

    def close(self) -> None:
        """Give everything back."""
        self._disarm()
        if self._epoll is not None:
            self._epoll.close()
        numbers = (self._reading, self._writing)
        self._reading = self._writing = -1  # first, for a `stop` that comes now
        for number in numbers:
            if number >= 0:
                os.close(number)

    def wait(self, timeout: float | None = None) -> Changes:
        """Wait until something changed, the time is over (empty), or somebody called `stop` (empty).

        What is not there is `gone` after a moment, since editors replace files; with a timeout of 0 at once. It
        is said again by every wait, and no more when it has come back.
        """
        deadline = None if timeout is None else clock.monotonic() + timeout
        while True:
            changes = self._collect(patient=timeout != 0)
            if changes or self.stopped:
                return changes
            now = clock.monotonic()
            if deadline is not None and now >= deadline:
                return changes
            settled = None if self._away is None else self._away + SETTLE
            ends = [moment for moment in (deadline, settled) if moment is not None]
            self._sleep(min(ends) - now if ends else None)

    def _sleep(self, seconds: float | None) -> None:
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        poll.poll(None if seconds is None else max(0, int(min(seconds, LONGEST) * 1000) + 1))

    def _wake(self) -> None:
        try:
            os.write(self._writing, b"!")
        except BlockingIOError:
            pass  # full: it wakes already
        except OSError:
            if self._writing >= 0:
                raise

    def _collect(self, *, patient: bool) -> Changes:
        changes = Changes()
        lost = False
        if not self.stopped:
            self._drain()
        if (kernel := self._kernel) is not None:
            kernel.read()
            self._refused(kernel.refused)
            changes.paths, kernel.changed = kernel.changed, set()
            changes.rescan, kernel.rescan = kernel.rescan, False
            lost = kernel.overflowed or kernel.moved
        if self._polling is not None:
            changes.paths |= self._polling.take()
            if (trouble := self._polling.trouble) and trouble not in self._said:
                self._said.add(trouble)
                self._say(f"{self.path}: no hints ({trouble}), so looked at every {self._every} s")
        if not self._tree and changes.paths:
            changes.paths = {self.path}
        self._check(changes, lost=lost, patient=patient)
        return changes

    def _check(self, changes: Changes, *, lost: bool, patient: bool) -> None:
        """Is it there, and the same as before? Else arm anew, or say that it is gone."""
        there = os.path.isdir(self.path) if self._tree else os.path.exists(self.path)
        if not there:
            now = clock.monotonic()
            if self._away is None:
                self._away = now
            if not patient or now >= self._away + SETTLE:
                self._away = now  # those who wait in a loop are told at a steady pace
                changes.gone = True
        elif lost or self._away is not None or self._identity() != self._armed:
            self._away = None
            self._disarm()
            self._arm()
            self.rearmed += 1
            if self._tree:
                changes.rescan = True
            else:
                changes.paths = {self.path}

    def _drain(self) -> None:
        try:
            while len(os.read(self._reading, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    def _folders(self) -> dict[str, frozenset[str]]:
        """The folders to watch, with the names that matter there; none means all documents."""
        if self._tree:
            return {self.path: frozenset()}
        places: dict[str, frozenset[str]] = {}
        for path in (self.path, os.path.realpath(self.path)):  # a link may change, and so may the file
            folder, name = os.path.split(path)
            places[folder] = places.get(folder, frozenset()) | {name}
        return places

    def _identity(self) -> list[tuple[int, int] | None]:
        return [_identity(folder) for folder in self._folders()]

    def _arm(self) -> None:
        folders = self._folders()
        self._armed = [_identity(folder) for folder in folders]
        if self.way == "inotify":
            self._arm_kernel(folders)
        else:
            self._poll([self.path])
        if self._polling is not None:
            self._polling.take()  # what is there already is no change
            if self.way == "watchfiles":
                for folder in folders:
                    self._polling.take_hints(folder, tree=self._tree)

    def _arm_kernel(self, folders: dict[str, frozenset[str]]) -> None:
        from baton.board.inotify import Inotify

        try:
            self._kernel = Inotify(folders)
        except OSError as error:
            self._refused({self.path: error})
            return
        if self._epoll is not None:
            self._epoll.register(self._kernel.fileno(), select.EPOLLIN)
        self._refused(self._kernel.refused)

    def _refused(self, folders: dict[str, OSError]) -> None:
        """What the kernel does not watch is polled; each reason is told once, with its cure."""
        for folder, error in folders.items():
            text = f"not watched by the kernel ({error.strerror}), so looked at every {self._every} s{_cure(error)}"
            if error.errno not in self._said:
                self._said.add(error.errno)
                self._say(f"{folder}, and perhaps others: {text}")
        if folders:
            self._poll(list(folders) if self._tree else [self.path])
            folders.clear()

    def _poll(self, paths: list[str]) -> None:
        from baton.board.polling import Polling

        if self._polling is None:
            self._polling = Polling(self._wake, self._every)
        self._polling.add(paths, tree=self._tree)

    def _disarm(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
        if self._polling is not None:
            self._polling.close()
        self._kernel = self._polling = None

    def _choose(self) -> Way:
        from baton.stores.mounts import NETWORK, file_system

        kind = file_system(self.path)
        if kind in NETWORK:
            self._say(f"{self.path}: on a network file system ({kind}), so looked at every {self._every} s")
            return "polling"
        if sys.platform == "linux":
            return "inotify"
        try:
            import watchfiles  # noqa: F401 - is it there?
        except ImportError:
            return "polling"
        return "watchfiles"


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        info = os.stat(folder)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _cure(error: OSError) -> str:
    import errno

    if error.errno == errno.ENOSPC:
        return "; allow more watches: sysctl fs.inotify.max_user_watches=524288"
    if error.errno == errno.EMFILE:
        return "; allow more: sysctl fs.inotify.max_user_instances=1024, or more open files (ulimit -n)"
    return ""


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, RuntimeWarning, stacklevel=4)
