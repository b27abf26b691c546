"""What agents write to the shared variables, and who is written down as its author."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from baton import clock
from baton.errors import Malformed
from baton.protocol import codec
from baton.protocol.groups import Branch
from baton.protocol.secrets import redact_value
from baton.protocol.variables import (
    DECISIONS,
    Decision,
    Variables,
    Writer,
    apply,
    begin,
    changes,
    listed,
    overlay,
    part,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from baton.flow.crew import Crew
    from baton.protocol.handoff import Handoff
    from baton.protocol.results import Return

Decisions = list[dict[str, Any]]


def wrote(crew: Crew, agent: str, before: Variables, update: Mapping[str, Any]) -> tuple[Variables, Decisions]:
    """The variables after an agent's update, and the decisions in it."""
    update, decided = _stamped(crew, agent, before, redact_value(dict(update)))
    writer = Writer(agent, lambda: crew.writes(agent))
    return write(before, update, writer, crew.settings.reducers), decided


def begun(crew: Crew, request: Handoff, state: Mapping[str, Any] | None) -> Variables:
    """The variables of a new workflow: those of the program that starts it, and what a request says of its own."""
    said = dict(request.context.context_variables)
    if DECISIONS in said:
        told = [one.get("description", "") if isinstance(one, Mapping) else one for one in listed(said[DECISIONS])]
        said[DECISIONS] = _decided(crew, request.from_agent, told, ())
    given = redact_value({**said, **(state or {})})
    if DECISIONS in (state or {}):
        records = [one for one in listed(given[DECISIONS]) if isinstance(one, Mapping)]
        texts = [one for one in listed(given[DECISIONS]) if not isinstance(one, Mapping)]
        known = [codec.plain(codec.convert(one, Decision, DECISIONS)) for one in records]
        given[DECISIONS] = [*known, *_decided(crew, request.from_agent, texts, ())]
    return begin(given)


def seen(
    crew: Crew, whole: Variables, by: str, update: Mapping[str, Any], share: Iterable[str] | None = None
) -> Variables:
    """The variables as a part of the work sees them."""
    known = part(whole, share)
    return overlay(known, _stamped(crew, by, known, redact_value(dict(update)))[0], by) if update else known


def after(crew: Crew, handoff: Handoff, answer: Return) -> Variables:
    """The variables after a handoff; an answer of the first schema says only what it changed."""
    if answer.state_ref:
        return crew.variables(answer.state_ref)
    before, changed = crew.variables(handoff.context.state_ref), answer.context_updates.variables_changed
    return apply(before, changed, {}, {}) if changed else before


def branch(crew: Crew, made: Handoff, answer: Return) -> Branch:
    """What a part of the work changed."""
    changed = answer.context_updates.variables_changed
    makers: Mapping[str, str] = {}  # of the first schema: nobody's yet
    if answer.state_ref:
        whole = crew.variables(answer.state_ref)
        changed, makers = changes(crew.variables(made.context.state_ref), whole), whole.owners
    return Branch(
        agent=made.to_agent,
        began=made.timestamp,
        ended=answer.audit.completion_time or codec.to_time(crew.store.now()),
        group=made.broadcast_group_id,
        changed=changed,
        makers=makers,
    )


def _stamped(crew: Crew, agent: str, before: Variables, update: dict[str, Any]) -> tuple[dict[str, Any], Decisions]:
    """An update whose decisions carry number, author and time; those that stand there already are left out."""
    if DECISIONS not in update:
        return update, []
    decided = _decided(crew, agent, listed(update[DECISIONS]), before.values.get(DECISIONS, ()))
    return {**update, DECISIONS: decided}, decided


def _decided(crew: Crew, agent: str, given: Sequence[Any], known: Sequence[Any]) -> Decisions:
    now = codec.iso(crew.store.now())
    said = [one for one in given if one not in known]
    for one in said:
        if not isinstance(one, str) or not one.strip():
            raise Malformed(
                f"update.{DECISIONS}: {one!r:.60} is not a sentence; say what was decided as text, number, author and "
                "time are the supervisor's to write"
            )
    return [{"decision_id": clock.new_id(), "description": one, "made_by": agent, "timestamp": now} for one in said]
