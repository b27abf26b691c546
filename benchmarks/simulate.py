"""Many handoffs of many agents in virtual time, against a bare heap with the same number of events.

usage: python benchmarks/simulate.py [--quick | --full] [--json FILE]
"""

import argparse
import asyncio
import gc
import heapq
import json
import random
import time
from pathlib import Path

from baton import Command, Limits, Relay
from baton.agents.python import FunctionAgent
from baton.testing import virtual

EVENTS = 3  # of each handoff: offer, claim, complete
AT_ONCE = 100_000  # handoffs in one store, which keeps all of them in memory
HOPS = 50  # handoffs of one line of work
WARM = 2000


def bare(handoffs, agents):
    """CPU seconds of a heap that holds the next event of each agent."""
    chance = random.Random(1).random
    heap = [(chance(), number, agent) for number, agent in enumerate(range(agents))]
    heapq.heapify(heap)
    began = time.process_time()
    for number in range(agents, agents + handoffs * EVENTS):
        when, _, agent = heapq.heappop(heap)
        heapq.heappush(heap, (when + chance(), number, agent))
    return time.process_time() - began


def team(relay, agents, chance):
    """Agents that work for a moment and hand on, until their line is long enough."""

    async def work(turn):
        await asyncio.sleep(chance())
        if turn.handoff.hop == HOPS - 1:
            return "done"
        return Command(goto=f"agent{int(chance() * agents)}", task=f"step {turn.handoff.hop}")

    agent = FunctionAgent(work)
    for number in range(agents):
        relay.add(f"agent{number}", agent)


def simulated(handoffs, agents):
    """CPU seconds of relay.run in virtual time: the steps, the event loop, and agents that take their time."""
    with Relay(":memory:", limits=Limits(max_handoffs=None)) as relay:
        chance = random.Random(1).random
        team(relay, agents, chance)

        async def line():
            await asyncio.sleep(chance())
            await relay.run(f"agent{int(chance() * agents)}", "begin")

        async def all_of_them():
            await asyncio.gather(*(line() for _ in range(handoffs // HOPS)))

        gc.collect()
        began = time.process_time()
        virtual.run(all_of_them())
        taken = time.process_time() - began
        assert relay.store.audited() == handoffs * EVENTS
        return taken


def measure(handoffs, agents):
    """All figures of one run; of many handoffs, one store after the other."""
    simulated(WARM, WARM // 10)
    parts = max(1, handoffs // AT_ONCE)
    floor = took = 0.0
    for _ in range(parts):
        floor += bare(handoffs // parts, agents)
        took += simulated(handoffs // parts, agents)
    return {
        "handoffs": handoffs,
        "agents": agents,
        "stores": parts,
        "seconds": took,
        "us_per_handoff": took / handoffs * 1e6,
        "bare_heap_us_per_handoff": floor / handoffs * 1e6,
        "ratio": took / floor,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10,000 handoffs of 100 agents")
    parser.add_argument("--full", action="store_true", help="1,000,000 handoffs of 10,000 agents")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    handoffs, agents = (10_000, 100) if options.quick else (1_000_000 if options.full else 100_000, 10_000)
    figures = measure(handoffs, agents)
    for name, value in figures.items():
        print(f"{name:28} {value:14.2f}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
