"""The steps of a research job: write the intent, ask, write the id, wait, write the report.

What stands in the request decides what is done next, so a process that dies anywhere is gone on with by another:

| in the request | then |
|---|---|
| no job, or *not started* | the intent is written, and the provider asked |
| an intent without an id | nobody knows whether there is a job: a person is asked, the provider is not |
| an id | the job is looked at, until it ends or the patience does |
| an end | it is said again; nothing is asked |
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from baton import clock
from baton.board import answered, template
from baton.board.research import report as reports
from baton.board.research import request as requests
from baton.board.research.base import ENDS, Job, Provider, Usage, is_id
from baton.board.research.request import JOB, RESPONSE, Record, Request
from baton.errors import Conflict, Malformed, NotFound
from baton.protocol import codec

Tell = Callable[[str], object]
STRANGE = 3  # times in a row that a provider may not know a job before that is believed


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Everything but *done* and *waiting* needs a person, and `reason` says what for."""

    state: Literal["done", "failed", "cancelled", "waiting", "refused", "doubtful", "unknown"]
    id: str = ""
    reason: str = ""
    report: Path | None = None
    usage: Usage = Usage()


class Patience(msgspec.Struct, frozen=True):
    """How long to wait in all, and how often to ask meanwhile, in seconds."""

    longest: float = 7200.0
    first: float = 5.0
    most: float = 60.0


