"""What people, shells and programs do with single handoffs: take, answer, approve, call off, look."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import IllegalTransition, Malformed, NotFound, named
from baton.flow import crew, escalate, finish, health, operator, waiting
from baton.flow.locks import Hold, in_progress, wanted
from baton.flow.prepare import request_of
from baton.lifecycle import Event, State
from baton.protocol.audit import assessments
from baton.protocol.codec import name, seconds, text, to_microseconds
from baton.protocol.crossing import Crossing, crossing
from baton.protocol.fields import identifier, truth, whole
from baton.protocol.handoff import HUMAN, Handoff
from baton.protocol.results import (
    ACCEPTANCES,
    Acceptance,
    Command,
    Defer,
    Escalate,
    Reject,
    as_return,
    checked,
    failed,
)
from baton.stores.base import Claim, Grant, LockRequest, Step
from baton.stores.holder import LEASED, readable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from baton.flow.crew import Crew
    from baton.protocol.audit import Assessment
    from baton.protocol.locks import Lock
    from baton.protocol.options import Duration
    from baton.protocol.registry import Described
    from baton.protocol.stats import Stats
    from baton.stores.base import Alert, Store
    from baton.stores.trail import AuditTrail
    from baton.telemetry.base import Hook, Passed


def _person(by: str, what: str) -> None:
    if not text(by, "by").strip():
        raise Malformed(f"{what}: say who does (by=)")


class Desk:
    """The part of a relay that handles one handoff at a time."""

    store: Store
    audit: AuditTrail
    _crew: Crew

    def claim(
        self,
        agent: str,
        *,
        handoff_id: str = "",
        holder: str = "",
        lease: float | None = None,
        estimate: float | None = None,
    ) -> Grant:
        """Take the next work of an agent, or one handoff, for this process or for somebody who outlives it.

        `lease` is how long the claim holds, `estimate` how long the work will probably take. Seconds.
        """
        name(agent, "agent")
        claim = Claim(
            holder=(holder and identifier(holder, "holder"))
            or (self._crew.holder if lease is None else self._crew.holder + LEASED),
            id=handoff_id,
            agents=(agent,),
            lease=int(seconds(lease or self._crew.settings.lease, "lease") * 1e6),
            estimate=None if estimate is None else self.store.now() + int(seconds(estimate, "estimate") * 1e6),
        )
        grant = self.store.claim(claim, self._crew.judge_claim)
        if grant.won and grant.handoff is not None:
            health.acknowledged(self._crew, agent)
            self._crew.tell("accepted", grant.handoff)
        return grant

    def give_back(self, handoff_id: str, value: Any, *, epoch: int | None = None, by: str = "") -> Handoff:
        """Answer a handoff: a return or content, a Command, Reject, Defer or Escalate; a stale epoch is refused."""
        handoff = self.get(handoff_id)
        text(by, "by")
        whole(epoch, "epoch")
        if epoch is None and handoff.ended:
            raise self._late(handoff_id)
        if handoff.state is State.OFFERED and epoch is None and isinstance(value, Reject | Defer):
            step = finish.settle(self._crew, handoff, value)
            return self._apply(msgspec.structs.replace(step, epoch=None, expect=State.OFFERED, by=by or step.by))
        if epoch is None and (handoff.state is State.PARKED or handoff.to_agent == HUMAN):
            return self._answer_for_person(handoff, value, by)
        if epoch is None and handoff.holder.removesuffix(LEASED) != self._crew.holder:
            raise Malformed(f"handoff {handoff_id}: give the epoch of the claim that this answers, as claim() gave it")
        step = finish.settle(self._crew, handoff, value)
        if self._crew.trace is not None:
            self._crew.trace.settled(handoff_id)
        return self._apply(msgspec.structs.replace(step, epoch=handoff.epoch if epoch is None else epoch))

    def _answer_for_person(self, handoff: Handoff, value: Any, by: str) -> Handoff:
        """A person answers work that was offered to people, or that is parked; of several answers the first counts."""
        if isinstance(value, Command | Reject | Defer | Escalate):
            raise Malformed(f"handoff {handoff.id}: nobody stands above a person; answer it, reroute it or cancel it")
        answer = msgspec.structs.replace(checked(as_return(value)), handoff_id=handoff.id, from_agent=by or HUMAN)
        if handoff.state is State.OFFERED:
            grant = self.store.claim(Claim(holder=f"person:{by or HUMAN}", id=handoff.id), self._crew.judge_claim)
            if not grant.won or grant.handoff is None:
                refused = grant.verdict.kind != "allow"
                raise named(grant.verdict.error, grant.verdict.reason) if refused else self._late(handoff.id)
            step = finish.settle(self._crew, grant.handoff, answer)
            result = step.result and msgspec.structs.replace(step.result, from_agent=by or HUMAN)
            return self._apply(msgspec.structs.replace(step, by=by, result=result))
        if handoff.state is not State.PARKED:
            raise self._late(handoff.id)
        event = Event.COMPLETE if answer.status in {"success", "partial"} else Event.FAIL
        answer, blobs, detail = finish.answered(self._crew, handoff, answer, writer=HUMAN)
        step = Step(
            id=handoff.id, event=event, by=by, seen=handoff, result=answer, blobs=blobs, detail=detail,
            reason="a person answered",
        )  # fmt: skip
        try:
            return self._apply(step)
        except IllegalTransition:
            raise self._late(handoff.id) from None

    def _late(self, handoff_id: str) -> IllegalTransition:
        """What to tell somebody whose answer came after another one, or after the work moved on."""
        last, now = self.audit.query(handoff_id=handoff_id)[-1], self.get(handoff_id)
        who = f" by {readable(last.by)}" if last.by else ""
        stands = f"{now.status}, with {now.to_agent}"
        return IllegalTransition(
            f"handoff {handoff_id}: {last.event_type}{who} before; it is {stands}, and this answer changes nothing"
        )

    def approve(self, handoff_id: str, *, by: str, reason: str = "") -> Handoff:
        """Let a waiting handoff go on."""
        _person(by, "approve")
        due = self.store.now() + int(self._crew.settings.limits.ack_seconds * 1e6)
        return self._apply(Step(id=handoff_id, event=Event.APPROVE, by=by, reason=reason, due_at=due))

    def deny(self, handoff_id: str, *, by: str, reason: str = "") -> Handoff:
        """Refuse a waiting handoff for good."""
        _person(by, "deny")
        result = failed(f"ApprovalDenied: {by} said no{f': {reason}' if reason else ''}", retryable=False)
        return self._apply(Step(id=handoff_id, event=Event.DENY, by=by, reason=reason, result=result))

    def cancel(self, handoff_id: str, *, by: str = "", reason: str = "") -> Handoff:
        """Call a handoff off, with all that it delegated and that has not ended.

        Who works on it is told, and the answer is not applied.
        """
        result = failed(f"Cancelled: {reason or f'called off by {by or HUMAN}'}", retryable=False)
        step = Step(id=handoff_id, event=Event.CANCEL, by=by, reason=reason, result=result)
        return self._apply(step)

    def let_go(self) -> None:
        """Offer again what cancelled functions in threads still hold, for a process that ends now, and they with it."""
        for key in list(self._crew.outlasting):
            crew.let_go(self._crew, key)

    def reroute(self, handoff_id: str, to_agent: str, *, by: str = "", reason: str = "") -> Handoff:
        """Give rejected or parked work to another agent; where its attempts are used up, for one more."""
        due = self.store.now() + int(self._crew.settings.limits.ack_seconds * 1e6)
        name(to_agent, "to_agent")
        step = Step(id=handoff_id, event=Event.REROUTE, by=by, reason=reason, to_agent=to_agent, due_at=due)
        handoff = self.get(handoff_id)
        if handoff.attempt >= handoff.max_attempts and not handoff.ended:
            more = {"granted": f"one more try, for all {handoff.max_attempts} were used up"}
            step = msgspec.structs.replace(step, uncount=True, expect=handoff.state, detail=more)
        return self._apply(step)

    def _apply(self, step: Step) -> Handoff:
        text(step.by, "by")
        text(step.reason, "reason")
        moved = self.store.advance(step, self._crew.judge_offer)
        if moved.verdict.kind == "refuse":
            raise named(moved.verdict.error, moved.verdict.reason)
        self._crew.tell(moved.handoff.status, moved.handoff)
        self._crew.hub.notify()
        return moved.handoff

    def lock(
        self,
        *paths: str | os.PathLike[str],
        owner: str,
        shared: bool = False,
        timeout: float = 0.0,
        lease: float = 600.0,
    ) -> Hold:
        """Lock files for a person or program: `async with relay.lock("src/a.py", owner="ana"):`.

        All of them or none; waits at most `timeout` seconds. They are free again after `lease` seconds at the latest.
        """
        identifier(owner, "owner")
        lasts = int(seconds(lease, "lease") * 1e6)
        request = LockRequest(owner=owner, wanted=wanted(paths), shared=truth(shared, "shared"), lease=lasts)
        return Hold(self._crew, request, seconds(timeout))

    def unlock(self, owner: str, *paths: str | os.PathLike[str]) -> int:
        """Give back what an owner locked, or only these files; how many there were."""
        count = self.store.unlock(owner, tuple(one.path for one in wanted(paths)) if paths else ())
        self._crew.hub.notify()
        return count

    def locks(self) -> list[Lock]:
        """The locks that hold now, and who waits for one, in the order in which they were asked for."""
        now = self.store.now()
        return [one for one in self.store.locks() if one.until is None or one.until > now]

    def files_in_progress(self, workflow_id: str) -> list[dict[str, str]]:
        """The files that agents of a workflow have locked now: path, owner and lock_type of each."""
        return in_progress(self.store, workflow_id)

    def variables(self, handoff_id: str) -> dict[str, Any]:
        """The shared variables as the receiver of a handoff found them."""
        return dict(self._crew.variables(self.get(handoff_id).context.state_ref).values)

    def get(self, handoff_id: str) -> Handoff:
        """One handoff as it stands."""
        found = self.store.get(handoff_id)
        if found is None:
            raise NotFound(f"handoff {handoff_id}: not in this store; `baton handoff list` shows what is")
        return found

    def acceptance(self, handoff_id: str) -> Acceptance | None:
        """What the receiver said last: accepted, rejected or deferred, when, and until when it will take."""
        said = [one for one in self.audit.query(handoff_id=handoff_id) if one.event_type in ACCEPTANCES]
        if not said:
            return None
        last = said[-1]
        done = last.detail.get("estimated_completion")
        return Acceptance(
            status=ACCEPTANCES[last.event_type],
            reason=last.reason,
            acknowledged_at=last.timestamp,
            estimated_completion=datetime.fromisoformat(done) if done else None,
        )

    def assessments(self, handoff_id: str) -> list[Assessment]:
        """What each level said when the work went up, lowest first."""
        return assessments(self.audit.query(handoff_id=handoff_id))

    def crossing(self, handoff_id: str) -> Crossing:
        """What a handoff passed on of messages, variables and artifacts, and what it dropped."""
        handoff = self.get(handoff_id)
        first = next(iter(self.audit.query(handoff_id=handoff_id, limit=1)), None)
        withheld = first.detail.get("withheld", ()) if first is not None else ()
        heard = escalate.heard(self._crew, handoff)
        return crossing(handoff, self.store.fetch, lambda: request_of(self._crew, handoff), heard, withheld)

    def observe(self, *hooks: str | Hook | Callable[[Passed], object]) -> None:
        """Tell these of the ten steps of each handoff: "log", "opentelemetry", "prometheus", a Hook, a function.

        "installed" stands for all of the three whose packages are there.
        """
        if hooks:
            from baton.telemetry import chosen

            trace = self._crew.trace
            self._crew.observe(chosen(hooks, trace.hooks if trace is not None else ()))

    def stats(self, *, since: datetime | Duration | None = None, workflows: int = 10) -> Stats:
        """How the work goes, in numbers: of all handoffs, or of those offered since a moment or in the last "2h".

        The newest `workflows` are listed one by one.
        """
        from baton.stores.measure import measure

        if isinstance(since, datetime):
            return measure(self.store, to_microseconds(since), workflows)
        start = 0 if since is None else self.store.now() - int(seconds(since, "since") * 1e6)
        return measure(self.store, start, workflows)

    def history(self, conversation_id: str) -> list[Handoff]:
        """All handoffs of a conversation, in order."""
        return self.store.find(conversation_id=conversation_id)

    def waiting(self) -> list[Handoff]:
        """What waits for a person: approvals, questions, and work that nobody could do."""
        asked = self.store.find(state=State.OFFERED, to_agent=HUMAN)
        return [*self.store.find(state=(State.WAITING, State.PARKED)), *asked]

    def waits_for(self, workflow_id: str) -> list[str]:
        """What the open work of a workflow waits for, and what lets it go on: one line for each."""
        return waiting.reasons(self._crew, workflow_id)

    def reset_breaker(self, subject: str) -> int:
        """Let an agent, with all routes to it, or one "route:FROM->TO" work again now; how many breakers closed."""
        agent = subject.removeprefix("agent:")
        meant = {row.subject for row in self.store.breakers()}
        if subject.startswith("route:"):
            meant &= {subject}
        else:
            meant = {one for one in meant if one == f"agent:{agent}" or one.partition("->")[2] == agent}
        closed = sum(map(self.store.reset_breaker, meant))
        self._crew.hub.notify()
        return closed

    def reset_health(self, agent: str) -> bool:
        """Let an agent that is suspect or unavailable get work again now; False where it is well already.

        A check of its own that still fails makes it ill again.
        """
        if (row := self.store.agent(agent)) is None:
            raise NotFound(f"agent {agent}: not registered; `baton agents list` shows who is")
        health.passed(self._crew, agent)
        return not row.available

    def read_registry(self, path: str | Path, *, enrol: bool = True) -> None:
        """Take agents, routes, escalation and health checks from an `agents.toml`; where both say it, the narrower.

        `enrol=False` writes nothing into the store.
        """
        operator.use(self._crew, path)
        if enrol:
            operator.enrol(self._crew)

    @property
    def registry(self) -> str:
        """The `agents.toml` that is in force; empty where none is."""
        return self._crew.settings.registry

    @property
    def described(self) -> Mapping[str, Described]:
        """The agents as that file describes them."""
        return self._crew.described

    def alerts(self) -> list[Alert]:
        """What people should look at."""
        return self.store.alerts()
