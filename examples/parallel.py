"""One agent is asked several times at once, each time with a task of its own; a reducer joins what they found."""

import operator

from baton import Command, Relay, Send, answer

relay = Relay(":memory:", reducers={"found": operator.add}, sequence={"architect": "writer"})


@relay.agent("architect")
async def architect(turn):
    topics = ["Redis", "caching patterns"]
    sends = [Send("researcher", {"task": f"read about {topic}"}) for topic in topics]
    return Command(goto=[*sends, Send("scout", task="read our code")], update={"found": []})


@relay.agent("researcher")
async def researcher(turn):
    return answer("read", update={"found": [f"{turn.task}: yes"]})


@relay.agent("scout")
async def scout(turn):
    return answer("seen", update={"found": ["two places read the same rows"]})


@relay.agent("writer")
async def writer(turn):
    return "\n".join(turn.state["found"])


print(relay.run_sync("architect", "plan a cache").output)
# ruff: noqa: ARG001 - an agent takes a turn, used or not
