"""Steps 5 and 6: take an offered handoff, or say why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from baton.flow import escalate
from baton.flow.crew import give_back
from baton.lifecycle import Event, State
from baton.protocol.handoff import SUPERVISOR
from baton.protocol.results import failed
from baton.stores.base import Grant, Step

if TYPE_CHECKING:
    from baton.flow.crew import Crew


async def take(crew: Crew, handoff_id: str = "", agents: tuple[str, ...] = ()) -> Grant:
    """Claim one handoff by id, or the next one for these agents."""
    claim = msgspec.structs.replace(crew.claim, id=handoff_id, agents=agents)
    grant = await crew.commit(
        lambda: crew.store.claim(claim, crew.judge_claim),
        lambda grant: give_back(crew, grant.handoff if grant.won else None),
    )
    if grant.won and grant.handoff is not None:
        crew.tell("accepted", grant.handoff)
    return grant


def answer(crew: Crew, grant: Grant) -> Step | None:
    """What follows from a claim that a guard did not let through; None where it only has to wait."""
    handoff, verdict = grant.handoff, grant.verdict
    if handoff is None or handoff.state is not State.OFFERED or verdict.error == "AtCapacity":
        return None
    if verdict.kind == "refuse":
        way = escalate.ahead(crew, handoff)
        if way.came_up and verdict.limit != "deadline":  # a person can still decide what was asked
            way = escalate.to_person(way)
            return escalate.step(handoff, way, verdict.reason, expect=State.OFFERED, by=SUPERVISOR)
        result = failed(f"{verdict.error}: {verdict.reason}", retryable=False)
        return Step(id=handoff.id, event=Event.FAIL, expect=State.OFFERED, reason=verdict.reason, result=result)
    if verdict.kind in {"reject", "escalate"}:
        return Step(
            id=handoff.id,
            event=Event.REJECT,
            expect=State.OFFERED,
            reason=verdict.reason,
            detail={"error": verdict.error, "limit": verdict.limit},
        )
    if verdict.kind == "ask":
        patience = crew.settings.limits.approval_seconds
        due = None if patience is None else crew.store.now() + int(patience * 1e6)
        return Step(id=handoff.id, event=Event.ASK, expect=State.OFFERED, reason=verdict.reason, due_at=due)
    return None
