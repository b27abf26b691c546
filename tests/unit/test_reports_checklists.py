"""The four checklists: each item is missed by itself, and named."""

from __future__ import annotations

import msgspec
import pytest

from baton.errors import Malformed
from baton.protocol.checklists import CHECKLISTS, block, missing
from baton.protocol.report_status import Status
from baton.protocol.reports import (
    Check,
    Criterion,
    Error,
    Exploration,
    Implementation,
    Issue,
    Item,
    Option,
    Outcome,
    Phase,
    Plan,
    Research,
    Review,
    Severity,
)

replace = msgspec.structs.replace
PHASE = Phase("Tests", "prove it", (Item("a.py"),), (Item("test_a"),), ("write",), (Criterion("green"),))
WHOLE = {
    "plan": Plan("x", phases=(PHASE, PHASE), notes="snake case"),
    "implementation": Implementation(
        "x", Status.PARTIAL_SUCCESS, files=(Item("a.py"),), results=(Check("all", Outcome.PASSED),), issues=("slow",)
    ),
    "review": Review(
        "x",
        Status.APPROVED,
        issues=(Issue(Severity.MINOR, "a typo"),),
        recommendations=("log",),
        next_steps="commit",
    ),
    "research": Research(
        "x", Status.COMPLETE, 80, (Item("a.py", "why"),), options=(Option("one"),), questions=(), next_steps=("plan",)
    ),
}


def test_there_are_four_and_a_whole_report_lacks_nothing():
    assert set(CHECKLISTS) == set(WHOLE)
    for report in WHOLE.values():
        assert missing(report) == ()
        block(report)
    assert missing(Error()) == missing(Exploration()) == ()


@pytest.mark.parametrize(
    ("kind", "without", "item"),
    [
        ("plan", {"phases": ()}, "clear phase objective provided"),
        ("plan", {"phases": (PHASE, replace(PHASE, objective=""))}, "clear phase objective provided"),
        ("plan", {"phases": (replace(PHASE, files=()),)}, "specific files or functions identified"),
        ("plan", {"phases": (replace(PHASE, tests=()),)}, "test requirements listed"),
        ("plan", {"phases": (replace(PHASE, criteria=()),)}, "acceptance criteria defined"),
        ("plan", {"notes": ""}, "conventions or constraints noted"),
        ("implementation", {"status": None}, "implementation status declared"),
        ("implementation", {"files": ()}, "files modified listed"),
        ("implementation", {"results": ()}, "test results provided"),
        ("implementation", {"issues": None}, "known issues documented"),
        ("implementation", {"issues": ()}, "success criteria met, or reasons why not"),
        ("review", {"status": None}, "review status declared"),
        ("review", {"issues": None}, "issues identified with severity"),
        ("review", {"recommendations": ()}, "recommendations provided"),
        ("review", {"next_steps": ""}, "clear next steps indicated"),
        ("research", {"status": None}, "research status declared"),
        ("research", {"confidence": None}, "confidence level provided"),
        ("research", {"files": (Item("a.py"),)}, "relevant files listed with explanations"),
        ("research", {"options": ()}, "implementation options presented"),
        ("research", {"questions": None}, "open questions documented"),
        ("research", {"next_steps": ()}, "next steps actionable"),
    ],
)
def test_what_is_missing_is_named_with_its_cure(kind, without, item):
    report = replace(WHOLE[kind], **without)
    assert item in [one.item for one in missing(report)]
    with pytest.raises(Malformed, match="its checklist is not met") as error:
        block(report)
    assert f"{item} (add " in str(error.value)
    assert "\n" not in str(error.value)
