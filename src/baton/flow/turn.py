"""What an agent holds while it works: its task, the shared state, and what it may ask of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from baton.agents.base import shared
from baton.errors import (
    ApprovalDenied,
    BudgetExceeded,
    HandoffFailed,
    HandoffsDisabled,
    Malformed,
    NotAuthorised,
    Refused,
)
from baton.flow import escalate
from baton.flow.crew import Running
from baton.flow.locks import Hold, in_progress, wanted
from baton.flow.prepare import authored, delegate, named, request_of, scoped
from baton.flow.variables import branch, seen, wrote
from baton.guards.triggers import escalation
from baton.protocol import codec
from baton.protocol.context import Blob, Context, Message
from baton.protocol.crossing import crossed
from baton.protocol.fields import truth, whole
from baton.protocol.groups import Aggregation, Gained, as_sends, combine
from baton.protocol.handoff import HUMAN, Handoff, fingerprint
from baton.protocol.limits import MAX_COST, MILLION
from baton.protocol.options import GroupOptions, PartOptions, as_fields, as_transfer, as_variables, closed
from baton.protocol.results import (
    Command,
    Return,
    Send,
    answer,
)
from baton.stores.base import LockRequest, Offer

if TYPE_CHECKING:
    from concurrent.futures import Future
    from os import PathLike

    from baton.flow.crew import Crew
    from baton.protocol.groups import Answers
    from baton.protocol.variables import Variables


replace = msgspec.structs.replace

WAYS = ("delegate", "broadcast", "escalate", "goto", HUMAN)  # what the key of a part may begin with
PATIENCE = 30 * 86400.0  # how long a person may take to answer


class LiveTurn:
    """One attempt at one handoff. See `baton.agents.base.Turn`."""

    def __init__(self, crew: Crew, handoff: Handoff, running: Running, alone: str = "") -> None:
        self.handoff = handoff
        self.alone = alone
        self._crew = crew
        self._running = running
        self._state: Mapping[str, Any] | None = None
        self._messages: list[Message] | None = None
        self._asked = 0

    @property
    def task(self) -> str:
        """What has to be done."""
        return self.handoff.task

    @property
    def state(self) -> Mapping[str, Any]:
        if self._state is None:
            self._state = shared(self._variables.values)
        return self._state

    @property
    def _variables(self) -> Variables:
        gained = self._running.gained
        return gained.variables if gained else self._crew.variables(self.handoff.context.state_ref)

    @property
    def files_in_progress(self) -> list[dict[str, str]]:
        """The files that agents of this workflow have locked now: path, owner and lock_type of each."""
        return in_progress(self._crew.store, self.handoff.workflow_id)

    @property
    def messages(self) -> list[Message]:
        """The part of the conversation that crossed, oldest first."""
        if self._messages is None:
            self._messages = crossed(
                self.handoff, self._crew.fetch, lambda: request_of(self._crew, self.handoff), self._heard
            )
        return self._messages

    @cached_property
    def _heard(self) -> list[Message]:
        return escalate.heard(self._crew, self.handoff)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.handoff.attempt

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt; give it to whatever the work does outside."""
        return self.handoff.idempotency_key

    @property
    def cancelled(self) -> bool:
        """Whether the claim was lost or the work was called off."""
        return bool(self._running.lost) or (self.handoff.id, self.handoff.epoch) in self._crew.outlasting

    def progress(self, note: str) -> None:
        """Say what is going on."""
        self._running.note = note
        self._crew.tell("progress", self.handoff)

    def outlast(self, call: Future[Any]) -> None:
        """Keep the claim until this call has ended, although the work was called off."""
        self._crew.outlasting[self.handoff.id, self.handoff.epoch] = (self.handoff, call)

    async def charge(self, tokens: int = 0, cost: float = 0.0) -> None:
        """Count what the work used; raises BudgetExceeded when it cannot be afforded."""
        store, handoff, running = self._crew.store, self.handoff, self._running
        given: tuple[Any, Any] = (tokens, cost)
        if None in given:
            raise Malformed("charge: None is no number; leave it out")
        whole(tokens, "charge.tokens")
        codec.bounded(cost, "charge.cost", 0, MAX_COST)
        spent = ceil(cost * MILLION)
        most = self._crew.settings.limits
        verdict = await self._crew.write(lambda: store.spend(handoff.id, handoff.epoch, tokens, spent, most))
        if verdict.kind != "allow":
            running.overspent = verdict.reason
            raise BudgetExceeded(verdict.reason)
        running.tokens, running.cost = running.tokens + tokens, running.cost + spent
        profile = self._crew.profiles[handoff.to_agent]
        if trigger := escalation(profile, handoff.audit.risk_level, running.tokens, running.cost):
            running.escalated = trigger.reason
            raise NotAuthorised(f"{trigger.reason}; a person has to decide how it goes on")

    async def delegate(self, to: str, task: str, *, key: str = "", **options: Unpack[PartOptions]) -> Return:
        closed(options, PartOptions, "turn.delegate")
        key = self._next_key("delegate", key, [to, task])
        child, blobs = self._part(to, task, key, options)
        made, answer = await self._crew.entrust(self._offer(child, blobs, options))
        self._gain([(made, answer)])
        return answer

    async def escalate(self, question: str, *, key: str = "", **options: Unpack[PartOptions]) -> Return:
        closed(options, PartOptions, "turn.escalate")
        key = self._next_key("escalate", key, ["escalate", question])
        given: dict[str, Any] = {"on_timeout": "escalate", "on_failure": "escalate", **options}
        to = escalate.ahead(self._crew, self.handoff).next.to
        try:
            offer = self._offer(*self._part(to, question, key, given, type="escalation"), given)
            made, answer = await self._crew.entrust(offer)
        except ApprovalDenied:
            raise
        except Refused:
            if to == HUMAN:
                raise
            # A guard keeps it from the next rung: the way to a person is never cut off.
            last = self._part(HUMAN, question, f"{HUMAN}:{key}", given, type="escalation")
            made, answer = await self._crew.entrust(self._offer(*last, given))
        self._gain([(made, answer)])
        return answer

    async def broadcast(
        self, to: Sequence[str | Send], task: str = "", *, key: str = "", **options: Unpack[GroupOptions]
    ) -> Answers:
        closed(options, GroupOptions, "turn.broadcast")
        sends = as_sends(to, task or self.task)
        key = self._next_key("broadcast", key, [[one.agent, one.task] for one in sends])
        return await self._together(key, sends, options)

    async def _together(self, key: str, sends: list[Send], options: Mapping[str, Any]) -> Answers:
        """Ask everybody under this key, and gain what they changed."""
        given: dict[str, Any] = {**options}
        mode, field = given.pop("aggregate", "all"), given.pop("field", "")
        visible = truth(given.pop("visible", False), "visible")
        rule = Aggregation(mode=mode, field=field, asked=sum(one.returns for one in sends))
        given["group"] = codec.digest(codec.canonical([self.handoff.id, key]))[:32]
        given["others"] = [one.agent for one in sends] if visible else []
        alike: dict[str, tuple[Context, list[Blob]]] = {}
        offers = [self._asked_too(one, f"{key}:{n}", given, rule, alike) for n, one in enumerate(sends, 1)]
        awaited, answers = await self._crew.gather(offers, rule)
        self._gain(list(zip(awaited, answers.answers, strict=True)))
        return answers

    def _asked_too(
        self,
        send: Send,
        key: str,
        options: Mapping[str, Any],
        rule: Aggregation,
        alike: dict[str, tuple[Context, list[Blob]]],
    ) -> Offer:
        """One of a group; those who get the same share one frozen context."""
        given = {**options}
        group, others = given.pop("group"), given.pop("others")
        if send.update:
            given["update"] = {**as_variables(given.get("update"), "update"), **send.update}
        context = None if send.update else alike.get(send.task)
        child, blobs = self._part(send.agent, send.task, key, given, type="broadcast", context=context)
        if not send.update:
            alike.setdefault(send.task, (child.context, blobs))
        if others:
            metadata = {**child.context.metadata, "asked_together": others}
            child = replace(child, context=replace(child.context, metadata=metadata))
        protocol = replace(child.return_protocol, expected=send.returns)
        counted = rule if send.returns else None
        return self._offer(
            replace(child, broadcast_group_id=group, aggregation=counted, return_protocol=protocol), blobs, given
        )

    def _next_key(self, way: str, key: str, asked: Any) -> str:
        """By what a part is remembered: each way to ask has keys of its own. Refused where this agent works alone."""
        self._refuse_alone()
        codec.text(key, "key")
        self._asked += 1
        if self._crew.trace is not None:
            self._crew.trace.due(self.handoff.id)
        key = key or f"{self._asked}:{codec.digest(codec.canonical(asked))[:16]}"
        plain = way == "delegate" and key.partition(":")[0] not in WAYS
        return key if plain else f"{way}:{key}"

    def _refuse_alone(self) -> None:
        if not self._crew.settings.handoffs or self.alone:
            raise HandoffsDisabled(
                f"{self.handoff.to_agent} works alone: {self.alone or 'handoffs are off'}; answer yourself"
            )

    def _part(
        self, to: str, task: str, key: str, options: Mapping[str, Any], **fields: Any
    ) -> tuple[Handoff, list[Blob]]:
        """A part of the work as a record, with what has to be stored for it."""
        given: dict[str, Any] = {"timeout": self._crew.settings.delegation_timeout, **options}
        update, share = as_variables(given.pop("update", {}), "update"), given.pop("share", None)
        known, transfer = fields.pop("context", None), given.pop("transfer", None)
        child = delegate(self.handoff, to, task, key, **as_fields(given), **fields)
        if known is None:
            names = None if share is None else codec.names(share, "share")
            view = seen(self._crew, self._variables, self.handoff.to_agent, update, names)
            known = scoped(self._crew, self.handoff, view, task, self._heard)
        if transfer is not None:
            known = replace(known[0], transfer=as_transfer(transfer)), known[1]
        return replace(child, context=known[0]), known[1]

    def _offer(self, child: Handoff, blobs: list[Blob], options: Mapping[str, Any]) -> Offer:
        if self._crew.trace is not None:
            child = self._crew.trace.prepared(child)
        return Offer(
            handoff=child,
            fingerprint=fingerprint(child),
            blobs=blobs,
            withheld=self._withheld(options),
            parent_epoch=self.handoff.epoch,
        )

    def _withheld(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The variables that a part does not see."""
        if (share := options.get("share")) is None:
            return ()
        return tuple(sorted(self.state.keys() - {*share, *options.get("update", ())}))

    def _gain(self, parts: Sequence[tuple[Handoff, Return]]) -> None:
        """What parts of the work changed is in the state of this turn, and goes on with what it gives back."""
        branches = [branch(self._crew, made, answer) for made, answer in parts]
        before = self._running.gained or Gained(self._variables)
        if any(one.changed for one in branches):
            self._running.gained = combine(before, branches, self._crew.settings.reducers)
            self._state = None
        for (_, said), one in zip(parts, branches, strict=True):
            self._running.artifacts += said.context_updates.artifacts_produced + named(one.changed, one.agent)

    async def spread(self, command: Command) -> Return:
        """A command that names several agents: all of them work, and their outputs are the answer."""
        agent = self.handoff.to_agent
        if command.update:
            gained = self._running.gained or Gained(self._variables)
            after, self._running.decided = wrote(self._crew, agent, gained.variables, command.update)
            self._running.gained, self._state = replace(gained, variables=after), None
        made = command.artifacts + named(command.update, agent)
        self._running.artifacts += authored(self._crew, self.handoff, made, self._running.artifacts)
        task = command.task or self.task
        self._refuse_alone()
        answers = await self._together("goto", as_sends(command.goto, task), {"reason": command.reason})
        given = answer(answers.output, status=answers.status, tokens=command.tokens)
        return given if answers.success else replace(given, error=answers.error)

    def lock(self, *paths: str | PathLike[str], shared: bool = False, timeout: float = 60.0) -> Hold:
        handoff = self.handoff
        request = LockRequest(
            owner=handoff.id, epoch=handoff.epoch, wanted=wanted(paths), shared=truth(shared, "shared")
        )
        return Hold(self._crew, request, codec.seconds(timeout))

    async def ask(self, question: str, *, to: str = HUMAN, key: str = "", **options: Unpack[PartOptions]) -> Any:
        closed(options, PartOptions, "turn.ask")
        if to == HUMAN:
            seconds = codec.seconds(options.setdefault("timeout", PATIENCE))
            # Nobody claims for a person, so that no time-out would run.
            options.setdefault("deadline", codec.to_time(self._crew.store.now() + int(seconds * 1e6)))
        answer = await self.delegate(to, question, key=key, **options)
        if not answer.success:
            raise HandoffFailed(f"{to} did not answer {question!r:.80}: {answer.error or answer.status}")
        return answer.output
