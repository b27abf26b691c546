"""What models make of the formats is read; what is asked for strictly is refused with the section and the cure."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from baton.errors import Malformed
from baton.protocol.report_status import Status
from baton.protocol.report_text import LAYOUTS, parse
from baton.protocol.reports import (
    KINDS,
    Criterion,
    Fault,
    Issue,
    Item,
    Level,
    Option,
    Outcome,
    Phase,
    Question,
    Risk,
    Severity,
)


@pytest.mark.parametrize(
    "line",
    [
        "**Status:** APPROVED",
        "**Status**: APPROVED",
        "Status: APPROVED",
        "**Status: APPROVED**",
        "- **Status:** APPROVED",
        "* Status: approved",
        "1. **Status:** Approved",
        "**Status:** ✅ APPROVED",
        "✅ **Status:** `APPROVED`",
        "__Status__: *Approved*",
        "**Review Status:** APPROVED",
        "| Status | APPROVED |",
        "| **Status** | ✅ **APPROVED** |",
        "| Status | Confidence |\n|---|---|\n| APPROVED | 90% |",
        "| Field | Value |\n|---|---|\n| Status | APPROVED |",
        "**Status:** APPROVED (all tests pass)",
        "**Status:** APPROVED - well done",
        "**STATUS:** Approved.",
        "It went well.\n\n**Status:** APPROVED",
        "**Status：** APPROVED",
        "**Status:** APPROVED\n**Status:** approved",
    ],
)
def test_a_status_as_models_write_it(line):
    assert parse(f"# Code Review: x\n\n{line}\n", "review").status is Status.APPROVED


@pytest.mark.parametrize(
    "title",
    [
        "## Code Review: Login",
        "# Code Review: Login",
        "#### Code Review: Login",
        "## ✅ Code Review: Login",
        "## **Code Review: Login**",
        "## CODE REVIEW - Login",
        "## Review of Login",
        "## Code Review Report: Login",
    ],
)
def test_a_title_as_models_write_it(title):
    report = parse(f"I looked at it.\n\n{title}\r\n\r\n**Status:** needs revision\r\n", "review")
    assert (report.title, report.status) == ("Login", Status.NEEDS_REVISION)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("85%", 85),
        ("85", 85),
        ("~85 %", 85),
        ("85/100", 85),
        ("0.85", 85),
        ("High (90%)", 90),
        ("85-90%", 85),
        ("87.5%", 87),
        ("100%", 100),
        ("0%", 0),
        ("high", None),
        ("**85%**", 85),
    ],
)
def test_confidence_as_models_write_it(said, read):
    assert parse(f"## Code Review: x\n**Confidence:** {said}\n", "review").confidence == read
    assert parse(f"<results><confidence>{said}</confidence></results>", "exploration").confidence == read


def test_both_notations_of_confidence():
    assert parse("## Code Review: x\n\n<confidence>85</confidence>\n", "review").confidence == 85
    for wrong in ("185%", "-5%"):
        with pytest.raises(Malformed, match=r"review\.confidence: .* is out of range; write a number from 0 to 100"):
            parse(f"## Code Review: x\n**Confidence:** {wrong}\n", "review")


def test_a_review_as_a_model_writes_it():
    report = parse(
        """Here is my review.

# 🔍 Code Review: Phase 2

- **Status**: Needs Revision
- **Confidence**: 80%

## 📝 Summary
Mostly fine.
```python
## not a heading
```

## Issues Found

**[CRITICAL]** SQL is joined
from parts
- **File:** `src/db.py`
- Line: 12-14
- Recommendation: bind the values

### 2. [Major]: no test
* File: tests/

- **Minor**: a typo
  - Fix: spell it

## Test Coverage
| Kind | Level |
|------|-------|
| Unit tests | ✅ Adequate |
| Edge cases | ❌ Not covered |
* Integration tests - ⚠️ Partially covered

## Recommendations
1) use a pool
2) log
   less
