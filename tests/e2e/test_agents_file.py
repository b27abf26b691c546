"""`--agents FILE`: listed, checked, in force for workers; and a worker that dies and comes back."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
FILE = """
[agents.billing]
description = "refunds and invoices"
capabilities = ["refunds"]
max_concurrent_tasks = 2
[agents.backup]
capabilities = ["refunds"]
[routes]
refunds = ["billing", "backup"]
[health]
interval = "1s"
"""
APP = """
from baton import Relay

relay = Relay(".baton/baton.db")

@relay.agent("{name}", capabilities=["refunds", "more"], max_concurrent_tasks=9)
async def work(turn):
    return "by {name}"
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "agents.toml").write_text(FILE)
    for name in ("billing", "backup"):
        (tmp_path / f"{name}.py").write_text(APP.format(name=name))
    return tmp_path


@pytest.fixture
def env(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BATON")}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def baton(place, env):
    def call(*words, code=0, **more):
        options = {"capture_output": True, "text": True, "timeout": 60}
        done = subprocess.run([BIN / "baton", *words], check=False, cwd=place, env={**env, **more}, **options)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    return call


@pytest.fixture
def agents(baton):
    def call(*words):
        return {one["agent_id"]: one for one in map(json.loads, baton("agents", "list", "--json", *words).splitlines())}

    return call


@contextlib.contextmanager
def worker(place, env, name):
    """A worker of one agent, under the file; killed at the end."""
    command = [BIN / "baton", "worker", "--app", f"{name}:relay", "--agents", "agents.toml", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    process = subprocess.Popen(command, cwd=place, env=env, **pipes)
    try:
        assert json.loads(process.stdout.readline())["event"] == "serving"
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.3)
    return found


def trail(baton):
    return baton("audit", "query", "--json").splitlines()


def answered(baton, number):
    return baton("handoff", "send", "--to", "billing", "--task", f"refund {number}", "--wait", "30")


def test_a_worker_that_dies_is_passed_over_and_one_that_comes_back_gets_work(place, env, baton, agents):
    with worker(place, env, "backup"):
        with worker(place, env, "billing"):
            assert "by billing" in answered(baton, 1)
            assert agents()["billing"]["state"] == "available"
        # Its process is dead; that it was seen 40 s ago is what half a minute of waiting would make of it.
        db = sqlite3.connect(place / ".baton" / "baton.db", timeout=30, isolation_level=None)
        db.execute("UPDATE agent SET seen_at = seen_at - 40000000 WHERE id = 'billing'")
        db.close()
        ill = until(lambda: (one := agents()["billing"])["state"] == "unavailable" and one)
        assert ill["failures"] >= 3
        assert ill["since"]
        assert ill["reason"].startswith("no worker was seen for")
        assert "billing is unavailable: no worker was seen" in baton("alerts")
        assert "by backup" in answered(baton, 2)
        (rerouted,) = [one for one in map(json.loads, trail(baton)) if one["event_type"] == "rerouted"]
        assert rerouted["to_agent"] == "backup"
        assert "billing is unavailable and gets no new work (no worker was seen" in rerouted["reason"]
        with worker(place, env, "billing"):
            until(lambda: agents()["billing"]["state"] == "available")
            assert "by billing" in answered(baton, 3)
            until(lambda: "no alert is open" in baton("alerts"))


def test_the_file_narrows_what_the_app_says(place, env, baton, agents):
    with worker(place, env, "billing"):
        profile = agents()["billing"]["profile"]
    assert (profile["max_concurrent_tasks"], profile["capabilities"]) == (2, {"refunds": 1.0})


def test_list_and_doctor_show_what_the_file_says(baton, agents, place):
    baton("agents", "register", "billing", "--capability", "refunds", "--max-concurrent", "7")
    with_file, without = agents("--agents", "agents.toml"), agents()
    assert (with_file["backup"]["registered"], "backup" in without) == (False, False)
    assert with_file["billing"]["profile"]["max_concurrent_tasks"] == 2
    assert without["billing"]["profile"]["max_concurrent_tasks"] == 7
    (place / "agents.toml").chmod(0o644)
    place.chmod(0o755)
    said = baton("doctor", "--agents", "agents.toml")
    assert "2 agents, 1 route in agents.toml" in said
    assert "backup stands only in agents.toml" in said
    (place / "agents.toml").chmod(0o666)
    assert "chmod go-w" in baton("doctor", code=3, BATON_AGENTS="agents.toml")
    (place / "agents.toml").write_text("[agents.a]\nskills = []")
    said = baton("doctor", "--agents", "agents.toml", code=3)
    assert "BAD agents: agents.toml: agents.a: skills is not a field" in " ".join(said.split())
    assert "BAD store" not in " ".join(said.split())


def test_a_file_is_registered_by_hand(baton, agents):
    assert "backup  registered" in baton("agents", "register", "--file", "agents.toml")
    assert agents()["billing"]["profile"]["max_concurrent_tasks"] == 2


def test_a_file_that_is_wrong_or_not_there_is_said_by_every_verb(baton, place):
    baton("agents", "register", "billing")
    assert "agents.toml" in baton("recover", "--agents", "elsewhere/agents.toml", code=1)
    (place / "agents.toml").write_text("[routes]\nx = ['nobody']")
    assert "no table [agents.nobody]" in baton("handoff", "list", "--agents", "agents.toml", code=2)


def test_an_app_keeps_the_file_that_it_names(baton, place):
    (place / "own.toml").write_text("[agents.billing]\nmax_concurrent_tasks = 1")
    (place / "billing.py").write_text(
        APP.format(name="billing").replace('".baton/baton.db"', '".baton/baton.db", registry="own.toml"')
    )
    said = baton("run", "--app", "billing:relay", "billing", "work", BATON_AGENTS="agents.toml")
    assert "by billing" in said
    assert "this app describes its agents in own.toml" in baton(
        "run", "--app", "billing:relay", "billing", "work", "--agents", "agents.toml", code=2
    )
