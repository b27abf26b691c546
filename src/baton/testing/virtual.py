"""Asyncio in virtual time: an hour of sleep takes no time, and a seed decides every id and chance.

The loop never waits. When nothing is ready, its clock jumps to the next timer; when there is no timer
either, the program waits for something that cannot come, and `Deadlock` says who waits. There are no
sockets, child processes or threads in this world: executors run inline.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from baton import clock

START = 1_767_225_600 * clock.SECOND  # 2026-01-01T00:00:00Z

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: the tasks named wait for each other or for the outside."""


class VirtualClock:
    """A source for `clock.use`: time stands still until somebody moves it; a seed gives ids and chance."""

    def __init__(self, seed: int = 0, start: int = START) -> None:
        self._chance = random.Random(seed)
        self._start = start
        self._elapsed = 0

    def now(self) -> int:
        return self._start + self._elapsed // 1000

    def monotonic(self) -> float:
        return self._elapsed / 1e9

    def new_id(self) -> str:
        return clock.uuid4_text(self._chance.randbytes(16))

    def random(self) -> float:
        return self._chance.random()

    def advance(self, seconds: float) -> None:
        """Let time pass, at least one nanosecond."""
        self._elapsed += max(1, round(seconds * 1e9))

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; the monotonic clock does not notice."""
        self._start += round(seconds * clock.SECOND)


class _Jump(selectors.SelectSelector):
    """A selector that moves the clock where another would wait."""

    def __init__(self, moved: VirtualClock) -> None:
        super().__init__()
        self._clock = moved

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock(f"nothing is ready and no timer is set; waiting: {_waiting()}")
        if timeout > 0:
            self._clock.advance(timeout)
        return []


def _waiting() -> str:
    names = sorted(
        f"{task.get_name()} in {getattr(task.get_coro(), '__qualname__', '?')}" for task in asyncio.all_tasks()
    )
    return ", ".join(names) or "no task"


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a `VirtualClock`, which is its `clock`."""

    def __init__(self, moved: VirtualClock) -> None:
        super().__init__(_Jump(moved))
        self.clock = moved

    def time(self) -> float:
        return self.clock.monotonic()

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,  # noqa: ARG002 - there are no threads to choose
        func: Callable[..., T],
        *args: Any,
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits
            future.set_exception(error)
        return future


def run(main: Coroutine[Any, Any, T], *, seed: int = 0, start: int = START) -> T:
    """Run a coroutine to its end in virtual time; `baton.clock` follows the same clock."""
    moved = VirtualClock(seed, start)
    with clock.use(moved), asyncio.Runner(loop_factory=lambda: VirtualLoop(moved)) as runner:
        return runner.run(main)
