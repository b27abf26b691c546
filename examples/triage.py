"""Two agents: one hands the work to the other, with what it knows."""

import asyncio

from baton import Command, Relay

relay = Relay(":memory:")  # a file name keeps it


@relay.agent("triage", capabilities=["triage"])
async def triage(turn):
    return Command(goto="billing", update={"customer": 42}, reason="a billing question")


@relay.agent("billing", capabilities=["billing", "refunds"])
async def billing(turn):
    return f"refunded customer {turn.state['customer']}"


result = asyncio.run(relay.run("triage", "please refund me"))
print(result.output)
print([(h.from_agent, h.to_agent, h.status) for h in result.handoffs])
for record in relay.audit.query(to_agent="billing"):
    print(record.event_type, record.from_agent, record.to_agent)
# ruff: noqa: ARG001 - an agent takes a turn, used or not
