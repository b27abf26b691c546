"""Real processes: a rung is killed in the middle, and several people answer the same question at once."""

import functools
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from baton import Escalate, Handoff, Relay
from baton.errors import IllegalTransition
from baton.lifecycle import Event, State
from baton.protocol.results import Result, Return
from baton.stores.base import Step
from baton.testing import race

PATIENCE = 20.0
LADDER = ["reviewer", "architect"]
PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from baton import Escalate, Relay

folder, attempts = Path(sys.argv[1]), int(sys.argv[2])
relay = Relay(str(folder / "team.db"), escalation=["reviewer", "architect"])

def mark(name):
    with open(folder / name, "a") as file:
        file.write(f"{os.getpid()}\\n")

async def stop_at(name):
    mark(name)
    while (folder / f"stop-{name}").exists():
        await asyncio.sleep(0.01)

@relay.agent("worker")
async def worker(turn):
    mark("worker")
    return Escalate("a or b?", assessment="a is cheaper")

@relay.agent("asker")
async def asker(turn):
    answer = await turn.escalate("a or b?", rationale="two readings")
    await stop_at("asker")
    return answer.output

@relay.agent("reviewer")
async def reviewer(turn):
    await stop_at("reviewer")
    return turn.messages[-1].content

async def main():
    if sys.argv[3] == "resume":
        return (await relay.resume("w")).output
    return (await relay.run(sys.argv[3], "work", workflow_id="w", max_attempts=attempts)).output

print(asyncio.run(main()))
"""


@contextmanager
def process(folder, *args):
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), *args], stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def marks(folder, name):
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def killed_at(folder, name, *args):
    """Run a process until it has left its mark, and kill it there."""
    (folder / f"stop-{name}").touch()
    with process(folder, *args) as child:
        end = time.monotonic() + PATIENCE
        while not marks(folder, name):
            assert time.monotonic() < end, f"{name} did not happen"
            time.sleep(0.005)
        assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert child.returncode == -signal.SIGKILL
    (folder / f"stop-{name}").unlink()


def said(child):
    return child.communicate(timeout=PATIENCE)[0].strip()


@pytest.fixture
def relay(tmp_path):
    with Relay(str(tmp_path / "team.db")) as opened:
        yield opened


def events(relay, handoff_id):
    return [one.event_type for one in relay.audit.query(handoff_id=handoff_id)]


def test_a_killed_rung_is_taken_back_and_the_next_one_knows_what_was_said(tmp_path, relay):
    killed_at(tmp_path, "reviewer", "3", "worker")
    with process(tmp_path, "3", "resume") as second:
        assert said(second) == "a or b?\n\na is cheaper"
    assert [len(marks(tmp_path, name)) for name in ("worker", "reviewer")] == [1, 2]
    (handoff,) = relay.store.find(workflow_id="w")
    assert (handoff.to_agent, handoff.attempt, handoff.epoch) == ("reviewer", 3, 3)
    assert events(relay, handoff.id) == [
        *("initiated", "accepted", "escalated", "accepted", "reclaimed", "accepted", "completed")
    ]
    assert relay.audit.verify().ok


def test_a_killed_rung_whose_attempts_are_used_up_leaves_it_to_a_person(tmp_path, relay):
    killed_at(tmp_path, "reviewer", "2", "worker")
    relay.recover()
    (parked,) = relay.waiting()
    assert (parked.status, parked.attempt) == ("parked", 2)
    (alert,) = relay.alerts()
    assert alert.text.startswith("worker: a or b?; reviewer: HandoffFailed: ")
    assert "max_attempts 2 are used up" in alert.text
    relay.give_back(parked.id, "take a", by="ana")
    with process(tmp_path, "2", "resume") as second:
        assert said(second) == "take a"
    assert len(marks(tmp_path, "reviewer")) == 1


def test_who_asked_and_was_killed_is_not_answered_twice(tmp_path, relay):
    killed_at(tmp_path, "asker", "3", "asker")
    with process(tmp_path, "3", "resume") as second:
        assert said(second) == "a or b?"
    assert [len(marks(tmp_path, name)) for name in ("asker", "reviewer")] == [2, 1]
    assert relay.audit.verify().ok


# --- people who answer at once --------------------------------------------------------------------------

QUESTIONS, PEOPLE = 300, 6


def asked(path):
    """Work that is parked for a person, and questions that are offered to one."""
    found = []
    with Relay(path, durability="process") as relay:
        relay.agent("worker")(lambda turn: None)
        for number in range(QUESTIONS):
            parked = number % 2
            made = relay.hand_off(
                Handoff(from_agent="user", to_agent="worker" if parked else "human", task=f"question {number}")
            )
            if parked:
                taken = relay.claim("worker", handoff_id=made.id).handoff
                relay.give_back(made.id, Escalate("a or b?"), epoch=taken.epoch)
            found.append(made.id)
    return found


def answerer(path, person):
    relay = Relay(path, durability="process")

    def answer(item):
        try:
            relay.give_back(item, person, by=person)
        except IllegalTransition as told:
            return not str(told).endswith("and this answer changes nothing")
        return True

    return answer


def naive_answerer(path, person):
    """Looks whether the question is open, and then writes, whatever has happened meanwhile."""
    relay = Relay(path, durability="process")

    def answer(item):
        if relay.get(item).state is not State.PARKED:
            return False
        with suppress(IllegalTransition):
            result = Return(result=Result(body=person))
            relay.store.advance(Step(id=item, event=Event.COMPLETE, by=person, result=result))
        return True

    return answer


def test_of_several_people_who_answer_one_wins_and_the_others_are_told(tmp_path):
    path = str(tmp_path / "team.db")
    items = asked(path)
    result = race(functools.partial(answerer, path), items, PEOPLE)
    assert (result.doubles, result.unclaimed) == (0, 0)
    assert len({people[0] for people in result.winners_per_item.values()}) > 1
    with Relay(path) as relay:
        for item, (winner,) in result.winners_per_item.items():
            answer = relay.store.returned(item)
            assert (answer.output, answer.from_agent) == (winner, winner)
            assert events(relay, item).count("completed") == 1
        assert relay.waiting() == []
        assert relay.alerts() == []
        assert relay.audit.verify().ok


def test_the_same_race_catches_who_looks_first_and_writes_then(tmp_path):
    path = str(tmp_path / "team.db")
    items = asked(path)[1::2]
    result = race(functools.partial(naive_answerer, path), items, PEOPLE)
    assert result.doubles > 0


def test_a_late_answer_of_another_process_is_refused_when_the_work_moved_on(tmp_path):
    path = str(tmp_path / "team.db")
    item = asked(path)[1]
    script = (
        "import sys; from baton import Relay; from baton.errors import BatonError\n"
        "with Relay(sys.argv[1]) as relay:\n"
        "    try: relay.give_back(sys.argv[2], 'too late', by='eve')\n"
        "    except BatonError as told: print(type(told).__name__, told)\n"
    )
    with Relay(path) as relay:
        relay.agent("worker")(lambda turn: "done")
        relay.reroute(item, "worker", by="ana")
        epoch = relay.claim("worker", handoff_id=item).handoff.epoch
        late = subprocess.run([sys.executable, "-c", script, path, item], capture_output=True, text=True, check=True)
        assert late.stdout.startswith("Malformed handoff ")
        relay.give_back(item, "done", epoch=epoch)
        late = subprocess.run([sys.executable, "-c", script, path, item], capture_output=True, text=True, check=True)
        assert "IllegalTransition handoff " in late.stdout
        assert "completed by worker before" in late.stdout
        assert relay.store.returned(item).output == "done"
