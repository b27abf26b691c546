"""Processes race for items of the board: each has one winner, and a naive swap has more.

BATON_RACE=N races for N items instead of 600.
"""

import fcntl
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from baton.board import files
from baton.board.root import Board
from baton.errors import Held
from baton.testing import race
from baton.testing.tagged import TEXT, claimer, fill, naive_claimer

ITEMS = int(os.environ.get("BATON_RACE", "600"))


def test_each_item_has_one_winner(tmp_path, monkeypatch):
    items = fill(str(tmp_path), ITEMS)
    result = race(functools.partial(claimer, str(tmp_path)), items, 8)
    assert (result.doubles, result.unclaimed) == (0, 0)
    assert result.losers == ITEMS * 7
    assert sum(bool(owners) for owners in result.winners_per_item.values()) == ITEMS
    assert len({owners[0] for owners in result.winners_per_item.values()}) > 1
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/.state")
    winners = {item: owners[0] for item, owners in result.winners_per_item.items()}
    records = [one for one in Board(str(tmp_path)).log.records() if one["event"] == "claimed"]
    assert {one["path"]: one["by"] for one in records} == winners
    assert len(records) == ITEMS
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".state") == sorted(items)


def test_a_naive_swap_has_more_winners(tmp_path):
    result = race(functools.partial(naive_claimer, str(tmp_path)), fill(str(tmp_path), 2000), 8)
    assert result.double_rate > 0.01


def test_one_command_of_many_wins(tmp_path):
    (tmp_path / ".baton").mkdir()
    baton = Path(sys.executable).with_name("baton")
    for name in fill(str(tmp_path), 5):
        started = [
            subprocess.Popen(
                [baton, "tag", "swap", name, "#delegated-fix", "#claimed-fix"],
                cwd=tmp_path, env={"XDG_STATE_HOME": f"{tmp_path}/.state"},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for _ in range(8)
        ]  # fmt: skip
        ended = [(process.communicate(timeout=60), process.returncode) for process in started]
        assert sorted(code for _, code in ended) == [0] + [1] * 7
        claim = next(out for (out, _), code in ended if code == 0).partition("(claim ")[2].rstrip(")\n")
        assert all(f"(claim {claim})" in err for (_, err), code in ended if code == 1)


def test_who_locks_a_file_for_good_stops_nobody_for_ever(tmp_path):

    path = tmp_path / "a.md"
    path.write_bytes(TEXT)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Held, match="locked it"):
            files.change(str(path), lambda data: data + b"x", patience=0.2)
    assert path.read_bytes() == TEXT
