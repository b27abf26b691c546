"""The tag verbs as agents and people use them: what they do, say and answer."""

import json
import os
import threading
import time

import pytest

from baton.board import moves
from baton.board.root import board_of
from baton.cli import main

REQUEST = b"# Fix it\n**Tags**: #delegated-fix #P1\n\nAbout `#needs-doc`.\n- a step #needs-chores #P2\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.parent / f"{tmp_path.name}-state"))
    monkeypatch.setenv("BATON_USER", "ana")
    monkeypatch.delenv("BATON_CLAIM", raising=False)
    (tmp_path / ".baton").mkdir()
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "fix.md").write_bytes(REQUEST)
    return tmp_path


@pytest.fixture
def file(place):
    return place / "sessions" / "fix.md"


FIX = "sessions/fix.md"


def tags_line(path):
    return path.read_bytes().split(b"\n")[1].decode()


def events(path):
    board, real = board_of(str(path))
    return [record for record in board.log.records() if record["path"] == board.name(real)]


def test_a_swap_changes_the_tag_and_nothing_else(baton, file):
    file.chmod(0o640)
    code, out, _ = baton("tag", "swap", FIX, "#delegated-fix", "#claimed-fix")
    assert code == 0
    assert "#claimed-fix" in out
    assert file.read_bytes() == REQUEST.replace(b"#delegated-fix", b"#claimed-fix")
    assert file.stat().st_mode & 0o777 == 0o640
    assert [record["event"] for record in events(file)] == ["claimed"]


def test_who_comes_too_late_hears_who_has_it(baton, file):
    assert baton("tag", "swap", FIX, "#delegated-fix", "#claimed-fix")[0] == 0
    code, _, err = baton("tag", "swap", FIX, "#delegated-fix", "#claimed-fix")
    assert code == 1
    assert f"already claimed by process {os.getppid()}" in err
    assert len(events(file)) == 1


def test_any_of_several_old_tags_is_replaced(baton, file):
    assert baton("tag", "swap", FIX, "#next-fix,#delegated-fix", "#claimed-fix")[0] == 0
    assert baton("tag", "swap", FIX, "P0,P1", "P2,S")[0] == 0
    assert tags_line(file) == "**Tags**: #claimed-fix #P2 #S"


def test_weights_change_beside_a_move(baton, file):
    assert baton("tag", "swap", FIX, "#delegated-fix,#P1", "#claimed-fix,#P0")[0] == 0
    assert tags_line(file) == "**Tags**: #claimed-fix #P0"
    assert events(file)[0]["added"] == "P0"


def test_an_inline_tag_moves_on_its_line_alone(baton, file):
    assert baton("tag", "swap", FIX, "#needs-chores", "#done-chores", "--inline", "5")[0] == 3
    assert baton("tag", "swap", FIX, "#needs-doc", "#P0", "--inline", "4")[0] == 1
    assert baton("tag", "remove", FIX, "#needs-chores", "--inline", "5")[0] == 0
    assert baton("tag", "remove", FIX, "#needs-chores", "--inline", "5")[0] == 1
    assert file.read_bytes() == REQUEST.replace(b" #needs-chores", b"")


@pytest.mark.parametrize("state", ["delegated", "next", "claimed", "done"])
def test_only_needs_begins_work_and_only_needs_is_dismissed(state, baton, file):
    code, _, err = baton("tag", "add", FIX, f"#{state}-x")
    assert code == 3
    assert "#needs-x" in err
    file.write_bytes(f"# a\n**Tags**: #{state}-x\n".encode())
    code, _, err = baton("tag", "remove", FIX, f"#{state}-x")
    assert code == 3
    assert "legal: " in err
    assert tags_line(file) == f"**Tags**: #{state}-x"
    assert events(file) == []


def test_add_and_remove_are_written_down_and_do_nothing_twice(baton, file):
    for _ in range(2):
        assert baton("tag", "add", FIX, "needs-doc,#P0")[0] == 0
    assert tags_line(file) == "**Tags**: #delegated-fix #P1 #needs-doc #P0"
    for _ in range(2):
        assert baton("tag", "remove", FIX, "#needs-doc,#P0")[0] == 0
    assert tags_line(file) == "**Tags**: #delegated-fix #P1"
    assert [record["event"] for record in events(file)] == ["needs", "tagged", "removed", "tagged"]


