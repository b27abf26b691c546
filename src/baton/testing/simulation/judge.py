"""What has to be so when a schedule is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baton.guards.breaker import subjects
from baton.lifecycle import State
from baton.stores.seal import seal
from baton.stores.verify import verify
from baton.testing.contracts.evidence import flaws

if TYPE_CHECKING:
    from collections.abc import Iterable

    from baton.flow.outcome import Result
    from baton.guards.base import Breaker
    from baton.protocol.handoff import Handoff
    from baton.stores.base import Store
    from baton.testing.simulation.history import History
    from baton.testing.simulation.workloads import Order, Stage
    from baton.testing.simulation.world import World

RESTS = (30, 60, 120, 240, 480, 600)  # seconds that a breaker may keep work waiting, as promised; the last one stays


def rest(handoffs: Iterable[Handoff], breakers: Iterable[Breaker], now: int) -> float:
    """In how many seconds the next of these works may go on that wait for an agent that failed; 0 where none does."""
    ends = {one.subject: 0.0 for one in breakers}
    for one in breakers:
        if one.opened_at is not None:
            promised = RESTS[min(one.opens, len(RESTS)) - 1]
            ends[one.subject] = max(ends[one.subject], (one.opened_at - now) / 1e6 + promised)
    waits = (one for one in handoffs if one.state in {State.OFFERED, State.REJECTED})
    left = (max(ends.get(subject, 0.0) for subject in subjects(one)) for one in waits)
    return min((one for one in left if one > 0), default=0.0)


def judge(world: World, store: Store, stage: Stage, history: History) -> None:
    """Every check of the table."""
    for name, check in CHECKS.items():
        if not world.over and (found := check(store, stage, history)):
            world.violate(f"{name}: {found}")


def _records(store: Store, stage: Stage, history: History) -> str:  # noqa: ARG001
    return "; ".join(flaws(store)[:3])


def _trail(store: Store, stage: Stage, history: History) -> str:  # noqa: ARG001
    seal(store)
    report = verify(store, deep=True)
    return "" if report.ok else str(report)


def _locks(store: Store, stage: Stage, history: History) -> str:  # noqa: ARG001
    return ", ".join(f"{one.path} by {one.owner[:8]}" for one in store.locks() if one.granted)


def _money(store: Store, stage: Stage, history: History) -> str:  # noqa: ARG001
    flows = [store.workflow(order.workflow) for order in stage.orders]
    return ", ".join(flow.id for flow in flows if flow and (flow.tokens_reserved or flow.cost_reserved))


def _histories(store: Store, stage: Stage, history: History) -> str:  # noqa: ARG001
    return "" if history.explained() else "no order of the calls explains all answers"


CHECKS = {
    "state and audit trail": _records,
    "sealed trail": _trail,
    "locks left": _locks,
    "money left aside": _money,
    "claim history": _histories,
}


def judge_result(world: World, stage: Stage, order: Order, result: Result) -> None:
    """Whether a completed run answers what was asked."""
    if result.status != "completed" or not order.expected or not stage.sincere:
        return
    said = str(result.output)
    if said not in order.expected and "says so" not in said:
        world.violate(f"{order.workflow}: completed with {said!r}, expected {' or '.join(order.expected)}")
