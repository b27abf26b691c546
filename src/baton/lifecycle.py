"""States and events of a handoff: one table, and everything that follows from it.

A handoff begins when it is *offered*. It may first have to wait for a person (*waiting*). An agent
*claims* it, which gives it one owner, one more attempt and one more epoch, works, and ends it:
*completed*, *failed*, *cancelled*, or *refused* before any work was done.

Between the two ends, work can go back: an owner that dies is *reclaimed*, one that stops cleanly
*releases*, one that needs time *defers*. A receiver that says no leaves it *rejected* until the
supervisor reroutes it. Where no rule knows how to go on, it is *parked* with an alert, and only a person
moves it. An owner that waits for others keeps its claim.

Two rules hold over the whole table:

1. Every (state, event) pair is decided: it either names the next state or is illegal.
2. An end is an end: no event leaves *completed*, *failed*, *cancelled* or *refused*. A return that comes
   later is written down as `late` and changes nothing.

The documentation's diagram, the CHECK constraint of the SQL stores, the names in the audit trail and the
exhaustive tests are derived from `TABLE`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, get_args


class State(StrEnum):
    """Where a handoff stands."""

    OFFERED = "offered"
    WAITING = "waiting"
    DEFERRED = "deferred"
    CLAIMED = "claimed"
    REJECTED = "rejected"
    PARKED = "parked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class Event(StrEnum):
    """What can happen to a handoff."""

    ASK = "ask"
    APPROVE = "approve"
    DENY = "deny"
    ACCEPT = "accept"
    REJECT = "reject"
    DEFER = "defer"
    WAKE = "wake"
    MISS = "miss"
    REROUTE = "reroute"
    REMIND = "remind"
    RELEASE = "release"
    RECLAIM = "reclaim"
    RETRY = "retry"
    ESCALATE = "escalate"
    PARK = "park"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


_S, _E = State, Event

TABLE: dict[State, dict[Event, State]] = {
    _S.OFFERED: {
        _E.ASK: _S.WAITING,
        _E.ACCEPT: _S.CLAIMED,
        _E.REJECT: _S.REJECTED,
        _E.DEFER: _S.DEFERRED,
        _E.MISS: _S.REJECTED,
        _E.PARK: _S.PARKED,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELLED,
    },
    _S.WAITING: {
        _E.APPROVE: _S.OFFERED,
        _E.DENY: _S.REFUSED,
        _E.CANCEL: _S.CANCELLED,
    },
    _S.DEFERRED: {
        _E.WAKE: _S.OFFERED,
        _E.PARK: _S.PARKED,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELLED,
    },
    _S.CLAIMED: {
        _E.REJECT: _S.REJECTED,
        _E.DEFER: _S.DEFERRED,
        _E.REMIND: _S.CLAIMED,
        _E.RELEASE: _S.OFFERED,
        _E.RECLAIM: _S.OFFERED,
        _E.RETRY: _S.DEFERRED,
        _E.ESCALATE: _S.OFFERED,
        _E.PARK: _S.PARKED,
        _E.COMPLETE: _S.COMPLETED,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELLED,
    },
    _S.REJECTED: {
        _E.REROUTE: _S.OFFERED,
        _E.ESCALATE: _S.OFFERED,
        _E.PARK: _S.PARKED,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELLED,
    },
    _S.PARKED: {
        _E.REROUTE: _S.OFFERED,
        _E.ESCALATE: _S.OFFERED,
        _E.COMPLETE: _S.COMPLETED,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELLED,
    },
    _S.COMPLETED: {},
    _S.FAILED: {},
    _S.CANCELLED: {},
    _S.REFUSED: {},
}

# The ten steps of a handoff, in the order of the protocol. The map of `flow`, the architecture page and every trace
# use these names.
StepName = Literal[
    "trigger", "prepare", "validate", "initiate", "acknowledge", "accept", "execute", "return", "complete", "release",
]  # fmt: skip
STEPS: tuple[StepName, ...] = get_args(StepName)

ENDED = frozenset(state for state, row in TABLE.items() if not row)
OPEN = frozenset(TABLE) - ENDED

# What the audit trail calls each event. S1's seven names first; `deny` is S1's `rejected` said by a person.
AUDIT_NAME: dict[Event, str] = {
    _E.ACCEPT: "accepted",
    _E.REJECT: "rejected",
    _E.COMPLETE: "completed",
    _E.FAIL: "failed",
    _E.ESCALATE: "escalated",
    _E.ASK: "approval_requested",
    _E.APPROVE: "approved",
    _E.DENY: "denied",
    _E.DEFER: "deferred",
    _E.WAKE: "resumed",
    _E.MISS: "unavailable",
    _E.REROUTE: "rerouted",
    _E.REMIND: "reminded",
    _E.RELEASE: "released",
    _E.RECLAIM: "reclaimed",
    _E.RETRY: "retried",
    _E.PARK: "parked",
    _E.CANCEL: "cancelled",
}


def after(state: State, event: Event) -> State | None:
    """The state that follows, or None where the event is illegal."""
    return TABLE[state].get(event)


def legal(state: State) -> tuple[Event, ...]:
    """The events that may happen in a state."""
    return tuple(TABLE[state])
