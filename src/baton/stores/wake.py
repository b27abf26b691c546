"""Telling those who wait that something changed.

A notice is a hint and never carries data: whoever wakes looks again. Changes by this process wake at once, those by
other processes are seen by asking the store for its version at short, growing intervals.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from baton.stores.base import Store

T = TypeVar("T")

FIRST_LOOK = 0.005
LAST_LOOK = 0.25


class Hub:
    """Wakes the waiting lines of this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    def notify(self) -> None:
        """Something changed: let everybody look again."""
        for future, loop in list(self._waiting.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(_done, future)

    async def changed(self, seconds: float, look: Callable[[], bool]) -> bool:
        """Wait until `look` says yes or the time is over; it is asked once more after the watch is armed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[future] = loop
        try:
            return await self._watch(future, loop.time() + seconds, look)
        finally:
            del self._waiting[future]

    async def _watch(self, future: asyncio.Future[None], end: float, look: Callable[[], bool]) -> bool:
        loop = asyncio.get_running_loop()
        seen, pause = self._store.version(), FIRST_LOOK
        if look():
            return True
        while (left := end - loop.time()) > 0:
            await asyncio.wait({future}, timeout=min(pause, left))
            if future.done():
                return True
            if (now := self._store.version()) != seen:
                if look():
                    return True
                seen, pause = now, FIRST_LOOK
            pause = min(pause * 1.5, LAST_LOOK)
        return look()


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Writer:
    """Commits for many callers at once: alone, a caller commits by itself; together, they share one sync."""

    def __init__(self, store: Store, hub: Hub) -> None:
        self._store = store
        self._hub = hub
        self._queue: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._flushing = False
        self.callers = 0

    async def __call__(self, operation: Callable[[], T]) -> T:
        """Run one mutator of the store and tell those who wait."""
        if self.callers <= 1 or not self._store.on_disk:
            result = operation()
            self._hub.notify()
            return result
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append((operation, future))
        if not self._flushing:
            await self._flush()
        return await future

    async def _flush(self) -> None:
        self._flushing = True
        try:
            await asyncio.sleep(0)
            while self._queue:
                batch, self._queue = self._queue, []
                await self._commit(batch)
                self._hub.notify()
        finally:
            self._flushing = False

    async def _commit(self, batch: list[tuple[Callable[[], Any], asyncio.Future[Any]]]) -> None:
        try:
            results = await asyncio.to_thread(self._store.batch, [operation for operation, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            raise
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
