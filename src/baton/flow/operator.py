"""What the operator's `agents.toml` says, in force for one crew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from baton import config
from baton.protocol.registry import narrowed, read_registry

if TYPE_CHECKING:
    from pathlib import Path

    from baton.flow.crew import Crew
    from baton.protocol.profile import Profile
    from baton.protocol.registry import Registry


def read(path: str | Path) -> Registry:
    """Read and check a registry."""
    return read_registry(config.read_file(path), str(path))


def use(crew: Crew, path: str | Path) -> None:
    """Take routes, ladder, health checks and agents from a file; what it does not say stays as it was."""
    registry = read(path)
    settings = crew.settings
    crew.settings = msgspec.structs.replace(
        settings,
        registry=str(path),
        routes={**settings.routes, **registry.routes},
        escalation=registry.escalation or settings.escalation,
        health=registry.health or settings.health,
    )
    crew.described = registry.agents
    crew.rights.forget()
    crew.profiles |= {name: described(crew, profile) for name, profile in crew.profiles.items()}


def described(crew: Crew, profile: Profile) -> Profile:
    """A profile as the file lets it be."""
    return narrowed(profile, crew.described.get(profile.agent_id))


def enrol(crew: Crew) -> None:
    """Write the agents of the file into the store: new ones as they are, known ones as far as the file narrows them."""
    known = {row.profile.agent_id: row.profile for row in crew.store.agents()}
    for name, one in crew.described.items():
        profile = described(crew, known.get(name, one.profile))
        if profile != known.get(name):
            crew.store.register(profile)
