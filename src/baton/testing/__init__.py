"""A public test kit: judge your own stores and agents as baton judges its own.

`virtual` runs asyncio programs in virtual time; `faults` kills at every write; `power` takes the power
away; `races` lets processes contend. Each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baton.testing.virtual import Deadlock as Deadlock
    from baton.testing.virtual import VirtualClock as VirtualClock
    from baton.testing.virtual import VirtualLoop as VirtualLoop

_PLACES = {
    "Deadlock": "virtual",
    "VirtualClock": "virtual",
    "VirtualLoop": "virtual",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_PLACES)
