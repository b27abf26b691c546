"""A ladder: what the worker may not decide goes to the reviewer, then to the architect, and in the end to a person."""

import asyncio

from baton import Escalate, Relay

relay = Relay(":memory:", escalation=["reviewer", "architect", "human"])


@relay.agent("worker")
async def worker(turn):
    if "rename" in turn.task:  # ask, and go on with the answer
        said = await turn.escalate("a new name for `data`?", rationale="the guide knows no rule for it")
        return f"renamed to {said.output}, as {said.from_agent} said"
    return Escalate("the table has no backup", assessment={"rows": 80_000})  # give the whole work up


@relay.agent("reviewer")
async def reviewer(turn):
    if turn.handoff.type == "escalation":
        return "orders"
    return Escalate("I may not delete customers' data", assessment="half of the rows are of this year")


@relay.agent("architect")
async def architect(turn):
    print([f"{one.name}: {one.content}" for one in turn.messages])
    return Escalate("only the owner of the data decides that")


async def main():
    print((await relay.run("worker", "rename the module data")).output)

    async for event, handoff in relay.stream("worker", "drop the table", priority="high"):
        if event == "waits":  # nobody is left but a person
            for said in relay.assessments(handoff.id):
                print(f"{said.agent} -> {said.to}: {said.reason}")
            print(handoff.status, handoff.priority, f"after {handoff.attempt} of {handoff.max_attempts} attempts")
            relay.give_back(handoff.id, "make a backup first", by="ana")
    print(relay.result(handoff.workflow_id).output)


asyncio.run(main())
