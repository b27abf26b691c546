"""Relay: the one object that people hold. Its methods hand over to the steps in `flow`."""

from __future__ import annotations

import asyncio
import inspect
from concurrent import futures
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import msgspec

from baton.agents.python import FunctionAgent
from baton.agents.relay import RelayAgent
from baton.errors import BatonError, HandoffFailed, Malformed, NotFound, TimedOut, Undecided, UnknownAgent, named
from baton.flow import broadcast, escalate, offer, operator, outcome, prepare, recover, worker
from baton.flow.crew import Crew, settings_from, within
from baton.flow.desk import Desk
from baton.flow.outcome import Result
from baton.guards.complexity import classify
from baton.lifecycle import State
from baton.protocol import codec
from baton.protocol.codec import near
from baton.protocol.context import Context
from baton.protocol.fields import record
from baton.protocol.groups import Answers, as_sends
from baton.protocol.handoff import HUMAN, SUPERVISOR, USER, Handoff, ReturnProtocol
from baton.protocol.limits import TIERS, Limits, as_limits, tightest
from baton.protocol.options import (
    AskOptions,
    Duration,
    ProfileOptions,
    RequestOptions,
    RunOptions,
    SettingOptions,
    as_fields,
    as_profile,
    as_settings,
    as_variables,
    closed,
)
from baton.protocol.profile import Profile
from baton.protocol.results import Return, Send
from baton.stores import open_store
from baton.stores.base import Step
from baton.stores.holder import identity
from baton.stores.trail import AuditTrail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from baton.agents.base import Agent
    from baton.stores.base import Store


