"""What an agent can do, how much at once, and how far it may go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from baton.errors import Malformed
from baton.protocol import codec
from baton.protocol.limits import Autonomy
from baton.protocol.report_status import Reporting


class Profile(codec.Record, frozen=True, kw_only=True):
    """An agent as the others see it."""

    agent_id: str
    agent_name: str = ""
    specialization: str = ""
    description: str = ""
    capabilities: dict[str, float] | None = None  # None: nothing is said of them; empty: it has none
    examples: tuple[str, ...] = ()
    accepts_handoffs: bool = True
    max_concurrent_tasks: int | None = None
    max_execution_time: float | None = None
    autonomy_budget: Autonomy | None = None
    allowed_targets: tuple[str, ...] | None = None
    idempotent: bool = True
    writes: tuple[str, ...] = ()
    reports: Reporting | None = None  # None: its answers are plain

    def __post_init__(self) -> None:
        codec.name(self.agent_id, "agent_id")
        if not isinstance(self.abilities, Mapping):
            raise Malformed(f"capabilities: {self.abilities!r:.60} is not an object; write {{name: proficiency}}")
        for name, proficiency in self.abilities.items():
            codec.name(name, "capabilities")
            codec.bounded(proficiency, f"capabilities.{name}", 0, 1)
        codec.names(self.writes, "writes")
        codec.bounded(self.max_concurrent_tasks, "max_concurrent_tasks", 1)
        codec.bounded(self.max_execution_time, "max_execution_time", 0, codec.MAX_SECONDS)

    @property
    def abilities(self) -> Mapping[str, float]:
        """What it can do, and how well; nothing where nothing is said."""
        return {} if self.capabilities is None else self.capabilities


def as_capabilities(names: Mapping[str, float] | Iterable[str] | None) -> dict[str, float] | None:
    """A plain list of names is full proficiency in each."""
    if names is None:
        return None
    return dict(names) if isinstance(names, Mapping) else dict.fromkeys(codec.names(names, "capabilities"), 1.0)


_CAMEL = {"agentId": "agent_id", "agentName": "agent_name", "acceptsHandoffs": "accepts_handoffs"}


def read_profile(data: bytes | str) -> Profile:
    """Read a profile from outside, in either spelling."""
    document = codec.rename(codec.read_object(data, "profile"), _CAMEL, "profile")
    names = document.get("capabilities")
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        document["capabilities"] = as_capabilities(names)
    if isinstance(document.get("max_execution_time"), str):
        document["max_execution_time"] = codec.seconds(document["max_execution_time"], "max_execution_time")
    if isinstance(document.get("autonomy_budget"), int | float):
        document["autonomy_budget"] = {"max_tokens": document["autonomy_budget"]}
    return codec.convert(document, Profile, "profile")
