"""`baton request new|list` and `baton respond` as commands."""

import io
import json
from pathlib import Path

import pytest

from baton.cli import main


@pytest.fixture
def baton(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("BATON_CLAIM", "BATON_ROOT", "BATON_SESSION", "BATON_STORE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo")

    def call(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_request_goes_from_its_template_to_its_response(baton):
    code, out, err = baton(
        "request", "new", "/implement", "A parser", "--field", "what=dates", "--weight", "P1", "--json"
    )
    assert code == 0, err
    made = json.loads(out)
    assert made["noun"] == "implementation"
    text = Path(made["path"]).read_text()
    assert "**Tags**: #needs-implementation #P1\n" in text
    assert "*   **What**: dates" in text
    code, out, _ = baton("request", "list", "--json")
    assert json.loads(out) == {
        "path": made["path"], "tag": "needs-implementation", "priority": "P1", "effort": "",
        "title": "Implementation Request: A parser",
    }  # fmt: skip
    assert baton("tag", "swap", made["path"], "#needs-implementation", "#delegated-implementation")[0] == 0
    assert baton("tag", "swap", made["path"], "#delegated-implementation", "#claimed-implementation")[0] == 0
    code, _, err = baton("tag", "swap", made["path"], "#claimed-implementation", "#done-implementation")
    assert code == 3
    assert f"`baton respond {made['path']}`" in err
    code, out, err = baton("respond", made["path"], "--status", "Partial", "--summary", "half", "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["request"] == made["path"]
    assert f"*   **Fulfilled by**: {answer['path']}\n*   **Summary**: Partial: half\n" in Path(made["path"]).read_text()
    assert baton("respond", made["path"])[0] == 1
    assert baton("tag", "swap", made["path"], "#claimed-implementation", "#done-implementation")[0] == 0


def test_text_may_come_from_standard_input(baton, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    _, out, _ = baton("request", "new", "research", "Market", "--in", "sessions/PLAN", "--field", "query=-")
    assert out == "sessions/PLAN/RESEARCH_REQUEST_MARKET.md  #needs-research\n"
    assert "\n> one\n> two\n" in Path("sessions/PLAN/RESEARCH_REQUEST_MARKET.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["request", "new", "fix", "x", "--field", "what"], "write NAME=TEXT"),
        (["request", "new", "fix", "x", "--field", "wat=1"], "it has"),
        (["request", "new", "fix", "x", "--weight", "P9"], "no weight"),
        (["request", "new", "fix", "x", "--in", "/"], "not a folder of the board"),
        (["request", "new", "fix", "x", "--in", "file"], "a file stands there"),
        (["request", "new", "fix", "x", "--in", "file/below"], "a file stands there"),
        (["respond", "x.md", "--status", "Great"], "invalid choice"),
    ],
)
def test_wrong_use_says_the_cure(baton, words, said):
    Path("file").touch()
    code, _, err = baton(*words)
    assert code == 2
    assert said in err
    assert not Path("sessions").exists() or not list(Path("sessions").rglob("*.md"))


def test_an_empty_list_says_what_to_do(baton):
    code, out, err = baton("request", "list")
    assert (code, out) == (0, "")
    assert "`baton request new SKILL TOPIC`" in err


def test_a_folder_that_is_not_there_is_no_empty_one(baton):
    code, _, err = baton("request", "list", "nowhere")
    assert code == 1
    assert "nowhere: no such folder" in err


@pytest.mark.parametrize(
    ("skill", "said"),
    [
        ("fxi", "§TAG_DISPATCH has no row for #fxi, so no agent will be started for it; did you mean fix?"),
        ("garden", "§TAG_DISPATCH has no row for #garden, so no agent will be started for it\n"),
        ("review", "#review is for people: no agent is started for it"),
    ],
)
def test_who_asks_for_what_no_agent_does_is_told(baton, skill, said):
    code, _, err = baton("request", "new", skill, "x")
    assert code == 0
    assert said in err
    assert "§TAG_DISPATCH" not in baton("request", "new", "fix", "x")[2]


def test_letters_with_marks_stay_letters_in_a_name(baton):
    _, out, _ = baton("request", "new", "fix", "Über die Straße")
    assert out.split("  ")[0].endswith("_FIX_UBER_DIE_STRASSE/FIX_REQUEST_UBER_DIE_STRASSE.md")


def test_who_answers_what_nobody_claimed_is_told(baton):
    baton("request", "new", "fix", "x", "--in", "sessions/A")
    code, _, err = baton("respond", "sessions/A/FIX_REQUEST_X.md", "--summary", "s")
    assert (code, err) == (0, "sessions/A/FIX_REQUEST_X.md: #fix is not claimed, so it is not done by this\n")
