"""What a guard is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.protocol.profile import Profile


class Breaker(msgspec.Struct, frozen=True):
    """A circuit breaker as stored: one row per agent or route and class of failure. Times in microseconds."""

    subject: str  # "agent:billing" or "route:triage->billing"
    failure: str  # "error", "timeout" or "unavailable"
    failures: int = 0
    opens: int = 0
    opened_at: int | None = None
    probing: str = ""  # the handoff that is let through to see whether it works again


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What the store knows when it decides, read in the same transaction. Money in millionths."""

    now: int
    started_at: int = 0
    handoffs: int = 0  # made so far in the workflow
    agents: tuple[str, ...] = ()  # that took part so far
    tokens_spent: int = 0
    tokens_reserved: int = 0
    cost_spent: int = 0
    cost_reserved: int = 0
    repeats: int = 0  # earlier handoffs of this chain with the same sender, receiver and fingerprint
    visits: int = 0  # earlier handoffs of this chain to this receiver with the same fingerprint
    sender: Profile | None = None
    target: Profile | None = None
    away: str = ""  # why the receiver gets no new work: its state, a colon, the reason
    load: int = 0  # what the receiver works on now
    breakers: tuple[Breaker, ...] = ()  # of the receiver and of the route
    begins: bool = False  # whether this step is the one that begins the workflow
    more: int = 0  # others of its group that are still to be made
    waiting: tuple[str, ...] = ()  # claims that wait for this very work, where one of them may keep it out


class Verdict(msgspec.Struct, frozen=True):
    """Whether the step may happen.

    `refuse` ends the handoff, `reject` lets another agent take it, `ask` waits for a person, `escalate`
    moves it up. `error` is the name in `baton.errors`, `limit` what was hit and `allowed` what would be.
    """

    kind: Literal["allow", "refuse", "reject", "ask", "escalate"] = "allow"
    reason: str = ""
    error: str = "Refused"
    limit: str = ""
    allowed: str = ""
    warnings: tuple[str, ...] = ()
    reserve_tokens: int = 0
    reserve_cost: int = 0
    probe: bool = False
    seconds: float | None = None  # how long the work may take, where its process allows less than is registered


ALLOW = Verdict()
Guard = Callable[[Handoff, Facts, Limits], Verdict]
