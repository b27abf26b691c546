"""How much is allowed: budgets, autonomy, and the limits of a workflow.

Money is a number in the budget's currency. Inside the store it is counted in millionths, so that sums are exact.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from baton.errors import Malformed

Risk = Literal["low", "medium", "high"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high")
MILLION = 1_000_000


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a handoff or workflow may spend; None is no limit."""

    max_tokens: int | None = None
    max_cost: float | None = None
    currency: str = "USD"


class Autonomy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How far an agent may go by itself; None is no limit of its own."""

    max_risk: Risk = "high"
    max_tokens: int | None = None
    max_cost: float | None = None
    max_hops: int | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of one workflow. An explicit limit replaces the default; None is unlimited."""

    max_handoffs: int | None = 5
    max_agents: int | None = None
    max_depth: int | None = 16
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    max_reroutes: int = 3
    max_same_visits: int = 2
    loops: dict[str, int] = {}  # "reviewer->writer": how often this edge may repeat with nothing new
    approve: tuple[str, ...] = ()  # agents whose work a person approves first; "*" is every one
    approve_risk: Risk | None = None  # and work of this risk or higher
    approval_seconds: float | None = None
    ack_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_handoffs", "max_agents", "max_depth", "max_tokens", "max_cost", "max_reroutes"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise Malformed(f"limits.{name}: {value} is negative; use 0 for none allowed, None for no limit")


TIERS: dict[str, Limits] = {
    "simple": Limits(max_handoffs=0, max_tokens=10_000, max_agents=1),
    "medium": Limits(max_handoffs=2, max_tokens=25_000, max_agents=3),
    "complex": Limits(max_handoffs=5, max_tokens=150_000, max_agents=5),
}

_SHRINKING = ("max_handoffs", "max_agents", "max_depth", "max_tokens", "max_cost", "max_seconds")


def tightest(*layers: Limits | None) -> Limits:
    """The smallest of each limit over several layers; everything else comes from the first."""
    present = [layer for layer in layers if layer is not None]
    smallest: dict[str, Any] = {}
    for name in _SHRINKING:
        values = [getattr(layer, name) for layer in present if getattr(layer, name) is not None]
        smallest[name] = min(values, default=None)
    return msgspec.structs.replace(present[0], **smallest)


def as_budget(value: Budget | float | None) -> Budget | None:
    """Accept a bare number as a limit of tokens."""
    if value is None or isinstance(value, Budget):
        return value
    return Budget(max_tokens=int(value))


def as_autonomy(value: Autonomy | float | None) -> Autonomy | None:
    """Accept a bare number as a limit of tokens."""
    if value is None or isinstance(value, Autonomy):
        return value
    return Autonomy(max_tokens=int(value))


def micro(cost: float | None) -> int | None:
    """Money in millionths."""
    return None if cost is None else round(cost * MILLION)
