"""Who would do the work of a noun: skill, mode and program, as the dispatch table and the rows of programs say now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from baton.board import programs, requests, trust
from baton.digest import sha256
from baton.errors import NotFound

if TYPE_CHECKING:
    from baton.board.root import Board


def resolved(board: Board, noun: str) -> tuple[str, str, str]:
    """Skill, mode, and a name of the program that changes whenever its row does; empty where nobody is named."""
    route = requests.routes(board).get(noun)
    if route is None:
        return "", "", ""
    usual = programs.RESEARCH if route.mode == "async" else ""
    try:
        program = programs.load(Path(board.root), trust.judge(board)).of(route.skill, None, usual=usual)
    except NotFound:
        return route.skill, route.mode, ""
    row = msgspec.json.encode(msgspec.structs.replace(program, file="", cure=""), order="deterministic")
    return route.skill, route.mode, f"{program.name}:{sha256(row).hexdigest()[:16]}"
