"""What an agent reports: frozen records for six kinds of report. `report_text` writes them down and reads them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, ClassVar

from baton.errors import Malformed
from baton.protocol import codec
from baton.protocol.fields import whole
from baton.protocol.report_status import MEANING, PROTOCOL, Kind, Meaning, Next, Status, advice, band


class Severity(StrEnum):
    """How bad an issue is."""

    CRITICAL = "CRITICAL"
    MAJOR = "MAJOR"
    MINOR = "MINOR"


class Outcome(StrEnum):
    """What became of a test."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    NOT_RUN = "NOT RUN"


class Level(StrEnum):
    """How well tests cover something."""

    ADEQUATE = "Adequate"
    PARTIAL = "Partial"
    INSUFFICIENT = "Insufficient"
    UNKNOWN = "Unknown"


class Fault(StrEnum):
    """The kind of an error."""

    TIMEOUT = "TIMEOUT"
    INSUFFICIENT_CONTEXT = "INSUFFICIENT_CONTEXT"
    TOOL_FAILURE = "TOOL_FAILURE"
    AMBIGUOUS_INSTRUCTIONS = "AMBIGUOUS_INSTRUCTIONS"
    EXTERNAL_DEPENDENCY = "EXTERNAL_DEPENDENCY"


_VERSION = re.compile(r"\d{1,4}\.\d{1,4}", re.ASCII)
NOTHING = re.compile(r"(?:none|n/a|nothing)\.?", re.IGNORECASE)  # what stands in a section that is empty on purpose


def _line(value: str, field: str) -> None:
    codec.text(value, field)
    if "\n" in value or "\r" in value or value != value.strip():
        raise Malformed(f"{field}: {value!r:.60} is not one line; leave out line breaks and spaces at its ends")


def _entry(value: str, field: str) -> None:
    _line(value, field)
    if not value or NOTHING.fullmatch(value):
        raise Malformed(f"{field}: {value!r} says nothing; leave the entry out")


