"""A swap is killed, or hit by an error, at each of its system calls: no torn file, no lost tag, and the log agrees."""

import os
import sys
from pathlib import Path

import pytest

from baton import clock
from baton.board import files, moves
from baton.board.actor import Actor
from baton.board.moves import Move, make
from baton.board.root import Board
from baton.stores import holder
from baton.testing import strace_sweep
from baton.testing.faults import SYSCALLS

TEXT = "# Übung\r\n**Tags**: #delegated-fix #P1\r\n\r\nno newline at the end".encode()
SWAPPED = TEXT.replace(b"#delegated-fix", b"#claimed-fix")
CALLS = (*SYSCALLS, "flock", "sync_file_range", "fchmod", "fcntl", "close")
BATON = str(Path(sys.executable).with_name("baton"))
SWAP = [
    *("env", "-i", "XDG_STATE_HOME={directory}/state", BATON),
    *("tag", "swap", "{directory}/a.md", "#delegated-fix", "#claimed-fix"),
]


def prepare(directory):
    Path(directory, ".baton").mkdir()
    Path(directory, "a.md").write_bytes(TEXT)
    Path(directory, "a.md").chmod(0o640)


class Later(clock.SystemSource):
    def now(self):
        return super().now() + 3600 * clock.SECOND


def swap_again(board, path):
    return make(Move(board, path, "fix", "delegated", "claimed"), Actor("again", holder.identity()))


def broken(directory, acknowledged):
    """What is wrong after a swap that may have been hit."""
    os.environ["XDG_STATE_HOME"] = f"{directory}/state"
    board, path = Board(directory), f"{directory}/a.md"
    data = Path(path).read_bytes()
    if data not in {TEXT, SWAPPED}:
        yield f"torn: {data!r}"
    if Path(path).stat().st_mode & 0o777 != 0o640:
        yield "its rights changed"
    list(board.log.records())  # raises if the chain is broken
    record = moves.standing(board.log.history("a.md", "fix"))
    if data == SWAPPED and (record is None or record["event"] != "claimed"):
        yield f"the tag says claimed, the log {record}"
    if acknowledged and data != SWAPPED:
        yield "it said that the swap was done"
    with clock.use(Later()):
        if kept := files.sweep(directory):
            yield f"taken for a save of somebody: {kept}"
    if left := {one.name for one in Path(directory).iterdir()} - {"a.md", ".baton", "state"}:
        yield f"left behind: {left}"
    if data == TEXT:
        epoch = swap_again(board, path)
        if Path(path).read_bytes() != SWAPPED or board.log.last("a.md", "fix")["at"] != epoch:
            yield "it cannot be swapped afterwards"
    board.log.close()


@pytest.mark.proof("strace")
@pytest.mark.timeout(600)
def test_a_swap_killed_at_any_call_is_whole():
    report = strace_sweep(SWAP, broken, syscalls=CALLS, prepare=prepare)
    assert report.kills > 10
    assert {"renameat2", "fdatasync"} <= {operation.split()[0] for operation in report.operations}
    assert not report.violations, report.violations


@pytest.mark.proof("strace")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["EIO", "ENOSPC"])
def test_a_swap_hit_by_an_error_is_whole(mode):
    report = strace_sweep(SWAP, broken, syscalls=CALLS, mode=mode, prepare=prepare)
    assert report.errors > 10
    assert not report.violations, report.violations
