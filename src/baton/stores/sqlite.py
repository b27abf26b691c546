"""The embedded store: SQLite, every step one transaction with its audit record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from baton.errors import Fenced, IllegalTransition, Malformed
from baton.guards import breaker
from baton.guards.base import ALLOW
from baton.lifecycle import AUDIT_NAME, ENDED, Event, State, after, legal
from baton.protocol.audit import FENCED, INITIATED, LATE
from baton.protocol.codec import canonical_record, digest, iso, to_microseconds, to_time
from baton.protocol.context import Blob
from baton.protocol.handoff import HUMAN, SUPERVISOR, Handoff, rank
from baton.protocol.limits import micro
from baton.protocol.results import failed
from baton.stores.base import Claim, Grant, Moved, Offer, Step
from baton.stores.connection import statements
from baton.stores.rows import Note, Stand, as_spec, read_limits, record, replace, written
from baton.stores.sqlite_facts import Gathers, first_due, timeout_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from baton.guards.base import Breaker, Facts, Verdict
    from baton.protocol.limits import Limits
    from baton.protocol.results import Return
    from baton.stores.base import Decide

SQL = statements("sqlite.sql")
_AFTER_OFFER = {"allow": State.OFFERED, "ask": State.WAITING, "refuse": State.REFUSED}
_SAID = {State.WAITING: "approval_requested", State.REFUSED: "rejected", State.REJECTED: "rejected"}

_NEW_PARTIES = {AUDIT_NAME[Event.REROUTE], AUDIT_NAME[Event.ESCALATE]}


class Taken(NamedTuple):
    """A handoff about to be written, with the columns that only the store keeps."""

    handoff: Handoff
    head: str
    lease_until: int | None = None
    timeout_at: int | None = None
    tokens: int = 0
    cost: int = 0


class SqliteStore(Gathers):
    """Handoffs in one SQLite file, or in memory."""

    def offer(self, offer: Offer, decide: Decide, accept: Decide | None = None) -> tuple[Handoff, Verdict]:
        """Make a handoff: facts, verdict, state and `initiated` in one transaction."""
        with self._db:
            if (existing := self._existing(offer)) is not None:
                return existing, ALLOW
            if offer.parent_epoch is not None:
                self._hold(offer.handoff.parent_id, offer.parent_epoch)
            now = self.now()
            if offer.workflow is not None:
                flow, agents = offer.workflow, canonical_record([offer.handoff.to_agent]).decode()
                limits = canonical_record(flow.limits)
                row = (flow.id, flow.root_id, flow.conversation_id, limits, agents, now)
                self._db.execute(SQL["insert_workflow"], row)
            judged = self._facts(offer.handoff, now, bytes.fromhex(offer.fingerprint))
            verdict = decide(offer.handoff, *judged)
            return self._make(offer, judged, verdict, accept), verdict

    def _hold(self, handoff_id: str, epoch: int) -> None:
        parent = self._stand(handoff_id).handoff
        if parent.state is not State.CLAIMED or parent.epoch != epoch:
            raise Fenced(f"handoff {handoff_id}: claim {epoch} is no longer current; it cannot delegate any more")

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

    def _make(
        self, offer: Offer, judged: tuple[Facts, Limits], verdict: Verdict, accept: Decide | None = None
    ) -> Handoff:
        handoff, (facts, limits) = offer.handoff, judged
        state = _AFTER_OFFER.get(verdict.kind, State.REJECTED)
        warnings = (*handoff.warnings, *verdict.warnings) if verdict.warnings else handoff.warnings
        moment = to_time(facts.now)
        handoff = replace(handoff, state=state, timestamp=moment, warnings=warnings)
        self._put_blobs(offer.blobs)
        gaps = {"warnings": list(warnings)} if warnings else {}
        records = [(INITIATED, Note(reason=handoff.reason, by=handoff.from_agent, detail=gaps))]
        if state is not State.OFFERED:
            detail = {"limit": verdict.limit, "allowed": verdict.allowed, "error": verdict.error}
            records.append((_SAID[state], Note(reason=verdict.reason, detail=detail)))
        head = self._put_audit(handoff, moment, records, "")
        if state is State.OFFERED and offer.take is not None and accept is not None:
            taken = accept(handoff, facts, limits)
            if taken.kind == "allow":
                return self._insert(offer, self._accept(offer.take, handoff, facts, taken, head), facts)
        wait = self._first_wait(handoff, limits)
        due = facts.now if state is State.REJECTED else first_due(handoff, wait, facts.now)
        handoff = replace(handoff, due_at=None if due is None or state is State.REFUSED else to_time(due))
        answer = failed(f"{verdict.error}: {verdict.reason}", retryable=False) if state is State.REFUSED else None
        if answer and handoff.line_id == handoff.id:
            handoff = replace(handoff, answer_id=handoff.id)
        if state is State.OFFERED and handoff.to_agent == HUMAN:
            self._put_alert(handoff.id, f"{handoff.from_agent} asks: {handoff.task:.200}", facts.now)
        return self._insert(offer, Taken(handoff, head), facts, answer)

    @staticmethod
    def _first_wait(handoff: Handoff, limits: Limits) -> float | None:
        if handoff.state is State.WAITING:
            return limits.approval_seconds
        return None if handoff.to_agent == HUMAN else limits.ack_seconds

    def _insert(self, offer: Offer, made: Taken, facts: Facts, answer: Return | None = None) -> Handoff:
        handoff = made.handoff
        spec = as_spec(handoff)
        self._keep_spec(spec)
        self._db.execute(
            SQL["insert_handoff"],
            (
                handoff.id, handoff.workflow_id, handoff.parent_id or None, handoff.key or None, handoff.line_id,
                handoff.from_agent, handoff.to_agent, handoff.state, rank(handoff.priority),
                bytes.fromhex(offer.fingerprint), None if handoff.due_at is None else to_microseconds(handoff.due_at),
                made.head, facts.now, written(spec), written(answer) if answer else None,
                handoff.answer_id or None, handoff.attempt, handoff.epoch, handoff.holder or None, made.lease_until,
                made.timeout_at, made.tokens, made.cost,
            ),
        )  # fmt: skip
        if offer.workflow is None and handoff.state is not State.REFUSED:
            seen = facts.agents
            if handoff.to_agent not in seen:
                seen = (*seen, handoff.to_agent)
            self._db.execute(SQL["count_handoff"], (canonical_record(seen).decode(), handoff.workflow_id))
        return handoff

    def claim(self, claim: Claim, decide: Decide) -> Grant:
        """Give one offered handoff to one holder, or say why not."""
        with self._db:
            grant = Grant()
            for handoff_id in [claim.id] if claim.id else self._candidates(claim.agents):
                grant = self._try(claim, handoff_id, decide)
                if grant.won or grant.verdict.error != "AtCapacity":
                    break  # a full agent must not keep the others from their work
            return grant

    def _candidates(self, agents: Iterable[str]) -> list[str]:
        """The next handoff of each agent, by priority and then in the order of their arrival."""
        heads = [row for agent in agents for row in self._db.rows(SQL["next_offered"], (agent,))]
        return [handoff_id for _, _, handoff_id in sorted(heads)]

    def _try(self, claim: Claim, handoff_id: str, decide: Decide) -> Grant:
        stand = self._stand(handoff_id)
        handoff = stand.handoff
        if handoff.state is not State.OFFERED:
            return Grant(handoff=handoff)
        judged = self._facts(handoff, self.now())
        verdict = decide(handoff, *judged)
        if verdict.kind != "allow":
            return Grant(handoff=handoff, verdict=verdict)
        taken = self._accept(claim, handoff, judged[0], verdict, stand.audit_head)
        due = to_microseconds(taken.handoff.due_at) if taken.handoff.due_at else None
        self._db.execute(
            SQL["set_claimed"],
            (
                claim.holder, taken.lease_until, taken.timeout_at, due, taken.tokens, taken.cost, taken.head,
                handoff.id, handoff.epoch,
            ),
        )  # fmt: skip
        return Grant(handoff=taken.handoff, verdict=verdict, won=True)

    def _accept(self, claim: Claim, handoff: Handoff, facts: Facts, verdict: Verdict, head: str) -> Taken:
        """The handoff as its new owner gets it, with what it reserves and its audit record written."""
        lease_until, ends = facts.now + claim.lease, timeout_at(handoff, facts)
        due = lease_until if ends is None else min(lease_until, ends)
        taken = replace(
            handoff,
            state=State.CLAIMED,
            attempt=handoff.attempt + 1,
            epoch=handoff.epoch + 1,
            holder=claim.holder,
            due_at=to_time(due),
        )
        detail: dict[str, Any] = {"warnings": list(verdict.warnings)} if verdict.warnings else {}
        if claim.estimate is not None:
            detail["estimated_completion"] = iso(claim.estimate)
        note = Note(by=claim.holder, detail=detail)
        head = self._put_audit(taken, to_time(facts.now), [("accepted", note)], head)
        reserve = (verdict.reserve_tokens, verdict.reserve_cost)
        if any(reserve):
            self._db.execute(SQL["reserve"], (*reserve, handoff.workflow_id))
        if verdict.probe:
            self._put_breakers(replace(one, probing=handoff.id) for one in facts.breakers if one.opened_at)
        return Taken(taken, head, lease_until, ends, *reserve)

    def renew(self, handoff_id: str, epoch: int, lease: int) -> bool:
        """Prolong a claim; False where it is no longer the current one."""
        with self._db:
            self._db.execute(SQL["renew"], (self.now() + lease, handoff_id, epoch))
            return self._db.connection.changes() == 1

    def advance(self, step: Step, decide: Decide | None = None, accept: Decide | None = None) -> Moved:
        """Apply one event; a claim that is no longer current is refused and written down."""
        with self._db:
            stand = self._stand(step.id)
            handoff = stand.handoff
            state = None if step.event is Event.ACCEPT else after(handoff.state, step.event)  # only claim() accepts
            if step.epoch is not None and handoff.epoch == step.epoch and self._repeated(handoff, step):
                return Moved(handoff, self.get(step.then.handoff.id) if step.then else None)
            if step.epoch is not None and (handoff.epoch != step.epoch or handoff.state is not State.CLAIMED):
                self._write_late(handoff, step, stand.audit_head)
            elif state is None or _outdated(step, handoff):
                allowed = f"possible: {', '.join(legal(handoff.state))}" if legal(handoff.state) else "it has ended"
                raise IllegalTransition(
                    f"handoff {step.id} is {handoff.state}: {step.event} is not possible; {allowed}"
                )
            else:
                return self._judge(step, stand, state, decide, accept)
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
        return bool(stored == (written(step.result) if step.result else None))

    def _write_late(self, handoff: Handoff, step: Step, previous: str) -> None:
        detail: dict[str, Any] = {"event": step.event.value, "epoch": step.epoch}
        if step.result is not None:
            data = written(step.result)
            blob = Blob(digest(data), data)
            self._put_blobs([blob])
            detail["result"] = blob.digest
        name = LATE if step.result is not None else FENCED
        note = Note(reason=step.reason, by=step.by, detail=detail, result=step.result)
        head = self._put_audit(handoff, to_time(self.now()), [(name, note)], previous)
        self._db.execute("UPDATE handoff SET audit_head = ? WHERE id = ?", (head, handoff.id))

    def _judge(self, step: Step, stand: Stand, state: State, decide: Decide | None, accept: Decide | None) -> Moved:
        """The step, and the next handoff of its line if the guards let it pass; neither without the other."""
        now = self.now()
        if step.then is not None and decide is None:
            raise Malformed("advance: a step with `then` needs `decide`, or the next handoff would be lost")
        if step.then is None or decide is None:
            return Moved(self._apply(step, stand, state, now))
        judged = self._facts(step.then.handoff, now, bytes.fromhex(step.then.fingerprint))
        verdict = decide(step.then.handoff, *judged)
        if verdict.kind == "refuse":
            refused = self._existing(step.then) or self._make(step.then, judged, verdict)
            return Moved(stand.handoff, refused, verdict)
        moved = self._apply(step, stand, state, now)
        return Moved(moved, self._make(step.then, judged, verdict, accept), verdict)

    def _apply(self, step: Step, stand: Stand, state: State, now: int) -> Handoff:
        handoff, event = stand.handoff, step.event
        attempt, holder = handoff.attempt, handoff.holder if state is State.CLAIMED else ""
        due_at = now if step.due_at is None and state is State.REJECTED else step.due_at
        if event is Event.REMIND:
            due_at = min((at for at in (stand.lease_until, due_at) if at is not None), default=None)
        if step.uncount and attempt:
            attempt -= 1
        moved = replace(
            handoff,
            state=state,
            to_agent=step.to_agent or handoff.to_agent,
            attempt=attempt,
            reroutes=handoff.reroutes + (event is Event.REROUTE),
            approved_by=step.by if event is Event.APPROVE else "" if step.to_agent else handoff.approved_by,
            holder=holder,
            due_at=None if due_at is None else to_time(due_at),
        )
        ends_line = state in ENDED and step.then is None
        if ends_line and moved.line_id == moved.id:
            moved = replace(moved, answer_id=moved.id)
        records: list[tuple[str, Note | Step]] = [(step.cause, Note(reason=step.reason))] if step.cause else []
        records.append((AUDIT_NAME[event], step))
        self._put_blobs(step.blobs)
        head = self._put_audit(moved, to_time(now), records, stand.audit_head)
        tokens, cost = self._settle(step, stand)
        remind = event is Event.REMIND
        self._db.execute(
            SQL["set_state"],
            (
                state, moved.to_agent, attempt, moved.reroutes, holder or None, due_at,
                stand.lease_until if remind else None, step.due_at if remind else None, remind, tokens, cost,
                moved.answer_id or None, moved.approved_by or None, head,
                written(step.result) if step.result else None, moved.id,
            ),
        )  # fmt: skip
        self._settle_breakers(step, stand, now)
        if state is State.PARKED or (state is State.FAILED and step.by == SUPERVISOR):
            self._put_alert(moved.id, step.reason or "parked", now)
        if ends_line:
            self._end_line(moved, now)
        return moved

    def _settle_breakers(self, step: Step, stand: Stand, now: int) -> None:
        if step.event in {Event.REMIND, Event.SUSPEND}:
            return  # the work, and a probe that it may be, goes on
        outcome = breaker.failure(step.event, step.result, step.cause)
        if stand.breakers or outcome:
            said = outcome or ("success" if step.event is Event.COMPLETE else "")
            self._put_breakers(breaker.settled(stand.handoff, self._breakers_of(stand.handoff), said, now))

    def _settle(self, step: Step, stand: Stand) -> tuple[int, int]:
        """Give back what was reserved and count what was used beyond what was counted on the way."""
        if step.event is Event.REMIND:
            return 0, 0
        held, result = (stand.tokens_reserved, stand.cost_reserved), step.result
        tokens = max(0, result.audit.tokens_consumed - stand.tokens_spent) if result else 0
        cost = max(0, (micro(result.audit.cost) or 0) - stand.cost_spent) if result else 0
        if any(held) or tokens or cost:
            self._db.execute(SQL["settle"], (*held, tokens, cost, stand.handoff.workflow_id))
        return tokens, cost

    def _end_line(self, handoff: Handoff, now: int) -> None:
        """Answer the one who waits for this line of handoffs."""
        if handoff.line_id != handoff.id:
            self._db.execute(SQL["answer_line"], (handoff.id, handoff.line_id))
        if handoff.line_id == handoff.root_id:
            return
        if parent := self._db.execute(SQL["waiting_parent"], (handoff.line_id,)).fetchone():
            wake = Step(id=parent[0], event=Event.WAKE, reason=f"{handoff.to_agent} answered")
            self._apply(wake, self._stand(parent[0]), State.OFFERED, now)

    def spend(self, handoff_id: str, epoch: int, tokens: int, cost: int) -> bool:
        """Count tokens and money while the work runs; False when the workflow cannot afford them."""
        if tokens < 0 or cost < 0:
            raise Malformed(f"spend: {tokens} tokens, {cost} of money; neither can be negative")
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
        self, handoff: Handoff, moment: datetime, records: Sequence[tuple[str, Note | Step]], previous: str
    ) -> str:
        for event, note in records:
            data, sealed = record(handoff, moment, event, note, previous)
            opens = not previous or event in _NEW_PARTIES
            keys = (handoff.id, handoff.context.task_id, handoff.from_agent, handoff.to_agent, opens)
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


def _outdated(step: Step, handoff: Handoff) -> bool:
    """Whether a step was decided on something that is no longer so."""
    if step.seen is not None:
        was, now = step.seen, handoff
        return (was.state, was.epoch, was.due_at) != (now.state, now.epoch, now.due_at)
    return step.expect is not None and handoff.state is not step.expect
