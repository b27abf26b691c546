"""`run /SKILL FILE --wait`: a parent hands work over and goes on with what comes back, or does it itself."""

import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest

# Does the work as the prompt says, and tells what it was told.
BUILDER = """\
import os, subprocess, sys
request, session, prompt = sys.argv[1:]
print("I build,", "step one", flush=True)
print("half a line", end="", flush=True)
if "FAIL" in open(request).read():
    sys.exit(3)
open(os.path.join(session, "plan.txt"), "w").write(prompt)
os.mkdir(os.path.join(session, "src"))
open(os.path.join(session, "src", "house.py"), "w").write("rooms = 3")
os.symlink("/etc/passwd", os.path.join(session, "link"))
baton = [sys.executable, "-P", "-m", "baton"]
subprocess.check_call([*baton, "respond", request, "--summary", "three rooms", "--status", "Complete"])
item, _, epoch = os.environ["BATON_CLAIM"].rpartition(":")
noun = item.rpartition("#")[2]
subprocess.check_call([*baton, "tag", "swap", request, "#claimed-" + noun, "#done-" + noun])
"""
# A parent under a claim of its own, which does one part itself, in shells that end at once.
PARENT = """\
import json, os, shlex, subprocess, sys, time
baton = [sys.executable, "-P", "-m", "baton"]
part = os.path.join(os.environ["BATON_ROOT"], "sessions", "PLAN", "IMPLEMENTATION_REQUEST_A_HOUSE.md")
argv = [*baton, "run", "/implement", part, "--inline", "--json"]
done = subprocess.run(argv, capture_output=True, text=True, check=True)
told = json.loads(done.stdout)
print(done.stdout, flush=True)
while not os.path.exists(os.path.join(os.environ["BATON_ROOT"], "go")):
    time.sleep(0.05)
own = os.environ["BATON_CLAIM"]
for step in told["steps"][-2:]:
    under, _, command = step.partition(" baton ")
    environment = {**os.environ, "BATON_CLAIM": shlex.split(under)[0].partition("=")[2]}
    subprocess.check_call([*baton, *shlex.split(command)], env=environment)
item = own.rpartition(":")[0]
noun = item.rpartition("#")[2]
subprocess.check_call([*baton, "tag", "swap", sys.argv[1], "#claimed-" + noun, "#done-" + noun])
"""


@pytest.fixture
def play(board_play):
    made = board_play("plain")
    (made.root.parent / "builder.py").write_text(BUILDER)
    argv = [sys.executable, str(made.root.parent / "builder.py"), "{request}", "{session}", "{prompt}"]
    made.program("builder", argv)
    made.path = asked(made)
    return made


def asked(play, topic="A house", *, approve=True, what="three rooms"):
    play.baton("request", "new", "implement", topic, "--in", "sessions/PLAN", "--field", f"what={what}")
    path = play.root / "sessions" / "PLAN" / f"IMPLEMENTATION_REQUEST_{topic.upper().replace(' ', '_')}.md"
    if approve:
        play.baton("tag", "swap", str(path), "#needs-implementation", "#delegated-implementation")
    return path