def _check(record: Any, *, required: tuple[str, ...] = (), blocks: tuple[str, ...] = ()) -> None:
    """Check what text can carry: blocks without space around them, all else on one line."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in blocks:
            if codec.text(value, name) != value.strip() or "\r" in value:
                raise Malformed(f"{name}: space at its ends, or a carriage return; leave it out")
        elif name in required:
            _entry(value, name)
        elif type(value) is str:
            _line(value, name)
        elif isinstance(value, tuple):
            for one in value:
                if type(one) is str:
                    _entry(one, name)


def _checked(record: Any, blocks: tuple[str, ...]) -> None:
    _check(record, blocks=blocks)
    if getattr(record, "confidence", None) is not None:
        whole(record.confidence, "confidence", 0, 100)
    if not _VERSION.fullmatch(record.protocol):
        raise Malformed(f"protocol: {record.protocol!r:.20} is no version; write {PROTOCOL}")
    known = MEANING.get(record.KIND)
    if known and record.status is not None and record.status not in known:
        raise Malformed(f"{record.KIND}.status: {record.status} is not one; known: {', '.join(known)}")


class Item(codec.Record, frozen=True):
    """A thing and a note about it: a file and what changed, a function and its role."""

    name: str
    note: str = ""

    def __post_init__(self) -> None:
        _check(self, required=("name",))


class Check(codec.Record, frozen=True):
    """A run of tests and what became of it."""

    name: str
    outcome: Outcome

    def __post_init__(self) -> None:
        _check(self, required=("name",))


class Coverage(codec.Record, frozen=True):
    """How well one kind of tests covers the change."""

    name: str
    level: Level

    def __post_init__(self) -> None:
        _check(self, required=("name",))


class Option(codec.Record, frozen=True):
    """One way to do it."""

    approach: str
    pros: tuple[str, ...] = ()
    cons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self, required=("approach",))


class Issue(codec.Record, frozen=True):
    """What a reviewer found."""

    severity: Severity
    text: str
    file: str = ""
    line: str = ""
    recommendation: str = ""

    def __post_init__(self) -> None:
        _check(self, required=("text",))


class Question(codec.Record, frozen=True):
    """What a plan leaves open."""

    text: str
    options: tuple[str, ...] = ()
    recommendation: str = ""

    def __post_init__(self) -> None:
        _check(self, required=("text",))


class Risk(codec.Record, frozen=True):
    """What may go wrong, and what is done against it."""

    text: str
    mitigation: str = ""

    def __post_init__(self) -> None:
        _check(self, required=("text",))


class Criterion(codec.Record, frozen=True):
    """What has to be true, and whether it is."""

    text: str
    met: bool = False

    def __post_init__(self) -> None:
        _check(self, required=("text",))


class Phase(codec.Record, frozen=True):
    """One step of a plan that stands for itself."""

    title: str = ""
    objective: str = ""
    files: tuple[Item, ...] = ()
    tests: tuple[Item, ...] = ()
    steps: tuple[str, ...] = ()
    criteria: tuple[Criterion, ...] = ()

    def __post_init__(self) -> None:
        _check(self, blocks=("objective",))


class Exploration(codec.Record, frozen=True):
    """What an explorer found; written as XML."""

    KIND: ClassVar[Kind] = "exploration"
    analysis: str = ""
    files: tuple[Item, ...] = ()
    answer: str = ""
    next_steps: tuple[str, ...] = ()
    confidence: int | None = None
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        _checked(self, ("analysis", "answer"))


class Research(codec.Record, frozen=True):
    """What a researcher found, and what it recommends."""

    KIND: ClassVar[Kind] = "research"
    title: str = ""
    status: Status | None = None  # None: nothing was said, so nothing follows
    confidence: int | None = None
    files: tuple[Item, ...] = ()
    symbols: tuple[Item, ...] = ()
    patterns: tuple[Item, ...] = ()
    dependencies: tuple[Item, ...] = ()
    options: tuple[Option, ...] = ()
    recommendation: str = ""
    questions: tuple[str, ...] | None = None  # None: the section is missing; empty: there is none
    next_steps: tuple[str, ...] = ()
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        _checked(self, ("recommendation",))


class Implementation(codec.Record, frozen=True):
    """What was built, and how it was tested."""

    KIND: ClassVar[Kind] = "implementation"
    title: str = ""
    status: Status | None = None
    confidence: int | None = None
    summary: str = ""
    files: tuple[Item, ...] = ()
    symbols: tuple[Item, ...] = ()
    tests: tuple[Item, ...] = ()
    results: tuple[Check, ...] = ()
    issues: tuple[str, ...] | None = None
    next_steps: str = ""
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        _checked(self, ("summary", "next_steps"))


class Review(codec.Record, frozen=True):
    """What a reviewer says of the work of another one."""

    KIND: ClassVar[Kind] = "review"
    title: str = ""
    status: Status | None = None
    confidence: int | None = None
    summary: str = ""
    strengths: tuple[str, ...] = ()
    issues: tuple[Issue, ...] | None = None
    coverage: tuple[Coverage, ...] = ()
    concerns: str = ""
    recommendations: tuple[str, ...] = ()
    next_steps: str = ""
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        _checked(self, ("summary", "concerns", "next_steps"))


class Plan(codec.Record, frozen=True):
    """What is to be done, in phases."""

    KIND: ClassVar[Kind] = "plan"
    title: str = ""
    created: str = ""
    ready: str = ""  # what stands as its status: a plan is work to come, so no machine acts on it
    summary: str = ""
    files: tuple[Item, ...] = ()
    symbols: tuple[Item, ...] = ()
    dependencies: tuple[Item, ...] = ()
    patterns: tuple[Item, ...] = ()
    phases: tuple[Phase, ...] = ()
    questions: tuple[Question, ...] = ()
    risks: tuple[Risk, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    notes: str = ""
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        _checked(self, ("summary", "notes"))

    @property
    def filename(self) -> str:
        """The name of its file, whatever the title holds."""
        words = "-".join(re.findall(r"[a-z0-9]+", self.title.lower()))
        return f"{words[:80].strip('-') or 'untitled'}-plan.md"


class Error(codec.Record, frozen=True):
    """What went wrong, what was tried, and what is left of it."""

    KIND: ClassVar[Kind] = "error"
    title: str = ""  # the agent
    fault: Fault | None = None
    status: Status | None = None
    description: str = ""
    context: tuple[Item, ...] = ()  # Task, Last successful step, Failure point
    attempted: tuple[str, ...] = ()
    recommendation: str = ""
    partial_results: str = ""
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        _checked(self, ("description", "recommendation", "partial_results"))


Report = Exploration | Research | Implementation | Review | Plan | Error
KINDS: dict[Kind, type[Report]] = {
    one.KIND: one for one in (Exploration, Research, Implementation, Review, Plan, Error)
}


def meaning(report: Report, second_opinion: int = 0) -> Meaning:
    """What follows from a report; with less confidence than `second_opinion`, another agent is asked first."""
    if isinstance(report, Exploration | Plan):
        found = Meaning(Next.GO_ON, "success", "")
    elif report.status is None:
        raise Malformed(
            f"{report.KIND}.status: missing; write **Status:** and one of {', '.join(MEANING[report.KIND])}"
        )
    else:
        found = MEANING[report.KIND][report.status]
    confidence = getattr(report, "confidence", None)
    if second_opinion and confidence is None and "confidence" in report.__struct_fields__:
        raise Malformed(f"{report.KIND}.confidence: missing; write **Confidence:** and a number from 0 to 100")
    if found.next is Next.GO_ON and confidence is not None and confidence < second_opinion:
        why = f"the confidence is {confidence} %, {band(confidence)}: {advice(confidence)}"
        return Meaning(Next.ASK_ANOTHER, "partial", why)
    return found
