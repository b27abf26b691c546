"""A Python function as an agent, asynchronous or not."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from baton.agents.base import OwnThread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Future
    from os import PathLike

    from baton.agents.base import Turn


class FunctionAgent:
    """Runs a coroutine function on the event loop, an ordinary function in a thread of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object may be an asynchronous callable
        )

    async def run(self, turn: Turn) -> Any:
        """Call the function with the turn."""
        if self._asynchronous:
            return await self.function(turn)
        loop = asyncio.get_running_loop()
        thread, blocking = OwnThread(), BlockingTurn(turn, loop)
        try:
            return await loop.run_in_executor(thread, copy_context().run, self.function, blocking)
        except asyncio.CancelledError:
            if not thread.call.done():
                turn.outlast(thread.call)
            blocking.stop()
            raise

    async def aclose(self) -> None:
        """Nothing to close."""


class BlockingTurn:
    """The same turn for a function without `await`: what would be awaited blocks the calling thread."""

    def __init__(self, turn: Turn, loop: asyncio.AbstractEventLoop) -> None:
        self._turn = turn
        self._loop = loop
        self._waits: set[Future[Any]] = set()
        self._stopped = False

    def stop(self) -> None:
        """Wait for nothing more."""
        self._stopped = True
        for wait in tuple(self._waits):
            wait.cancel()

    @contextmanager
    def lock(self, *paths: str | PathLike[str], **options: Any) -> Iterator[None]:
        """Lock files while the block runs."""
        hold = self._turn.lock(*paths, **options)
        self._wait(hold.acquire())
        try:
            yield
        finally:
            self._wait(hold.release())

    def _wait(self, call: Coroutine[Any, Any, Any]) -> Any:
        wait = asyncio.run_coroutine_threadsafe(call, self._loop)
        self._waits.add(wait)
        try:
            if self._stopped:
                wait.cancel()
            return wait.result()
        finally:
            self._waits.discard(wait)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._turn, name)
        if not inspect.iscoroutinefunction(value):
            return value

        def blocking(*args: Any, **options: Any) -> Any:
            return self._wait(value(*args, **options))

        return blocking
