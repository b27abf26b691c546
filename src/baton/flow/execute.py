"""Step 7: let the agent work, inside its claim, its time and its budget."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from math import ceil, isfinite
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from baton.agents.base import shared
from baton.errors import (
    BatonError,
    BudgetExceeded,
    Fenced,
    HandoffFailed,
    HandoffsDisabled,
    Malformed,
    NotAuthorised,
    Refused,
)
from baton.flow.crew import Running
from baton.flow.locks import Hold, wanted
from baton.flow.prepare import delegate, scoped
from baton.guards.triggers import escalation
from baton.lifecycle import State
from baton.protocol import codec
from baton.protocol.context import DEFAULT_TRANSFER, Message, merge, newest_first, select, summary
from baton.protocol.handoff import HUMAN, Handoff, fingerprint
from baton.protocol.limits import MILLION
from baton.protocol.options import PartOptions, as_fields, as_variables, closed
from baton.protocol.results import Account, Command, Defer, Escalate, Reject, Return, Updates, as_return, failed
from baton.stores.base import LockRequest, Offer

if TYPE_CHECKING:
    from os import PathLike

    from baton.flow.crew import Crew


KEPT_FAILURES = 256
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
            self._state = shared(self._crew.state(self.handoff.context.state_ref))
        return self._state

    @property
    def messages(self) -> list[Message]:
        """The part of the conversation that crossed, oldest first."""
        if self._messages is None:
            context = self.handoff.context
            transfer = context.transfer or DEFAULT_TRANSFER[self.handoff.type]
            walk = newest_first(context.history_ref, self._crew.fetch)
            self._messages = select(walk, transfer)
            if transfer.transfer_mode == "summary" and (before := self._before(len(self._messages))):
                self._messages.insert(0, before)
        return self._messages

    def _before(self, crossed: int) -> Message | None:
        """A summary of the conversation up to the messages that crossed."""
        walk = newest_first(self.handoff.context.history_ref, self._crew.fetch)
        root = self._crew.store.get(self.handoff.root_id)
        return summary(islice(walk, crossed, None), root.task if root and root.id != self.handoff.id else "")

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
        return bool(self._running.lost)

    def progress(self, note: str) -> None:
        """Say what is going on."""
        self._running.note = note
        self._crew.tell("progress", self.handoff)

    async def charge(self, tokens: int = 0, cost: float = 0.0) -> None:
        """Count what the work used; raises BudgetExceeded when it cannot be afforded."""
        store, handoff, running = self._crew.store, self.handoff, self._running
        if type(tokens) is not int or not isfinite(cost):
            raise Malformed(f"charge: {tokens!r} tokens, {cost!r} of money; give a whole number and a finite amount")
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
        if not self._crew.settings.handoffs or self.alone:
            raise HandoffsDisabled(
                f"{self.handoff.to_agent} works alone: {self.alone or 'handoffs are off'}; answer yourself"
            )
        self._asked += 1
        key = key or f"{self._asked}:{codec.digest(codec.canonical([to, task]))[:16]}"
        given: dict[str, Any] = {"timeout": self._crew.settings.delegation_timeout, **options}
        update, share = as_variables(given.pop("update", {}), "update"), given.pop("share", None)
        child = delegate(self.handoff, to, task, key, **as_fields(given))
        seen = self.state.keys() if share is None else codec.names(share, "share")
        context, blobs = scoped(
            self.handoff, {**{name: self.state[name] for name in seen if name in self.state}, **update}, task
        )
        child = msgspec.structs.replace(child, context=context)
        answer = await self._crew.entrust(
            Offer(
                handoff=child,
                fingerprint=fingerprint(child),
                blobs=blobs,
                parent_epoch=self.handoff.epoch,
            )
        )
        updates = answer.context_updates
        if updates.variables_changed:
            self._running.gained = merge(self._running.gained, updates.variables_changed)
            self._state = shared(merge(self.state, updates.variables_changed))
        self._running.artifacts += updates.artifacts_produced
        return answer

    def lock(self, *paths: str | PathLike[str], shared: bool = False, timeout: float = 60.0) -> Hold:
        handoff = self.handoff
        request = LockRequest(owner=handoff.id, epoch=handoff.epoch, wanted=wanted(paths), shared=shared)
        return Hold(self._crew, request, timeout)

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


async def execute(crew: Crew, handoff: Handoff, task: asyncio.Task[Any] | None, alone: str = "") -> Any:
    """Run the agent in this task; an exception of its body is a failed return, a lost claim is Fenced."""
    running = Running(handoff.epoch, task)
    crew.running[handoff.id] = running
    turn = LiveTurn(crew, handoff, running, alone)
    try:
        value = await crew.agents[handoff.to_agent].run(turn)
        if running.escalated:
            return Escalate(running.escalated)
        if running.overspent and not (isinstance(value, Return) and value.status != "success"):
            return failed(f"BudgetExceeded: {running.overspent}", retryable=False)
        return _with_gains(value, running) if running.gained or running.artifacts else value
    except asyncio.CancelledError:
        if running.lost and running.task is not None:
            running.task.uncancel()
            raise Fenced(f"handoff {handoff.id}: {running.lost}") from None
        if running.task is None or running.task.cancelling():
            running.lost = "the work was called off"  # a thread of it can only be told
            raise
        return failed("CancelledError: raised by the agent itself; nobody called the work off")
    except Fenced:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an agent raises is its answer
        if running.escalated:
            return Escalate(running.escalated)
        crew.failures[handoff.id] = error
        if len(crew.failures) > KEPT_FAILURES:  # a worker has nobody who asks for the cause
            crew.failures.pop(next(iter(crew.failures)))
        name = type(error).__name__
        said = failed(f"{name}: {_told(error)}", retryable=not isinstance(error, Refused | HandoffFailed))
        return msgspec.structs.replace(said, audit=Account(notes=_place(error)))
    finally:
        crew.running.pop(handoff.id, None)


def _told(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an agent's own exception may not even tell what it is
        return "(it cannot say why)"


def _place(error: BaseException) -> str:
    """Where in the agent's own code it happened."""
    trace = error.__traceback__
    if trace is None or isinstance(error, BatonError):
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"at {PurePath(code.co_filename).name}:{trace.tb_lineno} in {code.co_name}"


