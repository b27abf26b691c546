"""Step 7: let the agent work, inside its claim, its time and its budget."""

from __future__ import annotations

import asyncio
from os import sep
from pathlib import PurePath
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import (
    BatonError,
    Contradiction,
    Fenced,
    HandoffFailed,
    Refused,
    Undecided,
    told,
)
from baton.flow.turn import LiveTurn
from baton.lifecycle import State
from baton.protocol.handoff import Handoff
from baton.protocol.limits import MILLION
from baton.protocol.results import (
    Account,
    Command,
    Defer,
    Escalate,
    Reject,
    Return,
    as_return,
    failed,
)

if TYPE_CHECKING:
    from baton.flow.crew import Crew, Running
    from baton.protocol.artifacts import Artifact


replace = msgspec.structs.replace
KEPT_FAILURES = 256
OURS = f"{PurePath(__file__).parents[1]}{sep}"


class Stopped(Exception):
    """The claim was lost while the agent worked; it was stopped before it answered."""


async def execute(crew: Crew, handoff: Handoff, running: Running, alone: str = "") -> Any:
    """Run the agent in this task; an exception of its body is a failed return, a lost claim is Fenced."""
    before = crew.running.get(handoff.id)
    if before is not None:  # nobody else would tell it, for its place is taken now
        _tell(before, f"the claim was lost (taken again as claim {handoff.epoch})")
    crew.running[handoff.id] = running
    turn = LiveTurn(crew, handoff, running, alone)
    try:
        if before is not None or crew.outlasting:
            await _alone(crew, handoff, before)
        work = _worked(crew, turn)
        return _given(running, await (work if crew.trace is None else crew.trace.work(handoff, work)))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError:
        if _is_called_off(handoff, running):
            raise
        return failed("CancelledError: raised by the agent itself; nobody called the work off")
    except BaseException as error:
        if isinstance(error, Fenced) and (running.lost or not _is_ours(crew, handoff)):
            raise
        return _raised(crew, handoff, running, error)
    finally:
        _ended(crew, handoff, running)


def _given(running: Running, value: Any) -> Any:
    """What the agent gave back, with what its turn came to besides."""
    if running.escalated:
        return Escalate(running.escalated)
    if running.overspent and not (isinstance(value, Return) and value.status != "success"):
        return failed(f"BudgetExceeded: {running.overspent}", retryable=False)
    value = _with_costs(value, running) if running.tokens or running.cost else value
    return _with_artifacts(value, running.artifacts) if running.artifacts else value


def _is_called_off(handoff: Handoff, running: Running) -> bool:
    """Whether others cancelled it, and not the agent itself; Stopped where that was because its claim is lost."""
    if running.told and running.task is not None:
        running.told = False
        if running.task.uncancel() <= running.pending:
            raise Stopped(f"handoff {handoff.id}: {running.lost}") from None
    if running.task is None or running.task.cancelling():
        running.lost = "the work was called off"  # a thread of it can only be told
        return True
    return False


def _raised(crew: Crew, handoff: Handoff, running: Running, error: BaseException) -> Any:
    """Whatever an agent raises is its answer."""
    if running.escalated or isinstance(error, Undecided):
        return Escalate(running.escalated or str(error))
    crew.failures[handoff.id] = error
    if len(crew.failures) > KEPT_FAILURES:  # a worker has nobody who asks for the cause
        crew.failures.pop(next(iter(crew.failures)))
    name = type(error).__name__
    # Parts of the work that contradict each other are not done again by a repetition: it gets their stored answers.
    again = not isinstance(error, Refused | HandoffFailed | Contradiction)
    said = failed(f"{name}: {told(error)}", retryable=again)
    return replace(said, audit=Account(notes=_place(error)))


def _ended(crew: Crew, handoff: Handoff, running: Running) -> None:
    running.ended = True
    if crew.running.get(handoff.id) is running:
        del crew.running[handoff.id]
    if running.told and running.task is not None:  # it heard that it should stop, and did something else
        running.task.uncancel()
    if running.over is not None:
        running.over.set_result(None)


async def _alone(crew: Crew, handoff: Handoff, before: Running | None) -> None:
    """Wait for an earlier attempt that does not stop although its claim is lost: nobody works beside it."""
    waits = [call for (name, _), (_, call) in crew.outlasting.items() if name == handoff.id]
    if before is not None:
        waits.append(before.end())
    if waits:
        await asyncio.wait([asyncio.wrap_future(one) for one in waits])


def _is_ours(crew: Crew, handoff: Handoff) -> bool:
    now = crew.store.get(handoff.id)
    return now is not None and now.state is State.CLAIMED and now.epoch == handoff.epoch


async def _worked(crew: Crew, turn: LiveTurn) -> Any:
    value = await crew.agents[turn.handoff.to_agent].run(turn)
    if not isinstance(value, Command) or isinstance(value.goto, str):
        return value
    return value if crew.leads_out(value) else await turn.spread(value)


def _place(error: BaseException) -> str:
    """Where in the agent's own code it happened."""
    trace = error.__traceback__
    if trace is None or isinstance(error, BatonError):
        return ""
    steps = [(frame.f_code, line) for frame, line in walk_tb(trace)]
    code, line = next((one for one in reversed(steps) if not one[0].co_filename.startswith(OURS)), steps[-1])
    return f"at {PurePath(code.co_filename).name}:{line} in {code.co_name}"


def _with_costs(value: Any, running: Running) -> Any:
    """What the agent gave back, with at least what it was charged on the way."""
    if isinstance(value, Command):
        return replace(value, tokens=max(value.tokens, running.tokens))
    if isinstance(value, Reject | Defer | Escalate):
        return value
    answer = as_return(value)
    account = answer.audit
    tokens, cost = max(account.tokens_consumed, running.tokens), max(account.cost, running.cost / MILLION)
    return replace(answer, audit=replace(account, tokens_consumed=tokens, cost=cost))


def _with_artifacts(value: Any, made: tuple[Artifact, ...]) -> Any:
    """What the agent gave back, with what those made to whom it delegated."""
    if isinstance(value, Command):
        return replace(value, artifacts=(*made, *value.artifacts))
    if isinstance(value, Reject | Defer | Escalate):
        return value
    answer = as_return(value)
    own = answer.context_updates
    updates = replace(own, artifacts_produced=(*made, *own.artifacts_produced))
    return replace(answer, context_updates=updates)


def renew(crew: Crew) -> None:
    """Prolong every claim that this process works on."""
    lease = int(crew.settings.lease * 1e6)
    for handoff_id, running in list(crew.running.items()):
        crew.store.renew(handoff_id, running.epoch, lease)
    for handoff, _ in list(crew.outlasting.values()):
        crew.store.renew(handoff.id, handoff.epoch, lease)


def drop_lost(crew: Crew) -> None:
    """Cancel the work on every claim that is no longer ours."""
    for handoff_id, running in list(crew.running.items()):
        now = crew.store.get(handoff_id)
        ours = now is not None and now.state is State.CLAIMED and now.epoch == running.epoch
        if not ours:
            _tell(running, f"the claim was lost ({now.status if now else 'gone'})")


def _tell(running: Running, why: str) -> None:
    """Let work know that it is of no use any more."""
    if running.task is None:
        running.lost = running.lost or why
    elif not running.lost:
        running.task.get_loop().call_soon_threadsafe(_stop, running, why)


def _stop(running: Running, why: str) -> None:
    """Cancel it while its body waits: once the body has ended, its task belongs to others."""
    if not running.ended and not running.lost and running.task is not None:
        running.lost, running.told = why, True
        running.task.cancel()
