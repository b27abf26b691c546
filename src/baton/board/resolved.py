"""Who would do the work of a noun: skill, mode and program, as the dispatch table and the rows of programs say now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from baton.board import programs, requests, trust
from baton.board.programs import Program
from baton.digest import sha256
from baton.errors import NotFound

if TYPE_CHECKING:
    from baton.board.root import Board


def program_of(board: Board, skill: str, mode: str, name: str | None = None) -> Program:
    """The program that does a skill in a mode: the one that is named, else what the rows that count here say."""
    usual = programs.RESEARCH if mode == "async" else ""
    return programs.load(Path(board.root), trust.judge(board)).of(skill, name, usual=usual)


def resolved(board: Board, noun: str) -> tuple[str, str, str]:
    """Skill, mode, and a name of the program that changes whenever its row does; empty where nobody is named."""
    route = requests.routes(board).get(noun)
    if route is None:
        return "", "", ""
    try:
        program = program_of(board, route.skill, route.mode)
    except NotFound:
        return route.skill, route.mode, ""
    row = msgspec.json.encode(msgspec.structs.replace(program, file="", cure=""), order="deterministic")
    return route.skill, route.mode, f"{program.name}:{sha256(row).hexdigest()[:16]}"
