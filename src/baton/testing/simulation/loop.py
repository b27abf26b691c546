"""The event loop of one simulated process, which the world drives one callback at a time."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baton.testing.simulation.world import World


class Killed(BaseException):
    """The process ends here; no `except Exception` may hold it up."""


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set follows from the seed and not from its address."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: ProcessLoop, **options: Any) -> None:
        self.number = loop.world.numbered()  # before it is registered anywhere
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[Any]):
    """The same for a future."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class Callback:
    """What an event loop will call: asyncio's handle without what only its own loops need."""

    __slots__ = ("args", "call", "context", "gone")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.call = call
        self.args = args
        self.context = context or copy_context()
        self.gone = False

    def cancel(self) -> None:
        self.gone = True

    def cancelled(self) -> bool:
        return self.gone


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one process, driven by the world one callback at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ready: deque[Callback] = deque()
        self.tasks: list[SimTask] = []
        self.latency = 0.0  # of what runs beside the loop: the commits of several callers

    def time(self) -> float:
        return self.world.clock.monotonic()

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        handle = Callback(callback, args, context)
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        handle, world = Callback(callback, args, context), self.world
        heapq.heappush(world.timers, (world.clock.monotonic() + delay, world.numbered(), self, handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        handle = Callback(callback, args, context)
        heapq.heappush(self.world.timers, (when, self.world.numbered(), self, handle))
        return handle

    def create_future(self) -> SimFuture:
        future = SimFuture(loop=self)
        future.number = self.world.numbered()
        return future

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> SimTask:
        task = SimTask(coro, loop=self, name=name, context=context)
        self.tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,  # noqa: ARG002 - there are no threads to choose
        func: Callable[..., Any],
        *args: Any,
    ) -> asyncio.Future[Any]:
        """Beside the loop, and so at another moment: others of this process go on meanwhile, or it dies."""
        future = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits
                self.call_later(self.latency, _settle, future, error)
            else:
                self.call_later(self.latency, _settle, future, result)

        self.call_later(self.latency, run)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.world.unhandled(self, context)


def _settle(future: asyncio.Future[Any], came: Any) -> None:
    if future.done():
        return
    if isinstance(came, Exception):
        future.set_exception(came)
    else:
        future.set_result(came)


def unwind(coro: Any) -> None:
    """Unwind a coroutine, also one that waits for something on its way out."""
    with suppress(BaseException):
        while coro.cr_frame is not None:
            coro.throw(Killed())
