"""One schedule from its seed to its verdict."""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from baton import clock
from baton.errors import BatonError, Malformed
from baton.lifecycle import State
from baton.relay import Relay
from baton.stores import holder, open_store
from baton.stores.seal import seal
from baton.testing.children import scratch
from baton.testing.simulation import judge
from baton.testing.simulation.actors import Actor, Sickly, person
from baton.testing.simulation.faults import FAULTS, Faults
from baton.testing.simulation.history import History
from baton.testing.simulation.loop import SimTask
from baton.testing.simulation.wire import Wire
from baton.testing.simulation.witness import Witness
from baton.testing.simulation.workloads import LIMITS, SEQUENCE, WORKLOADS, Order, Stage
from baton.testing.simulation.world import MOST_STEPS, Process, World

if TYPE_CHECKING:
    from baton.flow.outcome import Result
    from baton.stores.base import Store

Kind = Literal["memory", "sqlite"]
SQLITE_EVERY = 20  # one schedule in so many runs on a file
HEALED = 300.0  # seconds within which all is settled once the faults are over; those of a rest do not count
LOOK = 1.0  # how often it is seen whether work rests
LEASE = 2.0
MICRO = 1_000_000
HEALTH = {"interval": 1.0, "timeout": 0.5, "threshold": 2}


@dataclass(frozen=True)
class Outcome:
    """What came of one schedule."""

    seed: int
    store: Kind
    broken: tuple[str, ...]  # the promises that were broken; none in a sound product
    counts: Counter[str] = field(repr=False)  # what happened: faults, states, decisions
    trace: tuple[str, ...] = field(repr=False)  # all of it, line by line, where it was asked for

    @property
    def replay(self) -> str:
        """The command that shows it again."""
        return f"script/chaos --seed {self.seed} --store {self.store} -v"

    def assert_sound(self) -> None:
        """Raise with the first broken promise and the way to see it again."""
        if self.broken:
            raise AssertionError(f"seed {self.seed}, {self.store}: {self.broken[0]}\nreplay: {self.replay}")


def simulate(seed: int, *, store: Kind | None = None, trace: bool = False) -> Outcome:
    """Play the schedule of a seed."""
    world = World(seed, tracing=trace)
    kind: Kind = store or ("sqlite" if seed % SQLITE_EVERY == 0 else "memory")
    with ExitStack() as stack:
        stack.enter_context(clock.use(world.clock))
        stack.enter_context(holder.use(world))
        stack.enter_context(_heard(world))
        opened = stack.enter_context(_stores(kind))
        play = _Play(world, kind, opened)
        try:
            play.run()
        finally:
            world.bury()
    counts = world.counts
    counts["virtual seconds"] = round(world.clock.monotonic())
    counts["callbacks"] = world.steps
    return Outcome(seed, kind, tuple(world.broken), counts, tuple(world.trace or ()))


def play(first: int, count: int, store: Kind | None = None) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Some schedules in a row: what happened in them, and those that broke a promise."""
    happened: Counter[str] = Counter()
    broken = []
    with _seldom_collected():
        for seed in range(first, first + count):
            outcome = simulate(seed, store=store)
            happened += outcome.counts
            happened["schedules"] += 1
            if outcome.broken:
                broken.append((seed, f"{outcome.broken[0]}\n  {outcome.replay}"))
    return happened, broken


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """A schedule leaves many short circles of objects; to look for them less often saves a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _stores(kind: Kind) -> Iterator[Callable[[], Store]]:
    """How a process comes to the store: the one in memory outlives them, the file is opened by each."""
    if kind == "memory":
        kept = open_store(":memory:")
        yield lambda: kept
        return
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        path = Path(folder) / "store.db"
        path.write_bytes(_template())
        yield lambda: open_store(path, durability="process")


@cache
def _template() -> bytes:
    """An empty store file, so that not every schedule has to migrate one."""
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        path = Path(folder) / "store.db"
        made = open_store(path, durability="process")
        made.close()
        return path.read_bytes()


