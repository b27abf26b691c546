"""What a claim costs with 1,000 and with 100,000 handoffs in the queue; it should cost the same.

usage: python benchmarks/claims.py [--quick | --full] [--json FILE]
"""

import argparse
import functools
import json
import statistics
import tempfile
import time
from pathlib import Path

from baton.stores import open_store
from baton.stores.base import Claim
from baton.testing.contracts.work import allow, request

AGENTS = ("a", "b", "c", "d")
PRIORITIES = ("critical", "high", "normal", "low")
REACH = 1.25


def fill(store, count):
    """Offer so many handoffs, each with a workflow of its own, over agents and priorities."""
    for first in range(0, count, 1000):
        offers = [
            request(AGENTS[number % 4], priority=PRIORITIES[number // 4 % 4])
            for number in range(first, min(first + 1000, count))
        ]
        store.batch([functools.partial(store.offer, offer, allow) for offer in offers])


def claims(store, count):
    """Microseconds of each of so many claims by one worker for all agents."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        granted = store.claim(Claim(holder="h", agents=AGENTS), allow)
        taken.append((time.perf_counter() - began) * 1e6)
        assert granted.won
    return taken


def measure(sizes, count, rounds=5):
    """Both queues side by side, in turns, so that the machine's moods meet both."""
    with tempfile.TemporaryDirectory() as folder:
        stores = {size: open_store(f"{folder}/{size}.db", durability="process") for size in sizes}
        for size, store in stores.items():
            fill(store, size)
            claims(store, 50)
        samples = {size: [] for size in sizes}
        for _ in range(rounds):
            for size, store in stores.items():
                samples[size] += claims(store, count // rounds)
        for store in stores.values():
            store.close()
    return {size: statistics.median(taken) for size, taken in samples.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 and 10,000 queued")
    parser.add_argument("--full", action="store_true", help="900 claims of each queue, not 500")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    sizes = (1_000, 10_000) if options.quick else (1_000, 100_000)
    median = measure(sizes, 900 if options.full else 500)
    ratio = median[sizes[1]] / median[sizes[0]]
    for size, micros in median.items():
        print(f"claim, {size:>7,} queued: {micros:7.1f} µs (median)")
    print(f"ratio {ratio:.2f} (reach: {REACH} or less) {'ok' if ratio <= REACH else 'MISSED'}")
    if options.json:
        result = {"queued": {str(size): micros for size, micros in median.items()}, "ratio": ratio, "reach": REACH}
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
