"""The embedded store: SQLite, every step one transaction with its audit record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from baton.errors import Fenced, IllegalTransition, NotFound
from baton.guards import breaker
from baton.guards.base import ALLOW, Breaker, Facts, Verdict
from baton.lifecycle import AUDIT_NAME, ENDED, Event, State, after, legal
from baton.protocol.audit import FENCED, INITIATED, LATE
from baton.protocol.codec import canonical_record, digest, to_microseconds, to_time
from baton.protocol.context import Blob
from baton.protocol.handoff import HUMAN, Handoff, rank
from baton.protocol.limits import Limits, micro
from baton.protocol.results import failed
from baton.stores.base import Claim, Grant, Moved, Offer, Step
from baton.stores.connection import statements
from baton.stores.rows import Note, read_handoff, read_limits, record, replace, workflow_facts, write_spec
from baton.stores.sqlite_reads import Reads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from baton.stores.base import Decide

SQL = statements("sqlite.sql")
_AFTER_OFFER = {"allow": State.OFFERED, "ask": State.WAITING, "refuse": State.REFUSED}
_SAID = {State.WAITING: "approval_requested", State.REFUSED: "rejected", State.REJECTED: "rejected"}


class SqliteStore(Reads):
    """Handoffs in one SQLite file, or in memory."""

    def offer(self, offer: Offer, decide: Decide) -> tuple[Handoff, Verdict]:
        """Make a handoff: facts, verdict, state and `initiated` in one transaction."""
        with self._db:
            if (existing := self._existing(offer)) is not None:
                return existing, ALLOW
            if offer.workflow is not None:
                flow, agents = offer.workflow, canonical_record([offer.handoff.to_agent]).decode()
                limits = canonical_record(flow.limits)
                row = (flow.id, flow.root_id, flow.conversation_id, limits, agents, self.now())
                self._db.execute(SQL["insert_workflow"], row)
            facts, limits_now = self._offer_facts(offer)
            verdict = decide(offer.handoff, facts, limits_now)
            return self._make(offer, facts, limits_now, verdict), verdict

    def _make(self, offer: Offer, facts: Facts, limits: Limits, verdict: Verdict) -> Handoff:
        execute, handoff, now = self._db.execute, offer.handoff, facts.now
        state = _AFTER_OFFER.get(verdict.kind, State.REJECTED)
        due = self._first_due(state, handoff, limits, now)
        warnings = (*handoff.warnings, *verdict.warnings)
        handoff = replace(handoff, state=state, timestamp=to_time(now), warnings=warnings)
        self._put_blobs(offer.blobs)
        records = [(INITIATED, Note(reason=handoff.reason, by=handoff.from_agent))]
        if state is not State.OFFERED:
            detail = {"limit": verdict.limit, "allowed": verdict.allowed, "error": verdict.error}
            records.append((_SAID[state], Note(reason=verdict.reason, detail=detail)))
        head = self._put_audit(handoff, now, records, "")
        answer = failed(f"{verdict.error}: {verdict.reason}", retryable=False) if state is State.REFUSED else None
        answer_id = handoff.id if answer and handoff.line_id == handoff.id else ""
        execute(
            SQL["insert_handoff"],
            (
                handoff.id, handoff.workflow_id, handoff.parent_id or None, handoff.key or None, handoff.line_id,
                handoff.from_agent, handoff.to_agent, state.value, rank(handoff.priority),
                bytes.fromhex(offer.fingerprint), due, head,
                now, write_spec(handoff), canonical_record(answer) if answer else None,
                answer_id or None,
            ),
        )  # fmt: skip
        if offer.workflow is None and state is not State.REFUSED:
            seen = facts.agents
            if handoff.to_agent not in seen:
                seen = (*seen, handoff.to_agent)
            execute(SQL["count_handoff"], (canonical_record(seen).decode(), handoff.workflow_id))
        if state is State.OFFERED and handoff.to_agent == HUMAN:
            self._put_alert(handoff.id, f"{handoff.from_agent} asks: {handoff.task:.200}", now)
        return replace(handoff, due_at=None if due is None else to_time(due), answer_id=answer_id)

    def _existing(self, offer: Offer) -> Handoff | None:
        handoff = offer.handoff
        row = None
        if handoff.key and handoff.parent_id:
            row = self._db.execute(
                "SELECT id FROM handoff WHERE parent_id = ? AND key = ?", (handoff.parent_id, handoff.key)
            ).fetchone()
        elif offer.workflow is not None:
            row = self._db.execute("SELECT root_id FROM workflow WHERE id = ?", (offer.workflow.id,)).fetchone()
        else:
            row = self._db.execute("SELECT id FROM handoff WHERE id = ?", (handoff.id,)).fetchone()
        return self.get(row[0]) if row else None

    def _offer_facts(self, offer: Offer) -> tuple[Facts, Limits]:
        handoff, fingerprint = offer.handoff, bytes.fromhex(offer.fingerprint)
        bindings = (handoff.workflow_id, handoff.to_agent, handoff.from_agent, fingerprint)
        row = self._db.execute(SQL["offer_facts"], bindings).fetchone()
        if row is None:
            raise NotFound(f"workflow {handoff.workflow_id}: not in this store; start it with run() or hand_off()")
        loops = (0, 0)
        if row[11] and handoff.parent_id:
            chain = (handoff.parent_id, handoff.to_agent, handoff.from_agent, fingerprint)
            loops = self._db.execute(SQL["chain_repeats"], chain).fetchone()
        breakers = self._breakers_of(handoff) if row[12] else ()
        return workflow_facts(self.now(), row[1:11], loops=loops, breakers=breakers), read_limits(row[0])

    def _breakers_of(self, handoff: Handoff) -> tuple[Breaker, ...]:
        route = f"route:{handoff.from_agent}->{handoff.to_agent}"
        found = self._db.execute(SQL["breakers_of"], (f"agent:{handoff.to_agent}", route))
        return tuple(Breaker(*row) for row in found)

    @staticmethod
    def _first_due(state: State, handoff: Handoff, limits: Limits, now: int) -> int | None:
        wait: float | None = None
        if state is State.OFFERED:
            wait = None if handoff.to_agent == HUMAN else limits.ack_seconds
        elif state is State.WAITING:
            wait = limits.approval_seconds
        elif state is State.REJECTED:
            return now
        if handoff.deadline is not None and state is not State.REFUSED:
            last = to_microseconds(handoff.deadline)
            return last if wait is None else min(last, now + int(wait * 1e6))
        return None if wait is None else now + int(wait * 1e6)

    def claim(self, claim: Claim, decide: Decide) -> Grant:
        """Give one offered handoff to one holder, or say why not."""
        with self._db:
            handoff_id = claim.id or self._next(claim.agents)
            if not handoff_id:
                return Grant()
            row = self._db.execute(SQL["claim_facts"], (handoff_id,)).fetchone()
            if row is None:
                raise NotFound(f"handoff {handoff_id}: not in this store; `baton handoff list` shows what is")
            handoff = read_handoff(row)
            if handoff.state is not State.OFFERED:
                return Grant(handoff=handoff)
            return self._claim(claim, handoff, row, decide)

    def _next(self, agents: Iterable[str]) -> str:
        best: tuple[int, int, str] | None = None
        for agent in agents:
            for handoff_id, priority, seq in self._db.execute(SQL["next_offered"], (agent,)):
                if best is None or (priority, seq) < best[:2]:
                    best = (priority, seq, handoff_id)
        return best[2] if best else ""

    def _claim(self, claim: Claim, handoff: Handoff, row: Any, decide: Decide) -> Grant:
        now, limits = self.now(), read_limits(row[11])
        breakers = self._breakers_of(handoff) if row[23] else ()
        facts = workflow_facts(now, row[12:22], load=row[22], breakers=breakers)
        verdict = decide(handoff, facts, limits)
        if verdict.kind != "allow":
            return Grant(handoff=handoff, verdict=verdict)
        lease_until = now + claim.lease
        timeout_at = self._timeout_at(handoff, facts, now)
        due = lease_until if timeout_at is None else min(lease_until, timeout_at)
        taken = replace(
            handoff,
            state=State.CLAIMED,
            attempt=handoff.attempt + 1,
            epoch=handoff.epoch + 1,
            holder=claim.holder,
            due_at=to_time(due),
        )
        detail = {"warnings": list(verdict.warnings)} if verdict.warnings else {}
        head = self._put_audit(taken, now, [("accepted", Note(by=claim.holder, detail=detail))], row[9])
        reserve = (verdict.reserve_tokens, verdict.reserve_cost)
        self._db.execute(
            SQL["set_claimed"],
            (claim.holder, lease_until, timeout_at, due, *reserve, head, handoff.id, handoff.epoch),
        )
        if any(reserve):
            self._db.execute(SQL["reserve"], (*reserve, handoff.workflow_id))
        if verdict.probe:
            self._put_breakers(replace(one, probing=handoff.id) for one in breakers if one.opened_at)
        return Grant(handoff=taken, verdict=verdict, won=True)

    @staticmethod
    def _timeout_at(handoff: Handoff, facts: Facts, now: int) -> int | None:
        ends = []
        if handoff.return_protocol.timeout is not None:
            ends.append(now + int(handoff.return_protocol.timeout * 1e6))
        if facts.target is not None and facts.target.max_execution_time is not None:
            ends.append(now + int(facts.target.max_execution_time * 1e6))
        if handoff.deadline is not None:
            ends.append(to_microseconds(handoff.deadline))
        return min(ends, default=None)

    def renew(self, handoff_id: str, epoch: int, lease: int) -> bool:
        """Prolong a claim; False where it is no longer the current one."""
        with self._db:
            self._db.execute(SQL["renew"], (self.now() + lease, handoff_id, epoch))
            return self._db.connection.changes() == 1

    def advance(self, step: Step, decide: Decide | None = None) -> Moved:
        """Apply one event; a claim that is no longer current is refused and written down."""
        with self._db:
            row = self._db.execute(SQL["step_facts"], (step.id,)).fetchone()
            if row is None:
                raise NotFound(f"handoff {step.id}: not in this store; `baton handoff list` shows what is")
            handoff, now = read_handoff(row), self.now()
            state = None if step.event is Event.ACCEPT else after(handoff.state, step.event)  # only claim() accepts
            if step.epoch is not None and handoff.epoch == step.epoch and self._repeated(handoff, step):
                return Moved(handoff, self.get(step.then.handoff.id) if step.then else None)
            if step.epoch is not None and (handoff.epoch != step.epoch or handoff.state is not State.CLAIMED):
                self._write_late(handoff, step, row[9], now)
            elif state is None or (step.expect is not None and handoff.state is not step.expect):
                allowed = ", ".join(legal(handoff.state)) or "nothing, it has ended"
                raise IllegalTransition(f"handoff {step.id} is {handoff.state}: {step.event} is not possible; {allowed}")
            else:
                return self._apply(step, handoff, state, row, decide)
        raise Fenced(
            f"handoff {step.id}: claim {step.epoch} of {handoff.to_agent} is no longer current "
            f"({handoff.state}, claim {handoff.epoch}); what it did was stored as late and not applied"
        )

    def _repeated(self, handoff: Handoff, step: Step) -> bool:
        """Whether the same claim already did this: the answer to a commit whose acknowledgement was lost."""
        if handoff.state not in ENDED or handoff.state is not after(State.CLAIMED, step.event):
            return False
        stored = self._db.row("SELECT result FROM handoff WHERE id = ?", (handoff.id,))[0]
        # A person or the supervisor may have ended it in another way meanwhile.
        return bool(stored == (canonical_record(step.result) if step.result else None))

    def _write_late(self, handoff: Handoff, step: Step, previous: str, now: int) -> None:
        detail: dict[str, Any] = {"event": step.event.value, "epoch": step.epoch}
        if step.result is not None:
            data = canonical_record(step.result)
            blob = Blob(digest(data), data)
            self._put_blobs([blob])
            detail["result"] = blob.digest
        name = LATE if step.result is not None else FENCED
        note = Note(reason=step.reason, by=step.by, detail=detail, result=step.result)
        head = self._put_audit(handoff, now, [(name, note)], previous)
        self._db.execute("UPDATE handoff SET audit_head = ? WHERE id = ?", (head, handoff.id))

    def _apply(self, step: Step, handoff: Handoff, state: State, row: Any, decide: Decide | None) -> Moved:
        now, event = self.now(), step.event
        verdict, judged = ALLOW, None
        if step.then is not None and decide is not None:
            judged = self._offer_facts(step.then)
            verdict = decide(step.then.handoff, *judged)
            if verdict.kind == "refuse":
                refused = self._existing(step.then) or self._make(step.then, *judged, verdict)
                return Moved(handoff, refused, verdict)
        attempt, holder = handoff.attempt, handoff.holder if state is State.CLAIMED else ""
        due_at = now if step.due_at is None and state is State.REJECTED else step.due_at
        if event is Event.REMIND:
            due_at = min((at for at in (row[16], due_at) if at is not None), default=None)
        if step.uncount and attempt:
            attempt -= 1
        moved = replace(
            handoff,
            state=state,
            to_agent=step.to_agent or handoff.to_agent,
            attempt=attempt,
            reroutes=handoff.reroutes + (event is Event.REROUTE),
            holder=holder,
            due_at=None if due_at is None else to_time(due_at),
        )
        ends_line = state in ENDED and step.then is None
        if ends_line and moved.line_id == moved.id:
            moved = replace(moved, answer_id=moved.id)
        records: list[tuple[str, Note | Step]] = [(step.cause, Note(reason=step.reason))] if step.cause else []
        records.append((AUDIT_NAME[event], step))
        self._put_blobs(step.blobs)
        head = self._put_audit(moved, now, records, row[9])
        tokens, cost = self._settle(step, moved, row)
        remind = event is Event.REMIND
        self._db.execute(
            SQL["set_state"],
            (
                state.value, moved.to_agent, attempt, moved.reroutes, holder or None, due_at,
                row[16] if remind else None, step.due_at if remind else None, remind, tokens, cost,
                moved.answer_id or None, head, canonical_record(step.result) if step.result else None, moved.id,
            ),
        )  # fmt: skip
        self._settle_breakers(handoff, step, bool(row[18]), now)
        if state is State.PARKED:
            self._put_alert(moved.id, step.reason or "parked", now)
        if ends_line:
            self._end_line(moved)
        following = self._make(step.then, *judged, verdict) if step.then is not None and judged else None
        return Moved(moved, following, verdict)

    def _settle_breakers(self, handoff: Handoff, step: Step, kept: bool, now: int) -> None:  # noqa: FBT001
        outcome = breaker.failure(step.event, step.result, step.cause)
        if kept or outcome:
            said = outcome or ("success" if step.event is Event.COMPLETE else "")
            self._put_breakers(breaker.settled(handoff, self._breakers_of(handoff), said, now))

    def _settle(self, step: Step, handoff: Handoff, row: Any) -> tuple[int, int]:
        """Give back what was reserved and count what was used beyond what was counted on the way."""
        if step.event is Event.REMIND:
            return 0, 0
        held, result = (row[11], row[12]), step.result
        tokens = max(0, result.audit.tokens_consumed - row[13]) if result else 0
        cost = max(0, (micro(result.audit.cost) or 0) - row[14]) if result else 0
        if any(held) or tokens or cost:
            self._db.execute(SQL["settle"], (*held, tokens, cost, handoff.workflow_id))
        return tokens, cost

    def _end_line(self, handoff: Handoff) -> None:
        """Answer the one who waits for this line of handoffs."""
        if handoff.line_id != handoff.id:
            self._db.execute(SQL["answer_line"], (handoff.id, handoff.line_id))
        if handoff.line_id == handoff.root_id:
            return
        if parent := self._db.execute(SQL["waiting_parent"], (handoff.line_id,)).fetchone():
            wake = Step(id=parent[0], event=Event.WAKE, reason=f"{handoff.to_agent} answered")
            row = self._db.execute(SQL["step_facts"], (parent[0],)).fetchone()
            self._apply(wake, read_handoff(row), State.OFFERED, row, None)

    def spend(self, handoff_id: str, epoch: int, tokens: int, cost: int) -> bool:
        """Count tokens and money while the work runs; False when the workflow cannot afford them."""
        with self._db:
            row = self._db.execute(SQL["spend_facts"], (handoff_id,)).fetchone()
            if row is None or row[5] != State.CLAIMED or row[6] != epoch:
                raise Fenced(f"handoff {handoff_id}: claim {epoch} is no longer current; stop working on it")
            limits = read_limits(row[7])
            from_reserve = (min(row[0], tokens), min(row[1], cost))
            extra = (tokens - from_reserve[0], cost - from_reserve[1])
            affordable = not (
                _over(limits.max_tokens, row[8] + row[9] + extra[0], extra[0])
                or _over(micro(limits.max_cost), row[10] + row[11] + extra[1], extra[1])
            )
            self._db.execute(SQL["settle"], (*from_reserve, tokens, cost, row[4]))
            left = (row[0] - from_reserve[0], row[1] - from_reserve[1])
            self._db.execute(SQL["spend_handoff"], (*left, tokens, cost, handoff_id))
            return affordable

    def postpone(self, handoff: Handoff, due_at: int | None) -> bool:
        """Look at a handoff later, unless it moved meanwhile."""
        with self._db:
            self._db.execute(SQL["postpone"], (due_at, handoff.id, handoff.state.value, handoff.epoch))
            return self._db.connection.changes() == 1

    def _put_blobs(self, blobs: Sequence[Blob]) -> None:
        for blob in blobs:
            self._db.execute(SQL["insert_blob"], (bytes.fromhex(blob.digest), blob.data))

    def _put_audit(
        self, handoff: Handoff, now: int, records: Sequence[tuple[str, Note | Step]], previous: str
    ) -> str:
        for event, note in records:
            data, sealed = record(handoff, now, event, note, previous)
            keys = (handoff.id, handoff.context.task_id, handoff.from_agent, handoff.to_agent)
            self._db.execute(SQL["insert_audit"], (*keys, data, sealed))
            previous = sealed.hex()
        return previous

    def _put_breakers(self, breakers: Iterable[Breaker]) -> None:
        for one in breakers:
            if one.failures:
                bindings = (one.subject, one.failure, one.failures, one.opens, one.opened_at, one.probing)
                self._db.execute(SQL["put_breaker"], bindings)
            else:
                self._db.execute(SQL["drop_breaker"], (one.subject, one.failure))


def _over(limit: int | None, total: int, extra: int) -> bool:
    return limit is not None and extra > 0 and total > limit

