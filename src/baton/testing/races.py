"""Let processes contend for the same items, and judge what they were told.

`race` counts winners. It proves something only while it is rough enough: run it against `NaiveClaims` as
well, which reads, decides and writes, and which must lose more than one item in a hundred.
`linearizable` judges a history with beginnings and ends: is there an order of the operations that
explains every answer?
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import pickle
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from pathlib import Path

from baton.testing.children import PATIENCE, Child, Tell, in_clean_process

Claim = Callable[[str], bool]
Opener = Callable[[str], Claim]

HEAT = 200  # items between two meetings of the racers


@dataclass(frozen=True)
class RaceResult:
    """Who won what; an item with more than one winner is a double, one with none is unclaimed."""

    winners_per_item: dict[str, tuple[str, ...]] = field(repr=False)
    doubles: int
    unclaimed: int
    losers: int
    attempts: int
    seconds: float

    @property
    def double_rate(self) -> float:
        return self.doubles / len(self.winners_per_item)


def race(claim: Opener, items: Sequence[str], processes: int = 8) -> RaceResult:
    """Let processes claim the same items in the same order, as fast as they can.

    `claim(owner)` is called once in each process, so that each opens a store of its own, and returns the
    function that claims one item and says whether it won. It must be importable.
    """
    if processes < 2 or not items or len(set(items)) < len(items):
        raise ValueError("a race needs at least two processes and one item, and no item twice")
    return in_clean_process(_race, claim, list(items), processes)


def _race(claim: Opener, items: list[str], processes: int) -> RaceResult:
    # Meeting now and then keeps them abreast; else one claims whole stretches before another is scheduled.
    line = multiprocessing.get_context("fork").Barrier(processes)
    with tempfile.TemporaryDirectory() as directory:
        racers = [
            Child(functools.partial(_run, claim, f"racer-{number}", items, line, Path(directory)))
            for number in range(processes)
        ]
        outcomes = [racer.finish(PATIENCE + len(items) * processes / 1000) for racer in racers]
        failed = [outcome for outcome in outcomes if outcome.status]
        if failed:
            first = max(failed, key=lambda outcome: "BrokenBarrierError" not in str(outcome.messages))
            raise RuntimeError(f"a racer ended with {first.status}: {first.of(b'E')}")
        runs = {file.name: pickle.loads(file.read_bytes()) for file in Path(directory).iterdir()}  # noqa: S301 - ours
    winners: dict[str, list[str]] = {item: [] for item in items}
    for owner in sorted(runs):
        for item in runs[owner][0]:
            winners[item].append(owner)
    attempts = len(items) * processes
    return RaceResult(
        winners_per_item={item: tuple(owners) for item, owners in winners.items()},
        doubles=sum(len(owners) > 1 for owners in winners.values()),
        unclaimed=sum(not owners for owners in winners.values()),
        losers=attempts - sum(map(len, winners.values())),
        attempts=attempts,
        seconds=max(end for _, _, end in runs.values()) - min(begin for _, begin, _ in runs.values()),
    )


def _run(claim: Opener, owner: str, items: list[str], line: Barrier, results: Path, _: Tell) -> None:
    won = []
    try:
        take = claim(owner)
        line.wait(PATIENCE)
        begin = time.monotonic()
        for number, item in enumerate(items, 1):
            if take(item):
                won.append(item)
            if number % HEAT == 0:
                line.wait(PATIENCE)
    except Exception:
        line.abort()
        raise
    results.joinpath(owner).write_bytes(pickle.dumps((won, begin, time.monotonic())))


class NaiveClaims:
    """How not to do it: read, decide, write atomically. A harness that finds no double here is too gentle."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __call__(self, owner: str) -> Claim:
        """Open the claims for one process."""
        return functools.partial(self._claim, owner)

    def _claim(self, owner: str, item: str) -> bool:
        file = Path(self._directory, item)
        with suppress(FileNotFoundError):
            return file.read_text() == owner
        temporary = Path(self._directory, f"{item}.{owner}")
        temporary.write_text(owner)
        temporary.replace(file)
        return True


@dataclass(frozen=True)
class Attempt:
    """One operation on one item; `ok=None` when the process died before an answer came."""

    process: str
    kind: str  # claim, release or complete; another rule may know more
    item: str
    begin: float
    end: float
    ok: bool | None


Rule = Callable[[Attempt, str], str | None]
FREE, COMPLETE = "", "\0complete"


def claims(attempt: Attempt, state: str) -> str | None:
    """The rule of simple claims: what an item is after an attempt, None where it cannot have been answered so."""
    if attempt.kind == "claim":
        succeeds, then = state == FREE, attempt.process
    else:
        succeeds, then = state == attempt.process, FREE if attempt.kind == "release" else COMPLETE
    if attempt.ok is not None and attempt.ok != succeeds:
        return None
    return then if succeeds else state


def linearizable(history: Iterable[Attempt], rule: Rule = claims, start: str = FREE) -> bool:
    """Say whether one order of the attempts, each between its begin and its end, explains every answer.

    By default, an item is free, held or complete. A claim succeeds when it is free; a release and a completion when
    the same process holds it. An attempt without an answer may have happened at any time or never. Another `rule`
    says what an item is after an attempt, from `start` on.
    """
    per_item: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in history:
        per_item[attempt.item].append(attempt)
    return all(_explained(sorted(some, key=lambda each: each.begin), rule, start) for some in per_item.values())


def _explained(attempts: list[Attempt], rule: Rule, start: str) -> bool:
    # The search of Wing, Gong and Lowe: states already visited with the same attempts done are dropped.
    ends = [math.inf if attempt.ok is None else attempt.end for attempt in attempts]
    answered = sum(1 << number for number, attempt in enumerate(attempts) if attempt.ok is not None)
    seen, open_ends = {(0, start)}, [(0, start)]
    while open_ends:
        done, state = open_ends.pop()
        if done & answered == answered:
            return True
        waiting = [number for number in range(len(attempts)) if not done >> number & 1]
        earliest = min(ends[number] for number in waiting)
        for number in waiting:
            if attempts[number].begin > earliest:
                break
            after = rule(attempts[number], state)
            if after is not None and (step := (done | 1 << number, after)) not in seen:
                seen.add(step)
                open_ends.append(step)
    return False
