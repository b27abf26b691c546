"""What a report is written as is read back, whatever its fields hold; what a status leads to."""

from __future__ import annotations

import pytest
from hypothesis import Phase as Stage
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import Malformed
from baton.lifecycle import Event, State, after
from baton.protocol.report_status import MEANING, Band, Next, Status, advice, band
from baton.protocol.report_text import parse, render
from baton.protocol.reports import (
    KINDS,
    NOTHING,
    Check,
    Coverage,
    Criterion,
    Error,
    Exploration,
    Fault,
    Implementation,
    Issue,
    Item,
    Level,
    Option,
    Outcome,
    Phase,
    Plan,
    Question,
    Research,
    Review,
    Risk,
    Severity,
    meaning,
)

# Words in which the format itself occurs, so that chance finds what could be mistaken for it.
MARKS = (
    "## Code Review: x",
    "### Summary",
    "**Status:** APPROVED",
    "**Confidence:** 99%",
    "**[CRITICAL]** x",
    "---",
    "```",
    "~~~",
    "> x",
    "- x",
    "1. x",
    "| a | b |",
    "|---|---|",
    "<!--",
    "-->",
    "<pre>",
    "</answer>",
    "<confidence>9</confidence>",
    "&lt;",
    "\\",
    "\\#",
    "`",
    "``",
    "**",
    "__",
    ": ",
    " - ",
    " — ",
    "None",
    "### Phase 1: x",
    "**Objective:** x",
    "- File: x",
    "Pros: x",
    "**Option A:** x",
    "**Risk:** x",
    "**Mitigation:** x",
    "[ ] x",
    "[x] x",
    "#",
    "✅",
    "❌",
    "    x",
    "|",
    "***",
    "# Plan: x",
    "**Recommendation:** x",
    "Recommendation: x",
    "Line: 3",
    "None.",
    "- - -",
    "\u2028",
    "\x0b",
)
PIECES = st.one_of(
    st.sampled_from(MARKS), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=8)
)


def one_line(words):
    return " ".join(words).replace("\n", " ").strip()


NOTES = st.lists(PIECES, max_size=3).map(one_line)
LINES = NOTES.filter(lambda text: text and not NOTHING.fullmatch(text))
TEXTS = st.lists(PIECES, max_size=6).map(lambda pieces: "\n".join(pieces).strip())
ITEMS = st.lists(st.builds(Item, LINES, NOTES), max_size=3).map(tuple)
SAID = st.lists(LINES, max_size=3).map(tuple)
PERCENT = st.none() | st.integers(0, 100)
CRITERIA = st.lists(st.builds(Criterion, LINES, st.booleans()), max_size=2).map(tuple)
PHASES = st.builds(Phase, title=NOTES, objective=TEXTS, files=ITEMS, tests=ITEMS, steps=SAID, criteria=CRITERIA)


def stated(kind):
    return st.none() | st.sampled_from(list(MEANING[kind]))


def several(*args, **kwargs):
    return st.lists(st.builds(*args, **kwargs), max_size=3).map(tuple)


