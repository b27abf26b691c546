"""`run /SKILL FILE`, `agents` and `recover` with real programs: what is claimed, told, ended, and put right."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from baton.board import approvals
from baton.board.actor import Actor
from baton.board.moves import Move
from baton.board.root import board_of


def run(play, path, *more, code=0, skill="/implement"):
    return json.loads(play.baton("run", skill, str(path), "--mode", "agent", *more, "--json", code=code))


def events(play, path):
    return [one for one in play.log() if one["path"] == f"sessions/{path.name}"]


def test_the_claim_comes_first_with_owner_session_and_lock(plain):
    path = plain.item("one", "implementation", "easy")
    ended = run(plain, path)
    assert (ended["status"], ended["exit"], plain.tags(path)) == ("completed", 0, "**Tags**: #done-implementation #P1")
    told = [one["event"] for one in events(plain, path)]
    assert told[-3:] == ["claimed", "started", "done"]
    (claim,) = [one for one in events(plain, path) if one["event"] == "claimed"]
    assert claim["supervised"] == 1
    assert claim["lock"]
    assert claim["holder"].count("/") == 4
    assert claim["session"] == ended["session"]
    assert f"Session: {ended['session']}" in path.read_text().split("\n")
    state = json.loads((plain.root / ended["session"] / ".state.json").read_bytes())
    assert {"pid", "started", "boot", "host", "skill", "phase", "status", "heartbeat"} <= state.keys()
    assert (state["skill"], state["phase"], state["status"], state["claim"]) == (
        "implement",
        "ended",
        "completed",
        claim["at"],
    )


def test_what_another_holds_or_nobody_approved_starts_nothing(plain):
    taken, changed = plain.item("taken", "implementation", "easy"), plain.item("changed", "implementation", "easy")
    plain.baton("tag", "swap", str(taken), "#delegated-implementation", "#claimed-implementation")
    assert "claimed by process" in run(plain, taken, code=1)["error"]
    staged = plain.item("staged", "implementation", "easy", approve=False)
    assert "nobody approved it" in run(plain, staged, code=3)["error"]
    changed.write_text(changed.read_text() + "more\n")
    assert "changed after ana approved it" in run(plain, changed, code=3)["error"]
    assert plain.lines("begun") == []
    assert [one.name for one in (plain.root / "sessions").iterdir() if one.is_dir()] == []


def test_a_skill_takes_what_was_chosen_for_it_and_its_session(plain, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", plain.environment["XDG_STATE_HOME"])
    mine, theirs = (
        plain.item("mine", "implementation", "x", approve=False),
        plain.item("theirs", "implementation", "x", approve=False),
    )
    other = plain.item("other", "fix", "x", approve=False)
    for path in (mine, other):
        plain.baton(
            "tag",
            "swap",
            str(path),
            f"#needs-{'fix' if path is other else 'implementation'}",
            f"#next-{'fix' if path is other else 'implementation'}",
        )
    board, _ = board_of(str(plain.root))
    move = Move(board, str(theirs), "implementation", "needs", "next")
    approvals.approve(move, Actor("ana", ""), approvals.Terms(session="sessions/else"))
    rows = {
        one["item"]: one["what"] for one in map(json.loads, plain.baton("run", "/implement", "--json").splitlines())
    }
    assert rows["sessions/mine.md#implementation"] == "claimed"
    assert rows["sessions/theirs.md#implementation"].startswith("left: ")
    assert rows["sessions/other.md#fix"].startswith("left: ")
    assert [plain.tags(path).split("#")[1].split("-")[0] for path in (mine, theirs, other)] == [
        "claimed",
        "next",
        "next",
    ]


def test_a_signal_ends_the_program_with_all_that_it_started(plain):
    path = plain.item("slow", "implementation", "SLOW")
    argv = [sys.executable, "-P", "-m", "baton", "run", "/implement", str(path), "--mode", "agent"]
    with subprocess.Popen(argv, cwd=plain.root, env=plain.environment, stderr=subprocess.PIPE, text=True) as wrapper:
        plain.until(lambda: [one for one in plain.processes() if one[1].startswith("sleep")])
        wrapper.terminate()
        _, said = wrapper.communicate(timeout=30)
    assert wrapper.returncode == 1
    assert "stopped by SIGTERM" in said
    assert plain.processes() == []
    assert plain.tags(path) == "**Tags**: #delegated-implementation #P1"  # its approval still stands
    assert "stopped by SIGTERM" in path.read_text()


def test_work_that_takes_too_long_is_ended(plain):
    path = plain.item("slow", "implementation", "SLOW")
    ended = run(plain, path, "--max-time", "1s", code=1)
    assert ended["status"] == "failed"
    assert "the longest that it may take" in ended["reason"]
    assert plain.processes() == []


def test_a_program_of_an_old_claim_completes_nothing(plain):
    path = plain.item("one", "implementation", "NEVER")
    ended = run(plain, path, code=1)
    before = path.read_bytes()
    plain.environment["BATON_CLAIM"] = f"sessions/one.md#implementation:{ended['claim']}"
    swap = ("tag", "swap", str(path), "#claimed-implementation", "#done-implementation")
    plain.baton(*swap, code=1)  # it is delegated again
    del plain.environment["BATON_CLAIM"]
    plain.baton("tag", "swap", str(path), "#delegated-implementation", "#claimed-implementation")
    claimed = path.read_bytes()
    plain.environment["BATON_CLAIM"] = f"sessions/one.md#implementation:{ended['claim']}"
    plain.baton(*swap, code=3)
    assert path.read_bytes() == claimed != before
    assert [one["event"] for one in events(plain, path)][-1] == "late"


def test_recover_says_what_is_stuck_and_puts_it_right_once(plain):
    path = plain.item("slow", "implementation", "SLOW")
    argv = [sys.executable, "-P", "-m", "baton", "run", "/implement", str(path), "--mode", "agent"]
    with subprocess.Popen(argv, cwd=plain.root, env=plain.environment, stderr=subprocess.DEVNULL) as wrapper:
        plain.until(lambda: [one for one in plain.processes() if one[1].startswith("sleep")])
        (shown,) = map(json.loads, plain.baton("agents", "status", "--json").splitlines())
        assert (shown["how"], shown["item"]) == ("working", "sessions/slow.md")
        assert plain.baton("recover", "--json") == ""  # a live worker is left alone
        wrapper.kill()
    for pid, command in plain.processes():
        if command.startswith("sleep"):
            os.kill(pid, signal.SIGKILL)
    plain.until(lambda: not plain.processes())
    before = path.read_bytes()
    (found,) = map(json.loads, plain.baton("recover", "--dry-run", "--json").splitlines())
    assert (found["verdict"], found["action"], path.read_bytes()) == ("dead", "", before)
    (done,) = map(json.loads, plain.baton("recover", "--json").splitlines())
    assert done["action"] == "back in the queue under its approval"
    after = path.read_text()
    for line in (
        "## Recovery",
        "*   **Date**: ",
        "*   **Reason**: process ",
        "*   **Prior Session**: sessions/",
        "*   **Action**: ",
    ):
        assert line in after
    assert plain.baton("recover", "--json") == ""
    assert path.read_text() == after


def test_a_dead_worker_whose_response_is_there_has_done_its_work(plain):
    path = plain.item("X_REQUEST_Y", "implementation", "SLOW")
    argv = [sys.executable, "-P", "-m", "baton", "run", "/implement", str(path), "--mode", "agent"]
    with subprocess.Popen(argv, cwd=plain.root, env=plain.environment, stderr=subprocess.DEVNULL) as wrapper:
        plain.until(lambda: [one for one in plain.processes() if one[1].startswith("sleep")])
        (folder,) = [one for one in (plain.root / "sessions").iterdir() if one.is_dir()]
        (folder / "ANSWER.md").write_text("# Done\n")
        name = folder.relative_to(plain.root) / "ANSWER.md"
        path.write_text(path.read_text() + f"\n## Response\n*   **Fulfilled by**: {name}\n*   **Summary**: x\n")
        wrapper.kill()
    for pid, _ in plain.processes():
        os.kill(pid, signal.SIGKILL)
    plain.until(lambda: not plain.processes())
    (done,) = map(json.loads, plain.baton("recover", "--json").splitlines())
    assert done["action"].startswith("completed")
    assert plain.tags(path) == "**Tags**: #done-implementation #P1"


def test_a_sign_of_life_is_written_only_where_progress_was_seen(plain, agent):
    agent(
        "import time\n"
        "for number in range(15):\n"
        "    time.sleep(0.5)\n"
        '    if "CHATTY" in open(request).read():\n'
        "        print(number, flush=True)"
    )
    paths = {words: plain.item(words.lower(), "implementation", words) for words in ("CHATTY", "QUIET")}
    argv = [sys.executable, "-m", "baton", "run", "/implement"]
    told = {"stderr": subprocess.DEVNULL, "env": plain.environment, "cwd": plain.root}
    working = [subprocess.Popen([*argv, str(path), "--mode", "agent"], **told) for path in paths.values()]
    seen = {words: set() for words in paths}
    while any(one.poll() is None for one in working):
        for file in (plain.root / "sessions").glob("*/.state.json"):
            state = json.loads(file.read_bytes())
            seen["CHATTY" if "CHATTY" in file.parent.name else "QUIET"] |= {state.get("heartbeat")} - {None}
        time.sleep(0.1)
    assert [one.wait() for one in working] == [0, 0]
    assert (len(seen["CHATTY"]), len(seen["QUIET"])) == (2, 1)  # when it began, and after five seconds


def killed(plain, name):
    """An item whose worker was killed with all that it started."""
    path = plain.item(name, "implementation", "SLOW")
    argv = [sys.executable, "-P", "-m", "baton", "run", "/implement", str(path), "--mode", "agent"]
    with subprocess.Popen(argv, cwd=plain.root, env=plain.environment, stderr=subprocess.DEVNULL) as wrapper:
        plain.until(lambda: [one for one in plain.processes() if one[1].startswith("sleep")])
        wrapper.kill()
    for pid, _ in plain.processes():
        os.kill(pid, signal.SIGKILL)
    plain.until(lambda: not plain.processes())
    return path


def test_what_cannot_be_put_right_stops_nobody_else(plain):
    stuck, read_only = killed(plain, "stuck"), killed(plain, "read-only")
    os.link(stuck, plain.root / "second name")
    read_only.chmod(0o444)
    before = stuck.read_bytes(), read_only.read_bytes()
    rows = {one["path"]: one["action"] for one in map(json.loads, plain.baton("recover", "--json").splitlines())}
    assert "hard links" in rows["sessions/stuck.md"]
    assert "read-only" in rows["sessions/read-only.md"]
    daemon = plain.daemon()
    good = plain.item("good", "implementation", "easy")
    plain.until(lambda: "#done-" in plain.tags(good) and "left alone" in plain.said())
    time.sleep(3)
    assert daemon.poll() is None
    assert (stuck.read_bytes(), read_only.read_bytes()) == before
    told = [one["path"] for one in plain.log() if one["event"] == "alert"]
    assert sorted(told) == ["sessions/read-only.md", "sessions/stuck.md"]  # a person is told, once of each
    (plain.root / "second name").unlink()
    plain.until(lambda: "## Recovery" in stuck.read_text())


def test_a_request_that_its_agent_removes_is_no_crash(plain):
    (plain.root.parent / "agent.py").write_text("import os, sys; os.unlink(sys.argv[1])")
    ended = run(plain, plain.item("one", "implementation", "x"), code=1)
    assert (ended["status"], ended["exit"]) == ("failed", 0)
    state = json.loads((plain.root / ended["session"] / ".state.json").read_bytes())
    assert (state["phase"], state["status"]) == ("ended", "failed")
    (done,) = map(json.loads, plain.baton("recover", "--json").splitlines() or ["{}"])
    assert done == {}


def test_a_dead_worker_that_waits_for_a_person_keeps_nobody_from_working(plain):
    dead = killed(plain, "dead")
    text = dead.read_text().replace("#P1", "#P0")  # while it lives, nothing lower starts beside it
    dead.write_text(text)
    plain.daemon("--on-dead", "alert", "--max-agents", "1")
    good = plain.item("good", "implementation", "easy", "P2")
    plain.until(lambda: "#done-" in plain.tags(good))
    assert dead.read_text() == text
    plain.until(lambda: "on_dead = alert" in plain.said())


DAEMONISES = """
import os, subprocess, sys
request, noun = sys.argv[1], os.environ["BATON_CLAIM"].rpartition(":")[0].rpartition("#")[2]
if not os.fork():
    os.setsid()
    if not os.fork():
        home = "HOME=" + os.environ["HOME"]
        os.execvp("env", ["env", "-i", home, sys.executable, "-c", "import signal, time; "
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); open('daemonised', 'w'); time.sleep(1000)"])
    os._exit(0)
os.wait()
while not os.path.exists("daemonised"):
    pass
swap = [sys.executable, "-P", "-m", "baton", "tag", "swap", request, "#claimed-" + noun, "#done-" + noun]
sys.exit(subprocess.call(swap))
"""


def test_what_an_agent_daemonised_ends_with_it(plain):
    (plain.root.parent / "agent.py").write_text(DAEMONISES)
    ended = run(plain, plain.item("one", "implementation", "x"))
    assert ended["status"] == "completed"
    assert (plain.root / "daemonised").exists()
    assert plain.processes() == []


def test_a_name_that_is_no_text_is_one_of_a_file(plain):
    path = Path(os.fsdecode(os.fsencode(plain.root / "sessions") + b"/\xff\n-\x1b[31m '$(id)'.md"))
    path.write_text("# x\n**Tags**: #needs-implementation #P1\n\neasy\n")
    plain.baton("review", "--approve", str(path))
    (plain.root.parent / "agent.py").write_text(
        "import subprocess, sys; n = 'implementation'; sys.exit(subprocess.call([sys.executable, '-P', '-m', 'baton', "
        "'tag', 'swap', sys.argv[1], f'#claimed-{n}', f'#done-{n}']))"
    )
    assert run(plain, path)["status"] == "completed"
    assert "#done-" in plain.tags(path)


def test_a_run_finishes_alone_unless_it_may_ask_others(plain, agent):
    agent(
        'note("asked", baton("request", "new", "fix", "other work"))\n'
        'note("asked", baton("handoff", "send", "--to", "human", "--task", "x"))\n'
        'note("asked", baton("run", "/fix", request, "--launch"))'
    )
    run(plain, plain.item("alone", "implementation", "x"))
    assert plain.lines("asked") == ["3", "3", "3"]
    assert not list((plain.root / "sessions").rglob("FIX_REQUEST*"))
    run(plain, plain.item("not-alone", "implementation", "x"), "--enable-handoffs")
    assert plain.lines("asked")[3:] == ["0", "0", "3"]  # it may, and nobody approved that one
    assert list((plain.root / "sessions").rglob("FIX_REQUEST*"))


FORGES = """
import glob, json, os, subprocess, sys, time
root, victim = os.environ["BATON_ROOT"], {}
for file in glob.glob(root + "/sessions/*/.state.json"):
    state = json.load(open(file))
    if state["request"].endswith("victim.md"):
        victim = state
os.environ["BATON_CLAIM"] = f"{victim['request']}#{victim['noun']}:{victim['claim']}"
words = ["tag", "swap", victim["request"], "#claimed-implementation", "#done-implementation"]
done = subprocess.run([sys.executable, "-P", "-m", "baton", *words], capture_output=True, text=True)
open("forged", "w").write(f"{done.returncode} {done.stdout}{done.stderr}")
"""


def test_a_claim_that_another_program_was_given_is_no_right(plain):
    victim, path = plain.item("victim", "implementation", "SLOW"), plain.item("one", "implementation", "x")
    argv = [sys.executable, "-P", "-m", "baton", "run", "/implement", str(victim), "--mode", "agent"]
    with subprocess.Popen(argv, cwd=plain.root, env=plain.environment, stderr=subprocess.DEVNULL) as wrapper:
        plain.until(lambda: [one for one in plain.processes() if one[1].startswith("sleep")])
        (plain.root.parent / "agent.py").write_text(FORGES)
        run(plain, path, code=1)
        tags = plain.tags(victim)
        wrapper.terminate()
    assert "1 error: sessions/victim.md: process" in (plain.root / "forged").read_text()
    assert tags == "**Tags**: #claimed-implementation #P1"


def test_a_full_disk_ends_no_daemon(plain):
    daemon = plain.daemon()
    first = plain.item("first", "implementation", "easy")
    plain.until(lambda: "#done-" in plain.tags(first))
    _, most = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (1500, most))  # room for what it says
    second = plain.item("second", "implementation", "easy")
    plain.until(lambda: "tries again" in plain.said())
    time.sleep(5)
    assert daemon.poll() is None
    assert plain.said().count("tries again") == 1
    assert "#delegated-" in plain.tags(second)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (most, most))
    plain.until(lambda: "#done-" in plain.tags(second))


def test_what_a_skill_took_is_said_though_it_cannot_take_the_rest(plain):
    paths = [plain.item(name, "implementation", "x", approve=False) for name in "abc"]
    for path in paths:
        plain.baton("tag", "swap", str(path), "#needs-implementation", "#next-implementation")
    os.link(paths[1], plain.root / "second name")
    rows = {
        one["item"]: one for one in map(json.loads, plain.baton("run", "/implement", "--json", code=3).splitlines())
    }
    said = [rows[f"sessions/{name}.md#implementation"]["what"].split(":")[0] for name in "abc"]
    assert said == ["claimed", "left", "claimed"]
    states = [plain.tags(path).split("#")[1].split("-")[0] for path in paths]
    assert states == ["claimed", "next", "claimed"]


WAITS = """
import os, subprocess, sys, time
open("begun", "a").write(os.environ["BATON_CLAIM"] + "\\n")
while not os.path.exists("go"):
    time.sleep(0.05)
swap = ["tag", "swap", sys.argv[1], "#claimed-implementation", "#done-implementation"]
sys.exit(subprocess.call([sys.executable, "-P", "-m", "baton", *swap]))
"""


def test_an_old_text_that_is_saved_gives_nobody_the_work_of_a_live_worker(plain):
    path = plain.item("one", "implementation", "x", approve=False)
    staged = path.read_text()
    plain.baton("tag", "swap", str(path), "#needs-implementation", "#delegated-implementation")
    approved = path.read_text()
    (plain.root.parent / "agent.py").write_text(WAITS)
    argv = [sys.executable, "-P", "-m", "baton", "run", "/implement", str(path), "--mode", "agent"]
    with subprocess.Popen(argv, cwd=plain.root, env=plain.environment, stderr=subprocess.PIPE, text=True) as wrapper:
        plain.until(lambda: plain.lines("begun"))
        try:
            path.write_text(approved)  # as by `git checkout`, or an editor that did not look
            assert "still works on it" in run(plain, path, code=1)["error"]
            plain.baton("tag", "swap", str(path), "#delegated-implementation", "#claimed-implementation", code=1)
            path.write_text(staged)
            plain.baton("review", "--approve", str(path), code=1)
            assert path.read_text() == staged
        finally:
            (plain.root / "go").touch()
        said = wrapper.communicate(timeout=60)[1]
    assert "completed: it is done" in said  # whose it is may complete it
    assert plain.tags(path) == "**Tags**: #done-implementation #P1"
    assert len(plain.lines("begun")) == 1


def without_a_program(play):
    play.environment["PATH"] = str(Path(sys.executable).parent)
    (play.root.parent / "config" / "baton" / "clis.toml").write_text(
        'default = "ghost"\n[programs.ghost]\nheadless = ["ghost", "{request}"]\ncure = "call a ghost"\n'
    )


def test_a_program_that_is_not_there_is_said_where_a_person_looks(plain):
    without_a_program(plain)
    path = plain.item("one", "implementation", "easy")
    ended = run(plain, path, code=1)
    assert "ghost could not be started: ghost: not found on PATH" in ended["reason"]
    assert "call a ghost" in path.read_text()
    assert plain.tags(path) == "**Tags**: #delegated-implementation #P1"
    plain.daemon("--once").wait(60)
    assert plain.said().split("\n")[1].startswith("ghost: not found on PATH")
    assert plain.tags(path) == "**Tags**: #needs-implementation #P1"
    assert "ghost: not found on PATH" in plain.baton("alerts")


def test_what_would_start_is_what_was_approved(plain):
    path = plain.item("one", "implementation", "easy")
    clis = plain.root.parent / "config" / "baton" / "clis.toml"
    before = clis.read_text()
    clis.write_text(before.replace('"{request}"', '"{request}", "--now-with-more"'))
    assert "it was approved for the program 'script:" in run(plain, path, code=3)["error"]
    assert plain.lines("begun") == []
    clis.write_text(before)
    run(plain, path)
    assert plain.lines("begun") == ["sessions/one.md#implementation"]
