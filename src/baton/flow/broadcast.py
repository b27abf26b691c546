"""One task for several agents at once: they are asked together, and their answers become one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import Malformed, Undecided, named
from baton.flow import execute
from baton.flow.crew import objection
from baton.flow.prepare import ASKED
from baton.protocol import codec
from baton.protocol.groups import Answers, tally, undecided
from baton.protocol.results import Result, Send, failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from baton.agents.base import Turn
    from baton.flow.crew import Crew
    from baton.protocol.groups import Aggregation
    from baton.protocol.handoff import Handoff
    from baton.protocol.results import Return
    from baton.stores.base import Offer


HOW = ("aggregate", "field", "visible", "timeout")


class Broadcaster:
    """The supervisor's own agent: it asks several in the name of whoever asked it."""

    async def run(self, turn: Turn) -> Any:
        """Ask those whom the handoff names; their answers as a document."""
        if ASKED not in turn.handoff.context.metadata:
            raise Malformed("supervisor: is not one to hand work to; write relay.broadcast([…], task)")
        asked = dict(turn.handoff.context.metadata[ASKED])
        to = [codec.convert(one, Send, "broadcast.to") for one in asked.pop("to")]
        try:
            return codec.plain(await turn.broadcast(to, turn.task, key="asked", **asked))
        except Undecided as error:  # it is the program's to decide that asked
            told = failed(f"Undecided: {error}", retryable=False)
            return msgspec.structs.replace(told, result=Result(content_type="json", body=codec.plain(error.result)))

    async def aclose(self) -> None:
        """Nothing to close."""


async def gather(crew: Crew, offers: Sequence[Offer], rule: Aggregation) -> tuple[list[Handoff], Answers]:
    """Ask everybody in one transaction and wait until it is decided; a refusal of all is raised under its name."""
    made, verdict = await crew.commit(lambda: crew.store.offer_all(offers, crew.judge_group), lambda _: None)
    if verdict.kind == "refuse":
        raise named(verdict.error, objection(crew, verdict, made[0].to_agent))
    new = {offer.handoff.id for offer in offers}
    for handoff in made:
        if handoff.id in new:
            crew.tell("initiated", handoff)
    awaited = [handoff for handoff in made if not is_aside(handoff)]
    crew.leave([handoff for handoff in made if is_aside(handoff) and handoff.to_agent in crew.agents])
    answers = await _answers(crew, awaited, rule)
    if crew.trace is not None and awaited:
        crew.trace.joined(made[0].parent_id, awaited)
    return awaited, _counted(made[0].broadcast_group_id, rule, answers)


def is_aside(handoff: Handoff) -> bool:
    """Whether nobody waits for its answer."""
    return bool(handoff.broadcast_group_id) and handoff.aggregation is None


async def _answers(crew: Crew, awaited: list[Handoff], rule: Aggregation) -> list[Return]:
    tasks = [asyncio.ensure_future(crew.run_line(handoff)) for handoff in awaited]
    waiting = set(tasks)
    try:
        while waiting:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            so_far = [task.result() if task.done() else None for task in tasks]
            if waiting and rule.mode != "all" and tally(rule, so_far).status:
                execute.drop_lost(crew)  # those of this process whose answer is not needed any more
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return [task.result() for task in tasks]


def _counted(group_id: str, rule: Aggregation, answers: list[Return]) -> Answers:
    outcome = tally(rule, answers)
    if outcome.status in {"", "undecided"}:
        error = Undecided(undecided(rule, answers, outcome.votes))
        error.result = Answers(status="failed", answers=tuple(answers), votes=outcome.votes, group_id=group_id)
        raise error
    return Answers(
        status=outcome.status,  # type: ignore[arg-type]
        output=outcome.output,
        answers=tuple(answers),
        votes=outcome.votes,
        group_id=group_id,
    )
