"""What an operator writes in `agents.toml`: the agents, the routing map, the escalation ladder, the health checks.

The file and the program may both describe an agent. Then the narrower of the two counts: the file can take rights,
abilities and limits away from what the program says, and gives it none. What the program leaves open, and the texts,
are the file's; but the right to write what others made (`writes`) is never open: a program that does not give it, has
said no.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from baton.errors import Malformed
from baton.protocol import codec
from baton.protocol.handoff import HUMAN, SUPERVISOR, USER
from baton.protocol.limits import RISKS, Autonomy
from baton.protocol.profile import Profile, as_capabilities
from baton.protocol.toml import read_toml

TABLES = ("agents", "routes", "escalation", "health")
RESERVED = frozenset({HUMAN, USER, SUPERVISOR})


class HealthRules(codec.Record, frozen=True, kw_only=True):
    """How often agents are checked, how long a check may take, and how many failures in a row make one unavailable."""

    interval: float = 60.0
    timeout: float = 10.0
    threshold: int = 3

    def __post_init__(self) -> None:
        codec.bounded(self.interval, "health.interval", 1, codec.MAX_SECONDS)
        codec.bounded(self.timeout, "health.timeout", 0.001, codec.MAX_SECONDS)
        codec.bounded(self.threshold, "health.threshold", 1, 1000)


class Described(msgspec.Struct, frozen=True):
    """An agent as the file describes it, and which fields it names."""

    profile: Profile
    given: frozenset[str] = frozenset()


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """One `agents.toml`."""

    agents: Mapping[str, Described] = {}
    routes: Mapping[str, tuple[str, ...]] = {}
    escalation: tuple[str, ...] = ()
    health: HealthRules | None = None


def read_registry(data: bytes, file: str = "agents.toml") -> Registry:
    """Parse and check a registry; an error is one line that names the file, the place and the cure."""
    document = read_toml(data, file)
    for name in document.keys() - set(TABLES):
        raise Malformed(f"{file}: {codec.short(name)} is not a table; {codec.near(name, TABLES)}")
    listed = _table(document, "agents", file)
    agents = {name: _described(name, fields, file) for name, fields in listed.items()}
    routes = {name: _route(name, given, agents, file) for name, given in _table(document, "routes", file).items()}
    rules = _table(document, "health", file)
    for name in ("interval", "timeout"):
        if isinstance(rules.get(name), str):
            rules[name] = codec.seconds(rules[name], f"{file}: health.{name}")
    checks = _said(file, "health", lambda: codec.convert(rules, HealthRules, "health")) if rules else None
    ladder = _names(document.get("escalation", []), f"{file}: escalation")
    if HUMAN in ladder[:-1]:
        raise Malformed(f"{file}: escalation: {HUMAN} is the last step; move it to the end")
    _known([name for name in ladder if name != HUMAN], agents, f"{file}: escalation")
    return Registry(agents=agents, routes=routes, escalation=ladder, health=checks)


def as_rules(given: Any) -> HealthRules:
    """Accept an object of health checks, whose names are checked; None is the default."""
    if given is None or isinstance(given, HealthRules):
        return given or HealthRules()
    return codec.convert(dict(given) if isinstance(given, Mapping) else given, HealthRules, "health")


def narrowed(profile: Profile, described: Described | None) -> Profile:
    """A profile under what the file says of its agent: the narrower of both, and the file's texts."""
    if described is None:
        return profile
    file, given = described.profile, described.given
    said = {name: getattr(file, name) for name in given & {"agent_name", "specialization", "description", "examples"}}
    for name in given & {"max_concurrent_tasks", "max_execution_time"}:
        said[name] = _least(getattr(profile, name), getattr(file, name))
    for name in given & {"accepts_handoffs", "idempotent"}:
        said[name] = getattr(profile, name) and getattr(file, name)
    if file.capabilities is not None:
        said["capabilities"] = _abilities(profile.capabilities, file.capabilities)
    if "writes" in given:
        said["writes"] = tuple(one for one in profile.writes if one in file.writes)
    if file.allowed_targets is not None:
        own = profile.allowed_targets
        said["allowed_targets"] = tuple(one for one in file.allowed_targets if own is None or one in own)
    if file.autonomy_budget is not None:
        said["autonomy_budget"] = _smaller(profile.autonomy_budget, file.autonomy_budget)
    return msgspec.structs.replace(profile, **said)


