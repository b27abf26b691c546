"""What the work may cost: checked when a handoff is made, set aside when it is claimed.

What is left of a workflow is its limit less what was spent and what others have set aside. A handoff with its
own budget needs that. One without gets an equal share of what is left over the handoffs that may still come
and itself, so that the first cannot use up what the last one needs.
"""

from __future__ import annotations

from baton.guards.base import ALLOW, Facts, Verdict
from baton.protocol.handoff import HUMAN, Handoff
from baton.protocol.limits import MILLION, Budget, Limits, micro

_TO_COME = 5  # handoffs that may still come where no limit says how many


def left_tokens(facts: Facts, limits: Limits) -> int | None:
    """Tokens that nobody spent or set aside; None without a limit."""
    return None if limits.max_tokens is None else limits.max_tokens - facts.tokens_spent - facts.tokens_reserved


def left_cost(facts: Facts, limits: Limits) -> int | None:
    """Money, in millionths, that nobody spent or set aside; None without a limit."""
    allowed = micro(limits.max_cost)
    return None if allowed is None else allowed - facts.cost_spent - facts.cost_reserved


def affordable(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
    """Refuse a handoff when nothing is left, or less than its own budget."""
    if (limits.max_tokens is None and limits.max_cost is None) or handoff.to_agent == HUMAN:
        return ALLOW
    own_tokens, own_cost = _own(handoff)
    return (
        _short("tokens", own_tokens, left_tokens(facts, limits), facts, limits)
        or _short("cost", own_cost, left_cost(facts, limits), facts, limits)
        or ALLOW
    )


def reserve(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
    """Set aside what the work may use, or refuse when it is not there any more."""
    verdict = affordable(handoff, facts, limits)
    unlimited = handoff.budget is None and limits.max_tokens is None and limits.max_cost is None
    if verdict is not ALLOW or unlimited or handoff.to_agent == HUMAN:
        return verdict
    own_tokens, own_cost = _own(handoff)
    tokens = _share(own_tokens, left_tokens(facts, limits), facts, limits)
    cost = _share(own_cost, left_cost(facts, limits), facts, limits)
    return Verdict(reserve_tokens=tokens, reserve_cost=cost) if tokens or cost else ALLOW


def overspent(
    where: str, used: tuple[int, int], more: tuple[int, int], *allowed: Limits | Budget | None
) -> Verdict | None:
    """Why these tokens and this money, with the last `more` of them, are too much; None when they are not."""
    for most in allowed:
        ceilings = (most.max_tokens, micro(most.max_cost)) if most else ()
        for unit, limit, total, new in zip(("tokens", "cost"), ceilings, used, more, strict=False):
            if limit is not None and new > 0 and total > limit:
                hit = f"{_amount(unit, total)} used or set aside in {where}, {_amount(unit, limit)} allowed"
                cure = "stop with a partial result, or allow more"
                return _refusal(unit, hit, cure, f"at most {_amount(unit, limit)}")
    return None


def _own(handoff: Handoff) -> tuple[int | None, int | None]:
    if handoff.budget is None:
        return None, None
    return handoff.budget.max_tokens, micro(handoff.budget.max_cost)


def _share(own: int | None, left: int | None, facts: Facts, limits: Limits) -> int:
    if own is not None:
        return own
    if left is None:
        return 0
    to_come = _TO_COME if limits.max_handoffs is None else max(limits.max_handoffs - facts.handoffs, 0)
    return max(left // (to_come + 1), 1)


def _short(unit: str, own: int | None, left: int | None, facts: Facts, limits: Limits) -> Verdict | None:
    """Why this much is not there, if so. An own budget of 0 needs nothing, even where nothing is left."""
    if left is None or own == 0 or (left > 0 and (own is None or own <= left)):
        return None
    most = limits.max_tokens if unit == "tokens" else micro(limits.max_cost)
    aside = facts.tokens_reserved if unit == "tokens" else facts.cost_reserved
    held = f", {_amount(unit, aside)} set aside for work under way" if aside else ""
    there = f"{_amount(unit, max(left, 0))} of {_amount(unit, most or 0)} left in this workflow{held}"
    if own is None or left <= 0:
        cure = f"answer with what there is, or start it with a higher Limits(max_{unit}=…)"
        return _refusal(unit, there, cure, _amount(unit, 0))
    number = left if unit == "tokens" else left / MILLION
    cure = f"give it Budget(max_{unit}={number}) or less, or raise Limits.max_{unit}"
    hit = f"this handoff's own budget is {_amount(unit, own)}, with {there}"
    return _refusal(unit, hit, cure, f"at most {_amount(unit, left)}")


def _amount(unit: str, number: int) -> str:
    return f"{number} tokens" if unit == "tokens" else f"a cost of {number / MILLION}"


def _refusal(unit: str, hit: str, cure: str, allowed: str) -> Verdict:
    limit = f"max_{unit}"
    return Verdict("refuse", f"{limit}: {hit}; {cure}", "BudgetExceeded", limit, allowed)
