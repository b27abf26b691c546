"""`run /SKILL` and `run --monitor-tags`: the board's work, done here or by agents that are started for it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from baton import clock, config
from baton.board import actor, agents, approvals, debrief, files, moves, programs, requests, trust
from baton.board.ancestry import refuse_agents
from baton.board.daemon import Daemon, Settings
from baton.board.dispatch import Route, Routes, way
from baton.board.items import Items
from baton.board.order import Slots
from baton.board.recovery import rules_of
from baton.board.resolved import program_of
from baton.board.root import Board, board_of
from baton.board.work import Task, Work, caller, claimed, inline_steps
from baton.cli.call import Call, alone, argument, counting, seconds, verb
from baton.cli.exits import code_of
from baton.cli.screen import Columns
from baton.errors import BatonError, Conflict, Malformed, NotFound, Refused, safe

TAKEN = Columns(("ITEM", "CLAIM", "WHAT"), folded=True)
ON_DEAD = argument(
    "--on-dead", choices=("requeue", "alert"), default="requeue", help="work of a dead worker: again (3 times), or ask"
)
HANDOFFS = argument(
    "--enable-handoffs", action="store_true", help="agents may ask others for work; else each finishes alone"
)


@verb(
    argument("skill", metavar="/SKILL", help="a row of the dispatch table: /implement, /fix, /research, …"),
    argument(
        "file", nargs="?", metavar="FILE", help="the request; without it the #next- items of this skill are taken"
    ),
    argument("--mode", choices=("interactive", "agent", "async"), help="else what the table and the terminal say"),
    argument("--program", metavar="NAME", help="which program is the agent: claude, codex, opencode, or your own"),
    argument("--max-time", metavar="TIME", help="end it after that: 30m, 2h"),
    argument("--definition", metavar="FILE", help="what kind of agent it is: the program is told to read this first"),
    argument("--wait", action="store_true", help="ask first: launch the agent, or continue inline?"),
    argument("--launch", action="store_true", help="answer: launch it (and show what it says)"),
    argument("--inline", action="store_true", help="answer: I do it myself; it is claimed for who calls this"),
    HANDOFFS,
    ON_DEAD,
    examples=(
        "baton run /implement sessions/2026_11_20_LOGIN/IMPLEMENTATION_REQUEST_LOGIN.md",
        "baton run /fix REQUEST.md --mode agent --program codex --max-time 1h",
        "baton run /implement PLAN.md --wait --definition agents/builder.md",
        "baton run /implement PLAN.md --launch --json   # the answer of a sub-agent, for a program",
        "baton run /implement          # take what was chosen for the next session",
    ),
    columns=(TAKEN,),
    stored=False,
)
def run_skill(call: Call) -> int:
    """Claim a request, start the agent that does it, watch it, and give back its log, its debrief and its outputs.

    With --wait it asks first whether to launch the agent or to continue inline; without an answer nothing is done, exit
    3. Exit 0: it is done. Exit 1: somebody else has it, or it was not done; it is back on the list with the reason.
    Exit 3: nobody approved it as it stands now.
    """
    args = call.args
    board, path = board_of(args.file or ".")
    route = _route(requests.routes(board), args.skill)
    if args.file is None:
        return _take_next(call, board, route)
    how = way(args.mode or route.mode, shows=call.screen.tty, attached=call.screen.tty)
    if how.mode is None:
        raise NotFound(f"/{route.skill}: {how.reason}")
    if args.program and config.board_claim():
        refuse_agents(board)  # another program than the one that was approved is a person's choice
    longest = seconds(args.max_time, "--max-time") if args.max_time else None
    task = Task(
        board=board, path=path, noun=route.noun, skill=route.skill,
        program=program_of(board, route.skill, how.mode, args.program),
        mode="interactive" if how.mode == "interactive" else "headless",
        rules=rules_of(board, args.on_dead), longest=longest, definition=_definition(args.definition),
        handoffs=args.enable_handoffs,
    )  # fmt: skip
    if _chosen(call, task) == "inline":
        return _inline(call, task)
    alone(f"launch {task.program.name}")
    shows = args.wait or args.launch or call.screen.tty
    outcome = Work(task, call.screen.notice if shows else None).run(call.screen.hint)
    left = debrief.of(board, path, outcome)
    call.screen.document(left)
    call.screen.hint(f"{outcome.status}: {outcome.reason}")
    call.screen.fields((("log", left.log), ("debrief", left.debrief), *(("output", one) for one in left.outputs)))
    if left.text:
        call.screen.line()
        call.screen.block(left.text, indent="")
    return 0 if outcome.status == "completed" else 1


def _chosen(call: Call, task: Task) -> str:
    """Whether the agent is launched, or who calls does the work: a flag says it, else a person, never silence."""
    args = call.args
    if args.launch and args.inline:
        raise Malformed("--launch and --inline: give one of them")
    if args.inline or args.launch or not args.wait:
        return "inline" if args.inline else "launch"
    question = f"{task.name}: launch {task.program.name} for /{task.skill}, or continue inline?"
    said = call.screen.choose(question, "launch", "inline")
    if not said:
        raise Refused(f"{task.name}: nobody said how it is to be done, so nothing was; say --launch or --inline")
    return said


def _inline(call: Call, task: Task) -> int:
    """Claim the work for who calls, and say what is to be done."""
    folder, epoch = claimed(task, caller(task.board), {})
    claim = actor.Claim(task.name, task.noun, epoch)
    steps = inline_steps(task, folder, claim)
    call.screen.document(
        {"status": "inline", "claim": epoch, "session": task.board.name(str(folder)), "request": task.name,
         "environment": {"BATON_CLAIM": str(claim)}, "steps": steps}
    )  # fmt: skip
    call.screen.line(f"{task.name}: #claimed-{task.noun}, yours (claim {epoch})")
    for number, step in enumerate(steps, 1):
        call.screen.line(f"{number}. {step}")
    return 0


@verb(
    argument("--monitor-tags", action="store_true", help="start agents for approved work"),
    argument(
        "folder", nargs="?", default=".", metavar="DIR", help="the tree to look after; else the one of this folder"
    ),
    argument("--max-agents", type=counting(0), metavar="N", help="at once; 0 is without bound (number of cores)"),
    argument("--cap", action="append", default=[], metavar="/SKILL=N", help="at once of one skill"),
    argument("--pause", default="1s", metavar="TIME", help="between two starts (1s)"),
    argument("--quiet", default="3s", metavar="TIME", help="how long nothing may change before agents start (3s)"),
    argument("--windows", choices=("auto", "tmux", "plain"), default="auto", help="where agents run"),
    argument("--socket", metavar="NAME", help="the tmux server to use, as in tmux -L"),
    argument("--once", action="store_true", help="end when nothing waits and nothing runs"),
    HANDOFFS,
    ON_DEAD,
    examples=(
        "baton run --monitor-tags",
        "baton run --monitor-tags --max-agents 4 --cap /implement=2",
        "baton run --monitor-tags --windows plain --once",
    ),
    stored=False,
)
def run_monitor_tags(call: Call) -> int:
    """Look after a tree: start an agent for each approved item, and put right what got stuck.

    Only #delegated- items start, P0 first and alone, and only as a person approved them. Ctrl-C ends the daemon, not
    the agents; `baton agents status` shows them. Start it again at any time: it keeps nothing but the files.
    """
    args = call.args
    board, folder = board_of(args.folder)
    if not Path(folder).is_dir():
        raise NotFound(f"{folder}: no folder; name the tree to look after")
    caps = dict(map(_cap, args.cap))
    for skill in caps:
        _route(requests.routes(board), f"/{skill}")  # a cap on a skill that is misspelled would be none
    settings = Settings(
        routes=lambda: requests.routes(board),
        rules=rules_of(board, args.on_dead),
        slots=Slots(
            agents=args.max_agents if args.max_agents is not None else os.cpu_count() or 1,
            skills=caps,
            pause=seconds(args.pause, "--pause"),
        ),
        quiet=seconds(args.quiet, "--quiet"),
        once=args.once,
        handoffs=args.enable_handoffs,
    )
    daemon = Daemon(Items(board, folder), agents.places(board, args.windows, args.socket), settings, call.screen.hint)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: daemon.stop())
    call.screen.hint(f"looking after {folder}; agents run in {daemon.places.words}")
    if fault := _unready(board):
        call.screen.notice(fault)
    daemon.serve()
    return 0


def _unready(board: Board) -> str:
    """Why the usual program could not be started."""
    try:
        return programs.missing(programs.load(Path(board.root), trust.judge(board)).of(""))
    except BatonError as error:
        return str(error)


def _route(routes: Routes, skill: str) -> Route:
    found = next((route for route in routes.values() if f"/{route.skill}" == skill), None)
    if found is None:
        known = ", ".join(f"/{route.skill}" for route in routes.values())
        raise NotFound(f"{skill}: no row of the dispatch table; there are {known}")
    return found


def _definition(file: str | None) -> str:
    """The absolute path of a file that the program can read."""
    if file is None:
        return ""
    path = str(Path(file).resolve())
    if not Path(path).is_file() or safe(path) != path:
        raise NotFound(
            f"--definition {file}: no file with a name that can be told; name the one that describes the agent"
        )
    return path


def _cap(text: str) -> tuple[str, int]:
    skill, _, number = text.partition("=")
    if not skill.startswith("/") or not number.isdecimal():
        raise Malformed(f"--cap {text[:60]!r}: write /SKILL=N, as in /implement=2")
    return skill[1:], int(number)


def _take_next(call: Call, board: Board, route: Route) -> int:
    """Take the items that were chosen for the next session of this skill; those of other sessions are only shown."""
    items, rows = Items(board, board.root), []
    items.scan()
    failed = 0
    for item in items.within("next"):
        name, path = f"{item.path}#{item.noun}", board.path(item.path)
        try:
            found = approvals.standing_approval(board, item.path, item.noun, files.read(path), clock.now())
            if isinstance(found, str):
                rows.append((name, 0, f"left: {found}"))
            elif item.noun != route.noun or found.session not in {"", config.session()}:
                rows.append((name, 0, f"left: for {found.session or 'its own skill'}"))
            else:
                move = moves.Move(board, path, item.noun, "next", "claimed")
                move.more = {"approval": found.at, "skill": route.skill}
                rows.append((name, moves.make(move, actor.from_shell()), "claimed"))
        except (Conflict, NotFound, Refused, Malformed) as fault:  # what else was claimed has to be said
            failed = failed or code_of(fault)
            rows.append((name, 0, f"left: {fault}"))
    call.screen.table(TAKEN, rows, ({"item": name, "claim": claim, "what": what} for name, claim, what in rows))
    if not rows:
        call.screen.hint(f"nothing is tagged #next-{route.noun}; `baton review` chooses work for the next session")
    return failed
