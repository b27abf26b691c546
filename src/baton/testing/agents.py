"""Agents that behave in one known way, to see what becomes of the others and of the work.

Each keeps the turns that it was given in `turns` and counts its `aclose` in `closed`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from baton.agents.base import Turn
from baton.protocol.results import Command, Result, Return


class Fake:
    """What the fake agents share."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.closed = 0

    async def run(self, turn: Turn) -> Any:
        """Remember the turn and behave."""
        self.turns.append(turn)
        return await self.behave(turn)

    async def behave(self, turn: Turn) -> Any:
        """Answer a turn."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Count."""
        self.closed += 1


class Obedient(Fake):
    """Does what it is told, at once; without an answer of its own it gives the task back."""

    def __init__(self, answer: Any = None) -> None:
        super().__init__()
        self.answer = answer

    async def behave(self, turn: Turn) -> Any:
        """Answer."""
        return turn.task if self.answer is None else self.answer


class Silent(Fake):
    """Takes the work and never says anything again."""

    async def behave(self, turn: Turn) -> Any:  # noqa: ARG002 - it does not even look
        """Wait for ever."""
        await asyncio.Event().wait()


class Slow(Fake):
    """Answers, but only after so many seconds."""

    def __init__(self, seconds: float, answer: Any = "at last") -> None:
        super().__init__()
        self.seconds = seconds
        self.answer = answer

    async def behave(self, turn: Turn) -> Any:  # noqa: ARG002 - every task takes as long
        """Sleep, then answer."""
        await asyncio.sleep(self.seconds)
        return self.answer


class Lying(Fake):
    """Answers in the name of others, for another handoff, and says that all is well."""

    def __init__(self, handoff_id: str = "another", agent: str = "somebody-else") -> None:
        super().__init__()
        self.handoff_id = handoff_id
        self.agent = agent

    async def behave(self, turn: Turn) -> Any:  # noqa: ARG002 - it made its answer up
        """Claim what is not so."""
        return Return(
            handoff_id=self.handoff_id,
            from_agent=self.agent,
            to_agent=self.agent,
            result=Result(body="all is well"),
        )


class Looping(Fake):
    """Hands on whatever it gets, with nothing new."""

    def __init__(self, to: str) -> None:
        super().__init__()
        self.to = to

    async def behave(self, turn: Turn) -> Any:  # noqa: ARG002 - it passes everything on
        """Pass it on."""
        return Command(goto=self.to)


class Crashing(Fake):
    """Raises, in every turn or in its first few; then it does what it is told."""

    def __init__(self, times: int | None = None, error: Exception | None = None) -> None:
        super().__init__()
        self.times = times
        self.error = error or OSError("the agent broke")

    async def behave(self, turn: Turn) -> Any:
        """Raise."""
        if self.times is None or len(self.turns) <= self.times:
            raise self.error
        return turn.task
