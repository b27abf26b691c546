"""What an agent leaves to who waits for it: its log, its debrief (the response to the request), and its other files."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from baton.board import answered, files, sessions
from baton.board.root import Board
from baton.board.work import AGENT_LOG, Outcome
from baton.errors import BatonError

MOST = 200  # files
TEXT = 64 * 1024  # bytes of a debrief that are given back


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended, and what is there; files are named below the root of the board."""

    status: str
    reason: str
    session: str
    claim: int
    exit: int | None
    log: str = ""
    debrief: str = ""
    text: str = ""
    outputs: tuple[str, ...] = ()


def of(board: Board, request: str, outcome: Outcome) -> Left:
    """What is there after the work on a request."""
    folder = Path(board.root, outcome.session)
    log = folder / AGENT_LOG
    debrief, text = _debrief(board, request)
    found = [board.name(str(path)) for path in _files(folder)]
    return Left(
        status=outcome.status,
        reason=outcome.reason,
        session=outcome.session,
        claim=outcome.claim,
        exit=outcome.exit,
        log=board.name(str(log)) if log.is_file() else "",
        debrief=debrief,
        text=text,
        outputs=tuple(name for name in found if name != debrief),
    )


def _debrief(board: Board, request: str) -> tuple[str, str]:
    """The response that the request names, and its text; nothing where there is none that can be read."""
    try:
        name = answered.response(board, files.read(request))
        return name, files.read(os.path.realpath(board.path(name)))[:TEXT].decode(errors="replace") if name else ""
    except BatonError:
        return "", ""


def _files(folder: Path) -> list[Path]:
    """The files of a session that are somebody's work."""
    found: list[Path] = []
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        paths = [Path(above, name) for name in sorted(names) if not name.startswith(".")]
        found += [path for path in paths if path.is_file() and not path.is_symlink()]
        if len(found) > MOST:
            break
    return [path for path in found if path != folder / AGENT_LOG and path.name != sessions.FILE][:MOST]
