"""The command lines of S0, exactly as they are written there, under the name `engine`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FILE = "sessions/2026_02_13_FIX/IMPLEMENTATION_NOTE.md"
SWAP = """engine tag swap "$FILE" '#delegated-implementation' '#claimed-implementation'"""
REQUEUE = """engine tag swap "$FILE" '#claimed-implementation' '#needs-implementation'"""
COMPLETE = """engine tag swap "$FILE" '#claimed-implementation' '#done-implementation'"""
FIND = "engine tag find '#needs-implementation'"
CONTEXT = "engine tag find '#needs-implementation' sessions/ --context"
STALE = "engine tag find '#claimed-implementation'"
AWAIT = "engine await-tag sessions/research/RESEARCH_REQUEST_MARKET_SIZE.md '#done-research'"
DAEMON = "engine run --monitor-tags"
RUN = 'engine run /research "$REQUEST_FILE"'


@pytest.fixture
def env(tmp_path):
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
        "BATON_USER": "ana",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "FILE": FILE,
        "REQUEST_FILE": "sessions/research/RESEARCH_REQUEST_MARKET_SIZE.md",
    }


@pytest.fixture
def place(tmp_path):
    (tmp_path / "tree" / ".baton").mkdir(parents=True)
    return tmp_path / "tree"


@pytest.fixture
def sh(place, env):
    def run(line):
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=place, env=env, capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    return run


def put(place, name, state):
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# Market size\n**Tags**: #{state}\n\ntext\n")
    return path


def tags(path):
    return path.read_text().splitlines()[1].partition(": ")[2]


@pytest.mark.parametrize(("then", "state"), [(COMPLETE, "#done-implementation"), (REQUEUE, "#needs-implementation")])
def test_agent_a_has_it_and_agent_b_skips(then, state, place, sh):
    path = put(place, FILE, "delegated-implementation")
    assert sh(SWAP)[0] == 0
    code, _, err = sh(SWAP)
    assert code == 1
    assert "already claimed" in err
    assert sh(STALE)[:2] == (0, f"{FILE}\n")
    assert sh(then)[0] == 0
    assert tags(path) == state


def test_tag_discovery(place, sh):
    assert sh(CONTEXT)[0] == 1  # there is no sessions/ yet
    put(place, FILE, "needs-implementation")
    put(place, "sessions/b.md", "needs-implementation-plan")
    assert sh(FIND) == (0, f"{FILE}\n", "")
    assert sh(CONTEXT) == (
        0,
        f"{FILE}:2\n  1: # Market size\n  2: **Tags**: #needs-implementation\n  3: \n\n",
        "",
    )


def test_a_background_watcher_wakes(place, env):
    path = put(place, "sessions/research/RESEARCH_REQUEST_MARKET_SIZE.md", "claimed-research")
    waiting = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {AWAIT}"], cwd=place, env=env, stdout=subprocess.PIPE, text=True
    )
    time.sleep(0.5)
    assert waiting.poll() is None
    path.write_text(path.read_text().replace("#claimed", "#done"))
    assert waiting.communicate(timeout=30)[0].splitlines() == [
        "file: sessions/research/RESEARCH_REQUEST_MARKET_SIZE.md",
        "tag: #done-research",
        "title: Market size",
    ]
    assert waiting.returncode == 0


def test_the_daemon_starts_and_ends(place, env):
    daemon = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {DAEMON}"],
        cwd=place,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    time.sleep(2)
    assert daemon.poll() is None
    daemon.send_signal(signal.SIGTERM)
    said = daemon.communicate(timeout=30)[0]
    assert daemon.returncode == 0, said


def test_a_skill_is_run_only_on_approved_work(place, sh):
    path = put(place, "sessions/research/RESEARCH_REQUEST_MARKET_SIZE.md", "delegated-research")
    code, _, err = sh(RUN)
    assert code == 3, err
    assert "approv" in err
    assert tags(path) == "#delegated-research"
