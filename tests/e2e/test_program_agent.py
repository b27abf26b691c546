"""A program as an agent: what it is told, what it may answer, and that nothing of it is left."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest

from baton import BatonError, Malformed, Relay, TimedOut
from baton.agents.program import ProgramAgent
from baton.errors import NotFound

READ = "import json, os, subprocess, sys, time\nwork = json.load(sys.stdin)\n"
SECRET = "a-word-that-nobody-may-see"


def program(code, **more):
    return ProgramAgent(sys.executable, "-c", READ + code, **more)


def run(code, task="count the stars", **more):
    relay = Relay(":memory:")
    relay.add("it", program(code, **more))
    return relay.run_sync("it", task)


def failed(code, **more):
    with pytest.raises(BatonError) as caught:
        run(code, **more)
    return str(caught.value)


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    except FileNotFoundError:
        return False


def until(what, seconds=20):
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.02)


# --- what it is told ------------------------------------------------------------------------------


def parent(transfer):
    """What a sub-agent is told of the conversation of its parent."""
    relay = Relay(":memory:")

    @relay.agent("first")
    async def first(turn):
        part = await turn.delegate("second", "plan it", update={"size": 7})
        return await turn.delegate("it", f"build it: {part.output}", update={"colour": "red"}, **transfer)

    @relay.agent("second")
    async def second(turn):
        return await turn.delegate("it", "the plan", **transfer)

    relay.add("it", program("print(json.dumps(work))"))
    return json.loads(json.loads(relay.run_sync("first", "a house by the sea").output)["task"][len("build it: ") :])


@pytest.mark.parametrize(("transfer", "whole"), [({}, False), ({"transfer": "full"}, True)])
def test_a_sub_agent_sees_the_conversation_of_its_parent_by_the_mode(transfer, whole):
    work = parent(transfer)
    assert work["task"] == "the plan"
    assert work["state"]["size"] == 7
    said = [one["content"] for one in work["messages"]]
    assert (said == ["a house by the sea", "plan it", "the plan"]) is whole
    assert work["handoff"]["from_agent"] == "second"
    assert (work["attempt"], work["idempotency_key"]) == (1, work["handoff"]["id"])


def test_a_mode_that_nobody_knows_is_refused():
    with pytest.raises(Malformed, match="did you mean full"):
        parent({"transfer": "ful"})


def test_it_gets_the_usual_environment_and_what_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("A_KEY", "key")
    monkeypatch.setenv("BATON_STORE", "mine")
    monkeypatch.setenv("TOKEN_ONE", "one")
    code = "print(json.dumps([dict(os.environ), os.getcwd(), sys.argv[1:]]))"
    relay = Relay(":memory:")
    hostile = "$(touch canary); `touch canary`"
    agent = ProgramAgent(
        sys.executable, "-c", READ + code, hostile, environment=["TOKEN_*"], set={"MODE": "quiet"}, folder=tmp_path
    )
    relay.add("it", agent)
    environment, folder, argv = json.loads(relay.run_sync("it", hostile).output)
    assert (environment["TOKEN_ONE"], environment["MODE"], environment["PATH"]) == ("one", "quiet", os.environ["PATH"])
    assert not {"A_KEY", "BATON_STORE"} & environment.keys()
    assert (folder, argv) == (str(tmp_path), [hostile])
    assert not list(tmp_path.iterdir())


# --- what it answers ------------------------------------------------------------------------------

RETURN = (
    "answer = {'return': {'handoff_id': work['handoff']['id'], 'status': 'partial',"
    " 'result': {'content_type': 'json', 'body': [1, 2]}, 'context_updates': {'variables_changed': {'size': 7}},"
    " 'audit': {'tokens_consumed': 40}}}\n"
)


@pytest.mark.parametrize(
    "how",
    [
        "print('on the way'); print(json.dumps(answer))",
        "open(os.environ['BATON_RETURN'], 'w').write(json.dumps(answer))",
    ],
    ids=["last line", "file"],
)
def test_a_return_of_the_protocol_says_more(how):
    relay = Relay(":memory:")
    relay.add("it", program(RETURN + how))
    result = relay.run_sync("it", "count")
    assert (result.answer.status, result.output, result.tokens, result.state["size"]) == ("partial", [1, 2], 40, 7)


@pytest.mark.parametrize("said", ['{"price": 3}', '{"return": 3}', "{", '{"handoff": {"id": "x"}}', "a\n\nb", ""])
def test_all_else_is_text(said):
    assert run(f"print({said!r})").output == said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print(json.dumps({'handoff_id': 'another', 'status': 'success'}))", "is not the handoff of this turn"),
        (RETURN + "answer['return']['status'] = 'fine'; print(json.dumps(answer))", "status"),
        ("open(os.environ['BATON_RETURN'], 'w').write('done')", "return: not JSON"),
        ("os.symlink('/etc/passwd', os.environ['BATON_RETURN'])", "OSError"),
        ("print('all is well'); sys.exit('the disk is full')", "ended with 1: the disk is full"),
        ("os.kill(os.getpid(), 9)", "ended with -9: it said nothing"),
        ("print('x' * 100_000)", "more than 1000 bytes"),
        ("open(os.environ['BATON_RETURN'], 'w').write('x' * 100_000)", "larger than 1000 bytes"),
        ("sys.stderr.write('y' * 10_000_000 + 'the end'); sys.exit(2)", "ythe end"),
    ],
)
def test_an_error_is_no_success(code, said):
    why = failed(code, largest=1000)
    assert said in why
    assert len(why) < 3000


def test_a_program_that_is_not_there_says_so():
    relay = Relay(":memory:")
    relay.add("it", ProgramAgent("no-such-program"))
    with pytest.raises(NotFound, match="no-such-program: not found on PATH"):
        relay.run_sync("it", "work")


@pytest.mark.parametrize("argv", [(), ("",), ("a\0b",), ("a", 7)])
def test_what_is_no_command_is_refused(argv):
    with pytest.raises(Malformed):
        ProgramAgent(*argv)


def test_what_it_was_told_in_confidence_is_in_no_answer(monkeypatch):
    monkeypatch.setenv("ITS_WORD", SECRET)
    given = {"environment": ["ITS_WORD"]}
    assert run("print('it is', os.environ['ITS_WORD'])", **given).output == "it is [redacted:known]"
    said = RETURN + "answer['return']['result']['body'] = os.environ['ITS_WORD']\n"
    for how in ("print(json.dumps(answer))", "open(os.environ['BATON_RETURN'], 'w').write(json.dumps(answer))"):
        assert run(said + how, **given).output == "[redacted:known]"
    assert SECRET not in failed("sys.exit(os.environ['ITS_WORD'])", **given)


def test_a_large_task_and_a_program_that_reads_none_of_it():
    assert run("print(len(work['task']))", task="x" * 500_000).output == "500000"
    relay = Relay(":memory:")
    relay.add("it", ProgramAgent(sys.executable, "-c", "print('deaf')"))
    assert relay.run_sync("it", "x" * 500_000).output == "deaf"


# --- nothing is left ------------------------------------------------------------------------------

CHILD = "child = subprocess.Popen(['sleep', '1000'])\nopen(sys.argv[1], 'w').write(str(child.pid))\n"


def left(file):
    return int(file.read_text() or 0) if file.exists() else 0


def agent_with_child(tmp_path, code, **more):
    return ProgramAgent(sys.executable, "-c", READ + CHILD + code, str(tmp_path / "pid"), **more)


def test_what_it_left_running_is_ended_with_it(tmp_path):
    relay = Relay(":memory:")
    relay.add("it", agent_with_child(tmp_path, "print('done')"))
    began = time.monotonic()
    assert relay.run_sync("it", "work").output == "done"
    assert time.monotonic() - began < 20  # the pipes that the child holds are not waited for
    assert left(tmp_path / "pid")
    assert not lives(left(tmp_path / "pid"))


def test_when_its_time_is_over_it_is_ended_with_all_of_it(tmp_path):
    relay = Relay(":memory:")
    relay.add("it", agent_with_child(tmp_path, "time.sleep(1000)", timeout=1.0))
    with pytest.raises(TimedOut, match="no end after 1 s"):
        relay.run_sync("it", "work")
    assert left(tmp_path / "pid")
    assert not lives(left(tmp_path / "pid"))


def test_called_off_it_is_ended_and_until_then_nobody_works_beside_it(tmp_path):
    relay = Relay(":memory:")
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: time.sleep(1000))\ntime.sleep(1000)"
    relay.add("it", agent_with_child(tmp_path, stubborn))
    file = tmp_path / "pid"

    async def called_off():
        work = asyncio.create_task(relay.run("it", "work"))
        while not left(file):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
        assert lives(left(file))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert work.cancelled()

    asyncio.run(called_off())
    until(lambda: not relay.store.held())
    assert not lives(left(file))