REPORTS = {
    "exploration": st.builds(
        Exploration, analysis=TEXTS, files=ITEMS, answer=TEXTS, next_steps=SAID, confidence=PERCENT
    ),
    "research": st.builds(
        Research,
        title=NOTES,
        status=stated("research"),
        confidence=PERCENT,
        files=ITEMS,
        symbols=ITEMS,
        patterns=ITEMS,
        dependencies=ITEMS,
        options=several(Option, LINES, SAID, SAID),
        recommendation=TEXTS,
        questions=st.none() | SAID,
        next_steps=SAID,
    ),
    "implementation": st.builds(
        Implementation,
        title=NOTES,
        status=stated("implementation"),
        confidence=PERCENT,
        summary=TEXTS,
        files=ITEMS,
        symbols=ITEMS,
        tests=ITEMS,
        results=several(Check, LINES, st.sampled_from(Outcome)),
        issues=st.none() | SAID,
        next_steps=TEXTS,
    ),
    "review": st.builds(
        Review,
        title=NOTES,
        status=stated("review"),
        confidence=PERCENT,
        summary=TEXTS,
        strengths=SAID,
        issues=st.none()
        | several(
            Issue, st.sampled_from(Severity), LINES, NOTES.filter(lambda t: not NOTHING.fullmatch(t)), NOTES, NOTES
        ),
        coverage=several(Coverage, LINES, st.sampled_from(Level)),
        concerns=TEXTS,
        recommendations=SAID,
        next_steps=TEXTS,
    ),
    "plan": st.builds(
        Plan,
        title=NOTES,
        created=NOTES,
        ready=NOTES,
        summary=TEXTS,
        files=ITEMS,
        symbols=ITEMS,
        dependencies=ITEMS,
        patterns=ITEMS,
        phases=st.lists(PHASES, max_size=3).map(tuple),
        questions=several(Question, LINES, SAID, NOTES),
        risks=several(Risk, LINES, NOTES),
        criteria=CRITERIA,
        notes=TEXTS,
    ),
    "error": st.builds(
        Error,
        title=NOTES,
        fault=st.none() | st.sampled_from(Fault),
        status=stated("error"),
        description=TEXTS,
        context=ITEMS,
        attempted=SAID,
        recommendation=TEXTS,
        partial_results=TEXTS,
    ),
}


def test_every_kind_is_tried():
    assert set(REPORTS) == set(KINDS)


@pytest.mark.parametrize("kind", REPORTS)
def test_what_is_written_is_read_back(kind):
    @settings(max_examples=40, deadline=None, phases=(Stage.explicit, Stage.generate))  # small as they are
    @given(REPORTS[kind])
    def written_and_read(report):
        assert parse(render(report), kind) == report

    written_and_read()


@pytest.mark.parametrize("kind", REPORTS)
def test_line_ends_and_a_fence_around_all_of_it_change_nothing(kind):
    report = FULL[kind]
    text = render(report)
    assert parse(text, kind, strict=True) == report
    assert parse(text.replace("\n", "\r\n"), kind, strict=True) == report
    assert parse(f"````markdown\n{text}````\n", kind, strict=True) == report


FULL = {
    "exploration": Exploration("where is login", (Item("/a/login.ts", "the form"),), "It is here.", ("read it",), 85),
    "research": Research(
        "Login",
        Status.COMPLETE,
        80,
        (Item("login.py", "will change"),),
        (Item("f in login.py", "entry"),),
        (Item("naming", "snake case"),),
        (Item("httpx", "calls"),),
        (Option("a cache", ("fast",), ("memory",)), Option("none at all")),
        "the cache",
        ("how large?",),
        ("plan it",),
    ),
    "implementation": Implementation(
        "Login",
        Status.SUCCESS,
        95,
        "Done.",
        (Item("login.py", "new"),),
        (Item("login()", "logs in"),),
        (Item("test_login", "logs in"),),
        (Check("Full test suite", Outcome.PASSED),),
        (),
        "Review it.",
    ),
    "review": Review(
        "Login",
        Status.NEEDS_REVISION,
        90,
        "Almost.",
        ("short",),
        (Issue(Severity.CRITICAL, "SQL is joined", "db.py", "3-5", "bind values"), Issue(Severity.MINOR, "a typo")),
        (Coverage("Edge cases", Level.PARTIAL),),
        "None",
        ("add tests",),
        "Revise.",
    ),
    "plan": Plan(
        "Login",
        "2026-02-11",
        "Ready for Atlas Execution",
        "Two phases.",
        (Item("login.py", "new"),),
        (Item("f", "g"),),
        (Item("httpx", "x"),),
        (Item("naming", "y"),),
        (
            Phase("Tests", "prove it", (Item("t.py", "new"),), (Item("t", "x"),), ("write",), (Criterion("green"),)),
            Phase("Code"),
        ),
        (Question("which?", ("one", "two"), "one"),),
        (Risk("late", "early"),),
        (Criterion("works", met=True),),
        "Mind it.",
    ),
    "error": Error(
        "Sisyphus",
        Fault.TOOL_FAILURE,
        Status.BLOCKED,
        "no disk",
        (Item("Task", "build"), Item("Failure point", "link")),
        ("again",),
        "more disk",
        "None",
    ),
}


