"""Relay: the one object that people hold. Its methods hand over to the steps in `flow`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from baton.agents.python import FunctionAgent
from baton.agents.relay import RelayAgent
from baton.errors import BatonError, HandoffFailed, Malformed, NotFound, TimedOut, UnknownAgent, named
from baton.flow import finish, offer, prepare, recover, worker
from baton.flow.crew import Crew, Settings, call_off, within
from baton.guards.complexity import classify
from baton.lifecycle import ENDED, OPEN, Event, State
from baton.protocol.codec import near
from baton.protocol.context import merge
from baton.protocol.handoff import HUMAN, USER, Handoff, ReturnProtocol, as_priority
from baton.protocol.limits import TIERS, Limits, as_autonomy, as_budget, tightest
from baton.protocol.profile import Profile, as_capabilities
from baton.protocol.results import Defer, Reject, Return, as_return, failed
from baton.protocol.secrets import redact
from baton.stores import open_store
from baton.stores.base import Claim, Grant, Step
from baton.stores.holder import identity
from baton.stores.trail import AuditTrail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from baton.agents.base import Agent
    from baton.stores.base import Alert

Status = Literal["completed", "failed", "cancelled", "refused", "running", "waiting", "parked"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow came to."""

    workflow_id: str
    conversation_id: str
    status: str
    output: Any = None
    error: str = ""
    state: dict[str, Any] = {}
    handoffs: tuple[Handoff, ...] = ()
    tokens: int = 0
    answer: Return | None = None


