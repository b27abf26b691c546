"""Tags that a text only mentions, and whether a session may end."""

import json

import pytest

TEXT = "# Log\n**Tags**: #claimed-fix\n\ndo #needs-doc and #P0, see `#needs-old` and #active-alert\n"


@pytest.fixture(autouse=True)
def session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("BATON_USER", "ana")
    folder = tmp_path / "sessions" / "one"
    folder.mkdir(parents=True)
    (folder / "log.md").write_text(TEXT)
    return folder


def test_escape_tags_shows_first_and_changes_when_told(baton, session):
    expected = "sessions/one/log.md\t4\t#needs-doc\nsessions/one/log.md\t4\t#active-alert\n"
    code, out, err = baton("escape-tags", "sessions")
    assert (code, sorted(out.splitlines())) == (0, sorted(expected.splitlines()))
    assert "--apply" in err
    assert (session / "log.md").read_text() == TEXT
    assert baton("escape-tags", "sessions", "--apply")[0] == 0
    text = TEXT.replace("do #needs-doc", "do `#needs-doc`").replace("#active-alert", "`#active-alert`")
    assert (session / "log.md").read_text() == text
    assert baton("escape-tags", "sessions/one/log.md", "--apply")[:2] == (0, "")
    assert baton("escape-tags", "nowhere")[0] == 1


def test_a_session_with_bare_tags_may_not_end(baton, session):
    code, out, _ = baton("session", "check", "sessions/one")
    assert code == 1
    assert "sessions/one/log.md\t4\t#needs-doc: do #needs-doc and" in out
    baton("escape-tags", "sessions/one", "--apply")
    assert baton("session", "check", "sessions/one") == (0, "", "")


def test_somebody_may_say_that_the_tags_are_as_they_should_be(baton, session):
    (session / ".state.json").write_text('{"tagCheckPassed": true}')
    assert baton("session", "check", "sessions/one")[0] == 0


@pytest.mark.parametrize("key", ["requestFiles", "request"])
def test_each_request_must_be_answered(key, baton, session):
    request = session.parent / "FIX_REQUEST_A.md"
    name = "sessions/FIX_REQUEST_A.md"
    (session / ".state.json").write_text(
        json.dumps({"tagCheckPassed": True, key: [name] if key == "requestFiles" else name})
    )
    code, out, _ = baton("session", "check", "sessions/one", "--json")
    assert code == 1
    assert json.loads(out)["fault"] == "the request is not there"
    request.write_text("# A\n**Tags**: #needs-fix\n")
    _, out, _ = baton("session", "check", "sessions/one")
    assert "#needs-fix still waits" in out
    assert "no `## Response`" in out
    request.write_text("# A\n**Tags**: #done-fix\n\n## Response\n")
    assert baton("session", "check", "sessions/one")[0] == 0


@pytest.mark.parametrize("text", ["{", "[]", '"x"'])
def test_a_spoiled_state_is_wrong_use(text, baton, session):
    (session / ".state.json").write_text(text)
    code, _, err = baton("session", "check", "sessions/one")
    assert code == 2
    assert "mend or remove" in err


def test_a_session_is_a_folder(baton):
    assert baton("session", "check", "sessions/two")[0] == 1
    assert baton("session", "check", "sessions/one/log.md")[0] == 1
