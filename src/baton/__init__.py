"""Hand work from one agent to another: claimed once, in budget, approved, audited, recovered."""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing: the verbs that agents call all the time start with this module

__version__ = "0.1.0"

# Where each public name lives; a module is imported when its first name is used.
_HOMES = {
    "baton.relay": ("Relay",),
    "baton.flow.outcome": ("Result",),
    "baton.protocol.results": ("Command", "Defer", "Escalate", "Reject", "Return", "Send", "answer"),
    "baton.protocol.handoff": ("Handoff", "ReturnProtocol"),
    "baton.lifecycle": ("State",),
    "baton.protocol.context": ("Message",),
    "baton.protocol.artifacts": ("Artifact",),
    "baton.protocol.limits": ("Autonomy", "Budget", "Limits"),
    "baton.protocol.profile": ("Profile",),
    "baton.agents.base": ("Agent", "Turn"),
    "baton.errors": (
        "ApprovalDenied",
        "BatonError",
        "BudgetExceeded",
        "Fenced",
        "HandoffFailed",
        "Held",
        "LimitExceeded",
        "LoopDetected",
        "Malformed",
        "Refused",
        "TimedOut",
        "UnknownAgent",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [  # noqa: PLE0604 - the names are those of _HOMES
    *sorted(_HOME),
]

if TYPE_CHECKING:
    from typing import Any

    from baton.agents.base import Agent as Agent
    from baton.agents.base import Turn as Turn
    from baton.errors import ApprovalDenied as ApprovalDenied
    from baton.errors import BatonError as BatonError
    from baton.errors import BudgetExceeded as BudgetExceeded
    from baton.errors import Fenced as Fenced
    from baton.errors import HandoffFailed as HandoffFailed
    from baton.errors import Held as Held
    from baton.errors import LimitExceeded as LimitExceeded
    from baton.errors import LoopDetected as LoopDetected
    from baton.errors import Malformed as Malformed
    from baton.errors import Refused as Refused
    from baton.errors import TimedOut as TimedOut
    from baton.errors import UnknownAgent as UnknownAgent
    from baton.flow.outcome import Result as Result
    from baton.lifecycle import State as State
    from baton.protocol.artifacts import Artifact as Artifact
    from baton.protocol.context import Message as Message
    from baton.protocol.handoff import Handoff as Handoff
    from baton.protocol.handoff import ReturnProtocol as ReturnProtocol
    from baton.protocol.limits import Autonomy as Autonomy
    from baton.protocol.limits import Budget as Budget
    from baton.protocol.limits import Limits as Limits
    from baton.protocol.profile import Profile as Profile
    from baton.protocol.results import Command as Command
    from baton.protocol.results import Defer as Defer
    from baton.protocol.results import Escalate as Escalate
    from baton.protocol.results import Reject as Reject
    from baton.protocol.results import Return as Return
    from baton.protocol.results import Send as Send
    from baton.protocol.results import answer as answer
    from baton.relay import Relay as Relay


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'baton' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