class Relay:
    """Agents around one store: hand work to them, and find it done once, in budget, approved and audited."""

    def __init__(
        self,
        url: str = ":memory:",
        *,
        limits: Limits | None = None,
        handoffs: bool = True,
        independent: bool = False,
        durability: Literal["power", "process"] = "power",
        checkpoints: str | Path | None = None,
        **settings: Any,
    ) -> None:
        self.store = open_store(url, durability=durability)
        try:
            chosen = Settings(limits=limits or Limits(), handoffs=handoffs, independent=independent, **settings)
        except TypeError as error:
            raise Malformed(f"Relay: {error}") from None
        self._crew = Crew(self.store, identity(), chosen)
        self._crew.entrust = lambda prepared: worker.entrust(self._crew, prepared)
        self.audit = AuditTrail(self.store, checkpoints)
        self._crew.seal = self.audit.seal

    def agent(self, name: str, **profile: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function as an agent."""
        if not isinstance(name, str):
            raise Malformed('agent: write @relay.agent("its name"), with the name in parentheses')

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.add(name, FunctionAgent(function), **{"description": (function.__doc__ or "").strip(), **profile})
            return function

        return register

    def add(self, name: str, agent: Agent, **profile: Any) -> None:
        """Register anything that can run a turn; a taken name is an error."""
        if name in self._crew.agents or name in {HUMAN, USER}:
            raise Malformed(f"agent {name}: this name is taken; choose another")
        profile["capabilities"] = as_capabilities(profile.get("capabilities"))
        profile["autonomy_budget"] = as_autonomy(profile.pop("autonomy", profile.get("autonomy_budget")))
        try:
            described = Profile(agent_id=name, **profile)
        except TypeError as error:
            raise Malformed(f"agent {name}: {error}") from None
        if all(row.profile != described or not row.available for row in self.store.agents()):
            self.store.register(described)
        self._crew.agents[name] = agent
        self._crew.profiles[name] = described

    def nest(self, name: str, inner: Relay, entry: str, **profile: Any) -> None:
        """Use another relay as one agent; `Command(graph=Command.PARENT)` in there moves control out here."""
        inner._crew.nested = True
        self.add(name, RelayAgent(inner, entry), **profile)

    async def run(
        self,
        to: str,
        task: str,
        *,
        wait: bool = True,
        timeout: float | None = None,
        **options: Any,
    ) -> Result:
        """Hand a task to an agent and wait for the answer; the same `workflow_id` attaches to that workflow."""
        first, taken = await self._begin(to, task, options, take=wait)
        if not wait:
            return self.result(first.workflow_id)
        return await self._finished(first, timeout, taken=taken)

    async def resume(self, workflow_id: str, *, timeout: float | None = None) -> Result:
        """Go on with a workflow whose process ended; raises Held when somebody else works on it."""
        recover.sweep(self._crew)
        return await self._finished(self._root(workflow_id), timeout, attach=False)

    async def _begin(self, to: str, task: str, options: dict[str, Any], *, take: bool = True) -> tuple[Handoff, bool]:
        limits = self._limits(options.pop("limits", None), options.pop("complexity", None), task)
        state = options.pop("state", None)
        if "priority" in options:
            options["priority"] = as_priority(options["priority"])
        if "budget" in options:
            options["budget"] = as_budget(options["budget"])
        if to not in self._crew.agents and to not in {row.profile.agent_id for row in self.store.agents()}:
            names = {*self._crew.agents, *(row.profile.agent_id for row in self.store.agents())}
            raise UnknownAgent(f"agent {to}: not registered; {near(to, names)}")
        prepared = prepare.begin(self._crew, prepare.request(to, task, **options), limits, state)
        made, verdict, taken = await offer.make(self._crew, prepared, take=take)
        if verdict.kind == "refuse":
            raise named(verdict.error, verdict.reason)
        return made, taken

    def _limits(self, given: Limits | None, complexity: str | None = None, task: str = "") -> Limits:
        chosen = within(given, self._crew.settings.limits)
        if complexity is None:
            return chosen
        name = classify(task) if complexity == "auto" else complexity
        if name not in TIERS:
            raise Malformed(f"complexity: {name!r}; known: auto, {', '.join(TIERS)}")
        return tightest(chosen, TIERS[name])

    async def _finished(
        self,
        first: Handoff,
        timeout: float | None,
        *,
        attach: bool = True,
        taken: bool = False,
    ) -> Result:
        try:
            async with asyncio.timeout(timeout), worker.minded(self._crew):
                await worker.run_line(self._crew, first, attach=attach, taken=taken)
        except TimeoutError:
            raise TimedOut(
                f"workflow {first.workflow_id}: not finished within {timeout} s; it goes on where it stands, "
                "resume() or run() with this workflow_id waits again"
            ) from None
        result = self.result(first.workflow_id)
        if result.status in {"completed", "running"}:
            return result
        cause = next((self._crew.failures.pop(h.id) for h in result.handoffs if h.id in self._crew.failures), None)
        cause = cause or self._crew.failures.pop(first.id, None)
        name, _, reason = result.error.partition(": ")
        error = named(name, reason) if name.isidentifier() and reason else None
        if error is None or type(error).__name__ != name:
            error = HandoffFailed(result.error or result.status)
        error.result = result
        raise error from cause

    def run_sync(self, to: str, task: str, **options: Any) -> Result:
        """`run` for programs without an event loop."""
        return asyncio.run(self.run(to, task, **options))

    async def stream(self, to: str, task: str, **options: Any) -> AsyncIterator[tuple[str, Handoff]]:
        """`run`, told step by step: pairs of event and handoff; the last one is ("end", root)."""
        queue: asyncio.Queue[tuple[str, Handoff] | None] = asyncio.Queue()
        first, _ = await self._begin(to, task, options, take=False)

        def listen(event: str, handoff: Handoff) -> None:
            if handoff.workflow_id == first.workflow_id:
                queue.put_nowait((event, handoff))

        self._crew.listeners.append(listen)
        task_ = asyncio.ensure_future(self._finished(first, None))
        task_.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            yield "initiated", first
            while (item := await queue.get()) is not None:
                yield item
            await task_
            yield "end", self._root(first.workflow_id)
        finally:
            self._crew.listeners.remove(listen)
            task_.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task_

    async def delegate(self, to: str, task: str, *, from_agent: str, timeout: float = 600.0, **options: Any) -> Return:
        """One task for one agent, outside of any workflow of yours; its answer, also when it failed."""
        protocol = ReturnProtocol(expected=True, timeout=timeout, on_timeout=options.pop("on_timeout", "fail"))
        fields = {"from_agent": from_agent, "type": "delegation", "return_protocol": protocol, **options}
        first, taken = await self._begin(to, task, fields)
        async with worker.minded(self._crew):
            return await worker.run_line(self._crew, first, taken=taken)

    def hand_off(self, request: Handoff, *, limits: Limits | None = None) -> Handoff:
        """Offer work without waiting; a worker of the receiver takes it."""
        prepared = prepare.begin(self._crew, request, self._limits(limits))
        made, verdict = self.store.offer(prepared, self._crew.judge_offer)
        if verdict.kind == "refuse":
            raise named(verdict.error, verdict.reason)
        self._crew.hub.notify()
        return made

    def claim(self, agent: str, *, handoff_id: str = "", holder: str = "", lease: float | None = None) -> Grant:
        """Take the next work of an agent, or one handoff, for this process or for somebody who outlives it."""
        held = int((lease or self._crew.settings.lease) * 1e6)
        wanted = Claim(holder=holder or self._crew.holder, id=handoff_id, agents=(agent,), lease=held)
        return self.store.claim(wanted, self._crew.judge_claim)

    def give_back(self, handoff_id: str, value: Any, *, epoch: int | None = None, by: str = "") -> Handoff:
        """Answer a handoff: a return or content, a Command, Reject or Defer; a stale epoch is refused."""
        handoff = self.get(handoff_id)
        if handoff.state is State.OFFERED and epoch is None and isinstance(value, Reject | Defer):
            step = finish.settle(self._crew, handoff, value)
            return self._apply(msgspec.structs.replace(step, epoch=None, expect=State.OFFERED, by=by or step.by))
        if handoff.state is not State.CLAIMED and epoch is None:
            return self._answer_for_person(handoff, value, by)
        step = finish.settle(self._crew, handoff, value)
        return self._apply(msgspec.structs.replace(step, epoch=handoff.epoch if epoch is None else epoch))

    def _answer_for_person(self, handoff: Handoff, value: Any, by: str) -> Handoff:
        """A person answers work that was offered to people, or that is parked."""
        answer = msgspec.structs.replace(as_return(value), handoff_id=handoff.id, from_agent=by or HUMAN)
        if handoff.state is State.OFFERED:
            grant = self.store.claim(Claim(holder=f"person:{by or HUMAN}", id=handoff.id), self._crew.judge_claim)
            if not grant.won or grant.handoff is None:
                raise named(grant.verdict.error, grant.verdict.reason or "somebody else was faster")
            step = finish.settle(self._crew, grant.handoff, answer)
            moved = self._apply(msgspec.structs.replace(step, by=by))
        else:
            event = Event.COMPLETE if answer.status in {"success", "partial"} else Event.FAIL
            moved = self._apply(Step(id=handoff.id, event=event, by=by, result=answer, reason="a person answered"))
        for alert in self.store.alerts():
            if alert.subject == handoff.id:
                self.store.resolve_alert(alert.id, by or HUMAN)
        return moved

    def approve(self, handoff_id: str, *, by: str, reason: str = "") -> Handoff:
        """Let a waiting handoff go on."""
        due = self.store.now() + int(self._crew.settings.limits.ack_seconds * 1e6)
        return self._apply(Step(id=handoff_id, event=Event.APPROVE, by=by, reason=reason, due_at=due))

    def deny(self, handoff_id: str, *, by: str, reason: str = "") -> Handoff:
        """Refuse a waiting handoff for good."""
        result = failed(f"ApprovalDenied: {by} said no{f': {reason}' if reason else ''}", retryable=False)
        return self._apply(Step(id=handoff_id, event=Event.DENY, by=by, reason=reason, result=result))

    def cancel(self, handoff_id: str, *, by: str = "", reason: str = "") -> Handoff:
        """Call a handoff off, with what it delegated; who works on it is told, and the answer is not applied."""
        result = failed(f"Cancelled: {reason or f'called off by {by or HUMAN}'}", retryable=False)
        step = Step(id=handoff_id, event=Event.CANCEL, by=by, reason=reason, result=result)
        moved = self._apply(step)
        call_off(self._crew, moved, by)
        return moved

    def reroute(self, handoff_id: str, to_agent: str, *, by: str = "", reason: str = "") -> Handoff:
        """Give rejected or parked work to another agent."""
        due = self.store.now() + int(self._crew.settings.limits.ack_seconds * 1e6)
        step = Step(id=handoff_id, event=Event.REROUTE, by=by, reason=reason, to_agent=to_agent, due_at=due)
        return self._apply(step)

    def _apply(self, step: Step) -> Handoff:
        step = msgspec.structs.replace(step, reason=redact(step.reason))
        moved = self.store.advance(step, self._crew.judge_offer)
        if moved.verdict.kind == "refuse":
            raise named(moved.verdict.error, moved.verdict.reason)
        self._crew.tell(moved.handoff.status, moved.handoff)
        self._crew.hub.notify()
        return moved.handoff

    def get(self, handoff_id: str) -> Handoff:
        """One handoff as it stands."""
        found = self.store.get(handoff_id)
        if found is None:
            raise NotFound(f"handoff {handoff_id}: not in this store; `baton handoff list` shows what is")
        return found

    def history(self, conversation_id: str) -> list[Handoff]:
        """All handoffs of a conversation, in order."""
        return self.store.find(conversation_id=conversation_id)

    def waiting(self) -> list[Handoff]:
        """What waits for a person: approvals, questions, and work that nobody could do."""
        asked = self.store.find(state=State.OFFERED, to_agent=HUMAN)
        return [*self.store.find(state=(State.WAITING, State.PARKED)), *asked]

    @property
    def names(self) -> tuple[str, ...]:
        """The agents that this process can run."""
        return tuple(sorted(self._crew.agents))

    def listen(self, listener: Callable[[str, Handoff], None]) -> None:
        """Be called with the event and the handoff at every step that this process takes."""
        self._crew.listeners.append(listener)

    def alerts(self) -> list[Alert]:
        """What people should look at."""
        return self.store.alerts()

    def recover(self) -> list[Step]:
        """Move what is due and take back what dead workers of this host held."""
        return recover.sweep(self._crew)

    async def work(self, stop: asyncio.Event | None = None, *, slots: int = 4) -> int:
        """Serve the agents of this relay until stopped; how many handoffs were taken."""
        return await worker.serve(self._crew, stop or asyncio.Event(), slots=slots)

    def result(self, workflow_id: str) -> Result:
        """What a workflow came to, or where it stands."""
        root = self._root(workflow_id)
        flow = self.store.workflow(workflow_id)
        listed = self.store.find(workflow_id=workflow_id, limit=100_000)
        line = [one for one in listed if one.line_id == root.id]
        tail = next((one for one in line if one.id == root.answer_id), line[-1])
        answer = self.store.returned(root.id) if root.answer_id else None
        status = _status(tail, answer)
        changed: Mapping[str, Any] = answer.context_updates.variables_changed if answer else {}
        return Result(
            workflow_id=workflow_id,
            conversation_id=root.conversation_id,
            status=status,
            output=answer.output if answer else None,
            error=answer.error if answer else "",
            state=merge(self._crew.state(tail.context.state_ref), changed),
            handoffs=tuple(one for one in listed if one.hop),
            tokens=flow.tokens_spent if flow else 0,
            answer=answer,
        )

    def _root(self, workflow_id: str) -> Handoff:
        flow = self.store.workflow(workflow_id)
        if flow is None:
            raise NotFound(f"workflow {workflow_id}: not in this store; `baton history` shows what is")
        return self.get(flow.root_id)

    def close(self) -> None:
        """Seal what was written, and close the store."""
        self._crew.write.close()
        if self.store.on_disk:
            with suppress(BatonError, OSError):
                self.audit.seal()
        self.store.close()

    async def aclose(self) -> None:
        """Close the agents and the store."""
        for agent in self._crew.agents.values():
            await agent.aclose()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _status(tail: Handoff, answer: Return | None) -> str:
    if tail.state in ENDED:
        return tail.status
    if tail.state in {State.WAITING, State.PARKED} and tail.state in OPEN:
        return tail.status
    return "running" if answer is None else tail.status