class Work:
    """Research for one request; `path` is where its report goes."""

    def __init__(self, request: Request, path: Path, patience: Patience, tell: Tell) -> None:
        self._request = request
        self._path = path
        self._tell = tell
        self._patience = patience
        self._began = clock.monotonic()
        self._pause = patience.first

    def known(self) -> Outcome | None:
        """What can be said without asking anybody: how it ended, or that only a person can know."""
        record = requests.record(self._request.read())
        if record.ended and record.id and (record.status != "done" or self._path.exists()):
            return self._said_again(record)
        if not record.id and not record.is_free:
            return self._doubtful(record)
        return None

    def go(self, provider: Provider) -> Outcome:
        """Start a job, or go on with the one that the request names."""
        data = self._request.read()
        record = requests.record(data)
        reports.free(self._path, record.id)
        if not record.id:
            begun = self._begin(provider, data)
            if isinstance(begun, Outcome):
                return begun
            record = begun
        return self._wait(provider, record)

    def _said_again(self, record: Record) -> Outcome:
        path = self._path if record.status == "done" else None
        return Outcome(state=_end(record.status), id=record.id, reason=record.reason, report=path)

    def _doubtful(self, record: Record) -> Outcome:
        """An intent without an id: whatever is done now might pay a second time."""
        name, why = record.provider or "the provider", f" ({record.reason})" if record.reason else ""
        cure = (
            f"look for it at {name} (asked {record.asked}, intent {record.intent}). If it is there, add the line "
            f"'- **Interaction ID**: ITS ID' below ## {JOB}; if not, remove what stands there. Then run again"
        )
        return Outcome(state="doubtful", reason=f"a job may have been started, but its id is not known{why}; {cure}")

    def _begin(self, provider: Provider, data: bytes) -> Record | Outcome:
        question, previous = requests.question(data), requests.previous(data)
        while True:
            record = self._intend(provider.name)
            job = provider.start(question, previous, record.intent)
            if job.state == "running":
                self._tell(f"{provider.name} {job.id}: the job is started")  # before a full disk may lose the id
                return self._mark(record, id=job.id, status="running")
            if job.state != "refused":
                return self._doubtful(self._mark(record, status="doubtful", reason=job.reason))
            self._mark(record, status="not started", reason=job.reason)
            if not self._rest(record, job, f"no job was started: {job.reason}"):
                return Outcome(state="refused", reason=f"no job was started: {job.reason}")

    def _intend(self, provider: str) -> Record:
        """Write down, for whoever comes after us, that a job is about to be started; only one process can."""
        asked = codec.iso(clock.now())
        record = Record(provider=provider, intent=clock.new_id(), asked=asked, status="starting")

        def change(lines: list[str]) -> list[str]:
            if not Record.of(lines).is_free:
                raise Conflict(f"{self._request.path}: somebody else has just begun a job for it; leave it to them")
            return record.lines()

        self._request.note(JOB, change)
        return record

    def _mark(self, record: Record, **changes: str) -> Record:
        """Write down what became of our job; what has ended stays as it ended."""
        found = record

        def change(lines: list[str]) -> list[str]:
            nonlocal found
            now = Record.of(lines)
            if (now.intent, now.id) != (record.intent, record.id):
                raise Conflict(f"{self._request.path}: its job is another one now; run again to go on with that")
            found = now if now.ended else msgspec.structs.replace(record, **changes)
            return lines if now.ended else found.lines()

        self._request.note(JOB, change)
        return found

    def _wait(self, provider: Provider, record: Record) -> Outcome:
        strange = 0
        while True:
            job = provider.look(record.id)
            if job.state in ENDS:
                return self._settle(record, job)
            strange = strange + 1 if job.state == "unknown" else 0
            if strange == STRANGE:
                reason = f"{job.reason}; look for job {record.id} at {provider.name}"
                return Outcome(state="unknown", id=record.id, reason=reason)
            if not self._rest(record, job, job.reason or "the job runs"):
                why = job.reason or f"the job still runs after {clock.monotonic() - self._began:.0f} s"
                reason = f"{why}; run again to go on with it, which starts no second job"
                return Outcome(state="waiting", id=record.id, reason=reason)

    def _rest(self, record: Record, job: Job, what: str) -> bool:
        """Wait before asking again, longer each time; False where that does not help or the patience is at its end."""
        if job.again is None and job.state not in {"running", "unknown"}:
            return False
        pause = max(self._pause, job.again or 0.0)
        gone = clock.monotonic() - self._began
        if gone + pause > self._patience.longest:
            return False
        steps = f", {job.steps} step{'s' * (job.steps > 1)}" if job.steps else ""
        self._tell(
            f"{record.provider} {record.id}".strip()
            + f": {what}{steps}; {gone:.0f} s so far, asking again in {pause:.0f} s"
        )
        time.sleep(pause)
        self._pause = min(self._pause * 1.5, self._patience.most)
        return True

    def _settle(self, record: Record, job: Job) -> Outcome:
        """Write the end down: the report, its link, and the state last, so that a crash in between does it again."""
        usage = f"{job.usage.input} in, {job.usage.output} out, {job.usage.total} in all (as the provider says)"
        if job.state == "done":
            self._answer(record, job)
        mark = self._mark(record, status=job.state, reason=job.reason, tokens=usage if job.usage.total else "")
        path = self._path if mark.status == "done" else None
        return Outcome(state=_end(mark.status), id=mark.id, reason=mark.reason, report=path, usage=job.usage)

    def _answer(self, record: Record, job: Job) -> None:
        data = self._request.read()
        about = {
            "Original Request": self._request.name(self._request.path),
            "Requested By": requests.requester(data),
            "Responding Session": self._request.name(self._path.parent) or ".",
            JOB: f"{record.provider} `{job.id}`",
        }
        reports.write(self._path, reports.text_of(job.report, about, requests.title(data)))
        said = template.plain(reports.summary(job.report)) or "see the response"
        lines = answered.section(self._request.name(self._path), f"Complete: {said}")
        self._request.note(RESPONSE, lambda _: lines)

    def cancel(self, provider: Provider) -> Outcome:
        """Ask the provider to end the job, and write down what came of it."""
        record = requests.record(self._request.read())
        if not record.id:
            raise NotFound(f"{self._request.path}: no job was started for it, so there is nothing to cancel")
        told = provider.cancel(record.id)
        job = told if told.state in ENDS else provider.look(record.id)
        if job.state in ENDS:
            reports.free(self._path, record.id)
            return self._settle(record, job)
        reason = told.reason or job.reason or f"{provider.name} was asked to cancel it, and it still runs"
        return Outcome(state="waiting", id=record.id, reason=reason)


def adopt(request: Request, job: str) -> None:
    """Say, as a person, which job belongs to an intent whose answer was lost."""
    if not is_id(job):
        raise Malformed(f"{job!r:.60} is no id of a job; give the one that the provider shows")

    def change(lines: list[str]) -> list[str]:
        record = Record.of(lines)
        if record.id or record.is_free:
            raise Conflict(f"{request.path}: there is no intent whose job is not known")
        return msgspec.structs.replace(record, id=job, status="running", reason="").lines()

    request.note(JOB, change)


def forget(request: Request) -> None:
    """Say, as a person, that the job of a request counts no more: the next run starts a new one, and pays for it."""
    request.note(JOB, lambda _: [])


def _end(status: str) -> Literal["done", "failed", "cancelled"]:
    if status == "done":
        return "done"
    return "failed" if status == "failed" else "cancelled"
