"""What an error means for the exit code."""

from __future__ import annotations

from baton.errors import (
    AuditBroken,
    BatonError,
    Conflict,
    Fenced,
    Malformed,
    NotFound,
    Refused,
    StoreError,
    TimedOut,
    Unfinished,
)

# The first that fits counts.
EXITS: tuple[tuple[type[BatonError], int], ...] = (
    (Fenced, 3),
    (Refused, 3),
    (AuditBroken, 3),
    (TimedOut, 124),
    (NotFound, 1),
    (Conflict, 1),
    (Unfinished, 1),
    (Malformed, 2),
    (StoreError, 2),
)


def code_of(error: BatonError) -> int:
    """The exit code of an error."""
    return next((code for kind, code in EXITS if isinstance(error, kind)), 2)
