"""Why work does not go on, and what lets it: said at once, not only when somebody runs out of patience."""

from __future__ import annotations

import logging
from shlex import quote
from typing import TYPE_CHECKING

from baton.errors import safe
from baton.guards.breaker import cool_down, state, subjects
from baton.lifecycle import AUDIT_NAME, OPEN, Event, State
from baton.protocol.audit import read_record
from baton.protocol.codec import to_microseconds, to_time
from baton.protocol.handoff import HUMAN, Handoff

if TYPE_CHECKING:
    from baton.flow.crew import Crew

logger = logging.getLogger("baton")


def announce(crew: Crew, handoff: Handoff, told: str = "") -> str:
    """Say what work waits for, once: `told` is what was said before, the answer what is said by now."""
    why = _person(crew, handoff) or _rest(crew, handoff)
    if not why and handoff.to_agent in crew.ill and handoff.state is State.OFFERED:
        why = _away(crew, handoff)
    if why and why != told:
        logger.warning("%s", safe(why))
        crew.tell("waits", handoff)
    return why or told


def reasons(crew: Crew, workflow_id: str) -> list[str]:
    """What the open work of a workflow waits for; where a part waits, its parent needs no line of its own."""
    found = crew.store.find(workflow_id=workflow_id, state=tuple(OPEN))
    parents = {one.parent_id for one in found}
    return [reason(crew, one) for one in found if one.id not in parents]


def reason(crew: Crew, handoff: Handoff) -> str:
    """What one open handoff waits for."""
    return _person(crew, handoff) or _rest(crew, handoff) or _away(crew, handoff) or _otherwise(crew, handoff)


def _person(crew: Crew, handoff: Handoff) -> str:
    who, number = f"{handoff.from_agent} → {handoff.to_agent}", handoff.id[:8]
    if handoff.state is State.WAITING:
        way = _way(crew, f"approve {number}", f'approve("{handoff.id}", by=…)')
        return f"{who} waits for a person: {way}"
    if handoff.state is State.OFFERED and handoff.to_agent == HUMAN:
        way = _way(crew, f"handoff return {number} --text …", f'give_back("{handoff.id}", "…", by=…)')
        what = f"{handoff.from_agent} asks {handoff.task[:200]!r}"
        return f"{what} and waits for a person: {way}"
    if handoff.state is State.PARKED:
        said = next((alert.text for alert in crew.store.alerts() if alert.subject == handoff.id), "")
        why = said.removesuffix("; a person has to decide")[:300]
        ways = _way(crew, f"handoff reroute {number} AGENT", f'reroute("{handoff.id}", "AGENT")')
        return f"{who} waits for a person: {f'{why}; ' if why else ''}{ways}, or return or cancel it"
    return ""


def _rest(crew: Crew, handoff: Handoff) -> str:
    """Whether the breaker of its receiver holds it up, and since what."""
    if handoff.state not in {State.OFFERED, State.REJECTED} or handoff.to_agent == HUMAN:
        return ""
    now, agent = crew.store.now(), handoff.to_agent
    rows = [row for row in crew.store.breakers() if row.subject in subjects(handoff) and state(row, now) == "open"]
    if not rows:
        return ""
    until = max((row.opened_at or 0) + cool_down(row) for row in rows)
    worst = max(rows, key=lambda row: row.failures)
    said = _last_failure(crew, handoff)
    cure = _way(crew, f"breaker reset {quote(agent)}", f'reset_breaker("{agent}")')
    return (
        f"{agent} rests until {to_time(until):%H:%M:%S} UTC after {worst.failures} failures "
        f"({said[:200] or worst.failure}); {cure} lets it work now"
    )


def _away(crew: Crew, handoff: Handoff) -> str:
    """Whether its receiver is not well, and since when."""
    if handoff.state not in {State.OFFERED, State.REJECTED} or handoff.to_agent == HUMAN:
        return ""
    row = crew.store.agent(handoff.to_agent)
    if row is None or row.available:
        return ""
    since = to_time(row.health.since or crew.store.now())
    why = f"{row.health.state} since {since:%H:%M:%S} UTC ({row.health.reason})"
    agent = handoff.to_agent
    ends = "a worker"
    if row.health.ill:  # a program that has no check any more would leave it so
        ends = _way(crew, f"agents reset {quote(agent)}", f'reset_health("{agent}")')
    return f"{agent} is {why} and gets no new work; a check that passes, or {ends}, ends that"


def _last_failure(crew: Crew, handoff: Handoff) -> str:
    """What went wrong with this work, or else with the last that its receiver failed at."""
    trail = [read_record(entry.record) for entry in crew.store.audit(handoff_id=handoff.id)]
    retried = [one.reason for one in trail if one.event_type == AUDIT_NAME[Event.RETRY]]
    if retried:
        return retried[-1]
    failed = crew.store.find(to_agent=handoff.to_agent, state=State.FAILED, newest=True, limit=1)
    answer = crew.store.returned(failed[0].id) if failed else None
    return answer.error if answer else ""


def _otherwise(crew: Crew, handoff: Handoff) -> str:
    agent = handoff.to_agent
    if handoff.state is State.DEFERRED and handoff.due_at is not None:
        left = max(0.0, (to_microseconds(handoff.due_at) - crew.store.now()) / 1e6)
        return f"{agent} goes on in {left:.0f} s (attempt {handoff.attempt} of {handoff.max_attempts} is over)"
    if handoff.state is State.OFFERED and agent not in crew.agents:
        return f"no worker of {agent} has taken it"
    return f"it stands at {agent} ({handoff.status})"


def _way(crew: Crew, verb: str, call: str) -> str:
    """What to type; only the program itself reaches a store that lives in its memory."""
    return f"`baton {verb} --store {quote(crew.store.url)}`" if crew.store.on_disk else f"`relay.{call}`"
