import asyncio
import threading
import time
import uuid

import pytest

from baton import clock
from baton.testing import Deadlock, VirtualClock, virtual


def test_an_hour_of_sleep_takes_no_time():
    async def sleeper():
        wall, steady = clock.now(), clock.monotonic()
        await asyncio.sleep(3600)
        return clock.now() - wall, clock.monotonic() - steady

    began = time.perf_counter()
    assert virtual.run(sleeper(), start=5_000_000) == (3600 * clock.SECOND, 3600.0)
    assert time.perf_counter() - began < 0.5


def test_a_hundred_thousand_timers():
    async def crowd():
        fired = []
        loop = asyncio.get_running_loop()
        for n in range(100_000):
            loop.call_later((n * 7919) % 100_000, fired.append, (n * 7919) % 100_000)
        await asyncio.sleep(100_000)
        return fired

    began = time.perf_counter()
    fired = virtual.run(crowd())
    assert fired == sorted(fired)
    assert len(fired) == 100_000
    assert time.perf_counter() - began < 10


async def _story():
    seen = []

    async def walker(name):
        for _ in range(20):
            await asyncio.sleep(clock.random())
            seen.append((name, clock.now(), clock.new_id()))

    async with asyncio.TaskGroup() as group:
        for name in range(10):
            group.create_task(walker(name))
    return seen


def test_a_seed_replays_and_another_seed_does_not():
    first = virtual.run(_story(), seed=7)
    assert virtual.run(_story(), seed=7) == first
    assert virtual.run(_story(), seed=8) != first
    assert all(uuid.UUID(new).version == 4 for _, _, new in first)


def test_a_deadlock_names_who_waits():
    async def forgotten():
        await asyncio.Event().wait()

    async def main():
        await asyncio.create_task(forgotten(), name="lonely")

    with pytest.raises(Deadlock, match=r"lonely in .*forgotten"):
        virtual.run(main())


def test_timeouts_and_executors():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(86_400 * 3):
                await asyncio.Event().wait()
        assert clock.monotonic() == pytest.approx(86_400 * 3)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(threading.get_ident)

    assert virtual.run(main()) == threading.get_ident()


def test_the_wall_clock_can_jump_alone():
    moved = VirtualClock(start=0)
    moved.advance(1.5)
    moved.jump(-90)
    assert (moved.now(), moved.monotonic()) == (-88_500_000, 1.5)


def test_the_real_clock_comes_back():
    async def fail():
        raise ValueError

    with pytest.raises(ValueError):
        virtual.run(fail(), start=0)
    assert clock.now() > virtual.START - 365 * 86_400 * clock.SECOND
