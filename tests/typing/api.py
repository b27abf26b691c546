"""A program that uses public names only, checked by mypy in strict mode; it is not run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, assert_type

from baton import (
    Agent,
    Artifact,
    Autonomy,
    BatonError,
    Budget,
    Command,
    Defer,
    Fenced,
    Handoff,
    HandoffFailed,
    Held,
    Limits,
    Message,
    Profile,
    Refused,
    Reject,
    Relay,
    Result,
    Return,
    Turn,
)

relay = Relay("team.db", limits=Limits(max_handoffs=20, approve=("deploy",)), durability="process")


@relay.agent("triage", capabilities=["triage"], autonomy=Autonomy(max_risk="low"))
async def triage(turn: Turn) -> Command | Reject | Defer:
    if not turn.task:
        return Reject("nothing to do")
    if turn.attempt > 1:
        return Defer("later", seconds=30)
    assert_type(turn.state, Mapping[str, Any])
    assert_type(turn.messages, list[Message])
    await turn.charge(tokens=10, cost=0.01)
    return Command(goto="billing", update={"customer": 42}, reason="a billing question")


@relay.agent("billing")
async def billing(turn: Turn) -> str:
    answer = await turn.delegate(
        "prices", "what did it cost?", timeout="1m", on_failure="retry", budget=Budget(max_tokens=100)
    )
    assert_type(answer, Return)
    assert_type(answer.success, bool)
    said: object = await turn.ask("may I refund it?")
    assert_type(await turn.escalate("may I?", rationale="over my limit", timeout="1h"), Return)
    turn.progress(f"{turn.idempotency_key} {turn.cancelled} {turn.alone}")
    return f"{answer.output} {said}"


class Transport:
    async def run(self, turn: Turn) -> str:
        return turn.task

    async def aclose(self) -> None: ...


transport: Agent = Transport()
relay.add("prices", transport, description="knows what things cost")


async def main() -> None:
    result = await relay.run("triage", "please refund me", limits=Limits(max_handoffs=200), workflow_id="w")
    assert_type(result, Result)
    assert_type(result.handoffs, tuple[Handoff, ...])
    assert_type(result.state, dict[str, Any])
    async for event, handoff in relay.stream("triage", "again"):
        assert_type(event, str)
        assert_type(handoff, Handoff)
    assert_type(await relay.delegate("prices", "how much?", from_agent="me", timeout=5), Return)
    assert_type(await relay.escalate("ship it?", from_agent="ci", rationale="a flaky test"), Return)
    for level in relay.assessments("a handoff"):
        assert_type(level.reason, str)
    assert_type(await relay.resume("w", timeout=10), Result)
    waiting = relay.waiting()
    assert_type(waiting, list[Handoff])
    relay.approve(waiting[0].id, by="ada")
    relay.deny(waiting[0].id, by="ada", reason="no")
    assert_type(relay.cancel(waiting[0].id), Handoff)
    assert_type(relay.history("conversation"), list[Handoff])
    assert_type(relay.stats(since="2h").agents[0].success, float | None)
    assert_type(relay.crossing(waiting[0].id).withheld, tuple[str, ...])
    relay.observe("log", lambda step: print(step.step, step.seconds))
    async with Relay() as other:
        other.nest("team", relay, "triage")


def synchronous() -> str:
    with Relay() as other:
        try:
            assert_type(other.run_sync("triage", "work"), Result)
        except (HandoffFailed, Refused, Held, Fenced) as error:
            return str(error)
        except BatonError as error:
            return type(error).__name__
    return Profile(agent_id="a").agent_id + Artifact(id="x", path="y").path


if __name__ == "__main__":
    asyncio.run(main())