def run(play, *words, code=0, stdin=subprocess.DEVNULL):
    argv = [sys.executable, "-P", "-m", "baton", "run", "/implement", str(play.path), "--program", "builder", *words]
    done = subprocess.run(
        argv, cwd=play.root, env=play.environment, stdin=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def on_terminal(play, *words, typed):
    """What a person at a terminal sees, and the exit code."""
    argv = [sys.executable, "-P", "-m", "baton", "run", "/implement", str(play.path), "--program", "builder", *words]
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(play.root)
        os.execve(argv[0], argv, {**play.environment, "TERM": "dumb", "COLUMNS": "200"})
    seen, sent, ends = b"", False, time.monotonic() + 45
    while time.monotonic() < ends:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # it has ended
                break
            seen += piece
            if not piece:
                break
        if b"inline?" in seen and not sent:
            sent = True
            os.write(terminal, typed)
    os.close(terminal)
    return seen.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_untouched(play):
    assert "#delegated-implementation" in play.tags(play.path)
    assert [one for one in play.log() if one["event"] in {"claimed", "started"}] == []


# --- launch ---------------------------------------------------------------------------------------


def test_a_parent_gets_log_debrief_and_outputs(play):
    definition = play.root / "builder.md"
    definition.write_text("# You build houses\n")
    done = run(play, "--mode", "agent", "--launch", "--json", "--definition", str(definition))
    left = json.loads(done.stdout)
    session = left["session"]
    assert (left["status"], left["exit"]) == ("completed", 0)
    assert left["log"] == f"{session}/agent.log"
    assert left["debrief"] == f"{session}/IMPLEMENTATION_RESPONSE_A_HOUSE.md"
    assert "*   **Status**: Complete\n*   **Summary**: three rooms" in left["text"]
    assert left["outputs"] == [f"{session}/plan.txt", f"{session}/src/house.py"]
    assert f"You are the agent that the file {definition} describes" in (play.root / session / "plan.txt").read_text()
    assert "#done-implementation" in play.tags(play.path)
    assert "I build, step one\n" in done.stderr  # its progress, also where JSON is wanted
    assert "half a line" in done.stderr


def test_the_same_as_text(play):
    done = run(play, "--mode", "agent", "--launch")
    for word in ("agent.log", "IMPLEMENTATION_RESPONSE_A_HOUSE.md", "src/house.py", "**Summary**: three rooms"):
        assert word in done.stdout
    assert "passwd" not in done.stdout


def test_a_sub_agent_that_fails_is_no_success(play):
    play.path = asked(play, "A tower", what="FAIL")
    left = json.loads(run(play, "--mode", "agent", "--launch", "--json", code=1).stdout)
    assert (left["status"], left["exit"], left["debrief"], left["text"]) == ("failed", 3, "", "")
    assert "builder ended with 3" in left["reason"]
    assert (play.root / left["log"]).read_text().startswith("I build")


@pytest.mark.parametrize("how", ["--launch", "--inline"])
def test_what_nobody_approved_is_neither_launched_nor_claimed(how, play):
    play.path = asked(play, "A tower", approve=False)
    assert "nobody approved it" in run(play, how, code=3).stderr
    assert "#needs-implementation" in play.tags(play.path)
    assert not list((play.root / "sessions").glob("20*"))


def test_a_definition_that_is_not_there_starts_nothing(play):
    assert "no file" in run(play, "--launch", "--definition", "nowhere.md", code=1).stderr
    is_untouched(play)


# --- who decides ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--wait"], ["--wait", "--json"]])
def test_without_a_terminal_nothing_is_done_without_a_word(words, play):
    assert "nobody said" in run(play, *words, code=3).stderr
    is_untouched(play)


def test_both_answers_are_none(play):
    run(play, "--launch", "--inline", code=2)
    is_untouched(play)


@pytest.mark.parametrize("typed", [b"\x04", b"\n", b"what?\n"], ids=["end of file", "empty", "neither"])
def test_silence_is_not_consent(typed, play):
    seen, code = on_terminal(play, "--wait", typed=typed)
    assert "launch builder for /implement, or continue inline? [launch/inline]" in seen
    assert (code, "nobody said" in seen) == (3, True)
    is_untouched(play)


def test_a_person_says_launch(play):
    seen, code = on_terminal(play, "--wait", "--mode", "agent", typed=b"launch\n")
    assert (code, "I build, step one" in seen, "**Summary**: three rooms" in seen) == (0, True, True)
    assert "#done-implementation" in play.tags(play.path)


def test_a_person_says_inline(play):
    seen, code = on_terminal(play, "--wait", typed=b"i\n")
    assert (code, "yours (claim " in seen) == (0, True)
    (claim,) = [one for one in play.log() if one["event"] == "claimed"]
    assert int(claim["holder"].split("/")[2]) == os.getpid()  # who called
    assert "#claimed-implementation" in play.tags(play.path)


# --- inline ---------------------------------------------------------------------------------------


def test_inline_it_is_claimed_for_the_caller_who_finishes_it_under_that_claim(play):
    told = json.loads(run(play, "--inline", "--json").stdout)
    assert (told["status"], told["request"]) == ("inline", "sessions/PLAN/IMPLEMENTATION_REQUEST_A_HOUSE.md")
    assert told["environment"] == {"BATON_CLAIM": f"{told['request']}#implementation:{told['claim']}"}
    assert (play.root / told["session"]).is_dir()
    run(play, "--inline", code=1)  # it is taken
    play.environment |= told["environment"]
    play.baton("respond", str(play.path), "--summary", "done by hand")
    play.baton("tag", "swap", str(play.path), "#claimed-implementation", "#done-implementation")
    assert "#done-implementation" in play.tags(play.path)
    (response,) = (play.root / told["session"]).glob("IMPLEMENTATION_RESPONSE_*.md")
    assert "done by hand" in response.read_text()


def test_an_agent_that_goes_on_inline_holds_the_part_as_long_as_it_is_watched(play):
    (play.root.parent / "parent.py").write_text(PARENT)
    play.program("parent", [sys.executable, str(play.root.parent / "parent.py"), "{request}"])
    mine = play.item("mine", "fix", "the whole")
    argv = [sys.executable, "-P", "-m", "baton", "run", "/fix", str(mine), "--mode", "agent", "--program", "parent"]
    with subprocess.Popen(argv, cwd=play.root, env=play.environment, stderr=subprocess.DEVNULL) as wrapper:
        play.until(lambda: "#claimed-implementation" in play.tags(play.path))
        whole, part = [one for one in play.log() if one["event"] == "claimed"]
        assert part["holder"] == whole["holder"]
        assert int(part["holder"].split("/")[2]) == wrapper.pid
        play.baton("recover")  # twice, some seconds apart: its holder lives
        assert "#claimed-implementation" in play.tags(play.path)
        (play.root / "go").touch()
        assert wrapper.wait(45) == 0
    assert "#done-implementation" in play.tags(play.path)
    assert "#done-fix" in play.tags(mine)
