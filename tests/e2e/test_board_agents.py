"""What an agent starts cannot approve, however it hides: real processes below a real wrapper.

The wrapper here is a small one: it claims as `run` does, marks itself, starts what it is told and waits.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baton.board import ancestry, log
from baton.board.actor import Actor
from baton.board.moves import Move, make
from baton.board.root import board_of
from baton.errors import NotAuthorised
from baton.stores import holder

WRAPPER = """
import os, subprocess, sys
from baton.board.actor import Actor
from baton.board.moves import Move, make
from baton.board.root import board_of
from baton.board.subreaper import adopt_orphans
from baton.stores import holder

file, marked, *command = sys.argv[1:]
if marked == "marked":
    assert adopt_orphans()
board, real = board_of(file)
epoch = make(Move(board, real, "fix", "delegated", "claimed"), Actor("wrapper", holder.identity(), supervised=True))
child = subprocess.Popen(command, env={**os.environ, "BATON_CLAIM": f"{board.name(real)}#fix:{epoch}"})
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
# Asks to approve, and notes what it was told and who its parents were.
ASK = """
import os, sys
os.environ["XDG_STATE_HOME"], file, told = sys.argv[1:4]
from baton.board import ancestry
from baton.board.actor import Actor
from baton.board.approvals import approve
from baton.board.moves import Move
from baton.board.root import board_of
from baton.errors import BatonError
from baton.stores import holder

board, real = board_of(file)
above = " ".join(str(one.pid) for one in ancestry._upwards(os.getpid()))
try:
    approve(Move(board, real, "fix", "needs", "delegated"), Actor("agent", holder.identity()))
    said = "approved"
except BatonError as error:
    said = f"{type(error).__name__}: {error}"
with open(told + ".new", "w") as out:
    out.write(f"{above}\\n{said}\\n{os.getsid(0)} {os.environ.get('BATON_CLAIM')}")
os.rename(told + ".new", told)
"""
# Starts a command with nothing of this process: a new session, no environment, and a parent that is gone.
HIDE = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
time.sleep(0.3)
os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {"PATH": os.defpath})
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("BATON_CLAIM", "BATON_ROOT", "TMUX", "TMUX_PANE"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    (root / "MINE.md").write_text("# Mine\n**Tags**: #delegated-fix\n")
    (root / "OTHER.md").write_text("# Other\n**Tags**: #needs-fix\n")
    for name, text in (("wrapper.py", WRAPPER), ("ask.py", ASK), ("hide.py", HIDE)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def run(place):
    begun = []

    def call(*command, marked="marked"):
        words = [sys.executable, place / "wrapper.py", place / "repo/MINE.md", marked, *command]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True)
        begun.append(process)
        return process

    yield call
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def asking(place):
    return [place / "ask.py", place / "state", place / "repo/OTHER.md", place / "told"]


def answer(place, seconds=30):
    end = time.monotonic() + seconds
    while not (place / "told").exists():
        assert time.monotonic() < end, "nobody asked"
        time.sleep(0.02)
    above, said, rest = (place / "told").read_text().split("\n")
    return [int(pid) for pid in above.split()], said, rest.split()


ATTACKS = {
    "directly": lambda ask: [sys.executable, *ask],
    "without an environment": lambda ask: ["env", "-i", sys.executable, *ask],
    "in a new session": lambda ask: ["setsid", "env", "-u", "BATON_CLAIM", sys.executable, *ask],
    "below a shell": lambda ask: ["sh", "-c", 'env -i "$@" & wait', "sh", sys.executable, *ask],
    "after a double fork": lambda ask: [sys.executable, Path(ask[0]).with_name("hide.py"), *ask],
}


@pytest.mark.parametrize("way", ATTACKS)
def test_what_an_agent_starts_is_refused(place, run, way):
    wrapper = run(*ATTACKS[way](asking(place)))
    above, said, (session, claim) = answer(place)
    assert wrapper.pid in above, "the way up leads to the wrapper"
    assert said.startswith("NotAuthorised")
    assert (claim == "None") == (way != "directly"), "it hid what it was given"
    if way in {"in a new session", "after a double fork"}:
        assert int(session) != os.getsid(wrapper.pid)
    assert "#needs-fix" in (place / "repo/OTHER.md").read_text()


def test_a_wrapper_that_does_not_mark_itself_loses_what_forks_twice(place, run):
    """The attack is real: without the mark, the way up leads past the wrapper."""
    wrapper = run(*ATTACKS["after a double fork"](asking(place)), marked="not")
    above, said, _ = answer(place)
    assert wrapper.pid not in above
    assert said == "approved"


def test_a_person_beside_it_may(place, run):
    run("sleep", "60")
    board, _ = board_of(str(place / "repo/OTHER.md"))
    until(lambda: "#claimed-fix" in (place / "repo/MINE.md").read_text())
    assert ancestry.evidence(board) == ""
    subprocess.run([sys.executable, *asking(place)], check=True)
    assert answer(place)[1] == "approved"


def until(look, seconds=30):
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_who_claimed_by_hand_is_refused_until_it_is_done(place):
    """A shell that holds work may be an agent's; nothing watches it, so only its own claim counts against it."""
    board, real = board_of(str(place / "repo/MINE.md"))
    me = Actor("me", holder.name_of(os.getppid()))
    make(Move(board, real, "fix", "delegated", "claimed"), me)
    with pytest.raises(NotAuthorised, match=f"process {os.getppid()}.*holds MINE"):
        ancestry.refuse_agents(board)
    make(Move(board, real, "fix", "claimed", "done"), me)
    ancestry.refuse_agents(board)


def test_a_wrapper_is_one_as_long_as_it_lives(place, run):
    """Its item is done, and it is still an agent's."""
    board, real = board_of(str(place / "repo/MINE.md"))
    me = Actor("me", holder.name_of(os.getppid()), supervised=True)
    make(Move(board, real, "fix", "delegated", "claimed"), me)
    make(Move(board, real, "fix", "claimed", "done"), me)
    with pytest.raises(NotAuthorised, match="holds MINE"):
        ancestry.refuse_agents(board)


def test_a_wrapper_in_another_container_may_be_above(place):
    board, real = board_of(str(place / "repo/MINE.md"))
    host, boot = holder.here()
    far = Actor("far", f"{host}0/{boot}/1/5/abcd", supervised=True)
    make(Move(board, real, "fix", "delegated", "claimed"), far)
    with pytest.raises(NotAuthorised, match="another container"):
        ancestry.refuse_agents(board)
    (place / "repo/MINE.md").write_text("# Mine\n**Tags**: #delegated-fix\n")
    again = Move(board, real, "fix", "delegated", "claimed")
    again.forced = True
    make(again, Actor("far", f"{host}0/other-boot/1/5/abcd", supervised=True))
    ancestry.refuse_agents(board)


def test_a_number_that_came_again_is_somebody_else(place):
    board, real = board_of(str(place / "repo/MINE.md"))
    host, boot = holder.here()
    gone = Actor("gone", f"{host}/{boot}/{os.getppid()}/1.abcd/abcd", supervised=True)
    make(Move(board, real, "fix", "delegated", "claimed"), gone)
    ancestry.refuse_agents(board)


def test_ps_says_the_same_as_proc():
    found, asked = ancestry._process(os.getpid()), ancestry._asked(os.getpid())
    assert (asked.pid, asked.parent, asked.terminal) == (found.pid, found.parent, found.terminal)


# --- terminals ------------------------------------------------------------------------------------


@pytest.fixture
def tmux(tmp_path):
    socket = f"/tmp/baton-{os.getpid()}-{time.monotonic_ns() % 10**6}"

    def call(*words):
        done = subprocess.run(
            ["tmux", "-S", socket, "-f", os.devnull, *map(str, words)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    call.socket = socket
    yield call
    subprocess.run(["tmux", "-S", socket, "kill-server"], capture_output=True, check=False)
    Path(socket).unlink(missing_ok=True)


@pytest.mark.proof("tmux")
@pytest.mark.parametrize("where", ["new-window", "split-window"])
def test_a_window_that_an_agent_opens_is_refused(place, tmux, where):
    ask = f"env -i {sys.executable} {' '.join(map(str, asking(place)))}"
    wrapper = [sys.executable, place / "wrapper.py", place / "repo/MINE.md", "marked"]
    opens = ["sh", "-c", f'{shutil.which("tmux")} {where} "{ask}"; sleep 60']
    tmux("new-session", "-d", "-s", "dispatch", "-x", "80", "-y", "24", *wrapper, *opens)
    pane = int(tmux("list-panes", "-t", "dispatch:", "-F", "#{pane_pid}").split()[0])
    above, said, (_, claim) = answer(place)
    assert pane not in above, "its parent is the server"
    assert claim == "None"
    assert said.startswith("NotAuthorised")
    assert "tmux session" in said
    assert "#needs-fix" in (place / "repo/OTHER.md").read_text()


@pytest.mark.proof("tmux")
def test_another_session_of_the_same_tmux_is_a_persons(place, tmux):
    wrapper = [sys.executable, place / "wrapper.py", place / "repo/MINE.md", "marked", "sleep", "60"]
    tmux("new-session", "-d", "-s", "dispatch", *wrapper)
    until(lambda: "#claimed-fix" in (place / "repo/MINE.md").read_text())
    tmux("new-session", "-d", "-s", "ana", sys.executable, *asking(place))
    assert answer(place)[1] == "approved"


@pytest.mark.proof("tmux")
def test_the_terminal_of_a_wrapper_is_refused(place, tmux):
    """A shell that runs a wrapper in the background: what is typed there may come from its agent."""
    words = " ".join([sys.executable, *map(str, [place / "wrapper.py", place / "repo/MINE.md", "marked", "sleep 60"])])
    asks = " ".join([sys.executable, *map(str, asking(place))])
    waits = f"until grep -q claimed {place}/repo/MINE.md; do sleep 0.05; done"
    tmux("new-session", "-d", "-s", "ana", "sh", "-c", f"{words} & {waits}; {asks}; sleep 60")
    _, said, _ = answer(place)
    assert said.startswith("NotAuthorised")
    assert "in this terminal" in said


# --- the real wrapper -----------------------------------------------------------------------------

ATTACKER = """\
import glob, os, subprocess, sys, time
request, root = sys.argv[1], os.environ["BATON_ROOT"]
home, told = os.path.dirname(root), os.path.join(root, "told")
kept = {"HOME": home, "XDG_STATE_HOME": home + "/state", "BATON_USER": "ana", "PATH": os.environ["PATH"]}
clean = ["env", "-i", *(f"{name}={value}" for name, value in kept.items())]
os.makedirs(told, exist_ok=True)
ways = {
    "review": ["review", "--approve", "sessions/OTHER.md"],
    "next": ["review", "--next", "sessions/OTHER.md"],
    "dismiss": ["review", "--dismiss", "sessions/OTHER.md"],
    "swap": ["tag", "swap", "sessions/OTHER.md", "#needs-fix", "#delegated-fix"],
    "force": ["tag", "swap", "sessions/OTHER.md", "#needs-fix", "#done-fix", "--force"],
    "trust": ["trust", "--yes"],
    "elsewhere": ["review", "--approve", f"{home}/elsewhere/OTHER.md"],
    "elsewhere-trust": ["trust", f"{home}/elsewhere", "--yes"],
}
hide = '''
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
time.sleep(0.2)
os.execvp(sys.argv[1], sys.argv[1:])
'''
def ask(name, words):
    words = " ".join([sys.executable, "-m", "baton", *map(repr, words)])
    return ["sh", "-c", f"cd {root}; {words} > {told}/{name}.out 2>&1; echo $? > {told}/{name}"]
for name, words in ways.items():
    subprocess.run(ask(name, words))
    subprocess.run([*clean, "setsid", *ask(f"{name}-clean", words)])
    subprocess.run([*clean, sys.executable, "-c", hide, *ask(f"{name}-hidden", words)])
expected = 3 * len(ways)
for socket in glob.glob(f"{home}/tmux-*/*"):
    window = ["tmux", "-S", socket, "new-window", "-t", "dispatch:", *clean, *ask("window", ways["review"])]
    expected += subprocess.run(window).returncode == 0
end = time.monotonic() + 30
while len([name for name in os.listdir(told) if "." not in name]) < expected and time.monotonic() < end:
    time.sleep(0.1)
sys.exit(3)
"""


def test_a_real_agent_decides_nothing(play):
    (play.root.parent / "agent.py").write_text(ATTACKER)
    other = play.item("OTHER", "fix", "something else", approve=False)
    (play.root / "TAGS.md").write_text("# nothing that anybody trusted\n")
    elsewhere = play.root.parent / "elsewhere"  # another board of the same person
    (elsewhere / ".git").mkdir(parents=True)
    (elsewhere / "TAGS.md").write_text("# nothing that anybody trusted\n")
    (elsewhere / "OTHER.md").write_text("# x\n**Tags**: #needs-fix\n")
    play.item("MINE", "implementation", "attack")
    play.daemon()
    told = play.root / "told"
    wanted = 25 if play.windows == "tmux" else 24
    play.until(lambda: told.is_dir() and len([one for one in told.iterdir() if not one.suffix]) >= wanted)
    for one in sorted(told.iterdir()):
        if not one.suffix:
            said = one.with_suffix(".out").read_text()
            assert one.read_text() == "3\n", f"{one.name}: {said}"
            assert "this is for a person" in said or "--force is for people" in said, one.name
    assert play.tags(other) == "**Tags**: #needs-fix #P1"
    assert (elsewhere / "OTHER.md").read_text() == "# x\n**Tags**: #needs-fix\n"
    assert [one for one in play.log() if one["event"] in {"approved", "trusted"} and one["by"] == "ana"][1:] == []


def test_of_a_long_log_only_claims_of_living_processes_are_read(place, monkeypatch):
    """The log of a board grows for years; asking whether an agent asks may not grow with all that ever claimed."""
    board, _ = board_of(str(place / "repo/MINE.md"))
    host, boot = holder.here()
    gone = next(pid for pid in range(2**22, 2**22 + 9) if not Path(f"/proc/{pid}").exists())
    for number in range(200):
        who = f"{host}/{boot}/{gone if number else os.getppid()}/1.abcd/abcd"
        board.log.append("claimed", f"{number}.md", "fix", holder=who, supervised=1)
    read, decode = [], log.decode
    monkeypatch.setattr(log, "decode", lambda line: (read.append(line), decode(line))[1])
    ancestry.refuse_agents(board)
    assert [line for line in read if b'"claimed"' in line and b'"0.md"' in line], "it was looked at"
    assert len(read) < 10
