"""What an item's tag, the last record of its log and its worker say together: one table, every cell decided.

The tag is the state, the log is evidence, and a worker that may live is left alone. The rows are what the log says
last, the columns what the tag says; where the log says `claimed`, the row is what is known of the worker. Whoever asks
holds the lock of the file, so that no move is half made while it looks.
"""

from __future__ import annotations

from enum import StrEnum


class Worker(StrEnum):
    """What is known of the one who claimed."""

    ALIVE = "alive"  # its process runs
    SILENT = "silent"  # it runs, and nothing was seen of it for too long
    ORPHAN = "orphan"  # who watched it is gone; something that it started still holds its lock
    DEAD = "dead"  # certainly gone
    UNKNOWN = "unknown"  # on another machine, or it cannot be told


class Verdict(StrEnum):
    """What an item is, and so what happens to it."""

    REST = "rest"  # nothing to do
    STAGED = "staged"  # waits for a person
    READY = "ready"  # may be started, if its approval still fits
    CHOSEN = "chosen"  # waits for the next session, a day at most
    WORKING = "working"  # somebody works on it
    STUCK = "stuck"  # its worker lives and does nothing: alert, nobody works beside it
    ORPHANED = "orphaned"  # what its worker started still runs: alert, then the end of that
    UNKNOWN = "unknown"  # its worker can't be seen from here: alert when its lease is over
    DEAD = "dead"  # its worker is gone: completed where the response is there, else back on the list
    RELEASE = "release"  # its claim was written down and never made, or its worker is gone: the log is put right
    FINISH = "finish"  # the log says done: the tag follows
    RETURN = "return"  # the log says it went back: the tag follows
    REAPPEARED = "reappeared"  # an old text was saved over it: alert, nothing starts
    TAKEN = "taken"  # somebody removed the tag under a live worker: alert
    UNAPPROVED = "unapproved"  # nobody approved it: alert, back to the list
    UNOWNED = "unowned"  # claimed by somebody of whom the log knows nothing: alert


COLUMNS = ("", "needs", "delegated", "next", "claimed", "done")

# fmt: off
_V = Verdict
TABLE: dict[str, tuple[Verdict, ...]] = {
    # the log says    no tag       needs        delegated       next            claimed       done
    "":             (_V.REST, _V.STAGED, _V.UNAPPROVED, _V.UNAPPROVED, _V.UNOWNED, _V.REST),
    "needs":        (_V.REST, _V.STAGED, _V.UNAPPROVED, _V.UNAPPROVED, _V.RETURN, _V.REST),
    "delegated":    (_V.REST, _V.STAGED, _V.READY, _V.UNAPPROVED, _V.UNOWNED, _V.REST),
    "next":         (_V.REST, _V.STAGED, _V.UNAPPROVED, _V.CHOSEN, _V.UNOWNED, _V.REST),
    "done":         (_V.REST, _V.STAGED, _V.REAPPEARED, _V.REAPPEARED, _V.FINISH, _V.REST),
    "removed":      (_V.REST, _V.STAGED, _V.UNAPPROVED, _V.UNAPPROVED, _V.UNOWNED, _V.REST),
}
WORKERS: dict[Worker, tuple[Verdict, ...]] = {
    Worker.ALIVE:   (_V.TAKEN, _V.TAKEN, _V.REAPPEARED, _V.REAPPEARED, _V.WORKING, _V.REST),
    Worker.SILENT:  (_V.TAKEN, _V.TAKEN, _V.REAPPEARED, _V.REAPPEARED, _V.STUCK, _V.REST),
    Worker.ORPHAN:  (_V.ORPHANED, _V.ORPHANED, _V.REAPPEARED, _V.REAPPEARED, _V.ORPHANED, _V.REST),
    Worker.DEAD:    (_V.REST, _V.STAGED, _V.RELEASE, _V.RELEASE, _V.DEAD, _V.REST),
    Worker.UNKNOWN: (_V.TAKEN, _V.TAKEN, _V.REAPPEARED, _V.REAPPEARED, _V.UNKNOWN, _V.REST),
}
# fmt: on


def verdict(tag: str, logged: str, worker: Worker | None = None) -> Verdict:
    """What an item is; `tag` and `logged` are states or "" for none, `worker` counts where the log says claimed."""
    row = WORKERS[worker or Worker.UNKNOWN] if logged == "claimed" else TABLE[logged]
    return row[COLUMNS.index(tag)]
