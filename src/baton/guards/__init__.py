"""MAY it happen? Pure functions from a handoff and the facts to a verdict, in one visible order.

The order decides what is said when several rules object:

1. What ends the handoff comes before what sends it elsewhere: another agent would not cure a used-up limit.
   An unknown receiver comes first, for nothing can be said about it.
2. Counts come before loops and money, the cheapest and clearest before the rest.
3. Rights come before abilities: who may not have the work is not asked whether it could do it. A risk that is
   too high goes up to somebody else before anybody is rejected for other reasons.
4. The breaker is the last that rejects: a probe is granted only to work that nothing else holds up.
5. Approval is the very last: nobody is asked about what is refused anyway.

A claim asks again what may have changed while the handoff waited or was rerouted. Money is set aside last,
when nothing can stop the work any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from baton.guards.approval import approved
from baton.guards.autonomy import accepting, autonomy_suffices, hops, risk, target_allowed
from baton.guards.base import ALLOW, Breaker, Facts, Guard, Verdict
from baton.guards.breaker import rested
from baton.guards.budget import affordable, reserve
from baton.guards.capability import capable, registered
from baton.guards.capacity import has_capacity
from baton.guards.health import available
from baton.guards.limits import agents, attempts, deadline, depth, handoffs, seconds
from baton.guards.loops import loop
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits

OFFER: tuple[Guard, ...] = (
    registered,
    handoffs,
    agents,
    depth,
    seconds,
    deadline,
    loop,
    affordable,
    target_allowed,
    hops,
    autonomy_suffices,
    risk,
    accepting,
    capable,
    available,
    rested,
    approved,
)

CLAIM: tuple[Guard, ...] = (
    attempts,
    seconds,
    deadline,
    risk,
    approved,
    has_capacity,
    rested,
    reserve,
)


RUNG: tuple[Guard, ...] = (autonomy_suffices, risk, accepting)  # whom work may go up to; the claim asks all the rest


# Those who are asked together have what they need set aside at once, also those who wait for a person first.
GROUP: tuple[Guard, ...] = (*(guard for guard in OFFER if guard is not approved), reserve, approved)


def decide(guards: Iterable[Guard], handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
    """Ask the guards in order: the first objection wins; without one, all that was granted.

    Work that waits for a person keeps what was set aside for it.
    """
    granted = ALLOW
    for guard in guards:
        verdict = guard(handoff, facts, limits)
        if verdict is ALLOW:
            continue
        if verdict.kind != "allow":
            told, waits = (*granted.warnings, *verdict.warnings), verdict.kind == "ask"
            aside = (granted.reserve_tokens, granted.reserve_cost) if waits else (0, 0)
            return replace(verdict, warnings=told, reserve_tokens=aside[0], reserve_cost=aside[1])
        granted = replace(
            granted,
            warnings=(*granted.warnings, *verdict.warnings),
            reserve_tokens=granted.reserve_tokens + verdict.reserve_tokens,
            reserve_cost=granted.reserve_cost + verdict.reserve_cost,
            probe=granted.probe or verdict.probe,
        )
    return granted


__all__ = ["ALLOW", "CLAIM", "GROUP", "OFFER", "RUNG", "Breaker", "Facts", "Guard", "Verdict", "decide"]
