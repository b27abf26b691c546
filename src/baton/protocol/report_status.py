"""The statuses and the confidence of reports, and what each leads to.

`MEANING` is the only place that says what a status does to the work.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, get_args

import msgspec

from baton.errors import Malformed
from baton.protocol import codec
from baton.protocol.fields import whole
from baton.protocol.results import Status as ReturnStatus

PROTOCOL = "1.0"
Kind = Literal["exploration", "research", "implementation", "review", "plan", "error"]


class Status(StrEnum):
    """How the work of a report ended, in its author's words."""

    SUCCESS = "SUCCESS"
    PARTIAL_SUCCESS = "PARTIAL_SUCCESS"
    NEEDS_REVISION = "NEEDS_REVISION"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    BLOCKED = "BLOCKED"
    APPROVED = "APPROVED"
    APPROVED_WITH_RECOMMENDATIONS = "APPROVED_WITH_RECOMMENDATIONS"
    COMPLETE = "COMPLETE"
    PARTIAL = "PARTIAL"
    INSUFFICIENT = "INSUFFICIENT"
    AMBIGUOUS = "AMBIGUOUS"


class Next(StrEnum):
    """What happens after a report."""

    GO_ON = "go on"  # the answer stands
    GO_BACK = "go back"  # to whoever gave the work
    ASK_ANOTHER = "ask another"  # a second opinion
    ESCALATE = "escalate"  # somebody with more authority decides
    FAIL = "fail"  # what the sender wanted in this case: again, up, or the end


class Meaning(msgspec.Struct, frozen=True):
    """What a status leads to, and the status of the return that carries it."""

    next: Next
    returns: ReturnStatus
    why: str


_S, _N = Status, Next

MEANING: dict[Kind, dict[Status, Meaning]] = {
    "implementation": {
        _S.SUCCESS: Meaning(_N.GO_ON, "success", "done, all tests pass"),
        _S.PARTIAL_SUCCESS: Meaning(_N.GO_ON, "partial", "done, with known limits"),
        _S.NEEDS_REVISION: Meaning(_N.GO_BACK, "partial", "done, but it has to be revised"),
        _S.FAILED: Meaning(_N.FAIL, "failed", "it could not be done"),
        _S.TIMEOUT: Meaning(_N.FAIL, "timeout", "it took more time or means than it had"),
        _S.BLOCKED: Meaning(_N.ESCALATE, "failed", "it waits for something outside"),
    },
    "review": {
        _S.APPROVED: Meaning(_N.GO_ON, "success", "all requirements are met"),
        _S.APPROVED_WITH_RECOMMENDATIONS: Meaning(_N.GO_ON, "success", "good, and could be better"),
        _S.NEEDS_REVISION: Meaning(_N.GO_BACK, "partial", "issues have to be fixed first"),
        _S.FAILED: Meaning(_N.ESCALATE, "failed", "it does not meet the requirements"),
    },
    "research": {
        _S.COMPLETE: Meaning(_N.GO_ON, "success", "all findings are written down"),
        _S.PARTIAL: Meaning(_N.GO_ON, "partial", "some findings, there may be more"),
        _S.INSUFFICIENT: Meaning(_N.ASK_ANOTHER, "partial", "too little was found to go on"),
        _S.AMBIGUOUS: Meaning(_N.GO_BACK, "partial", "the question can be read in several ways"),
    },
    "error": {
        _S.FAILED: Meaning(_N.FAIL, "failed", "it went wrong"),
        _S.BLOCKED: Meaning(_N.ESCALATE, "failed", "it waits for something outside"),
    },
}


class Band(StrEnum):
    """How sure an agent is, in five bands."""

    HIGH = "high"
    GOOD = "good"
    MODERATE = "moderate"
    LOW = "low"
    VERY_LOW = "very low"


_BANDS: tuple[tuple[int, Band, str], ...] = (
    (90, Band.HIGH, "go on"),
    (70, Band.GOOD, "go on; small doubts remain"),
    (50, Band.MODERATE, "much is not known; look at the open questions first"),
    (30, Band.LOW, "find out more before you go on"),
    (0, Band.VERY_LOW, "the findings may be wrong; do not build on them"),
)


def band(confidence: int) -> Band:
    """The band of a confidence from 0 to 100."""
    return next(name for least, name, _ in _BANDS if confidence >= least)


def advice(confidence: int) -> str:
    """What to do with an answer of this confidence."""
    return next(words for least, _, words in _BANDS if confidence >= least)


class Reporting(codec.Record, frozen=True, kw_only=True):
    """That the answers of an agent are reports, and what is made of them."""

    kind: Kind
    second_opinion: int = 0  # with less confidence another agent is asked; 0: never
    checklist: Literal["note", "block"] = (
        "note"  # what is missing for the next agent is noted, or the work is done again
    )

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise Malformed(
                f"reports: {self.kind!r:.60} is no kind of report; {codec.near(str(self.kind), get_args(Kind))}"
            )
        if self.checklist not in {"note", "block"}:
            raise Malformed(f"reports.checklist: {self.checklist!r:.60} is not known; write note or block")
        whole(self.second_opinion, "reports.second_opinion", 0, 100)


def as_reporting(given: Reporting | str | None) -> Reporting | None:
    """The name of a kind is reporting without further rules."""
    if given is None or isinstance(given, Reporting):
        return given
    return Reporting(kind=given)  # type: ignore[arg-type]