def test_an_item_has_one_state(baton, file):
    code, _, err = baton("tag", "add", FIX, "#needs-fix")
    assert code == 1
    assert "#delegated-fix already" in err
    file.write_bytes(b"# a\n**Tags**: #delegated-fix #claimed-fix\n")
    assert baton("tag", "swap", FIX, "#delegated-fix", "#claimed-fix")[0] == 1
    assert tags_line(file) == "**Tags**: #delegated-fix #claimed-fix"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("needs-a", "claimed-a", "#delegated-a (a person approved it for the daemon)"),
        ("needs-a", "done-a", "removed (a person dismissed it)"),
        ("delegated-a", "done-a", "#claimed-a (a worker took it)"),
        ("delegated-a", "next-a", "needs"),
        ("done-a", "needs-a", "nothing, it is an end"),
    ],
)
def test_what_is_not_legal_is_refused_with_what_is(old, new, said, baton, file):
    text = f"# a\n**Tags**: #{old}\n".encode()
    file.write_bytes(text)
    code, _, err = baton("tag", "swap", FIX, f"#{old}", f"#{new}")
    assert code == 3
    assert said in err
    assert file.read_bytes() == text


@pytest.mark.parametrize("to", ["delegated", "next"])
def test_from_needs_on_it_goes_by_a_persons_approval(to, baton, file, monkeypatch):
    text = b"# a\n**Tags**: #needs-a #P2\n- b #needs-a\n"
    file.write_bytes(text)
    monkeypatch.setenv("BATON_CLAIM", f"{FIX}#a:1")
    code, _, err = baton("tag", "swap", FIX, "#needs-a", f"#{to}-a")
    assert code == 3
    assert "for a person" in err
    monkeypatch.delenv("BATON_CLAIM")
    code, _, err = baton("tag", "swap", FIX, "#needs-a", f"#{to}-a", "--inline", "3")
    assert code == 3
    assert "baton review" in err
    assert file.read_bytes() == text
    assert baton("tag", "swap", FIX, "#needs-a,#P2", f"#{to}-a,#P0")[0] == 0
    assert tags_line(file) == f"**Tags**: #{to}-a #P0"
    approved, moved = events(file)[-2:]
    assert (approved["event"], approved["weights"], moved["approval"]) == ("approved", "P0", approved["at"])


def test_force_is_a_persons_and_is_written_down(baton, file, monkeypatch):
    assert baton("tag", "swap", FIX, "delegated-fix", "done-fix", "--force")[0] == 0
    assert events(file)[-1]["forced"] == 1
    monkeypatch.setenv("BATON_CLAIM", f"{FIX}#fix:1")
    code, _, err = baton("tag", "swap", FIX, "done-fix", "needs-fix", "--force")
    assert code == 3
    assert "--force is for people" in err
    assert tags_line(file) == "**Tags**: #done-fix #P1"


def test_who_holds_it_may_ask_again(baton, file, monkeypatch):
    _, out, _ = baton("tag", "swap", FIX, "#delegated-fix", "#claimed-fix", "--json")
    epoch = json.loads(out)["epoch"]
    monkeypatch.setenv("BATON_CLAIM", f"{FIX}#fix:{epoch}")
    code, out, _ = baton("tag", "swap", FIX, "#delegated-fix", "#claimed-fix")
    assert code == 0
    assert "already yours" in out
    monkeypatch.setenv("BATON_CLAIM", f"{FIX}#fix:{epoch + 1}")
    before = file.read_bytes()
    for new in ("#done-fix", "#claimed-fix"):
        code, _, err = baton("tag", "swap", FIX, "#claimed-fix", new)
        assert code == 3, err
    assert file.read_bytes() == before
    assert [record["event"] for record in events(file)] == ["claimed", moves.LATE, moves.LATE]


def test_find_lists_files_and_says_nothing_where_there_is_none(baton, place):
    (place / "sessions" / "a.md").write_text("# A\n**Tags**: #needs-fix-login\n")
    (place / "sessions" / "b.txt").write_text("**Tags**: #needs-fix\n")
    assert baton("tag", "find", "#needs-*") == (0, "sessions/a.md\nsessions/fix.md\n", "")
    assert baton("tag", "find", "#needs-*", "--tags-only") == (0, "sessions/a.md\n", "")
    assert baton("tag", "find", "#needs-fix") == (0, "", "")
    code, out, _ = baton("tag", "find", "#needs-chores", "sessions", "--context")
    assert (code, out) == (
        0,
        "sessions/fix.md:5\n  4: About `#needs-doc`.\n  5: - a step #needs-chores #P2\n\n",
    )
    _, out, _ = baton("tag", "find", "#needs-*", "--json")
    assert [(one["path"], one["line"], one["tag"]) for one in map(json.loads, out.splitlines())] == [
        ("sessions/a.md", 2, "needs-fix-login"),
        ("sessions/fix.md", 5, "needs-chores"),
    ]
    code, _, err = baton("tag", "find", "#needs-fix", "sesions")
    assert code == 1
    assert "sesions: no such folder" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tag", "add", FIX], "required: TAG"),
        (["tag", "swap", FIX, "a", "b", "c"], "unrecognized"),
        (["tag", "swap", FIX, "a b", "c"], "is no tag"),
        (["tag", "remove", FIX, "P1", "--inline", "0"], "from 1 on"),
        (["tag", "remove", FIX, "P1", "--inline=x"], "--inline"),
        (["tag", "find", "", "."], "is no tag"),
        (["tag", "find", "--bad", "x"], "--bad"),
        (["tag", "swap", FIX, "needs-a", "claimed-b"], "one item moves at a time"),
        (["tag", "swap", FIX, "P1", "needs-b"], "one item moves at a time"),
    ],
)
def test_wrong_use_is_exit_2_and_changes_nothing(words, said, baton, file):
    code, _, err = baton(*words)
    assert (code, said in err) == (2, True), err
    assert file.read_bytes() == REQUEST


