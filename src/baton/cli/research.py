"""`research`: what works on a request in mode async, and what a person can say of its job."""

from __future__ import annotations

from baton import config
from baton.board import files, requests
from baton.board.actor import Actor, from_shell
from baton.board.ancestry import refuse_agents
from baton.board.research import BACKENDS, Outcome, Patience, adopt, cancel, forget, item
from baton.board.root import board_of
from baton.cli.call import Call, argument, seconds, verb

FILE = argument("file", metavar="FILE", help="the request")
DONE = frozenset({"done", "cancelled"})  # what `cancel` is content with


@verb(
    FILE,
    argument("--provider", choices=BACKENDS, help="for a job that is yet to start; else BATON_RESEARCH, else gemini"),
    argument("--max-wait", default="2h", metavar="TIME", help="how long to wait for the job (2h)"),
    examples=(
        "baton run /research sessions/PLAN/RESEARCH_REQUEST_SIZE.md   # claims it, and starts this verb",
        "baton research sessions/PLAN/RESEARCH_REQUEST_SIZE.md --provider openai",
    ),
    stored=False,
)
def research(call: Call) -> int:
    """Let a provider do the research of a request that is claimed, write the report, and tag it done.

    The program of mode async: `baton run /research FILE` and the daemon start it. The job's id is in the request before
    it waits, so whoever goes on after a crash goes on with that job. Exit 0: done. Exit 1: the job goes on at the
    provider, or it ended without a report; then a person has the item, with the reason.
    """
    args = call.args
    request = _request(args.file, from_shell())
    patience = Patience(longest=seconds(args.max_wait, "--max-wait"))
    provider = args.provider or config.research_provider()
    outcome = item.run(request, provider, patience, call.screen.hint)
    _said(call, request, outcome)
    return 0 if outcome.state == "done" else 1


@verb(FILE, examples=("baton research cancel sessions/PLAN/RESEARCH_REQUEST_SIZE.md",), stored=False)
def research_cancel(call: Call) -> int:
    """Ask the provider to end the job of a request, as a person. If the job was faster, its report is written.

    Exit 1: it still runs.
    """
    request = _as_person(call.args.file)
    outcome = cancel(request, request.report())
    _said(call, request, outcome)
    return 0 if outcome.state in DONE else 1


@verb(
    FILE,
    argument("job", metavar="ID", help="as the provider shows it, in full"),
    examples=("baton research adopt sessions/PLAN/RESEARCH_REQUEST_SIZE.md v1_Chd4",),
    stored=False,
)
def research_adopt(call: Call) -> int:
    """Say, as a person, which job belongs to a request whose answer was lost; the next run goes on with it."""
    request = _as_person(call.args.file)
    adopt(request, call.args.job)
    _next(call, request, f"goes on with job {call.args.job}")
    return 0


@verb(FILE, examples=("baton research forget sessions/PLAN/RESEARCH_REQUEST_SIZE.md",), stored=False)
def research_forget(call: Call) -> int:
    """Say, as a person, that the job of a request counts no more: the next run starts a new one, and pays for it."""
    request = _as_person(call.args.file)
    forget(request)
    _next(call, request, "starts a new job")
    return 0


def _request(file: str, actor: Actor) -> item.ItemRequest:
    board, path = board_of(file)
    noun = requests.noun_in(board, board.name(path), files.read(path), actor)
    return item.ItemRequest(board, path, noun, actor)


def _as_person(file: str) -> item.ItemRequest:
    refuse_agents(board_of(file)[0])
    return _request(file, Actor(config.person(), ""))


def _said(call: Call, request: item.ItemRequest, outcome: Outcome) -> None:
    report = request.name(outcome.report) if outcome.report else ""
    call.screen.document(
        {"state": outcome.state, "job": outcome.id, "reason": outcome.reason, "report": report,
         "tokens": outcome.usage.total}
    )  # fmt: skip
    call.screen.line(" ".join(word for word in (f"{outcome.state}:", report or outcome.reason or outcome.id) if word))


def _next(call: Call, request: item.ItemRequest, what: str) -> None:
    name = request.name(request.path)
    call.screen.document({"path": name, "noun": request.noun})
    call.screen.line(f"{name}: the next run {what}")
    call.screen.hint("`baton review` approves the request again, if it waits for that")