""",
        "review",
    )
    assert report.status is Status.NEEDS_REVISION
    assert report.summary == "Mostly fine.\n```python\n## not a heading\n```"
    assert report.issues == (
        Issue(Severity.CRITICAL, "SQL is joined from parts", "src/db.py", "12-14", "bind the values"),
        Issue(Severity.MAJOR, "no test", "tests/"),
        Issue(Severity.MINOR, "a typo", recommendation="spell it"),
    )
    assert [(one.name, one.level) for one in report.coverage] == [
        ("Unit tests", Level.ADEQUATE),
        ("Edge cases", Level.INSUFFICIENT),
    ]
    assert report.recommendations == ("use a pool", "log less")
    assert report.strengths == ()


def test_issues_without_a_severity_are_not_lost():
    def issues(text):
        return parse(f"## Code Review: x\n\n### Issues Found\n\n{text}\n", "review").issues

    assert issues("- it leaks") == (Issue(Severity.MAJOR, "it leaks"),)
    assert issues("| Severity | Issue | File |\n|---|---|---|\n| Low | a typo | `a.py` |") == (
        Issue(Severity.MINOR, "a typo", "a.py"),
    )
    assert issues("None") == issues("No issues found.") == issues("- None") == ()
    assert parse("## Code Review: x\n", "review").issues is None


def test_an_implementation_as_a_model_writes_it():
    report = parse(
        """## Implementation Complete: Phase 1
**Status:** SUCCESS (12 tests pass)

### Files Created
* `src/login.py`: the form
- **src/db.py** — a table

### Files Modified:
| File | Change |
|---|---|
| src/app.py | a route |

### Test Results
- Individual test file: ✅ PASSED
- Full test suite: 11 passed, 1 failed
- Linter: not run

### Issues Encountered
None
""",
        "implementation",
    )
    assert report.files == (
        Item("src/login.py", "the form"),
        Item("src/db.py", "a table"),
        Item("src/app.py", "a route"),
    )
    assert [one.outcome for one in report.results] == [Outcome.PASSED, Outcome.FAILED, Outcome.NOT_RUN]
    assert report.issues == ()


def test_research_as_a_model_writes_it():
    report = parse(
        """### Research Results: caching
Status: partial

#### Implementation Options
1. **Option A: Redis**
   - Pros:
     - fast
     - known
   - **Cons:** one more server
2. Option B: a dict

**Recommendation:** Option B.
It is enough.

#### Open Questions
1. How large?
""",
        "research",
    )
    assert report.status is Status.PARTIAL
    assert report.options == (Option("Redis", ("fast", "known"), ("one more server",)), Option("a dict"))
    assert report.recommendation == "Option B.\nIt is enough."
    assert report.questions == ("How large?",)


def test_a_plan_as_a_model_writes_it():
    report = parse(
        """# Plan: Login
**Status:** Ready for Atlas Execution

## Summary
In two phases.

### Phase 1 - Tests
**Objective**: prove it
**Files to Create:**
* tests/test_login.py - new
**Acceptance Criteria:**
- [X] red
- [ ] green

### Phase 2: Code
**Steps:**
1. write

## Open Questions
1. Which?
   - **Option A:** one
   - **Recommendation:** A

## Risks
- **Risk:** late
  - **Mitigation:** early
- loud

