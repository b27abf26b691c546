"""How much is allowed: budgets, autonomy, and the limits of a workflow.

Money is a number in the budget's currency. Inside the store it is counted in millionths: sums are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from baton.errors import Malformed
from baton.protocol.codec import MAX_SECONDS, Record, bounded, convert, names, near
from baton.protocol.fields import whole

Risk = Literal["low", "medium", "high"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high")
MILLION = 1_000_000
MAX_COST = 10**12  # so that sums of millionths stay within 64 bits


class Budget(Record, frozen=True, kw_only=True):
    """What a handoff or workflow may spend; None is no limit."""

    max_tokens: int | None = None  # of language models
    max_cost: float | None = None  # money
    currency: str = "USD"  # of max_cost

    def __post_init__(self) -> None:
        whole(self.max_tokens, "budget.max_tokens")
        bounded(self.max_cost, "budget.max_cost", 0, MAX_COST)


class Autonomy(Record, frozen=True, kw_only=True):
    """How far an agent may go by itself; None is no limit of its own."""

    max_risk: Risk = "high"  # riskier work goes to somebody else, in the end to a person
    max_tokens: int | None = None  # work that uses more goes up, in the end to a person
    max_cost: float | None = None  # the same for money
    max_hops: int | None = None  # the last hop of a chain in which it takes part

    def __post_init__(self) -> None:
        whole(self.max_tokens, "autonomy_budget.max_tokens")
        bounded(self.max_cost, "autonomy_budget.max_cost", 0, MAX_COST)
        whole(self.max_hops, "autonomy_budget.max_hops")


_COUNTS = (
    "max_handoffs", "max_agents", "max_depth", "max_tokens", "max_reroutes", "max_escalations", "max_same_visits",
)  # fmt: skip


class Limits(Record, frozen=True, kw_only=True):
    """The limits of one workflow. An explicit limit replaces the default; None is unlimited, but for `ack_seconds`."""

    max_handoffs: int | None = 5  # between agents, delegations included; the request that begins it does not count
    max_agents: int | None = None  # how many different ones may take part
    max_depth: int | None = 16  # how deep delegations may nest
    max_tokens: int | None = None  # used by all of them together
    max_cost: float | None = None  # money, in the currency of the budget
    max_seconds: float | None = None  # how long the whole may last
    max_reroutes: int | None = 3  # how often one handoff may go to somebody else
    max_escalations: int | None = 3  # how often work may go up, in one chain; the last time to a person
    max_same_visits: int | None = 2  # how often the same work may come to the same agent with nothing new
    loops: dict[str, int] = {}  # "reviewer->writer": how often this edge may repeat with nothing new
    approve: tuple[str, ...] = ()  # agents whose work a person approves first; "*" is every one
    approve_risk: Risk | None = None  # and work of this risk or higher
    approval_seconds: float | None = None  # how long to wait for an approval; then it is denied
    ack_seconds: float = 30.0  # how long an offer may lie before somebody else gets it

    def __post_init__(self) -> None:
        names(self.approve, "limits.approve")
        if self.approve_risk not in (None, *RISKS):
            raise Malformed(f"limits.approve_risk: {self.approve_risk!r:.60}; {near(str(self.approve_risk), RISKS)}")
        loops: Any = self.loops
        if not isinstance(loops, dict):
            raise Malformed('limits.loops: expected an object, as in {"reviewer->writer": 3}')
        for name in _COUNTS:
            whole(getattr(self, name), f"limits.{name}")
        bounded(self.max_cost, "limits.max_cost", 0, MAX_COST)
        for name in ("max_seconds", "approval_seconds", "ack_seconds"):
            bounded(getattr(self, name), f"limits.{name}", 0, MAX_SECONDS)
        if self.ack_seconds is None:
            raise Malformed("limits.ack_seconds: None is no time; write seconds, as many as you like to wait")
        names(loops, "limits.loops")
        for edge, times in loops.items():
            if times is None:
                raise Malformed(f"limits.loops.{edge}: None is no number; write how often")
            whole(times, f"limits.loops.{edge}")


TIERS: dict[str, Limits] = {
    "simple": Limits(max_handoffs=0, max_tokens=10_000, max_agents=1),
    "medium": Limits(max_handoffs=2, max_tokens=25_000, max_agents=3),
    "complex": Limits(max_handoffs=5, max_tokens=150_000, max_agents=5),
}

_SHRINKING = (
    "max_handoffs", "max_agents", "max_depth", "max_tokens", "max_cost", "max_seconds", "max_escalations",
)  # fmt: skip


def tightest(*layers: Limits | None) -> Limits:
    """The smallest of each limit over several layers; everything else comes from the first."""
    present = [layer for layer in layers if layer is not None]
    smallest: dict[str, Any] = {}
    for name in _SHRINKING:
        values = [getattr(layer, name) for layer in present if getattr(layer, name) is not None]
        smallest[name] = min(values, default=None)
    return msgspec.structs.replace(present[0], **smallest)


def as_limits(value: Any) -> Limits | None:
    """Accept an object of limits, whose names are checked."""
    if value is None or isinstance(value, Limits):
        return value
    return convert(dict(value) if isinstance(value, Mapping) else value, Limits, "limits")


def as_budget(value: Budget | float | None) -> Budget | None:
    """Accept a bare number as a limit of tokens."""
    if value is None or isinstance(value, Budget):
        return value
    return Budget(max_tokens=as_tokens(value, "budget"))


def as_autonomy(value: Autonomy | float | None) -> Autonomy | None:
    """Accept a bare number as a limit of tokens."""
    if value is None or isinstance(value, Autonomy):
        return value
    return Autonomy(max_tokens=as_tokens(value, "autonomy_budget"))


def as_tokens(value: float | None, field: str) -> int:
    """Accept a whole number of tokens."""
    bounded(value, field)
    if value is None or value != int(value):
        raise Malformed(f"{field}: {value} is not a whole number of tokens; write max_cost for money")
    return int(value)


def micro(cost: float | None) -> int | None:
    """Money in millionths."""
    return None if cost is None else round(cost * MILLION)


def smaller(outer: Budget | None, inner: Budget | None) -> Budget | None:
    """The budget of a part: its own, but never more than that of the whole."""
    if outer is None or inner is None:
        return inner or outer
    tokens = [one.max_tokens for one in (outer, inner) if one.max_tokens is not None]
    costs = [one.max_cost for one in (outer, inner) if one.max_cost is not None]
    return Budget(max_tokens=min(tokens, default=None), max_cost=min(costs, default=None), currency=outer.currency)
