"""The installed command as a process: pipes, terminals, signals, and how fast it is."""

import contextlib
import json
import os
import pty
import pwd
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baton import Relay

BIN = Path(sys.executable).parent
SHOP = """
import asyncio
from pathlib import Path
from baton import Command, Relay

relay = Relay(".baton/baton.db")

@relay.agent("triage", capabilities=["triage"])
async def triage(turn):
    return Command(goto="billing", update={"customer": 42}, reason="a billing question")

@relay.agent("billing", capabilities=["refunds"])
async def billing(turn):
    if "slow" in turn.task:
        Path("begun").touch()
        await asyncio.sleep(60)
    if "wrong" in turn.task:
        raise ValueError("no such order")
    if "nothing" in turn.task:
        return None
    return f"refunded customer {turn.state.get('customer')}"
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture
def env(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BATON", "NO_COLOR", "COLUMNS"))}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm-256color"}


@pytest.fixture
def baton(place, env):
    def call(*words, program="baton", **options):
        options = {"cwd": place, "env": env, "capture_output": True, "text": True, "timeout": 60, **options}
        return subprocess.run([BIN / program, *map(str, words)], check=False, **options)

    return call


@pytest.fixture
def start(place, env):
    begun = []

    def call(*words):
        process = subprocess.Popen(
            [BIN / "baton", *words], cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        begun.append(process)
        return process

    yield call
    for process in begun:
        process.kill()
        process.communicate()


def until(look, seconds=30):
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def test_both_names_are_installed(baton):
    assert baton("--version").stdout == baton("--version", program="engine").stdout
    for module in ("baton", "baton.cli"):
        said = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
        assert said.stdout == baton("--version").stdout


def test_who_decides_is_the_login_of_the_user_where_nothing_names_one(baton, env):
    kept = {name: value for name, value in env.items() if name not in {"USER", "LOGNAME", "BATON_USER"}}
    baton("agents", "register", "billing")
    made = json.loads(baton("handoff", "send", "--to", "billing", "--task", "x", "--approval", "--json").stdout)
    assert baton("approve", made["id"], env=kept).returncode == 0
    records = baton("audit", "query", "--handoff", made["id"], "--json").stdout.splitlines()
    assert json.loads(records[-1])["by"] == pwd.getpwuid(os.getuid()).pw_name


def test_run_prints_the_answer_and_nothing_else(baton):
    done = baton("run", "--app", "shop:relay", "triage", "please refund")
    assert (done.returncode, done.stdout, done.stderr) == (0, "refunded customer 42\n", "")
    done = baton("run", "--app", "shop", "triage", "-", "--json", input="please refund")
    found = json.loads(done.stdout)
    assert (found["status"], found["output"], found["state"]) == ("completed", "refunded customer 42", {"customer": 42})
    assert [one["to_agent"] for one in found["handoffs"]] == ["billing"]


def test_run_of_work_that_fails(baton):
    done = baton("run", "--app", "shop:relay", "billing", "wrong", "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)
    assert (error["kind"], error["status"]) == ("HandoffFailed", "failed")
    assert "no such order" in done.stderr
    err = baton("run", "--app", "shop:relay", "triage", "wrong").stderr
    handoff = json.loads(baton("handoff", "list", "--state", "failed", "--json").stdout.splitlines()[0])
    place = "at shop.py:18 in billing"
    assert f"failed at agent billing, {place}; `baton handoff show {handoff['id'][:8]}`" in err
    assert f"\n  {place}\n" in baton("handoff", "show", handoff["id"]).stdout
    assert baton("graph", error["workflow_id"]).returncode == 0


def test_run_times_out_and_is_resumed(baton, place):
    done = baton("run", "--app", "shop:relay", "billing", "slow", "--timeout", "1s", "--json")
    assert done.returncode == 124
    (place / "shop.py").write_text(SHOP.replace("sleep(60)", "sleep(0)"))
    workflow = json.loads(baton("history", "--json").stdout)["workflow_id"]
    done = baton("run", "--app", "shop:relay", "--resume", workflow[:8])
    assert (done.returncode, done.stdout) == (0, "refunded customer None\n")


def test_run_says_at_once_that_a_person_is_needed(start, baton, place):
    (place / "shop.py").write_text(
        SHOP.replace('Relay(".baton/baton.db")', 'Relay("team.db", limits={"approve": ["billing"]})')
    )
    begun = start("run", "--app", "shop:relay", "billing", "work")
    said = begun.stderr.readline()
    command = said.removeprefix("user → billing waits for a person: `").removesuffix("`\n")
    assert command.startswith("baton approve ")
    assert command.endswith(" --store team.db")
    assert baton(*command.split()[1:]).returncode == 0
    assert begun.communicate(timeout=30) == ("refunded customer None\n", "")


def test_a_run_that_times_out_says_why_in_one_line(baton, place):
    (place / "shop.py").write_text(
        SHOP.replace('Relay(".baton/baton.db")', 'Relay("team.db", limits={"approve": ["billing"]})')
    )
    done = baton("run", "--app", "shop:relay", "billing", "work", "--timeout", "1s")
    waits, error, rest = done.stderr.split("\n")
    assert (done.returncode, done.stdout, rest) == (124, "", "")
    assert waits.startswith("user → billing waits for a person: `baton approve ")
    assert f"not finished within 1 s: {waits}; `baton run --app shop:relay --resume " in error
    (place / "shop.py").write_text(SHOP.replace('".baton/baton.db"', '":memory:"'))
    done = baton("run", "--app", "shop:relay", "billing", "slow", "--timeout", "1s")
    assert done.stderr.endswith("it stands at billing (offered); it was kept in memory only, and is gone\n")
    assert done.stderr.count("\n") == 1


def test_a_time_out_with_json_is_one_document_and_the_reason_is_heard(baton, place):
    (place / "shop.py").write_text(
        SHOP.replace('Relay(".baton/baton.db")', 'Relay("team.db", limits={"approve": ["billing"]})')
    )
    done = baton("run", "--app", "shop:relay", "billing", "work", "--timeout", "1s", "--json")
    error = json.loads(done.stdout)
    assert (error["kind"], error["status"]) == ("TimedOut", "waiting")
    assert done.stderr.startswith("user → billing waits for a person: ")


def test_a_resting_agent_is_named_with_the_cure(baton, place):
    (place / "shop.py").write_text(
        SHOP + "\n@relay.agent('boss')\nasync def boss(turn):\n    await turn.delegate('billing', turn.task)\n"
    )
    for _ in range(4):
        done = baton("run", "--app", "shop:relay", "billing", "wrong")
        assert (done.returncode, "rests" in done.stderr) == (1, False)
    done = baton("run", "--app", "shop:relay", "boss", "work", "--timeout", "1s")
    assert done.stderr.startswith("billing rests until ")
    assert "after 4 failures (ValueError: no such order); `baton breaker reset billing --store" in done.stderr
    assert baton("breaker", "reset", "billing").returncode == 0
    assert baton("breaker", "list").stdout == ""


def test_an_error_is_tried_again_where_that_is_said(baton, place):
    (place / "shop.py").write_text(
        SHOP.replace('"wrong" in turn.task', '"wrong" in turn.task and turn.attempt == 1').replace(
            'baton.db")', 'baton.db", backoff=0.01)'
        )
    )
    assert baton("run", "--app", "shop:relay", "billing", "wrong").returncode == 1
    done = baton("run", "--app", "shop:relay", "billing", "wrong", "--on-failure", "retry")
    assert (done.returncode, done.stdout) == (0, "refunded customer None\n")
    made = json.loads(
        baton("handoff", "send", "--to", "billing", "--task", "x", "--on-failure", "retry", "--json").stdout
    )
    assert made["return_protocol"]["on_failure"] == "retry"


def test_a_send_that_waits_in_vain_says_why_and_for_which(baton):
    baton("agents", "register", "billing")
    done = baton("handoff", "send", "--to", "billing", "--task", "x", "--approval", "--wait", "0.1")
    short = json.loads(baton("handoff", "list", "--json").stdout)["id"][:8]
    assert done.returncode == 124
    assert f"no answer within 0.1 s: user → billing waits for a person: `baton approve {short}" in done.stderr
    assert f"`baton handoff show {short}` tells more" in done.stderr


def test_run_without_an_output(baton):
    done = baton("run", "--app", "shop:relay", "billing", "nothing")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no output\n")


@pytest.mark.parametrize(
    ("app", "words", "handed_on"),
    [("", [], True), ("", ["--no-handoffs"], False), (", handoffs=False", [], False),
     (", handoffs=False", ["--enable-handoffs"], True)],
)  # fmt: skip
def test_run_says_whether_work_is_handed_on(app, words, handed_on, baton, place):
    (place / "shop.py").write_text(SHOP.replace('baton.db"', f'baton.db"{app}'))
    done = baton("run", "--app", "shop:relay", *words, "triage", "please refund")
    if handed_on:
        assert (done.returncode, done.stdout) == (0, "refunded customer 42\n")
    else:
        assert (done.returncode, done.stdout) == (3, "")
        assert "triage works alone (handoffs are off)" in done.stderr
        assert "--enable-handoffs" in done.stderr


def test_run_is_not_told_both(baton):
    done = baton("run", "--app", "shop:relay", "--no-handoffs", "--enable-handoffs", "triage", "please refund")
    assert done.returncode == 2
    assert "not allowed with" in done.stderr


def test_an_interrupted_run_says_how_to_go_on(start, baton, place):
    (place / "shop.py").write_text(SHOP.replace(".baton/baton.db", "team.db"))
    begun = start("run", "--app", "shop:relay", "billing", "slow")
    until((place / "begun").exists)
    begun.send_signal(signal.SIGINT)
    out, err = begun.communicate(timeout=30)
    assert (begun.returncode, out) == (130, "")
    workflow = json.loads(baton("history", "--store", "team.db", "--json").stdout)["workflow_id"]
    resume = f"baton run --app shop:relay --resume {workflow[:8]}"
    assert err == f"workflow {workflow}: not finished; `{resume}` goes on\n"
    (place / "shop.py").write_text((place / "shop.py").read_text().replace("sleep(60)", "sleep(0)"))
    assert baton(*resume.split()[1:]).stdout == "refunded customer None\n"


def test_an_app_is_named_by_module_or_by_file(baton, place):
    (place / "other").mkdir()
    for app in ("shop", "shop.py", "./shop.py:relay", "../" + place.name + "/shop.py:relay"):
        assert baton("run", "--app", app, "triage", "x").stdout == "refunded customer 42\n", app
    assert baton("run", "--app", "../shop.py:relay", "triage", "x", cwd=place / "other").returncode == 0
    for app, code in (("../shop", 2), ("../nowhere.py:relay", 1), ("shop:relay()", 2), (":relay", 2), (".shop", 2)):
        done = baton("run", "--app", app, "triage", "x")
        assert done.returncode == code, app
        assert done.stderr.startswith(f"error: --app {app}: "), app
        assert "shop:relay" in done.stderr, app


def test_an_app_with_a_store_of_its_own_leaves_no_folder(baton, place):
    (place / "shop.py").write_text(SHOP.replace(".baton/baton.db", "team.db"))
    assert baton("run", "--app", "shop:relay", "triage", "x").returncode == 0
    assert not (place / ".baton").exists()
    assert baton("run", "--app", "shop:relay", "--store", "other.db", "triage", "x").returncode == 2


def test_a_worker_answers_who_waits(baton, start):
    worker = start("worker", "--app", "shop:relay")
    assert worker.stdout.readline().startswith("serving billing, triage")
    done = baton("handoff", "send", "--to", "triage", "--task", "please refund", "--wait", 30)
    assert (done.returncode, done.stdout) == (0, "refunded customer 42\n")
    assert baton("handoff", "send", "--to", "billing", "--task", "wrong", "--wait", 30).returncode == 1
    worker.send_signal(signal.SIGINT)
    out, err = worker.communicate(timeout=30)
    assert worker.returncode == 0, err
    assert "completed" in out
    assert "failed      user → billing  wrong" in out
    assert "ValueError: no such order" in out
    assert out.endswith("stopped after 3 handoffs\n")


def test_a_worker_says_where_an_agent_failed_and_what_waits_for_a_person(baton, start, place):
    (place / "shop.py").write_text(
        SHOP + "\n@relay.agent('clerk')\nasync def clerk(turn):\n    await turn.ask('which colour?')\n"
    )
    worker = start("worker", "--app", "shop:relay", "--json")
    worker.stdout.readline()
    baton("handoff", "send", "--to", "billing", "--task", "wrong")
    told = [json.loads(worker.stdout.readline()) for _ in range(2)]
    assert told[1]["event"] == "failed"
    assert told[1]["reason"] == "ValueError: no such order, at shop.py:18 in billing"
    baton("handoff", "send", "--to", "clerk", "--task", "paint it")
    told = [json.loads(worker.stdout.readline()) for _ in range(3)]
    said = worker.stderr.readline()
    assert said.startswith("clerk asks 'which colour?' and waits for a person: `baton handoff return ")
    assert (told[2]["event"], told[2]["reason"]) == ("waits", said.strip())
    worker.terminate()
    assert worker.communicate(timeout=30)[1] == ""


def test_a_stopped_worker_gives_its_work_back(baton, start, place):
    worker = start("worker", "--app", "shop:relay", "--json")
    assert json.loads(worker.stdout.readline())["agents"] == ["billing", "triage"]
    sent = json.loads(baton("handoff", "send", "--to", "billing", "--task", "slow", "--json").stdout)
    until((place / "begun").exists)
    worker.terminate()
    out, err = worker.communicate(timeout=30)
    assert worker.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == {"event": "stopped", "handoffs": 0, "given_back": 1}
    with Relay(str(place / ".baton/baton.db")) as relay:
        handoff = relay.get(sent["id"])
    assert (handoff.status, handoff.attempt) == ("offered", 0)


def test_a_second_signal_ends_a_worker_whose_agent_does_not_stop(baton, start, place):
    code = "import asyncio\nfrom baton import Relay\nrelay = Relay('.baton/baton.db')\n@relay.agent('billing')\n"
    body = """async def billing(turn):
    open("begun", "w")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            open("told", "w")
