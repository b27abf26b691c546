"""The connection of one process to the store: faults strike here, and a dead process reaches nothing any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from baton.errors import BatonError, Fenced
from baton.testing.simulation.loop import Killed

if TYPE_CHECKING:
    from baton.stores.base import Store
    from baton.testing.simulation.faults import Faults
    from baton.testing.simulation.history import Call, History
    from baton.testing.simulation.witness import Witness
    from baton.testing.simulation.world import Process, World

READS = (
    "get", "find", "returned", "starting", "setting", "usage", "workflow", "workflows", "fetch", "version", "timers",
    "next_due", "held", "agent", "agents", "breakers", "audit", "unsealed", "sealed", "unsealed_rows", "sealed_rows",
    "audited", "labelled", "headless", "last_segment", "segments", "alerts", "locks", "now", "due", "holding",
    "contents", "tombstones",
)  # fmt: skip
WRITES = (
    "renew", "postpone", "unlock", "register", "seen", "mark", "reset_breaker", "add_segment", "raise_alert",
    "resolve_alert", "bury", "forget", "forget_alerts", "drop_contents",
)  # fmt: skip
STEPS = ("offer", "offer_all", "claim", "advance", "spend", "lock")


class Wire:
    """A `Store` as one process sees it. A crash strikes before a step, or after it and before its answer."""

    on_disk = True  # also a store in memory outlives its processes here: it plays a server

    def __init__(self, world: World, process: Process, store: Store, watch: tuple[Faults, Witness, History]) -> None:
        self.world = world
        self.process = process
        self.store: Any = store
        self.dead = False
        self.inside = False  # a transaction of several steps
        self.faults, self.witness, self.history = watch
        self._own = store.on_disk  # a connection of its own, that dies with the process

    @property
    def url(self) -> str:
        return str(self.store.url)

    @property
    def id(self) -> str:
        return str(self.store.id)

    def read(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Ask the store; others may have been there just before."""
        if self.dead:
            raise Killed
        if not self.inside:
            self.faults.point(self.process)
        return self._served(name, args, options)

    def written(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Change something beside the steps."""
        came = self.read(name, args, options)
        if not self.inside:
            self.faults.point(self.process)
        return came

    def step(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Take a step under the eyes of the witness."""
        if self.dead:
            raise Killed
        if self.inside:
            self.faults.inside(self.process)
        call = self.history.begin(name, args)
        try:
            if not self.inside:
                self.faults.point(self.process)
            came = self._watched(call, name, args, options)
            if not self.inside:
                self.faults.point(self.process)
        except BatonError as error:
            self.history.refused(call, fenced=isinstance(error, Fenced))
            raise
        except Killed:
            self.history.unknown(call)
            raise
        self.history.answered(call, came)
        return came

    def _watched(self, call: Call, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        witness, self.history.call = self.witness, call
        witness.before(self, name, args)
        try:
            came = self._served(name, args, options)
        except BaseException as error:
            witness.after(self, name, error)
            raise
        witness.after(self, name, came)
        return came

    def _served(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        clock = self.world.clock
        skew, clock.skew = clock.skew, 0  # the store has the time of its own machine
        try:
            return getattr(self.store, name)(*args, **options)
        finally:
            clock.skew = skew

    def batch(self, operations: Sequence[Callable[[], Any]]) -> list[Any]:
        """Several steps in one transaction: nobody comes between, and a crash takes back all of it."""
        if self.dead:
            raise Killed
        self.faults.point(self.process)
        self.inside = True
        self.witness.open()
        try:
            came: list[Any] = self._served("batch", (operations,), {})
        except BaseException:
            self.witness.close(kept=not self._own)
            raise
        finally:
            self.inside = False
        self.witness.close(kept=True)
        self.faults.point(self.process)
        return came

    def close(self) -> None:
        """Nothing: the world hangs up."""

    def hang_up(self) -> None:
        """Drop the connection, as the end of its process does."""
        if self._own:
            self.store.close()


def _call(way: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(self: Wire, *args: Any, **options: Any) -> Any:
        return way(self, name, args, options)

    return call


for _name in READS:
    setattr(Wire, _name, _call(Wire.read, _name))
for _name in WRITES:
    setattr(Wire, _name, _call(Wire.written, _name))
for _name in STEPS:
    setattr(Wire, _name, _call(Wire.step, _name))
