"""Which agents work on the board, and how each of them is, with the evidence for it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from baton import clock, config, processes
from baton.board import sessions, stopped, windows, windows_plain
from baton.board.actor import Claim
from baton.board.evidence import Worker
from baton.board.items import Items
from baton.board.recovery import Finding, Recovery, rules_of
from baton.board.root import Board
from baton.board.windows import Window, Windows
from baton.errors import NotFound, Unfinished
from baton.stores import holder

How = Literal["working", "waiting", "idle", "stuck", "dead", "unknown"]
QUIET = 60 * clock.SECOND  # an agent in a window that shows nothing for so long probably waits for a person
STOPPING = 10.0


class Places(msgspec.Struct, frozen=True):
    """Where agents run: in windows, and what needs none beside them."""

    windows: Windows
    plain: Windows

    @property
    def words(self) -> str:
        """For people."""
        return "tmux windows" if self.windows.shows else "plain processes"

    def all(self) -> list[tuple[Windows, Window]]:
        """Every window, with the place it is in."""
        places = {id(one): one for one in (self.windows, self.plain)}.values()
        if self.windows is not self.plain and not self.windows.shows:
            places = {id(self.windows): self.windows}.values()  # both are one folder
        return [(place, window) for place in places for window in place.list()]


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, or what is left of it."""

    item: str
    noun: str
    how: How
    evidence: str
    skill: str = ""
    window: str = ""
    session: str = ""
    pid: int = 0
    since: int = 0
    claim: int = 0

    @property
    def name(self) -> str:
        """What it works on."""
        return f"{self.item}#{self.noun}"


def places(board: Board, kind: Literal["auto", "tmux", "plain"] = "auto", socket: str | None = None) -> Places:
    """Where the agents of a board run."""
    folder = Path(board.state, "windows")
    return Places(windows.open_windows(folder, kind, socket), windows_plain.Plain(folder))


def seen(board: Board, where: Places) -> list[Agent]:
    """All agents of a board: those that claimed something, and windows without a claim."""
    items, recovery = Items(board, board.root), Recovery(board, rules_of(board))
    items.scan()
    shown = {(one.item, one.noun): one for _, one in where.all() if one.running or one.status != 0}
    findings = [one for item in items.within("claimed") for one in recovery.of(item.path, item.noun)]
    found = [_agent(board, one, shown.pop((one.path, one.noun), None)) for one in findings]
    return found + [_without_claim(window) for window in shown.values()]


def find(board: Board, where: Places, word: str) -> tuple[Agent, Windows | None, Window | None]:
    """The one agent that a word names: its window, its item, or the beginning of either."""
    agents = seen(board, where)
    fits = [one for one in agents if word in {one.window, one.name, one.item, str(one.claim)}]
    fits = fits or [one for one in agents if one.window.startswith(word) or one.name.startswith(word)]
    if len(fits) != 1:
        known = ", ".join(one.window or one.name for one in agents[:10])
        cure = f"there are: {known}" if known else "none runs; what an ended one said is in agent.log of its session"
        raise NotFound(f"{word[:80]!r}: {'several agents' if fits else 'no agent'} of that name; {cure}")
    for place, window in where.all():
        if window.name == fits[0].window:
            return fits[0], place, window
    return fits[0], None, None


def stop(board: Board, agent: Agent, place: Windows | None, window: Window | None) -> str:
    """End an agent with all that it started; what its item becomes is said by its wrapper, else by recovery."""
    if agent.claim:  # so that it is not started again at once
        stopped.stop(board, Claim(agent.item, agent.noun, agent.claim), config.person())
    if place is not None and window is not None:
        place.stop(window, STOPPING)
        return f"{window.name} is closed"
    record = board.log.at(agent.claim) if agent.claim else {}
    who = str(record.get("holder", ""))
    if not record.get("supervised") or holder.life(who) != "alive":
        raise NotFound(f"{agent.name}: nothing runs here that could be stopped ({agent.evidence}); try `baton recover`")
    if left := processes.end(agent.pid, who.split("/")[3].partition(".")[0], STOPPING):
        raise Unfinished(f"{agent.name}: process {left[0].pid} does not end; look with `ps -o pid,stat,user -p PID`")
    return f"process {agent.pid} is ended"


def _agent(board: Board, finding: Finding, window: Window | None) -> Agent:
    record = board.log.at(finding.seen) if finding.worker is not None else {}
    who = str(record.get("holder", "")).split("/")
    how, evidence = _how(board, finding, window)
    return Agent(
        item=finding.path,
        noun=finding.noun,
        how=how,
        evidence=evidence,
        skill=str(record.get("skill", "")),
        window=window.name if window else "",
        session=finding.session,
        pid=int(who[2]) if len(who) > 2 and who[2].isdecimal() else 0,
        since=int(record.get("time", 0)),
        claim=finding.seen if finding.worker is not None else 0,
    )


def _how(board: Board, finding: Finding, window: Window | None) -> tuple[How, str]:
    if finding.worker is Worker.ALIVE:
        quiet = clock.now() - max(_progress(board, finding), window.active if window else 0)
        if window is not None and window.running and not window.log and quiet > QUIET:
            return "waiting", f"{finding.reason}; its window shows nothing new for {quiet // (60 * clock.SECOND)} min"
        return "working", finding.reason
    if finding.worker in {Worker.SILENT, Worker.ORPHAN}:
        return "stuck", finding.reason
    return ("dead" if finding.worker is Worker.DEAD else "unknown"), finding.reason


def _progress(board: Board, finding: Finding) -> int:
    return sessions.beaten(sessions.read(Path(board.root, finding.session))) if finding.session else 0


def _without_claim(window: Window) -> Agent:
    if window.running:
        how: How = "idle"
        evidence = f"process {window.pid} runs, and holds no claim on it"
    else:
        how, evidence = "dead", f"it ended with {window.status}" if window.status is not None else "it is gone"
    return Agent(
        item=window.item, noun=window.noun, how=how, evidence=evidence, window=window.name, pid=window.pid,
        since=window.begun,
    )  # fmt: skip
