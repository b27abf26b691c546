"""Which board a path belongs to: worktrees share one, and what a folder claims to be does not decide."""

import os
import subprocess

import pytest

from baton.board.root import board_of
from baton.errors import Malformed, NotFound


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("BATON_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def git(*words, at):
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    env = {"PATH": os.environ["PATH"], "HOME": str(at), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *settings, *words], cwd=at, env=env, check=True, capture_output=True)


def repository(path, *options):
    path.mkdir()
    git("init", "-q", *options, at=path)
    if "--bare" not in options:
        put(path / "docs" / "a.md")
        git("add", "-A", at=path)
        git("commit", "-qm", "a", at=path)
    return path


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# a\n")
    return path


def where(path):
    board, real = board_of(str(path))
    return board.root, board.name(real)


@pytest.mark.proof("git")
def test_worktrees_share_the_board_of_the_main_one(place):
    main = repository(place / "main")
    for other in (place / "other", main / "inside"):
        git("worktree", "add", "-q", str(other), "-b", other.name, at=main)
        assert where(other / "docs" / "a.md") == (str(main), "docs/a.md")
        assert board_of(str(other / "docs" / "a.md"))[1] == str(main / "docs" / "a.md")
        assert where(other) == (str(main), "")
    assert where(main / "docs" / "a.md") == (str(main), "docs/a.md")
    assert board_of(str(main))[0].state == board_of(str(place / "other"))[0].state


@pytest.mark.proof("git")
def test_a_submodule_is_a_board_of_its_own(place):
    repository(place / "part")
    main = repository(place / "main")
    git("submodule", "add", "-q", str(place / "part"), "part", at=main)
    assert where(main / "part" / "docs" / "a.md") == (str(main / "part"), "docs/a.md")


@pytest.mark.proof("git")
def test_a_worktree_of_a_bare_repository_needs_a_word(place, monkeypatch):
    repository(place / "source")
    git("clone", "-q", "--bare", str(place / "source"), str(place / "bare.git"), at=place)
    git("worktree", "add", "-q", str(place / "tree"), at=place / "bare.git")
    with pytest.raises(NotFound, match="BATON_ROOT"):
        board_of(str(place / "tree" / "docs" / "a.md"))
    monkeypatch.setenv("BATON_ROOT", str(place / "tree"))
    assert where(place / "tree" / "docs" / "a.md") == (str(place / "tree"), "docs/a.md")


@pytest.mark.proof("git")
def test_a_folder_cannot_claim_to_be_a_worktree_of_another_repository(place):
    main = repository(place / "main")
    git("worktree", "add", "-q", str(place / "real"), "-b", "x", at=main)
    evil = put(place / "evil" / "docs" / "a.md").parents[1]
    fake = evil / "gitdir"
    fake.mkdir()
    (fake / "commondir").write_text(f"{main}/.git\n")
    (fake / "gitdir").write_text(f"{evil}/.git\n")
    for claim in (fake, main / ".git" / "worktrees" / "real"):
        (evil / ".git").write_text(f"gitdir: {claim}\n")
        assert where(evil / "docs" / "a.md") == (str(evil), "docs/a.md")


def test_without_git(place):
    assert where(put(place / "one" / "a.md")) == (str(place / "one"), "a.md")
    assert where(put(place / "two" / "sessions" / "x" / "a.md")) == (str(place / "two"), "sessions/x/a.md")
    assert where(put(place / "two" / "sessions-old" / "a.md")) == (str(place / "two" / "sessions-old"), "a.md")
    (place / "three" / ".baton").mkdir(parents=True)
    assert where(put(place / "three" / "x" / "sessions" / "a.md")) == (str(place / "three"), "x/sessions/a.md")
    assert where("new.md") == (str(place), "new.md")


def test_a_named_root_counts_for_what_is_in_it(place, monkeypatch):
    put(place / "top" / "in" / "a.md")
    put(place / "topmost" / "a.md")
    monkeypatch.setenv("BATON_ROOT", str(place / "top"))
    assert where(place / "top" / "in" / "a.md") == (str(place / "top"), "in/a.md")
    assert where(place / "topmost" / "a.md") == (str(place / "topmost"), "a.md")


def test_a_link_means_what_it_leads_to(place):
    inside = put(place / "one" / "a.md")
    (place / "two").mkdir()
    (place / "two" / "link.md").symlink_to(inside)
    assert where(place / "two" / "link.md") == (str(place / "one"), "a.md")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_is_no_path(name):
    with pytest.raises(Malformed):
        board_of(name)


def test_boards_of_one_name_have_records_of_their_own(place):
    states = {board_of(str(put(place / one / "top ü" / "a.md")))[0].state for one in "ab"}
    assert len(states) == 2
    assert all(state.startswith(f"{place}/state/baton/boards/top---") for state in states)
