"""What can be asked of a SQLite store, and the records that stand beside the handoffs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from baton import clock
from baton.errors import Conflict, NotFound
from baton.guards.base import Breaker
from baton.guards.health import Health, seen
from baton.protocol.results import Return
from baton.protocol.secrets import redact
from baton.stores.base import AgentRow, Alert, Entry, Kind, Row, Segment, Setting, Workflow
from baton.stores.connection import Database, Durability, statements
from baton.stores.rows import (
    AUDITED,
    FOUND,
    read_agents,
    read_handoff,
    read_limits,
    read_profile,
    read_return,
    registered,
    wanted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from baton.protocol.handoff import Handoff
    from baton.protocol.profile import Profile


SQL = statements("sqlite.sql")
_COLUMNS = "spec, state, attempt, epoch, reroutes, holder, due_at, answer_id, to_agent, approved_by, id"
# Whatever type somebody gave a value in the file, reading its bytes does not fail.
_ENTRY = "seq, CAST(handoff_id AS BLOB), CAST(record AS BLOB), CAST(digest AS BLOB)"
# For `verify`, a value of another type than the one that was written is empty and so a wrong one.
_ROW = """seq, iif(typeof(handoff_id) = 'text', CAST(handoff_id AS BLOB), x''),
    iif(typeof(record) = 'blob', record, x''), iif(typeof(digest) = 'blob', digest, x'')"""
_SEALED = "SELECT {} FROM sealed s JOIN audit ON seq = s.audit_seq WHERE s.n BETWEEN ? AND ? ORDER BY s.n"
_UNSEALED = """SELECT {} FROM audit WHERE seq > ?2
    AND NOT EXISTS (SELECT 1 FROM sealed WHERE audit_seq = seq) ORDER BY seq LIMIT ?1"""
_LABELLED = """SELECT seq, coalesce(n, 0), CAST(record AS BLOB),
    iif(typeof(task_id) = 'text', CAST(task_id AS BLOB), x'ff'),
    iif(typeof(from_agent) = 'text', CAST(from_agent AS BLOB), x'ff'),
    iif(typeof(to_agent) = 'text', CAST(to_agent AS BLOB), x'ff')
    FROM audit LEFT JOIN sealed ON audit_seq = seq WHERE seq > ? ORDER BY seq LIMIT ?"""
# One statement sees one state, so a step that is taken meanwhile is no finding.
_HEADLESS = """SELECT id FROM handoff h WHERE (?1 IS NULL OR id IN (SELECT value FROM json_each(?1)))
    AND NOT EXISTS (SELECT 1 FROM audit WHERE handoff_id = h.id AND hex(digest) = upper(h.audit_head)) ORDER BY id"""
_AGENTS = """SELECT a.profile, (SELECT count(*) FROM handoff WHERE to_agent = a.id AND state = 'claimed'), a.state,
    a.reason, a.since, a.failures, a.ill, a.seen_at, a.served, a.checked_at FROM agent a {}"""
_SEGMENTS = "SELECT n, first, last, root, previous, sealed_at FROM segment"


class Reads:
    """Queries, agents, breakers, segments and alerts."""

    def __init__(self, path: str, *, durability: Durability = "power", vfs: str | None = None) -> None:
        self.url = path
        self._db = Database(path, durability=durability, vfs=vfs)
        self.on_disk = self._db.on_disk

    @property
    def id(self) -> str:
        """The identity of this store, given when it was made."""
        return str(self._db.row("SELECT value FROM meta WHERE key = 'id'")[0])

    def now(self) -> int:
        """The store's time."""
        return self._db.now()

    def batch(self, operations: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run several mutators in one transaction; each yields its result or its own error."""
        return self._db.batch(operations)

    def close(self) -> None:
        """Close the store."""
        self._db.close()

    def version(self) -> int:
        """A number that changes when another process wrote."""
        return int(self._db.row("PRAGMA data_version")[0])

    def get(self, handoff_id: str) -> Handoff | None:
        """One handoff as it stands."""
        row = self._db.row(f"SELECT {_COLUMNS} FROM handoff WHERE id = ?", (handoff_id,))
        return read_handoff(row) if row else None

    def find(self, *, limit: int = 1000, newest: bool = False, **where: Any) -> list[Handoff]:
        """Handoffs by workflow, parent, line, sender, receiver, state, holder or conversation, in order."""
        clauses, bindings = _conditions(wanted(where, FOUND))
        order = "DESC" if newest else "ASC"
        query = f"SELECT {_COLUMNS} FROM handoff{_where(clauses)} ORDER BY seq {order} LIMIT ?"
        return [read_handoff(row) for row in self._db.rows(query, (*bindings, limit))]

    def starting(self, prefix: str, of: Kind = "handoff", limit: int = 10) -> list[str]:
        """Ids that begin with these characters."""
        table, column = ("workflow", "conversation_id") if of == "conversation" else (of, "id")
        query = f"SELECT DISTINCT {column} FROM {table} WHERE {column} >= ? AND {column} < ? ORDER BY 1 LIMIT ?"
        return [row[0] for row in self._db.rows(query, (prefix, f"{prefix}\U0010ffff", limit))]

    def usage(self, since: int = 0) -> list[tuple[str, str, str, int, int, int]]:
        """Handoffs, tokens and money (in millionths) by sender, receiver and state, of what was offered since then."""
        query = "SELECT from_agent, to_agent, state, count(*), sum(tokens_spent), sum(cost_spent) FROM handoff"
        return list(self._db.rows(f"{query} WHERE created_at >= ? GROUP BY 1, 2, 3 ORDER BY 1, 2, 3", (since,)))

    def setting(self, name: Setting) -> Any:
        """A setting of this connection."""
        return self._db.row(f"PRAGMA {name}")[0]

    def returned(self, handoff_id: str) -> Return | None:
        """What the line that begins with this handoff gave back, if it ended."""
        row = self._db.row(
            "SELECT e.result FROM handoff h JOIN handoff e ON e.id = coalesce(h.answer_id, h.id) WHERE h.id = ?",
            (handoff_id,),
        )
        return read_return(row[0]) if row and row[0] else None

    def workflow(self, workflow_id: str) -> Workflow | None:
        """A workflow's limits and what it used so far."""
        row = self._db.row(
            "SELECT id, root_id, conversation_id, limits, handoffs, agents, tokens_spent, tokens_reserved, "
            "cost_spent, cost_reserved, created_at FROM workflow WHERE id = ?",
            (workflow_id,),
        )
        return _workflow(row) if row else None

    def workflows(self, *, conversation_id: str = "", limit: int = 100) -> list[Workflow]:
        """The newest workflows, of one conversation or of all."""
        clauses, bindings = (["conversation_id = ?"], [conversation_id]) if conversation_id else ([], [])
        rows = self._db.rows(
            "SELECT id, root_id, conversation_id, limits, handoffs, agents, tokens_spent, tokens_reserved, "
            f"cost_spent, cost_reserved, created_at FROM workflow{_where(clauses)} ORDER BY created_at DESC LIMIT ?",
            (*bindings, limit),
        )
        return [_workflow(row) for row in rows]

    def fetch(self, digest: str) -> bytes:
        """Content by its digest."""
        row = self._db.row("SELECT data FROM blob WHERE digest = ?", (bytes.fromhex(digest),))
        if row is None:
            raise NotFound(f"content {digest}: not in this store; restore it from a backup")
        return bytes(row[0])

    def due(self, limit: int = 100) -> list[Handoff]:
        """Handoffs whose time has come, the longest overdue first."""
        ids = self._db.rows(SQL["due"], (self.now(), limit))
        return [handoff for (handoff_id,) in ids if (handoff := self.get(handoff_id)) is not None]

    def next_due(self) -> int | None:
        """When something becomes due next."""
        return self._db.row("SELECT min(due_at) FROM handoff WHERE due_at IS NOT NULL")[0]  # type: ignore[no-any-return]

    def timers(self, handoff_id: str) -> tuple[int | None, int | None, bool]:
        """Of a claim: until when the lease holds, when its time is over, and whether it was reminded."""
        row = self._db.row("SELECT lease_until, timeout_at, reminded FROM handoff WHERE id = ?", (handoff_id,))
        return (row[0], row[1], bool(row[2])) if row else (None, None, False)

    def held(self) -> list[tuple[str, str]]:
        """Every claimed handoff and its holder."""
        return [(row[0], row[1]) for row in self._db.rows(SQL["held"])]

    def register(self, profile: Profile) -> None:
        """Put an agent into the registry, or replace its profile."""
        with self._db:
            self._db.execute(SQL["put_agent"], (profile.agent_id, registered(profile), self.now()))

    def seen(self, agents: Sequence[str]) -> None:
        """Note that a worker for these agents is there."""
        with self._db:
            for agent in agents:
                self.mark(agent, lambda health: seen(health, self.now()))

    def mark(self, agent: str, change: Callable[[Health], Health]) -> Health | None:
        """Change what is known of an agent's health; None where nothing changed."""
        with self._db:
            row = self._db.row(SQL["health"], (agent,))
            if row is None or (health := change(before := _health(row))) == before:
                return None
            health = msgspec.structs.replace(health, reason=redact(health.reason))
            self._db.execute(SQL["put_health"], (*msgspec.structs.astuple(health), agent))
            return health

    def agent(self, name: str) -> AgentRow | None:
        """One agent of the registry."""
        return next(iter(self._agents(_AGENTS.format("WHERE a.id = ?"), (name,))), None)

    def agents(self) -> list[AgentRow]:
        """The registry."""
        return self._agents(_AGENTS.format("ORDER BY a.id"))

    def _agents(self, query: str, bindings: tuple[str, ...] = ()) -> list[AgentRow]:
        return [
            AgentRow(profile=profile, health=_health(health), load=load)
            for data, load, *health in self._db.rows(query, bindings)
            if (profile := read_profile(data)) is not None
        ]

    def breakers(self) -> list[Breaker]:
        """Every breaker that counts a failure."""
        query = "SELECT subject, failure, failures, opens, opened_at, probing FROM breaker ORDER BY subject, failure"
        return [Breaker(*row) for row in self._db.rows(query)]

    def reset_breaker(self, subject: str) -> int:
        """Close a breaker by hand; how many failure classes it had."""
        with self._db:
            self._db.execute("DELETE FROM breaker WHERE subject = ?", (subject,))
            return self._db.connection.changes()

    def audit(self, *, limit: int = 10_000, after: int = 0, **where: Any) -> list[Entry]:
        """Audit records by handoff, task, sender or receiver, in the order in which they were written."""
        keys = wanted({name: value for name, value in where.items() if name in AUDITED}, AUDITED)
        clauses, bindings = _conditions(keys)
        if clauses and "handoff_id" not in keys:
            opening = " AND ".join(["opens", *clauses])
            clauses.append(f"handoff_id IN (SELECT handoff_id FROM audit WHERE {opening})")
            bindings *= 2
        if after:
            clauses.append("seq > ?")
            bindings.append(after)
        query = f"SELECT {_ENTRY} FROM audit{_where(clauses)} ORDER BY seq LIMIT ?"
        return [_entry(row) for row in self._db.rows(query, (*bindings, limit))]

    def unsealed(self, limit: int, after: int = 0) -> list[Entry]:
        """Audit rows that no segment holds yet."""
        return [_entry(row) for row in self._db.rows(_UNSEALED.format(_ENTRY), (limit, after))]

    def sealed(self, first: int, last: int) -> list[Entry]:
        """Audit rows by their public numbers."""
        return [_entry(row) for row in self._db.rows(_SEALED.format(_ENTRY), (first, last))]

    def unsealed_rows(self, limit: int, after: int = 0) -> list[Row]:
        """Audit rows that no segment holds yet, as `verify` reads them."""
        return self._db.rows(_UNSEALED.format(_ROW), (limit, after))

    def sealed_rows(self, first: int, last: int) -> list[Row]:
        """Audit rows by their public numbers, as `verify` reads them."""
        return self._db.rows(_SEALED.format(_ROW), (first, last))

    def audited(self) -> int:
        """How many audit rows there are."""
        return int(self._db.row("SELECT count(*) FROM audit")[0])

    def labelled(self, limit: int, after: int = 0) -> list[tuple[int, int, bytes, tuple[bytes, ...]]]:
        """Audit rows in order: their place, public number (0: none), record and what they are found by."""
        rows = self._db.rows(_LABELLED, (after, limit))
        return [(seq, n, record, tuple(keys)) for seq, n, record, *keys in rows]

    def headless(self, handoffs: Sequence[str] | None = None) -> list[str]:
        """Handoffs, of these or of all, whose newest record is not there."""
        chosen = None if handoffs is None else msgspec.json.encode(handoffs).decode()
        return [handoff_id for (handoff_id,) in self._db.rows(_HEADLESS, (chosen,))]

    def last_segment(self) -> Segment | None:
        """The newest segment."""
        row = self._db.row(f"{_SEGMENTS} ORDER BY n DESC LIMIT 1")
        return _segment(row) if row else None

    def segments(self) -> list[Segment]:
        """All sealed segments, in order."""
        return [_segment(row) for row in self._db.rows(f"{_SEGMENTS} ORDER BY n")]

    def run(self, n: int, to: int) -> list[Segment]:
        """The segments of a run, in order."""
        return [_segment(row) for row in self._db.rows(f"{_SEGMENTS} WHERE n BETWEEN ? AND ? ORDER BY n", (n, to))]

    def add_segment(self, segment: Segment, seqs: Sequence[int]) -> None:
        """Seal rows in this order, unless another sealer was faster."""
        with self._db:
            (last,) = self._db.row("SELECT coalesce(max(n), 0) FROM sealed")
            tail = self._db.execute("SELECT n, root FROM segment ORDER BY n DESC LIMIT 1").fetchone() or (
                0,
                "",
            )
            if last + 1 != segment.first or tail != (segment.n - 1, segment.previous):
                raise Conflict(f"segment {segment.n}: another process sealed these records first; read again")
            for number, seq in enumerate(seqs, segment.first):
                if self._db.execute("SELECT 1 FROM sealed WHERE audit_seq = ?", (seq,)).fetchone():
                    raise Conflict(f"audit row {seq} is sealed already; read again")
                self._db.execute("INSERT INTO sealed (n, audit_seq) VALUES (?, ?)", (number, seq))
            self._db.execute(
                "INSERT INTO segment (n, first, last, root, previous, sealed_at) VALUES (?, ?, ?, ?, ?, ?)",
                (segment.n, segment.first, segment.last, segment.root, segment.previous, segment.sealed_at),
            )

    def raise_alert(self, subject: str, text: str) -> str:
        """Tell people something; its id."""
        with self._db:
            return self._put_alert(subject, text, self.now())

    def _put_alert(self, subject: str, text: str, now: int) -> str:
        alert_id = clock.new_id()
        self._db.execute(SQL["put_alert"], (alert_id, subject, text, now))
        return alert_id

    def alerts(self, *, unresolved: bool = True) -> list[Alert]:
        """What people were told and, by default, have not answered yet."""
        clauses = ["resolved_at IS NULL"] if unresolved else []
        query = f"SELECT id, subject, text, raised_at, resolved_at, resolved_by FROM alert{_where(clauses)}"
        return [
            Alert(id=r[0], subject=r[1], text=r[2], raised_at=r[3], resolved_at=r[4], resolved_by=r[5])
            for r in self._db.rows(f"{query} ORDER BY raised_at, id")
        ]

    def resolve_alert(self, alert_id: str, by: str) -> bool:
        """Mark an alert as dealt with; False when there is no such open alert."""
        with self._db:
            query = "UPDATE alert SET resolved_at = ?, resolved_by = ? WHERE id = ? AND resolved_at IS NULL"
            self._db.execute(query, (self.now(), by, alert_id))
            return self._db.connection.changes() == 1


def _health(row: Sequence[Any]) -> Health:
    state, reason, since, failures, ill, seen_at, served, checked_at = row
    return Health(state, reason, since, failures, bool(ill), seen_at, bool(served), checked_at)


def _entry(row: Any) -> Entry:
    return Entry(row[0], row[1].decode(errors="replace"), row[2], row[3].hex())


def _segment(row: Any) -> Segment:
    return Segment(n=row[0], first=row[1], last=row[2], root=row[3], previous=row[4], sealed_at=row[5])


def _workflow(row: Any) -> Workflow:
    return Workflow(
        id=row[0],
        root_id=row[1],
        conversation_id=row[2],
        limits=read_limits(row[3]),
        handoffs=row[4],
        agents=read_agents(row[5]),
        tokens_spent=row[6],
        tokens_reserved=row[7],
        cost_spent=row[8],
        cost_reserved=row[9],
        created_at=row[10],
    )


def _conditions(keys: dict[str, set[str]]) -> tuple[list[str], list[Any]]:
    clauses: list[str] = []
    bindings: list[Any] = []
    for name, values in keys.items():
        clause = f"{name} IN ({', '.join('?' * len(values))})"
        if name == "conversation_id":
            clause = f"workflow_id IN (SELECT id FROM workflow WHERE {clause})"
        clauses.append(clause)
        bindings += sorted(values)
    return clauses, bindings


def _where(clauses: list[str]) -> str:
    return f" WHERE {' AND '.join(clauses)}" if clauses else ""
