"""Delegation in writing: requests from templates, and their responses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from baton.board import files, requests
from baton.board.actor import from_shell
from baton.board.dispatch import BY_PERSONS
from baton.board.root import Board, board_of
from baton.board.tags import EFFORTS, PRIORITIES, Text, effort, priority
from baton.cli import given
from baton.cli.call import Call, alone, argument, verb
from baton.cli.screen import Columns
from baton.errors import Malformed, NotFound

if TYPE_CHECKING:
    from baton.board.requests import Made

REQUESTS = Columns(("REQUEST", "STATE", "PRIORITY", "EFFORT", "TITLE"), spare=("EFFORT", "PRIORITY"))


@verb(
    argument("skill", metavar="SKILL", help="the skill or noun it is for: implement, fix, research …, or one of yours"),
    argument("topic", metavar="TOPIC", help="what it is about, in a few words; the file is named after it"),
    argument("--field", action="append", default=[], metavar="NAME=TEXT", help="fill a field of the template; repeat"),
    argument("--weight", action="append", default=[], metavar="TAG", help=f"one of {', '.join(PRIORITIES + EFFORTS)}"),
    argument("--in", dest="folder", default="", metavar="DIR", help="the session that asks; else a new one"),
    examples=(
        'baton request new fix "Login fails on Safari" --weight P0 --field what="a 500 on /login"',
        'baton request new research "Market size" --in sessions/2026_11_20_PLAN --field query=-',
    ),
    stored=False,
)
def request_new(call: Call) -> int:
    """Write a request from the template of its skill, tagged #needs-X: it is on the list, and a person approves it.

    Nothing is overwritten; a second request of that topic is numbered. A template in .baton/templates of the repository
    counts after `baton trust`; a skill without one gets the general form.
    """
    args = call.args
    alone("write a request")
    board, _ = board_of(".")
    wish = requests.Wish(args.skill, args.topic, _fields(args.field), tuple(args.weight), args.folder)
    made = requests.new(board, wish, from_shell())
    _said(call, board, made, f"{made.path}  #needs-{made.noun}")
    call.screen.hint(_next_step(board, made))
    return 0


def _next_step(board: Board, made: Made) -> str:
    """What becomes of a request that was just written."""
    if made.noun in BY_PERSONS:
        return f"#{made.noun} is for people: no agent is started for it, and `baton tag find '#needs-*'` lists it"
    step = f"`baton review` approves it; write what is missing into {made.path} first"
    skills = {route.noun: route.skill for route in requests.routes(board).values()}
    if made.noun in skills:
        return step
    from difflib import get_close_matches

    close = get_close_matches(made.noun, [*skills, *skills.values()], n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"{step}\n§TAG_DISPATCH has no row for #{made.noun}, so no agent will be started for it{meant}"


@verb(
    argument("folder", nargs="?", default="", metavar="DIR", help="only below this folder"),
    examples=("baton request list",),
    columns=(REQUESTS,),
    stored=False,
)
def request_list(call: Call) -> int:
    """List the requests of this board, and where each stands."""
    board, real = board_of(call.args.folder or ".")
    if not Path(real).is_dir():
        raise NotFound(f"{call.args.folder}: no such folder; name one of the board {board.root}")
    found = list(requests.listed(board, real if call.args.folder else ""))
    names = [[tag.name for tag in text.own()] for _, _, text in found]
    rows = [
        (path, tag, priority(own), effort(own) or "", text.title())
        for (path, tag, text), own in zip(found, names, strict=True)
    ]
    keys = ("path", "tag", "priority", "effort", "title")
    call.screen.table(REQUESTS, rows, (dict(zip(keys, row, strict=True)) for row in rows))
    if not found:
        call.screen.hint("no request here; `baton request new SKILL TOPIC` writes one")
    return 0


@verb(
    argument("file", metavar="FILE", help="the request"),
    argument("--status", choices=requests.STATUSES, default="Complete", help="how it ended (default Complete)"),
    argument("--summary", default="", metavar="TEXT", help="one or two sentences; - is standard input"),
    examples=('baton respond sessions/PLAN/FIX_REQUEST_LOGIN.md --summary "a wrong cookie flag; fixed in a1b2c3"',),
    stored=False,
)
def respond(call: Call) -> int:
    """Write the response to a request into your session, and link it in the request under `## Response`.

    Do it before you swap the tag to done: for skills with a template that is refused without a response. A second
    response is refused, exit 1; an old claim answers nothing, exit 3.
    """
    board, real = board_of(call.args.file)
    summary = given.text(call.args.summary, "--summary")
    made = requests.respond(board, real, call.args.status, summary, from_shell())
    _said(call, board, made, f"{made.path}  answers {made.request}")
    if f"claimed-{made.noun}" in {tag.name for tag in Text(files.read(real)).own()}:
        call.screen.hint(f"next: `baton tag swap {made.request} '#claimed-{made.noun}' '#done-{made.noun}'`")
    else:
        call.screen.hint(f"{made.request}: #{made.noun} is not claimed, so it is not done by this")
    return 0


def _said(call: Call, board: Board, made: Made, line: str) -> None:
    document = {"path": made.path, "noun": made.noun, "file": board.path(made.path)}
    call.screen.document({**document, "request": made.request} if made.request else document)
    call.screen.line(line)


def _fields(pairs: list[str]) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise Malformed(f"--field {pair[:60]!r}: write NAME=TEXT, as in what='a parser for dates'")
        fields.setdefault(name, []).append(given.text(text, f"--field {name}"))
    return fields
