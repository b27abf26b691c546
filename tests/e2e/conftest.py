"""The command line in this process: where it stands, and how its verbs are called."""

import json

import pytest

from baton.cli import main


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder to stand in, with the state of a person of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("BATON_USER", "ana")
    monkeypatch.delenv("BATON_STORE", raising=False)
    return tmp_path


@pytest.fixture
def baton(capsys):
    """Call a verb: exit code, standard output, standard error."""

    def call(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def documents(baton):
    """Call a verb with --json and read every line."""

    def call(*words, code=0):
        got, out, err = baton(*words, "--json")
        assert got == code, (out, err)
        return [json.loads(line) for line in out.splitlines()]

    return call
