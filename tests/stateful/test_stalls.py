"""Slow is not dead: stalled owners keep their work, and that of the dead is taken over at once."""

import asyncio
from contextlib import contextmanager

import pytest

from baton import Relay, clock
from baton.stores import holder, open_store
from baton.testing.simulation.bugs import planted
from baton.testing.simulation.faults import Faults
from baton.testing.simulation.history import History
from baton.testing.simulation.wire import Wire
from baton.testing.simulation.witness import Witness
from baton.testing.simulation.world import Process, World

LEASE = 2.0
OWNERS = 20


class Office:
    """Owners that each hold one work and never end it, and a worker that would take what is left behind."""

    def __init__(self, world):
        self.world = world
        self.store = open_store(":memory:")
        world.most = 10_000_000
        history = History()
        self.watch = (Faults(world, 1.0, [], 0), Witness(world, history), history)
        self.watch[1].watch(self.store)
        self.watcher = self.process("watcher", 1)
        self.owners = [self.process(f"owner{number}", 10 + number) for number in range(OWNERS)]
        self.world.run(1.0)
        for owner in self.owners:
            owner.loop.create_task(owner.relay.run("endless", owner.name, workflow_id=owner.name))
        self.world.run(2.0)
        self.watcher.loop.create_task(self.watcher.relay.work(slots=OWNERS))

    def process(self, name, pid):
        process = Process(self.world, name, ("h1", "b1", pid, str(self.world.numbered())))
        self.world.begin(process)
        process.wire = Wire(self.world, process, self.store, self.watch)
        process.loop.call_soon(self.live, process)
        return process

    def live(self, process):
        process.relay = Relay(process.wire, lease=LEASE)
        process.relay._crew.seal = int
        self.world.known(process, process.relay._crew.holder)

        @process.relay.agent("endless")
        async def endless(turn):
            await asyncio.Event().wait()

    def held(self):
        """The claims, and which of them are not held by who made them."""
        rows = self.store.find(state="claimed")
        assert len(rows) == OWNERS
        return rows, [one for one in rows if self.world.of_holder[one.holder].name != one.workflow_id]


@contextmanager
def office():
    world = World(1)
    with clock.use(world.clock), holder.use(world):
        try:
            yield Office(world)
        finally:
            world.bury()


def freeze(office, seconds):
    for owner in office.owners:
        office.world.freeze(owner, seconds, calling=False)
    office.world.run(office.world.clock.monotonic() + seconds - 0.1)


def stall(office, seconds):
    """All owners stand still for so long; how many leases were over then."""
    freeze(office, seconds)
    rows, _ = office.held()
    over = sum(office.store.timers(one.id)[0] < office.store.now() for one in rows)
    office.world.run(office.world.clock.monotonic() + 1.2)  # long enough for each to renew
    return over


def test_ten_thousand_stalls_of_live_owners_take_nothing_from_them():
    with office() as one:
        stalled = sum(stall(one, 2.9) for _ in range(10_000 // OWNERS))
        rows, taken = one.held()
        assert stalled == 10_000
        assert taken == []
        assert {(row.epoch, row.attempt) for row in rows} == {(1, 1)}
        assert not one.world.broken
        assert len(one.store.alerts(unresolved=False)) >= OWNERS  # a person heard of each


def test_the_same_harness_sees_work_taken_from_the_slow():
    with planted("slow owner taken for dead"), office() as one:
        freeze(one, 2.9)
        assert "lives on the same host" in one.world.broken[0]


@pytest.mark.parametrize("after", [0.0, 0.13, 0.37])
def test_the_work_of_the_dead_is_taken_over_within_two_seconds(after):
    took = []
    with office() as one:
        for owner in one.owners:
            one.world.run(one.world.clock.monotonic() + after)
            died = one.world.clock.monotonic()
            one.world.kill(owner)
            while one.store.find(workflow_id=owner.name)[0].epoch == 1:
                one.world.run(one.world.clock.monotonic() + 0.05)
                assert one.world.clock.monotonic() < died + 60
            took.append(one.world.clock.monotonic() - died)
    assert len(took) == OWNERS
    assert max(took) <= 2.0
    print(f"at most {max(took):.2f} s")


def test_the_same_harness_sees_work_that_nobody_takes_over():
    with planted("dead owner taken for alive"), office() as one:
        one.world.kill(one.owners[0])
        one.world.run(one.world.clock.monotonic() + 60)
        assert one.store.find(workflow_id="owner0")[0].epoch == 1