"""
    (place / "shop.py").write_text(code + body)
    worker = start("worker", "--app", "shop:relay")
    worker.stdout.readline()
    sent = json.loads(baton("handoff", "send", "--to", "billing", "--task", "endless", "--json").stdout)
    until((place / "begun").exists)
    worker.send_signal(signal.SIGINT)
    until((place / "told").exists)
    assert worker.poll() is None
    worker.send_signal(signal.SIGINT)
    assert worker.wait(10) == -signal.SIGINT
    baton("recover")
    with Relay(str(place / ".baton/baton.db")) as relay:
        assert relay.get(sent["id"]).status == "offered"


def test_a_worker_waits_for_no_thread(baton, start, place):
    code = "import time\nfrom baton import Relay\nrelay = Relay('.baton/baton.db')\n@relay.agent('billing')\n"
    (place / "shop.py").write_text(f"{code}def billing(turn):\n    open('begun', 'w')\n    time.sleep(60)\n")
    worker = start("worker", "--app", "shop:relay")
    worker.stdout.readline()
    baton("handoff", "send", "--to", "billing", "--task", "slow")
    until((place / "begun").exists)
    worker.send_signal(signal.SIGINT)
    worker.stdout.readline()
    assert worker.stdout.readline() == "stopped after 0 handoffs; 1 handoff given back unfinished\n"
    assert worker.communicate(timeout=10)[1] == ""
    assert worker.returncode == 0
    with Relay(str(place / ".baton/baton.db")) as relay:
        assert [(one.status, one.attempt) for one in relay.store.find()] == [("offered", 0)]


def test_a_run_that_is_over_waits_for_no_thread(baton, place):
    code = "import time\nfrom baton import Relay\nrelay = Relay('.baton/baton.db')\n@relay.agent('billing')\n"
    (place / "shop.py").write_text(f"{code}def billing(turn):\n    time.sleep(60)\n")
    ran = baton("run", "--app", "shop:relay", "billing", "slow", "--timeout", "0.2")
    assert ran.returncode == 124
    assert "no worker of billing has taken it" in ran.stderr or "stands at billing (offered)" in ran.stderr
    with Relay(str(place / ".baton/baton.db")) as relay:
        assert [(one.status, one.attempt) for one in relay.store.find()] == [("offered", 0)]


@pytest.fixture
def full(place, env):
    """A store with many handoffs."""
    (place / ".baton").mkdir()
    with Relay(str(place / ".baton/baton.db")) as relay:
        relay.add("billing", None)
        from baton.protocol.handoff import Handoff

        relay.store.batch(
            [
                lambda: relay.hand_off(Handoff(from_agent="user", to_agent="billing", task="x" * 200))
                for _ in range(1000)
            ]
        )
    return place


@pytest.mark.parametrize("words", [["handoff", "list", "--limit", "1000"], ["audit", "query", "--json"], ["--help"]])
def test_a_reader_that_leaves_early_is_no_error(words, full, env):
    process = subprocess.Popen(
        [BIN / "baton", *words], cwd=full, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(30) == 0
    process.stderr.close()


def test_watching_into_a_pipe_tells_what_moves(baton, start):
    baton("agents", "register", "billing")
    watch = start("handoff", "list", "--watch")
    baton("handoff", "send", "--to", "human", "--task", "which?")
    handoff_id, state, *_ = watch.stdout.readline().split("\t")
    assert state == "offered"
    baton("handoff", "return", handoff_id, "--text", "this")
    moved = [watch.stdout.readline().split("\t")[:2]]
    if moved == [[handoff_id, "claimed"]]:  # it may look between the two steps of an answer
        moved = [watch.stdout.readline().split("\t")[:2]]
    assert moved == [[handoff_id, "completed"]]
    watch.send_signal(signal.SIGINT)
    assert watch.communicate(timeout=30) == ("", "")
    assert watch.returncode == 0


def on_a_terminal(words, place, env, *, interrupt_after=b""):
    """Run on a pseudo-terminal of 100 columns; everything that it printed, and the exit code."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [BIN / "baton", *words], cwd=place, env={**env, "COLUMNS": "100"}, stdout=inner, stderr=inner
    )
    os.close(inner)
    shown = b""
    end = time.monotonic() + 30
    with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
        while time.monotonic() < end:
            if select.select([outer], [], [], 0.1)[0]:
                if not (data := os.read(outer, 65536)):
                    break
                shown += data
            if interrupt_after and interrupt_after in shown:
                process.send_signal(signal.SIGINT)
                interrupt_after = b""
    code = process.wait(10)
    os.close(outer)
    return code, shown.decode()


