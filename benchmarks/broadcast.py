"""A broadcast of a 20 kB context to 100 agents: what the context costs, against copying it for each of them.

usage: python benchmarks/broadcast.py [--quick | --full] [--json FILE]
"""

import argparse
import asyncio
import copy
import gc
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path

from baton import Limits, Message, Relay
from baton.protocol.context import Context

AGENTS = [f"agent{number}" for number in range(100)]
HISTORY = [
    {"role": "user" if number % 2 else "assistant", "content": f"message {number}: " + "what was said " * 35}
    for number in range(20)
]
VARIABLES = {
    f"step{number}": {"done": number % 3 == 0, "files": [f"src/step{number}/{i}.py" for i in range(20)]}
    for number in range(23)
}
PLAIN = {"history": HISTORY, "variables": VARIABLES}


def look(contents, variables):
    """Read all of it, as an agent may."""
    return sum(map(len, contents)) + sum(len(path) for step in variables.values() for path in step["files"])


ALL = look([one["content"] for one in HISTORY], VARIABLES)


def copied(agents, *, read):
    """CPU seconds of a copy for each agent, whether it looks at it or not."""
    began = time.process_time()
    for _ in range(agents):
        own = copy.deepcopy(PLAIN)
        assert not read or look([one["content"] for one in own["history"]], own["variables"]) == ALL
    return time.process_time() - began


def asked(agents, *, full, read):
    """CPU seconds of one broadcast through Relay, with this context or an empty one."""
    with Relay(":memory:", limits=Limits(max_handoffs=None, max_agents=None)) as relay:

        def work(turn):
            return look([one.content for one in turn.messages], turn.state) if read else 0

        for name in AGENTS[:agents]:
            relay.agent(name)(work)
        history = tuple(Message(one["role"], one["content"]) for one in HISTORY)
        given = {"state": VARIABLES, "context": Context(conversation_history=history)} if full else {}
        gc.collect()
        began = time.process_time()
        answers = asyncio.run(relay.broadcast(AGENTS[:agents], "look", **given)).answers
        taken = time.process_time() - began
        assert len(answers) == agents
        assert not (full and read) or all(one.output > look([], VARIABLES) for one in answers)
        return taken


def measure(rounds):
    """All figures of one run, each a median over rounds in which everything has its turn."""
    taken = defaultdict(list)
    for _ in range(rounds):
        for read in (False, True):
            taken["copy", read].append(copied(len(AGENTS), read=read))
            for agents in (1, len(AGENTS)):
                empty, full = (asked(agents, full=full, read=read) for full in (False, True))
                taken["bare", agents, read].append(empty)
                taken["context", agents, read].append(full - empty)
    ms = {what: statistics.median(seconds) * 1e3 for what, seconds in taken.items()}
    return {
        "context_bytes": len(json.dumps(PLAIN)),
        "agents": len(AGENTS),
        "copies_ms": ms["copy", False],
        "broadcast_without_context_ms": ms["bare", len(AGENTS), False],
        "context_to_1_ms": ms["context", 1, False],
        "context_to_all_ms": ms["context", len(AGENTS), False],
        "ratio": ms["context", len(AGENTS), False] / ms["copy", False],
        "context_to_all_and_read_ms": ms["context", len(AGENTS), True],
        "ratio_read": ms["context", len(AGENTS), True] / ms["copy", True],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 rounds")
    parser.add_argument("--full", action="store_true", help="60 rounds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = measure(5 if options.quick else 60 if options.full else 20)
    for name, value in figures.items():
        print(f"{name:28} {value:14.3f}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