def test_each_status_has_one_meaning_and_its_step_is_legal():
    """Each leads to a return status and to an event that a claimed handoff may have."""
    steps = {
        Next.GO_ON: {Event.COMPLETE},
        Next.GO_BACK: {Event.COMPLETE},
        Next.ASK_ANOTHER: {Event.COMPLETE},
        Next.ESCALATE: {Event.ESCALATE, Event.PARK},
        Next.FAIL: {Event.RETRY, Event.ESCALATE, Event.FAIL},
    }
    told = {(kind, status): (one.next, one.returns) for kind, row in MEANING.items() for status, one in row.items()}
    assert all(after(State.CLAIMED, event) for next_, _ in told.values() for event in steps[next_])
    assert told["review", Status.NEEDS_REVISION] == (Next.GO_BACK, "partial")
    assert told["review", Status.FAILED] == (Next.ESCALATE, "failed")
    assert told["implementation", Status.BLOCKED] == (Next.ESCALATE, "failed")
    assert told["implementation", Status.TIMEOUT] == (Next.FAIL, "timeout")
    assert told["research", Status.INSUFFICIENT] == (Next.ASK_ANOTHER, "partial")
    assert {status for _, status in told} == set(Status)
    assert all(one.next is Next.GO_ON for row in MEANING.values() for one in row.values() if one.returns == "success")


def test_five_bands_with_their_advice():
    edges = {0: Band.VERY_LOW, 29: Band.VERY_LOW, 30: Band.LOW, 49: Band.LOW, 50: Band.MODERATE, 69: Band.MODERATE}
    edges |= {70: Band.GOOD, 89: Band.GOOD, 90: Band.HIGH, 100: Band.HIGH}
    assert {number: band(number) for number in edges} == edges
    assert len({advice(number) for number in edges}) == 5
    assert "find out more" in advice(40)


def test_little_confidence_asks_for_a_second_opinion_where_the_policy_says_so():
    sure, unsure = Review(status=Status.APPROVED, confidence=50), Review(status=Status.APPROVED, confidence=49)
    assert meaning(sure, 50).next is Next.GO_ON
    assert meaning(unsure).next is Next.GO_ON
    asked = meaning(unsure, 50)
    assert (asked.next, asked.returns) == (Next.ASK_ANOTHER, "partial")
    assert asked.why == "the confidence is 49 %, low: find out more before you go on"
    back = Review(status=Status.NEEDS_REVISION, confidence=10)
    assert meaning(back, 50).next is Next.GO_BACK
    with pytest.raises(Malformed, match=r"review\.confidence: missing"):
        meaning(Review(status=Status.APPROVED), 50)


def test_no_status_means_nothing():
    with pytest.raises(Malformed, match=r"review\.status: missing; write \*\*Status:\*\* and one of APPROVED"):
        meaning(Review())


def test_the_file_of_a_plan():
    assert Plan("Add Login (v2)").filename == "add-login-v2-plan.md"
    assert Plan("../../etc/passwd").filename == "etc-passwd-plan.md"
    assert Plan("✅").filename == "untitled-plan.md"
    assert len(Plan("a" * 500).filename) < 100


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Review(title="a\nb"), "title: .* is not one line"),
        (lambda: Review(summary=" a"), "summary: space at its ends"),
        (lambda: Review(confidence=101), "confidence: 101 is out of range"),
        (lambda: Review(status=Status.SUCCESS), "review.status: SUCCESS is not one; known: APPROVED"),
        (lambda: Item(""), "name: '' says nothing"),
        (lambda: Review(strengths=("None",)), "strengths: 'None' says nothing"),
        (lambda: Review(protocol="x"), "protocol: 'x' is no version"),
    ],
)
def test_what_no_report_can_carry_is_refused(make, said):
    with pytest.raises(Malformed, match=said):
        make()
