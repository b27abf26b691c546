"""Shared variables: each agent writes its own, a reducer joins what many write, and decisions are on record."""

import operator

from baton import Command, Refused, Relay, answer

relay = Relay(":memory:", reducers={"risks": operator.add})


@relay.agent("architect")
async def architect(turn):
    update = {"plan": "one table", "risks": ["it grows"], "decisions_made": "no cache before we have measured"}
    return Command(goto="lead" if turn.task == "a shop" else "meddler", update=update)


@relay.agent("lead", writes=["plan"])  # may write what others made; it stays theirs
async def lead(turn):
    await turn.broadcast(["security", "operations"], f"look at {turn.state['plan']}")
    return Command(goto="reporter", update={"plan": "two tables", "decisions_made": ["customers stand apart"]})


@relay.agent("security")
async def security(turn):
    return answer("seen", update={"risks": ["names of customers"]})


@relay.agent("operations")
async def operations(turn):
    return answer("seen", update={"risks": ["no backup"]})


@relay.agent("reporter")
async def reporter(turn):
    decided = [f"{one['made_by']}: {one['description']}" for one in turn.state["decisions_made"]]
    return {"plan": turn.state["plan"], "risks": list(turn.state["risks"]), "decided": decided}


@relay.agent("meddler")
async def meddler(turn):
    return answer("done", update={"plan": "no table at all"})


for name, value in relay.run_sync("architect", "a shop").output.items():
    print(f"{name}: {value}")
try:
    relay.run_sync("architect", "a mess")
except Refused as error:
    print(f"{type(error).__name__}: {error}")
# ruff: noqa: ARG001 - an agent takes a turn, used or not
