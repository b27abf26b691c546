"""The four checklists of a handoff, checked by machine from the report that goes with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from baton.errors import Malformed
from baton.protocol.report_status import Kind
from baton.protocol.reports import Implementation, Plan, Report, Research, Review


class Check(NamedTuple):
    """One item: what is asked for, whether a report has it, and what to add where it has not."""

    item: str
    has: Callable[[Any], bool]
    cure: str


def _phases(plan: Plan, field: str) -> bool:
    return bool(plan.phases) and all(getattr(phase, field) for phase in plan.phases)


def _explained(research: Research) -> bool:
    return bool(research.files) and all(one.note for one in research.files)


def _weighed(review: Review) -> bool:
    return review.issues is not None


def _known(work: Implementation) -> bool:
    return work.issues is not None


def _reasons(work: Implementation) -> bool:
    return work.status == "SUCCESS" or bool(work.issues or work.next_steps)


CHECKLISTS: dict[Kind, tuple[Check, ...]] = {
    "plan": (
        Check(
            "clear phase objective provided", lambda plan: _phases(plan, "objective"), "**Objective:** in each phase"
        ),
        Check(
            "specific files or functions identified", lambda plan: _phases(plan, "files"), "**Files to Modify/Create:**"
        ),
        Check("test requirements listed", lambda plan: _phases(plan, "tests"), "**Tests to Write:** in each phase"),
        Check("acceptance criteria defined", lambda plan: _phases(plan, "criteria"), "**Acceptance Criteria:**"),
        Check("conventions or constraints noted", lambda plan: bool(plan.patterns or plan.notes), "## Notes for Atlas"),
    ),
    "implementation": (
        Check("implementation status declared", lambda work: work.status is not None, "**Status:**"),
        Check("files modified listed", lambda work: bool(work.files), "### Files Created/Modified"),
        Check("test results provided", lambda work: bool(work.results), "### Test Results"),
        Check("known issues documented", _known, "### Issues Encountered, with None where there is none"),
        Check("success criteria met, or reasons why not", _reasons, "### Issues Encountered or ### Next Steps"),
    ),
    "review": (
        Check("review status declared", lambda review: review.status is not None, "**Status:**"),
        Check("issues identified with severity", _weighed, "### Issues Found, with None where there is none"),
        Check("recommendations provided", lambda review: bool(review.recommendations), "### Recommendations"),
        Check("clear next steps indicated", lambda review: bool(review.next_steps), "### Next Steps"),
    ),
    "research": (
        Check("research status declared", lambda research: research.status is not None, "**Status:**"),
        Check("confidence level provided", lambda research: research.confidence is not None, "**Confidence:**"),
        Check("relevant files listed with explanations", _explained, "a note to each of ### Relevant Files"),
        Check(
            "implementation options presented", lambda research: bool(research.options), "### Implementation Options"
        ),
        Check(
            "open questions documented", lambda research: research.questions is not None, "### Open Questions, or None"
        ),
        Check("next steps actionable", lambda research: bool(research.next_steps), "### Next Steps"),
    ),
}


def missing(report: Report) -> tuple[Check, ...]:
    """The items of its checklist that a report does not have; kinds without a checklist lack nothing."""
    return tuple(check for check in CHECKLISTS.get(report.KIND, ()) if not check.has(report))


def block(report: Report) -> None:
    """Refuse a report that lacks an item, naming each with its cure."""
    lacking = missing(report)
    if lacking:
        items = "; ".join(f"{one.item} (add {one.cure})" for one in lacking)
        raise Malformed(f"{report.KIND}: its checklist is not met: {items}")
