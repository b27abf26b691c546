"""Real processes, killed with SIGKILL: nothing is lost, and nothing that was finished is done again."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from baton import Limits, Relay
from baton.errors import ApprovalDenied
from baton.lifecycle import AUDIT_NAME, ENDED, TABLE
from baton.protocol.handoff import Handoff

HOPS = 8
PATIENCE = 20.0

PROGRAM = """
import asyncio, os, sys, time
from pathlib import Path
from baton import Command, Limits, Relay

folder, mode = Path(sys.argv[1]), sys.argv[2]
relay = Relay(str(folder / "team.db"), lease=30, limits=Limits(max_handoffs=50, approve=("deploy",)))

def mark(name):
    with open(folder / name, "a") as file:
        file.write(f"{os.getpid()} {time.time()}\\n")

def hop(number):
    async def body(turn):
        mark(f"hop{number}")
        while (folder / f"stop{number}").exists():
            await asyncio.sleep(0.01)
        if number == 8:
            return sorted(turn.state)
        return Command(goto=f"hop{number + 1}", update={f"by{number}": os.getpid()}, task=f"step {number + 1}")
    relay.agent(f"hop{number}")(body)

for number in range(1, 9):
    hop(number)

@relay.agent("parent")
async def parent(turn):
    answers = await asyncio.gather(*(turn.delegate("child", f"part {n}") for n in range(3)))
    mark("parent")
    while (folder / "stop-parent").exists():
        await asyncio.sleep(0.01)
    return [answer.output for answer in answers]

@relay.agent("child")
async def child(turn):
    mark("child-" + turn.task[-1])
    return turn.task

@relay.agent("asker")
async def asker(turn):
    mark("asker")
    answers = await turn.broadcast(["child", "long", "asking"], "part 7")
    return [answer.status for answer in answers.answers]

@relay.agent("chooser")
async def chooser(turn):
    mark("chooser")
    answers = await turn.broadcast(["long", "other"], aggregate="any")
    return [answers.output, *(answer.status for answer in answers.answers)]

@relay.agent("other")
async def other(turn):
    mark("other")
    await asyncio.sleep(3600)

@relay.agent("build")
async def build(turn):
    return Command(goto="deploy")

@relay.agent("deploy")
async def deploy(turn):
    mark("deploy")
    return "deployed"

@relay.agent("asking")
async def asking(turn):
    mark("asking")
    return f"they said {await turn.ask('may I?')}"

@relay.agent("short")
async def short(turn):
    mark("short-" + turn.idempotency_key)
    await asyncio.sleep(0.03)
    return turn.attempt

@relay.agent("long")
async def long(turn):
    mark("long")
    while (folder / "stop-long").exists():
        await asyncio.sleep(0.01)
    return turn.attempt

async def main():
    if mode == "work":
        mark("ready")
        await relay.work()
        return "stopped"
    if mode == "run":
        result = await relay.run(sys.argv[3], "work", workflow_id="w")
    else:
        result = await relay.resume("w")
    return result.output

try:
    print(asyncio.run(main()))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
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


def said(child):
    return child.communicate(timeout=PATIENCE)[0].strip()


def until(look, what):
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.005)
    return found


def marks(folder, name):
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def kill(child):
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert child.returncode == -signal.SIGKILL


def killed_at(folder, name, *args):
    """Run a process until it has left its mark, and kill it there."""
    with process(folder, *args) as child:
        until(lambda: marks(folder, name), name)
        assert child.poll() is None
        kill(child)


@pytest.fixture
def relay(tmp_path):
    with Relay(str(tmp_path / "team.db")) as opened:
        yield opened


def test_a_workflow_killed_in_hop_5_of_8_runs_no_finished_hop_again(tmp_path, relay):
    (tmp_path / "stop5").touch()
    killed_at(tmp_path, "hop5", "run", "hop1")
    (tmp_path / "stop5").unlink()
    with process(tmp_path, "resume") as second:
        assert said(second) == str([f"by{n}" for n in range(1, HOPS)])
    ran = {n: len(marks(tmp_path, f"hop{n}")) for n in range(1, HOPS + 1)}
    assert ran == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 1, 7: 1, 8: 1}
    assert {h.to_agent: h.attempt for h in relay.store.find(workflow_id="w")} == {
        f"hop{n}": 2 if n == 5 else 1 for n in ran
    }
    assert "reclaimed" in [r.event_type for r in relay.audit.query(to_agent="hop5")]
    assert relay.audit.verify().ok


