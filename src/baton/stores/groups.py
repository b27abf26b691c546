"""Several handoffs asked at once: made together or not at all, and closed by the answer that decides them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baton.guards.base import ALLOW, Verdict
from baton.lifecycle import Event, State
from baton.protocol.groups import tally
from baton.protocol.handoff import SUPERVISOR
from baton.protocol.results import failed
from baton.stores.base import Step
from baton.stores.rows import read_return, replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from baton.guards.base import Facts
    from baton.protocol.groups import Aggregation
    from baton.protocol.handoff import Handoff
    from baton.protocol.limits import Limits
    from baton.protocol.results import Return
    from baton.stores.base import Decide, Offer
    from baton.stores.plan import Plan

_OF_ALL = {"LimitExceeded", "BudgetExceeded", "UnknownAgent"}  # what one of them lacks, the group lacks


def offer_all(plan: Plan, offers: Sequence[Offer], decide: Decide) -> tuple[list[Handoff], Verdict]:
    """The handoffs of a group, with what each may use set aside; where it does not suffice, the one refused."""
    found = [plan.rows.existing(offer) for offer in offers]
    if (before := _refused_before(plan, found)) is not None:
        return before
    new = [offer for offer, existing in zip(offers, found, strict=True) if existing is None]
    if new and new[0].parent_epoch is not None:
        plan.hold(new[0].handoff.parent_id, new[0].parent_epoch)
    made: list[tuple[Offer, tuple[Facts, Limits], Verdict]] = []
    agents: dict[str, None] = {}
    tokens = cost = 0
    for offer in new:
        handoff = offer.handoff
        facts, limits = plan.rows.facts(handoff, plan.now, bytes.fromhex(offer.fingerprint))
        facts = replace(
            facts,
            handoffs=facts.handoffs + len(made),
            more=len(new) - len(made) - 1,
            agents=tuple(dict.fromkeys((*facts.agents, *agents))),
            tokens_reserved=facts.tokens_reserved + tokens,
            cost_reserved=facts.cost_reserved + cost,
        )
        verdict = decide(handoff, facts, limits)
        if verdict.kind == "refuse" and verdict.error in _OF_ALL:
            return [plan.make(offer, (facts, limits), verdict)], verdict
        made.append((offer, (facts, limits), verdict))
        agents[handoff.to_agent] = None
        tokens, cost = tokens + verdict.reserve_tokens, cost + verdict.reserve_cost
    fresh = iter([plan.make(*one) for one in made])
    return [existing or next(fresh) for existing in found], ALLOW


def _refused_before(plan: Plan, found: Sequence[Handoff | None]) -> tuple[list[Handoff], Verdict] | None:
    """Whom the limits refused, and with it the group: what is asked again after a crash gets the same answer."""
    for one in found:
        result = plan.rows.row(one.id).result if one is not None and one.state is State.REFUSED else None
        error, _, reason = read_return(result).error.partition(": ") if result else ("", "", "")
        if one is not None and error in _OF_ALL:
            return [one], Verdict("refuse", reason, error)
    return None


def close(plan: Plan, ended: Handoff, result: Return | None) -> None:
    """Call off the others of its group where this answer decides what all of them were asked for."""
    rule, group = ended.aggregation, ended.broadcast_group_id
    if rule is None or rule.mode == "all" or group in plan.closed:
        return
    answer = result or failed(ended.status)
    parent = plan.rows.row(ended.line_id).handoff.parent_id
    if rule.mode == "any":
        outcome = "success" if answer.success else ""
    else:
        outcome = _came_to(plan, ended, parent, answer, rule)
    if not outcome:
        return
    plan.closed.add(group)
    why = f"decided without it: {rule.mode} of {rule.asked}"
    if outcome == "undecided":
        why = f"no majority of {rule.asked} is possible any more"
    for part in plan.rows.parts(parent):
        row = plan.rows.row(part)
        one = row.handoff
        if one.broadcast_group_id == group and one.aggregation is not None and one.line_id != ended.line_id:
            loss = failed(f"Cancelled: {why}", retryable=False)
            step = Step(id=part, event=Event.CANCEL, by=SUPERVISOR, reason=why, result=loss)
            plan.apply(step, row, State.CANCELLED)


def _came_to(plan: Plan, ended: Handoff, parent: str, answer: Return, rule: Aggregation) -> str:
    known = dict(plan.rows.group_answers(parent, ended.broadcast_group_id))
    known[ended.line_id] = answer
    counted = [one for head, one in known.items() if plan.rows.row(head).handoff.aggregation is not None]
    return tally(rule, counted).status
