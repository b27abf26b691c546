"""See the ten steps of each handoff, measure how the work goes, and what of the context crossed."""

from baton import Command, Relay

steps = []
relay = Relay(":memory:", telemetry=[steps.append])  # or telemetry="log", "opentelemetry", "prometheus"


@relay.agent("triage")
async def triage(turn):
    await turn.delegate("clerk", "look up order 7", share=["order"])
    return Command(goto="billing", reason="a billing question")


@relay.agent("clerk")
async def clerk(turn):
    await turn.charge(tokens=120, cost=0.002)
    return f"order {turn.state['order']} was paid"


@relay.agent("billing")
async def billing(turn):
    return f"refunded: {turn.task}"


result = relay.run_sync("triage", "please refund me", state={"order": 7, "card": "on file"})

for one in steps:
    if one.handoff.to_agent == "billing":
        print(one.step, one.outcome or "-")

for work in relay.stats(since="1h").agents:
    print(f"{work.name}: {work.handoffs} handoff, {work.success:.0%}, {work.tokens} tokens, {work.cost} money")

for handoff in result.handoffs:
    crossing = relay.crossing(handoff.id)
    print(handoff.to_agent, "sees", *crossing.variables, "but not", *crossing.withheld or ["-"])
