"""Whether an agent is well enough for new work.

An agent is available until something fails: an offer that nobody acknowledged, a health check, a worker that was
not seen any more. Then it is suspect: it gets no new work, and keeps what it has. After three failures in a row
it is unavailable. One check that passes makes it available again. So does a worker that shows itself, unless it was
the agent's own check that failed: a process that lives says nothing about the model behind it.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from baton.guards.base import ALLOW, Facts, Verdict
from baton.protocol.handoff import HUMAN, Handoff
from baton.protocol.limits import Limits

THRESHOLD = 3

State = Literal["available", "suspect", "unavailable"]


class Health(msgspec.Struct, frozen=True, gc=False):
    """What is known of an agent's health. Times in microseconds."""

    state: State = "available"
    reason: str = ""
    since: int | None = None  # when it came into this state; None while nothing ever failed
    failures: int = 0  # in a row
    ill: bool = False  # its own check failed: only a check that passes makes it well
    seen_at: int | None = None  # when a worker of it was there
    served: bool = False  # whether a worker ever was; a shell that takes its work does not show itself
    checked_at: int | None = None


def failed(health: Health, why: str, now: int, threshold: int = THRESHOLD, *, ill: bool = False) -> Health:
    """After one more failure; `ill` says that it was the agent's own check."""
    failures = health.failures + 1
    state: State = "unavailable" if failures >= threshold else "suspect"
    since = health.since if state == health.state else now
    return replace(health, state=state, reason=why, since=since, failures=failures, ill=ill or health.ill)


def unanswered(health: Health, why: str, now: int) -> Health:
    """After an offer that nobody took: the first one is a failure, further ones are the same silence."""
    return health if health.failures else failed(health, why, now)


def passed(health: Health, now: int) -> Health:
    """After a check that passed."""
    if health.state == "available":
        return health
    return replace(health, state="available", reason="", since=now, failures=0, ill=False)


def acknowledged(health: Health, now: int) -> Health:
    """Somebody took its work: whatever was silent is not any more."""
    return health if health.ill else passed(health, now)


def seen(health: Health, now: int) -> Health:
    """A worker of it is there."""
    return replace(acknowledged(health, now), seen_at=now, served=True)


def checked(health: Health, now: int, every: int) -> Health:
    """A check begins, where the last one, by whichever process, is long enough ago."""
    last = health.checked_at
    # A clock that was set back must not stop the checks.
    return health if last is not None and 0 <= now - last < every else replace(health, checked_at=now)


def silent(health: Health, now: int, patience: int) -> bool:
    """Whether its workers have not been seen for so long."""
    return health.served and health.seen_at is not None and now - health.seen_at >= patience


def said(health: Health) -> str:
    """Why it gets no new work; empty where it does."""
    return "" if health.state == "available" else f"{health.state}: {health.reason}"


def available(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """Reject work for an agent that is suspect or unavailable."""
    if not facts.away or handoff.to_agent == HUMAN:
        return ALLOW
    state, _, why = facts.away.partition(": ")
    hit = f"{handoff.to_agent} is {state} and gets no new work ({why})"
    reason = f"available: {hit}; choose another agent, or wait for its return"
    return Verdict("reject", reason, "Refused", "available", "an agent that is well")
