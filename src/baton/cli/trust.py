"""`baton trust`: look at what a repository brings along, and let it count."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from baton.board import trust as trusting
from baton.board.actor import from_shell
from baton.board.ancestry import refuse_agents
from baton.board.root import board_of
from baton.board.trust import Change
from baton.cli.call import Call, argument, verb
from baton.cli.records import counted
from baton.cli.screen import Columns
from baton.errors import NotFound, Refused

CHANGES = Columns(("FILE", "CHANGE", "LINES"))


@verb(
    argument("folder", nargs="?", default=".", metavar="DIR", help="a folder of the repository (default: here)"),
    argument("--list", action="store_true", help="only say what is not trusted"),
    argument("--yes", action="store_true", help="trust what is listed without a question, as a script of yours"),
    examples=("baton trust", "baton trust --list --json"),
    columns=(CHANGES,),
    stored=False,
)
def trust(call: Call) -> int:
    """Show what TAGS.md, settings, templates and skills of this repository say, and let them count from now on.

    What changed since you trusted them is shown as a difference. What was shown is what is trusted: a file that
    changes later counts no more until you look again. Agents are refused; without an answer nothing is trusted, exit 3.
    """
    board, folder = board_of(call.args.folder)
    if not Path(folder).is_dir():
        raise NotFound(f"{call.args.folder}: no such folder; name one of the repository")
    found = trusting.changes(board)
    rows = [(one.name, _what(one), str(_lines(one))) for one in found]
    call.screen.table(CHANGES, rows, (_document(one) for one in found))
    if not found:
        call.screen.hint(f"nothing to look at: all that counts in {board.root} is as you trusted it")
        return 0
    if call.args.list:
        call.screen.hint("`baton trust` shows it and asks")
        return 0
    refuse_agents(board)
    if not call.args.yes:
        for one in found:
            call.screen.heading(f"{one.name} ({_what(one)})")
            for line in difference(one.before, one.after):
                call.screen.line(line, {"+": "good", "-": "bad"}.get(line[:1], ""))
        if not call.screen.ask(f"Trust what is shown, {counted(len(found), 'file')}?"):
            raise Refused("nothing was trusted; say y when you are asked, or run it with --yes")
    trusting.trust(board, found, from_shell())
    call.screen.hint(f"{counted(len(found), 'file')} of {board.root}: what stands there now counts")
    return 0


def _what(change: Change) -> str:
    if change.before is None:
        return "new"
    return "gone" if change.after is None else "changed"


def _lines(change: Change) -> int:
    """How many lines of it are to be looked at."""
    return sum(line[:1] in {"+", "-"} for line in difference(change.before, change.after))


def difference(before: bytes | None, after: bytes | None) -> Iterator[str]:
    """What is to be looked at, line by line."""
    old, new = (data.decode("utf-8", "replace").splitlines() if data else [] for data in (before, after))
    lines = difflib.unified_diff(old, new, lineterm="", n=3)
    yield from (line for number, line in enumerate(lines) if number > 1)


def _document(change: Change) -> dict[str, object]:
    return {"file": change.name, "change": _what(change), "difference": list(difference(change.before, change.after))}
