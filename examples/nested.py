"""A relay in a relay: a team of its own is one agent outside, and may hand the work back out."""

from baton import Command, Relay

support = Relay(":memory:")


@support.agent("greeter")
async def greeter(turn):
    return Command(goto="solver", update={"language": "en"})


@support.agent("solver")
async def solver(turn):
    if "refund" in turn.task:
        return Command(goto="billing", graph=Command.PARENT, update={"order": 17}, reason="needs money")
    return f"solved in {turn.state['language']}"


company = Relay(":memory:")
company.nest("support", support, entry="greeter")


@company.agent("billing")
async def billing(turn):
    return f"refunded order {turn.state['order']}, answered in {turn.state['language']}"


for task in ("it does not start", "please refund me"):
    result = company.run_sync("support", task)
    print(result.output, [(h.from_agent, h.to_agent, h.reason) for h in result.handoffs])
# ruff: noqa: ARG001 - an agent takes a turn, used or not
