"""Play many schedules, or one of them aloud.

examples:
  script/chaos 100000            a hundred thousand schedules, on all cores
  script/chaos --seed 872 -v     one of them again, line by line
  script/chaos --bugs            plant each known bug, and show the schedule that finds it
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

from baton.testing.simulation import bugs
from baton.testing.simulation.faults import FAULTS
from baton.testing.simulation.schedule import SQLITE_EVERY, play, simulate

CHUNK = 50
MOST = 1000  # schedules in which a planted bug has to show
EXPLAINED = (
    ("faults", (*FAULTS, "crash in a transaction", "notices lost")),
    ("work", ("claimed", "completed", "failed", "cancelled", "refused", "parked", "deferred", "rejected", "decisions")),
    ("recovery", ("reclaim", "retry", "release", "remind", "late or fenced")),
)


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))


def _results(options: argparse.Namespace, pool: ProcessPoolExecutor) -> Iterator[Any]:
    """Chunks as they are done; only a few are asked for ahead."""
    last = options.first + options.count
    starts = iter(range(options.first, last, CHUNK))
    asked: set[Future[Any]] = set()
    while True:
        for start in starts:
            asked.add(pool.submit(play, start, min(CHUNK, last - start), options.store))
            if len(asked) >= 2 * options.jobs:
                break
        if not asked:
            return
        done, asked = wait(asked, return_when=FIRST_COMPLETED)
        yield from (one.result() for one in done)


def many(options: argparse.Namespace) -> int:
    """Play them all, tell how far it is, and sum up; how many broke a promise."""
    happened: Counter[str] = Counter()
    broken: list[tuple[int, str]] = []
    began = told = time.monotonic()
    with _pool(options.jobs) as pool:
        for counts, found in _results(options, pool):
            happened += counts
            broken += found
            for seed, text in found:
                print(f"BROKEN seed {seed}: {text}", flush=True)
            if (now := time.monotonic()) - told > 5 and sys.stderr.isatty():
                told, rate = now, happened["schedules"] / (now - began)
                left = (options.count - happened["schedules"]) / rate
                line = f"{happened['schedules']:,} schedules, {rate:.0f}/s, {left:.0f} s left"
                print(f"\r{line} ", end="", file=sys.stderr)
    seconds = time.monotonic() - began
    last, rate = options.first + options.count - 1, options.count / seconds
    print(f"seeds {options.first} to {last}, {_stores(options)}, {_commit()}")
    print(f"{options.count:,} schedules in {seconds:.0f} s, {rate:.0f} a second in {options.jobs} processes")
    for title, names in EXPLAINED:
        print(f"{title:9}", ", ".join(f"{name} {happened[name]:,}" for name in names))
    print(f"promises broken: {len(broken)}")
    return len(broken)


def _stores(options: argparse.Namespace) -> str:
    return f"store {options.store}" if options.store else f"1 in {SQLITE_EVERY} on SQLite, the others in memory"


def _commit() -> str:
    try:
        asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
        return f"commit {subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()}"
    except (OSError, subprocess.CalledProcessError):
        return "commit unknown"


def all_bugs(options: argparse.Namespace) -> int:
    """Plant each bug, and tell which schedule shows it; how many were missed."""
    missed = 0
    with _pool(options.jobs) as pool:
        for name, outcome in zip(bugs.BUGS, pool.map(partial(bugs.find, most=MOST), bugs.BUGS), strict=True):
            missed += outcome is None
            shown = f"seed {outcome.seed:<5} {outcome.broken[0]:.90}" if outcome else f"MISSED in {MOST} schedules"
            print(f"{name:40} {shown}", flush=True)
    print(f"{len(bugs.BUGS) - missed} of {len(bugs.BUGS)} planted bugs found; {_commit()}")
    return missed


def one(options: argparse.Namespace) -> int:
    """Play one schedule, aloud if asked."""
    outcome = simulate(options.seed, store=options.store, trace=options.verbose)
    for line in outcome.trace:
        print(line)
    said = f"BROKEN: {outcome.broken[0]}" if outcome.broken else "every promise was kept"
    print(f"seed {outcome.seed}, {outcome.store}: {said}")
    return len(outcome.broken)


def main() -> None:
    """Read the command line."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="script/chaos", description=__doc__, formatter_class=shape)
    parser.add_argument("count", nargs="?", type=int, default=2000, help="how many schedules (2000)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--store", choices=("memory", "sqlite"), help="only on this store")
    parser.add_argument("--bugs", action="store_true", help="plant each known bug and find it")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (one for each core)")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: all that happened")
    options = parser.parse_args()
    task = one if options.seed is not None else all_bugs if options.bugs else many
    sys.exit(1 if task(options) else 0)


if __name__ == "__main__":
    main()
