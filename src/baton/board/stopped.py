"""Who ended the work of a claim for good, and why it does not start again by itself.

A person ends an agent, or a program says that only a person can go on. Either is a record about the claim; without one,
work whose worker is gone is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from baton.board.actor import Claim

if TYPE_CHECKING:
    from baton.board.root import Board

STOPPED = "stopped"
LONGEST = 600  # characters of a reason


def stop(board: Board, claim: Claim, by: str, why: str = "") -> None:
    """Note it, before the work is ended."""
    more = {"why": why[:LONGEST]} if why else {}
    board.log.append(STOPPED, claim.path, claim.noun, by=by, of=claim.epoch, **more)


def why(board: Board, claim: Claim) -> str:
    """Who ended the work of a claim and why; nothing where nobody did."""
    for record in board.log.history(claim.path, claim.noun):
        if record["event"] == STOPPED and record.get("of") == claim.epoch:
            reason = str(record.get("why", ""))
            return f"{record['by']} stopped it" + (f": {reason}" if reason else "")
        if record["at"] == claim.epoch:
            break
    return ""