class Relay(Desk):
    """Agents around one store: hand work to them, and find it done once, in budget, approved and audited."""

    def __init__(
        self,
        url: str | Path | Store = ":memory:",
        *,
        limits: Limits | Mapping[str, Any] | None = None,
        handoffs: bool = True,
        independent: bool = False,
        durability: Literal["power", "process"] = "power",
        checkpoints: str | Path | None = None,
        **settings: Unpack[SettingOptions],
    ) -> None:
        """Open a store (a file, ":memory:" to keep nothing, or one of your own) and limit all work that begins here.

        `handoffs=False` keeps agents from handing on; `independent=True` lets one finish alone when its handoff is
        refused; `durability="process"` survives a crash of the program but not of the machine; `checkpoints` is the
        folder of the audit's checkpoints. Settings: lease, backoff, routes, delegation_timeout, sequence,
        escalation, reducers, roots, health, registry, telemetry.
        """
        closed(settings, SettingOptions, "Relay", "limits", "handoffs", "independent", "durability", "checkpoints")
        given = as_settings(settings)
        registry, hooks = given.pop("registry", None), given.pop("telemetry", ())
        most = as_limits(limits) or Limits()
        chosen = settings_from(given, limits=most, handoffs=handoffs, independent=independent)
        self.store = open_store(url, durability=durability) if isinstance(url, str | PathLike) else url
        self._crew = Crew(self.store, identity(), chosen)
        self._crew.entrust = lambda prepared: worker.entrust(self._crew, prepared)
        self._crew.run_line = lambda handoff: worker.run_line(self._crew, handoff)
        self._crew.gather = lambda offers, rule: broadcast.gather(self._crew, offers, rule)
        self._crew.agents[SUPERVISOR] = broadcast.Broadcaster()
        self._crew.profiles[SUPERVISOR] = Profile(agent_id=SUPERVISOR, description="asks several agents at once")
        self.audit = AuditTrail(self.store, checkpoints)
        self._crew.seal = self.audit.seal
        try:
            self.observe(*([hooks] if isinstance(hooks, str) else hooks))
            if registry is not None:
                self.read_registry(registry)
        except BaseException:
            self.store.close()
            raise

    def agent(self, name: str, **profile: Unpack[ProfileOptions]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function as an agent; it is called with a `Turn`, its docstring becomes the description.

        Profile: capabilities, description, examples, autonomy, allowed_targets, max_concurrent_tasks,
        max_execution_time, idempotent, writes, reports, accepts_handoffs, agent_name, specialization.
        """
        if not isinstance(name, str):
            raise Malformed('agent: write @relay.agent("its name"), with the name in parentheses')

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            profile.setdefault("description", (function.__doc__ or "").strip())
            self.add(name, FunctionAgent(function), **profile)
            return function

        return register

    def add(self, name: str, agent: Agent, **profile: Unpack[ProfileOptions]) -> None:
        """Register anything that can run a turn; a taken name is an error. The profile is that of `agent`."""
        if name in self._crew.agents or name in {HUMAN, USER}:
            raise Malformed(f"agent {name}: this name is taken; choose another")
        closed(profile, ProfileOptions, f"agent {name}")
        if (check := getattr(agent, "health", None)) is not None and not inspect.iscoroutinefunction(check):
            raise Malformed(f"agent {name}: its health is no `async def health(self)`; write it so, or rename it")
        described = operator.described(self._crew, Profile(agent_id=name, **as_profile(profile)))
        row = self.store.agent(name)
        if row is None or row.profile != described or not row.available:
            self.store.register(described)
        self._crew.agents[name] = agent
        self._crew.profiles[name] = described

    def nest(self, name: str, inner: Relay, entry: str, **profile: Unpack[ProfileOptions]) -> None:
        """Use another relay as one agent; `Command(graph=Command.PARENT)` in there moves control out here."""
        inner._crew.nested = True
        self.add(name, RelayAgent(inner, entry), **profile)

    async def run(
        self,
        to: str,
        task: str,
        *,
        wait: bool = True,
        timeout: Duration | None = None,
        **options: Unpack[RunOptions],
    ) -> Result:
        """Hand a task to an agent and wait for the answer; the same `workflow_id` attaches to that workflow.

        `timeout` is how long to wait, in seconds or as "5m": TimedOut after that, and the work stands where it is.
        `wait=False` returns at once. A workflow that fails raises the error that ended it, with `result`.

        Options: limits, state, on_failure ("fail", "retry", "escalate"), max_attempts, workflow_id,
        conversation_id, budget, complexity, priority, deadline, reason, goal, capabilities, risk, rationale, context,
        validation, return_protocol, audit, max_iterations, traceparent, from_agent.
        """
        patience = None if timeout is None else codec.seconds(timeout)
        first, taken = await self._begin(to, task, {**options}, take=wait)
        if not wait:
            return self.result(first.workflow_id)
        return await self._finished(first, patience, taken=taken)

    async def resume(self, workflow_id: str, *, timeout: Duration | None = None) -> Result:
        """Go on with a workflow whose process ended; raises Held when somebody else works on it."""
        patience = None if timeout is None else codec.seconds(timeout)
        recover.sweep(self._crew)
        first = self._root(workflow_id)
        left = self.store.find(workflow_id=workflow_id, state=State.OFFERED)
        self._crew.leave([one for one in left if broadcast.is_aside(one) and one.to_agent in self._crew.agents])
        return await self._finished(first, patience, attach=False)

    async def _begin(
        self, to: str, task: str, options: dict[str, Any], *, take: bool = True, **fixed: Any
    ) -> tuple[Handoff, bool]:
        closed(options, RunOptions, "relay.run")
        codec.name(to, "agent")
        limits = self._limits(as_limits(options.pop("limits", None)), options.pop("complexity", None), task)
        state, fields = as_variables(options.pop("state", None), "state"), {**as_fields(options), **fixed}
        known = to in self._crew.agents or (to == HUMAN and fixed.get("type") == "escalation")
        if not known and self.store.agent(to) is None:
            names = {*self._crew.agents, *(row.profile.agent_id for row in self.store.agents())}
            raise UnknownAgent(f"agent {to}: not registered; {near(to, names)}")
        prepared = prepare.begin(self._crew, prepare.request(to, task, **fields), limits, state)
        made, verdict, taken = await offer.make(self._crew, prepared, take=take)
        if verdict.kind == "refuse":
            raise named(verdict.error, verdict.reason)
        return made, taken

    def _limits(self, given: Limits | None, complexity: str | None = None, task: str = "") -> Limits:
        chosen = within(given, self._crew.settings.limits)
        if complexity is None:
            return chosen
        name = classify(codec.text(task, "task")) if complexity == "auto" else codec.text(complexity, "complexity")
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
                await self._crew.beside(first.workflow_id)
        except TimeoutError:
            said = "; ".join(self.waits_for(first.workflow_id))
            late = TimedOut(
                f"workflow {first.workflow_id}: not finished within {timeout:g} s: {said}; `relay.resume(…)`, or run() "
                "with this workflow_id, goes on with it"
            )
            late.result = self.result(first.workflow_id)
            raise late from None
        result = self.result(first.workflow_id)
        if result.status in {"completed", "running"}:
            return result
        # Only of the handoff that ended it: what a part of the work raised may long be dealt with.
        cause = self._crew.failures.pop(result.answer.handoff_id if result.answer else "", None)
        name, _, reason = result.error.partition(": ")
        error = named(name, reason) if name.isidentifier() and reason else None
        if error is None or type(error).__name__ != name:
            error = HandoffFailed(result.error or result.status)
        error.result = result
        raise error from cause

    def run_sync(
        self,
        to: str,
        task: str,
        *,
        wait: bool = True,
        timeout: Duration | None = None,
        **options: Unpack[RunOptions],
    ) -> Result:
        """`run` for programs without an event loop."""
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise Malformed("run_sync: an event loop runs here already; write `await relay.run(…)`")
        return asyncio.run(self.run(to, task, wait=wait, timeout=timeout, **options))

    async def stream(self, to: str, task: str, **options: Unpack[RunOptions]) -> AsyncIterator[tuple[str, Handoff]]:
        """`run`, told step by step: pairs of event and handoff; the last one is ("end", root).

        Beside the steps of the work there are "waits" (`waits_for` says for what) and "progress".
        """
        queue: asyncio.Queue[tuple[str, Handoff] | None] = asyncio.Queue()
        first, _ = await self._begin(to, task, {**options}, take=False)

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

    async def delegate(
        self, to: str, task: str, *, from_agent: str, timeout: Duration = 600.0, **options: Unpack[RequestOptions]
    ) -> Return:
        """One task for one agent, outside of any workflow of yours; its answer, also when it failed.

        `timeout` is how long the answer may take. The options are those of `run`.
        """
        within = {"return_protocol": ReturnProtocol(expected=True, timeout=codec.seconds(timeout)), **options}
        first, taken = await self._begin(to, task, {"from_agent": from_agent, **within}, type="delegation")
        return await worker.answered(self._crew, first, taken=taken)

    async def escalate(
        self, task: str, *, from_agent: str, timeout: Duration = 600.0, **options: Unpack[RequestOptions]
    ) -> Return:
        """Ask whoever is next up from an agent or program (in the end a person) for a decision; the answer.

        `rationale=` says why it cannot be decided there, and is required. `timeout` is how long each level may take
        before the next one is asked. The options are those of `run`.
        """
        upwards = ReturnProtocol(
            expected=True, timeout=codec.seconds(timeout), on_timeout="escalate", on_failure="escalate"
        )
        given: dict[str, Any] = {"from_agent": from_agent, "return_protocol": upwards, **options}
        audit = as_fields({name: given[name] for name in ("audit", "risk") if name in given})
        to = escalate.ahead(self._crew, prepare.request(from_agent, task, **audit)).next.to
        first, taken = await self._begin(to, task, given, type="escalation")
        return await worker.answered(self._crew, first, taken=taken)

    async def broadcast(
        self, to: Sequence[str | Send], task: str, *, from_agent: str = USER, **options: Unpack[AskOptions]
    ) -> Answers:
        """One task for several agents at once, or each its own with `Send`; what their answers come to.

        `aggregate`, `field` and `visible` are those of `turn.broadcast`, `timeout` is how long an answer may take, and
        the other options are those of `run`.
        """
        closed(options, AskOptions, "relay.broadcast")
        given: dict[str, Any] = {**options}
        asked = {name: given.pop(name) for name in broadcast.HOW if name in given}
        asked["to"] = [codec.plain(one) for one in as_sends(to, task)]
        context = record(given.pop("context", None) or Context(), Context, "context")
        given["context"] = msgspec.structs.replace(context, metadata={**context.metadata, prepare.ASKED: asked})
        if self.store.agent(SUPERVISOR) is None:
            self.store.register(self._crew.profiles[SUPERVISOR])
        first, taken = await self._begin(SUPERVISOR, task, {"from_agent": from_agent, **given})
        try:
            result = await self._finished(first, None, taken=taken)
        except Undecided as error:
            error.result = codec.convert(self.result(first.workflow_id).output, Answers, "answers")
            raise
        return codec.convert(result.output, Answers, "answers")

    def hand_off(self, request: Handoff, *, limits: Limits | Mapping[str, Any] | None = None) -> Handoff:
        """Offer work without waiting; a worker of the receiver takes it."""
        prepared = prepare.begin(self._crew, record(request, Handoff, "request"), self._limits(as_limits(limits)))
        made, verdict = self.store.offer(prepared, self._crew.judge_offer)
        if made.id == prepared.handoff.id:
            self._crew.tell("initiated", made)
        if verdict.kind == "refuse":
            raise named(verdict.error, verdict.reason)
        self._crew.hub.notify()
        return made

    @property
    def handoffs(self) -> bool:
        """Whether agents may hand work on; else each finishes alone."""
        return self._crew.settings.handoffs

    @handoffs.setter
    def handoffs(self, allowed: bool) -> None:
        self._crew.settings = msgspec.structs.replace(self._crew.settings, handoffs=allowed)

    @property
    def names(self) -> tuple[str, ...]:
        """The agents that this process can run."""
        return tuple(sorted(self._crew.agents.keys() - {SUPERVISOR}))

    def listen(self, listener: Callable[[str, Handoff], None]) -> None:
        """Be called with the event and the handoff at every step that this process takes."""
        self._crew.listeners.append(listener)

    def recover(self) -> list[Step]:
        """Move what is due and take back what dead workers of this host held."""
        return recover.sweep(self._crew)

    async def work(self, stop: asyncio.Event | None = None, *, slots: int = 4) -> int:
        """Serve the agents of this relay until stopped; how many handoffs were taken."""
        return await worker.serve(self._crew, stop or asyncio.Event(), slots=slots)

    def result(self, workflow_id: str) -> Result:
        """What a workflow came to, or where it stands."""
        return outcome.result(self._crew, self._root(workflow_id))

    def _root(self, workflow_id: str) -> Handoff:
        flow = self.store.workflow(workflow_id)
        if flow is None:
            raise NotFound(f"workflow {workflow_id}: not in this store; `baton history` shows what is")
        return self.get(flow.root_id)

    def close(self) -> None:
        """Seal what was written, and close the store; waits for cancelled functions that still run in threads."""
        futures.wait([ended for _, ended in self._crew.outlasting.values()])
        self._crew.write.close()
        if self.store.on_disk:
            with suppress(BatonError, OSError):
                self.audit.seal()
        self.store.close()

    async def aclose(self) -> None:
        """Close the agents and the store."""
        for agent in self._crew.agents.values():
            await agent.aclose()
        going_on = [asyncio.wrap_future(ended) for _, ended in self._crew.outlasting.values()]
        await asyncio.gather(*going_on, return_exceptions=True)
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
