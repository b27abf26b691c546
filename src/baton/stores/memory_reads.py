"""What can be asked of a store in memory, and the records that stand beside the handoffs."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from baton import clock
from baton.errors import Conflict, NotFound
from baton.guards.health import Health, seen
from baton.protocol.codec import to_microseconds, to_time
from baton.protocol.secrets import redact
from baton.stores.base import AgentRow, Alert, Entry, Kind, Segment, Setting, Workflow
from baton.stores.base import Row as AuditRow
from baton.stores.rows import AUDITED, FOUND, Row, read_profile, read_return, registered, replace, wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from baton.guards.base import Breaker
    from baton.protocol.handoff import Handoff
    from baton.protocol.profile import Profile
    from baton.protocol.results import Return
    from baton.stores.change import Audited

_SETTINGS: dict[Setting, Any] = {
    "journal_mode": "none", "synchronous": 0, "user_version": 0, "page_count": 0, "page_size": 0,
}  # fmt: skip


class MemoryReads:
    """Queries, agents, breakers, segments and alerts."""

    url = ":memory:"
    on_disk = False

    def __init__(self) -> None:
        self.id = clock.new_id()
        self._lock = threading.RLock()
        self._version = 0
        self._rows: dict[str, Row] = {}  # in the order of their arrival
        self._arrival: dict[str, int] = {}
        self._within: dict[str, list[str]] = {}  # the handoffs of each workflow
        self._held: defaultdict[str, set[str]] = defaultdict(set)  # what each agent works on
        self._flows: dict[str, Workflow] = {}
        self._blobs: dict[str, bytes] = {}
        self._agents: dict[str, AgentRow] = {}
        self._breakers: dict[tuple[str, str], Breaker] = {}
        self._alerts: dict[str, Alert] = {}
        self._open_alerts: defaultdict[str, set[str]] = defaultdict(set)  # by what they are about
        self._trail: dict[int, Audited] = {}  # by place, from 1 on
        self._written = 0  # the last place
        self._of: dict[str, list[int]] = {}  # the places in the trail of each handoff's records
        self._sealed: dict[int, int] = {}  # their places, by public number
        self._numbers: dict[int, int] = {}
        self._segments: dict[int, Segment] = {}

    def now(self) -> int:
        """The store's time."""
        return clock.now()

    def batch(self, operations: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run several mutators; each yields its result or its own error."""
        results: list[Any] = []
        with self._lock:
            for operation in operations:
                try:
                    results.append(operation())
                except Exception as error:  # noqa: BLE001 - handed to whoever wanted the operation
                    results.append(error)
        return results

    def close(self) -> None:
        """Nothing is open."""

    def version(self) -> int:
        """A number that changes with what is written."""
        return self._version

    # --- handoffs and workflows --------------------------------------------------------------------

    def get(self, handoff_id: str) -> Handoff | None:
        """One handoff as it stands."""
        row = self._rows.get(handoff_id)
        return row.handoff if row else None

    def find(self, *, limit: int = 1000, newest: bool = False, **where: Any) -> list[Handoff]:
        """Handoffs by workflow, parent, line, sender, receiver, state, holder or conversation, in order."""
        keys = wanted(where, FOUND)
        flows = keys.pop("workflow_id", None)
        if (talks := keys.pop("conversation_id", None)) is not None:
            said = {flow.id for flow in list(self._flows.values()) if flow.conversation_id in talks}
            flows = said if flows is None else flows & said
        found: list[Handoff] = []
        for handoff_id in self._ordered(flows, newest=newest):
            handoff = self._rows[handoff_id].handoff
            if all(getattr(handoff, name) in values for name, values in keys.items()):
                found.append(handoff)
                if len(found) >= limit:
                    break
        return found

    def _ordered(self, flows: set[str] | None, *, newest: bool) -> Iterable[str]:
        with self._lock:
            if flows is None:
                ids = list(self._rows)
            elif len(flows) == 1:
                ids = list(self._within.get(next(iter(flows)), ()))
            else:
                among = [one for flow in flows for one in self._within.get(flow, ())]
                ids = sorted(among, key=self._arrival.__getitem__)
        return reversed(ids) if newest else ids

    def starting(self, prefix: str, of: Kind = "handoff", limit: int = 10) -> list[str]:
        """Ids that begin with these characters."""
        with self._lock:
            ids: Iterable[str] = {
                "handoff": self._rows.keys(),
                "workflow": self._flows.keys(),
                "conversation": {flow.conversation_id for flow in self._flows.values()},
                "alert": self._alerts.keys(),
            }[of]
            return sorted(one for one in ids if one.startswith(prefix))[:limit]

    def usage(self, since: int = 0) -> list[tuple[str, str, str, int, int, int]]:
        """Handoffs, tokens and money (in millionths) by sender, receiver and state, of what was offered since then."""
        count: Counter[tuple[str, str, str]] = Counter()
        tokens, cost = count.copy(), count.copy()
        for row in list(self._rows.values()):
            if to_microseconds(row.handoff.timestamp) < since:
                continue
            key = (row.handoff.from_agent, row.handoff.to_agent, row.handoff.state.value)
            count[key] += 1
            tokens[key] += row.tokens_spent
            cost[key] += row.cost_spent
        return [(*key, count[key], tokens[key], cost[key]) for key in sorted(count)]

    def setting(self, name: Setting) -> Any:
        """A setting of the database that a file would have."""
        return _SETTINGS[name]

    def returned(self, handoff_id: str) -> Return | None:
        """What the line that begins with this handoff gave back, if it ended."""
        row = self._rows.get(handoff_id)
        if row is not None and row.handoff.answer_id:
            row = self._rows.get(row.handoff.answer_id)
        return read_return(row.result) if row is not None and row.result else None

    def workflow(self, workflow_id: str) -> Workflow | None:
        """A workflow's limits and what it used so far."""
        return self._flows.get(workflow_id)

    def workflows(self, *, conversation_id: str = "", limit: int = 100) -> list[Workflow]:
        """The newest workflows, of one conversation or of all."""
        flows = [one for one in list(self._flows.values()) if conversation_id in {"", one.conversation_id}]
        return sorted(flows, key=lambda flow: flow.created_at, reverse=True)[:limit]

    def fetch(self, digest: str) -> bytes:
        """Content by its digest."""
        data = self._blobs.get(digest)
        if data is None:
            raise NotFound(f"content {digest}: not in this store; it belongs to another one")
        return data

    def timers(self, handoff_id: str) -> tuple[int | None, int | None, bool]:
        """Of a claim: until when the lease holds, when its time is over, and whether it was reminded."""
        row = self._rows.get(handoff_id)
        return (row.lease_until, row.timeout_at, row.reminded) if row else (None, None, False)

    def held(self) -> list[tuple[str, str]]:
        """Every claimed handoff and its holder."""
        with self._lock:
            ids = sorted((one for held in self._held.values() for one in held), key=self._arrival.__getitem__)
            return [(one, self._rows[one].handoff.holder) for one in ids]

    @staticmethod
    def _due(row: Row, due_at: int | None) -> Row:
        """The same, to be looked at later."""
        moment = None if due_at is None else to_time(due_at)
        return replace(row, due_at=due_at, handoff=replace(row.handoff, due_at=moment))

    # --- agents and breakers -----------------------------------------------------------------------

    def register(self, profile: Profile) -> None:
        """Put an agent into the registry, or replace its profile."""
        own = read_profile(registered(profile))
        if own is not None:
            before = self._agents.get(profile.agent_id)
            known = Health() if before is None else before.health
            kept = known if known.ill else Health(served=known.served)
            self._agents[profile.agent_id] = AgentRow(profile=own, health=replace(kept, seen_at=self.now()))

    def seen(self, agents: Sequence[str]) -> None:
        """Note that a worker for these agents is there."""
        for agent in agents:
            self.mark(agent, lambda health: seen(health, self.now()))

    def mark(self, agent: str, change: Callable[[Health], Health]) -> Health | None:
        """Change what is known of an agent's health; None where nothing changed."""
        with self._lock:
            row = self._agents.get(agent)
            if row is None or (health := change(row.health)) == row.health:
                return None
            health = replace(health, reason=redact(health.reason))
            self._agents[agent] = replace(row, health=health)
            return health

    def agent(self, name: str) -> AgentRow | None:
        """One agent of the registry."""
        row = self._agents.get(name)
        return None if row is None else replace(row, load=len(self._held.get(name, ())))

    def agents(self) -> list[AgentRow]:
        """The registry."""
        rows = sorted(self._agents.items())
        return [replace(row, load=len(self._held.get(name, ()))) for name, row in rows]

    def breakers(self) -> list[Breaker]:
        """Every breaker that counts a failure."""
        return [one for _, one in sorted(self._breakers.items())]

    def reset_breaker(self, subject: str) -> int:
        """Close a breaker by hand; how many failure classes it had."""
        with self._lock:
            gone = [key for key in self._breakers if key[0] == subject]
            for key in gone:
                del self._breakers[key]
            return len(gone)

    # --- audit -------------------------------------------------------------------------------------

    def _entries(self, places: Iterable[int]) -> list[Entry]:
        return [Entry(n, (one := self._trail[n]).handoff_id, one.record, one.digest.hex()) for n in places]

    def _raw(self, places: Iterable[int]) -> list[AuditRow]:
        return [(n, (one := self._trail[n]).handoff_id.encode(), one.record, one.digest) for n in places]

    def _pending(self, limit: int, after: int) -> list[int]:
        found = []
        for place in range(max(after, 0) + 1, self._written + 1):
            if place not in self._numbers and place in self._trail:
                found.append(place)
                if len(found) >= limit:
                    break
        return found

    def audit(self, *, limit: int = 10_000, after: int = 0, **where: Any) -> list[Entry]:
        """Audit records by handoff, task, sender or receiver, in the order in which they were written."""
        keys = wanted({name: value for name, value in where.items() if name in AUDITED}, AUDITED)
        if "handoff_id" in keys:
            places: Iterable[int] = sorted(place for one in keys["handoff_id"] for place in self._of.get(one, ()))
        else:
            places = range(max(after, 0) + 1, self._written + 1)
        found: list[int] = []
        for place in places:
            if len(found) >= limit:
                break
            one = self._trail.get(place)
            if one is not None and place > after and all(getattr(one, name) in values for name, values in keys.items()):
                found.append(place)
        return self._entries(found)

    def _places(self, first: int, last: int) -> list[int]:
        newest = self.last_segment()
        end = min(last, newest.last) if newest else 0
        return [self._sealed[n] for n in range(first, end + 1) if n in self._sealed]

    def unsealed(self, limit: int, after: int = 0) -> list[Entry]:
        """Audit rows that no segment holds yet."""
        return self._entries(self._pending(limit, after))

    def sealed(self, first: int, last: int) -> list[Entry]:
        """Audit rows by their public numbers."""
        return self._entries(self._places(first, last))

    def unsealed_rows(self, limit: int, after: int = 0) -> list[AuditRow]:
        """Audit rows that no segment holds yet, as `verify` reads them."""
        return self._raw(self._pending(limit, after))

    def sealed_rows(self, first: int, last: int) -> list[AuditRow]:
        """Audit rows by their public numbers, as `verify` reads them."""
        return self._raw(self._places(first, last))

    def audited(self) -> int:
        """How many audit rows there are."""
        return len(self._trail)

    def labelled(self, limit: int, after: int = 0) -> list[tuple[int, int, bytes, tuple[bytes, ...]]]:
        """Audit rows in order: their place, public number (0: none), record and what they are found by."""
        found: list[tuple[int, int, bytes, tuple[bytes, ...]]] = []
        for place in range(max(after, 0) + 1, self._written + 1):
            if (one := self._trail.get(place)) is not None and len(found) < limit:
                keys = (one.task_id.encode(), one.from_agent.encode(), one.to_agent.encode())
                found.append((place, self._numbers.get(place, 0), one.record, keys))
        return found

    def headless(self, handoffs: Sequence[str] | None = None) -> list[str]:
        """Handoffs, of these or of all, whose newest record is not there."""
        rows = [self._rows[one] for one in sorted(self._rows if handoffs is None else set(handoffs) & set(self._rows))]
        return [
            row.handoff.id
            for row in rows
            if all(self._trail[place].digest.hex() != row.head for place in self._of.get(row.handoff.id, ()))
        ]

    def last_segment(self) -> Segment | None:
        """The newest segment."""
        return self._segments[next(reversed(self._segments))] if self._segments else None

    def segments(self) -> list[Segment]:
        """All sealed segments, in order."""
        return list(self._segments.values())

    def add_segment(self, segment: Segment, seqs: Sequence[int]) -> None:
        """Seal rows in this order, unless another sealer was faster."""
        with self._lock:
            newest = self.last_segment()
            tail = (newest.n, newest.last, newest.root) if newest else (0, 0, "")
            if tail != (segment.n - 1, segment.first - 1, segment.previous):
                raise Conflict(f"segment {segment.n}: another process sealed these records first; read again")
            if again := [seq for seq in seqs if seq in self._numbers]:
                raise Conflict(f"audit row {again[0]} is sealed already; read again")
            for number, seq in enumerate(seqs, segment.first):
                self._numbers[seq] = number
                self._sealed[number] = seq
            self._segments[segment.n] = segment

    # --- alerts ------------------------------------------------------------------------------------

    def raise_alert(self, subject: str, text: str) -> str:
        """Tell people something; its id."""
        alert = Alert(id=clock.new_id(), subject=subject, text=text, raised_at=self.now())
        self._alerts[alert.id] = alert
        self._open_alerts[subject].add(alert.id)
        return alert.id

    def alerts(self, *, unresolved: bool = True) -> list[Alert]:
        """What people were told and, by default, have not answered yet."""
        found = [one for one in list(self._alerts.values()) if one.resolved_at is None or not unresolved]
        return sorted(found, key=lambda one: (one.raised_at, one.id))

    def resolve_alert(self, alert_id: str, by: str) -> bool:
        """Mark an alert as dealt with; False when there is no such open alert."""
        with self._lock:
            one = self._alerts.get(alert_id)
            if one is None or one.resolved_at is not None:
                return False
            self._alerts[alert_id] = replace(one, resolved_at=self.now(), resolved_by=by)
            self._open_alerts[one.subject].discard(alert_id)
            return True
