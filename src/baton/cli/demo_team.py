"""The agents of `baton demo`, and the worker process that serves them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from baton import Command, Relay

if TYPE_CHECKING:
    from baton import Turn

FIGURES = [17, 25]
NAMES = (
    "triage",
    "billing",
    "clerk",
    "payout",
    "reader",
    "analyst",
    "planner",
    "coder",
    "researcher",
    "writer",
)


class Team:
    """One method for each agent; a model could sit in each. What really ran is noted in a file of its own."""

    def __init__(self, ran: Path) -> None:
        self._ran = ran

    def _note(self, what: str) -> None:
        with self._ran.open("a", encoding="utf-8") as log:
            log.write(f"{what}\n")

    async def triage(self, _: Turn) -> Command:
        return Command(goto="billing", update={"customer": 42}, reason="a billing question")

    async def billing(self, turn: Turn) -> str:
        return f"refunded customer {turn.state['customer']}"

    async def clerk(self, _: Turn) -> Command:
        return Command(goto="payout", update={"amount": 900}, reason="900 is to be paid back")

    async def payout(self, turn: Turn) -> str:
        self._note("payout")
        return f"paid {turn.state['amount']}"

    async def reader(self, _: Turn) -> list[int]:
        self._note("reader")
        return FIGURES

    async def analyst(self, turn: Turn) -> str:
        figures = await turn.delegate("reader", "read the sales figures")
        self._note(f"analyst {turn.attempt}")
        await asyncio.sleep(600 if turn.attempt == 1 else 0)  # long enough to be killed in the middle
        return f"total {sum(figures.output)}"

    async def planner(self, _: Turn) -> Command:
        return Command(goto="coder", reason="this needs code")

    async def coder(self, _: Turn) -> Command:
        return Command(goto="planner", reason="this needs a plan")

    async def researcher(self, turn: Turn) -> str:
        await turn.charge(tokens=9_000)
        answer = await turn.delegate("writer", "write it up", budget=5_000)
        return str(answer.output)

    async def writer(self, _: Turn) -> str:
        self._note("writer")
        return "a long text"


def ran_log(url: str) -> Path:
    """Where the agents note that they ran."""
    return Path(url).with_name("ran.log")


def team(url: str) -> Relay:
    """All agents around one store."""
    relay = Relay(url, checkpoints=Path(url).with_name("checkpoints"))
    agents = Team(ran_log(url))
    for name in NAMES:
        relay.agent(name)(getattr(agents, name))
    return relay


async def serve(url: str) -> int:
    """Work until standard input is closed, so also when the demo dies."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    with team(url) as relay:
        await relay.work(stop)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(serve(sys.argv[1])))
