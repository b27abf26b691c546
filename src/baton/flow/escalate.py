"""Work that somebody could not decide goes up: who is next, the step that moves it there, and what was said below.

The same handoff moves, so its attempts, its budget, its priority and its deadline go on, and the epoch of its next
claim fences whoever had it. What each level said stands in the audit trail and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from baton import guards
from baton.flow.crew import within
from baton.guards import health
from baton.lifecycle import AUDIT_NAME, Event
from baton.protocol.audit import UP, Assessment, AuditRecord, assessments, read_record
from baton.protocol.codec import canonical
from baton.protocol.context import Message
from baton.protocol.handoff import HUMAN, SUPERVISOR
from baton.routing.ladder import Next, next_up
from baton.stores.base import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from baton.flow.crew import Crew
    from baton.protocol.handoff import Handoff
    from baton.protocol.limits import Limits
    from baton.stores.base import AgentRow, Store

replace = msgspec.structs.replace
DECIDES = "a person has to decide"


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Where a handoff goes when it goes up, and how it came to where it is."""

    next: Next
    ladder: bool = False  # whether there is one at all
    said: tuple[Assessment, ...] = ()  # by the levels below
    came_up: bool = False  # whether it is here to be decided
    too_risky: bool = False  # whether a guard turned it away for its risk
    last: str = ""  # the reason of its newest record
    due_at: int = 0  # until when the next one has to acknowledge it

    @property
    def is_agent(self) -> bool:
        """Whether the next one is an agent."""
        return self.next.to != HUMAN


NOWHERE = Way(next=Next(HUMAN))


def ahead(crew: Crew, handoff: Handoff) -> Way:
    """Who decides what the receiver of this handoff cannot, as things stand."""
    store, settings = crew.store, crew.settings
    trail = _trail(store, handoff)
    said = tuple(assessments(trail))
    flow = store.workflow(handoff.workflow_id)
    limits = within(flow.limits, settings.limits) if flow is not None else settings.limits
    ladder = settings.escalation if settings.handoffs else ()
    used, waiting = _edges(said), set()
    for head, parent in _above(store, handoff) if ladder else ():
        used += (head.type == "escalation") + _edges(tuple(assessments(_trail(store, parent))))
        waiting.add(parent.to_agent)
    asked = {record.to_agent for record in trail} | waiting
    closed = {name: why for name in ladder if (why := _closed(crew, handoff, store.agent(name), asked, limits))}
    newest = trail[-1] if trail else None
    return Way(
        next=next_up(ladder, handoff.to_agent, closed, used, limits.max_escalations),
        ladder=bool(ladder),
        said=said,
        came_up=bool(said) or handoff.type == "escalation",
        too_risky=newest is not None and newest.detail.get("limit") == "max_risk",
        last=newest.reason if newest else "",
        due_at=store.now() + int(limits.ack_seconds * 1e6),
    )


def to_person(way: Way, why: str = "") -> Way:
    """The same way, past all rungs."""
    return replace(way, next=Next(HUMAN, why, way.next.passed))


def step(handoff: Handoff, way: Way, reason: str, *, content: Any = None, **fields: Any) -> Step:
    """Move a handoff up: to the next rung, or where there is none, parked until a person decides."""
    if way.is_agent and handoff.attempt >= handoff.max_attempts:
        way = to_person(way, f"max_attempts {handoff.max_attempts} are used up")
    to = way.next.to
    up = {"from": handoff.to_agent, "to": to, "assessment": content, "passed_over": dict(way.next.passed)}
    detail = {UP: {key: value for key, value in up.items() if value not in (None, {})}}
    if to != HUMAN:
        fields |= {"event": Event.ESCALATE, "reason": reason, "to_agent": to, "due_at": way.due_at}
    else:
        fields |= {"event": Event.PARK, "reason": _in_words(handoff, way, reason)}
    return Step(id=handoff.id, rationale=reason, detail=detail, **fields)


def _in_words(handoff: Handoff, way: Way, reason: str) -> str:
    """For a person: what every level said, and why nobody else decides."""
    words = [f"{one.agent}: {one.reason:.300}" for one in way.said]
    words.append(f"{handoff.to_agent}: {reason:.300}" if words else reason)
    words += [f"{name} was passed over: {why}" for name, why in way.next.passed.items()]
    return "; ".join([*words, *filter(None, [way.next.why]), DECIDES])


def heard(crew: Crew, handoff: Handoff) -> list[Message]:
    """What was said before about work that came up, or that a person sent back, as messages, oldest first."""
    # Below the second claim nobody has said anything, and only the ladder says who may get work unclaimed.
    if handoff.epoch < 2 and handoff.to_agent not in crew.settings.escalation:
        return []
    messages = []
    for record in _trail(crew.store, handoff):
        if record.epoch >= handoff.epoch:
            break  # said after this claim began
        if UP in record.detail:
            messages += [_message(one) for one in assessments([record])]
        elif record.event_type == AUDIT_NAME[Event.REROUTE] and record.by != SUPERVISOR and record.reason:
            messages.append(Message("user", record.reason, name=record.by or HUMAN))
    return messages


def _message(said: Assessment) -> Message:
    found = said.content
    text = found if isinstance(found, str) else "" if found is None else canonical(found).decode()
    content = f"{said.reason}\n\n{text}" if text else said.reason
    if said.by == said.agent:
        return Message("assistant", content, name=said.agent)
    return Message("user", f"{said.agent}: {content}", name=said.by)


def _trail(store: Store, handoff: Handoff) -> list[AuditRecord]:
    return [read_record(entry.record) for entry in store.audit(handoff_id=handoff.id)] if handoff.id else []


def _edges(said: tuple[Assessment, ...]) -> int:
    return sum(one.to != HUMAN for one in said)


def _above(store: Store, handoff: Handoff) -> Iterator[tuple[Handoff, Handoff]]:
    """The first handoff of each line around this one, with the handoff that waits for its answer, nearest first."""
    one: Handoff | None = handoff
    while one is not None:
        head = one if one.line_id in {"", one.id} else store.get(one.line_id)
        one = store.get(head.parent_id) if head is not None and head.parent_id else None
        if head is not None and one is not None:
            yield head, one


def _closed(crew: Crew, handoff: Handoff, rung: AgentRow | None, asked: set[str], limits: Limits) -> str:
    """Why a rung does not get the work; empty where it does."""
    if rung is None:
        return "it is not registered"
    name = rung.profile.agent_id
    if name in asked:
        return "it was asked already"
    if not rung.available:
        return health.said(rung.health)
    # For the rung it is a handoff, also where the work began with the agent below.
    offered = replace(handoff, to_agent=name, hop=max(1, handoff.hop))
    facts = guards.Facts(crew.store.now(), target=rung.profile)
    verdict = guards.decide(guards.RUNG, offered, facts, limits)
    return "" if verdict.kind == "allow" else f"{verdict.limit}: {verdict.allowed}"
