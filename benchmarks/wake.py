"""How soon others notice: takeover of a killed worker, an approval from another process, and what waiting costs.

usage: python benchmarks/wake.py [--quick | --full] [--json FILE]
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from baton import Limits, Relay
from baton.protocol.handoff import Handoff
from baton.protocol.profile import Profile


def team(url):
    """An agent that never ends, and one that needs an approval and tells when it begins."""
    relay = Relay(url, limits=Limits(approve=("deploy",)))

    @relay.agent("endless")
    async def endless(_):
        await asyncio.Event().wait()

    @relay.agent("deploy")
    async def deploy(_):
        print(time.monotonic(), flush=True)

    return relay


async def child(url, role, seconds):
    """A process that works, or waits for an approval; it tells what it used while it had nothing to do."""
    relay = team(url)
    work = asyncio.create_task(relay.work() if role == "work" else relay.run("deploy", "release"))
    await asyncio.sleep(0.2)
    print("ready", flush=True)
    used = time.process_time()
    await asyncio.sleep(seconds)
    print(time.process_time() - used, flush=True)
    await work


@contextmanager
def started(url, role, seconds=0.0):
    """A child that is ready."""
    argv = [sys.executable, __file__, "--child", url, role, str(seconds)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def until(look):
    """Poll each millisecond; the seconds that it took."""
    began = time.monotonic()
    while not look():
        assert time.monotonic() - began < 60
        time.sleep(0.001)
    return time.monotonic() - began


def takeover(url):
    """Seconds from the death of a worker until another one holds its work."""
    with Relay(url) as relay, started(url, "work") as first:
        relay.store.register(Profile(agent_id="endless"))
        made = relay.hand_off(Handoff(from_agent="user", to_agent="endless", task="work"))
        until(lambda: relay.get(made.id).epoch == 1)
        with started(url, "work"):
            first.kill()
            first.wait()
            return until(lambda: relay.get(made.id).epoch == 2)


def approval(url, after):
    """Seconds from an approval until the work begins in the process that had waited so long."""
    with Relay(url) as relay, started(url, "wait") as process:
        time.sleep(after)
        [asked] = relay.waiting()
        began = time.monotonic()
        relay.approve(asked.id, by="ana")
        process.stdout.readline()  # what it used
        return float(process.stdout.readline()) - began


def idle(url, role, seconds):
    """The share of a core that a process takes while it waits."""
    with started(url, role, seconds) as process:
        return float(process.stdout.readline()) / seconds


def measure(rounds, seconds):
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        names = (str(Path(folder) / f"{number}.db") for number in range(1_000_000))
        taken = [takeover(next(names)) for _ in range(rounds)]
        soon = [approval(next(names), 0.0) for _ in range(rounds)]
        late = [approval(next(names), 3.0) for _ in range(rounds)]
        return {
            "takeover_of_a_killed_worker_s": [min(taken), statistics.median(taken), max(taken)],
            "approval_wakes_after_0_s_ms": [f(soon) * 1000 for f in (min, statistics.median, max)],
            "approval_wakes_after_3_s_ms": [f(late) * 1000 for f in (min, statistics.median, max)],
            "waiting_for_an_approval_core_percent": [idle(next(names), "wait", seconds) * 100] * 3,
            "waiting_for_work_core_percent": [idle(next(names), "work", seconds) * 100] * 3,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="once")
    parser.add_argument("--full", action="store_true", help="20 rounds")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        url, role, seconds = options.child
        asyncio.run(child(url, role, float(seconds)))
        return
    rounds, seconds = (1, 2) if options.quick else (20, 30) if options.full else (5, 10)
    figures = measure(rounds, seconds)
    print(f"{'what':38} {'least':>8} {'median':>8} {'most':>8}")
    for name, (least, middle, most) in figures.items():
        print(f"{name:38} {least:8.2f} {middle:8.2f} {most:8.2f}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
