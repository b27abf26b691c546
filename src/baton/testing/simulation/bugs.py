"""Faults planted in the product's own code: a simulation that does not find each of them proves nothing.

Each is a small change of one function, made for as long as the block runs. `planted("no fence")` plants one, and
`found` says which seed shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import msgspec

from baton import clock
from baton.flow import recover
from baton.guards.capacity import has_capacity
from baton.guards.limits import attempts
from baton.lifecycle import ENDED, Event, State
from baton.stores.base import Step
from baton.stores.change import Change
from baton.stores.holder import life
from baton.testing.simulation.schedule import Outcome, simulate

replace = msgspec.structs.replace
Original = Callable[..., Any]


Plant = Callable[[Any], Any]  # what stands there instead, made from what stood there


def _no_fence(advance: Original) -> Original:
    def planted(plan: Any, step: Any, *more: Any) -> Any:
        current = plan.rows.row(step.id).handoff
        stale = step.epoch is not None and current.state is State.CLAIMED and step.epoch != current.epoch
        return advance(plan, replace(step, epoch=None) if stale else step, *more)

    return planted


def _own_clock(due: Original) -> Original:
    def planted(crew: Any) -> Any:
        now, store = clock.now(), crew.store
        held = [one for one in store.find(state=State.CLAIMED) if one.id not in crew.running]
        over = [one for one in held if (store.timers(one.id)[0] or now) < now and life(one.holder) != "alive"]
        seen = [recover.Facts(now=now, lease_until=store.timers(one.id)[0]) for one in over]
        return [*due(crew), *(recover.reclaim(*both, "its lease is over") for both in zip(over, seen, strict=True))]

    return planted


def _record_afterwards(_: Original) -> Original:
    def planted(store: Any, step: Any, *more: Any) -> Any:
        with store.transaction():
            plan, moved = store._planned(lambda plan: plan.advance(step, *more))  # noqa: SLF001 - as it is done there
            records, plan.audit = plan.audit, []
            store.write(plan)
        with store.transaction():
            store.write(Change(audit=records))
        if plan.late is not None:
            raise plan.late
        return moved

    return planted


def _never_look(_: Original) -> Original:
    async def planted(*_: Any) -> None:
        return None

    return planted


def _wait_for_nothing(_: Original) -> Original:
    async def planted(*_: Any) -> bool:
        await asyncio.sleep(0.0005)
        return True

    return planted


def _judge_before(claim: Original) -> Original:
    known: dict[str, Any] = {}

    def planted(store: Any, asked: Any, decide: Any) -> Any:
        def early(handoff: Any, facts: Any, limits: Any) -> Any:
            spent = (facts.tokens_spent, facts.tokens_reserved)
            before = known.setdefault(handoff.workflow_id, spent)
            return decide(handoff, replace(facts, tokens_spent=before[0], tokens_reserved=before[1]), limits)

        return claim(store, asked, early)

    return planted


def _nothing(_: Original) -> Original:
    return lambda *_, **__: None


def _try_for_ever(reclaim: Original) -> Original:
    return lambda handoff, *more: reclaim(replace(handoff, max_attempts=1000), *more)


def _grant_nothing(_: Original) -> Original:
    def planted(desk: Any, handoff_id: str, to_agent: str, *, by: str = "", reason: str = "") -> Any:
        due = desk.store.now() + 30_000_000
        return desk._apply(  # noqa: SLF001 - as it is done there
            Step(id=handoff_id, event=Event.REROUTE, by=by, reason=reason, to_agent=to_agent, due_at=due)
        )

    return planted


def _without(left_out: Original) -> Plant:
    return lambda guards: tuple(guard for guard in guards if guard is not left_out)


def _see_no_lock(_: Original) -> Original:
    return lambda *_, **__: []


def _keep_locks(write: Original) -> Original:
    def planted(store: Any, change: Any) -> None:
        change.freed = []
        write(store, change)

    return planted


def _slow_is_dead(_: Original) -> Original:
    return lambda *_: False


def _forget_parts(existing: Original) -> Original:
    def planted(store: Any, offer: Any) -> Any:
        return None if offer.handoff.part else existing(store, offer)

    return planted


def _apply_late(write_late: Original) -> Original:
    def planted(plan: Any, row: Any, step: Any) -> Any:
        moved = write_late(plan, row, step)
        if row.handoff.state in ENDED and step.result is not None:
            data = msgspec.json.encode(step.result)
            plan.moved[-1] = replace(plan.moved[-1], result=data)
        return moved

    return planted


def _claim_again(attempt: Original) -> Original:
    def planted(plan: Any, claim: Any, row: Any, decide: Any) -> Any:
        held = row.handoff.state is State.CLAIMED
        return (
            attempt(plan, claim, replace(row, handoff=replace(row.handoff, state=State.OFFERED)), decide)
            if (held)
            else attempt(plan, claim, row, decide)
        )

    return planted


def _keep_money(settle: Original) -> Original:
    def planted(plan: Any, step: Any, row: Any) -> Any:
        return settle(plan, step, replace(row, tokens_reserved=0, cost_reserved=0))

    return planted


def _sleep_on(due_step: Original) -> Original:
    return lambda handoff, facts: None if handoff.state is State.DEFERRED else due_step(handoff, facts)


def _rest_longer(cool_down: Original) -> Original:
    return lambda breaker: 20 * cool_down(breaker)


def _two_commits(apply: Original) -> Original:
    async def planted(crew: Any, step: Any) -> Any:
        if step.then is None or step.event is not Event.COMPLETE:
            return await apply(crew, step)
        moved = await apply(crew, replace(step, then=None))
        made, verdict = await crew.commit(lambda: crew.store.offer(step.then, crew.judge_offer), lambda _: None)
        return replace(moved, then=made, verdict=verdict)

    return planted


def _believe_in_life(_: Original) -> Original:
    return lambda _: "alive"


def _count_back(apply: Original) -> Original:
    def planted(plan: Any, step: Any, *more: Any) -> Any:
        return apply(plan, replace(step, uncount=True) if step.event is Event.RECLAIM else step, *more)

    return planted


def _both(name: str, plant: Plant) -> dict[str, Plant]:
    stores = ("baton.stores.memory:MemoryStore", "baton.stores.sqlite:SqliteStore")
    return {f"{store}.{name}": plant for store in stores}


BUGS: dict[str, dict[str, Plant]] = {  # what is wrong, and where it is planted
    "no fence": {"baton.stores.plan:Plan.advance": _no_fence},
    "lease in the time of the process": {"baton.flow.recover:_due": _own_clock},
    "audit record after the state": {"baton.stores.steps:Steps.advance": _record_afterwards},
    "lost wake-up": {"baton.stores.wake:Hub._look_out": _never_look},
    "a wait that keeps the processor busy": {"baton.stores.wake:Hub.changed": _wait_for_nothing},
    "budget checked before the transaction": {"baton.stores.steps:Steps.claim": _judge_before},
    "group not closed": {"baton.stores.groups:close": _nothing},
    "a person's word passes the attempts": {
        "baton.guards:CLAIM": _without(attempts),
        "baton.flow.desk:Desk.reroute": _grant_nothing,
    },
    "taken back for ever": {"baton.flow.recover:reclaim": _try_for_ever, "baton.guards:CLAIM": _without(attempts)},
    "capacity not asked for": {"baton.guards:CLAIM": _without(has_capacity)},
    "attempt of a dead owner not counted": {"baton.stores.plan:Plan.apply": _count_back},
    "locks keep nobody out": {"baton.stores.locking:blockers": _see_no_lock},
    "locks of the dead": _both("write", _keep_locks),
    "slow owner taken for dead": {"baton.flow.recover:_is_alive": _slow_is_dead},
    "dead owner taken for alive": {"baton.stores.holder:life": _believe_in_life},
    "delegation forgotten": _both("existing", _forget_parts),
    "late return applied": {"baton.stores.plan:Plan._write_late": _apply_late},
    "parts outlive their parent": {"baton.stores.plan:Plan._call_off": _nothing},
    "claimed twice": {"baton.stores.plan:Plan._try": _claim_again},
    "money never given back": {"baton.stores.money:settle": _keep_money},
    "deferred for ever": {"baton.flow.recover:due_step": _sleep_on},
    "a rest longer than promised": {"baton.guards.breaker:cool_down": _rest_longer},
    "end and next offer in two commits": {"baton.flow.finish:apply": _two_commits},
    "nobody told of parked work": {"baton.stores.plan:Plan._alert": _nothing},
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Have this bug in the product while the block runs."""
    with ExitStack() as stack:
        for place, plant in BUGS[name].items():
            module, _, path = place.partition(":")
            owner: Any = import_module(module)
            *above, last = path.split(".")
            for part in above:
                owner = getattr(owner, part)
            original = getattr(owner, last)
            setattr(owner, last, plant(original))
            stack.callback(setattr, owner, last, original)
        yield


def find(name: str, most: int, first: int = 1) -> Outcome | None:
    """The first schedule that shows a bug, among so many."""
    with planted(name):
        for seed in range(first, first + most):
            outcome = simulate(seed)
            if outcome.broken:
                return outcome
    return None
