"""Every cell of tag × last record × worker, with real files, a real log, and processes that are really gone."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from baton import clock
from baton.board.actor import Actor, Claim
from baton.board.approvals import approve
from baton.board.evidence import COLUMNS, TABLE, WORKERS, Verdict, Worker, verdict
from baton.board.moves import Move, standing
from baton.board.recovery import ALERT, APART, Recovery, lock_path, rules_of
from baton.board.root import board_of
from baton.board.stopped import stop
from baton.board.tags import Text, state_of
from baton.stores import holder
from baton.testing.virtual import VirtualClock

# What becomes of an item: - nothing, n the tag is needs, d done, q needs and then delegated again, ~ the log
# follows the tag, ! a person is told.
CELLS = """
log        none  needs  delegated  next  claimed  done
-          -     -      n!         n!    !        -
needs      -     -      n!         n!    n        -
delegated  -     -      -          n!    !        -
next       -     -      n!         -     !        -
done       -     -      !          !     d        -
removed    -     -      n!         n!    !        -
alive      !     !      !          !     -        -
silent     !     !      !          !     !        -
orphan     !     !      !          !     !        -
dead       -     -      ~          n!    q        -
unknown    !     !      !          !     !        -
"""
ROWS = [line.split() for line in CELLS.strip().splitlines()]
EXPECTED = {(row[0], tag): cell for row in ROWS[1:] for tag, cell in zip(ROWS[0][1:], row[1:], strict=True)}


@pytest.fixture
def board(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "board" / ".baton").mkdir(parents=True)
    found, _ = board_of(str(tmp_path / "board"))
    yield found
    found.log.close()


def gone():
    """The identity of a process of this host that has ended."""
    code = "from baton.stores import holder; print(holder.identity())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def text(tag):
    return f"# t\n**Tags**: {f'#{tag}-fix ' if tag else ''}#P1\n\nbody\n"


def approved(board, to="delegated"):
    """A file with an item that a person approved."""
    path = Path(board.path("x.md"))
    path.write_text(text("needs"))
    approve(Move(board, str(path), "fix", "needs", to), Actor("ann", ""))
    return path


def logged(board, row):
    """What the log says of the item last."""
    workers = {"dead": gone, "orphan": gone, "unknown": lambda: "far/boot/1/1/x"}
    if row in {one.value for one in Worker}:
        more = {"holder": workers.get(row, holder.identity)(), "supervised": int(row == "silent"), "lock": "abc"}
        board.log.append("claimed", "x.md", "fix", **more)
    elif row not in {"-", "delegated", "next"}:
        board.log.append(row, "x.md", "fix")


def alerts(board):
    return [one for one in board.log.history("x.md", "fix") if one["event"] == ALERT]


@pytest.mark.parametrize(("row", "tag"), EXPECTED)
def test_every_cell_is_decided_and_done(board, row, tag):
    cell, tag = EXPECTED[row, tag], "" if tag == "none" else tag
    path, lock = Path(board.path("x.md")), lock_path(board, "abc")
    with clock.use(VirtualClock()) as now:
        if row != "-":
            approved(board, "next" if row == "next" else "delegated")
        logged(board, row)
        path.write_text(text(tag))
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as held:
            if row == "orphan":
                fcntl.flock(held, fcntl.LOCK_EX)
            recovery = Recovery(board, rules_of(board))
            now.advance(3600)
            for _ in range(3):
                recovery.treat(recovery.survey())
                now.advance(APART / clock.SECOND)
    tags = [one.name for one in Text(path.read_bytes()).own()]
    last = standing(board.log.history("x.md", "fix"))
    wanted = {"n": "needs", "d": "done", "q": "delegated"}.get(cell[0], tag)
    assert tags == [*([f"{wanted}-fix"] if wanted else []), "P1"]
    assert len(alerts(board)) == ("!" in cell)  # once, however often it looks
    if cell[0] in "ndq~":
        assert last["event"] == wanted
    assert (b"## Recovery" in path.read_bytes()) == (cell == "q")


def test_the_table_has_no_hole():
    assert set(TABLE) == {"", "needs", "delegated", "next", "done", "removed"}
    assert set(WORKERS) == set(Worker)
    assert all(len(row) == len(COLUMNS) for row in [*TABLE.values(), *WORKERS.values()])
    assert verdict("claimed", "claimed") is Verdict.UNKNOWN


def dead(board):
    """A file with an item whose worker is gone."""
    path = approved(board)
    logged(board, "dead")
    path.write_text(text("claimed"))
    return path


def test_a_worker_is_gone_only_at_the_second_look(board):
    path = dead(board)
    with clock.use(VirtualClock()) as now:
        recovery = Recovery(board, rules_of(board))
        for _ in range(2):
            (found,) = recovery.treat(recovery.survey())
            assert found.action == "a second look follows"
            assert path.read_text() == text("claimed")
            now.advance(APART / clock.SECOND / 2)
        (found,) = recovery.treat(recovery.survey())
        assert found.action == "back in the queue under its approval"


def test_a_person_may_want_to_be_told_instead(board):
    path = dead(board)
    with clock.use(VirtualClock()) as now:
        recovery = Recovery(board, rules_of(board, "alert"))
        for _ in range(3):
            found = recovery.treat(recovery.survey())
            now.advance(APART / clock.SECOND)
    assert [one.action for one in found] == ["a person is told (on_dead = alert)"]
    assert path.read_text() == text("claimed")
    assert len(alerts(board)) == 1


def test_what_stopped_itself_is_left_for_a_person_and_its_reason_is_only_text(board):
    path = approved(board)
    logged(board, "dead")
    path.write_text(text("claimed"))
    claim = standing(board.log.history("x.md", "fix"))["at"]
    stop(board, Claim("x.md", "fix", claim - 1), "ann", "another claim")
    stop(board, Claim("x.md", "fix", claim), "research", "it #needs-review\n## Response\n<!-- of a person")
    with clock.use(VirtualClock()) as now:
        recovery = Recovery(board, rules_of(board))
        for _ in range(2):
            recovery.treat(recovery.survey())
            now.advance(APART / clock.SECOND + 1)
    states = [one.name for one in Text(path.read_bytes()).tags if state_of(one.name)]
    assert states == ["needs-fix"]
    assert b"Left for a person: research stopped it: it " in path.read_bytes()
    assert b"\n## Response" not in path.read_bytes()
    (alert,) = alerts(board)
    assert "research stopped it" in alert["reason"]
