"""The race harness finds doubles where there are some, and none where there are none."""

import fcntl
import os
import random
import time
from pathlib import Path

import pytest

from baton import testing
from baton.testing import Attempt, NaiveClaims, linearizable, race

ITEMS = [f"item-{number}" for number in range(2000)]


class GatedClaims(NaiveClaims):
    """The same read, decide, write, under one lock."""

    def __call__(self, owner):
        gate = os.open(Path(self._directory, ".gate"), os.O_CREAT | os.O_RDWR)

        def claim(item):
            fcntl.flock(gate, fcntl.LOCK_EX)
            try:
                return self._claim(owner, item)
            finally:
                fcntl.flock(gate, fcntl.LOCK_UN)

        return claim


class ExclusiveClaims(NaiveClaims):
    """A file is created by one process only."""

    def _claim(self, owner, item):
        try:
            os.close(os.open(Path(self._directory, item), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True


def nobody(owner):
    return lambda item: False


def broken(owner):
    if owner == "racer-2":
        raise LookupError("no store today")
    return nobody(owner)


def test_a_naive_backend_is_caught(tmp_path):
    result = race(NaiveClaims(str(tmp_path)), ITEMS, 8)
    assert result.double_rate > 0.01
    assert result.doubles == sum(len(owners) > 1 for owners in result.winners_per_item.values())


@pytest.mark.parametrize("backend", [GatedClaims, ExclusiveClaims])
def test_a_correct_backend_has_one_winner_each(tmp_path, backend):
    result = race(backend(str(tmp_path)), ITEMS, 8)
    assert (result.doubles, result.unclaimed) == (0, 0)
    assert result.losers == 7 * len(ITEMS)
    assert result.attempts == 8 * len(ITEMS)
    assert len({owner for owners in result.winners_per_item.values() for owner in owners}) > 1
    assert result.seconds > 0


def test_nobody_wins_and_nobody_hangs():
    assert race(nobody, ITEMS[:10], 2).unclaimed == 10
    with pytest.raises(ValueError, match="no item twice"):
        race(nobody, ["a", "a"], 2)
    with pytest.raises(RuntimeError, match="no store today"):
        race(broken, ITEMS[:10], 3)


def history(*rows):
    return [Attempt(process, kind, "item", begin, end, ok) for process, kind, begin, end, ok in rows]


CLAIM, RELEASE, COMPLETE = "claim", "release", "complete"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [("a", CLAIM, 0, 1, True), ("b", CLAIM, 2, 3, False)],
        [("a", CLAIM, 0, 3, False), ("b", CLAIM, 1, 2, True)],
        [("a", CLAIM, 0, 1, True), ("a", RELEASE, 2, 5, True), ("b", CLAIM, 3, 4, True)],
        [("a", CLAIM, 0, 1, True), ("a", COMPLETE, 2, 3, True), ("b", CLAIM, 4, 5, False)],
        [("a", CLAIM, 0, 1, None), ("b", CLAIM, 2, 3, False)],
        [("a", CLAIM, 0, 1, None), ("b", CLAIM, 2, 3, True)],
        [("a", CLAIM, 0, 9, True), ("a", RELEASE, 10, 11, None), ("b", CLAIM, 12, 13, True)],
    ],
)
def test_what_can_be_explained(rows):
    assert linearizable(history(*rows))


@pytest.mark.parametrize(
    "rows",
    [
        [("a", CLAIM, 0, 1, True), ("b", CLAIM, 2, 3, True)],
        [("a", CLAIM, 0, 5, True), ("b", CLAIM, 1, 4, True)],
        [("a", CLAIM, 0, 1, False)],
        [("a", CLAIM, 0, 1, True), ("b", COMPLETE, 2, 3, True)],
        [("a", CLAIM, 0, 1, True), ("a", COMPLETE, 2, 3, True), ("b", CLAIM, 4, 5, True)],
        [("a", CLAIM, 0, 1, True), ("a", RELEASE, 2, 3, True), ("b", CLAIM, 4, 5, False)],
        [("a", CLAIM, 0, 1, None), ("b", CLAIM, 2, 3, True), ("a", COMPLETE, 4, 5, True)],
    ],
)
def test_what_cannot(rows):
    assert not linearizable(history(*rows))


def simulated(chance):
    """A history that is linearizable because it was made from points in order."""
    owner, rows = None, []
    for point in range(16):
        process = chance.choice("abcd")
        kind = chance.choice((CLAIM, CLAIM, RELEASE, COMPLETE) if point > 12 else (CLAIM, RELEASE))
        ok = owner is None if kind == CLAIM else owner == process
        if ok:
            owner = {CLAIM: process, RELEASE: None, COMPLETE: "nobody"}[kind]
        rows.append((process, kind, point - chance.random() * 3, point + chance.random() * 3, ok))
    return rows


def test_random_histories_and_their_rate():
    chance, began = random.Random(1), time.perf_counter()
    histories = [simulated(chance) for _ in range(2000)]
    assert all(linearizable(history(*rows)) for rows in histories)
    spoiled = 0
    for rows in histories:
        rows.append(("e", CLAIM, 100, 101, True))
        rows.append(("f", CLAIM, 102, 103, True))
        spoiled += not linearizable(history(*rows))
    assert spoiled == 2000
    assert time.perf_counter() - began < 10


def test_every_name_of_the_kit_is_there():
    for name in dir(testing):
        assert getattr(testing, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = testing.no_such_name
