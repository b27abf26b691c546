"""Looks whether the agents are well, and writes down who is not.

An agent object may offer `async def health(self)`: it raises, or takes too long, where the agent cannot work. Who
runs the agent asks it. Where only workers elsewhere do, the check is whether one was seen lately. Each check runs
beside everything else, and the store says when the last one began: however many processes look, an agent is asked
once in each interval.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from baton.errors import BatonError, safe, told
from baton.guards import health

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from baton.flow.crew import Crew
    from baton.guards.health import Health

LOOK = 5.0  # seconds between two looks at what is due; a check itself is due once in each interval
PATIENCE = 30.0  # a worker says that it is there every 10 s
LONGEST = 300  # characters of a reason

logger = logging.getLogger("baton")


class Checks:
    """The checks of one event loop."""

    def __init__(self) -> None:
        self._next = float("-inf")
        self._calls: dict[str, asyncio.Future[str]] = {}
        self._rounds: set[asyncio.Task[None]] = set()

    def look(self, crew: Crew) -> None:
        """Begin the checks that are due."""
        loop = asyncio.get_running_loop()
        rules = crew.settings.health
        if loop.time() < self._next:
            return
        self._next = loop.time() + min(LOOK, rules.interval / 4)
        now, every, rows = crew.store.now(), int(rules.interval * 1e6), crew.store.agents()
        crew.ill = frozenset(row.profile.agent_id for row in rows if row.health.ill)
        _settle(crew, {f"agent:{row.profile.agent_id}" for row in rows if row.available})
        for row in rows:
            name = row.profile.agent_id
            own = _own_check(crew, name)
            absent = name not in crew.agents and health.silent(row.health, now, int(PATIENCE * 1e6))
            if (own is None and not absent) or not _begun(crew, name, row.health, every):
                continue
            if own is not None:
                task = loop.create_task(self._ask(crew, name, own))
                self._rounds.add(task)
                task.add_done_callback(self._rounds.discard)
            elif row.health.seen_at is not None:
                failed(crew, name, f"no worker was seen for {(now - row.health.seen_at) // 1_000_000} s")

    def stop(self) -> None:
        """Ask nobody any more."""
        for task in self._rounds:
            task.cancel()
        for call in self._calls.values():
            call.cancel()

    async def _ask(self, crew: Crew, name: str, own: Callable[[], Awaitable[None]]) -> None:
        try:
            why = await self._answer(name, own, crew.settings.health.timeout)
            if why:
                failed(crew, name, why, ill=True)
            else:
                passed(crew, name)
        except BatonError:
            logger.exception("the health of %s was not written down", name)

    async def _answer(self, name: str, own: Callable[[], Awaitable[None]], timeout: float) -> str:
        """What is wrong; empty where nothing is."""
        if name in self._calls:
            return "its last health check has not ended"
        call = self._calls[name] = asyncio.ensure_future(_called(own))
        call.add_done_callback(lambda _: self._calls.pop(name, None))
        done, _ = await asyncio.wait({call}, timeout=timeout)
        if not done:
            call.cancel()  # without waiting: a check that does not stop must not hold up this one
            call.add_done_callback(lambda late: late.cancelled() or late.exception())
            return f"its health check took longer than {timeout:g} s"
        if call.cancelled():
            return "its health check was cancelled"
        return call.result()


async def _called(own: Callable[[], Awaitable[None]]) -> str:
    """What its check raised; empty where it raised nothing."""
    try:
        await own()
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit, too, must end the check and not the process
        return f"its health check failed: {type(error).__name__}: {told(error)}"
    return ""


def _own_check(crew: Crew, name: str) -> Callable[[], Awaitable[None]] | None:
    found = getattr(crew.agents.get(name), "health", None)
    return found if callable(found) else None


def _begun(crew: Crew, name: str, known: Health, every: int) -> bool:
    """Whether a check is due and this process begins it."""
    now = crew.store.now()
    if health.checked(known, now, every) is known:
        return False
    return crew.store.mark(name, lambda stands: health.checked(stands, now, every)) is not None


def failed(crew: Crew, name: str, why: str, *, ill: bool = False) -> None:
    """Write down a check that failed."""
    said, threshold = safe(" ".join(why.split()))[:LONGEST], crew.settings.health.threshold
    crew.ill |= {name} if ill else set()
    _mark(crew, name, lambda known, now: health.failed(known, said, now, threshold, ill=ill))


def passed(crew: Crew, name: str) -> None:
    """Write down that an agent is well."""
    _mark(crew, name, health.passed)
    crew.ill -= {name}


def unanswered(crew: Crew, name: str, why: str) -> None:
    """Write down that nobody took an offer in time."""
    _mark(crew, name, lambda known, now: health.unanswered(known, why, now))


def acknowledged(crew: Crew, name: str) -> None:
    """Write down that somebody took its work."""
    _mark(crew, name, health.acknowledged)


def _mark(crew: Crew, name: str, change: Callable[[Health, int], Health]) -> None:
    """Change what is known of an agent's health, and tell people where it comes into another state."""
    before: list[str] = []
    now = crew.store.now()  # not in `noted`: it runs inside of a transaction, and may run twice

    def noted(known: Health) -> Health:
        before[:] = [known.state]
        return change(known, now)

    changed = crew.store.mark(name, noted)
    if changed is None or [changed.state] == before:
        return
    subject = f"agent:{name}"
    if changed.state == "available":
        logger.warning("%s is available again", name)
        _settle(crew, {subject})
    elif changed.state == "suspect":
        logger.warning("%s is suspect and gets no new work: %s", name, safe(changed.reason))
    else:
        logger.warning("%s is unavailable: %s", name, safe(changed.reason))
        crew.store.raise_alert(subject, f"{name} is unavailable: {safe(changed.reason)}")
    crew.hub.notify()


def _settle(crew: Crew, subjects: set[str]) -> None:
    """What people were told of these agents is no longer so."""
    for alert in crew.store.alerts():
        if alert.subject in subjects:
            crew.store.resolve_alert(alert.id, by=crew.holder)
