"""`baton review` and `baton alert` as commands: for scripts, in a pipe, and on a real terminal."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baton import clock
from baton.board import files
from baton.board.approvals import Approval, standing_approval
from baton.board.root import board_of
from baton.board.tags import Text
from baton.testing.virtual import VirtualClock

BIN = Path(sys.executable).parent / "baton"
PLAN = "# Plan\n\n- Refactor auth #needs-fix #P1 #M\n- Fix a typo #needs-chores #S\n"


@pytest.fixture
def repo(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("BATON_CLAIM", "BATON_ROOT", "BATON_STORE", "BATON_APPROVAL_LASTS", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def baton(repo):
    def call(*words, **options):
        done = subprocess.run([BIN, *words], capture_output=True, text=True, timeout=60, check=False, **options)
        return done.returncode, done.stdout, done.stderr

    return call


def work(name, tags="#needs-fix", body="Do it."):
    Path(name).write_text(f"# {name}\n**Tags**: {tags}\n\n## Topic\n*   **What**: {body}\n")
    return name


def tags(name):
    return [tag.name for tag in Text(Path(name).read_bytes()).tags if tag.name not in {"P1", "M", "S"}]


def approved(name, noun="fix"):
    board, real = board_of(name)
    return isinstance(standing_approval(board, board.name(real), noun, files.read(real), clock.now()), Approval)


class Terminal:
    """The command on a terminal of its own; what it says can be waited for."""

    def __init__(self, *words):
        self.master, slave = pty.openpty()
        self.said = ""
        self.process = subprocess.Popen([BIN, *words], stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)

    def until(self, pattern):
        end = time.monotonic() + 30
        while not re.search(pattern, self.said):
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.said}"
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self.master, 65536).decode()
                except OSError:
                    assert re.search(pattern, self.said), f"ended without {pattern!r}:\n{self.said}"
        found, self.said = self.said, ""
        return found

    def answer(self, text, pattern):
        os.write(self.master, text.encode())
        return self.until(pattern)

    def end(self):
        code = self.process.wait(30)
        os.close(self.master)
        return code


@pytest.fixture
def terminal(repo):
    begun = []

    def call(*words):
        begun.append(Terminal(*words))
        return begun[-1]

    yield call
    for one in begun:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


ASKS = r"\[q\] quit \?"


def test_a_person_walks_through_it(terminal, baton):
    for name in ("a.md", "b.md", "c.md", "d.md", "e.md"):
        work(name, body=f"this is {name}")
    work("x.md", "#needs-chores #P0 #L")
    baton("alert", "raise", "Disk full", "--what", "no room")
    screen = terminal("review")
    said = screen.until(ASKS)
    assert "Open alerts: 1" in said
    assert "Disk full" in said
    assert "no room" in said
    assert "#needs-chores (/chores, interactive): 1" in said
    assert "P0 (critical: blocks everything else), L (over 2 h)" in said
    said = screen.answer("n\n", ASKS)
    assert "next" in said
    assert "#needs-fix (/fix, interactive/agent): 5" in said
    assert "this is a.md" in said
    assert "P2 (normal), effort unknown" in said
    assert "# a.md" in screen.answer("t\n", ASKS), "the text on demand"
    assert "approved" in screen.answer("a\n", ASKS)
    assert "deferred" in screen.answer("d\n", ASKS)
    assert "dismissed" in screen.answer("x\n", ASKS)
    screen.answer("\n", ASKS)
    screen.answer("yes\n", ASKS)
    assert "e.md" in screen.answer("s\n", ASKS), "skipped"
    said = screen.answer("q\n", "left as they were")
    assert "1 next, 1 approved, 1 deferred, 1 dismissed; 2 of 6 left as they were" in said
    assert screen.end() == 0
    assert [tags(f"{name}.md") for name in "xabcde"] == [
        ["next-chores", "P0", "L"], ["delegated-fix"], ["needs-fix"], [], ["needs-fix"], ["needs-fix"],
    ]  # fmt: skip
    assert approved("a.md")
    assert approved("x.md", "chores")


@pytest.mark.parametrize("silence", ["\x04", "\n\n\n\x04", "q\n"])
def test_silence_is_no_approval(terminal, silence):
    work("a.md")
    before = Path("a.md").read_bytes()
    screen = terminal("review")
    screen.until(ASKS)
    assert "nothing decided; 1 of 1 left" in screen.answer(silence, "left as they were")
    assert screen.end() == 0
    assert Path("a.md").read_bytes() == before


def test_what_changed_while_it_was_shown_is_shown_again(terminal):
    work("a.md", body="good")
    screen = terminal("review")
    screen.until(ASKS)
    Path("a.md").write_text(Path("a.md").read_text().replace("good", "evil"))
    said = screen.answer("a\n", ASKS)
    assert "not what was shown" in said
    assert "evil" in said
    assert tags("a.md") == ["needs-fix"]
    screen.answer("a\n", "1 approved")
    assert screen.end() == 0
    assert approved("a.md")


def test_what_went_away_while_it_was_shown_is_let_go(terminal):
    work("a.md")
    work("b.md")
    screen = terminal("review")
    screen.until(ASKS)
    Path("a.md").unlink()
    assert "waits no more" in screen.answer("a\n", ASKS)
    screen.answer("a\n", "1 approved")
    assert screen.end() == 0


def test_all_of_a_group_after_a_question(terminal):
    for name in ("a.md", "b.md", "c.md"):
        work(name)
    work("z.md", "#needs-zebra")
    screen = terminal("review")
    screen.until(ASKS)
    screen.answer("A\n", r"these 3 items as they were listed\? \[y/N\]")
    screen.answer("\n", ASKS)
    assert tags("a.md") == ["needs-fix"], "an empty answer is no yes"
    screen.answer("A\n", r"\[y/N\]")
    Path("b.md").write_text(Path("b.md").read_text().replace("Do it", "Do that"))
    said = screen.answer("y\n", ASKS)
    assert "not what was shown" in said
    assert "Do that" in said, "what changed is shown again"
    assert [tags(f"{name}.md") for name in "abc"] == [["delegated-fix"], ["needs-fix"], ["delegated-fix"]]
    assert "no skill is known for it" in screen.answer("s\n", ASKS)
    screen.answer("q\n", "2 approved; 2 of 4 left")
    assert screen.end() == 0


def test_it_is_edited_and_then_approved_as_it_is(terminal, repo, monkeypatch):
    work("a b.md")
    script = repo.parent / "my editor"
    script.write_text('#!/bin/sh\nprintf "%s|" "$@" > "$0.args"\nsed -i s/Do/Edit/ "$2"\n')
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", f"'{script}' --wait")
    screen = terminal("review")
    screen.until(ASKS)
    assert "Edit it." in screen.answer("e\n", ASKS)
    screen.answer("a\n", "1 approved")
    assert screen.end() == 0
    assert Path(f"{script}.args").read_text() == f"--wait|{repo / 'a b.md'}|"
    assert approved("a b.md")
    monkeypatch.setenv("EDITOR", "no-such-editor")
    work("b.md")
    screen = terminal("review")
    screen.until(ASKS)
    assert "no-such-editor: No such file" in screen.answer("e\n", ASKS)


def test_nothing_in_a_text_reaches_the_terminal(terminal):
    Path("a.md").write_text("# \x1b]0;evil\x07 \u202etxt\n**Tags**: #needs-fix\n\n## Topic\n\x1b[2Jgone \u200b\n")
    screen = terminal("review")
    said = screen.until(ASKS) + screen.answer("t\n", ASKS)
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "\u202e" not in said
    assert "\\u{1b}]0;evil\\u{7} \\u{202e}txt" in said
    assert "\\u{1b}[2Jgone" in said


def test_stale_next_items_come_first(terminal, baton):
    work("old.md")
    work("new.md")
    baton("review", "--next", "old.md")
    board, _ = board_of(".")
    log = Path(board.log.path)
    # two days ago, by a clock that was behind
    Path(board.state, "heads").unlink()
    log.unlink()
    with clock.use(VirtualClock()):
        board.log.append("next", "old.md", "fix", by="ana", **{"from": "needs"})
    board.log.close()
    screen = terminal("review")
    said = screen.until(ASKS)
    assert "Waits as #next- for more than a day: 1" in said
    assert "[b] back on the list" in said
    screen.answer("b\n", ASKS)
    screen.answer("q\n", "1 back on the list; 1 of 2")
    assert screen.end() == 0
    assert tags("old.md") == ["needs-fix"]


def test_an_inline_item_gets_a_request(terminal):
    Path("plan.md").write_text(PLAN)
    screen = terminal("review")
    assert "plan.md:4" in screen.until(ASKS)
    screen.answer("x\n", ASKS)
    assert "FIX_REQUEST_REFACTOR_AUTH.md" in screen.answer("a\n", "1 dismissed, 1 approved")
    assert screen.end() == 0
    assert tags("FIX_REQUEST_REFACTOR_AUTH.md") == ["delegated-fix"]
    assert tags("plan.md") == []


# --- without a terminal ---------------------------------------------------------------------------


def test_without_a_terminal_it_only_lists(baton):
    work("a.md", "#needs-fix #P1")
    Path("plan.md").write_text(PLAN)
    before = {path: path.read_bytes() for path in Path().glob("*.md")}
    for words in ((), ("--json",)):
        code, out, _ = baton("review", *words, input="a\na\na\ny\n")
        assert code == 0
        assert "a.md" in out
    found = {one["item"]: one for one in map(json.loads, out.splitlines())}
    assert sorted(found) == ["a.md", "plan.md:3", "plan.md:4"]
    one = found["a.md"]
    assert (one["kind"], one["noun"], one["priority"], one["effort"], one["summary"]) == (
        "item",
        "fix",
        "P1",
        None,
        "Do it.",
    )
    assert len(one["body"]) == 64
    assert {path: path.read_bytes() for path in Path().glob("*.md")} == before
    code, out, _ = baton("review", "sessions")
    assert code == 1


def test_a_script_of_a_person_decides(baton):
    for name in ("a.md", "b.md", "c.md", "d.md"):
        work(name)
    code, out, err = baton(
        "review", "--approve", "a.md", "--next", "b.md", "--defer", "c.md", "--dismiss", "d.md", "--json"
    )
    assert code == 0, err
    assert [json.loads(line)["decision"] for line in out.splitlines()] == ["approve", "next", "defer", "dismiss"]
    assert [tags(f"{name}.md") for name in "abcd"] == [["delegated-fix"], ["next-fix"], ["needs-fix"], []]
    assert approved("a.md")


def test_all_of_a_skill(baton):
    work("a.md")
    work("b.md", "#needs-chores")
    Path("plan.md").write_text(PLAN)
    code, out, _ = baton("review", "--approve", "--all", "fix", "--lasts", "1h")
    assert code == 0
    assert out.splitlines() == ["plan.md:3 → FIX_REQUEST_REFACTOR_AUTH.md  approved", "a.md  approved"]
    assert tags("b.md") == ["needs-chores"]
    assert tags("plan.md") == ["needs-chores"]
    board, _ = board_of(".")
    found = standing_approval(board, "a.md", "fix", Path("a.md").read_bytes(), clock.now())
    assert found.expires - found.time < 3601 * clock.SECOND
    assert baton("review", "--dismiss", "plan.md#chores")[0] == 0
    assert tags("plan.md") == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--approve"], 2, "--all NOUN"),
        (["--all", "fix"], 2, "go with a decision"),
        (["--approve", "none.md"], 1, "nothing waits there"),
        (["--approve", "two.md"], 2, "2 items wait there; name one, as in two.md#"),
        (["--approve", "plan.md:1"], 1, "what waits is"),
        (["--approve", "a.md", "--lasts", "soon"], 2, "--lasts"),
    ],
)
def test_wrong_use_decides_nothing(baton, words, code, said):
    work("a.md")
    work("two.md", "#needs-fix #needs-chores")
    Path("plan.md").write_text(PLAN)
    before = {path: path.read_bytes() for path in Path().glob("*.md")}
    found, _, err = baton("review", *words)
    assert found == code
    assert said in err
    assert {path: path.read_bytes() for path in Path().glob("*.md")} == before


def test_agents_are_refused_and_may_look(baton):
    work("a.md")
    env = {**os.environ, "BATON_CLAIM": "x.md#fix:1"}
    code, _, err = baton("review", "--approve", "a.md", env=env)
    assert code == 3
    assert "for a person" in err
    assert tags("a.md") == ["needs-fix"]
    assert baton("review", "--json", env=env)[0] == 0


def test_an_empty_list_says_so(baton, terminal):
    assert "nothing waits for a person" in baton("review")[2]
    screen = terminal("review")
    assert "`baton request new" in screen.until("puts work on the list")
    assert screen.end() == 0


# --- one place to look ----------------------------------------------------------------------------


def test_alerts_and_reviews_of_the_board_stand_with_those_of_the_store(baton):
    work("a.md")
    _, out, _ = baton("alert", "raise", "Disk full", "--what", "no room", "--impact", "no builds", "--json")
    path = json.loads(out)["path"]
    assert json.loads(baton("alert", "list", "--json")[1])["title"] == "Disk full"
    for _ in ("without a store", "with one"):
        [alert] = map(json.loads, baton("alerts", "--json")[1].splitlines())
        assert (alert["id"], alert["subject"], alert["text"]) == (path, "board", "Disk full: no room")
        [waits] = map(json.loads, baton("waiting", "--json")[1].splitlines())
        assert (waits["kind"], waits["items"][0]["item"]) == ("review", "a.md")
        assert path in baton("alerts")[1]
        assert "a.md" in baton("waiting")[1]
        assert baton("agents", "register", "billing")[0] == 0
    listed = [json.loads(line) for line in baton("review", "--json")[1].splitlines()]
    assert [one["kind"] for one in listed] == ["alert", "item"]
    assert baton("alert", "resolve", path, "--action", "made room")[0] == 0
    assert baton("alert", "resolve", path)[0] == 1
    assert baton("alerts", "--json")[1] == ""
    assert "## Resolution" in Path(path).read_text()
    _, out, _ = baton("alert", "raise", "Again", "--json")
    path = json.loads(out)["path"]
    assert baton("alerts", "--resolve", path, "--by", "bo")[0] == 0
    assert "*   **Resolved by**: bo" in Path(path).read_text()
    assert "no alert is open" in baton("alerts")[2]


def test_the_next_session_may_be_named(baton):
    work("a.md")
    Path("sessions/MINE").mkdir(parents=True)
    assert baton("review", "--next", "a.md", "--session", "sessions/MINE")[0] == 0
    board, _ = board_of("a.md")
    found = standing_approval(board, "a.md", "fix", Path("a.md").read_bytes(), clock.now())
    assert found.session == str(Path("sessions/MINE").resolve())
    assert json.loads(baton("run", "/fix", "--json")[1])["claim"] == 0, "it is another session's"
    env = {**os.environ, "BATON_SESSION": found.session}
    assert json.loads(baton("run", "/fix", "--json", env=env)[1])["claim"] > 0


def test_a_file_that_is_named_is_all_that_is_read(baton):
    """Also one that was left to the next session just now, which no list asks about yet."""
    work("a.md")
    assert baton("review", "--next", "a.md")[0] == 0
    work("broken.md")
    Path("broken.md").chmod(0)
    assert baton("review", "--back", "a.md")[0] == 0
    assert tags("a.md") == ["needs-fix"]
    assert not approved("a.md")
    Path("../other/.git").mkdir(parents=True)
    work("../other/a.md")
    code, _, err = baton("review", "--approve", "../other/a.md")
    assert code == 2
    assert "review it there" in err
    assert tags("../other/a.md") == tags("a.md") == ["needs-fix"]
