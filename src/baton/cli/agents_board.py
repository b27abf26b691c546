"""`agents status|attach|stop`: the agents that work on the board."""

from __future__ import annotations

import os
import shlex
from typing import Any

import msgspec

from baton import clock
from baton.board import agents
from baton.board.ancestry import refuse_agents
from baton.board.root import board_of
from baton.cli.call import Call, argument, verb
from baton.cli.records import lasting
from baton.cli.screen import Columns
from baton.errors import NotFound

STATUS = Columns(("ITEM", "HOW", "FOR", "WINDOW", "EVIDENCE"), spare=("FOR",), folded=True)
SOCKET = argument("--socket", metavar="NAME", help="the tmux server to use, as in tmux -L")
AGENT = argument(
    "agent", metavar="AGENT", help="its window or its item, or how that begins; `agents status` lists them"
)


@verb(
    SOCKET,
    examples=("baton agents status", "baton agents status --json"),
    columns=(STATUS,),
    stored=False,
)
def agents_status(call: Call) -> int:
    """Show the agents that work on this board: working, waiting for a person, idle, stuck, dead or unknown, and why."""
    board, _ = board_of(".")
    found = agents.seen(board, agents.places(board, socket=call.args.socket))
    rows = [(one.name, one.how, _lasting(one.since), one.window, one.evidence) for one in found]
    call.screen.table(STATUS, rows, map(_document, found))
    if not found:
        call.screen.hint("no agent works here; `baton run --monitor-tags` starts one for each approved item")
    return 0


@verb(AGENT, SOCKET, examples=("baton agents attach agent-fix-1795133752",), stored=False)
def agents_attach(call: Call) -> int:
    """Look at an agent: its tmux window, or its log as it grows. Without a terminal, say the command that shows it."""
    board, _ = board_of(".")
    agent, place, window = agents.find(board, agents.places(board, socket=call.args.socket), call.args.agent)
    if place is None or window is None:
        raise NotFound(f"{agent.name}: it runs in no window of ours; its session is {agent.session or 'unknown'}")
    command = place.attach(window)
    if not call.screen.tty or call.screen.as_json:
        call.screen.line(shlex.join(command))
        call.screen.document({"command": command})
        return 0
    return os.execvp(command[0], command)  # noqa: S606 - no shell is what is wanted


@verb(AGENT, SOCKET, examples=("baton agents stop sessions/2026_11_20_LOGIN/REQUEST.md",), stored=False)
def agents_stop(call: Call) -> int:
    """End an agent with all that it started. Its item goes back into the queue, or to a person after three attempts."""
    board, _ = board_of(".")
    refuse_agents(board)
    agent, place, window = agents.find(board, agents.places(board, socket=call.args.socket), call.args.agent)
    said = agents.stop(board, agent, place, window)
    call.screen.line(f"{agent.name}: {said}")
    call.screen.document({"item": agent.name, "said": said})
    return 0


def _lasting(since: int) -> str:
    return lasting((clock.now() - since) / clock.SECOND) if since else ""


def _document(one: agents.Agent) -> dict[str, Any]:
    return msgspec.structs.asdict(one)
