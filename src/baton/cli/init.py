"""`baton init`: set a board up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from baton.board import setup
from baton.board.actor import from_shell
from baton.board.root import board_of
from baton.cli.call import Call, argument, verb
from baton.cli.screen import Columns
from baton.cli.trust import difference
from baton.errors import NotFound

if TYPE_CHECKING:
    from baton.board.setup import Step

STEPS = Columns(("FILE", "WHAT", "WHY"), folded=True)


@verb(
    argument("folder", nargs="?", default=".", metavar="DIR", help="a folder of the repository (default: here)"),
    argument("--dry-run", action="store_true", help="only say what would be written, with the differences"),
    argument("--force", action="store_true", help="write anew what somebody changed in our files"),
    examples=("baton init", "baton init --dry-run"),
    columns=(STEPS,),
    stored=False,
)
def init(call: Call) -> int:
    """Write the pages and skills from which Claude Code, Codex, opencode and other agents learn the board's commands.

    TAGS.md, COMMANDS.md and INVARIANTS.md, three skills, and a marked block in AGENTS.md and CLAUDE.md. It changes
    nothing that it did not write: a file of yours stays, and one of ours that you changed is shown and stays, too.
    After an upgrade run it again. What it wrote is trusted at once, for you called it; agents are refused.
    """
    board, folder = board_of(call.args.folder)
    if not Path(folder).is_dir():
        raise NotFound(f"{folder}: no folder; make it, or name another one")
    steps = setup.plan(board, force=call.args.force)
    if not call.args.dry_run:
        setup.write(board, steps, from_shell())
    rows = [(step.name, step.what, step.reason) for step in steps]
    call.screen.table(STEPS, rows, map(_document, steps))
    for step in steps:
        if step.what == "changed" or (call.args.dry_run and step.what == "updated"):
            call.screen.heading(step.name)
            for line in difference(step.before, step.after):
                call.screen.line(line, {"+": "good", "-": "bad"}.get(line[:1], ""))
    if call.args.dry_run:
        call.screen.hint("nothing was written; run `baton init` without --dry-run")
    elif not any(step.writes for step in steps):
        call.screen.hint(f"the board {board.root} is set up already")
    else:
        call.screen.hint(
            'next: `baton request new fix "what is wrong"` puts work on the list, `baton review` approves it'
        )
    return 0


def _document(step: Step) -> dict[str, object]:
    lines = list(difference(step.before, step.after)) if step.what != "as it is" else []
    return {"file": step.name, "what": step.what, "why": step.reason, "difference": lines}
