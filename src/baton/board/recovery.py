"""Find what got stuck on the board, and put it right: one code for `baton recover` and for the daemon.

Each look says what an item is (`evidence.py`), and why. A worker counts as dead only when two looks, some seconds
apart, found the same claim and no process. What is put right is looked at again while the file is locked.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from baton import clock
from baton.board import answered, approvals, files, sessions, stopped, wrote
from baton.board.actor import Actor, Claim
from baton.board.approvals import Approval
from baton.board.evidence import Verdict, Worker, verdict
from baton.board.items import texts
from baton.board.log import item_of
from baton.board.moves import STATES, Move, make, standing
from baton.board.resolved import resolved
from baton.board.tags import Text, state_of
from baton.board.template import plain
from baton.errors import BatonError, Conflict, Malformed, NotFound, Refused
from baton.protocol import codec
from baton.stores import holder

if TYPE_CHECKING:
    from baton.board.log import Record
    from baton.board.root import Board

OnDead = Literal["requeue", "alert"]
BY = "recovery"
ALERT = "alert"
SPAWNED = "spawned"  # an agent was started for an item, which has not claimed it yet
APART = 2 * clock.SECOND
DAY = 24 * 3600 * clock.SECOND
OPEN = (b"#delegated-", b"#claimed-", b"#next-", b"#needs-")
RECOVERY = b"\n## Recovery"
# What a person is told of, and nothing is changed.
TOLD = frozenset({Verdict.STUCK, Verdict.ORPHANED, Verdict.UNKNOWN, Verdict.REAPPEARED, Verdict.TAKEN, Verdict.UNOWNED})


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done without a person. `approved` is the approval that counts for a text, or why none does."""

    approved: Callable[[str, str, bytes], Approval | str]
    alert: Callable[[Finding], None]
    on_dead: OnDead = "requeue"
    attempts: int = 3
    silent: int = 10 * 60 * clock.SECOND


