"""Agents described in a file: who takes over when the first one is not well, and what the file takes away."""

import asyncio
import tempfile
from pathlib import Path

from baton import Relay

FILE = """
[agents.billing]
capabilities = ["refunds"]
max_concurrent_tasks = 1
[agents.backup]
capabilities = ["refunds"]
[routes]
refunds = ["billing", "backup"]
"""


class Billing:
    def __init__(self):
        self.asked = asyncio.Event()

    async def health(self):
        self.asked.set()
        raise ConnectionError("the bank does not answer")

    async def run(self, turn):
        return f"{turn.task}: by billing"

    async def aclose(self): ...


async def main(file):
    async with Relay(registry=file) as relay:
        relay.add("billing", agent := Billing(), max_concurrent_tasks=9)

        @relay.agent("backup")
        async def backup(turn):
            return f"{turn.task}: by backup"

        stop = asyncio.Event()
        working = asyncio.create_task(relay.work(stop))
        await agent.asked.wait()
        await asyncio.sleep(0.1)
        print((await relay.run("billing", "refund order 7")).output)
        billing = {row.profile.agent_id: row for row in relay.store.agents()}["billing"]
        print(billing.health.state, "|", billing.health.reason)
        print("at once:", billing.profile.max_concurrent_tasks)
        stop.set()
        await working


with tempfile.TemporaryDirectory() as folder:
    agents = Path(folder, "agents.toml")
    agents.write_text(FILE)
    asyncio.run(main(agents))
