"""Three reviewers vote on one field of their answers; whoever is not needed any more is called off."""

import asyncio

from baton import Relay

relay = Relay(":memory:")


def reviewer(name, verdict, seconds):
    """Register a reviewer that needs so long."""

    @relay.agent(name)
    async def review(turn):
        await asyncio.sleep(seconds)
        return {"verdict": verdict, "by": name}


reviewer("security", "ship", 0.01)
reviewer("style", "wait", 0.02)
reviewer("tests", "ship", 0.05)


@relay.agent("lead")
async def lead(turn):
    asked = ["security", "style", "tests"]
    answers = await turn.broadcast(asked, "review change 42", aggregate="majority", field="verdict")
    return f"{answers.output}, with {answers.votes}"


print(relay.run_sync("lead", "may it go out?").output)

first = asyncio.run(relay.broadcast(["security", "style", "tests"], "review change 43", aggregate="any"))
print(first.output, [answer.status for answer in first.answers])
# ruff: noqa: ARG001 - an agent takes a turn, used or not
