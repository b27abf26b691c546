"""What an agent can do, how much at once, and how far it may go."""

from __future__ import annotations

import msgspec

from baton.errors import Malformed
from baton.protocol.limits import Autonomy


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An agent as the others see it."""

    agent_id: str
    agent_name: str = ""
    specialization: str = ""
    description: str = ""
    capabilities: dict[str, float] = {}
    examples: tuple[str, ...] = ()
    accepts_handoffs: bool = True
    max_concurrent_tasks: int | None = None
    max_execution_time: float | None = None
    autonomy_budget: Autonomy | None = None
    allowed_targets: tuple[str, ...] | None = None
    idempotent: bool = True

    def __post_init__(self) -> None:
        if not self.agent_id or not self.agent_id.isprintable() or len(self.agent_id) > 200:  # noqa: PLR2004
            raise Malformed(f"agent id {self.agent_id!r}: use 1 to 200 printable characters")
        for name, proficiency in self.capabilities.items():
            if not 0.0 <= proficiency <= 1.0:
                raise Malformed(f"capabilities.{name}: proficiency {proficiency} is not between 0 and 1")
        if self.max_concurrent_tasks is not None and self.max_concurrent_tasks < 1:
            raise Malformed(f"max_concurrent_tasks: {self.max_concurrent_tasks}; use at least 1, or None for no limit")


def as_capabilities(names: dict[str, float] | list[str] | tuple[str, ...] | None) -> dict[str, float]:
    """A plain list of names is full proficiency in each."""
    if names is None:
        return {}
    return dict(names) if isinstance(names, dict) else dict.fromkeys(names, 1.0)