class _Errors(logging.Handler):
    """What the product logs as an error was an exception that it did not expect."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = self.world.current
        if process is not None and not process.dead and not self.world.over:
            error = record.exc_info[1] if record.exc_info else None
            self.world.violate(f"{process}: logged {record.getMessage()}: {error!r}")


@contextmanager
def _heard(world: World) -> Iterator[None]:
    logger, handler = logging.getLogger("baton"), _Errors(world)
    level, spread = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = spread


@dataclass
class _Slot:
    """A place for a process: it is started again after each death."""

    name: str
    host: str
    skew: int
    pid: int
    agents: tuple[str, ...] = ()
    slots: int = 2
    orders: tuple[Order, ...] = ()
    process: Process | None = None
    runs: list[SimTask] = field(default_factory=list)
    died: int = 0


class _Play:
    """The processes of one schedule, and how they come and go."""

    def __init__(self, world: World, kind: Kind, opened: Callable[[], Store]) -> None:
        chance = world.chance
        self.world = world
        self.opened = opened
        self.history = History()
        self.witness = Witness(world, self.history)
        self._look_at = 0
        self.shared = opened()
        self.witness.watch(self.shared)
        plays = [chance.choice(list(WORKLOADS)) for _ in range(chance.choice((1, 2, 2, 3)))]
        self.stage = Stage(world, plays)
        self.witness.capacity = self.stage.capacity
        kinds = [name for name in FAULTS if chance.random() < 0.7]
        self.faults = Faults(world, chance.choice((25.0, 60.0, 150.0, 400.0)), kinds, chance.choice((0, 3, 6, 12)))
        self.faults.died = self._restart_later
        self.sealing = chance.random() < 0.2
        self.slots = [self._slot(number, kind) for number in range(chance.choice((2, 2, 3)))]
        self._share_out()
        self.people = [_Slot(name, "h1", 0, 900 + n) for n, name in enumerate(("ana", "ben")[: chance.choice((1, 2))])]
        world.say("world", f"{kind}; {', '.join(plays)}; {self.stage.temper}; faults: {kinds}")

    def _slot(self, number: int, kind: Kind) -> _Slot:
        chance = self.world.chance
        elsewhere = chance.random() < 0.25
        host = f"h{number + 2}" if elsewhere else "h1"
        skew = chance.choice((-5, 0, 5)) * MICRO if elsewhere and kind == "memory" else 0
        return _Slot(f"worker{number + 1}", host, skew, 100 + number, slots=chance.choice((1, 2, 4)))

    def _share_out(self) -> None:
        """Every agent has at least one process, and every order one that asks for it."""
        chance, names = self.world.chance, self.stage.names
        chosen = [{name for name in names if chance.random() < 0.7} for _ in self.slots]
        for name in names:
            if not any(name in some for some in chosen):
                chosen[chance.randrange(len(chosen))].add(name)
        asked: list[list[Order]] = [[] for _ in self.slots]
        for order in self.stage.orders:
            asked[chance.randrange(len(asked))].append(order)
        for slot, some, orders in zip(self.slots, chosen, asked, strict=True):
            slot.agents, slot.orders = tuple(name for name in names if name in some), tuple(orders)

    def run(self) -> None:
        """Let it go wrong for a while, then let it heal, and judge what is left."""
        world, faults = self.world, self.faults
        for slot in (*self.slots, *self.people):
            self._start(slot)
        world.between = faults.between
        world.run(world.chance.choice((2.0, 4.0, 7.0)), self._settled)
        self._heal()
        self._settle()
        if not world.over:
            self._look_at = 0
            if not self._settled():
                world.violate(f"stuck: {'; '.join(self._open()) or 'nobody told who waits'}")
            else:
                judge.judge(world, self.shared, self.stage, self.history)

    def _heal(self) -> None:
        """The faults are over: the clock is set right, the dead are started again, people decide what is left."""
        world = self.world
        self.faults.stop()
        self.stage.healing = True
        world.say("world", "heals")
        world.clock.set_right()
        for process in world.alive:
            process.deaf_until = process.loop.latency = 0.0

    def _settle(self) -> None:
        """Let the work end. While some waits for an agent that failed and rests, all the others have time, too."""
        world, left, seen = self.world, HEALED, -1
        while left > 0 and not world.over:
            began = world.clock.monotonic()
            handoffs = (row.handoff for row in self.witness.rows.values())
            resting = judge.rest(handoffs, self.shared.breakers(), self.shared.now())
            if (moves := sum(world.counts[state.value] for state in State)) == seen:
                resting = 0.0  # nothing came of the last one, so this one is no excuse
            if resting:
                seen = moves
                world.most += round(resting * MOST_STEPS / HEALED)  # as many in a second as at any other time
            world.run(began + (resting or min(left, LOOK)), self._settled)
            self._look_at = 0
            if self._settled():
                break
            if not resting:
                left -= world.clock.monotonic() - began

    # --- processes -------------------------------------------------------------------------------------

    def _start(self, slot: _Slot) -> None:
        """A new process in this place."""
        world, chance = self.world, self.world.chance
        if slot.died and chance.random() < 0.6:
            slot.pid += 10  # else the number is used again, by a process with another start
        machine = (slot.host, f"boot{world.boots[slot.host]}", slot.pid, str(world.numbered()))
        process = Process(world, slot.name, machine, slot.skew)
        world.begin(process)
        slot.process = process
        store = self.opened()
        if store is not self.shared:
            self.witness.watch(store)
        process.wire = Wire(world, process, store, (self.faults, self.witness, self.history))
        process.loop.call_soon(partial(self._live, slot, process))
        slot.runs = []

    def _live(self, slot: _Slot, process: Process) -> None:
        """What a process does from its first moment on."""
        world = self.world
        stage = self.stage
        relay = Relay(
            process.wire,  # type: ignore[arg-type]
            limits=LIMITS,
            lease=LEASE,
            backoff=0.2,
            delegation_timeout=20,
            sequence=SEQUENCE,
            escalation=stage.ladder,
            routes=stage.routes,
            health=HEALTH,
        )
        process.relay = relay
        crew = relay._crew  # noqa: SLF001 - what is told to nobody else
        crew.seal = partial(seal, process.wire) if self.sealing else int  # type: ignore[arg-type]
        self._can_be_deaf(process, crew.hub)
        world.known(process, crew.holder)
        world.say(process, f"lives as {crew.holder}, runs {', '.join(slot.agents) or 'no agent'}")
        for name in slot.agents:
            patience = 3.0 if stage.temper[name] == "silent" else None
            actor = (Sickly if name in stage.sickly else Actor)(stage, name)
            most = stage.capacity.get(name)
            relay.add(name, actor, max_execution_time=patience, idempotent=name != "dan", max_concurrent_tasks=most)
        if slot in self.people:
            slot.runs = [process.loop.create_task(person(self.stage, relay, slot.name))]
            return
        slot.runs += [process.loop.create_task(self._ask(process, relay, order)) for order in slot.orders]
        serve = process.loop.create_task(relay.work(slots=slot.slots))
        serve.add_done_callback(partial(self._ended, process))

    def _can_be_deaf(self, process: Process, hub: Any) -> None:
        notify = hub.notify

        def heard() -> None:
            if self.world.clock.monotonic() < process.deaf_until:
                self.world.counts["notices lost"] += 1
            else:
                notify()

        hub.notify = heard

    def _ended(self, process: Process, task: asyncio.Task[Any]) -> None:
        if not process.dead and not self.world.over:
            why = "was cancelled" if task.cancelled() else f"ended: {task.exception()!r}"
            self.world.violate(f"{process}: its worker {why}")

    async def _ask(self, process: Process, relay: Relay, order: Order) -> None:
        """Somebody asks for work in this process, and waits for what comes of it."""
        world = self.world
        await asyncio.sleep(order.after)
        try:
            how = {"wait": order.wait, "timeout": order.patience, "workflow_id": order.workflow, **order.options}
            result = await relay.run(order.to, order.task, **how)
        except Malformed as error:
            world.violate(f"{process}: {order.workflow} was not understood: {error}")
        except BatonError as error:
            world.counts[f"ended: {type(error).__name__}"] += 1
            world.say(process, f"is told of {order.workflow}: {type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - the judge wants to know
            world.violate(f"{process}: run raised {error!r}, which is no error of baton")
        else:
            self._told(process, order, result)

    def _told(self, process: Process, order: Order, result: Result) -> None:
        world = self.world
        world.counts[f"ended: {result.status}"] += 1
        world.say(process, f"is told of {order.workflow}: {result.status}: {result.output!r}")
        judge.judge_result(world, self.stage, order, result)

    def _restart_later(self, process: Process) -> None:
        """Somebody starts it again."""
        world = self.world
        slot = next(one for one in (*self.slots, *self.people) if one.process is process)
        slot.died += 1
        world.later(world.chance.choice((0.05, 0.5, 2.0)), lambda: self._start(slot))

    # --- the end ---------------------------------------------------------------------------------------

    def _settled(self) -> bool:
        """Whether all that was asked for has ended, and everybody who waits was told."""
        if self.world.steps < self._look_at:
            return False
        self._look_at = self.world.steps + 10
        for slot in self.slots:
            if slot.process is None or slot.process.dead or len(slot.runs) < len(slot.orders):
                return False
            if not all(task.done() for task in slot.runs):
                return False
            if any(task.cancelled() for task in slot.runs):
                self.world.violate(f"{slot.name}: a run was cancelled, and nobody called it off")
        return all(row.handoff.ended for row in self.witness.rows.values())

    def _open(self) -> Iterator[str]:
        for row in self.witness.rows.values():
            one = row.handoff
            if not one.ended:
                yield f"{one.id[:8]} {one.from_agent}→{one.to_agent} {one.status} held by {one.holder or 'nobody'}"
        for slot in self.slots:
            for order, task in zip(slot.orders, slot.runs, strict=False):
                if not task.done():
                    yield f"{slot.name} waits for {order.workflow}"