def test_a_file_that_is_not_there_is_exit_1(baton):
    code, _, err = baton("tag", "swap", "sessions/no.md", "next-a", "claimed-a", "--json")
    assert code == 1
    assert "sessions/no.md" in err


def test_the_plain_reader_and_argparse_read_the_same(baton, file):
    for words in (["--inline", "5"], ["--inline=5"]):
        file.write_bytes(REQUEST)
        assert baton("tag", "remove", FIX, "needs-chores", *words)[0] == 0
        assert b"needs-chores" not in file.read_bytes()
    assert baton("--json", "tag", "find", "P1") == baton("tag", "find", "P1", "--json")
    assert baton("tag", "find", "--", "P1") == (0, f"{FIX}\n", "")


def test_await_tag_returns_at_once_where_it_stands(baton):
    code, out, _ = baton("await-tag", FIX, "#delegated-*")
    assert (code, out) == (0, "already there\nfile: sessions/fix.md\ntag: #delegated-fix\ntitle: Fix it\n")
    code, out, _ = baton("await-tag", "--dir", "sessions", "P1", "--json")
    assert json.loads(out) == {"file": "sessions/fix.md", "tag": "P1", "title": "Fix it"}


def later(action):
    thread = threading.Timer(0.3, action)
    thread.start()
    return thread


@pytest.mark.parametrize("where", [(FIX,), ("--dir", "sessions")])
@pytest.mark.parametrize("save", ["swap", "in place", "rename"])
def test_await_tag_wakes_when_the_tag_comes(where, save, baton, file):
    def come():
        text = REQUEST.replace(b"#delegated-fix", b"#claimed-fix")
        if save == "swap":
            main(["tag", "swap", FIX, "#delegated-fix", "#claimed-fix"])
        elif save == "in place":
            file.write_bytes(text)
        else:
            file.with_suffix(".new").write_bytes(text)
            file.with_suffix(".new").replace(file)

    thread = later(come)
    began = time.monotonic()
    code, out, _ = baton("await-tag", *where, "#claimed-fix", "--timeout", "30")
    thread.join()
    assert code == 0
    assert "tag: #claimed-fix\ntitle: Fix it\n" in out
    assert "already there" not in out
    assert 0.2 < time.monotonic() - began < 20


def test_await_tag_does_not_take_what_the_text_mentions(baton):
    code, _, err = baton("await-tag", FIX, "#needs-chores", "--timeout", "0.2s")
    assert code == 124
    assert "did not come" in err


def test_await_tag_says_when_the_file_goes(baton, file):
    thread = later(file.unlink)
    code, _, err = baton("await-tag", FIX, "#done-fix", "--timeout", "30s")
    thread.join()
    assert code == 1
    assert "gone" in err
    assert baton("await-tag", FIX, "#done-fix")[0] == 1


def test_await_tag_needs_a_tag(baton):
    code, _, err = baton("await-tag", FIX)
    assert code == 2
    assert "FILE and TAG" in err


@pytest.mark.parametrize("name", ["agent.py", ".hidden.md", "notes"])
def test_what_is_no_markdown_file_gets_no_tags_line(baton, place, name):
    (place / name).write_text("import os\n")
    code, out, err = baton("tag", "add", name, "needs-fix")
    assert (code, out) == (2, "")
    assert "one that ends in .md" in err
    assert (place / name).read_text() == "import os\n"


@pytest.mark.parametrize(("name", "meant"), [("neds-fix", "needs"), ("claimd-fix", "claimed"), ("area-ui", "")])
def test_a_state_that_is_misspelled_is_noticed(baton, name, meant):
    code, _, err = baton("tag", "add", FIX, name)
    assert code == 0
    assert err == (f"#{name} is a word like any other: did you mean #{meant}-…?\n" if meant else "")


def test_what_is_required_is_all_that_is_asked_for(baton):
    code, _, err = baton("tag", "find")
    assert code == 2
    assert "required: TAG;" in err