def _table(document: dict[str, Any], name: str, file: str) -> dict[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise Malformed(f"{file}: {name}: expected a table, got {type(found).__name__}; write [{name}]")
    return dict(found)


def _described(name: str, fields: Any, file: str) -> Described:
    codec.name(name, f"{file}: [agents]")
    place = f"agents.{name}"
    if name in RESERVED:
        raise Malformed(f"{file}: {place}: this name is taken; choose another")
    if not isinstance(fields, dict):
        raise Malformed(f"{file}: {place}: expected a table; write [{place}]")
    if "agent_id" in fields:
        raise Malformed(f"{file}: {place}.agent_id: the name of the table is the name; leave it out")
    document = codec.rename(fields, {"autonomy": "autonomy_budget"}, f"{file}: {place}")
    given = frozenset(document)
    if isinstance(document.get("capabilities"), list):
        names = _names(document["capabilities"], f"{file}: {place}.capabilities")
        document["capabilities"] = as_capabilities(names)
    if isinstance(document.get("max_execution_time"), str):
        where = f"{file}: {place}.max_execution_time"
        document["max_execution_time"] = codec.seconds(document["max_execution_time"], where)
    if type(document.get("autonomy_budget")) is int:
        document["autonomy_budget"] = {"max_tokens": document["autonomy_budget"]}
    profile = _said(file, place, lambda: codec.convert({"agent_id": name, **document}, Profile, place))
    if profile.allowed_targets is not None:
        codec.names(profile.allowed_targets, f"{file}: {place}.allowed_targets")
    return Described(profile, given)


def _route(name: str, given: Any, agents: Mapping[str, Described], file: str) -> tuple[str, ...]:
    codec.name(name, f"{file}: [routes]")
    if name == "escalation":
        raise Malformed(f"{file}: routes.escalation: the ladder is no route; move it above the first table")
    place = f"{file}: routes.{name}"
    route = _names(given, place)
    if HUMAN in route:
        raise Malformed(f"{place}: {HUMAN} comes by itself when nobody is left; leave it out")
    _known(route, agents, place)
    return route


def _names(given: Any, place: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise Malformed(f'{place}: expected a list of names; write ["first", "second"]')
    found = codec.names(given, place)
    for one, times in Counter(found).items():
        if times > 1:
            raise Malformed(f"{place}: {one} stands twice; keep one")
    return found


def _known(names: Any, agents: Mapping[str, Described], place: str) -> None:
    for one in names:
        if one not in agents:
            raise Malformed(f"{place}: no table [agents.{one}]; add it, or {codec.near(one, agents)}")


def _said(file: str, table: str, read: Any) -> Any:
    """The fault of a record, with file and table before it."""
    try:
        return read()
    except Malformed as fault:
        where = file if str(fault).startswith(table) else f"{file}: {table}"
        raise Malformed(f"{where}: {fault}") from None


def _least(one: Any, other: Any) -> Any:
    return min((value for value in (one, other) if value is not None), default=None)


def _abilities(own: Mapping[str, float] | None, file: Mapping[str, float]) -> dict[str, float]:
    if own is None:
        return dict(file)
    return {name: min(much, own[name]) for name, much in file.items() if name in own}


def _smaller(own: Autonomy | None, file: Autonomy) -> Autonomy:
    if own is None:
        return file
    return Autonomy(
        max_risk=min(own.max_risk, file.max_risk, key=RISKS.index),
        max_tokens=_least(own.max_tokens, file.max_tokens),
        max_cost=_least(own.max_cost, file.max_cost),
        max_hops=_least(own.max_hops, file.max_hops),
    )
