"""Whether a request has its response: without one, it is not done.

It holds for requests, which are files named `…_REQUEST…`, of nouns that have a template. Who tags any other text has no
form to answer it in. Asked when work is done, so it stays cheap.
"""

from __future__ import annotations

import os
from os.path import basename, dirname, join

from baton.board.tags import Text
from baton.errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from baton.board.root import Board

RESPONSE = b"## Response"
BY = b"*   **Fulfilled by**: "
OWN = ".baton/templates"  # in a repository; what stands there is used after `baton trust`
TEMPLATES = join(dirname(__file__), "templates")


def demand(board: Board, path: str, noun: str, data: bytes) -> None:
    """Refuse that a request is done which nobody has answered."""
    if "_REQUEST" not in basename(path).upper() or not _has_form(board, noun) or response(board, data):
        return
    name = board.name(path)
    raise Refused(
        f"{name}: no response is linked, and #{noun} asks for one; `baton respond {name}` writes it, then it is done"
    )


def section(name: str, summary: str) -> list[str]:
    """What links a response in its request; `name` is its path below the root of the board."""
    return [f"{BY.decode()}{name}", f"*   **Summary**: {summary}"]


def response(board: Board, data: bytes) -> str:
    """The response that a request names and that is there, below the root of the board; empty where there is none."""
    hidden = Text(data).markdown.hidden
    at = data.find(RESPONSE)
    while at >= 0:
        end = data.find(b"\n", at)
        if (at == 0 or data[at - 1] == 10) and not any(start <= at < stop for start, stop in hidden):
            name = _named(data[at:]) if data[at:end].rstrip() == RESPONSE else ""
            if name and _is_there(board, name):
                return name
        at = data.find(RESPONSE, at + 1)
    return ""


def _named(section: bytes) -> str:
    for line in section.split(b"\n")[1:]:
        if line.startswith(b"## "):
            return ""
        if line.startswith(BY):
            return os.fsdecode(line[len(BY) :].rstrip())
    return ""


def _is_there(board: Board, name: str) -> bool:
    if "\0" in name:
        return False
    path = os.path.realpath(board.path(name))
    return path.startswith(board.root.rstrip("/") + "/") and os.path.isfile(path)


def _has_form(board: Board, noun: str) -> bool:
    name = f"{noun.upper().replace('-', '_')}_REQUEST.md"
    return os.path.exists(join(TEMPLATES, name)) or os.path.exists(board.path(f"{OWN}/{name}"))
