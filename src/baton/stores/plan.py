"""What a step reads, what the guards say to it, and what has to be written: pure, and the same for every store.

A store opens a transaction, makes a `Plan` over its own rows, and writes what the plan holds at the end, all or
nothing. Nothing is written while a plan is made, so whatever goes wrong in it leaves nothing behind. Whatever several
steps in one transaction count or set aside in a workflow is summed up first, so that each row is written once.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from baton.errors import Fenced, IllegalTransition, Malformed
from baton.guards import breaker
from baton.guards.base import ALLOW, Verdict
from baton.lifecycle import AUDIT_NAME, ENDED, Event, State, after, legal
from baton.protocol.audit import FENCED, INITIATED, LATE
from baton.protocol.codec import EPOCH, canonical_record, digest, iso, to_time
from baton.protocol.context import Blob
from baton.protocol.handoff import HUMAN, SUPERVISOR, Handoff
from baton.protocol.results import failed
from baton.stores import groups, money
from baton.stores.base import Claim, Grant, Moved, Offer, Step
from baton.stores.change import Audited, Change, Made, Sums
from baton.stores.due import by_deadline, first_due, moment, timeout_at
from baton.stores.rows import Note, Row, record, replace, stored, unreadable, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from baton.guards.base import Breaker, Facts
    from baton.protocol.limits import Limits
    from baton.protocol.results import Return
    from baton.stores.base import Decide, Workflow
    from baton.stores.rows import Clean

_AFTER_OFFER = {"allow": State.OFFERED, "ask": State.WAITING, "refuse": State.REFUSED}
_SAID = {State.WAITING: "approval_requested", State.REFUSED: "rejected", State.REJECTED: "rejected"}
_KEEPS = {Event.REMIND, Event.ASK, Event.APPROVE}  # what was set aside for the work stays so
_NEW_PARTIES = {AUDIT_NAME[Event.REROUTE], AUDIT_NAME[Event.ESCALATE]}


class Reader(Protocol):
    """What a plan asks of a store, inside the transaction that will write it."""

    def now(self) -> int: ...
    def row(self, handoff_id: str) -> Row: ...
    def existing(self, offer: Offer) -> Handoff | None: ...
    def get(self, handoff_id: str) -> Handoff | None: ...
    def facts(
        self, handoff: Handoff, now: int, fingerprint: bytes = b"", begun: Workflow | None = None
    ) -> tuple[Facts, Limits]: ...
    def breakers_of(self, handoff: Handoff) -> Sequence[Breaker]: ...
    def parts(self, handoff_id: str) -> Iterable[str]: ...
    def group_answers(self, parent_id: str, group_id: str) -> Iterable[tuple[str, Return | None]]: ...
    def offered(self, agents: Sequence[str]) -> Iterable[str]: ...
    def workflow(self, workflow_id: str) -> Workflow | None: ...


class Plan(Change, gc=False):
    """One operation: its answer, and what it wants written."""

    rows: Reader
    clean: Clean = bytes  # which leaves them as they are
    now: int = 0
    moment: datetime = EPOCH
    closed: set[str] = msgspec.field(default_factory=set)  # groups whose others are called off already
    late: Fenced | None = None  # raised once the late return is written down

    def __post_init__(self) -> None:
        self.now = self.rows.now()
        self.moment = to_time(self.now)

    def offer(self, offer: Offer, decide: Decide, accept: Decide | None = None) -> tuple[Handoff, Verdict]:
        """A new handoff, as the guards let it begin."""
        if (existing := self.rows.existing(offer)) is not None:
            return existing, ALLOW
        handoff = offer.handoff
        if offer.parent_epoch is not None:
            self.hold(handoff.parent_id, offer.parent_epoch)
        if offer.workflow is not None:
            self.workflow = replace(offer.workflow, agents=(handoff.to_agent,), created_at=self.now)
        judged = self.rows.facts(handoff, self.now, bytes.fromhex(offer.fingerprint), self.workflow)
        verdict = decide(handoff, *judged)
        return self.make(offer, judged, verdict, accept), verdict

    def hold(self, handoff_id: str, epoch: int) -> None:
        """Only the current claim may delegate."""
        parent = self.rows.row(handoff_id).handoff
        if parent.state is not State.CLAIMED or parent.epoch != epoch:
            raise Fenced(f"handoff {handoff_id}: claim {epoch} is no longer current; it cannot delegate any more")

    def make(
        self, offer: Offer, judged: tuple[Facts, Limits], verdict: Verdict, accept: Decide | None = None
    ) -> Handoff:
        """Write a new handoff as the verdict lets it begin."""
        handoff, (facts, limits) = offer.handoff, judged
        state = _AFTER_OFFER.get(verdict.kind, State.REJECTED)
        warnings = (*handoff.warnings, *verdict.warnings) if verdict.warnings else handoff.warnings
        handoff, spec = stored(replace(handoff, state=state, timestamp=self.moment, warnings=warnings), self.clean)
        self.new.append(spec)
        self.blobs += offer.blobs
        gaps: dict[str, Any] = {"warnings": list(warnings)} if warnings else {}
        if offer.withheld:
            gaps["withheld"] = list(offer.withheld)
        head = self._record(handoff, INITIATED, Note(reason=handoff.reason, by=handoff.from_agent, detail=gaps), "")
        if state is not State.OFFERED:
            detail = {"limit": verdict.limit, "allowed": verdict.allowed, "error": verdict.error}
            head = self._record(handoff, _SAID[state], Note(reason=verdict.reason, detail=detail), head)
        row = None
        if state is State.OFFERED and offer.take is not None and accept is not None:
            taken = accept(handoff, facts, limits)
            if taken.kind == "allow":
                row = self._accept(offer.take, Row(handoff, head), facts, taken)
        row = row or self._begin(Row(handoff, head), verdict, limits)
        self.made.append(Made(row, spec, bytes.fromhex(offer.fingerprint), self.now))
        if offer.workflow is None and state is not State.REFUSED:
            sums = self.summed(handoff)
            sums.handoffs += 1
            if handoff.to_agent not in facts.agents:
                sums.agents = (*facts.agents, handoff.to_agent)
        return row.handoff

    def _begin(self, row: Row, verdict: Verdict, limits: Limits) -> Row:
        """A new handoff that nobody claims at once: when to look at it again, or why it has ended."""
        handoff, state = row.handoff, row.handoff.state
        if state is State.REFUSED:
            result = self._written(failed(f"{verdict.error}: {verdict.reason}", retryable=False))
            if handoff.line_id == handoff.id:
                handoff = replace(handoff, answer_id=handoff.id)
            return replace(row, handoff=handoff, result=result)
        wait = limits.approval_seconds if state is State.WAITING else limits.ack_seconds
        if state is State.OFFERED and handoff.to_agent == HUMAN:
            wait = None
            self._alert(handoff.id, f"{handoff.from_agent} asks: {handoff.task:.200}")
        due = self.now if state is State.REJECTED else first_due(handoff, wait, self.now)
        if state in {State.OFFERED, State.WAITING}:
            money.reserve(self, row, verdict)
            row = replace(row, tokens_reserved=verdict.reserve_tokens, cost_reserved=verdict.reserve_cost)
        return replace(row, handoff=replace(handoff, due_at=moment(due)), due_at=due)

    def claim(self, claim: Claim, decide: Decide) -> Grant:
        """One offered handoff for one holder, or why not."""
        grant = Grant()
        for handoff_id in (claim.id,) if claim.id else self.rows.offered(claim.agents):
            grant = self._try(claim, self.rows.row(handoff_id), decide)
            if grant.won or grant.verdict.error != "AtCapacity":
                break  # a full agent must not keep the others from their work
        return grant

    def _try(self, claim: Claim, row: Row, decide: Decide) -> Grant:
        handoff = row.handoff
        if handoff.state is not State.OFFERED:
            return Grant(handoff=handoff)
        if why := unreadable(handoff):
            return Grant(handoff=handoff, verdict=Verdict("refuse", f"its record {why}; send it again", "Malformed"))
        facts, limits = self.rows.facts(handoff, self.now)
        facts = money.without_own(facts, row)
        most = facts.target.max_concurrent_tasks if facts.target is not None else None
        if (most is not None and facts.load >= most) or any(one.probing for one in facts.breakers):
            above = self._waiting(handoff)
            load = facts.load - sum(one.to_agent == handoff.to_agent for one in above)
            facts = replace(facts, load=load, waiting=tuple(one.id for one in above))
        verdict = decide(handoff, facts, limits)
        if verdict.kind != "allow":
            return Grant(handoff=handoff, verdict=verdict)
        taken = self._accept(claim, row, facts, verdict)
        self.moved.append(taken)
        return Grant(handoff=taken.handoff, verdict=verdict, won=True)

    def _waiting(self, handoff: Handoff) -> list[Handoff]:
        """What waits for this very work: if that kept it out, both would wait for ever."""
        found, above = [], self.rows.get(handoff.parent_id) if handoff.parent_id else None
        while above is not None:
            if above.state is State.CLAIMED:
                found.append(above)
            above = self.rows.get(above.parent_id) if above.parent_id else None
        return found

    def _accept(self, claim: Claim, row: Row, facts: Facts, verdict: Verdict) -> Row:
        """The handoff as its new owner gets it, with what it reserves and its audit record."""
        handoff = row.handoff
        lease_until, ends = self.now + claim.lease, timeout_at(handoff, facts, verdict)
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
        head = self._record(taken, "accepted", Note(by=claim.holder, detail=detail), row.head)
        if row.told:
            self.settled.append((taken.id, claim.holder))
        money.reserve(self, row, verdict)
        if verdict.probe:
            self.breakers += [
                replace(one, probing=handoff.id)
                for one in facts.breakers
                if one.opened_at and one.probing not in facts.waiting
            ]
        return Row(
            taken,
            head,
            due,
            lease_until,
            ends,
            tokens_reserved=verdict.reserve_tokens,
            cost_reserved=verdict.reserve_cost,
            tokens_spent=row.tokens_spent,
            cost_spent=row.cost_spent,
            tokens_before=row.tokens_spent,
            cost_before=row.cost_spent,
        )

    def advance(self, step: Step, decide: Decide | None = None, accept: Decide | None = None) -> Moved:
        """One event; a claim that is no longer current is only written down, and `late` says so."""
        row = self.rows.row(step.id)
        handoff = row.handoff
        state = None if step.event is Event.ACCEPT else after(handoff.state, step.event)  # only claim() accepts
        if step.epoch is not None and (handoff.epoch != step.epoch or handoff.state is not State.CLAIMED):
            if handoff.epoch == step.epoch and _repeated(row, step):
                return Moved(handoff, self.rows.get(step.then.handoff.id) if step.then else None)
            return self._write_late(row, step)
        if state is None or _outdated(step, handoff):
            allowed = f"possible: {', '.join(legal(handoff.state))}" if legal(handoff.state) else "it has ended"
            raise IllegalTransition(f"handoff {step.id} is {handoff.state}: {step.event} is not possible; {allowed}")
        return self._judge(step, row, state, decide, accept)

    def _write_late(self, row: Row, step: Step) -> Moved:
        handoff = row.handoff
        detail: dict[str, Any] = {"event": step.event.value, "epoch": step.epoch}
        if step.result is not None:
            data = written(step.result)
            blob = Blob(digest(data), data)
            self.blobs.append(blob)
            detail["result"] = blob.digest
        name = LATE if step.result is not None else FENCED
        note = Note(reason=step.reason, by=step.by, detail=detail, result=step.result)
        self.moved.append(replace(row, head=self._record(handoff, name, note, row.head)))
        self.late = Fenced(
            f"handoff {step.id}: claim {step.epoch} of {handoff.to_agent} is no longer current "
            f"({handoff.state}, claim {handoff.epoch}); what it did was stored as late and not applied"
        )
        return Moved(handoff)

    def _judge(self, step: Step, row: Row, state: State, decide: Decide | None, accept: Decide | None) -> Moved:
        """The step, and the next handoff of its line if the guards let it pass; neither without the other."""
        if step.then is None:
            return Moved(self.apply(step, row, state))
        if decide is None:
            raise Malformed("advance: a step with `then` needs `decide`, or the next handoff would be lost")
        facts, limits = self.rows.facts(step.then.handoff, self.now, bytes.fromhex(step.then.fingerprint))
        moved = self.apply(step, row, state)
        judged = money.with_sums(facts, self.sums), limits
        verdict = decide(step.then.handoff, *judged)
        if verdict.kind != "refuse":
            return Moved(moved, self.make(step.then, judged, verdict, accept), verdict)
        self.forget()
        self.closed.clear()
        money.use(self, step, row)
        refused = self.rows.existing(step.then) or self.make(step.then, judged, verdict)
        return Moved(row.handoff, refused, verdict)

    def apply(self, step: Step, row: Row, state: State) -> Handoff:
        """Write one event, with all that follows from it for others."""
        handoff, event = row.handoff, step.event
        due_at = self.now if step.due_at is None and state is State.REJECTED else step.due_at
        due_at = by_deadline(handoff, state, due_at)
        remind = event is Event.REMIND
        keeps = event in _KEEPS
        if remind:
            due_at = min((at for at in (row.lease_until, due_at) if at is not None), default=None)
        ends_line = state in ENDED and step.then is None
        moved = replace(
            handoff,
            state=state,
            to_agent=step.to_agent or handoff.to_agent,
            attempt=handoff.attempt - 1 if step.uncount and handoff.attempt else handoff.attempt,
            reroutes=handoff.reroutes + (event is Event.REROUTE),
            approved_by=step.by if event is Event.APPROVE else "" if step.to_agent else handoff.approved_by,
            holder=handoff.holder if state is State.CLAIMED else "",
            due_at=moment(due_at),
            answer_id=handoff.id if ends_line and handoff.line_id == handoff.id else handoff.answer_id,
        )
        head = self._record(moved, step.cause, Note(reason=step.reason), row.head) if step.cause else row.head
        head = self._record(moved, AUDIT_NAME[event], step, head)
        self.said.append(step.to_agent)
        self.blobs += step.blobs
        tokens, cost = (0, 0) if keeps else money.settle(self, step, row)
        held = state is State.CLAIMED
        self.moved.append(
            Row(
                moved,
                head,
                due_at,
                row.lease_until if remind else None,
                step.due_at if remind else None,
                remind,
                row.tokens_reserved if keeps else 0,
                row.cost_reserved if keeps else 0,
                row.tokens_spent + tokens,
                row.cost_spent + cost,
                row.tokens_before,
                row.cost_before,
                self._written(step.result) if step.result else None,
            )
        )
        if row.locks and handoff.state is State.CLAIMED and not held:
            self.freed.append(handoff.id)
        if row.told and state is not handoff.state:  # what people were told of is no longer so
            self.settled.append((moved.id, step.by or handoff.holder or SUPERVISOR))
        if not remind:  # the work, and a probe that it may be, goes on
            self._settle_breakers(step, row)
        if state is State.PARKED or (state is State.FAILED and step.by == SUPERVISOR):
            self._alert(moved.id, step.reason or "parked")
        if ends_line and handoff.line_id != handoff.id:
            self.answered.append((handoff.line_id, handoff.id))
        if ends_line and handoff.broadcast_group_id:
            groups.close(self, moved, step.result)
        if row.parts and state in ENDED:
            self._call_off(moved, step.by if event is Event.CANCEL else SUPERVISOR)
        return moved

    def _call_off(self, parent: Handoff, by: str) -> None:
        """Cancel what an ended handoff had delegated and waited for; after a cancel, all that it had delegated."""
        why = f"the work that it was a part of was {parent.status}"
        result = failed(f"Cancelled: {why}", retryable=False)
        for part in self.rows.parts(parent.id):
            row = self.rows.row(part)
            # What nobody waits for goes on, unless all of it is called off.
            if row.handoff.return_protocol.expected or parent.state is State.CANCELLED:
                self.closed.add(row.handoff.broadcast_group_id)
                step = Step(id=part, event=Event.CANCEL, by=by, reason=why, result=result)
                self.apply(step, row, State.CANCELLED)

    def _settle_breakers(self, step: Step, row: Row) -> None:
        outcome = breaker.failure(step.event, step.result, step.cause)
        known = self.rows.breakers_of(row.handoff) if row.breakers or outcome else ()
        if known or outcome:
            said = outcome or ("success" if step.event is Event.COMPLETE else "")
            self.breakers += breaker.settled(row.handoff, known, said, self.now)

    def _written(self, result: Return) -> bytes:
        data = self.clean(canonical_record(result))
        self.new.append(data)
        return data

    def _alert(self, subject: str, text: str) -> None:
        self.said.append(text)
        self.alerts.append((subject, self.clean(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")))

    def summed(self, handoff: Handoff) -> Sums:
        """What this transaction adds to the counts of the workflow."""
        if self.sums is None:
            self.sums = Sums(handoff.workflow_id)
        return self.sums

    def _record(self, handoff: Handoff, event: str, note: Note | Step, previous: str) -> str:
        """Write one audit record; its digest."""
        self.said += (note.reason, note.by, note.rationale)
        if note.detail:
            self.said.append(canonical_record(note.detail).decode())
        data = self.clean(record(handoff, self.moment, event, note, previous))
        sealed = sha256(data).digest()
        opens = not previous or event in _NEW_PARTIES
        task = handoff.context.task_id
        self.audit.append(Audited(handoff.id, task, handoff.from_agent, handoff.to_agent, opens, data, sealed))
        return sealed.hex()


def _repeated(row: Row, step: Step) -> bool:
    """Whether the same claim already did this: the answer to a commit whose acknowledgement was lost."""
    state = row.handoff.state
    if state not in ENDED or state is not after(State.CLAIMED, step.event):
        return False
    # A person or the supervisor may have ended it in another way meanwhile.
    return row.result == (written(step.result) if step.result else None)


def _outdated(step: Step, handoff: Handoff) -> bool:
    """Whether a step was decided on something that is no longer so."""
    if step.seen is not None:
        was, now = step.seen, handoff
        return (was.state, was.epoch, was.due_at) != (now.state, now.epoch, now.due_at)
    return step.expect is not None and handoff.state is not step.expect
