"""What processes do to one another: they die at the wrong moment, fork, and turn into another program."""

import os
import signal
import subprocess
import sys

from baton import Relay

PATIENCE = 20.0


def ran(program, folder):
    """How a program ended, and what it said."""
    command = [sys.executable, "-c", program, str(folder / "team.db")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout.splitlines()


REFUSED = """
import os, sys
from baton import Limits, Relay
from baton.errors import BudgetExceeded

relay = Relay(sys.argv[1], limits=Limits(max_handoffs=None, max_tokens=100))

@relay.agent("a")
async def a(turn):
    print("a worked", flush=True)

relay.agent("b")(a)
relay.agent("c")(a)

@relay.agent("lead")
async def lead(turn):
    try:
        return (await turn.broadcast(["a", "b", "c"], "x", budget=40)).status
    except BudgetExceeded:
        if turn.attempt == 1:
            os.kill(os.getpid(), 9)
        raise

try:
    print(relay.run_sync("lead", "review", workflow_id="w").output)
except BudgetExceeded:
    print("refused")
"""


def test_a_group_that_the_limits_refused_is_not_made_after_a_kill(tmp_path):
    assert ran(REFUSED, tmp_path) == (-signal.SIGKILL, [])
    assert ran(REFUSED, tmp_path) == (0, ["refused"])
    with Relay(str(tmp_path / "team.db")) as relay:
        assert [(one.to_agent, one.status) for one in relay.store.find()] == [("lead", "failed"), ("c", "refused")]
        assert relay.store.find(to_agent="lead")[0].attempt == 2


FORKED = """
import os, sys, time
from baton.stores import open_store

store = open_store(sys.argv[1])
orphan = os.fork()
if not orphan:
    time.sleep(3600)
print(orphan, flush=True)
with store.transaction():
    store.raise_alert("never", "committed")
    os.kill(os.getpid(), 9)
"""

WRITES = """
import sys
from baton.stores import open_store

open_store(sys.argv[1]).raise_alert("a", "written")
"""


def test_a_forked_child_of_a_writer_that_was_killed_holds_up_nobody(tmp_path):
    orphan = None
    command = [sys.executable, "-c", FORKED, str(tmp_path / "team.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        try:
            orphan = int(first.stdout.readline())
            assert first.wait(PATIENCE) == -signal.SIGKILL
            os.kill(orphan, 0)  # it lives
            assert ran(WRITES, tmp_path) == (0, [])
            os.kill(orphan, 0)
        finally:
            if orphan:
                os.kill(orphan, signal.SIGKILL)
    with Relay(str(tmp_path / "team.db")) as relay:
        assert [alert.text for alert in relay.alerts()] == ["written"]


REPLACED = """
import os, sys
from baton import Relay

relay = Relay(sys.argv[1], lease=3600)

@relay.agent("a")
async def a(turn):
    if turn.attempt == 1:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return [turn.attempt, os.getpid()]

print(os.getpid(), flush=True)
print(relay.run_sync("a", "work", workflow_id="w", timeout=10).output)
"""


def test_a_process_that_turns_into_another_program_gives_up_what_it_held(tmp_path):
    status, lines = ran(REPLACED, tmp_path)
    assert status == 0
    assert lines[0] == lines[1]  # the same process, twice
    assert lines[2:] == [f"[2, {lines[0]}]"]
    with Relay(str(tmp_path / "team.db")) as relay:
        assert "reclaimed" in [one.event_type for one in relay.audit.query(to_agent="a")]
