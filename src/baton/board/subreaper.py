"""Stay the parent of all that descends from this process, also of what has cut its ties by a double fork.

Who started an agent marks itself like this before it does: then the way up from whatever the agent starts leads to it,
as long as it lives, and `baton.board.ancestry` can tell an agent from a person.
"""

from __future__ import annotations

import sys

SET_CHILD_SUBREAPER = 36  # of prctl


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends; False where the system cannot do that."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
