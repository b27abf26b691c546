"""What is worked on in a simulation: one table of small plays, each with its requests and the scripts of its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from baton.protocol.handoff import OnTimeout, ReturnProtocol
from baton.protocol.limits import Limits
from baton.protocol.results import Command, Defer, Escalate, Reject, Return, Send, answer
from baton.testing.simulation.actors import SINCERE, TEMPERS, Script

if TYPE_CHECKING:
    from baton.agents.base import Turn
    from baton.testing.simulation.world import World

TEAM = ("ann", "bob", "cyd", "dan")
SEQUENCE = {"draft": "check"}
LIMITS = Limits(max_handoffs=12, ack_seconds=1.5)


class Order(NamedTuple):
    """One request from outside: to whom, what, when, and what may come of it."""

    to: str
    task: str
    workflow: str
    after: float
    options: dict[str, Any]
    wait: bool = True
    patience: float | None = None  # how long whoever asked waits
    expected: tuple[str, ...] = ()  # what a completed run may have answered, beside the word of a person


class Stage:
    """The cast and the plays of one schedule."""

    def __init__(self, world: World, plays: Sequence[str]) -> None:
        self.world = world
        self.chance = world.chance
        self.names = (*TEAM, *SEQUENCE, *SEQUENCE.values())
        kinds, weights = list(TEMPERS), [weight for weight, _ in TEMPERS.values()]
        self.temper = {name: self.chance.choices(kinds, weights)[0] for name in self.names}
        self.ladder = self.chance.choice(((), (), ("cyd",), ("cyd", "dan")))
        self.routes = self.chance.choice(({}, {"ann": ("bob", "dan"), "cyd": ("ann",)}))
        self.sickly = {name for name in self.names if self.chance.random() < 0.15}
        self.capacity = self.chance.choice(({}, {}, {"bob": 1, "ann": 2}))
        self.scripts: dict[str, Script] = {}
        self.orders: list[Order] = []
        self.healing = False
        for number, play in enumerate(plays):
            self.plays = f"{play} {number}"
            WORKLOADS[play](self)

    @property
    def sincere(self) -> bool:
        """Whether nobody here answers what was not asked."""
        return all(temper in SINCERE for temper in self.temper.values())

    async def effort(self) -> None:
        """Work for a moment."""
        await asyncio.sleep(self.chance.choice((0.0, 0.01, 0.15, 0.6)))

    def anybody(self) -> str:
        """Somebody of the team."""
        return self.chance.choice(TEAM)

    def task(self, name: str, script: Script | None = None) -> str:
        """The text of a task, and what is done for it."""
        text = f"{self.plays} {name}"
        if script is not None:
            self.scripts[text] = script
        return text

    def order(self, to: str, task: str, *expected: str, wait: bool = True, **options: Any) -> None:
        """Somebody will ask for this."""
        workflow = f"{self.plays}#{len(self.orders)}"
        tries, policy = self.chance.choice((2, 3, 3)), self.chance.choice(("fail", "fail", "retry", "escalate"))
        given = {"limits": LIMITS, "max_attempts": tries, "on_failure": policy, **options}
        if "return_protocol" in given:
            del given["on_failure"]
        patience = self.chance.choice((None, None, None, None, 0.2, 0.8))
        self.orders.append(Order(to, task, workflow, self.chance.random() * 1.5, given, wait, patience, expected))


def line(stage: Stage) -> None:
    """The work goes through several hands."""
    names = [stage.anybody() for _ in range(stage.chance.randrange(2, 4))]
    last = f"step {len(names) - 1}"

    def step(number: int) -> Script:
        async def script(stage: Stage, turn: Turn) -> Any:  # noqa: ARG001
            await stage.effort()
            if number == len(names) - 1:
                return "the line is done"
            return Command(goto=names[number + 1], task=tasks[number + 1], update={"step": number})

        return script

    tasks = [stage.task(f"step {number}", step(number)) for number in range(len(names))]
    stage.order(names[0], tasks[0], "the line is done", f"done: {stage.task(last)}")


def delegation(stage: Stage) -> None:
    """A lead hands out parts and waits for them, one after the other or at once."""
    parts = [(stage.anybody(), stage.task(f"part {number}")) for number in range(stage.chance.randrange(1, 3))]
    policy: OnTimeout = stage.chance.choice(("fail", "retry"))
    together = stage.chance.random() < 0.4

    async def lead(stage: Stage, turn: Turn) -> Any:
        def part(to: str, task: str) -> Awaitable[Return]:
            return turn.delegate(to, task, key=task, on_failure=policy, timeout=8)

        if together:
            answers = await asyncio.gather(*(part(*one) for one in parts))
        else:
            answers = [await part(*one) for one in parts]
        await stage.effort()
        return "with parts" if all(one.success for one in answers) else "without parts"

    task = stage.task("lead", lead)
    stage.order(stage.anybody(), task, "with parts", "without parts", f"done: {task}", on_failure=policy)


def _group(mode: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        task = stage.task("asked", _vote if mode == "majority" else None)
        names = list(TEAM[: stage.chance.choice((2, 3, 3))])
        options: dict[str, Any] = {"field": "verdict"} if mode == "majority" else {}

        async def lead(stage: Stage, turn: Turn) -> Any:  # noqa: ARG001
            answers = await turn.broadcast(names, task, aggregate=mode, timeout=6, **options)  # type: ignore[arg-type]
            return f"a group: {answers.status}"

        asks = stage.task("asks", lead)
        said = tuple(f"a group: {status}" for status in ("success", "partial", "failed"))
        stage.order(stage.anybody(), asks, *said, f"done: {asks}")

    return play


async def _vote(stage: Stage, turn: Turn) -> Any:  # noqa: ARG001
    await stage.effort()
    return {"verdict": stage.chance.choice(("yes", "yes", "no"))}


def spread(stage: Stage) -> None:
    """A command that names several."""

    async def lead(stage: Stage, turn: Turn) -> Any:  # noqa: ARG001
        return Command(goto=[Send(name, update={"branch": name}) for name in TEAM[:2]], task=task)

    async def branch(stage: Stage, turn: Turn) -> Any:
        await stage.effort()
        return answer("a branch", update={f"from {turn.handoff.to_agent}": turn.attempt})

    task = stage.task("branch", branch)
    stage.order(stage.anybody(), stage.task("spreads", lead))


def sequence(stage: Stage) -> None:
    """Who comes next follows from the relay, not from the agent."""
    task = stage.task("piece")
    stage.order("draft", task, f"done: {task}")


def escalation(stage: Stage) -> None:
    """The first who has it wants a person to decide."""

    async def unsure(stage: Stage, turn: Turn) -> Any:
        await stage.effort()
        return Escalate("who knows") if turn.attempt == 1 else "decided"

    stage.order(stage.anybody(), stage.task("unsure", unsure), max_attempts=stage.chance.choice((1, 3)))


def question(stage: Stage) -> None:
    """An agent asks a person in the middle of its work."""

    async def curious(stage: Stage, turn: Turn) -> Any:
        await stage.effort()
        said = await turn.ask("which one?", timeout=12)
        return f"they said: {said}"

    stage.order(stage.anybody(), stage.task("curious", curious))


def budget(stage: Stage) -> None:
    """Several spend from one purse that is too small for all of them."""
    limits = msgspec.structs.replace(LIMITS, max_tokens=stage.chance.choice((60, 100, 150)), max_handoffs=4)

    async def spend(stage: Stage, turn: Turn) -> Any:
        for _ in range(3):
            await turn.charge(stage.chance.choice((5, 20, 45)))
            await stage.effort()
        return answer("spent", tokens=stage.chance.choice((0, 15, 60)))

    async def lead(stage: Stage, turn: Turn) -> Any:
        calls = [turn.delegate(name, task, key=name, timeout=6) for name in TEAM[:3]]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await turn.charge(stage.chance.choice((1, 10)))
        return f"{sum(not isinstance(one, BaseException) for one in answers)} could work"

    async def together(stage: Stage, turn: Turn) -> Any:  # noqa: ARG001
        return (await turn.broadcast(TEAM[:3], task, timeout=6)).status

    task = stage.task("spends", spend)
    play = stage.chance.choice((lead, together))
    stage.order(stage.anybody(), stage.task("purse", play), limits=limits)


def files(stage: Stage) -> None:
    """Two works need the same files, in whatever order."""
    paths = ["/simulated/a", "/simulated/b", "/simulated/c"]

    async def write(stage: Stage, turn: Turn) -> Any:
        some = stage.chance.sample(paths, 2)
        async with turn.lock(some[0], shared=stage.chance.random() < 0.3, timeout=3):
            await stage.effort()
            if stage.chance.random() < 0.4:
                async with turn.lock(some[1], timeout=1):
                    await stage.effort()
        return "written"

    for number in range(2):
        stage.order(stage.anybody(), stage.task(f"writes {number}", write), on_failure="retry")


def approval(stage: Stage) -> None:
    """A person has to approve before it begins, perhaps in time."""
    patience = stage.chance.choice((None, 2.5))
    limits = msgspec.structs.replace(LIMITS, approve=("ann", "bob"), approval_seconds=patience)
    stage.order(stage.chance.choice(("ann", "bob")), stage.task("risky"), limits=limits)


def loop(stage: Stage) -> None:
    """Writer and reviewer go round, but not for ever."""
    msgspec.structs.replace(LIMITS, loops={"bob->ann": 2, "ann->bob": 2})

    async def write(stage: Stage, turn: Turn) -> Any:  # noqa: ARG001
        await stage.effort()
        return Command(goto="bob", task=review_task)

    async def review(stage: Stage, turn: Turn) -> Any:
        await stage.effort()
        good = turn.handoff.hop > stage.chance.randrange(1, 9)
        return "good enough" if good else Command(goto="ann", task=write_task)

    write_task, review_task = stage.task("text", write), stage.task("review", review)
    stage.order("ann", write_task)


def refusal(stage: Stage) -> None:
    """Not I, or not now."""

    async def picky(stage: Stage, turn: Turn) -> Any:
        await stage.effort()
        dice = stage.chance.random()
        if dice < 0.3:
            return Reject("not my field")
        return Defer("not now", seconds=0.4) if dice < 0.6 and turn.attempt == 1 else "done after all"

    stage.order(stage.anybody(), stage.task("picky", picky))


def queue(stage: Stage) -> None:
    """Small things that nobody waits for, and some are late."""
    for number in range(stage.chance.randrange(2, 5)):
        policy = stage.chance.choice(("fail", "retry", "escalate"))
        protocol = ReturnProtocol(expected=True, timeout=3, on_timeout=policy)  # type: ignore[arg-type]
        stage.order(stage.anybody(), stage.task(f"thing {number}"), wait=False, return_protocol=protocol)


WORKLOADS: dict[str, Callable[[Stage], None]] = {
    "line": line,
    "delegation": delegation,
    "all": _group("all"),
    "any": _group("any"),
    "majority": _group("majority"),
    "spread": spread,
    "sequence": sequence,
    "escalation": escalation,
    "question": question,
    "budget": budget,
    "files": files,
    "approval": approval,
    "loop": loop,
    "refusal": refusal,
    "queue": queue,
}
