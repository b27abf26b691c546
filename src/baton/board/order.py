"""Which work starts now, and why the rest waits. Pure: the same items in any order get the same answer.

P0 comes first and alone: while one can start, or runs with a worker that is alive and not stuck, nothing lower is
started; what runs is not ended. Then P1, then P2; inside one, the table's priority, the time of the approval, the
path. Effort changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from baton.board.dispatch import Route, Routes
from baton.protocol import codec

SECOND = 1_000_000

Life = Literal["working", "waiting", "idle", "stuck", "unknown", "dead"]
Why = Literal["held", "no route", "never", "runs", "P0", "agents", "skill", "pace"]


class Candidate(msgspec.Struct, frozen=True):
    """An item that somebody would like to see started.

    `approved` is when a person said yes (microseconds), for an approval that still counts; None where there is none.
    `held` says why it cannot start for a reason that this module does not know, such as no tmux for a window.
    """

    path: str
    noun: str
    weight: int = 2
    approved: int | None = None
    held: str = ""

    def __post_init__(self) -> None:
        codec.bounded(self.weight, "weight", 0, 2)


class Running(msgspec.Struct, frozen=True):
    """An agent that was started, and what is known of it. Only a dead one is out of the way: doubt is not death."""

    path: str
    noun: str
    weight: int = 2
    life: Life = "working"


class Slots(msgspec.Struct, frozen=True):
    """How many agents may run: in all (0 is without bound), of a skill, and how many seconds lie between two starts."""

    agents: int
    skills: Mapping[str, int] = {}
    pause: float = 1.0

    def __post_init__(self) -> None:
        codec.bounded(self.agents, "max_agents", 0, 100_000)
        codec.bounded(self.pause, "pause", 0, 86_400)
        for skill, cap in self.skills.items():
            codec.bounded(cap, f"cap of /{skill}", 0, 100_000)


class Start(msgspec.Struct, frozen=True):
    """Start this one now, by this row of the table."""

    item: Candidate
    route: Route


class Waits(msgspec.Struct, frozen=True):
    """This one waits; `reason` says it to a person."""

    item: Candidate
    why: Why
    reason: str


class Plan(msgspec.Struct, frozen=True):
    """What to do now. `again` is when to look again though nothing changes; None where only a change helps."""

    start: tuple[Start, ...]
    waits: tuple[Waits, ...]
    again: int | None


class _Room:
    """What is free, and who is in the way."""

    def __init__(self, slots: Slots, routes: Routes, running: Iterable[Running]) -> None:
        alive = [one for one in running if one.life != "dead"]
        self.slots = slots
        self.lives = {(one.path, one.noun): one.life for one in sorted(alive, key=lambda one: one.life)}
        self.skills = Counter(routes[noun].skill if noun in routes else f"#{noun}" for _, noun in self.lives)
        urgent = sorted(one.path for one in alive if one.weight == 0 and one.life != "stuck")
        self.urgent = f"P0 {urgent[0]!r:.200} runs" if urgent else ""

    def agents(self) -> int:
        return len(self.lives)

    def take(self, item: Candidate, skill: str) -> None:
        self.lives[item.path, item.noun] = "working"
        self.skills[skill] += 1


def plan(
    items: Iterable[Candidate],
    running: Iterable[Running],
    routes: Routes,
    slots: Slots,
    now: int,
    started: int | None = None,
) -> Plan:
    """What starts now, in order. `started` is when the last agent was started, by the same clock as `now`."""
    room = _Room(slots, routes, running)
    may, waits = _sorted_out(items, room, routes)
    pause = round(slots.pause * SECOND)
    due = started + pause if started is not None and started <= now else now
    starts: list[Start] = []
    paced = False
    for item in may:
        route = routes[item.noun]
        found = _kept_by(item, route, room)
        if found is None and (now < due or (starts and pause)):
            found, paced = Waits(item, "pace", f"one start in {slots.pause:g} s"), True
        if found is None:
            starts.append(Start(item, route))
            room.take(item, route.skill)
        else:
            waits.append(found)
        if item.weight == 0 and not room.urgent:
            room.urgent = f"P0 {item.path!r:.200} comes first"
    again = max(due, now + pause if starts else now) if paced else None
    return Plan(tuple(starts), tuple(sorted(waits, key=lambda one: _place(one.item, routes))), again)


def _place(item: Candidate, routes: Routes) -> tuple[object, ...]:
    """Where an item stands in the queue."""
    route = routes.get(item.noun)
    priority = route.priority if route else float("inf")
    approved = item.approved if item.approved is not None else float("inf")
    return item.weight, priority, approved, item.path, item.noun, item.held


def _sorted_out(items: Iterable[Candidate], room: _Room, routes: Routes) -> tuple[list[Candidate], list[Waits]]:
    """Those that may start once there is room, in order, and those that wait for something else."""
    may: dict[tuple[str, str], Candidate] = {}
    waits: list[Waits] = []
    for item in sorted(items, key=lambda item: _place(item, routes)):
        key = item.path, item.noun
        if (life := room.lives.get(key)) is not None:
            waits.append(Waits(item, "runs", f"an agent has it already ({life})"))
        elif item.approved is None or item.held:
            waits.append(Waits(item, "held", item.held or "nobody approved it; `baton review` shows it"))
        elif (route := routes.get(item.noun)) is None:
            cure = "add one, or take the item back with `baton review`"
            waits.append(Waits(item, "no route", f"§TAG_DISPATCH has no row for #delegated-{item.noun}; {cure}"))
        elif room.slots.skills.get(route.skill) == 0:
            waits.append(Waits(item, "never", f"the cap of /{route.skill} is 0; raise it"))
        else:
            may.setdefault(key, item)
    return list(may.values()), waits


def _kept_by(item: Candidate, route: Route, room: _Room) -> Waits | None:
    """What keeps an item that may start from starting now."""
    if item.weight and room.urgent:
        return Waits(item, "P0", f"{room.urgent}, and nothing lower starts beside it")
    cap = room.slots.skills.get(route.skill)
    if cap is not None and room.skills[route.skill] >= cap:
        return Waits(item, "skill", f"{room.skills[route.skill]} of {cap} agents run /{route.skill}")
    if 0 < room.slots.agents <= room.agents():
        return Waits(item, "agents", f"{room.agents()} of {room.slots.agents} agents run (max_agents)")
    return None
