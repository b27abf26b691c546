"""`run --monitor-tags`: start agents for what was approved, and put right what got stuck.

The daemon keeps nothing: the tags, the log and the windows say all there is, so it may be killed at any moment and be
started again. Of several on one tree one works, and the others stand by. It looks at `#delegated-`, never at
`#needs-` or `#next-` to start something, and at nothing that a person did not approve as it stands now.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from baton import clock, config
from baton.board import programs
from baton.board.agents import Places
from baton.board.dispatch import Route, Routes, Way, way
from baton.board.evidence import Verdict, Worker
from baton.board.items import Item, Items
from baton.board.order import Candidate, Life, Plan, Running, Slots, plan
from baton.board.recovery import SPAWNED, Finding, Recovery, Rules
from baton.board.root import Board
from baton.board.watch import Watch
from baton.board.windows import Job
from baton.errors import BatonError, NotFound, StoreError, Unfinished, safe

QUIET = 3.0
LOOK = 2.0  # seconds between two looks at the workers
SAFETY = 10.0  # at least so many between two full scans, and fifty times as long as a scan takes
CLOSE = 60 * clock.SECOND  # an ended window stays so long for whoever looks at it
OWN = frozenset({"BATON_CLAIM", "BATON_SESSION"})  # of an agent that started the daemon, not of those it starts
LIVES: dict[Worker, Life] = {
    Worker.ALIVE: "working",
    Worker.SILENT: "stuck",
    Worker.ORPHAN: "stuck",
    Worker.UNKNOWN: "unknown",
    Worker.DEAD: "unknown",  # until the second look
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How it works. `routes` reads the dispatch table, which may change while the daemon runs."""

    routes: Callable[[], Routes]
    rules: Rules
    slots: Slots
    quiet: float = QUIET
    once: bool = False  # end when nothing runs and nothing can start
    handoffs: bool = False  # whether agents may ask others for work


