"""Looking again and again: what is done where nobody tells of changes, and for what the kernel has no room to watch.

A thread compares what `stat` says with what it said before. Where `watchfiles` is asked for, its events
make the thread look at once; they are hints only, for some of them get lost in new folders.
"""

from __future__ import annotations

import os

from baton import clock
from baton.board.tree import is_document, is_folder, look_into

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Signature = tuple[int, int, int, int]

SHARE = 20  # looking takes one part in so many of a core, however large the tree is
RACY = 10_000  # microseconds: a file that changed so shortly before may change again under the same time
AGAIN = 0.3  # after a hint: what it told of may not be all
SAFETY = 10.0  # at least so often, whatever it costs, and where there are hints, for one may get lost


class Polling:
    """The state of some places, and a thread that calls `tell` when it is another one."""

    def __init__(self, tell: Callable[[], object], every: float) -> None:
        import threading
        from queue import SimpleQueue

        self._tell = tell
        self._every = every
        self._pause = every  # between two looks
        self.trouble = ""  # why hints do not come
        self._places: dict[str, bool] = {}
        self._seen: dict[str, Signature | None] = {}
        self._news: SimpleQueue[set[str] | BaseException] = SimpleQueue()
        self._looking = threading.Lock()
        self._due = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._guard, args=(self._run,), name="baton-polling", daemon=True)
        self._others: list[threading.Thread] = []

    def add(self, paths: Iterable[str], *, tree: bool) -> None:
        """Watch files, or the documents in trees, from now on; what is there already counts as changed."""
        with self._looking:
            self._places.update(dict.fromkeys(paths, tree))
            self._news.put(self._look())
        if not self._thread.is_alive():
            self._thread.start()

    def take(self) -> set[str]:
        """The files that changed since the last call; an error of a thread is raised here."""
        changed: set[str] = set()
        while not self._news.empty():
            news = self._news.get()
            if isinstance(news, BaseException):
                raise news
            changed |= news
        return changed

    def close(self) -> None:
        """End the threads."""
        self._closed.set()
        self._due.set()
        for thread in (self._thread, *self._others):
            if thread.is_alive():
                thread.join()

    def _guard(self, body: Callable[..., None], *words: object) -> None:
        try:
            body(*words)
        except BaseException as error:  # noqa: BLE001 - raised where somebody waits, for a silent watch is none
            self._news.put(error)
            self._tell()

    def _run(self) -> None:
        pause = self._every
        while True:
            hinted = self._due.wait(pause)
            if self._closed.is_set():
                return
            self._due.clear()
            began = clock.monotonic()
            with self._looking:
                before = self._seen
                changed = self._look()
            if changed or before.keys() != self._seen.keys():
                self._news.put(changed)
                self._tell()
            took = clock.monotonic() - began
            pause = max(AGAIN if hinted else self._pause, min(took * SHARE, SAFETY))

    def _look(self) -> set[str]:
        """The files that are not as they were."""
        edge = (clock.now() - RACY) * 1000
        now: dict[str, Signature | None] = dict(self._signatures())
        changed = {path for path, signature in now.items() if self._seen.get(path) != signature}
        for path in changed:
            signature = now[path]
            if signature is not None and signature[0] >= edge:
                now[path] = None
        changed |= self._seen.keys() - now.keys()
        self._seen = now
        return {path for path in changed if not self._places.get(path, False)}

    def _signatures(self) -> dict[str, Signature]:
        found: dict[str, Signature] = {}
        for place, tree in self._places.items():
            files, folders = ([], [place]) if tree else ([place], [])
            if tree and os.path.isdir(place):
                found[place] = (0, 0, 0, 0)  # so that the end of an empty tree is seen, too
            while folders:
                more, below = look_into(folders.pop())
                files += more
                folders += below
            for path in files:
                try:
                    info = os.stat(path)
                except OSError:
                    continue
                found[path] = (info.st_ctime_ns, info.st_mtime_ns, info.st_size, info.st_ino)
        return found

    def take_hints(self, folder: str, *, tree: bool) -> None:
        """Look as soon as `watchfiles` says that something happened in a folder."""
        import threading

        thread = threading.Thread(target=self._guard, args=(self._hints, folder, tree), name="baton-hints", daemon=True)
        self._others.append(thread)
        thread.start()

    def _hints(self, folder: str, tree: bool) -> None:  # noqa: FBT001 - as Thread passes it
        import watchfiles

        events = watchfiles.watch(
            folder,
            watch_filter=lambda _, path: _matters(os.path.relpath(path, folder)),
            debounce=50,
            step=10,
            stop_event=self._closed,
            rust_timeout=1000,
            yield_on_timeout=True,
            recursive=tree,
            ignore_permission_denied=True,
        )
        try:
            for found in events:
                if found or self._pause == self._every:
                    # The first answer, whatever it says, is the sign that the watch stands.
                    self._pause = max(SAFETY, self._every)
                    self._due.set()
        except (OSError, RuntimeError) as error:
            self.trouble = str(error)
            self._pause = self._every
            self._due.set()
            self._tell()


def _matters(path: str) -> bool:
    *folders, name = path.split(os.sep)
    return all(map(is_folder, folders)) and (is_document(name) or is_folder(name))
