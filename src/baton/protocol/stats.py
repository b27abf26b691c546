"""How the work goes, in numbers: one pure function from what a store keeps to one record.

Seconds; money in whole units. A handoff belongs to the numbers of a time when it was offered in that time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from baton.lifecycle import ENDED, State
from baton.protocol.audit import INITIATED
from baton.protocol.limits import MILLION

ACCEPTED = "accepted"
_FINAL = frozenset(ENDED)

Usage = tuple[str, str, str, int, int, int]  # sender, receiver, state, handoffs, tokens, money in millionths


class Spread(msgspec.Struct, frozen=True):
    """How a number of values are spread; None where there is none."""

    count: int = 0
    average: float | None = None
    p50: float | None = None
    p99: float | None = None


class Work(msgspec.Struct, frozen=True):
    """What an agent did, or what went along a route."""

    name: str
    handoffs: int
    completed: int
    failed: int
    success: float | None  # of those that were completed or failed
    tokens: int
    cost: float
    working: Spread = Spread()  # from the last claim to the end; of agents


class Handoffs(msgspec.Struct, frozen=True):
    """How many there are, and where they stand."""

    total: int
    by_state: dict[str, int]


class Latency(msgspec.Struct, frozen=True):
    """From the offer to the first claim, from the last claim to the end, and in all."""

    to_accept: Spread
    working: Spread
    to_end: Spread


class Flow(msgspec.Struct, frozen=True):
    """One workflow; the request that began it is none of its handoffs."""

    name: str
    handoffs: int
    tokens: int
    cost: float
    agents: tuple[str, ...] = ()


class Resting(msgspec.Struct, frozen=True):
    """A breaker that counts failures, and what it means now."""

    subject: str
    state: str
    failure: str
    failures: int
    opens: int
    tries_again_at: datetime | None
    probing: str


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers."""

    since: datetime | None = None  # what was offered before that is not in them
    handoffs: Handoffs
    latency: Latency
    per_workflow: Spread  # how many handoffs
    agents: tuple[Work, ...]
    routes: tuple[Work, ...]
    workflows: tuple[Flow, ...] = ()  # the newest
    events: dict[str, int] = {}  # by the audit's names: accepted is every attempt, then retried, rerouted, escalated, …
    loops_caught: int = 0
    deadlocks: int = 0  # work that failed because waiting for a lock would never have ended
    breakers: tuple[Resting, ...] = ()


class SeenContext(msgspec.Struct, frozen=True):
    """Of an audit record's snapshot."""

    task_status: str = ""


class Seen(msgspec.Struct, frozen=True):
    """What is needed of an audit record."""

    handoff_id: str
    timestamp: datetime
    event_type: str
    to_agent: str
    workflow_id: str = ""
    reason: str = ""
    context_snapshot: SeenContext = SeenContext()
    detail: dict[str, Any] = {}


read_seen = msgspec.json.Decoder(Seen).decode


def summed(records: Iterable[Seen], usage: Sequence[Usage], flows: Iterable[Flow], known: Collection[str]) -> Stats:
    """The numbers. `flows` come without their count, newest first; `known` are the agents that there are.

    A handoff counts from its record `initiated` on; the records of others are left out.
    """
    times = _Times()
    for record in records:
        times.take(record)
    states: Counter[str] = Counter()
    for _, _, state, count, _, _ in usage:
        states[state] += count
    # An offer to a name that nobody registered was refused: it counts, but there is no such agent.
    real = [row for row in usage if row[1] in known or row[2] != State.REFUSED]
    names = {*known, *(row[1] for row in real)}
    flows = [
        msgspec.structs.replace(
            one, handoffs=times.made[one.name] - 1, agents=tuple(name for name in one.agents if name in names)
        )
        for one in flows
        if one.name in times.made
    ]
    working = {name: spread(values) for name, values in times.by_agent.items()}
    return Stats(
        handoffs=Handoffs(sum(states.values()), dict(states)),
        latency=Latency(spread(times.to_accept.values()), spread(times.working), spread(times.to_end)),
        per_workflow=spread(one.handoffs for one in flows),
        agents=_totals(((row[1], row) for row in real), working),
        routes=_totals(((f"{row[0]} → {row[1]}", row) for row in real), {}),
        workflows=tuple(flows),
        events=dict(sorted(times.events.items())),
        loops_caught=times.loops,
        deadlocks=times.deadlocks,
    )


class _Times:
    """What the records say, taken one after the other."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.to_accept: dict[str, float] = {}
        self.to_end: list[float] = []
        self.working: list[float] = []
        self.by_agent: defaultdict[str, list[float]] = defaultdict(list)
        self.loops = self.deadlocks = 0
        self._offered: dict[str, datetime] = {}
        self._claimed: dict[str, datetime] = {}

    def take(self, record: Seen) -> None:
        """One record."""
        handoff, now = record.handoff_id, record.timestamp
        if record.event_type == INITIATED:
            self._offered[handoff] = now
            self.made[record.workflow_id] += 1
            return
        offered = self._offered.get(handoff)
        if offered is None:
            return
        self.events[record.event_type] += 1
        if record.event_type == ACCEPTED:
            self._claimed[handoff] = now
            self.to_accept.setdefault(handoff, (now - offered).total_seconds())
        elif record.context_snapshot.task_status in _FINAL:
            self._end(record, offered)

    def _end(self, record: Seen, offered: datetime) -> None:
        del self._offered[record.handoff_id]  # what comes after an end is late, and moves nothing
        self.to_end.append((record.timestamp - offered).total_seconds())
        if (claimed := self._claimed.pop(record.handoff_id, None)) is not None:
            took = (record.timestamp - claimed).total_seconds()
            self.working.append(took)
            self.by_agent[record.to_agent].append(took)
        self.loops += record.detail.get("error") == "LoopDetected"
        self.deadlocks += record.reason.startswith("Deadlock:")


def spread(values: Iterable[float]) -> Spread:
    """Average and percentiles by nearest rank."""
    ordered = sorted(values)
    if not ordered:
        return Spread()
    p50, p99 = (ordered[-(-len(ordered) * share // 100) - 1] for share in (50, 99))
    return Spread(len(ordered), sum(ordered) / len(ordered), p50, p99)


def _totals(rows: Iterable[tuple[str, Usage]], working: dict[str, Spread]) -> tuple[Work, ...]:
    """Those with the most handoffs first."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, (_, _, state, count, tokens, cost) in rows:
        counts[name].update({"handoffs": count, "tokens": tokens, "cost": cost, state: count})
    found = []
    for name, one in counts.items():
        completed, failed = one[State.COMPLETED], one[State.FAILED]
        tried = completed + failed
        success = completed / tried if tried else None
        money = one["cost"] / MILLION
        found.append(
            Work(name, one["handoffs"], completed, failed, success, one["tokens"], money, working.get(name, Spread()))
        )
    return tuple(sorted(found, key=lambda one: (-one.handoffs, one.name)))
