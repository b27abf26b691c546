"""What the guards are told: read inside the transaction that acts on their verdict."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from baton.errors import NotFound
from baton.guards.base import Breaker, Facts
from baton.protocol.codec import to_microseconds
from baton.stores.connection import statements
from baton.stores.rows import Stand, read_agents, read_limits, read_profile, read_spec, stands
from baton.stores.sqlite_reads import Reads

if TYPE_CHECKING:
    from baton.protocol.handoff import Handoff
    from baton.protocol.limits import Limits

SQL = statements("sqlite.sql")
KEPT_SPECS = 1024


class Gathers(Reads):
    """Reads handoffs, workflows, agents and breakers for a decision."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self._specs: OrderedDict[str, Handoff] = OrderedDict()

    def _keep_spec(self, spec: Handoff) -> None:
        self._specs[spec.id] = spec
        if len(self._specs) > KEPT_SPECS:
            self._specs.popitem(last=False)

    def _stand(self, handoff_id: str) -> Stand:
        row = self._db.row(SQL["stand"], (handoff_id,))
        if row is None:
            raise NotFound(f"handoff {handoff_id}: not in this store; `baton handoff list` shows what is")
        spec = self._specs.get(handoff_id)
        if spec is None:
            spec = read_spec(self._db.row(SQL["spec"], (handoff_id,))[0])
            self._keep_spec(spec)
        audit_head, tokens_reserved, cost_reserved, tokens_spent, cost_spent, lease_until, breakers = row[9:]
        return Stand(
            stands(spec, row[:9]),
            audit_head,
            tokens_reserved,
            cost_reserved,
            tokens_spent,
            cost_spent,
            lease_until,
            bool(breakers),
        )

    def _facts(self, handoff: Handoff, now: int, fingerprint: bytes = b"") -> tuple[Facts, Limits]:
        """Facts and limits; with a fingerprint, also what the chain already did."""
        flow = self._db.row(SQL["workflow_facts"], (handoff.workflow_id,))
        if flow is None:
            raise NotFound(f"workflow {handoff.workflow_id}: not in this store; start it with run() or hand_off()")
        limits, handoffs, agents, tokens_spent, tokens_reserved, cost_spent, cost_reserved, started = flow
        target, available, sender, load, breakers = self._db.row(
            SQL["agent_facts"], (handoff.to_agent, handoff.from_agent)
        )
        repeats, visits = self._repeats(handoff, fingerprint) if fingerprint and handoff.parent_id else (0, 0)
        facts = Facts(
            now,
            started,
            handoffs,
            read_agents(agents),
            tokens_spent,
            tokens_reserved,
            cost_spent,
            cost_reserved,
            repeats,
            visits,
            read_profile(sender),
            read_profile(target),
            available != 0,
            load,
            self._breakers_of(handoff) if breakers else (),
        )
        return facts, read_limits(limits)

    def _repeats(self, handoff: Handoff, fingerprint: bytes) -> tuple[int, int]:
        """How often this chain passed the same work along this edge, and to this receiver."""
        key = (handoff.workflow_id, fingerprint, handoff.to_agent)
        if self._db.execute(SQL["seen_before"], key).fetchone() is None:
            return 0, 0
        chain = (handoff.parent_id, handoff.to_agent, handoff.from_agent, fingerprint)
        repeats, visits = self._db.row(SQL["chain_repeats"], chain)
        return repeats, visits

    def _breakers_of(self, handoff: Handoff) -> tuple[Breaker, ...]:
        route = f"route:{handoff.from_agent}->{handoff.to_agent}"
        found = self._db.execute(SQL["breakers_of"], (f"agent:{handoff.to_agent}", route))
        return tuple(Breaker(*row) for row in found)


def first_due(handoff: Handoff, wait: float | None, now: int) -> int | None:
    """When to look at a new handoff again: after so many seconds, at its deadline, or never."""
    ends = [] if wait is None else [now + int(wait * 1e6)]
    if handoff.deadline is not None:
        ends.append(to_microseconds(handoff.deadline))
    return min(ends, default=None)


def timeout_at(handoff: Handoff, facts: Facts) -> int | None:
    """When the time of a claim that is made now is over."""
    ends = []
    if handoff.return_protocol.timeout is not None:
        ends.append(facts.now + int(handoff.return_protocol.timeout * 1e6))
    if facts.target is not None and facts.target.max_execution_time is not None:
        ends.append(facts.now + int(facts.target.max_execution_time * 1e6))
    if handoff.deadline is not None:
        ends.append(to_microseconds(handoff.deadline))
    return min(ends, default=None)
