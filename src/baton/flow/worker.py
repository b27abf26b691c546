"""Runs the steps one after the other: one line of handoffs to its answer, or whatever is offered."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from baton.errors import Fenced, Held, IllegalTransition, NotFound, StoreError, named
from baton.flow import claim, execute, finish, health, offer, outcome, recover, waiting
from baton.flow.crew import Running, forget, give_back, objection
from baton.guards.base import Verdict
from baton.lifecycle import OPEN, State
from baton.protocol.audit import LATE
from baton.protocol.results import Command, Return, failed
from baton.stores import holder
from baton.stores.base import Grant, Offer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from baton.flow.crew import Crew
    from baton.protocol.handoff import Handoff
    from baton.stores.base import Moved

TICK = 0.5
SLICE = 0.001
PATIENCE = 3600.0
PRESENCE = 10.0  # how often a worker says that it is there

logger = logging.getLogger("baton")


async def run_line(crew: Crew, first: Handoff, *, attach: bool = True, taken: bool = False) -> Return:
    """Take a line of handoffs to its end, working where this process can and waiting where it cannot.

    `taken` says that the first one was claimed for this call when it was made.
    """
    with crew.write.caller():
        current: Handoff | None = await work(crew, first) if taken else first
        told = ""
        while True:
            if current is None or current.state is not State.OFFERED or current.to_agent not in crew.agents:
                current = _open(crew, first)
            if current is None:
                return outcome.answer(crew, first.line_id)
            if current.state is State.OFFERED and current.to_agent in crew.agents:
                current = await perform(crew, current)
                if current is not None and current.state is State.OFFERED:
                    told = waiting.announce(crew, current, told)
            else:
                if not attach:
                    _refuse_held(crew, current)
                told = waiting.announce(crew, current, told)
                current = await _wait(crew, current)


async def entrust(crew: Crew, prepared: Offer) -> tuple[Handoff, Return]:
    """Offer a part of the work and wait for its answer; a refusal is raised under its own name."""
    made, verdict, taken = await offer.make(crew, prepared)
    if verdict.kind == "refuse":
        raise named(verdict.error, objection(crew, verdict, made.to_agent))
    answer = await run_line(crew, made, taken=taken)
    ended = None if answer.success else crew.store.get(made.id)
    if ended is not None and ended.state is State.REFUSED:
        error, _, reason = answer.error.partition(": ")
        raise named(error, objection(crew, Verdict(error=error, reason=reason), made.to_agent))
    return made, answer


def _open(crew: Crew, first: Handoff) -> Handoff | None:
    """The handoff of the line on which the work stands now, or None when the line has its answer."""
    head = crew.store.get(first.line_id)
    if head is None:
        raise NotFound(f"handoff {first.line_id}: not in this store")
    if head.answer_id:
        return None
    if not head.ended:
        return head
    listed = crew.store.find(workflow_id=first.workflow_id, line_id=first.line_id, state=tuple(OPEN), limit=1)
    return listed[0] if listed else None


def _refuse_held(crew: Crew, current: Handoff) -> None:
    if current.state is State.CLAIMED and current.holder != crew.holder and holder.life(current.holder) != "dead":
        raise Held(
            f"workflow {current.workflow_id}: {holder.readable(current.holder)} works on it ({current.to_agent}, "
            f"claim {current.epoch}); wait for it, or stop that process first"
        )


async def _wait(crew: Crew, current: Handoff) -> Handoff | None:
    """Wait until a handoff that is not ours to do has moved."""

    def moved() -> bool:
        now = crew.store.get(current.id)
        return now is None or now.state is not current.state or now.epoch != current.epoch

    await crew.hub.changed(PATIENCE, moved)
    return crew.store.get(current.id)


async def perform(crew: Crew, offered: Handoff, alone: str = "") -> Handoff | None:
    """One handoff from claim to its step; the next one of its line, if this process may go on with it."""
    if offered.to_agent in crew.ill:
        await crew.hub.changed(TICK, lambda: False)
        return crew.store.get(offered.id)
    grant = await claim.take(crew, offered.id)
    if not grant.won or grant.handoff is None:
        if not await _objected(crew, grant) and grant.verdict.kind != "allow":
            await crew.hub.changed(TICK, lambda: False)
        return crew.store.get(offered.id)
    return await work(crew, grant.handoff, alone)


async def _objected(crew: Crew, grant: Grant) -> bool:
    """Write down what a guard said to a claim; not where the work only has to wait for its agent."""
    step = claim.answer(crew, grant)
    if step is None or grant.handoff is None:
        return False
    if grant.verdict.error == "BreakerOpen" and not recover.elsewhere(crew, grant.handoff):
        return False
    with suppress(IllegalTransition):
        await finish.apply(crew, step)
    return True


async def _next(crew: Crew, names: tuple[str, ...]) -> Grant:
    """The next work that may begin; an agent that is full or rests holds up no other."""
    names = tuple(name for name in names if name not in crew.ill) if crew.ill else names
    while names:
        grant = await claim.take(crew, agents=names)
        if grant.won or grant.handoff is None or await _objected(crew, grant):
            return grant
        busy = grant.handoff.to_agent
        names = tuple(name for name in names if name != busy)
    return Grant()


async def work(crew: Crew, taken: Handoff, alone: str = "") -> Handoff | None:
    """Execute a claimed handoff and commit what came of it."""
    alone = alone or ("" if crew.settings.handoffs else "handoffs are off")
    time, task = asyncio.get_running_loop().time, asyncio.current_task()
    since = 0.0
    while True:
        try:
            if time() - since > SLICE:  # other lines and timers get their turn between two hops
                await asyncio.sleep(0)
                since = time()
            moved = await _hop(crew, taken, task, alone)
        except (Fenced, execute.Stopped) as error:
            forget(crew, taken)
            crew.tell(LATE if isinstance(error, Fenced) else "stopped", taken)
            return None
        except BaseException as error:
            # Also a full disk: the work is not failed, it waits for a store that takes its answer.
            give_back(crew, taken, uncount=not (isinstance(error, GeneratorExit) or _by_itself(crew, error, task)))
            raise
        if moved.verdict.kind != "refuse":
            if moved.then is None or moved.then.state is not State.CLAIMED:
                return moved.then
            taken, alone = moved.then, ""
            continue
        if crew.settings.independent and not alone and moved.verdict.error not in {"BudgetExceeded", "ApprovalDenied"}:
            alone = objection(crew, moved.verdict, moved.then.to_agent if moved.then else "")
            continue
        await finish.apply(crew, finish.refused(crew, taken, moved))
        return None


def _by_itself(crew: Crew, error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether the agent of a worker cancelled its own task: nobody else does before the worker stops."""
    return isinstance(error, asyncio.CancelledError) and task in crew.busy


