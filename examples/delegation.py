"""An orchestrator gives three parts of its work to others at once, and waits for all of them."""

import asyncio

from baton import Relay

relay = Relay(":memory:")


@relay.agent("orchestrator")
async def orchestrator(turn):
    parts = {"researcher": "read about Redis", "scout": "read our code", "critic": "list the risks"}
    answers = await asyncio.gather(*(turn.delegate(agent, task) for agent, task in parts.items()))
    return "\n".join(f"{answer.from_agent}: {answer.output}" for answer in answers)


@relay.agent("researcher")
async def researcher(turn):
    await asyncio.sleep(0.05)
    return "use a short time to live"


@relay.agent("scout")
async def scout(turn):
    await asyncio.sleep(0.01)
    return "two places read the same rows"


@relay.agent("critic")
def critic(turn):  # an ordinary function runs in a thread
    return "stale prices"


result = relay.run_sync("orchestrator", "plan a cache")
print(result.output)
print({(h.to_agent, h.type, h.status) for h in result.handoffs if h.to_agent == "scout"})
# ruff: noqa: ARG001 - an agent takes a turn, used or not
