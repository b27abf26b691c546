"""One hop: offer, claim and complete through Relay, guards on, three audit rows; CPU time, syncs, bytes, group commit.

usage: python benchmarks/hop.py [--quick | --full] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import apsw

from baton import Command, Handoff, Limits, Message, Relay
from baton.flow import prepare
from baton.protocol.context import Context
from baton.testing.taps import Operation, Perform, tapped

CONTENTS = (  # what a hop is about, without what finds it
    "SELECT CAST(record || digest AS BLOB) FROM audit",
    "SELECT spec FROM handoff",
    "SELECT result FROM handoff WHERE result IS NOT NULL",
    "SELECT data FROM blob",
)
UNLIMITED = Limits(max_handoffs=None, max_depth=None)


def pair(url: str, hops: int) -> Relay:
    """Two agents that pass a changing task to and fro."""
    relay = Relay(url, limits=UNLIMITED)
    left = {}

    def make(name: str, other: str) -> None:
        @relay.agent(name)
        async def agent(turn: Any) -> Any:
            count = left[turn.handoff.workflow_id] = left.get(turn.handoff.workflow_id, hops) - 1
            if count < 0:
                return "done"
            return Command(goto=other, task=f"step {count}", reason="next")

    make("a", "b")
    make("b", "a")
    return relay


async def go(relay: Relay, messages: int = 1) -> None:
    """One workflow of many hops, on a conversation of so many messages."""
    history = tuple(Message("user" if i % 2 else "assistant", f"message {i}") for i in range(messages))
    request = {"context": Context(conversation_history=history)} if messages > 1 else {}
    await relay.run("a", "start", **request)


def hop_cpu(url: str, hops: int, messages: int = 1, rounds: int = 5) -> float:
    """Median CPU microseconds per hop, in this process and its threads."""
    relay = pair(url, hops)
    asyncio.run(go(relay))
    taken = []
    for _ in range(rounds):
        base = relay_cost_of_start(relay, messages)
        began = time.process_time()
        asyncio.run(go(relay, messages))
        taken.append((time.process_time() - began - base) / hops * 1e6)
    relay.close()
    return statistics.median(taken)


def relay_cost_of_start(relay: Relay, messages: int) -> float:
    """CPU seconds that storing the first messages takes: they are stored once, not per hop."""
    history = tuple(Message("user" if i % 2 else "assistant", f"message {i}") for i in range(messages))
    began = time.process_time()
    prepared = prepare.begin(relay._crew, Handoff(from_agent="user", to_agent="a", task="x", context=Context(conversation_history=history)), UNLIMITED)  # fmt: skip # noqa: E501
    relay.store.offer(prepared, relay._crew.judge_offer)
    return time.process_time() - began


def bare_commits(path: str, count: int, statements: int) -> float:
    """CPU microseconds of bare transactions that insert rows of 600 bytes: what SQLite itself takes."""
    connection = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (seq INTEGER PRIMARY KEY, data BLOB)")
    row = (os.urandom(600),)
    began = time.process_time()
    for _ in range(count):
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(statements):
            connection.execute("INSERT INTO t (data) VALUES (?)", row)
        connection.execute("COMMIT")
    taken = (time.process_time() - began) / count * 1e6
    connection.close()
    return taken


async def _many(relay: Relay, callers: int) -> None:
    await asyncio.gather(*(relay.run("a", f"work {i}") for i in range(callers)))


def throughput(folder: Path, callers: int, hops: int) -> float:
    """Durable hops a second of so many callers at once, by the wall clock."""
    relay = pair(str(folder / f"group{callers}.db"), hops)
    asyncio.run(go(relay))
    began = time.perf_counter()
    asyncio.run(_many(relay, callers))
    taken = time.perf_counter() - began
    relay.close()
    return callers * hops / taken


def stored_bytes(folder: Path, hops: int) -> tuple[float, float]:
    """File bytes per hop after a checkpoint; and as the floor, the contents alone in one bare table."""
    path = folder / "bytes.db"
    relay = pair(str(path), hops)
    relay.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.stat().st_size
    asyncio.run(go(relay))
    rows = [row for query in CONTENTS for row in relay.store._db.execute(query)]
    relay.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    relay.close()
    floor = folder / "floor.db"
    connection = apsw.Connection(str(floor))
    connection.execute("CREATE TABLE t (seq INTEGER PRIMARY KEY, data BLOB)")
    empty = floor.stat().st_size
    with connection:
        connection.executemany("INSERT INTO t (data) VALUES (?)", rows)
    connection.close()
    return (path.stat().st_size - before) / hops, (floor.stat().st_size - empty) / hops


def syncs(folder: Path, hops: int) -> float:
    """How often SQLite syncs for one hop, counted below it; the sealer's syncs, twice a second, are among them."""
    counted = Counter()

    def tap(operation: Operation, perform: Perform) -> Any:
        counted[operation.kind] += 1
        return perform(operation.data)

    with tapped(tap, ("sqlite",)):
        relay = pair(str(folder / "syncs.db"), hops)
        asyncio.run(go(relay))
        counted.clear()
        asyncio.run(go(relay))
        found = counted["sync"] / hops
        relay.close()
    return found


def measure(hops: int) -> dict[str, float]:
    """All figures of one run."""
    shm = Path("/dev/shm")
    fast = shm if os.access(shm, os.W_OK) else Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory() as disk, tempfile.TemporaryDirectory(dir=fast) as memory:
        folder = Path(disk)
        floor = 3 * bare_commits(":memory:", 5000, 1)
        cpu = hop_cpu(":memory:", hops)
        durable_floor = 2 * bare_commits(str(Path(memory) / "floor.db"), 3000, 2)
        durable = hop_cpu(str(Path(memory) / "hop.db"), hops)
        one = throughput(folder, 1, hops)
        many = throughput(folder, 32, max(20, hops // 10))
        stored, contents = stored_bytes(folder, hops)
        return {
            "memory_hop_us": cpu,
            "memory_floor_us": floor,
            "memory_ratio": cpu / floor,
            "memory_hop_10000_messages_us": hop_cpu(":memory:", hops, 10_000, 3),
            "durable_hop_us": durable,
            "durable_floor_us": durable_floor,
            "durable_ratio": durable / durable_floor,
            "syncs_per_hop": syncs(folder, hops),
            "bytes_per_hop": stored,
            "bytes_floor": contents,
            "bytes_ratio": stored / contents,
            "hops_per_second_1_caller": one,
            "hops_per_second_32_callers": many,
            "group_commit_gain": many / one,
        }


def main() -> None:
    """Print the figures and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200 hops")
    parser.add_argument("--full", action="store_true", help="3,000 hops")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = measure(200 if options.quick else 3000 if options.full else 1000)
    for name, value in figures.items():
        print(f"{name:32} {value:12.2f}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