def test_a_parent_killed_after_its_children_finished_does_not_run_them_again(tmp_path, relay):
    (tmp_path / "stop-parent").touch()
    killed_at(tmp_path, "parent", "run", "parent")
    (tmp_path / "stop-parent").unlink()
    with process(tmp_path, "resume") as second:
        assert said(second) == "['part 0', 'part 1', 'part 2']"
    assert [len(marks(tmp_path, f"child-{n}")) for n in range(3)] == [1, 1, 1]
    assert len(marks(tmp_path, "parent")) == 2
    assert relay.audit.verify().ok


def test_a_group_outlives_the_process_that_asked(tmp_path, relay):
    (tmp_path / "stop-long").touch()
    with process(tmp_path, "run", "asker") as first:
        for name in ("long", "asking", "child-7"):
            until(lambda name=name: marks(tmp_path, name), name)
        until(lambda: relay.store.find(to_agent="child", state="completed"), "the child's answer")
        kill(first)
    (asked,) = relay.store.find(to_agent="human")
    relay.give_back(asked.id, "yes", by="ada")
    (tmp_path / "stop-long").unlink()
    with process(tmp_path, "resume") as second:
        assert said(second) == "['success', 'success', 'success']"
    assert [len(marks(tmp_path, name)) for name in ("asker", "child-7", "long", "asking")] == [2, 1, 2, 2]
    assert len([one for one in relay.store.find() if one.aggregation]) == 3
    assert relay.audit.verify().ok


def test_a_group_is_decided_while_nobody_lives_who_asked(tmp_path, relay):
    (tmp_path / "stop-long").touch()
    with process(tmp_path, "run", "chooser") as first:
        for name in ("long", "other"):
            until(lambda name=name: marks(tmp_path, name), name)
        kill(first)

    @relay.agent("other")
    async def other(turn):
        return "mine"

    async def work():
        stop = asyncio.Event()
        serving = asyncio.ensure_future(relay.work(stop))
        async with asyncio.timeout(PATIENCE):
            while not relay.store.find(to_agent="other", state="completed"):  # noqa: ASYNC110 - the store does not say when
                await asyncio.sleep(0.01)
        stop.set()
        await serving

    asyncio.run(work())
    assert [one.status for one in relay.store.find(to_agent="long")] == ["cancelled"]
    assert len(marks(tmp_path, "chooser")) == 1
    with process(tmp_path, "resume") as second:
        assert said(second) == "['mine', 'failed', 'success']"
    assert [len(marks(tmp_path, name)) for name in ("chooser", "long", "other")] == [2, 1, 1]
    assert relay.audit.verify().ok


def test_of_two_that_resume_at_once_one_wins_and_the_other_hears_who_has_it(tmp_path):
    (tmp_path / "stop5").touch()
    killed_at(tmp_path, "hop5", "run", "hop1")
    with process(tmp_path, "resume") as one, process(tmp_path, "resume") as two:
        loser = until(lambda: next((c for c in (one, two) if c.poll() is not None), None), "one is told")
        winner = two if loser is one else one
        assert said(loser).startswith(f"Held: workflow w: process {winner.pid} on ")
        (tmp_path / "stop5").unlink()
        assert said(winner) == str([f"by{n}" for n in range(1, HOPS)])
    assert [len(marks(tmp_path, f"hop{n}")) for n in range(1, HOPS + 1)] == [1, 1, 1, 1, 2, 1, 1, 1]


def waiting(relay):
    return until(relay.waiting, "an approval is asked for")[0]


def test_an_approval_from_another_process_wakes_the_run_within_a_second(tmp_path, relay):
    with process(tmp_path, "run", "build") as first:
        asked = waiting(relay)
        begun = time.monotonic()
        relay.approve(asked.id, by="ada")
        until(lambda: marks(tmp_path, "deploy"), "the deployment")
        took = time.monotonic() - begun
        assert said(first) == "deployed"
    assert took < 1