def _with_gains(value: Any, running: Running) -> Any:
    """What the agent gave back, with what those changed to whom it delegated; its own word comes last."""
    if isinstance(value, Command):
        update, artifacts = merge(running.gained, value.update), (*running.artifacts, *value.artifacts)
        return msgspec.structs.replace(value, update=update, artifacts=artifacts)
    if isinstance(value, Reject | Defer | Escalate):
        return value
    answer = as_return(value)
    own = answer.context_updates
    updates = Updates(
        variables_changed=merge(running.gained, own.variables_changed),
        artifacts_produced=(*running.artifacts, *own.artifacts_produced),
    )
    return msgspec.structs.replace(answer, context_updates=updates)


def renew(crew: Crew) -> None:
    """Prolong every claim that this process works on."""
    lease = int(crew.settings.lease * 1e6)
    for handoff_id, running in list(crew.running.items()):
        crew.store.renew(handoff_id, running.epoch, lease)


def drop_lost(crew: Crew) -> None:
    """Cancel the work on every claim that is no longer ours."""
    for handoff_id, running in list(crew.running.items()):
        now = crew.store.get(handoff_id)
        ours = now is not None and now.state is State.CLAIMED and now.epoch == running.epoch
        if ours or running.lost:
            continue
        running.lost = f"the claim was lost ({now.status if now else 'gone'})"
        if running.task is not None:
            running.task.get_loop().call_soon_threadsafe(running.task.cancel)
