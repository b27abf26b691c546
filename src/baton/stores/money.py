"""What a plan sets aside, gives back and counts, in tokens and in millionths of money."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baton.errors import Fenced, Malformed
from baton.guards.base import ALLOW
from baton.guards.budget import overspent
from baton.lifecycle import State
from baton.protocol.limits import micro
from baton.stores.rows import replace

if TYPE_CHECKING:
    from baton.guards.base import Facts, Verdict
    from baton.protocol.limits import Limits
    from baton.stores.base import Step
    from baton.stores.change import Sums
    from baton.stores.plan import Plan
    from baton.stores.rows import Row


def without_own(facts: Facts, row: Row) -> Facts:
    """The facts without what is set aside for this very handoff."""
    if not (row.tokens_reserved or row.cost_reserved):
        return facts
    return replace(
        facts,
        tokens_reserved=facts.tokens_reserved - row.tokens_reserved,
        cost_reserved=facts.cost_reserved - row.cost_reserved,
    )


def with_sums(facts: Facts, sums: Sums | None) -> Facts:
    """The facts with what the same transaction has spent, set aside and given back before."""
    if sums is None:
        return facts
    return replace(
        facts,
        tokens_spent=facts.tokens_spent + sums.tokens_spent,
        tokens_reserved=facts.tokens_reserved + sums.tokens_reserved,
        cost_spent=facts.cost_spent + sums.cost_spent,
        cost_reserved=facts.cost_reserved + sums.cost_reserved,
    )


def reserve(plan: Plan, row: Row, verdict: Verdict) -> None:
    """Set aside what a claim was granted, instead of what was set aside before."""
    tokens, cost = verdict.reserve_tokens - row.tokens_reserved, verdict.reserve_cost - row.cost_reserved
    if tokens or cost:
        sums = plan.summed(row.handoff)
        sums.tokens_reserved += tokens
        sums.cost_reserved += cost


def settle(plan: Plan, step: Step, row: Row) -> tuple[int, int]:
    """Give back what was set aside; what was used beyond what was counted on the way."""
    tokens, cost = _uncounted(step, row)
    if row.tokens_reserved or row.cost_reserved or tokens or cost:
        sums = plan.summed(row.handoff)
        sums.tokens_reserved -= row.tokens_reserved
        sums.cost_reserved -= row.cost_reserved
        sums.tokens_spent += tokens
        sums.cost_spent += cost
    return tokens, cost


def _uncounted(step: Step, row: Row) -> tuple[int, int]:
    """What the work says that it used, beyond what was counted on the way."""
    if step.result is None:
        return 0, 0
    account = step.result.audit
    counted, paid = row.tokens_spent - row.tokens_before, row.cost_spent - row.cost_before
    return max(0, account.tokens_consumed - counted), max(0, (micro(account.cost) or 0) - paid)


def use(plan: Plan, step: Step, row: Row) -> None:
    """Count what was used for a step that is not taken: the claim goes on, and the tokens are gone."""
    tokens, cost = _uncounted(step, row)
    if tokens or cost:
        _count(plan, row, tokens, cost)


def _count(plan: Plan, row: Row, tokens: int, cost: int) -> Row:
    """Count tokens and money of work under way, first from what was set aside for it."""
    kept_tokens, kept_cost = min(row.tokens_reserved, tokens), min(row.cost_reserved, cost)
    sums = plan.summed(row.handoff)
    sums.tokens_reserved -= kept_tokens
    sums.cost_reserved -= kept_cost
    sums.tokens_spent += tokens
    sums.cost_spent += cost
    spent = replace(
        row,
        tokens_reserved=row.tokens_reserved - kept_tokens,
        cost_reserved=row.cost_reserved - kept_cost,
        tokens_spent=row.tokens_spent + tokens,
        cost_spent=row.cost_spent + cost,
    )
    plan.moved.append(spent)
    return spent


def spend(plan: Plan, handoff_id: str, epoch: int, tokens: int, cost: int, most: Limits | None = None) -> Verdict:
    """Count tokens and money; refused where the workflow, `most` or its own budget does not allow them."""
    if tokens < 0 or cost < 0:
        raise Malformed(f"spend: {tokens} tokens, {cost} of money; neither can be negative")
    row = plan.rows.row(handoff_id)
    flow = plan.rows.workflow(row.handoff.workflow_id)
    if flow is None or row.handoff.state is not State.CLAIMED or row.handoff.epoch != epoch:
        raise Fenced(f"handoff {handoff_id}: claim {epoch} is no longer current; stop working on it")
    spent = _count(plan, row, tokens, cost)
    more = tokens + spent.tokens_reserved - row.tokens_reserved, cost + spent.cost_reserved - row.cost_reserved
    used = flow.tokens_spent + flow.tokens_reserved + more[0], flow.cost_spent + flow.cost_reserved + more[1]
    own = (spent.tokens_spent, spent.cost_spent)
    return (
        overspent("this workflow", used, more, flow.limits, most)
        or overspent("this handoff", own, (tokens, cost), row.handoff.budget)
        or ALLOW
    )
