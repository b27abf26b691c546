"""What an agent is, and what it is handed while it works.

An agent is one method. Adding a way to run agents is one file beside this one and one line where it is registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from os import PathLike

    from baton.protocol.context import Message
    from baton.protocol.handoff import Handoff
    from baton.protocol.results import Return


class Turn(Protocol):
    """One attempt at one handoff, as the agent sees it."""

    handoff: Handoff

    @property
    def task(self) -> str: ...
    @property
    def state(self) -> dict[str, Any]: ...
    @property
    def messages(self) -> list[Message]: ...
    @property
    def attempt(self) -> int: ...
    @property
    def idempotency_key(self) -> str: ...
    @property
    def alone(self) -> str: ...
    @property
    def cancelled(self) -> bool: ...
    async def delegate(self, to: str, task: str, **options: Any) -> Return: ...
    async def ask(self, question: str, **options: Any) -> Any: ...
    async def charge(self, tokens: int = 0, cost: float = 0.0) -> None: ...
    def lock(self, *paths: str | PathLike[str], shared: bool = False, timeout: float = 60.0) -> Any: ...
    def progress(self, note: str) -> None: ...


class Agent(Protocol):
    """Who can work: gets a turn, gives back a return, a command, or plain content."""

    async def run(self, turn: Turn) -> Any: ...
    async def aclose(self) -> None: ...