## Success Criteria
* it works
""",
        "plan",
    )
    assert report.phases == (
        Phase(
            "Tests",
            "prove it",
            (Item("tests/test_login.py", "new"),),
            (),
            (),
            (Criterion("red", met=True), Criterion("green")),
        ),
        Phase("Code", steps=("write",)),
    )
    assert report.questions == (Question("Which?", ("one",), "A"),)
    assert report.risks == (Risk("late", "early"), Risk("loud"))
    assert report.criteria == (Criterion("it works"),)
    assert report.ready == "Ready for Atlas Execution"


def test_an_error_and_an_exploration_as_models_write_them():
    error = parse(
        "## Error Report: Oracle\n**Error Type:** tool failure\n**Status:** blocked\n\n**Context:**\n- Task: read it\n",
        "error",
    )
    assert (error.title, error.fault, error.status) == ("Oracle", Fault.TOOL_FAILURE, Status.BLOCKED)
    assert error.context == (Item("Task", "read it"),)
    with pytest.raises(Malformed, match=r"error type: 'NETWORK' is none; known: AMBIGUOUS_INSTRUCTIONS"):
        parse("## Error Report: x\n**Error Type:** NETWORK\n", "error")
    found = parse("<RESULTS><files>\n* /a.py: it\n</files><answer>a <b> c</answer></RESULTS>", "exploration")
    assert (found.files, found.answer) == ((Item("/a.py", "it"),), "a <b> c")


MOOD = (
    "error: 'Mood' is not one of its sections; known: Description, Context, Attempted Solutions, Recommendation, "
    "Partial Results"
)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("review", "**Status:** APPROVED", "review.title: missing; begin it once with the heading Code Review: …"),
        ("review", "## Code Review: x", "review.status: missing; write **Status:** under the title"),
        (
            "review",
            "## Code Review: x\n**Status:** FAILED",
            "review.confidence: missing; write **Confidence:** under the title",
        ),
        (
            "review",
            "## Code Review: x\n**Status:** FAILED\n**Confidence:** 9%",
            'review: the section Summary is missing; add "### Summary", with None if empty',
        ),
        (
            "review",
            "## Code Review: x\n**Status:** FAILED\n**Confidence:** 9%\n### Summary\na\n### Summary\nb",
            "review: Summary stands twice; keep one",
        ),
        (
            "error",
            "## Error Report: x\n**Error Type:** TIMEOUT\n**Status:** FAILED\n### Mood\nbad",
            MOOD,
        ),
        (
            "exploration",
            "<results></results>",
            "exploration: the section analysis is missing; add <analysis>…</analysis>",
        ),
    ],
)
def test_strict_names_the_section_and_the_cure(kind, text, said):
    with pytest.raises(Malformed) as error:
        parse(text, kind, strict=True)
    assert str(error.value) == said


def test_another_protocol_or_kind_is_refused():
    assert parse("## Code Review: x\n**Protocol Version:** 1.7\n", "review").protocol == "1.7"
    with pytest.raises(Malformed, match=r"protocol version: '2.0' is not known; write 1.0"):
        parse("## Code Review: x\n**Protocol Version:** 2.0\n", "review")
    with pytest.raises(Malformed, match=r"'reviews' is no kind of report; did you mean review?"):
        parse("x", "reviews")


HOSTILE = (
    "#",
    "# ",
    "**",
    "`",
    "```\n",
    "> ",
    "- ",
    "| ",
    "<!--",
    "<pre>",
    "**Status:** ",
    "### Summary\n",
    "### Phase 1: x\n- y\n",
    "**Steps:**\n1. a\n",
    "### Issues Found\n- x\n",
    "**[MINOR]** x\n",
    "<answer>",
    "\\",
    " ",
    "\n",
    "  - x\n",
    "## Code Review",
    "*_",
    "| Status |",
    "1. ",
    ":",
    "✅",
    "&lt;",
    "(",
)


def test_the_time_is_linear_in_what_is_written():
    """Eight times the text takes no more than about eight times as long; a quadratic reader takes 64 times."""

    def took(text, kind):
        title = f"# {LAYOUTS[kind].title}: x" if kind in LAYOUTS else ""
        start = time.process_time()
        with suppress(Malformed):
            parse(f"{title}\n\n{text}", kind)
        return time.process_time() - start

    assert len(HOSTILE) > 20
    for piece in HOSTILE:
        for kind in KINDS if piece.endswith("\n") else ("review", "exploration"):
            small = min(took(piece * (25_000 // len(piece)), kind) for _ in range(2))
            large = min(took(piece * (200_000 // len(piece)), kind) for _ in range(2))
            assert large < 24 * small + 0.1, (piece, kind, small, large)
