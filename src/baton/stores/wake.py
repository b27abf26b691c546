"""Telling those who wait that something changed.

A notice is a hint and never carries data: whoever wakes looks again. Changes by this process wake at once, those by
other processes are seen by asking the store for its version at short, growing intervals.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from baton.stores.base import Grant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from baton.stores.base import Store

T = TypeVar("T")

FIRST_LOOK = 0.005
LAST_LOOK = 0.25


class _Watch:
    """Those who wait on one event loop, and the one task that looks for them."""

    def __init__(self) -> None:
        self.waiting: set[asyncio.Future[None]] = set()
        self.task: asyncio.Task[None] | None = None


class Hub:
    """Wakes the waiting lines of this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()
        self._armed: dict[_Watch, asyncio.AbstractEventLoop] = {}  # those with somebody who waits

    def notify(self) -> None:
        """Something changed: let everybody look again."""
        for watch, loop in list(self._armed.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, watch)

    async def changed(self, seconds: float, look: Callable[[], bool]) -> bool:
        """Wait for the next notice or the end of the time; `look` is asked once the watch is armed, and at the end."""
        loop = asyncio.get_running_loop()
        watch = self._watches.get(loop)
        if watch is None:
            watch = self._watches[loop] = _Watch()
        future: asyncio.Future[None] = loop.create_future()
        watch.waiting.add(future)
        self._armed[watch] = loop
        try:
            if watch.task is None and self._store.on_disk:
                # Read before the look: what is written after it changes the version.
                watch.task = loop.create_task(self._look_out(watch, self._store.version()))
            if look():
                return True
            await asyncio.wait({future}, timeout=seconds)
            return future.done() or look()
        finally:
            watch.waiting.discard(future)
            if not watch.waiting:
                self._armed.pop(watch, None)
                if watch.task is not None:
                    watch.task.cancel()
                    watch.task = None

    async def _look_out(self, watch: _Watch, seen: int) -> None:
        """Ask the store, for all who wait on this loop, whether another process wrote."""
        pause = FIRST_LOOK
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LAST_LOOK)
            if (now := self._store.version()) != seen:
                seen, pause = now, FIRST_LOOK
                _wake(watch)


def _wake(watch: _Watch) -> None:
    for future in watch.waiting:
        if not future.done():
            future.set_result(None)


def _wrote(result: Any) -> bool:
    """Whether there is anything to look at: those who wait for a full agent would wake one another for ever."""
    return not isinstance(result, Grant) or result.won


class _Wish(NamedTuple):
    operation: Callable[[], Any]
    future: asyncio.Future[Any]
    unwanted: Callable[[Any], None] | None


class _Lane:
    """What the callers of one event loop want to commit."""

    def __init__(self) -> None:
        self.queue: list[_Wish] = []
        self.flush: asyncio.Task[None] | None = None
        self.callers = 0


class Writer:
    """Commits for many callers at once: alone, a caller commits by itself; together, they share one sync."""

    def __init__(self, store: Store, hub: Hub) -> None:
        self._store = store
        self._hub = hub
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()
        # Not the default pool: functions that wait for a commit may have taken all of its threads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="baton-commit")

    def _lane(self) -> _Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane()
        return lane

    @contextmanager
    def caller(self, count: int = 1) -> Iterator[None]:
        """Say that so many more may commit at the same time while the block runs."""
        lane = self._lane()
        lane.callers += count
        try:
            yield
        finally:
            lane.callers -= count

    @property
    def shared(self) -> bool:
        """Whether others of this event loop commit at the same time, so that waiting for them pays."""
        return self._store.on_disk and self._lane().callers > 1

    def alone(self, operation: Callable[[], T]) -> T:
        """Run one mutator of the store at once and tell those who wait."""
        result = operation()
        if _wrote(result):
            self._hub.notify()
        return result

    async def __call__(self, operation: Callable[[], T], unwanted: Callable[[T], None] | None = None) -> T:
        """Run one mutator of the store and tell those who wait.

        A caller that is cancelled meanwhile cannot take the commit back: `unwanted` gets what came of it.
        """
        if not self.shared:
            return self.alone(operation)
        lane = self._lane()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        lane.queue.append(_Wish(operation, future, unwanted))
        if lane.flush is None:
            # A task of its own: a caller that is cancelled must not take the commits of the others with it.
            lane.flush = asyncio.create_task(self._flush(lane))
        return await future

    async def _flush(self, lane: _Lane) -> None:
        try:
            while lane.queue:
                batch, lane.queue = lane.queue, []
                if await self._commit(batch):
                    self._hub.notify()
        finally:
            lane.flush = None

    async def _commit(self, batch: list[_Wish]) -> bool:
        loop = asyncio.get_running_loop()
        operations = [wish.operation for wish in batch]
        try:
            results = await loop.run_in_executor(self._thread, self._store.batch, operations)
        except Exception as error:  # noqa: BLE001 - handed to everybody whose commit it was
            results = [error] * len(batch)
        for wish, result in zip(batch, results, strict=True):
            failed = isinstance(result, Exception)
            if wish.future.done():
                if wish.unwanted is not None and not failed:
                    wish.unwanted(result)
            elif failed:
                wish.future.set_exception(result)
            else:
                wish.future.set_result(result)
        return any(map(_wrote, results))

    def close(self) -> None:
        """End the committing thread."""
        self._thread.shutdown(wait=True)
