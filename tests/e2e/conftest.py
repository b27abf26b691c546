"""The command line in this process, and a board of its own whose agents are scripts."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baton.board.log import Log
from baton.cli import main


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder to stand in, with the state of a person of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("BATON_USER", "ana")
    monkeypatch.delenv("BATON_STORE", raising=False)
    return tmp_path


@pytest.fixture
def baton(capsys):
    """Call a verb: exit code, standard output, standard error."""

    def call(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def documents(baton):
    """Call a verb with --json and read every line."""

    def call(*words, code=0):
        got, out, err = baton(*words, "--json")
        assert got == code, (out, err)
        return [json.loads(line) for line in out.splitlines()]

    return call


AGENT = """\
import os, signal, subprocess, sys, time
request, root = sys.argv[1], os.environ["BATON_ROOT"]
said = open(request).read()
item, _, epoch = os.environ["BATON_CLAIM"].rpartition(":")
noun = item.rpartition("#")[2]
with open(os.path.join(root, "begun"), "a") as file:
    file.write(item + "\\n")
if "ONCE" in said and "## Recovery" not in said:
    os.kill(os.getpid(), signal.SIGKILL)
if "SLOW" in said:
    subprocess.Popen(["sleep", "1000"], close_fds=False)  # left behind, with the lock
    time.sleep(1000)
if "NEVER" in said:
    sys.exit(3)
with open(os.path.join(root, "effects"), "a") as file:
    file.write(item + "\\n")
swap = [sys.executable, "-P", "-m", "baton", "tag", "swap", request, "#claimed-" + noun, "#done-" + noun]
sys.exit(subprocess.call(swap))
"""


class Play:
    """A board of its own, with agents that are scripts, in an environment of its own."""

    def __init__(self, folder, windows):
        self.root, self.windows, self.socket = folder / "repo", windows, f"baton-test-{os.getpid()}"
        (self.root / ".git").mkdir(parents=True)
        (self.root / "sessions").mkdir()
        settings = folder / "config" / "baton"
        settings.mkdir(parents=True)
        (folder / "agent.py").write_text(AGENT)
        argv = json.dumps([sys.executable, str(folder / "agent.py"), "{request}"])
        (settings / "clis.toml").write_text(
            f'default = "script"\n[programs.script]\nenvironment = ["PYTHONPATH"]\n'
            f"interactive = {argv}\nheadless = {argv}\n"
        )
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # the baton that is tested, wherever it stands
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "TMUX_TMPDIR": str(folder),
            "BATON_USER": "ana",
        }
        self.daemons = []

    def program(self, name, argv):
        """Another row of programs."""
        with (self.root.parent / "config" / "baton" / "clis.toml").open("a") as file:
            file.write(f"[programs.{name}]\nheadless = {json.dumps(argv)}\n")
            file.write('environment = ["GEMINI_*", "OPENAI_*", "BATON_*", "PYTHONPATH"]\n')

    def tmux(self, *words):
        done = subprocess.run(
            ["tmux", "-L", self.socket, *words], env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout

    def baton(self, *words, code=0):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "baton", *words],
            cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def item(self, name, noun, words, weight="P1", *, approve=True):
        path = self.root / "sessions" / f"{name}.md"
        path.write_text(f"# {name}\n**Tags**: #needs-{noun} #{weight}\n\n{words}\n")
        if approve:
            self.baton("tag", "swap", str(path), f"#needs-{noun}", f"#delegated-{noun}")
        return path

    def daemon(self, *more):
        where = ["--windows", self.windows, "--socket", self.socket]
        argv = [
            sys.executable,
            "-P",
            "-m",
            "baton",
            "run",
            "--monitor-tags",
            *where,
            "--quiet",
            "0.2s",
            "--pause",
            "0.1s",
            *more,
        ]
        with (self.root.parent / "daemon.log").open("ab") as log:
            self.daemons.append(subprocess.Popen(argv, cwd=self.root, env=self.environment, stderr=log, stdout=log))
        return self.daemons[-1]

    def said(self):
        return (self.root.parent / "daemon.log").read_text()

    def lines(self, name):
        path = self.root / name
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def tags(self, path):
        return path.read_text().split("\n")[1]

    def until(self, what, seconds=40):
        ends = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < ends, self.said()
            time.sleep(0.05)

    def log(self):
        (folder,) = (self.root.parent / "state" / "baton" / "boards").iterdir()
        return list(Log(str(folder), str(self.root)).records())  # raises where a link of the chain does not hold

    def processes(self):
        """What runs of this play: it all knows the folder."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    if f"HOME={self.root.parent}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(
                            (int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
                        )
                except OSError:
                    continue
        return [one for one in found if "tmux" not in one[1]]

    def close(self):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        if self.windows == "tmux":
            subprocess.run(
                ["tmux", "-L", self.socket, "kill-server"], env=self.environment, capture_output=True, check=False
            )
        for pid, _ in self.processes():
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(pid, signal.SIGKILL)


WINDOWS = ["plain", pytest.param("tmux", marks=pytest.mark.proof("tmux"))]


@pytest.fixture
def board_play(tmp_path):
    """Make a board, in the kind of windows that is named."""
    made = []

    def make(windows):
        assert windows == "plain" or shutil.which("tmux")
        made.append(Play(tmp_path, windows))
        return made[-1]

    yield make
    for play in made:
        play.close()


@pytest.fixture(params=WINDOWS)
def play(request, board_play):
    """A board in each kind of windows."""
    return board_play(request.param)


@pytest.fixture
def plain(board_play):
    """The same, in plain processes alone."""
    return board_play("plain")


# An agent that does a few lines of its own and says that it is done, unless they end it.
STEPS = """\
import os, subprocess, sys
request, root = sys.argv[1], os.environ["BATON_ROOT"]
noun = os.environ["BATON_CLAIM"].rpartition(":")[0].rpartition("#")[2]
def note(name, text):
    with open(os.path.join(root, name), "a") as file:
        file.write(f"{text}\\n")
def baton(*words):
    return subprocess.call([sys.executable, "-m", "baton", *words])
note("begun", os.path.basename(request))
%s
sys.exit(baton("tag", "swap", request, "#claimed-" + noun, "#done-" + noun))
"""


@pytest.fixture
def agent(plain):
    """Let the agents of the board do these lines."""
    return lambda lines: (plain.root.parent / "agent.py").write_text(STEPS % lines)
