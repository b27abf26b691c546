"""A program is an agent: it reads the work as JSON, sees the conversation of its parent, and prints its answer."""

import sys

from baton import Relay
from baton.agents.program import ProgramAgent

BUILDER = """
import json, sys
work = json.load(sys.stdin)
heard = " / ".join(message["content"] for message in work["messages"])
print(f"{work['state']['rooms']} rooms, for I heard: {heard}")
"""
# What says more than text is a return of the protocol, as the last line.
SURVEYOR = """
import json, sys
work = json.load(sys.stdin)
said = {"handoff_id": work["handoff"]["id"], "status": "partial", "result": {"body": "rock on the left"}}
print(json.dumps({"return": {**said, "context_updates": {"variables_changed": {"rooms": 3}}}}))
"""

relay = Relay(":memory:")
relay.add("builder", ProgramAgent(sys.executable, "-c", BUILDER, timeout=60))
relay.add("surveyor", ProgramAgent(sys.executable, "-c", SURVEYOR))
relay.add("painter", ProgramAgent(sys.executable, "-c", "import sys; sys.exit('no paint left')"))


@relay.agent("architect")
async def architect(turn):
    ground = await turn.delegate("surveyor", "look at the ground")
    print(ground.status, ground.output)
    house = await turn.delegate("builder", "build it", transfer="full")
    print(house.output)
    paint = await turn.delegate("painter", "paint it")
    return paint.output if paint.success else f"not painted: {paint.error.partition(': ')[2].partition(' ')[2]}"


print(relay.run_sync("architect", "a house by the sea").output)