def rules_of(board: Board, on_dead: OnDead = "requeue") -> Rules:
    """The rules that hold on a board: approvals count as they stand, and an alert is a record of its log."""

    def approved(name: str, noun: str, data: bytes) -> Approval | str:
        found = approvals.standing_approval(board, name, noun, data, clock.now())
        return found if isinstance(found, str) else found.misfit(*resolved(board, noun)) or found

    def alert(found: Finding) -> None:
        about = {"verdict": found.verdict.value, "of": found.seen}
        for record in board.log.history(found.path, found.noun):
            if record["event"] == ALERT and about.items() <= record.items():
                return  # said once
            if record["at"] == found.seen:
                break
        board.log.append(ALERT, found.path, found.noun, reason=found.reason, **about)

    return Rules(approved=approved, alert=alert, on_dead=on_dead)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One item that is not simply at rest: what it is, why, and what is done about it."""

    path: str
    noun: str
    verdict: Verdict
    reason: str
    tag: str
    logged: str = ""
    seen: int = -1  # the record that says so; -1 where the log knows nothing
    worker: Worker | None = None
    attempts: int = 0
    session: str = ""
    approval: Approval | None = None  # of what waits
    action: str = ""


class Recovery:
    """Looks at a board again and again; all it remembers is when it first found a worker dead."""

    def __init__(self, board: Board, rules: Rules) -> None:
        self.board = board
        self.rules = rules
        self._dead: dict[tuple[str, str, int], int] = {}
        self._claimed: set[bytes] = set()  # by the log, as far as it was read
        self._read = -1

    def survey(self, folder: str = "") -> list[Finding]:
        """What every tagged item is, and what was claimed and has no tag any more; nothing is changed."""
        there = texts(self.board, folder or self.board.root)
        found = [one for name, data in there if any(word in data for word in OPEN) for one in self.look(name, data)]
        return found + self.untagged({(one.path, one.noun) for one in found})

    def untagged(self, there: set[tuple[str, str]]) -> list[Finding]:
        """What was claimed, and has no tag any more; `there` is what has one."""
        self._follow()
        items = sorted({item_of(raw) for raw in self._claimed} - there)
        return [one for name, noun in items for one in self._untagged(name, noun)]

    def _follow(self) -> None:
        """Which items the log says are claimed."""
        for at, event, item in self.board.log.events(self._read):
            self._read = at
            if event == "claimed":
                self._claimed.add(item)
            elif event in STATES:
                self._claimed.discard(item)

    def _untagged(self, name: str, noun: str) -> Iterator[Finding]:
        try:
            data = files.read(self.board.path(name))
        except BatonError:
            data = b""  # the file is gone, as its tag is
        if not any(state_of(tag.name) in {(state, noun) for state in STATES} for tag in Text(data).own()):
            yield self._finding(name, noun, "", data)

    def look(self, name: str, data: bytes) -> Iterator[Finding]:
        """What the items of one file are."""
        for tag in Text(data).own():
            state, noun = state_of(tag.name) or ("", "")
            if state:
                yield self._finding(name, noun, state, data)

    def of(self, name: str, noun: str) -> list[Finding]:
        """What one item is; nothing where its file is gone, or has no tag of it."""
        try:
            data = files.read(self.board.path(name))
        except BatonError:
            return []
        return [one for one in self.look(name, data) if one.noun == noun]

    def treat(self, findings: list[Finding]) -> list[Finding]:
        """Do what each finding asks for; those that were not at rest, with what was done."""
        done = []
        known, self._dead = self._dead, {}
        for found in findings:
            if found.verdict in {Verdict.DEAD, Verdict.RELEASE}:
                key = (found.path, found.noun, found.seen)
                self._dead[key] = known.get(key, _now())
                if not self.is_certain(found):
                    done.append(msgspec.structs.replace(found, action="a second look follows"))
                    continue
            if action := self.settle(found):
                done.append(msgspec.structs.replace(found, action=action))
        return done

    def is_certain(self, found: Finding) -> bool:
        """Whether the second look is over that finds this claim and no worker."""
        return self._dead.get((found.path, found.noun, found.seen), _now()) <= _now() - APART

    def _finding(self, name: str, noun: str, tag: str, data: bytes) -> Finding:
        history = list(self.board.log.history(name, noun))
        record = standing(history)
        logged = str(record["event"]) if record else ""
        worker, why = self._worker(record) if record and logged == "claimed" else (None, "")
        found = Finding(
            path=name,
            noun=noun,
            tag=tag,
            logged=logged,
            seen=int(record["at"]) if record else -1,
            worker=worker,
            verdict=verdict(tag, logged, worker),
            reason=why
            or (f"the log says {logged}, the tag {tag}" if logged else f"the log knows nothing of #{tag}-{noun}"),
            attempts=_attempts(history, data),
            session=str(record.get("session", "")) if record else "",
        )
        if found.verdict in {Verdict.READY, Verdict.CHOSEN} and record:
            return self._may_wait(found, record, history, data)
        return found

    def _may_wait(self, found: Finding, record: Record, history: list[Record], data: bytes) -> Finding:
        """Whether what waits for a daemon or a session may go on waiting."""
        approved = self.rules.approved(found.path, found.noun, data)
        if isinstance(approved, str):
            return msgspec.structs.replace(found, verdict=Verdict.UNAPPROVED, reason=approved)
        if found.verdict is Verdict.CHOSEN and clock.now() - int(record["time"]) > DAY:
            return msgspec.structs.replace(found, verdict=Verdict.UNAPPROVED, reason="no session took it within a day")
        false = _false_starts(history)
        if found.attempts >= self.rules.attempts or false > self.rules.attempts:
            reason = f"{found.attempts} attempts were made, and {false} starts came to nothing"
            return msgspec.structs.replace(found, verdict=Verdict.UNAPPROVED, reason=reason)
        return msgspec.structs.replace(found, approval=approved)

    def attempts(self, name: str, noun: str, data: bytes) -> int:
        """How often it was tried since a person last approved it."""
        return _attempts(list(self.board.log.history(name, noun)), data)

    def _worker(self, record: Record) -> tuple[Worker, str]:
        """What is known of the worker of a claim, and by what evidence."""
        who = str(record["holder"])
        life, name = holder.life(who), holder.readable(who)
        if life == "unknown":
            return Worker.UNKNOWN, f"{name} can't be seen from here"
        if life == "dead":
            if _is_locked(self.board, str(record.get("lock", ""))):
                return Worker.ORPHAN, f"{name} is gone, and something that it started still runs"
            return Worker.DEAD, f"{name} is gone"
        if not record.get("supervised"):
            return Worker.ALIVE, f"{name} lives; nobody watches it"
        beaten = sessions.beaten(sessions.read(Path(self.board.root, str(record.get("session", "")))))
        silent = clock.now() - max(beaten, int(record["time"]))
        if silent > self.rules.silent:
            return Worker.SILENT, f"{name} lives, and showed no progress for {silent // (60 * clock.SECOND)} min"
        return Worker.ALIVE, f"{name} works on it"

    # --- what is done ---------------------------------------------------------------------------------

    def settle(self, found: Finding) -> str:
        """Put one item right; what was done, nothing where nothing is to be done."""
        try:
            if found.verdict is Verdict.DEAD:
                return self._dead_worker(found)
            if found.verdict is Verdict.RELEASE:
                return self._release(found)
            if found.verdict is Verdict.FINISH:
                self._move(found, "claimed", "done")
                return "tagged done, as the log says"
            if found.verdict is Verdict.RETURN:
                return self._returned(found)
            if found.verdict is Verdict.UNAPPROVED:
                self._move(found, found.tag, "needs", reason=found.reason)
                self.rules.alert(found)
                return "back on the list for a person"
        except Conflict as moved:
            return f"left alone: {moved}"
        except (NotFound, Refused, Malformed) as fault:  # it may not hold up the others
            self.rules.alert(found)
            return f"left alone, and a person is told: {fault}"
        if found.verdict in TOLD:
            self.rules.alert(found)
            return "a person is told"
        return ""

    def _dead_worker(self, found: Finding) -> str:
        data = files.read(self.board.path(found.path))
        if answered.response(self.board, data):
            self._move(found, "claimed", "done", reason=f"{found.reason}; its response is there")
            return "completed: the response is there"
        if self.rules.on_dead == "alert":
            self.rules.alert(found)
            return "a person is told (on_dead = alert)"
        kept = self._kept_back(found)
        at = self._requeue(found, f"Left for a person: {kept}" if kept else "Re-queued for processing")
        approved = self.rules.approved(found.path, found.noun, files.read(self.board.path(found.path)))
        if kept or isinstance(approved, str):
            self.rules.alert(msgspec.structs.replace(found, reason=f"{found.reason}; {kept or approved}"))
            return f"back on the list for a person: {kept or approved}"
        move = Move(self.board, self.board.path(found.path), found.noun, "needs", "delegated")
        move.seen, move.more = at, {"reason": "its approval still stands"}
        approvals.again(move, Actor(BY, ""), approved)
        return "back in the queue under its approval"

    def _kept_back(self, found: Finding) -> str:
        """Why it does not start again by itself."""
        if found.attempts >= self.rules.attempts:
            return f"{found.attempts} attempts were made"
        return stopped.why(self.board, Claim(found.path, found.noun, found.seen))

    def _returned(self, found: Finding) -> str:
        """Who took it back died before the tag followed; where it was this code, the file gets the reason, too."""
        record = self.board.log.at(found.seen)
        if record.get("by") == BY:
            told = msgspec.structs.replace(found, reason=str(record.get("reason", "")))
            self._requeue(told, "Left for a person: putting it right was interrupted")
            self.rules.alert(told)
        else:
            self._move(found, "claimed", "needs")
        return "tagged needs, as the log says"

    def _requeue(self, found: Finding, action: str) -> int:
        lines = recovery_section(found, action)
        move = Move(self.board, self.board.path(found.path), found.noun, "claimed", "needs")
        move.seen, move.more = found.seen, {"reason": found.reason}
        move.also = lambda data: wrote.section(self.board, found.path, data, lines)
        return make(move, Actor(BY, ""))

    def _move(self, found: Finding, origin: str, to: str, **more: str | int) -> None:
        move = Move(self.board, self.board.path(found.path), found.noun, origin, to)
        move.seen = found.seen
        move.more = more
        make(move, Actor(BY, ""))

    def _release(self, found: Finding) -> str:
        """The tag never changed, or was put back: the log follows it, while nobody else can."""

        def note(data: bytes) -> bytes:
            states = {state_of(tag.name) for tag in Text(data).own()}
            history = list(self.board.log.history(found.path, found.noun))
            record = standing(history)
            if (found.tag, found.noun) not in states or record is None or record["at"] != found.seen:
                raise Conflict(f"{found.path}: somebody moved #{found.tag}-{found.noun} just now; look again")
            under = next((one["approval"] for one in history if "approval" in one), 0)
            more = {"from": "claimed", "by": BY, "reason": found.reason, "approval": under}
            self.board.log.append(found.tag, found.path, found.noun, **more)
            return data

        files.change(self.board.path(found.path), note)
        return f"released: it is #{found.tag}-{found.noun} again"


def _now() -> int:
    return round(clock.monotonic() * clock.SECOND)


def recovery_section(found: Finding, action: str) -> list[str]:
    """What is written into the file, in the words of the board's format."""
    date = codec.iso(clock.now())[:19].replace("T", " ")
    said = {"Date": date, "Reason": found.reason, "Prior Session": found.session or "unknown", "Action": action}
    return ["## Recovery", *(f"*   **{key}**: {plain(value)}" for key, value in said.items())]


def _attempts(history: list[Record], data: bytes) -> int:
    """How often it was claimed since a person last approved it; without a log its sections say it."""
    return _since_approved(history).count("claimed") if history else data.count(RECOVERY)


def _false_starts(history: list[Record]) -> int:
    """How often it was started, and nobody claimed it."""
    events = _since_approved(history)
    return events.count(SPAWNED) - events.count("claimed")


def _since_approved(history: list[Record]) -> list[str]:
    events = []
    for record in history:
        if record["event"] == approvals.APPROVED:
            break
        events.append(str(record["event"]))
    return events


def _is_locked(board: Board, lock: str) -> bool:
    """Whether somebody holds the lock that a worker passes on to all that it starts."""
    if not lock.isalnum():
        return False
    try:
        number = os.open(lock_path(board, lock), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(number)
    return False


def lock_path(board: Board, lock: str) -> Path:
    """Where the lock of one worker stands."""
    return Path(board.state, "workers", f"{lock}.lock")
