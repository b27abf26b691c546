"""Simulated processes around one store: each has an event loop of its own, and a seed decides who takes the next step.

All of them share one thread and one virtual clock. A process that is killed is never run again, and its connection to
the store refuses whatever its code still does while it is taken down. One that is frozen stays where it is, also in
the middle of a function, while the others go on.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from baton.testing.simulation.loop import Killed, ProcessLoop, unwind
from baton.testing.virtual import VirtualClock

if TYPE_CHECKING:
    from baton.relay import Relay
    from baton.testing.simulation.wire import Wire

MOST_STEPS = 150_000  # of one schedule; more is a program that goes round and round


class WorldClock(VirtualClock):
    """The time of the one machine that the store is on; a process elsewhere may be off by its skew."""

    skew = 0
    before_jump = 0  # the latest that it showed before it was set back: what was decided then was right
    _off = 0.0

    def now(self) -> int:
        return super().now() + self.skew

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self.before_jump = max(self.before_jump, super().now())
        self._off += seconds
        super().jump(seconds)

    def set_right(self) -> None:
        """Take all jumps back."""
        self.jump(-self._off)


class Process:
    """One incarnation of a simulated process."""

    relay: Relay
    wire: Wire

    def __init__(self, world: World, name: str, machine: tuple[str, str, int, str], skew: int = 0) -> None:
        self.name = name
        self.host, self.boot, self.pid, self.start = machine
        self.skew = skew  # of its own clock, in microseconds
        self.loop = ProcessLoop(world)  # type: ignore[abstract]
        self.dead = False
        self.frozen = 0
        self.deaf_until = 0.0  # until then its notices are lost
        self.holder = ""
        self.until = 0.0  # frozen at most until then, if it was frozen between two callbacks

    def __repr__(self) -> str:
        return self.name


class World:
    """The clock, the processes and the chance of one schedule."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.seed = seed
        self.clock = WorldClock(seed)
        self.chance = random.Random(f"schedule {seed}")
        self.timers: list[tuple[float, int, ProcessLoop | None, Any]] = []
        self.alive: list[Process] = []
        self.processes: list[Process] = []
        self.of_holder: dict[str, Process] = {}
        self.current: Process | None = None
        self.counts: Counter[str] = Counter()
        self.boots: Counter[str] = Counter()
        self.broken: list[str] = []
        self.trace: list[str] | None = [] if tracing else None
        self.between: Callable[[Process], None] = lambda _: None  # faults between two callbacks
        self.over = False
        self.steps = 0
        self.most = MOST_STEPS
        self._running: ProcessLoop | None = None
        self._number = 0

    def numbered(self) -> int:
        """The next number of this world."""
        self._number += 1
        return self._number

    def say(self, who: object, text: str) -> None:
        """One line of the trace, where somebody reads it."""
        if self.trace is not None:
            self.trace.append(f"{self.clock.monotonic():9.4f} {who!s:10} {text}")

    def violate(self, text: str) -> None:
        """Note a broken promise; what comes after it may follow from it, so the schedule ends."""
        if not self.broken:
            self.say("!", text)
            self.broken.append(text)
        self.over = True

    # --- the machine, as `baton.stores.holder` asks for it -------------------------------------------

    def place(self) -> tuple[str, str]:
        """Host and boot of the process that asks."""
        return (self.current.host, self.current.boot) if self.current else ("nowhere", "-")

    def pid(self) -> int:
        """The number of the process that asks."""
        return self.current.pid if self.current else 0

    def started(self, pid: int) -> str | None:
        """When the process of this number began, on the host of who asks."""
        host = self.current.host if self.current else ""
        return next((one.start for one in self.alive if one.host == host and one.pid == pid), None)

    # --- time and turns ------------------------------------------------------------------------------

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Let the world do something at a later time."""
        heapq.heappush(self.timers, (self.clock.monotonic() + seconds, self.numbered(), None, call))

    def run(self, until: float, done: Callable[[], bool] | None = None) -> None:
        """Let the processes work until that time, until nothing can happen, or until it is done."""
        chance, between, clock = self.chance.random, self.between, self.clock
        while not self.over:
            if not self.steps & 15 and (self._runs_on() or (done is not None and done())):
                break
            ready = [one for one in self.alive if one.loop.ready and not one.frozen]
            if not ready:
                if not self._pass(until):
                    break
                continue
            process = ready[0] if len(ready) == 1 else ready[int(chance() * len(ready))]
            loop = process.loop
            handle = loop.ready.popleft()
            if handle.gone:
                continue
            if loop is not self._running:
                self._running = loop
                asyncio._set_running_loop(loop)  # noqa: SLF001 - made for loops
            self.current, clock.skew = process, process.skew
            try:
                handle.context.run(handle.call, *handle.args)
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - nobody else will hear of it
                self.unhandled(loop, {"message": "an exception in a callback", "exception": error})
            self.steps += 1
            between(process)
        self.current, clock.skew = None, 0

    def _runs_on(self) -> bool:
        if self.steps > self.most:
            self.violate(f"not settled after {self.most} callbacks")
        return self.over

    def _meanwhile(self, outer: Process, seconds: float) -> None:
        """Let the others work while this process is in the middle of a call."""
        task, skew = asyncio.current_task(outer.loop), self.clock.skew
        if task is not None:
            asyncio.tasks._leave_task(outer.loop, task)  # noqa: SLF001 - as a loop may
        self.run(self.clock.monotonic() + seconds)
        self.current, self._running, self.clock.skew = outer, outer.loop, skew
        asyncio._set_running_loop(outer.loop)  # noqa: SLF001
        if task is not None:
            asyncio.tasks._enter_task(outer.loop, task)  # noqa: SLF001

    def _pass(self, until: float) -> bool:
        """Move the clock to the next timer; False where nothing comes before that time."""
        timers = self.timers
        while timers and timers[0][2] is not None and timers[0][3].gone:
            heapq.heappop(timers)
        now = self.clock.monotonic()
        when = timers[0][0] if timers else until
        if not timers or when > until:
            if until > now:
                self.clock.advance(until - now)
            return False
        if when > now:
            self.clock.advance(when - now)
        now = self.clock.monotonic()
        while timers and timers[0][0] <= now:
            _, _, loop, handle = heapq.heappop(timers)
            if loop is None:
                handle()
            elif not handle.gone:
                loop.ready.append(handle)
        return True

    # --- what can happen to a process ----------------------------------------------------------------

    def begin(self, process: Process) -> None:
        """A process is there."""
        self.alive.append(process)
        self.processes.append(process)

    def known(self, process: Process, holder: str) -> None:
        """The name under which a process holds claims."""
        process.holder = holder
        self.of_holder[holder] = process

    def kill(self, process: Process) -> None:
        """End a process: none of its code runs any more but what is on the stack, and that cannot reach the store."""
        if process.dead:
            return
        process.dead = True
        process.wire.dead = True
        self.alive.remove(process)
        self.say(process, "is killed")

    def freeze(self, process: Process, seconds: float, *, calling: bool) -> None:
        """Hold a process for a while: in the middle of a call, where others go on now, or between two callbacks."""
        self.say(process, f"is frozen for {seconds:.3f} s{' in a call' if calling else ''}")
        process.frozen += 1
        if not calling:
            self.later(seconds, lambda: self._thaw(process))
            return
        self._meanwhile(process, seconds)
        self._thaw(process)
        if process.dead:
            raise Killed

    def _thaw(self, process: Process) -> None:
        process.frozen -= 1
        self.say(process, "goes on")

    def unhandled(self, loop: ProcessLoop, context: dict[str, Any]) -> None:
        """An exception in a callback: of a live process, it is a fault of the program."""
        error = context.get("exception")
        owner = next((one for one in self.alive if one.loop is loop), None)
        if owner is not None and not self.over and error is not None and "never retrieved" not in context["message"]:
            self.violate(f"{owner}: {context['message']}: {error!r}")

    def bury(self) -> None:
        """Take down what is left of all processes; nothing of it can reach the store any more."""
        self.over = True
        for process in self.processes:
            process.dead = process.wire.dead = True
        for process in self.processes:
            self.current = process
            asyncio._set_running_loop(process.loop)  # noqa: SLF001
            for task in process.loop.tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001
                    unwind(task.get_coro())
                elif not task.cancelled():
                    task.exception()
            process.loop.ready.clear()
            process.wire.hang_up()
        self.current = None
        self.clock.skew = 0
        asyncio._set_running_loop(None)  # noqa: SLF001
        self.timers.clear()
