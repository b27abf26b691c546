"""Who could take a handoff instead of its receiver, and why the others are passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from baton import guards
from baton.guards import breaker, health
from baton.guards.approval import approved
from baton.protocol.audit import read_record
from baton.routing.matching import alternatives, passed_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from baton.flow.crew import Crew
    from baton.guards.base import Breaker
    from baton.protocol.audit import AuditRecord
    from baton.protocol.handoff import Handoff
    from baton.protocol.limits import Limits
    from baton.stores.base import AgentRow

TOLD = 8  # how many names a sentence holds


class Others(msgspec.Struct, frozen=True):
    """Who could take the work, best first, and who was looked at and why not."""

    able: tuple[str, ...] = ()
    passed: Mapping[str, str] = {}

    def told(self) -> str:
        """Those who were passed over, as the end of a sentence."""
        named = [f"{name} ({why})" for name, why in list(self.passed.items())[:TOLD]]
        more = len(self.passed) - len(named)
        said = ", ".join([*named, f"{more} more"] if more else named)
        return f"; passed over: {said}" if said else ""


def others(crew: Crew, handoff: Handoff, limits: Limits, trail: Iterable[AuditRecord]) -> Others:
    """Who could take the work instead and needs nobody's approval for it."""
    store = crew.store
    now, rows = store.now(), store.agents()
    profiles = [row.profile for row in rows]
    loads = {row.profile.agent_id: row.load for row in rows}
    gone = {**_away(rows), **_resting(store.breakers(), handoff, now)}
    tried = dict.fromkeys((record.to_agent for record in trail if record.to_agent != handoff.to_agent), "already tried")
    gone |= tried
    asked = guards.Facts(now)
    for row in profiles if limits.approve or limits.approve_risk else ():
        verdict = approved(msgspec.structs.replace(handoff, to_agent=row.agent_id), asked, limits)
        if verdict.kind != "allow":
            gone.setdefault(row.agent_id, "needs an approval")
    return Others(
        alternatives(handoff, profiles, crew.settings.routes, away=gone, loads=loads),
        {**tried, **passed_over(handoff, profiles, crew.settings.routes, gone, loads)},
    )


def trail(crew: Crew, handoff: Handoff) -> list[AuditRecord]:
    """What happened to a handoff so far."""
    return [read_record(entry.record) for entry in crew.store.audit(handoff_id=handoff.id)]


def _away(rows: Iterable[AgentRow]) -> dict[str, str]:
    return {row.profile.agent_id: health.said(row.health) for row in rows if not row.available}


def _resting(rows: Iterable[Breaker], handoff: Handoff, now: int) -> dict[str, str]:
    """The agents that a breaker, their own or that of the route to them, keeps from new work."""
    found = {}
    for row in rows:
        agent = row.subject.removeprefix("agent:").removeprefix(f"route:{handoff.from_agent}->")
        if agent != row.subject and breaker.state(row, now) == "open":
            found[agent] = f"breaker open: {row.failures} failures ({row.failure})"
    return found
