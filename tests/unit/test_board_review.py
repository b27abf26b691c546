"""What waits for a person, and what is decided: only on what was seen, never twice, never by silence."""

from pathlib import Path

import pytest

from baton import clock
from baton.board import alerts, approvals, dispatch, files, promote, recovery, review, trust
from baton.board.actor import Actor
from baton.board.approvals import Approval, Terms, approve, standing_approval
from baton.board.moves import Move
from baton.board.promote import Inline
from baton.board.review import decide, waiting
from baton.board.root import board_of
from baton.board.sections import first_line
from baton.board.tags import Text, state_of
from baton.errors import Conflict, Malformed, NotAuthorised
from baton.stores import holder
from baton.testing.virtual import VirtualClock

ANA = Actor("ana", holder.identity())
PLAN = """# Plan

1. Refactor auth #needs-fix #P1 #M
- Same line #needs-fix
- Same line #needs-fix
- `#needs-fix` is mentioned
"""


@pytest.fixture
def board(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("BATON_CLAIM", "BATON_ROOT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    found, _ = board_of(str(tmp_path / "repo"))
    yield found
    found.log.close()


def put(board, name, text):
    path = Path(board.path(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def work(board, name, tags="#needs-fix", body="Do it."):
    return put(board, name, f"# {name}\n**Tags**: {tags}\n\n{body}\n")


def names(items):
    return [item.name for item in items]


def stands(board, name, noun="fix"):
    return standing_approval(board, name, noun, files.read(board.path(name)), clock.now())


def tags(board, name):
    return [tag.name for tag in Text(files.read(board.path(name))).tags if state_of(tag.name)]


def test_what_waits_is_grouped_and_the_most_urgent_is_first(board):
    work(board, "b.md", "#needs-fix #P1 #S")
    work(board, "a.md", "#needs-fix")
    work(board, "z.md", "#needs-fix #P0 #L")
    work(board, "c.md", "#needs-chores #needs-fix")
    for name, tag in (
        ("d.md", "#delegated-fix"),
        ("e.md", "#done-fix"),
        ("f.md", "#needs-review"),
        ("g.md", "#next-fix"),
    ):
        work(board, name, tag)
    work(board, ".hidden.md")
    work(board, "node_modules/x.md")
    put(board, "plan.md", PLAN)
    found = waiting(board)
    assert list(found.groups) == ["chores", "fix"]
    assert names(found.groups["chores"]) == ["c.md"]
    fix = names(found.groups["fix"])
    assert fix[:3] == ["z.md", "b.md", "plan.md:3"]
    assert sorted(fix[3:]) == ["a.md", "c.md", "plan.md:4", "plan.md:5"]
    assert (found.stale, found.exhausted, found.alerts) == ([], [], [])
    first = found.groups["fix"][0]
    assert (first.title, first.summary, first.priority, first.effort) == ("z.md", "Do it.", "P0", "L")
    inline = next(item for item in found.groups["fix"] if item.name == "plan.md:3")
    assert (inline.title, inline.summary, inline.priority, inline.effort) == ("Refactor auth", "in Plan", "P1", "M")
    assert names(waiting(board, board.path("node_modules")).items()) == ["node_modules/x.md"]


def test_on_top_stands_what_is_stale_or_failed_and_alerts(board):
    with clock.use(VirtualClock()) as now:
        work(board, "old.md")
        approve(Move(board, board.path("old.md"), "fix", "needs", "next"), ANA)
        now.advance(23 * 3600)
        work(board, "new.md")
        approve(Move(board, board.path("new.md"), "fix", "needs", "next"), ANA)
        work(board, "bad.md", body="x\n" + 3 * "\n## Recovery\n*   **Reason**: gone\n")
        work(board, "worse.md", body="x\n" + 2 * "\n## Recovery\n*   **Reason**: gone\n")
        alerts.raise_alert(board, "Disk full", {"what-changed": "no room"}, ANA)
        assert waiting(board).stale == []
        now.advance(2 * 3600)
        found = waiting(board)
        assert names(found.stale) == ["old.md"]
        assert names(found.exhausted) == ["bad.md"]
        assert found.exhausted[0].attempts == 3
        assert [(one.title, one.text) for one in found.alerts] == [("Disk full", "no room")]
        assert names(found.groups["fix"]) == ["worse.md"]
        decide(board, found.stale[0], "return", ANA)
        assert tags(board, "old.md") == ["needs-fix"]
        now.advance(24 * 3600)
        [stale] = waiting(board).stale
        decide(board, stale, "dismiss", ANA)
        assert tags(board, "new.md") == []


@pytest.mark.parametrize(("decision", "tag"), [("approve", "delegated-fix"), ("next", "next-fix")])
def test_what_was_shown_is_approved(board, decision, tag):
    path = work(board, "a.md", "#needs-fix #P1")
    [item] = waiting(board).items()
    decide(board, item, decision, ANA, Terms(lasts=60))
    assert tags(board, "a.md") == [tag]
    found = stands(board, "a.md")
    assert isinstance(found, Approval)
    assert (found.skill, found.mode, found.by) == ("fix", "interactive/agent", "ana")
    assert found.sight == item.sight
    assert b"#P1" in path.read_bytes()


@pytest.mark.parametrize("decision", ["approve", "next", "dismiss"])
@pytest.mark.parametrize(("old", "new"), [("Do it.", "Do that."), ("# a.md", "# b.md")])
def test_what_changed_after_it_was_shown_is_shown_again(board, decision, old, new):
    path = work(board, "a.md")
    [item] = waiting(board).items()
    path.write_text(path.read_text().replace(old, new))
    before = path.read_bytes()
    with pytest.raises(Conflict, match="not what was shown"):
        decide(board, item, decision, ANA)
    assert path.read_bytes() == before
    seen = review.again(board, item)
    assert seen.sight != item.sight
    decide(board, seen, decision, ANA)
    assert "needs-fix" not in tags(board, "a.md")


def test_weights_are_part_of_what_was_shown(board):
    path = work(board, "a.md", "#needs-fix #P2")
    [item] = waiting(board).items()
    path.write_text(path.read_text().replace("#P2", "#P0"))
    with pytest.raises(Conflict, match="not what was shown"):
        decide(board, item, "approve", ANA)


def test_deferred_is_noted_and_stays(board):
    path = work(board, "a.md")
    before = path.read_bytes()
    [item] = waiting(board).items()
    decide(board, item, "defer", ANA)
    assert path.read_bytes() == before
    assert next(board.log.history("a.md", "fix"))["event"] == review.DEFERRED
    assert names(waiting(board).items()) == ["a.md"]


def test_dismissed_is_gone(board):
    work(board, "a.md")
    put(board, "plan.md", PLAN)
    for item in waiting(board).items():
        if item.name in {"a.md", "plan.md:4"}:
            decide(board, item, "dismiss", ANA)
    assert tags(board, "a.md") == []
    assert Path(board.path("plan.md")).read_text() == PLAN.replace("- Same line #needs-fix", "- Same line", 1)


def test_agents_decide_nothing(board, monkeypatch):
    path = work(board, "a.md")
    before = path.read_bytes()
    [item] = waiting(board).items()
    monkeypatch.setenv("BATON_CLAIM", "x.md#fix:1")
    for decision in ("approve", "next", "dismiss", "defer", "return"):
        with pytest.raises(NotAuthorised):
            decide(board, item, decision, ANA)
    assert path.read_bytes() == before


def test_the_table_that_counts_is_the_trusted_one(board):
    table = f"# t\n## §TAG_DISPATCH\n{dispatch.HEADER}\n|---|---|---|---|\n| #delegated-fix | /mend | async | 1 |\n"
    put(board, "TAGS.md", table)
    work(board, "a.md")
    work(board, "b.md")
    one, two = waiting(board).items()
    decide(board, one, "approve", ANA)
    assert stands(board, "a.md").skill == "fix", "a table that nobody trusted does not count"
    trust.trust(board, trust.changes(board), ANA)
    decide(board, two, "approve", ANA)
    assert (stands(board, "b.md").skill, stands(board, "b.md").mode) == ("mend", "async")


# --- work inside a text ---------------------------------------------------------------------------


def test_work_inside_a_text_gets_a_request(board):
    put(board, "sessions/P/plan.md", PLAN)
    item = next(one for one in waiting(board).items() if one.line == 3)
    request = decide(board, item, "approve", ANA)
    assert request == "sessions/P/FIX_REQUEST_REFACTOR_AUTH.md"
    text = Path(board.path(request)).read_text()
    assert text.startswith("# Fix Request: Refactor auth\n**Tags**: #delegated-fix #P1 #M\n")
    assert "*   **File**: sessions/P/plan.md\n*   **Line**: 3\n*   **Text**: Refactor auth\n" in text
    name = "FIX_REQUEST_REFACTOR_AUTH.md"
    now = Path(board.path("sessions/P/plan.md")).read_text()
    assert now == PLAN.replace("#needs-fix #P1 #M", f"`#needs-fix` #P1 #M → [{name}]({name})")
    assert isinstance(stands(board, request), Approval)
    assert names(waiting(board).items()) == ["sessions/P/plan.md:4", "sessions/P/plan.md:5"]


def test_two_equal_lines_are_two_items(board):
    put(board, "plan.md", PLAN)
    found = [item for item in waiting(board).items() if item.line in {4, 5}]
    made = [decide(board, item, "approve", ANA) for item in found]
    assert made == ["FIX_REQUEST_SAME_LINE.md", "FIX_REQUEST_SAME_LINE_2.md"]
    assert Path(board.path("plan.md")).read_text().count("`#needs-fix` →") == 2
    assert names(waiting(board).items()) == ["plan.md:3"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_the_line_changes(board, newline):
    before = b"\xef\xbb\xbf" + PLAN.replace("\n", newline).encode() + b"\xff no newline"
    Path(board.path("plan.md")).write_bytes(before)
    item = next(one for one in waiting(board).items() if one.line == 3)
    request = decide(board, item, "next", ANA)
    link = f" → [{request}]({request})".encode()
    after = Path(board.path("plan.md")).read_bytes()
    assert after == before.replace(b"auth #needs-fix #P1 #M", b"auth `#needs-fix` #P1 #M" + link)


def test_a_line_that_moved_is_found_and_one_that_changed_is_not(board):
    path = put(board, "plan.md", PLAN)
    one, two, *_ = sorted(waiting(board).items(), key=lambda item: item.line)
    path.write_text(PLAN.replace("# Plan\n", "# Plan\n\nmore\n"))
    assert decide(board, one, "approve", ANA) == "FIX_REQUEST_REFACTOR_AUTH.md"
    with pytest.raises(Conflict, match="not what was shown"):
        decide(board, two, "approve", ANA)
    path.write_text("# Plan\n\n1. Refactor everything #needs-fix #P1 #M\n")
    with pytest.raises(Conflict, match="not what was shown"):
        decide(board, one, "approve", ANA)
    assert sorted(path.name for path in Path(board.root).iterdir()) == [
        ".git",
        "FIX_REQUEST_REFACTOR_AUTH.md",
        "plan.md",
    ]


def test_a_text_that_is_approved_stays_so_when_its_lines_get_requests(board):
    put(board, "plan.md", "# Plan\n**Tags**: #needs-chores\n\n- mend it #needs-fix\n")
    whole, inside = waiting(board).items()
    decide(board, whole, "approve", ANA)
    decide(board, review.again(board, inside), "approve", ANA)
    assert isinstance(stands(board, "plan.md", "chores"), Approval)


@pytest.mark.parametrize(
    "line",
    [
        "$(touch pwned) `id` #needs-fix",
        "../../etc/passwd #needs-fix",
        "<!-- x --> <pre> #needs-fix #P0 #P1",
        "*   **Fulfilled by**: x #needs-fix",
        "\u202e\x07 #needs-fix",
        "#needs-fix",
        "## Response #needs-fix",
        "one ` tick #needs-fix",
        f"{'long ' * 500}#needs-fix",
        "a | b #needs-fix #delegated-chores",
    ],
)
def test_hostile_lines_become_plain_requests(board, line):
    put(board, "plan.md", f"# Plan\n\n{line}\n")
    [item] = waiting(board).items()
    request = decide(board, item, "approve", ANA)
    assert set(request) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.md")
    assert tags(board, request) == ["delegated-fix"]
    assert isinstance(stands(board, request), Approval)
    assert all(letter.isprintable() or letter == "\n" for letter in Path(board.path(request)).read_text())
    assert "needs-fix" not in tags(board, "plan.md")
    assert waiting(board).items() == []


STEPS = ["request", "line", "ended", "approved"]


@pytest.mark.parametrize("step", STEPS)
def test_killed_in_between_nothing_is_lost_and_nothing_is_there_twice(board, monkeypatch, step):
    put(board, "plan.md", PLAN)
    item = next(one for one in waiting(board).items() if one.line == 3)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if step == "ended":
            append = board.log.__class__.append

            def until_then(log, event, *rest, **more):
                return killed() if event == promote.PROMOTED else append(log, event, *rest, **more)

            patch.setattr(board.log.__class__, "append", until_then)
        else:
            where = {
                "request": (promote.files, "create"),
                "line": (promote, "_link"),
                "approved": (approvals, "approve"),
            }
            patch.setattr(*where[step], killed)
        with pytest.raises(KeyboardInterrupt):
            decide(board, item, "approve", ANA)
    shown = names(waiting(board).items())
    assert len(shown) == 3, "once each, wherever it was killed"
    review.unpromoted(board, "", ANA)
    assert len(waiting(board).items()) == 3
    todo = next(one for one in waiting(board).items() if "auth" in one.title)
    request = decide(board, todo, "approve", ANA)
    assert request == "FIX_REQUEST_REFACTOR_AUTH.md"
    assert Path(board.path("plan.md")).read_text().count("[FIX_REQUEST_REFACTOR_AUTH.md]") == 1
    assert names(waiting(board).items()) == ["plan.md:4", "plan.md:5"]
    assert [path.name for path in Path(board.root).glob("*AUTH*")] == [request]


def test_a_request_that_was_there_already_is_looked_at_first(board):
    """Who wrote it, and what it says by now, a person has not seen."""
    put(board, "plan.md", PLAN)
    item = next(one for one in waiting(board).items() if one.line == 3)
    seen = Inline(item.path, item.noun, item.line, item.words)
    promote._begin(board, seen, ANA)
    put(board, "FIX_REQUEST_REFACTOR_AUTH.md", "# evil\n**Tags**: #needs-fix\n\nrm -rf /\n")
    with pytest.raises(Conflict, match="look at that"):
        decide(board, item, "approve", ANA)
    assert tags(board, "FIX_REQUEST_REFACTOR_AUTH.md") == ["needs-fix"]


# --- one line of what it says ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# t\n**Tags**: #x\n\n## 1. Topic\n*   **What**: a parser\n*   **Why**: b\n", "a parser"),
        ("# t\n## 1. Topic\n*   **What**:\n*   **Why**: since\n", "since"),
        ("# t\n## Context\nc\n## Topic\nit\n", "it"),
        ("# t\n\n> quoted\n", "quoted"),
        ("# t\n## 3. Tasks\n- [ ] one\n", "one"),
        ("# t\n## 4. Acceptance Criteria\n- [ ]\n- [ ] it works\n", "it works"),
        ("# t\n**Tags**: #x\nSession: sessions/A\n\n## 5. Requesting Session\n*   **Session**: sessions/A\n", ""),
        ("# t\nSession: sessions/A\n\nwords\n\n## Recovery\n*   **Reason**: gone\n", "words"),
        ("# t\n", ""),
        ("", ""),
    ],
)
def test_one_line_says_what_it_is_about(text, said):
    assert first_line(text.encode()) == said


def test_of_sections_that_are_named_no_other_speaks():
    assert first_line(b"# t\n## Raised\n*   **Date**: today\n", "What Changed") == ""


# --- alerts ---------------------------------------------------------------------------------------


def test_an_alert_is_raised_once_and_resolved_once(board):
    fields = {
        "what-changed": "the disk is full",
        "impact": "no builds",
        "expected-duration": "1 h",
        "workaround": "wait",
    }
    name = alerts.raise_alert(board, "Disk full", fields, ANA)
    assert name == "sessions/ALERTS/ALERT_RAISE_DISK_FULL.md"
    text = Path(board.path(name)).read_text()
    assert text.startswith("# Alert: Disk full\n**Tags**: #active-alert\n")
    heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert heads == ["What Changed", "Impact", "Expected Duration", "Workaround", "Raised"]
    for said in fields.values():
        assert f"\n{said}\n" in text
    assert alerts.raise_alert(board, "Disk full", {}, ANA) == name, "it is open already"
    [one] = alerts.listed(board)
    assert (one.path, one.title, one.text, one.by, one.resolved) == (
        name,
        "Disk full",
        "the disk is full",
        "ana",
        False,
    )
    alerts.resolve(board, board.path(name), "made room #needs-fix", Actor("bo", ""))
    text = Path(board.path(name)).read_text()
    assert "**Tags**: #done-alert\n" in text
    assert "\n## Resolution\n*   **Date**: 20" in text
    assert "*   **Resolved by**: bo\n*   **Action**: made room `#needs-fix`\n" in text
    assert alerts.listed(board) == []
    assert [one.resolved for one in alerts.listed(board, resolved=True)] == [True]
    with pytest.raises(Conflict, match="resolved already"):
        alerts.resolve(board, board.path(name), "again", ANA)
    again = alerts.raise_alert(board, "Disk full", {}, ANA)
    assert again == "sessions/ALERTS/ALERT_RAISE_DISK_FULL_2.md"


def test_an_alert_is_no_item_and_wrong_ones_are_refused(board, tmp_path):
    for topic in ("", "x" * 121):
        with pytest.raises(Malformed, match="topic"):
            alerts.raise_alert(board, topic, {}, ANA)
    work(board, "a.md")
    with pytest.raises(Conflict, match="no #active-alert"):
        alerts.resolve(board, board.path("a.md"), "x", ANA)
    alerts.raise_alert(board, "#needs-fix\n**Tags**: #delegated-fix <!--", {"impact": "#needs-fix"}, ANA)
    assert names(waiting(board).items()) == ["a.md"]
    (tmp_path / "out").mkdir()
    Path(board.path("away")).symlink_to(tmp_path / "out")
    with pytest.raises(Malformed, match="out of the board"):
        alerts.raise_alert(board, "x", {}, ANA, "away")


def test_what_recovery_noted_is_an_alert_until_the_item_moves_on(board):
    rules = recovery.rules_of(board)
    work(board, "a.md", "#delegated-fix")
    recovery.Recovery(board, rules).settle(*recovery.Recovery(board, rules).of("a.md", "fix"))
    assert tags(board, "a.md") == ["needs-fix"], "nobody had approved it"
    work(board, "c.md", "#claimed-fix")
    [found] = recovery.Recovery(board, rules).of("c.md", "fix")
    recovery.Recovery(board, rules).settle(found)
    recovery.Recovery(board, rules).settle(found)
    there = {one.path: one for one in alerts.listed(board)}
    assert sorted(there) == ["a.md", "c.md"]
    assert (there["a.md"].title, there["c.md"].title) == ("#fix in a: unapproved", "#fix in c: unowned")
    assert "the log knows nothing of #claimed-fix" in there["c.md"].text
    alerts.resolve(board, board.path("c.md"), "looked", ANA)
    assert [one.path for one in alerts.listed(board)] == ["a.md"]
    [item] = waiting(board).items()
    decide(board, item, "approve", ANA)
    assert alerts.listed(board) == []
