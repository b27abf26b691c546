"""What the suites share: a store opened in virtual time, and closed at the end."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from baton import clock
from baton.testing.virtual import VirtualClock


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