class Daemon:
    """One daemon on one tree."""

    def __init__(self, items: Items, places: Places, settings: Settings, say: Callable[[str], object]) -> None:
        self.board: Board = items.board
        self.items = items
        self.places = places
        self.settings = settings
        self.recovery = Recovery(self.board, settings.rules)
        self._say = say
        self._said: dict[tuple[str, str], str] = {}
        self._watch: Watch | None = None
        self._stopped = False
        self._started: int | None = None
        self._fault = ""  # what the last step failed by
        self._changed = 0.0  # when what waits changed last
        self._looked = self._scanned = self._scan_took = 0.0
        self._again: float | None = None
        self._waiting: frozenset[Item] = frozenset()

    def stop(self) -> None:
        """Start nothing more, and end; the agents go on."""
        self._stopped = True
        if self._watch is not None:
            self._watch.stop()

    def serve(self) -> None:
        """Work until somebody stops it."""
        lock = self._only()
        try:
            with Watch(self.items.folder, warn=self._say) as self._watch:
                self._scan()
                while not self._stopped:
                    went = self._tried()
                    if self.settings.once and went and self._idle():
                        break
                    self._take_in(self._patience() if went else LOOK)
        finally:
            os.close(lock)

    def _only(self) -> int:
        """The lock of the one that works; whoever comes second waits for it."""
        Path(self.board.state).mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(Path(self.board.state, "daemon.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        told = False
        while not self._stopped:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(number, 0)
                os.pwrite(number, os.fsencode(f"{os.getpid()} {self.items.folder}\n"), 0)
                break
            except BlockingIOError:
                if not told:
                    self._say(self._stands_by(os.fsdecode(os.pread(number, 5000, 0)).strip()))
                told = True
                time.sleep(0.5)
        return number

    def _stands_by(self, other: str) -> str:
        """Why this one waits; one board has one daemon, whichever of its folders they look after."""
        pid, _, folder = other.partition(" ")
        said = f"another daemon works on this board (process {pid}); this one stands by"
        if folder in {"", self.items.folder}:
            return said
        return f"{said}. That one looks after {safe(folder)} alone: to have both, start one for {self.board.root}"

    # --- what changes -----------------------------------------------------------------------------------

    def _take_in(self, patience: float) -> None:
        assert self._watch is not None  # noqa: S101 - serve has opened it
        changes = self._watch.wait(patience)
        now = clock.monotonic()
        if changes.gone:
            raise NotFound(f"{self.items.folder}: it is gone; start the daemon where the board is")
        if changes.rescan or now - self._scanned > max(SAFETY, 50 * self._scan_took):
            self._scan()
        elif changes.paths:
            self.items.update(changes.paths)
            self._note()

    def _scan(self) -> None:
        begun = clock.monotonic()
        self.items.scan()
        self._scanned = clock.monotonic()
        self._scan_took = self._scanned - begun
        self._note()

    def _note(self) -> None:
        """A quiet spell begins anew when what waits is not what it was."""
        waiting = frozenset(self.items.within("delegated"))
        if waiting - self._waiting:
            self._changed = clock.monotonic()
        self._waiting = waiting

    def _patience(self) -> float:
        now = clock.monotonic()
        moments = [self._looked + LOOK, self._scanned + max(SAFETY, 50 * self._scan_took)]
        if self._waiting:
            moments.append(self._changed + self.settings.quiet)
        if self._again is not None:
            moments.append(self._again)
        ahead = [moment - now for moment in moments if moment > now]
        return min(ahead) if ahead else 0.01

    def _idle(self) -> bool:
        return not self._waiting and not any(window.running for _, window in self.places.all())

    # --- what is done -----------------------------------------------------------------------------------

    def _tried(self) -> bool:
        """Do what is due; a full disk, or a tmux that hangs, ends no daemon: it says so and tries again."""
        try:
            self._step()
        except (StoreError, Unfinished, OSError) as fault:
            if str(fault) != self._fault:
                self._say(f"{fault}; the daemon goes on and tries again")
            self._fault = str(fault)
            return False
        self._fault = ""
        return True

    def _step(self) -> None:
        now = clock.monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            self._put_right()
            self._close_windows()
        if self._waiting and now >= self._changed + self.settings.quiet:
            self._dispatch()

    def _put_right(self) -> None:
        items = self.items.within("claimed", "next", "delegated")
        found = [one for item in items for one in self.recovery.of(item.path, item.noun)]
        for finding in self.recovery.treat(found + self.recovery.untagged({(one.path, one.noun) for one in found})):
            self._tell((finding.path, finding.noun), f"{finding.verdict}: {finding.reason}; {finding.action}")
            self.items.update([self.board.path(finding.path)])
        self._note()

    def _dispatch(self) -> None:
        routes = self.settings.routes()
        shows, attached = self.places.windows.shows, self.places.windows.attached()  # tmux is asked once, not for each
        ways = {noun: way(route.mode, shows=shows, attached=attached) for noun, route in routes.items()}
        windows = [window for _, window in self.places.all() if window.running]
        busy = {(window.item, window.noun) for window in windows}
        found = [(item, one) for item in self._waiting for one in self.recovery.of(item.path, item.noun)]
        candidates = [
            self._candidate(item, one, ways.get(item.noun)) for item, one in found if one.verdict is Verdict.READY
        ]
        decided = plan(candidates, self._running(busy), routes, self.settings.slots, clock.now(), self._started)
        for start in decided.start:
            self._start(start.item, start.route, ways[start.item.noun])
        self._explain(decided)
        ahead = None if decided.again is None else (decided.again - clock.now()) / clock.SECOND
        self._again = None if ahead is None else clock.monotonic() + max(0.0, ahead)

    def _candidate(self, item: Item, finding: Finding, how: Way | None) -> Candidate:
        approved, held = finding.approval.time if finding.approval else None, ""
        if approved is not None and how is not None and how.mode is None:
            held = how.reason
            self.settings.rules.alert(msgspec.structs.replace(finding, reason=held))
        return Candidate(item.path, item.noun, item.weight, approved, held)

    def _running(self, busy: set[tuple[str, str]]) -> list[Running]:
        """Who works: those who claimed, and windows in which somebody is about to."""
        running = [
            Running(item.path, item.noun, item.weight, self._life(finding, finding.worker))
            for item in self.items.within("claimed")
            for finding in self.recovery.of(item.path, item.noun)
            if finding.worker is not None
        ]
        known = {(one.path, one.noun) for one in running}
        weights = {(item.path, item.noun): item.weight for item in self._waiting}
        return running + [Running(*one, weight=weights.get(one, 2)) for one in sorted(busy - known)]

    def _life(self, finding: Finding, worker: Worker) -> Life:
        """A certainly dead worker is in nobody's way, also where its item stays claimed until a person comes."""
        return "dead" if worker is Worker.DEAD and self.recovery.is_certain(finding) else LIVES[worker]

    def _start(self, item: Candidate, route: Route, how: Way) -> None:
        place = self.places.plain if how.mode == "async" else self.places.windows
        path = self.board.path(item.path)
        argv = [*programs.BATON, "run", f"/{route.skill}", path, "--mode", str(how.mode)]
        argv += ["--enable-handoffs"] if self.settings.handoffs else []
        job = Job(
            noun=item.noun, item=item.path, request=path, argv=tuple(argv), folder=self.board.root,
            environment={name: value for name, value in config.environment().items() if name not in OWN},
        )  # fmt: skip
        self.board.log.append(SPAWNED, item.path, item.noun, skill=route.skill, mode=str(how.mode))
        self._started = clock.now()
        try:
            window = place.start(job)
        except (BatonError, OSError) as error:
            self._tell((item.path, item.noun), f"/{route.skill} could not be started: {error}")
            return
        self._tell((item.path, item.noun), f"started /{route.skill} in {window.name}")

    def _explain(self, decided: Plan) -> None:
        for waits in decided.waits:
            if waits.why != "runs":
                self._tell((waits.item.path, waits.item.noun), f"waits: {waits.reason}")

    def _close_windows(self) -> None:
        for place, window in self.places.all():
            if not window.running and clock.now() - max(window.active, window.begun) > CLOSE:
                place.stop(window)

    def _tell(self, item: tuple[str, str], text: str) -> None:
        """Say something of an item, unless it was the last thing said of it."""
        if self._said.get(item) != text:
            self._said[item] = text
            self._say(f"{item[0]}#{item[1]}: {text}")
