"""What the suites share: a store opened in virtual time, and closed at the end."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from baton import clock
from baton.guards.base import ALLOW, Verdict
from baton.lifecycle import State
from baton.stores.base import Step
from baton.testing.contracts.work import allow, always, claim_of, request
from baton.testing.virtual import VirtualClock

if TYPE_CHECKING:
    from baton.lifecycle import Event
    from baton.protocol.handoff import Handoff
    from baton.stores.base import Offer


def refuses(error: type[Exception], call: Any, *args: Any, **more: Any) -> str:
    """The message of the error that a call must raise."""
    try:
        call(*args, **more)
    except error as raised:
        return str(raised)
    raise AssertionError(f"{error.__name__} was not raised")


class Contract:
    """Subclass with `make`; override `wait` where time does not come from `baton.clock`."""

    def make(self) -> Any:
        """Open what is tested, empty."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    def setup_method(self) -> None:
        """Open."""
        self.clock = VirtualClock()
        self._opened = ExitStack()
        self._opened.enter_context(clock.use(self.clock))
        self.store = self.make()
        self._opened.callback(self.store.close)

    def teardown_method(self) -> None:
        """Close, and give time back."""
        self._opened.close()


class HandoffContract(Contract):
    """Makes handoffs, claims them, and moves them on."""

    def offer(self, offer: Offer | None = None, verdict: Verdict = ALLOW) -> Handoff:
        """Make a handoff."""
        made: Handoff = self.store.offer(offer or request(), always(verdict))[0]
        return made

    def claimed(self, offer: Offer | None = None) -> Handoff:
        """Make a handoff and claim it."""
        grant = self.store.claim(claim_of(self.offer(offer).id), allow)
        assert grant.won
        taken: Handoff = grant.handoff
        return taken

    def step(self, handoff: Handoff, event: Event, **more: Any) -> Any:
        """Apply one event by the handoff's own claim, where it has one."""
        epoch = handoff.epoch if handoff.state is State.CLAIMED else None
        return self.store.advance(Step(id=handoff.id, event=event, epoch=epoch, **more), allow)
