"""Who is next up when somebody cannot decide: worker, reviewer, architect, and in the end a person.

A ladder is a list of names. An agent that stands on it goes to the next rung, any other agent to the first one. A
person is the last edge of every chain, whatever was counted before, also where no ladder names one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from baton.errors import Malformed
from baton.protocol.codec import names
from baton.protocol.handoff import HUMAN


class Next(NamedTuple):
    """Who gets the work, and why nobody nearer does."""

    to: str
    why: str = ""  # the limit, where it is the limit that makes a person the next one
    passed: Mapping[str, str] = {}  # the rungs that were passed over, and why


def as_ladder(given: Iterable[str]) -> tuple[str, ...]:
    """A ladder as configured: each name once, a person at the end or not named."""
    ladder = names(given, "escalation")
    if twice := sorted({name for name in ladder if ladder.count(name) > 1}):
        raise Malformed(f"escalation: {twice[0]} stands on the ladder twice; name each rung once")
    if HUMAN in ladder[:-1]:
        raise Malformed(f"escalation: {HUMAN} is always the last one; nobody stands above, so put it at the end")
    return ladder


def next_up(ladder: Sequence[str], agent: str, closed: Mapping[str, str], used: int, most: int | None) -> Next:
    """The first rung above the agent that is open. Of `most` edges in a chain the last one is a person's."""
    above = ladder[ladder.index(agent) + 1 :] if agent in ladder else ladder
    passed = {}
    for rung in above:
        if rung == HUMAN:
            break
        if rung in closed:
            passed[rung] = closed[rung]
            continue
        if most is not None and used + 1 >= most:
            return Next(HUMAN, f"max_escalations {most}: the last one goes to a person", passed)
        return Next(rung, "", passed)
    return Next(HUMAN, "", passed)