def test_an_approval_after_the_first_process_was_killed_lets_a_second_one_finish(tmp_path, relay):
    with process(tmp_path, "run", "build") as first:
        asked = waiting(relay)
        kill(first)
    relay.approve(asked.id, by="ada")
    assert marks(tmp_path, "deploy") == []
    with process(tmp_path, "resume") as second:
        assert said(second) == "deployed"
    assert len(marks(tmp_path, "deploy")) == 1


def test_a_denial_after_the_first_process_was_killed_is_a_denial(tmp_path, relay):
    with process(tmp_path, "run", "build") as first:
        asked = waiting(relay)
        kill(first)
    relay.deny(asked.id, by="ada")
    with process(tmp_path, "resume") as second:
        assert said(second).startswith(f"{ApprovalDenied.__name__}: ada said no")
    assert marks(tmp_path, "deploy") == []


def test_the_work_of_a_dead_worker_is_taken_over_within_two_seconds(tmp_path, relay, record_property):
    (tmp_path / "stop-long").touch()
    with process(tmp_path, "work") as first:
        until(lambda: marks(tmp_path, "ready"), "a worker")
        made = relay.hand_off(Handoff(from_agent="user", to_agent="long", task="work"))
        until(lambda: marks(tmp_path, "long"), "the claim")
        with process(tmp_path, "work"):
            until(lambda: len(marks(tmp_path, "ready")) == 2, "a second worker")
            time.sleep(0.7)
            kill(first)
            died = time.time()
            until(lambda: len(marks(tmp_path, "long")) == 2, "the takeover")
            took = float(marks(tmp_path, "long")[1].split()[1]) - died
            (tmp_path / "stop-long").unlink()
            until(lambda: relay.get(made.id).ended, "the end")
    record_property("takeover_seconds", round(took, 3))
    print(f"takeover: {took:.3f} s")
    assert took < 2
    assert relay.result(made.workflow_id).output == 2


def test_workers_killed_at_random_end_every_handoff_once(tmp_path, relay):
    chance, kills, names = random.Random(11), 0, set()
    limits = Limits(max_handoffs=50, ack_seconds=1)
    terminal = {AUDIT_NAME[event] for row in TABLE.values() for event, state in row.items() if state in ENDED}
    made = []

    def busy():
        """A worker that holds work now, if any: only such a death proves anything."""
        pids = {int(holder.split("/")[2]) for _, holder in relay.store.held()}
        return next((one for one in workers if one.pid in pids), None)

    def ended_all():
        for one in relay.store.breakers():  # so many deaths in a row open them, for longer than a test may take
            relay.store.reset_breaker(one.subject)
        time.sleep(0.1)
        return all(relay.get(one.id).ended for one in made)

    with process(tmp_path, "work") as keeper:
        workers = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), "work"]) for _ in range(2)]
        try:
            until(lambda: len(marks(tmp_path, "ready")) >= 3, "three workers")
            while kills < 20:
                victim = None if kills % 2 else workers[0]
                while victim is None:
                    request = Handoff(from_agent="user", to_agent="short", task=f"{len(made)}")
                    made.append(relay.hand_off(request, limits=limits))
                    time.sleep(chance.uniform(0.0, 0.02))
                    victim = busy()
                workers.remove(victim)
                names.add(victim.pid)
                kill(victim)
                kills += 1
                workers.append(subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), "work"]))
            until(ended_all, "the end of all")
            assert keeper.poll() is None
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    assert (kills, len(names)) == (20, 20)
    assert len(made) >= 10
    for one in made:
        ended = relay.get(one.id)
        events = [r.event_type for r in relay.audit.query(handoff_id=one.id)]
        assert sum(event in terminal for event in events) == 1, events
        assert events[-1] in {"completed", "failed"}
        assert len(marks(tmp_path, f"short-{one.id}")) <= ended.attempt <= one.max_attempts
    assert sum(r.event_type == "reclaimed" for r in relay.audit.query(to_agent="short")) >= 5
    assert relay.audit.verify().ok


def test_a_question_asked_by_a_process_that_died_is_answered_once(tmp_path, relay):
    with process(tmp_path, "run", "asking") as first:
        question = waiting(relay)
        kill(first)
    relay.give_back(question.id, "yes", by="ada")
    with process(tmp_path, "resume") as second:
        assert said(second) == "they said yes"
    assert [h.to_agent for h in relay.store.find(workflow_id="w")] == ["asking", "human"]
    assert len(marks(tmp_path, "asking")) == 2
