"""`baton review`: what waits for a person on the board, and what the person says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from baton import clock
from baton.board import review as reviewing
from baton.board.actor import Actor, from_shell
from baton.board.ancestry import refuse_agents
from baton.board.approvals import Terms
from baton.board.review import Item, Waiting
from baton.board.root import Board, board_of
from baton.cli.call import Call, argument, seconds, verb
from baton.cli.exits import code_of
from baton.cli.records import lasting
from baton.cli.review_walk import SAID, waits, walk, weight
from baton.cli.screen import Columns
from baton.errors import BatonError, Malformed, NotFound
from baton.protocol.codec import to_time

if TYPE_CHECKING:
    from baton.board.review import Decision

ITEMS = Columns(("ITEM", "NOUN", "WHY", "WEIGHT", "WAITS", "TITLE", "SUMMARY"), spare=("SUMMARY", "WAITS", "WEIGHT"))
FLAGS: dict[str, Decision] = {
    "approve": "approve", "next": "next", "defer": "defer", "dismiss": "dismiss", "back": "return"
}  # fmt: skip


def _files(flag: str, what: str) -> Any:
    return argument(f"--{flag}", nargs="*", metavar="FILE", help=what)


@verb(
    argument("folder", nargs="?", default="", metavar="DIR", help="only what waits below this folder"),
    _files("approve", "let the daemon start these; FILE, FILE:LINE, or FILE#NOUN where it has several"),
    _files("next", "leave these to the next skill of a session"),
    _files("defer", "leave these where they are, and note that you saw them"),
    _files("dismiss", "take these off the list"),
    _files("back", "send these back to the list, which waited too long as #next-"),
    argument("--all", metavar="NOUN", help="all that wait for this skill, with one of the decisions above"),
    argument("--lasts", metavar="TIME", help="how long an approval counts (default: BATON_APPROVAL_LASTS, else 7d)"),
    argument("--session", default="", metavar="DIR", help="whose next skill it is, with --next"),
    examples=(
        "baton review",
        "baton review --json",
        "baton review --approve sessions/PLAN/FIX_REQUEST_LOGIN.md --lasts 8h",
        "baton review --dismiss --all chores",
    ),
    columns=(ITEMS,),
    stored=False,
)
def review(call: Call) -> int:
    """Walk through what waits for a person, one by one: approve, next, edit, defer, dismiss.

    On top stand open alerts, what waited as #next- for more than a day, and what failed three times. What is shown is
    what is approved: a file that changed meanwhile is shown again. No answer is no approval. Without a terminal, or
    with --json, it only lists. Programs that agents run are refused, exit 3. Work inside a text gets a request of its
    own when it is approved.
    """
    args = call.args
    board, real = board_of(args.folder or ".")
    folder = real if args.folder else ""
    wanted = {flag: files for flag in FLAGS if (files := getattr(args, flag)) is not None}
    lasts = seconds(args.lasts, "--lasts") if args.lasts else None
    terms = Terms(lasts=lasts, session=board_of(args.session)[1] if args.session else "")
    if wanted:
        return _scripted(call, board, folder, wanted, terms)
    if args.all or args.session:
        raise Malformed("--all and --session go with a decision, as in `baton review --approve --all fix`")
    if call.screen.interactive:
        refuse_agents(board)
        reviewing.unpromoted(board, folder, from_shell())
        return walk(call.screen, board, folder, from_shell(), terms)
    _list(call, reviewing.waiting(board, folder))
    return 0


# --- for programs and pipes -----------------------------------------------------------------------


def _list(call: Call, found: Waiting) -> None:
    now = clock.now()
    marked = [("stale", found.stale), ("failed", found.exhausted), *(("", group) for group in found.groups.values())]
    items = [(why, item) for why, group in marked for item in group]
    rows: list[tuple[object, ...]] = [
        (one.path, "alert", "alert", "", lasting((now - one.since) / 1e6), one.title, one.text) for one in found.alerts
    ]
    rows += [
        (item.name, item.noun, why, weight(item), waits(item, now), item.title, item.summary) for why, item in items
    ]
    documents: list[dict[str, object]] = [
        {"kind": "alert", "path": one.path, "title": one.title, "text": one.text, "since": to_time(one.since)}
        for one in found.alerts
    ]
    documents += [document(why or "item", item) for why, item in items]
    call.screen.table(ITEMS, rows, documents)
    call.screen.hint("`baton review` in a terminal walks through it" if rows else "nothing waits for a person here")


def document(kind: str, item: Item) -> dict[str, object]:
    """An item for a program; `body` is the digest of what it says."""
    return {
        "kind": kind, "item": item.name, "path": item.path, "line": item.line or None, "noun": item.noun,
        "state": item.state, "priority": item.priority, "effort": item.effort or None, "since": to_time(item.since),
        "attempts": item.attempts, "title": item.title, "summary": item.summary, "body": item.sight.body,
    }  # fmt: skip


def _scripted(call: Call, board: Board, folder: str, wanted: dict[str, list[str]], terms: Terms) -> int:
    """Do what the flags say, each item for itself; the first failure gives the exit code."""
    refuse_agents(board)
    actor, code = from_shell(), 0
    every: list[Item] = []
    if call.args.all:
        reviewing.unpromoted(board, folder, actor)
        every = reviewing.waiting(board, folder).items()
    chosen = [(FLAGS[flag], item) for flag, files in wanted.items() for item in _named(call, board, every, flag, files)]
    for decision, item in chosen:
        failed = _one(call, board, item, decision, actor, terms)
        code = code or failed
    if not chosen:
        call.screen.hint("nothing of that waits; `baton review --json` lists what does")
    return code


def _one(call: Call, board: Board, item: Item, decision: Decision, actor: Actor, terms: Terms) -> int:
    try:
        where = reviewing.decide(board, item, decision, actor, terms)
    except BatonError as error:
        call.screen.document({"item": item.name, "noun": item.noun, "error": str(error), "kind": type(error).__name__})
        call.screen.notice(f"error: {error}")
        return code_of(error)
    call.screen.document({"item": item.name, "noun": item.noun, "decision": decision, "path": where})
    arrow = f" → {where}" if where not in {item.path, item.name} else ""
    call.screen.line(f"{item.name}{arrow}  {SAID[decision]}")
    call.screen.flush()  # what was said is done, whatever becomes of the next one
    return 0


def _named(call: Call, board: Board, every: list[Item], flag: str, files: list[str]) -> list[Item]:
    """The items that were named, each once."""
    items = [item for name in files for item in _of(board, name)]
    if call.args.all:
        of = "next" if flag == "back" else "needs"
        noun = call.args.all.removeprefix("#").removeprefix("needs-")
        items += [item for item in every if item.noun == noun and item.state == of]
    elif not files:
        raise Malformed(f"--{flag}: name files, or all of a skill with --all NOUN")
    return list({(item.path, item.noun, item.line): item for item in items}.values())


def _of(board: Board, given: str) -> list[Item]:
    """What a person means by FILE, FILE:LINE or FILE#NOUN."""
    path, noun, line = given, "", 0
    if not Path(path).exists():
        path, _, noun = given.rpartition("#") if "#" in given else (given, "", "")
    if not Path(path).exists():
        path, _, number = path.rpartition(":")
        line = int(number) if number.isascii() and number.isdecimal() else 0
    found, real = board_of(path or given)
    if found.root != board.root:
        raise Malformed(f"{given}: it belongs to the board {found.root}; review it there")
    if not Path(real).is_file():
        raise NotFound(f"{given}: nothing waits there; `baton review --json` lists what does")
    reviewing.unpromoted(board, real, from_shell())
    there = [item for item in reviewing.items(board, real) if noun in {"", item.noun}]
    fits = [item for item in there if item.line == line] or ([] if line else there)
    if not fits:
        others = ", ".join(f"{item.name}#{item.noun}" for item in there[:5])
        raise NotFound(f"{given}: nothing waits there{f'; what waits is {others}' if others else ''}")
    if len(fits) > 1:
        raise Malformed(f"{given}: {len(fits)} items wait there; name one, as in {fits[0].path}#{fits[0].noun}")
    return fits
