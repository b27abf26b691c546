"""Handoffs in the memory of one process: the same steps as in a file, and nothing is kept."""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from baton.errors import NotFound
from baton.guards.base import Facts
from baton.guards.breaker import subjects
from baton.guards.health import said
from baton.lifecycle import State
from baton.protocol.handoff import rank
from baton.stores.memory_prune import MemoryPruning
from baton.stores.rows import Row, replace
from baton.stores.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from baton.guards.base import Breaker
    from baton.protocol.handoff import Handoff
    from baton.protocol.limits import Limits
    from baton.protocol.locks import Lock
    from baton.protocol.results import Return
    from baton.stores.base import Offer, Workflow
    from baton.stores.change import Change, Made, Sums

SLACK = 64  # how many outdated entries a heap may hold beside as many as it has current ones


class MemoryStore(MemoryPruning, Steps):
    """Dictionaries with the indexes that the steps need; a step is planned before anything is written."""

    def __init__(self) -> None:
        super().__init__()
        self._queues: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)  # rank, arrival, id
        self._timers: list[tuple[int, int, str]] = []
        self._timed = 0
        self._locks: dict[int, Lock] = {}
        self._lock_seq = 0

    def transaction(self) -> AbstractContextManager[Any]:
        """One step at a time."""
        return self._lock

    # --- what a plan reads -------------------------------------------------------------------------

    def row(self, handoff_id: str) -> Row:
        """One handoff, with all that changes of it."""
        row = self._rows.get(handoff_id)
        if row is None:
            raise NotFound(f"handoff {handoff_id}: not in this store; `baton handoff list` shows what is")
        told, parts = bool(self._open_alerts.get(handoff_id)), handoff_id in self._parts
        return replace(row, told=told, parts=parts) if told or parts else row

    def existing(self, offer: Offer) -> Handoff | None:
        """The handoff that the same offer made before."""
        handoff = offer.handoff
        if handoff.part and handoff.parent_id:
            return self.get(self._named.get((handoff.parent_id, handoff.part), ""))
        if offer.workflow is not None:
            flow = self._flows.get(offer.workflow.id)
            return self.get(flow.root_id) if flow else None
        return self.get(handoff.id)

    def facts(
        self, handoff: Handoff, now: int, fingerprint: bytes = b"", begun: Workflow | None = None
    ) -> tuple[Facts, Limits]:
        """Facts and limits; with a fingerprint, also what the chain already did."""
        flow = begun or self._flows.get(handoff.workflow_id)
        if flow is None:
            raise NotFound(f"workflow {handoff.workflow_id}: not in this store; start it with run() or hand_off()")
        sender, target = self._agents.get(handoff.from_agent), self._agents.get(handoff.to_agent)
        repeats, visits = self._repeats(handoff, fingerprint) if fingerprint and handoff.parent_id else (0, 0)
        facts = Facts(
            now,
            flow.created_at,
            flow.handoffs,
            flow.agents,
            flow.tokens_spent,
            flow.tokens_reserved,
            flow.cost_spent,
            flow.cost_reserved,
            repeats,
            visits,
            sender.profile if sender else None,
            target.profile if target else None,
            said(target.health) if target else "",
            len(self._held.get(handoff.to_agent, ())),
            self.breakers_of(handoff),
            begun is not None,
        )
        return facts, flow.limits

    def _repeats(self, handoff: Handoff, fingerprint: bytes) -> tuple[int, int]:
        """How often this chain passed the same work along this edge, and to this receiver."""
        repeats = visits = 0
        if (handoff.workflow_id, fingerprint, handoff.to_agent) not in self._chains:
            return repeats, visits
        row = self._rows.get(handoff.parent_id)
        while row is not None:
            one = row.handoff
            if one.to_agent == handoff.to_agent and self._prints[one.id] == fingerprint:
                visits += 1
                repeats += one.from_agent == handoff.from_agent
            row = self._rows.get(one.parent_id)
        return repeats, visits

    def breakers_of(self, handoff: Handoff) -> tuple[Breaker, ...]:
        """The breakers of its receiver and its route."""
        if not self._breakers:
            return ()
        wanted = subjects(handoff)
        return tuple(one for one in self.breakers() if one.subject in wanted)

    def parts(self, handoff_id: str) -> list[str]:
        """What it delegated and nobody has answered yet: of each line, the handoff on which it stands."""
        heads = [self._rows[part].handoff for part in self._parts.get(handoff_id, ())]
        return [part for head in heads if not head.answer_id for part in self._line_open(head)]

    def _line_open(self, head: Handoff) -> list[str]:
        line = (self._rows[one].handoff for one in self._within[head.workflow_id]) if head.ended else (head,)
        return [one.id for one in line if one.line_id == head.id and not one.ended]

    def group_answers(self, parent_id: str, group_id: str) -> list[tuple[str, Return | None]]:
        """Everybody of a group, in the order in which they were asked, and what they answered."""
        heads = [self._rows[part].handoff for part in self._parts.get(parent_id, ())]
        return [
            (head.id, self.returned(head.id) if head.answer_id else None)
            for head in heads
            if head.broadcast_group_id == group_id
        ]

    def offered(self, agents: Sequence[str]) -> list[str]:
        """The next handoff of each agent, by priority and then in the order of their arrival."""
        heads = []
        for agent in agents:
            queue = self._queues.get(agent)
            while queue:
                row = self._rows.get(queue[0][2])
                waiting = row.handoff if row else None
                if waiting and waiting.state is State.OFFERED and waiting.to_agent == agent:
                    heads.append(queue[0])
                    break
                heappop(queue)
        return [handoff_id for _, _, handoff_id in sorted(heads)]

    # --- what a plan writes ------------------------------------------------------------------------

    def write(self, change: Change) -> None:
        """Write what a plan holds; nothing in here can fail."""
        for blob in change.blobs:
            self._blobs[blob.digest] = blob.data
        if change.workflow is not None:
            self._flows[change.workflow.id] = change.workflow
        for row in change.moved:
            self._put(row)
        for made in change.made:
            self._insert(made)
        if change.sums is not None:
            self._add_up(change.sums)
        for line_id, handoff_id in change.answered:
            self._answer(line_id, handoff_id)
        for record in change.audit:
            self._written += 1
            self._trail[self._written] = record
            self._of.setdefault(record.handoff_id, []).append(self._written)
        self._put_breakers(change.breakers)
        if change.freed and self._locks:
            self._locks = {seq: one for seq, one in self._locks.items() if one.owner not in change.freed}
        self._put_alerts(change)
        self._version += 1

    def _put_breakers(self, breakers: Sequence[Breaker]) -> None:
        for one in breakers:
            self._breakers.pop((one.subject, one.failure), None)
            if one.failures:
                self._breakers[one.subject, one.failure] = one

    def _put_alerts(self, change: Change) -> None:
        for subject, by in change.settled:
            for alert_id in tuple(self._open_alerts[subject]):
                self.resolve_alert(alert_id, by)
        for subject, text in change.alerts:
            self.raise_alert(subject, text)

    def _answer(self, line_id: str, handoff_id: str) -> None:
        head = self._rows[line_id]
        if not head.handoff.answer_id:
            self._rows[line_id] = replace(head, handoff=replace(head.handoff, answer_id=handoff_id))

    def _insert(self, made: Made) -> None:
        handoff = made.row.handoff
        self._arrived += 1
        self._arrival[handoff.id] = self._arrived
        self._prints[handoff.id] = made.fingerprint
        self._chains.add((handoff.workflow_id, made.fingerprint, handoff.to_agent))
        self._within.setdefault(handoff.workflow_id, []).append(handoff.id)
        if handoff.part and handoff.parent_id:
            self._named[handoff.parent_id, handoff.part] = handoff.id
            self._parts[handoff.parent_id].append(handoff.id)
        self._put(made.row)

    def _put(self, row: Row) -> None:
        handoff = row.handoff
        before = self._rows.get(handoff.id)
        self._rows[handoff.id] = row
        if before is not None and before.handoff.state is State.CLAIMED:
            self._held[before.handoff.to_agent].discard(handoff.id)
        if handoff.state is State.CLAIMED:
            self._held[handoff.to_agent].add(handoff.id)
        elif handoff.state is State.OFFERED:
            heappush(self._queues[handoff.to_agent], (rank(handoff.priority), self._arrival[handoff.id], handoff.id))
        self._time(before, row)

    def _time(self, before: Row | None, row: Row) -> None:
        """Note when to look at it again; what was noted before is passed over when its turn comes."""
        if before is not None and before.due_at is not None:
            self._timed -= 1
        if row.due_at is None:
            return
        self._timed += 1
        if len(self._timers) > 2 * self._timed + SLACK:
            self._timers = [entry for entry in self._timers if self._current(entry)]
            heapify(self._timers)
        heappush(self._timers, (row.due_at, self._arrival[row.handoff.id], row.handoff.id))

    def _current(self, entry: tuple[int, int, str]) -> bool:
        row = self._rows.get(entry[2])
        return row is not None and row.due_at == entry[0]

    def _add_up(self, sums: Sums) -> None:
        flow = self._flows[sums.workflow_id]
        self._flows[flow.id] = replace(
            flow,
            handoffs=flow.handoffs + sums.handoffs,
            agents=flow.agents if sums.agents is None else sums.agents,
            tokens_reserved=flow.tokens_reserved + sums.tokens_reserved,
            cost_reserved=flow.cost_reserved + sums.cost_reserved,
            tokens_spent=flow.tokens_spent + sums.tokens_spent,
            cost_spent=flow.cost_spent + sums.cost_spent,
        )

    def locks(self) -> list[Lock]:
        """Every lock, and every place in a queue, in the order in which they were asked for."""
        return list(self._locks.values())

    def put_locks(self, drop: Iterable[int], put: Iterable[Lock]) -> None:
        """Remove some locks, and add others at the end of the queue."""
        for seq in drop:
            del self._locks[seq]
        for one in put:
            self._lock_seq += 1
            self._locks[self._lock_seq] = replace(one, seq=self._lock_seq)
        self._version += 1

    # --- time --------------------------------------------------------------------------------------

    def renew(self, handoff_id: str, epoch: int, lease: int) -> bool:
        """Prolong a claim; False where it is no longer the current one."""
        with self._lock:
            row = self._rows.get(handoff_id)
            if row is None or row.handoff.state is not State.CLAIMED or row.handoff.epoch != epoch:
                return False
            until = self.now() + lease
            due = until if row.timeout_at is None else min(until, row.timeout_at)
            self._put(self._due(replace(row, lease_until=until), due))
            return True

    def postpone(self, handoff: Handoff, due_at: int | None) -> bool:
        """Look at a handoff later, unless it moved meanwhile."""
        with self._lock:
            row = self._rows.get(handoff.id)
            if row is None or (row.handoff.state, row.handoff.epoch) != (handoff.state, handoff.epoch):
                return False
            self._put(self._due(row, due_at))
            return True

    def due(self, limit: int = 100) -> list[Handoff]:
        """Handoffs whose time has come, the longest overdue first."""
        now = self.now()
        found: dict[str, tuple[int, int, str]] = {}
        with self._lock:
            while self._timers and self._timers[0][0] <= now and len(found) < limit:
                entry = heappop(self._timers)
                if self._current(entry):
                    found[entry[2]] = entry
            for entry in found.values():
                heappush(self._timers, entry)
            return [self._rows[handoff_id].handoff for handoff_id in found]

    def next_due(self) -> int | None:
        """When something becomes due next."""
        with self._lock:
            while self._timers and not self._current(self._timers[0]):
                heappop(self._timers)
            return self._timers[0][0] if self._timers else None
