"""`recover`, as far as it is about the board."""

from __future__ import annotations

import time

import msgspec

from baton import clock
from baton.board import files, tree
from baton.board.evidence import Verdict, Worker
from baton.board.recovery import APART, Recovery, rules_of
from baton.board.root import Board
from baton.cli.call import Call
from baton.cli.screen import Columns

RESTING = frozenset({Verdict.REST, Verdict.STAGED, Verdict.READY, Verdict.CHOSEN, Verdict.WORKING})


def recover_board(call: Call, board: Board, columns: Columns) -> None:
    """Say what is stuck, and put it right unless it is a dry run. A dead worker is looked for twice."""
    recovery = Recovery(board, rules_of(board, call.args.on_dead))
    found = [one for one in recovery.survey() if one.verdict not in RESTING]
    if not call.args.dry_run:
        _sweep(call, board)
        done = recovery.treat(recovery.survey())
        if any(one.worker is Worker.DEAD for one in done):
            time.sleep(APART / clock.SECOND)
            again = {(one.path, one.noun): one for one in recovery.treat(recovery.survey())}
            done = [again.pop((one.path, one.noun), one) for one in done] + list(again.values())
        found = done
    rows = [(f"{one.path}#{one.noun}", one.verdict.value, one.reason, one.action) for one in found]
    call.screen.table(columns, rows, map(msgspec.structs.asdict, found))
    if not found:
        call.screen.hint("no tagged work is stuck")


def _sweep(call: Call, board: Board) -> None:
    """Clear the board of what killed processes left, and name what was kept."""
    folders = [board.root]
    while folders:
        folder = folders.pop()
        folders += tree.look_into(folder)[1]
        for kept in files.sweep(folder):
            call.screen.notice(f"{kept}: left by a killed process, and not what the file says; is it somebody's save?")
