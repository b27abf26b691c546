"""Wait until a tag stands on the Tags line of a file, or of any file in a folder."""

from __future__ import annotations

from os.path import isdir

from baton import clock
from baton.board import files
from baton.board.find import Hit, find, hits_in, start
from baton.board.watch import Watch
from baton.errors import NotFound, TimedOut


def wait(path: str, pattern: str, until: float | None = None) -> tuple[Hit, bool]:
    """The tag, and whether it was there at once; `until` is the moment to give up, as the clock counts."""
    shown, real, _ = start(path)
    with Watch(real) as watch:  # armed before the first look, so that nothing falls between the two
        hit = _look(shown, real, pattern)
        if hit is not None:
            return hit, True
        while True:
            left = None if until is None else until - clock.monotonic()
            if left is not None and left <= 0:
                raise TimedOut(f"{path}: #{pattern} did not come in the time given")
            changes = watch.wait(left)
            if changes and (hit := _look(shown, real, pattern)) is not None:
                return hit, False
            if changes.gone:
                raise NotFound(f"{path}: it is gone, and #{pattern} with it")


def _look(shown: str, real: str, pattern: str) -> Hit | None:
    """The first tag that fits and stands on a Tags line."""
    if isdir(real):
        return next(iter(find(pattern, [shown or "."], tags_only=True)), None)
    try:
        return next(iter(hits_in(shown, files.read(real), pattern, tags_only=True)), None)
    except NotFound:
        return None  # editors take a file away for a moment when they save it
