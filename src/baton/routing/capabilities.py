"""How well an agent fits what the work needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from baton.protocol.handoff import Requirement
from baton.protocol.profile import Profile

_ORDER = ("all", "some", "none")


class Match(msgspec.Struct, frozen=True):
    """How much of what is required an agent has, what is missing, and how proficient it is on average."""

    level: Literal["all", "some", "none"]
    gap: tuple[str, ...]
    score: float


def match(required: Sequence[Requirement], agent: Profile) -> Match:
    """Compare requirements with one agent; where nothing is required, everybody has all of it."""
    if not required:
        return Match("all", (), 1.0)
    held = [agent.abilities.get(one.capability_id, -1.0) for one in required]
    gap = tuple(one.capability_id for one, has in zip(required, held, strict=True) if has < one.min_proficiency)
    fits = [has for one, has in zip(required, held, strict=True) if has >= one.min_proficiency]
    level: Literal["all", "some", "none"] = "all" if not gap else "some" if fits else "none"
    return Match(level, gap, sum(fits) / len(required))


def by_fit(required: Sequence[Requirement], agents: Iterable[Profile]) -> list[tuple[Profile, Match]]:
    """Agents that have at least something of what is required, the best first."""
    found = [(agent, match(required, agent)) for agent in agents]
    able = [(agent, fit) for agent, fit in found if fit.level != "none"]
    return sorted(able, key=lambda pair: (_ORDER.index(pair[1].level), -pair[1].score, pair[0].agent_id))
