"""A recovery is killed, or hit by an error, at each of its system calls: the item is back once, with the reason."""

import os
import sys
from pathlib import Path

import pytest

from baton.board import moves
from baton.board.actor import Actor
from baton.board.approvals import approve
from baton.board.moves import Move
from baton.board.recovery import Recovery, rules_of
from baton.board.root import Board
from baton.board.tags import Text
from baton.stores import holder
from baton.testing import strace_sweep

TEXT = "# Work\n**Tags**: #{}-fix #P1\n\nDo it.\n"
STATES = ("delegated", "needs")
EVERY = 1 if os.environ.get("BATON_REQUIRE_PROOFS", "") not in {"", "0"} else 4
# What `baton recover` does, without the wait between its two looks.
RECOVER = """
import os, sys
from baton.board import recovery
from baton.board.root import Board
recovery.APART = 0
board = Board(sys.argv[1])
if not os.path.exists(board.state):  # each try is a copy, and a board is known by its path
    (made,) = os.scandir(os.path.dirname(board.state))
    os.rename(made.path, board.state)
found = recovery.Recovery(board, recovery.rules_of(board))
for one in found.treat(found.survey()):
    print(one.action, flush=True)
"""
ARGV = ["env", "-i", "XDG_STATE_HOME={directory}/state", sys.executable, "-c", RECOVER, "{directory}"]


def opened(directory):
    os.environ["XDG_STATE_HOME"] = f"{directory}/state"
    os.environ.pop("BATON_CLAIM", None)
    return Board(directory)


def dead(directory):
    """An item that a person approved, and whose worker is of an earlier boot."""
    board, path = opened(directory), Path(directory, "a.md")
    Path(directory, ".baton").mkdir()
    path.write_text(TEXT.format("needs"))
    approve(Move(board, str(path), "fix", "needs", "delegated"), Actor("ana", ""))
    gone = f"{holder.here()[0]}/an-earlier-boot/1/1/x"
    board.log.append("claimed", "a.md", "fix", **{"from": "delegated", "holder": gone, "supervised": 1, "session": "s"})
    path.write_text(TEXT.format("claimed"))
    board.log.close()


def wrong(directory, acknowledged):
    """What is wrong after a recovery that may have been hit, and after the next one."""
    board, path = opened(directory), Path(directory, "a.md")
    if not Path(board.state).exists():
        next(Path(board.state).parent.iterdir()).rename(board.state)
    data = path.read_text()
    if "back in the queue under its approval" in acknowledged and "#delegated-fix" not in data:
        yield f"it said that it is back: {data!r}"
    after = Recovery(board, rules_of(board))
    for _ in range(2):
        after._dead = dict.fromkeys(after._dead, -(10**12))  # as if the first look was long ago
        after.treat(after.survey())
    data = path.read_text()
    states = [tag.name for tag in Text(data.encode()).own()]
    if states not in (["delegated-fix", "P1"], ["needs-fix", "P1"]):
        yield f"it is {states}"
    if data.count("## Recovery") != 1 or "*   **Reason**: process 1 on " not in data:
        yield f"it does not say once why it is back: {data!r}"
    if not data.startswith(TEXT.format(states[0].partition("-")[0])):
        yield f"torn: {data!r}"
    list(board.log.records())  # raises if the chain is broken
    logged = moves.standing(board.log.history("a.md", "fix"))
    # Killed between the second record and its tag, it waits for a person: nobody else could say whose tag it is.
    if (states[0], logged["event"]) not in {(f"{one}-fix", one) for one in STATES} | {("needs-fix", "delegated")}:
        yield f"the tag says {states[0]}, the log {logged}"
    board.log.close()


@pytest.mark.proof("strace")
@pytest.mark.timeout(900)
def test_a_recovery_killed_at_any_call_loses_nothing():
    report = strace_sweep(ARGV, wrong, prepare=dead, every=EVERY)
    assert report.kills > 5
    assert not report.violations, report.violations


@pytest.mark.proof("strace")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["EIO", "ENOSPC"])
def test_a_recovery_hit_by_an_error_loses_nothing(mode):
    report = strace_sweep(ARGV, wrong, prepare=dead, mode=mode, every=EVERY)
    assert report.errors > 5
    assert not report.violations, report.violations