async def _hop(crew: Crew, taken: Handoff, task: asyncio.Task[Any] | None, alone: str) -> Moved:
    """One attempt, and the step that follows from it."""
    running = Running(taken.epoch, task)
    value = await execute.execute(crew, taken, running, alone)
    if isinstance(value, Command) and alone:
        error = f"HandoffsDisabled: {taken.to_agent} works alone ({alone}); answer without a Command"
        value = failed(error, retryable=False)
    try:
        return await finish.apply(crew, finish.settle(crew, taken, value, running))
    except (Fenced, StoreError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever cannot be stored is a failed answer
        result = failed(f"{type(error).__name__}: {error}", retryable=False)
        return await finish.apply(crew, finish.settle(crew, taken, result))


class Minder:
    """Looks after the claims and the due work of one event loop, however many runs it serves."""

    def __init__(self) -> None:
        self.users = 0
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.checks = health.Checks()

    async def mind(self, crew: Crew, every: float) -> None:
        """Renew leases and move what is due, until cancelled."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            late = loop.time() - renewed >= crew.settings.lease / 3
            if late:
                renewed = loop.time()
            _look_after(
                crew, execute.renew if late else None, recover.sweep, execute.drop_lost, self.checks.look, _seal
            )
            await asyncio.sleep(every)


def _seal(crew: Crew) -> None:
    if crew.store.on_disk:
        crew.seal()


def _look_after(crew: Crew, *duties: Callable[[Crew], object] | None) -> None:
    """Each duty by itself: what one cannot do, or a disk that is full for a moment, must not end the others."""
    for duty in filter(None, duties):
        try:
            duty(crew)
        except Exception:
            logger.exception("looking after %s failed; trying again", crew.store.url)


@asynccontextmanager
async def minded(crew: Crew, every: float = TICK) -> AsyncIterator[None]:
    """Renew leases and move what is due, as long as the block runs."""
    loop = asyncio.get_running_loop()
    every = min(every, crew.settings.lease / 5)
    minder = crew.minders.get(loop)
    if minder is None:
        minder = crew.minders[loop] = Minder()
    minder.users += 1

    def start() -> None:
        minder.task = loop.create_task(minder.mind(crew, every))

    if minder.users == 1:
        # Most runs are over before the first look: they pay for a timer, not for a task.
        minder.timer = loop.call_later(every, start)
    try:
        yield
    finally:
        minder.users -= 1
        if not minder.users:
            del crew.minders[loop]
            if minder.timer is not None:
                minder.timer.cancel()
            if minder.task is not None:
                minder.task.cancel()
                with suppress(asyncio.CancelledError):
                    await minder.task
            minder.checks.stop()


async def answered(crew: Crew, first: Handoff, *, taken: bool) -> Return:
    """The answer of a line of work that stands for itself, and the end of what it left beside."""
    async with minded(crew):
        answer = await run_line(crew, first, taken=taken)
        await crew.beside(first.workflow_id)
        return answer


async def serve(crew: Crew, stop: asyncio.Event, *, slots: int = 4) -> int:
    """Take whatever is offered to the agents of this process, until told to stop; how much was done."""
    names = tuple(sorted(crew.agents))
    crew.check_approve(crew.settings.limits)
    crew.check_routes()
    busy: set[asyncio.Task[object]] = set()
    loop = asyncio.get_running_loop()
    done, seen = 0, float("-inf")
    with crew.write.caller(slots):
        crew.serving += 1
        try:
            async with minded(crew):
                while not stop.is_set():
                    if loop.time() - seen >= PRESENCE:
                        crew.store.seen(names)
                        seen = loop.time()
                    grant = await _next(crew, names) if len(busy) < slots else Grant()
                    if grant.won and grant.handoff is not None:
                        done += 1
                        task: asyncio.Task[object] = asyncio.create_task(work(crew, grant.handoff))
                        for known in (busy, crew.busy):
                            known.add(task)
                            task.add_done_callback(known.discard)
                    elif grant.handoff is None:
                        await crew.hub.changed(TICK, stop.is_set)
        finally:
            crew.serving -= 1
            crew.busy -= busy
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
    return done