def test_a_person_sees_a_head_and_colours(full, env):
    code, shown = on_a_terminal(["handoff", "list", "--limit", "2"], full, env)
    lines = shown.splitlines()
    assert code == 0
    assert "FROM → TO" in lines[0]
    assert "\x1b[34moffered\x1b[0m" in lines[1]
    assert lines[1].endswith("…")
    assert len(lines) == 3


@pytest.mark.parametrize("name", ["NO_COLOR", "BATON_NO_COLOR"])
def test_colours_can_be_switched_off(name, full, env):
    _, shown = on_a_terminal(["handoff", "list", "--limit", "2"], full, {**env, name: "1"})
    assert "\x1b" not in shown
    assert "offered" in shown


def test_a_person_watches_live(full, env):
    code, shown = on_a_terminal(["handoff", "list", "--watch"], full, env, interrupt_after=b"offered")
    assert code == 0
    assert "\x1b[" in shown
    assert "Traceback" not in shown


def test_run_tells_its_steps_on_a_terminal(place, env):
    code, shown = on_a_terminal(["run", "--app", "shop:relay", "triage", "please"], place, env)
    assert code == 0
    assert "triage → billing" in shown
    assert shown.splitlines()[-1] == "refunded customer 42"


@pytest.mark.parametrize("words", [["--help"], ["handoff", "list"], ["stats"], ["doctor"], ["agents", "list"]])
def test_rich_is_for_people_only(words, full, env):
    program = f"import sys; from baton.cli import main; main({words!r}); sys.exit('rich' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], cwd=full, env=env, capture_output=True, check=False).returncode
        == 0
    )


def processor_time(argv, place, env):
    """The least processor time of several runs: what others do on this machine does not count."""
    spent = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, cwd=place, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent)


@pytest.mark.parametrize(
    ("words", "times"),
    [(["--help"], 5), (["handoff", "list", "--limit", "20"], 12), (["agents", "list"], 12), (["waiting"], 12)],
)
def test_a_verb_answers_at_once(words, times, full, env):
    """150 ms on this kind of machine; as a ratio to importing what Python brings along."""
    floor = processor_time([sys.executable, "-c", "import argparse, json"], full, env)
    verb = processor_time([BIN / "baton", *words], full, env)
    assert verb <= max(0.150, times * floor), f"{verb * 1000:.0f} ms, {verb / floor:.1f} times the floor"
