"""Who works in a simulation: agents of many tempers that do what the task's script says, and people who decide."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from baton.errors import BatonError
from baton.lifecycle import OPEN, State
from baton.protocol.results import Account, Command, Result, Return

if TYPE_CHECKING:
    from baton.agents.base import Turn
    from baton.protocol.handoff import Handoff
    from baton.relay import Relay
    from baton.testing.simulation.workloads import Stage

Script = Callable[["Stage", "Turn"], Awaitable[Any]]
Temper = Callable[["Stage", "Turn", Script], Awaitable[Any]]


class Actor:
    """An agent in one process."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.temper = TEMPERS[stage.temper[name]][1]

    async def run(self, turn: Turn) -> Any:
        """Follow the script of the task, as the temper allows."""
        stage = self.stage
        stage.world.counts["bodies"] += 1
        stage.world.say(stage.world.current, f"{turn.handoff.to_agent} begins {turn.task!r}, attempt {turn.attempt}")
        return await self.temper(stage, turn, stage.scripts.get(turn.task, plain))

    async def aclose(self) -> None:
        """Nothing to close."""


class Sickly(Actor):
    """An agent that is asked how it is, and is not always well."""

    async def health(self) -> None:
        """Raise, or take too long, now and then."""
        dice = self.stage.chance.random()
        self.stage.world.counts["health checks"] += 1
        if dice < 0.3:
            raise OSError("not well")
        await asyncio.sleep(2.0 if dice < 0.4 else 0.0)


async def plain(stage: Stage, turn: Turn) -> Any:
    """Some work, and an answer."""
    await stage.effort()
    return f"done: {turn.task}"


async def obedient(stage: Stage, turn: Turn, script: Script) -> Any:
    """Does what it is told."""
    return await script(stage, turn)


async def slow(stage: Stage, turn: Turn, script: Script) -> Any:
    """Takes longer than its lease now and then."""
    await asyncio.sleep(stage.chance.choice((0.3, 1.0, 2.6)))
    return await script(stage, turn)


async def silent(stage: Stage, turn: Turn, script: Script) -> Any:
    """Says nothing any more, every other time."""
    if stage.chance.random() < 0.5:
        await asyncio.Event().wait()
    return await script(stage, turn)


async def lying(stage: Stage, turn: Turn, script: Script) -> Any:
    """Answers in another's name, and says that it used more than it was given."""
    await script(stage, turn)
    body = Result(body="all is well")
    return Return(handoff_id="another", from_agent="nobody", result=body, audit=Account(tokens_consumed=5000))


async def crashing(stage: Stage, turn: Turn, script: Script) -> Any:
    """Raises, before or after the work, two times out of three."""
    if stage.chance.random() < 0.4:
        raise OSError("it broke before")
    value = await script(stage, turn)
    if stage.chance.random() < 0.4:
        raise ValueError("it broke after")
    return value


async def stubborn(stage: Stage, turn: Turn, script: Script) -> Any:
    """Does not stop when it is called off."""
    try:
        await asyncio.sleep(stage.chance.choice((0.1, 1.0)))
        return await script(stage, turn)
    except asyncio.CancelledError:
        await stage.effort()
        return f"done: {turn.task}"


async def looping(stage: Stage, turn: Turn, script: Script) -> Any:
    """Hands on what it gets, with nothing new."""
    if stage.chance.random() < 0.7:
        return Command(goto=stage.chance.choice(stage.names), task=turn.task)
    return await script(stage, turn)


TEMPERS: dict[str, tuple[int, Temper]] = {
    "obedient": (12, obedient),
    "slow": (3, slow),
    "silent": (1, silent),
    "lying": (1, lying),
    "crashing": (2, crashing),
    "stubborn": (2, stubborn),
    "looping": (1, looping),
}
SINCERE = frozenset(("obedient", "slow", "silent", "crashing"))  # what they answer is what was asked


async def person(stage: Stage, relay: Relay, name: str) -> None:
    """Look now and then, and decide what waits for a person; two may decide the same thing."""
    while True:
        await asyncio.sleep(stage.chance.choice((0.2, 0.5, 1.1)))
        for one in relay.waiting():
            if stage.chance.random() < (0.7 if not stage.healing else 1.0):
                with suppress(BatonError):
                    _decide(stage, relay, one, name)
        if not stage.healing and stage.chance.random() < 0.03:  # later it would hide what is stuck
            for one in relay.store.find(state=tuple(OPEN), newest=True, limit=1):
                stage.world.counts["called off"] += 1
                with suppress(BatonError):
                    relay.cancel(one.id, by=name)


def _decide(stage: Stage, relay: Relay, one: Handoff, by: str) -> None:
    dice = stage.chance.random()
    if one.state is State.WAITING:
        if dice < 0.8:
            relay.approve(one.id, by=by)
        else:
            relay.deny(one.id, by=by, reason="no")
    elif one.state is State.OFFERED or dice < 0.4:
        relay.give_back(one.id, f"{by} says so", by=by)
    elif dice < 0.8 and not stage.healing:
        relay.reroute(one.id, stage.chance.choice(stage.names), by=by)
    else:
        relay.cancel(one.id, by=by)
    stage.world.counts["decisions"] += 1
