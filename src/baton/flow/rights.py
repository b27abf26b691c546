"""How far the agents of a handoff may go, as this process knows it and as it is registered: the narrower counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from baton.protocol.profile import Profile
from baton.protocol.registry import Described, narrowed

if TYPE_CHECKING:
    from baton.flow.crew import Crew
    from baton.guards.base import Facts

PLAIN = Profile(agent_id="plain")
RIGHTS = ("accepts_handoffs", "capabilities", "idempotent", "max_concurrent_tasks", "max_execution_time")


class Rights:
    """What one crew knows, worked out once for each pair of profiles."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._known: dict[str, tuple[Profile, Profile | None, Profile]] = {}  # as registered, as known here, of both
        self._weighed, self._limiting = -1, False  # of how many agents here it is known whether one is limited

    def forget(self) -> None:
        """Another file says what agents may do: nothing of before counts."""
        self._known.clear()
        self._weighed = -1

    def judged(self, facts: Facts) -> Facts:
        """The facts with both agents as far as this process, too, lets them go."""
        profiles = self._crew.profiles
        if len(profiles) != self._weighed:  # an agent is only ever added
            self._weighed = len(profiles)
            self._limiting = bool(self._crew.described) or any(map(_is_limited, profiles.values()))
        if not self._limiting:
            return facts
        sender, target = facts.sender, facts.target
        ours = sender and self._lesser(sender), target and self._lesser(target)
        if ours[0] is sender and ours[1] is target:
            return facts
        return msgspec.structs.replace(facts, sender=ours[0], target=ours[1])

    def _lesser(self, row: Profile) -> Profile:
        """The narrower of both: another process may have registered it wider."""
        name = row.agent_id
        own, known = self._crew.profiles.get(name), self._known.get(name)
        if known is None or known[0] is not row or known[1] is not own:
            lesser = narrowed(row, self._crew.described.get(name))
            if own is not None:
                given = {right for right in RIGHTS if getattr(own, right) != getattr(PLAIN, right)}
                said = own if lesser.capabilities is not None else msgspec.structs.replace(own, capabilities=None)
                lesser = narrowed(lesser, Described(said, frozenset(given)))  # what is not registered, nobody here adds
            known = self._known[name] = row, own, row if lesser == row else lesser
        return known[2]


def _is_limited(own: Profile) -> bool:
    return any(getattr(own, one) != getattr(PLAIN, one) for one in (*RIGHTS, "autonomy_budget", "allowed_targets"))
