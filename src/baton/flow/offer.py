"""Steps 3 and 4: let the guards judge a prepared handoff, and write it down as offered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from baton.flow.crew import give_back
from baton.lifecycle import State

if TYPE_CHECKING:
    from baton.flow.crew import Crew
    from baton.guards.base import Verdict
    from baton.protocol.handoff import Handoff
    from baton.stores.base import Offer


async def make(crew: Crew, offer: Offer, *, take: bool = True) -> tuple[Handoff, Verdict, bool]:
    """Offer a handoff and say so; the last value tells whether it was claimed for the caller at once."""
    if take and offer.handoff.to_agent in crew.agents:
        offer = msgspec.structs.replace(offer, take=crew.claim)
    handoff, verdict = await crew.commit(
        lambda: crew.store.offer(offer, crew.judge_offer, crew.judge_claim),
        lambda made: give_back(crew, made[0] if made[0].id == offer.handoff.id else None),
    )
    made = handoff.id == offer.handoff.id
    if made:
        crew.tell("initiated", handoff)
        if handoff.state is State.CLAIMED:
            crew.tell("accepted", handoff)
    return handoff, verdict, made and handoff.state is State.CLAIMED
