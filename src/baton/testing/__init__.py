"""A public test kit: judge your own stores and agents as baton judges its own.

`virtual` runs asyncio programs in virtual time; `faults` kills at every write; `power` takes the power
away; `races` lets processes contend; `simulation` plays processes, faults and hostile agents, one seed for
each schedule; `research` speaks as the providers of research do. Each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baton.testing.faults import SweepReport as SweepReport
    from baton.testing.faults import kill_sweep as kill_sweep
    from baton.testing.faults import strace_sweep as strace_sweep
    from baton.testing.power import PowerReport as PowerReport
    from baton.testing.power import power_loss as power_loss
    from baton.testing.races import Attempt as Attempt
    from baton.testing.races import NaiveClaims as NaiveClaims
    from baton.testing.races import RaceResult as RaceResult
    from baton.testing.races import linearizable as linearizable
    from baton.testing.races import race as race
    from baton.testing.research import ResearchServer as ResearchServer
    from baton.testing.simulation import simulate as simulate
    from baton.testing.virtual import Deadlock as Deadlock
    from baton.testing.virtual import VirtualClock as VirtualClock
    from baton.testing.virtual import VirtualLoop as VirtualLoop

_PLACES = {
    "Attempt": "races",
    "Deadlock": "virtual",
    "NaiveClaims": "races",
    "PowerReport": "power",
    "RaceResult": "races",
    "ResearchServer": "research",
    "SweepReport": "faults",
    "VirtualClock": "virtual",
    "VirtualLoop": "virtual",
    "kill_sweep": "faults",
    "linearizable": "races",
    "power_loss": "power",
    "race": "races",
    "simulate": "simulation",
    "strace_sweep": "faults",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_PLACES)
