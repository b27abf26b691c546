"""What a receiver can say: I do it, not I, not now, or this is for a person to decide."""

import asyncio

from baton import Command, Defer, Escalate, Reject, Relay, Turn

relay = Relay(":memory:", routes={"refunds": ("junior", "senior")})
closed = ["order 3, in the lunch break"]


@relay.agent("desk")
async def desk(turn: Turn) -> Command:
    return Command(goto="junior", reason="a customer wants money back")


@relay.agent("junior", capabilities=["refunds"])
async def junior(turn: Turn) -> str | Reject | Defer | Escalate:
    if "abroad" in turn.task:
        return Reject("I do not know foreign banks")  # the routes name who else can do it
    if turn.task in closed:
        closed.remove(turn.task)
        return Defer("the bank is closed", seconds=0.1)  # offered again then; the attempt does not count
    if "lawyer" in turn.task:
        return Escalate("a lawyer is involved")
    return f"junior: refunded in attempt {turn.attempt}"


@relay.agent("senior", capabilities=["refunds"])
async def senior(turn: Turn) -> str:
    return f"senior: refunded in attempt {turn.attempt}"


async def ana():
    """A person, who looks at what waits."""
    while not (asked := relay.waiting()):
        await asyncio.sleep(0.01)
    relay.give_back(asked[0].id, "ana: call the customer", by="ana")


async def main():
    for task in ("order 1", "order 2, abroad", "order 3, in the lunch break"):
        result = await relay.run("desk", task)
        print(f"{task}: {result.output}")
        records = relay.audit.query(handoff_id=result.handoffs[-1].id)
        print([(one.event_type, one.reason) for one in records if one.event_type in {"rejected", "deferred"}])
    result, _ = await asyncio.gather(relay.run("desk", "order 4, with a lawyer"), ana())
    print(f"order 4: {result.output}")


asyncio.run(main())
# ruff: noqa: ARG001, ASYNC110 - an agent takes a turn, used or not; a person looks now and then
