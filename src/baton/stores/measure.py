"""Reads what `protocol.stats` needs from a store: sums by one query, times from the audit records of the window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from baton.guards.base import Breaker
from baton.guards.breaker import cool_down, state
from baton.protocol.codec import to_microseconds, to_time
from baton.protocol.handoff import HUMAN
from baton.protocol.limits import MILLION
from baton.protocol.stats import Flow, Resting, Seen, Stats, read_seen, summed

if TYPE_CHECKING:
    from baton.stores.base import Store, Workflow

BATCH = 10_000
MOST = 1_000_000  # workflows


def measure(store: Store, since: int = 0, workflows: int = 10) -> Stats:
    """The numbers of all handoffs that were offered since then (microseconds), with the newest workflows by name."""
    flows = (_flow(one) for one in store.workflows(limit=MOST) if one.created_at >= since)
    known = {HUMAN, *(row.profile.agent_id for row in store.agents())}
    found = summed(_records(store, since), store.usage(since), flows, known)
    now = store.now()
    return msgspec.structs.replace(
        found,
        since=to_time(since) if since else None,
        workflows=found.workflows[:workflows],
        breakers=tuple(resting(one, now) for one in store.breakers()),
    )


def resting(one: Breaker, now: int) -> Resting:
    """A breaker, and what it means now."""
    again = to_time(one.opened_at + cool_down(one)) if one.opened_at is not None else None
    return Resting(one.subject, state(one, now), one.failure, one.failures, one.opens, again, one.probing)


def _flow(one: Workflow) -> Flow:
    return Flow(one.id, 0, one.tokens_spent, one.cost_spent / MILLION, one.agents)


def _records(store: Store, since: int) -> Iterator[Seen]:
    after = _before(store, since) if since else 0
    while entries := store.audit(limit=BATCH, after=after):
        after = entries[-1].seq
        yield from (read_seen(entry.record) for entry in entries)


def _before(store: Store, since: int) -> int:
    """The place of the last record that is older: found by halving, as the records stand in the order of time."""

    def reached(place: int) -> bool:
        entries = store.audit(limit=1, after=place)
        return not entries or to_microseconds(read_seen(entries[0].record).timestamp) >= since

    if reached(0):
        return 0
    least, most = 0, 1
    while not reached(most):
        least, most = most, most * 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if reached(middle) else (middle, most)
    return most
