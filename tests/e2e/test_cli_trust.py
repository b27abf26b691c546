"""`baton trust`: what a repository brings along counts as a person saw it, and only so."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baton.board import trust
from baton.board.actor import Actor
from baton.board.root import board_of
from baton.cli import main
from baton.errors import AuditBroken, NotAuthorised
from baton.stores import holder

ANA = Actor("ana", holder.identity())
BIN = Path(sys.executable).parent / "baton"


@pytest.fixture
def repo(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("BATON_CLAIM", "BATON_ROOT", "BATON_STORE"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    for name in ("TAGS.md", ".baton/clis.toml", ".claude/skills/fix/SKILL.md", ".baton/templates/X_REQUEST.md"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"this is {name}\n")
    (root / ".baton/baton.db").write_bytes(b"\0" * 3_000_000)
    (root / "README.md").write_text("nothing to trust\n")
    (root / "AGENTS.md").symlink_to("/etc/passwd")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def baton(repo, capsys):
    def call(*words):
        capsys.readouterr()
        code = main(list(words))
        return (code, *capsys.readouterr())

    return call


def names(board):
    return [change.name for change in trust.changes(board)]


def test_what_was_seen_is_what_counts(repo):
    board, _ = board_of(str(repo))
    every = [".baton/clis.toml", ".baton/templates/X_REQUEST.md", ".claude/skills/fix/SKILL.md", "TAGS.md"]
    assert names(board) == every, "no store, no link, nothing else"
    assert trust.read(board, "TAGS.md") is None
    seen = trust.changes(board)
    (repo / "TAGS.md").write_text("changed after it was shown\n")
    trust.trust(board, seen, ANA)
    assert trust.read(board, "TAGS.md") is None
    assert trust.read(board, ".baton/clis.toml") == b"this is .baton/clis.toml\n"
    judge = trust.judge(board)
    assert judge(repo / ".baton/clis.toml", b"this is .baton/clis.toml\n")
    assert not judge(repo / ".baton/clis.toml", b"this is TAGS.md\n"), "another file's bytes"
    assert not judge(repo / "README.md", b"nothing to trust\n")
    [change] = trust.changes(board)
    assert (change.before, change.after) == (b"this is TAGS.md\n", b"changed after it was shown\n")
    trust.trust(board, [change], ANA)
    assert names(board) == []
    (repo / "TAGS.md").unlink()
    [gone] = trust.changes(board)
    assert gone.after is None
    trust.trust(board, [gone], ANA)
    (repo / "TAGS.md").write_text("changed after it was shown\n")
    assert trust.read(board, "TAGS.md") is None, "what is gone is trusted no more"


def test_who_spoils_what_was_kept_is_noticed(repo):
    board, _ = board_of(str(repo))
    trust.trust(board, trust.changes(board), ANA)
    kept = Path(board.state, trust.TRUSTED)
    manifest = next(path for path in kept.iterdir() if path.read_bytes().startswith(b"{"))
    manifest.write_bytes(manifest.read_bytes() + b" ")
    with pytest.raises(AuditBroken, match="not what was trusted"):
        trust.read(board, "TAGS.md")
    manifest.unlink()
    assert trust.read(board, "TAGS.md") is None, "nothing is trusted, and all is asked again"
    assert len(names(board)) == 4


def test_agents_are_refused(repo, monkeypatch, baton):
    board, _ = board_of(str(repo))
    monkeypatch.setenv("BATON_CLAIM", "A.md#fix:1")
    with pytest.raises(NotAuthorised):
        trust.trust(board, trust.changes(board), ANA)
    assert baton("trust", "--yes")[0] == 3
    assert baton("trust", "--list")[0] == 0
    monkeypatch.delenv("BATON_CLAIM")
    assert len(names(board)) == 4


def test_a_script_of_a_person_says_so(repo, baton):
    code, out, err = baton("trust")
    assert code == 3, "no answer is no yes"
    assert "nothing was trusted" in err
    code, out, _ = baton("trust", "--list", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert found[-1] == {"file": "TAGS.md", "change": "new", "difference": ["@@ -0,0 +1 @@", "+this is TAGS.md"]}
    assert baton("trust", "--yes")[0] == 0
    code, out, err = baton("trust", "--list")
    assert (code, out) == (0, "")
    assert "as you trusted it" in err


@pytest.mark.parametrize(("answer", "trusted"), [(b"y\n", True), (b"n\n", False), (b"\n", False), (b"\x04", False)])
def test_a_person_sees_it_and_says_yes(repo, answer, trusted):
    (repo / "TAGS.md").write_text("a \x1b]0;evil\x07 and \u202etxt\n")
    master, slave = pty.openpty()
    process = subprocess.Popen([BIN, "trust"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    said, end = b"", time.monotonic() + 30
    while b"[y/N]" not in said:
        assert time.monotonic() < end, said
        if select.select([master], [], [], 0.1)[0]:
            said += os.read(master, 65536)
    os.write(master, answer)
    assert process.wait(30) == (0 if trusted else 3)
    os.close(master)
    assert b"+a \\u{1b}]0;evil\\u{7} and \\u{202e}txt" in said
    board, _ = board_of(str(repo))
    assert (names(board) == []) == trusted


def test_a_folder_that_is_not_there_is_none_that_is_trusted(baton):
    code, _, err = baton("trust", "nowhere")
    assert code == 1
    assert "nowhere: no such folder" in err
