"""The embedded store: SQLite, every step one transaction with its audit record."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from baton.errors import NotFound
from baton.guards.base import Breaker, Facts
from baton.lifecycle import ENDED
from baton.protocol.codec import canonical_record
from baton.protocol.handoff import rank
from baton.protocol.locks import Lock
from baton.stores.connection import statements
from baton.stores.rows import Row, legible, read_agents, read_limits, read_profile, read_return, stands
from baton.stores.sqlite_prune import Pruning
from baton.stores.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from baton.protocol.handoff import Handoff
    from baton.protocol.limits import Limits
    from baton.protocol.results import Return
    from baton.stores.base import Offer, Workflow
    from baton.stores.change import Change, Made
    from baton.stores.connection import Database

SQL = statements("sqlite.sql")
KEPT_SPECS = 1024
_AUDIT = [SQL["insert_audit"] + ", (?, ?, ?, ?, ?, ?, ?)" * more for more in range(4)]


class SqliteStore(Pruning, Steps):
    """Handoffs in one SQLite file."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self._specs: OrderedDict[str, Handoff] = OrderedDict()

    def transaction(self) -> Database:
        """The file's one writer."""
        return self._db

    # --- what a plan reads -------------------------------------------------------------------------

    def row(self, handoff_id: str) -> Row:
        """One handoff, with all that changes of it."""
        row = self._db.row(SQL["stand"], (handoff_id,))
        if row is None:
            raise NotFound(f"handoff {handoff_id}: not in this store; `baton handoff list` shows what is")
        spec = self._specs.get(handoff_id)
        if spec is None:
            spec = legible(self._db.row(SQL["spec"], (handoff_id,))[0], handoff_id)
            self._keep_spec(spec)
        return Row(stands(spec, row[:9]), row[9], row[5], *row[10:])

    def _keep_spec(self, handoff: Handoff) -> None:
        """What never changes of a handoff is read once."""
        self._specs[handoff.id] = handoff
        if len(self._specs) > KEPT_SPECS:
            self._specs.popitem(last=False)

    def existing(self, offer: Offer) -> Handoff | None:
        """The handoff that the same offer made before."""
        handoff = offer.handoff
        if handoff.part and handoff.parent_id:
            row = self._db.row(SQL["by_part"], (handoff.parent_id, handoff.part))
        elif offer.workflow is not None:
            row = self._db.row(SQL["root_of"], (offer.workflow.id,))
        else:
            row = self._db.row(SQL["by_id"], (handoff.id,))
        return self.get(row[0]) if row else None

    def facts(
        self, handoff: Handoff, now: int, fingerprint: bytes = b"", begun: Workflow | None = None
    ) -> tuple[Facts, Limits]:
        """Facts and limits; with a fingerprint, also what the chain already did."""
        if begun is None:
            flow = self._db.row(SQL["workflow_facts"], (handoff.workflow_id,))
            if flow is None:
                raise NotFound(f"workflow {handoff.workflow_id}: not in this store; start it with run() or hand_off()")
            known, parties, started, handoffs, tokens, held_tokens, cost, held_cost = flow
            known, parties = read_limits(known), read_agents(parties)
        else:
            known, parties, started = begun.limits, begun.agents, begun.created_at
            handoffs = tokens = held_tokens = cost = held_cost = 0
        target, away, sender, load, breakers = self._db.row(SQL["agent_facts"], (handoff.to_agent, handoff.from_agent))
        repeats, visits = self._repeats(handoff, fingerprint) if fingerprint and handoff.parent_id else (0, 0)
        facts = Facts(
            now,
            started,
            handoffs,
            parties,
            tokens,
            held_tokens,
            cost,
            held_cost,
            repeats,
            visits,
            read_profile(sender),
            read_profile(target),
            away or "",
            load,
            self.breakers_of(handoff) if breakers else (),
            begun is not None,
        )
        return facts, known

    def _repeats(self, handoff: Handoff, fingerprint: bytes) -> tuple[int, int]:
        """How often this chain passed the same work along this edge, and to this receiver."""
        if self._db.row(SQL["seen_before"], (handoff.workflow_id, fingerprint, handoff.to_agent)) is None:
            return 0, 0
        chain = (handoff.parent_id, handoff.to_agent, handoff.from_agent, fingerprint)
        repeats, visits = self._db.row(SQL["chain_repeats"], chain)
        return repeats, visits

    def breakers_of(self, handoff: Handoff) -> tuple[Breaker, ...]:
        """The breakers of its receiver and its route."""
        route = f"route:{handoff.from_agent}->{handoff.to_agent}"
        found = self._db.rows(SQL["breakers_of"], (f"agent:{handoff.to_agent}", route))
        return tuple(Breaker(*row) for row in found)

    def parts(self, handoff_id: str) -> list[str]:
        """What it delegated and nobody has answered yet: of each line, the handoff on which it stands."""
        found = []
        for head, workflow_id, state in self._db.rows(SQL["parts"], (handoff_id,)):
            moved_on = self._db.rows(SQL["line_open"], (workflow_id, head)) if state in ENDED else [(head,)]
            found += [part for (part,) in moved_on]
        return found

    def group_answers(self, parent_id: str, group_id: str) -> list[tuple[str, Return | None]]:
        """Everybody of a group, in the order in which they were asked, and what they answered."""
        found = self._db.rows(SQL["group_answers"], (parent_id, group_id))
        return [(head, None if data is None else read_return(data)) for head, data in found]

    def offered(self, agents: Sequence[str]) -> list[str]:
        """The next handoff of each agent, by priority and then in the order of their arrival."""
        heads = [row for agent in agents for row in self._db.rows(SQL["next_offered"], (agent,))]
        return [handoff_id for _, _, handoff_id in sorted(heads)]

    # --- what a plan writes ------------------------------------------------------------------------

    def write(self, change: Change) -> None:
        """Write what a plan holds."""
        execute = self._db.execute
        for blob in change.blobs:
            execute(SQL["insert_blob"], (bytes.fromhex(blob.digest), blob.data))
        if (flow := change.workflow) is not None:
            limits, parties = canonical_record(flow.limits), canonical_record(flow.agents).decode()
            row = (flow.id, flow.root_id, flow.conversation_id, limits, parties, flow.created_at)
            execute(SQL["insert_workflow"], row)
        for one in change.moved:
            self._put(one)
        for made in change.made:
            self._insert(made)
        if (sums := change.sums) is not None:
            agents = None if sums.agents is None else canonical_record(sums.agents).decode()
            reserved, spent = (sums.tokens_reserved, sums.cost_reserved), (sums.tokens_spent, sums.cost_spent)
            execute(SQL["add_up"], (sums.handoffs, agents, *reserved, *spent, sums.workflow_id))
        for line_id, handoff_id in change.answered:
            execute(SQL["answer_line"], (handoff_id, line_id))
        for first in range(0, len(change.audit), 4):
            rows = change.audit[first : first + 4]
            execute(_AUDIT[len(rows) - 1], [value for row in rows for value in astuple(row)])
        self._put_breakers(change.breakers)
        for owner in change.freed:
            execute(SQL["free_locks"], (owner,))
        self._put_alerts(change)

    def _put_alerts(self, change: Change) -> None:
        for subject, by in change.settled:
            self._db.execute(SQL["settle_alerts"], (self.now(), by, subject))
        for subject, text in change.alerts:
            self._put_alert(subject, text, self.now())

    def _put(self, row: Row) -> None:
        handoff = row.handoff
        self._db.execute(
            SQL["put_row"],
            (
                handoff.state, handoff.to_agent, handoff.attempt, handoff.epoch, handoff.reroutes,
                handoff.holder or None, row.due_at, row.lease_until, row.timeout_at, row.reminded,
                row.tokens_reserved, row.cost_reserved, row.tokens_spent, row.cost_spent, row.tokens_before,
                row.cost_before, handoff.answer_id or None, handoff.approved_by or None, row.head, row.result,
                handoff.id,
            ),
        )  # fmt: skip

    def _insert(self, made: Made) -> None:
        row, handoff = made.row, made.row.handoff
        self._keep_spec(handoff)
        self._db.execute(
            SQL["insert_handoff"],
            (
                handoff.id, handoff.workflow_id, handoff.parent_id or None, handoff.part or None,
                handoff.broadcast_group_id or None, handoff.line_id,
                handoff.from_agent, handoff.to_agent, handoff.state, rank(handoff.priority), made.fingerprint,
                row.due_at, row.head, made.created_at, made.spec, row.result, handoff.answer_id or None,
                handoff.attempt, handoff.epoch, handoff.holder or None, row.lease_until, row.timeout_at,
                row.tokens_reserved, row.cost_reserved,
            ),
        )  # fmt: skip

    def _put_breakers(self, breakers: Iterable[Breaker]) -> None:
        for one in breakers:
            if one.failures:
                bindings = (one.subject, one.failure, one.failures, one.opens, one.opened_at, one.probing)
                self._db.execute(SQL["put_breaker"], bindings)
            else:
                self._db.execute(SQL["drop_breaker"], (one.subject, one.failure))

    def locks(self) -> list[Lock]:
        """Every lock, and every place in a queue, in the order in which they were asked for."""
        return [
            Lock(
                seq=seq, path=path, owner=owner, shared=bool(shared), granted=bool(granted), file=file, since=since,
                until=until,
            )
            for seq, path, owner, shared, granted, file, since, until in self._db.rows(SQL["locks"])
        ]  # fmt: skip

    def put_locks(self, drop: Iterable[int], put: Iterable[Lock]) -> None:
        """Remove some locks, and add others at the end of the queue."""
        for seq in drop:
            self._db.execute(SQL["drop_lock"], (seq,))
        for one in put:
            bindings = (one.path, one.owner, one.shared, one.granted, one.file, one.since, one.until)
            self._db.execute(SQL["put_lock"], bindings)

    def renew(self, handoff_id: str, epoch: int, lease: int) -> bool:
        """Prolong a claim; False where it is no longer the current one."""
        with self._db:
            self._db.execute(SQL["renew"], (self.now() + lease, handoff_id, epoch))
            return self._db.connection.changes() == 1

    def postpone(self, handoff: Handoff, due_at: int | None) -> bool:
        """Look at a handoff later, unless it moved meanwhile."""
        with self._db:
            self._db.execute(SQL["postpone"], (due_at, handoff.id, handoff.state.value, handoff.epoch))
            return self._db.connection.changes() == 1
