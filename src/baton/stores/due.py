"""When a handoff has to be looked at again. Times in microseconds."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from baton.lifecycle import State
from baton.protocol.codec import to_microseconds, to_time
from baton.protocol.handoff import HUMAN

if TYPE_CHECKING:
    from datetime import datetime

    from baton.guards.base import Facts, Verdict
    from baton.protocol.handoff import Handoff

_UNHELD = frozenset((State.OFFERED, State.WAITING, State.DEFERRED, State.REJECTED))


def moment(at: int | None) -> datetime | None:
    """The same as a datetime."""
    return None if at is None else to_time(at)


def first_due(handoff: Handoff, wait: float | None, now: int) -> int | None:
    """When to look at a new handoff again: after so many seconds, when its time is over, or never.

    The time of an answer runs for agents: a person, also one who approves, has until the deadline.
    """
    ends = [] if wait is None else [now + int(wait * 1e6)]
    if handoff.return_protocol.timeout is not None and handoff.state is State.OFFERED and handoff.to_agent != HUMAN:
        ends.append(now + ceil(handoff.return_protocol.timeout * 1e6))
    if handoff.deadline is not None:
        ends.append(to_microseconds(handoff.deadline))
    return min(ends, default=None)


def by_deadline(handoff: Handoff, state: State, at: int | None) -> int | None:
    """When to look again at what nobody works on, in the state it comes to: never after its deadline."""
    if handoff.deadline is None or state not in _UNHELD:
        return at
    last = to_microseconds(handoff.deadline)
    return last if at is None else min(at, last)


def timeout_at(handoff: Handoff, facts: Facts, verdict: Verdict) -> int | None:
    """When the time of a claim that is made now is over."""
    ends = []
    if handoff.return_protocol.timeout is not None:
        ends.append(facts.now + int(handoff.return_protocol.timeout * 1e6))
    if facts.target is not None and facts.target.max_execution_time is not None:
        ends.append(facts.now + int(facts.target.max_execution_time * 1e6))
    if verdict.seconds is not None:
        ends.append(facts.now + int(verdict.seconds * 1e6))
    if handoff.deadline is not None:
        ends.append(to_microseconds(handoff.deadline))
    return min(ends, default=None)
