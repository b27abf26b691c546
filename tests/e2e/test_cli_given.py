"""What the command line is given: endless files, closed streams, times beyond the calendar."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from baton.protocol.codec import MAX_DOCUMENT

ROOM = 2 * 2**30  # of address space: far less than an endless file, far more than a document


@pytest.fixture
def baton(tmp_path):
    """Call the program in a shell, with little memory, on a store of one agent."""

    def call(*words, shell="exec {}", **options):
        line = " ".join(f"'{word}'" for word in (sys.executable, "-m", "baton", *words))
        line = f"ulimit -v {ROOM // 1024}; {shell.format(line)}"
        run = subprocess.run(
            ["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, "BATON_STORE": str(tmp_path / "s.db")}, **options,
        )  # fmt: skip
        assert "Traceback" not in run.stderr
        return run

    assert call("agents", "register", "b").returncode == 0
    return call


ENDLESS = [
    ("handoff send --file /dev/zero", "exec {}"),
    ("handoff send --file -", "exec {} </dev/zero"),
    ("handoff send --to b --task -", "exec {} </dev/zero"),
    ("agents register --file /dev/zero", "exec {}"),
    ("agents register --file -", "exec {} </dev/zero"),
]


@pytest.mark.parametrize(("words", "shell"), ENDLESS, ids=[f"{words} {shell[8:]}" for words, shell in ENDLESS])
def test_no_more_is_read_than_a_document_may_be(baton, words, shell):
    run = baton(*words.split(), shell=shell)
    assert (run.returncode, f"more than {MAX_DOCUMENT} bytes" in run.stderr) == (2, True)


@pytest.mark.parametrize("option", ["--text", "--json-body"])
def test_an_endless_answer_is_refused(baton, option):
    sent = json.loads(baton("handoff", "send", "--to", "human", "--task", "t", "--json").stdout)
    run = baton("handoff", "return", sent["id"], option, "-", shell="exec {} </dev/zero")
    assert (run.returncode, f"more than {MAX_DOCUMENT} bytes" in run.stderr) == (2, True)


def test_an_artifact_is_digested_piece_by_piece(baton, tmp_path):
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(ROOM)
    run = baton("handoff", "send", "--to", "b", "--task", "t", "--artifact", "large.bin")
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("closed", ["<&-", "</dev/null"])
def test_a_closed_input_is_said(baton, closed):
    run = baton("handoff", "send", "--to", "b", "--task", "-", shell=f"exec {{}} {closed}")
    assert (run.returncode, run.stderr.startswith("error: --task")) == (2, True)


def test_a_closed_output_is_said(baton):
    run = baton("history", shell="exec {} >&-")
    assert (run.returncode, "standard output is closed" in run.stderr) == (2, True)


def test_closed_errors_do_not_get_among_the_output(baton):
    run = baton("handoff", "show", "nothing", shell="exec {} 2>&-")
    assert (run.returncode, run.stdout, run.stderr) == (1, "", "")
    assert baton("handoff", "list", "--json", shell="exec {} 2>&-").returncode == 0


@pytest.mark.parametrize("deadline", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_deadline_stands_in_the_calendar(baton, tmp_path, deadline):
    document = {"from_agent": "a", "to_agent": "b", "task": "t", "deadline": deadline}
    (tmp_path / "r.json").write_text(json.dumps(document))
    run = baton("handoff", "send", "--file", "r.json")
    assert (run.returncode, "deadline" in run.stderr, "year" in run.stderr) == (2, True, True)
