"""What goes wrong, and how often: one table. It strikes between two callbacks, and before and after each store call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from baton.testing.simulation.loop import Killed

if TYPE_CHECKING:
    from baton.testing.simulation.world import Process, World


class Fault(NamedTuple):
    """How often in comparison, and what happens to its victim, which may be calling the store just now."""

    weight: int
    strike: Callable[[Faults, Process, bool], None]


class Faults:
    """The faults of one schedule: every so many points, one of those that this schedule has."""

    def __init__(self, world: World, rate: float, kinds: list[str], most: int) -> None:
        self.world = world
        self.rate = rate  # points from one fault to the next, on average
        self.kinds = kinds
        self.weights = [FAULTS[kind].weight for kind in kinds]
        self.most = most
        self.left = 0
        self.died: Callable[[Process], None] = lambda _: None
        self._draw()

    def _draw(self) -> None:
        self.left = 1 + int(self.world.chance.expovariate(1 / self.rate)) if self.most > 0 and self.kinds else 1 << 60

    def stop(self) -> None:
        """No more faults."""
        self.most = 0
        self._draw()

    def point(self, process: Process) -> None:
        """Here something may go wrong with this process."""
        self.left -= 1
        if self.left <= 0:
            self._strike(process, calling=True)

    def between(self, process: Process) -> None:  # noqa: ARG002 - whoever just ran is no likelier victim
        """Between two callbacks it may strike any process."""
        self.left -= 1
        if self.left <= 0 and self.world.alive:
            alive = self.world.alive
            self._strike(alive[int(self.world.chance.random() * len(alive))], calling=False)

    def inside(self, process: Process) -> None:
        """Within a transaction only a crash can come between."""
        self.left -= 1
        if self.left <= 0 and "crash" in self.kinds:
            self.most -= 1
            self._draw()
            self.world.counts["crash in a transaction"] += 1
            crash(self, process, calling=True)

    def _strike(self, process: Process, *, calling: bool) -> None:
        self.most -= 1
        [kind] = self.world.chance.choices(self.kinds, self.weights)
        self._draw()
        self.world.counts[kind] += 1
        FAULTS[kind].strike(self, process, calling)


def crash(faults: Faults, process: Process, calling: bool) -> None:  # noqa: FBT001 - one shape for all
    """The process ends without a word; it is started again later."""
    faults.world.kill(process)
    faults.died(process)
    if calling:
        raise Killed


def pause(faults: Faults, process: Process, calling: bool) -> None:  # noqa: FBT001
    """The process stands still, often longer than its lease, and then goes on as if nothing had been."""
    faults.world.freeze(process, faults.world.chance.choice((0.05, 0.6, 2.5, 4.0, 9.0)), calling=calling)


def overtake(faults: Faults, process: Process, calling: bool) -> None:  # noqa: FBT001
    """Others take some steps just now."""
    faults.world.freeze(process, faults.world.chance.choice((0.0, 0.02, 0.3)), calling=calling)


def jump(faults: Faults, process: Process, calling: bool) -> None:  # noqa: ARG001, FBT001 - everybody's clock
    """Somebody sets the wall clock."""
    seconds = faults.world.chance.choice((-30.0, -7.0, -1.0, 1.0, 7.0, 30.0))
    faults.world.say("clock", f"jumps by {seconds:g} s")
    faults.world.clock.jump(seconds)


def lose_notices(faults: Faults, process: Process, calling: bool) -> None:  # noqa: ARG001, FBT001
    """For a while the process wakes nobody who waits in it."""
    process.deaf_until = faults.world.clock.monotonic() + faults.world.chance.choice((0.5, 3.0, 10.0))
    faults.world.say(process, f"loses its notices until {process.deaf_until:.1f}")


def slow_disk(faults: Faults, process: Process, calling: bool) -> None:  # noqa: ARG001, FBT001
    """What several callers commit together takes long, for a while."""
    process.loop.latency = faults.world.chance.choice((0.02, 0.4, 3.5))
    faults.world.say(process, f"has a disk that takes {process.loop.latency} s")
    faults.world.later(5.0, lambda: setattr(process.loop, "latency", 0.0))


def power_cut(faults: Faults, process: Process, calling: bool) -> None:  # noqa: FBT001
    """The host goes down with all of its processes, and boots again."""
    for one in [each for each in faults.world.alive if each.host == process.host]:
        faults.world.kill(one)
        faults.died(one)
    faults.world.boots[process.host] += 1
    if calling:
        raise Killed


FAULTS: dict[str, Fault] = {
    "crash": Fault(5, crash),
    "pause": Fault(5, pause),
    "overtake": Fault(8, overtake),
    "clock jump": Fault(2, jump),
    "lost notices": Fault(3, lose_notices),
    "slow disk": Fault(2, slow_disk),
    "power cut": Fault(1, power_cut),
}
