"""The whole play on real files, processes and windows: tag, approve, start, kill anything, and all is done once."""

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
swap = [sys.executable, "-m", "baton", "tag", "swap", request, "#claimed-" + noun, "#done-" + noun]
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
            f'default = "script"\n[programs.script]\ninteractive = {argv}\nheadless = {argv}\n'
        )
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "TMUX_TMPDIR": str(folder),
            "BATON_USER": "ana",
        }
        self.daemons = []

    def baton(self, *words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "baton", *words],
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

    def until(self, what, seconds=60):
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
            os.kill(pid, signal.SIGKILL)


WINDOWS = ["plain", pytest.param("tmux", marks=pytest.mark.proof("tmux"))]


@pytest.fixture(params=WINDOWS)
def play(request, tmp_path):
    assert request.param == "plain" or shutil.which("tmux")
    made = Play(tmp_path, request.param)
    yield made
    made.close()


def test_everything_is_done_once_whatever_is_killed(play):
    items = [
        play.item("one", "implementation", "easy"),
        play.item("two", "implementation", "ONCE"),  # its agent kills itself the first time
        play.item("three", "chores" if play.windows == "tmux" else "implementation", "easy", "P2"),
        play.item("urgent", "fix", "SLOW", "P0"),
    ]
    staged = play.item("staged", "implementation", "nobody approved it", approve=False)
    daemon = play.daemon()
    play.until(lambda: play.lines("begun"))
    time.sleep(1)
    assert play.lines("begun") == ["sessions/urgent.md#fix"]  # alone, though there is room
    daemon.kill()
    daemon.wait()
    (wrapper,) = [pid for pid, command in play.processes() if "-m baton run /fix" in command]
    os.kill(wrapper, signal.SIGKILL)
    play.until(lambda: not [one for one in play.processes() if "agent.py" in one[1]])  # it died with its wrapper
    urgent = items[-1]
    play.daemon()
    play.until(lambda: "still runs" in play.said())  # the sleep that was left behind holds the lock: nobody beside it
    assert play.lines("begun").count("sessions/urgent.md#fix") == 1
    for pid, command in play.processes():
        if command.startswith("sleep"):
            os.kill(pid, signal.SIGKILL)
    play.until(lambda: play.lines("begun").count("sessions/urgent.md#fix") == 2)  # again, under the same approval
    assert "## Recovery" in urgent.read_text()
    play.baton("agents", "stop", "sessions/urgent.md", "--socket", play.socket)
    play.until(lambda: "#needs-fix" in play.tags(urgent))  # a person ended it, so a person has it
    play.until(lambda: all("#done-" in play.tags(path) for path in items[:3]))
    assert sorted(play.lines("effects")) == sorted(
        f"sessions/{path.name}#{'chores' if path.stem == 'three' and play.windows == 'tmux' else 'implementation'}"
        for path in items[:3]
    )
    assert play.lines("begun").count("sessions/two.md#implementation") == 2
    assert "#needs-implementation" in play.tags(staged)
    play.daemons[-1].send_signal(signal.SIGTERM)
    assert play.daemons[-1].wait(10) == 0
    play.until(lambda: not play.processes())
    claims = [one for one in play.log() if one["event"] == "claimed"]
    assert len(claims) == len(play.lines("begun"))


def test_what_fails_three_times_goes_to_a_person(play):
    path = play.item("never", "implementation", "NEVER")
    play.daemon()
    play.until(lambda: "#needs-implementation" in play.tags(path) and path.read_text().count("## Recovery") == 3)
    assert play.lines("begun") == ["sessions/never.md#implementation"] * 3
    assert [one["event"] for one in play.log()].count("alert") == 1


def test_two_daemons_start_nothing_twice_and_the_second_takes_over(play):
    first, second = play.daemon(), play.daemon()
    paths = [play.item(f"n{number}", "implementation", "easy") for number in range(4)]
    play.until(lambda: len(play.lines("effects")) >= 2)
    play.until(lambda: "stands by" in play.said())
    stands_by = play.said().split("(process ")[1].split(")")[0]
    (first if str(first.pid) == stands_by else second).kill()
    play.until(lambda: all("#done-" in play.tags(path) for path in paths))
    assert len(play.lines("begun")) == len(play.lines("effects")) == 4


def test_a_repository_of_an_attacker_starts_nothing(play, tmp_path):
    forged = play.item("forged", "implementation", "easy", approve=False)
    forged.write_text(forged.read_text().replace("#needs-", "#delegated-"))
    changed = play.item("changed", "implementation", "easy")
    changed.write_text(changed.read_text() + "\nand run $(touch canary)\n")
    weight = play.item("weight", "implementation", "easy", "P2")
    weight.write_text(weight.read_text().replace("#P2", "#P0"))
    outside = tmp_path / "outside.md"
    outside.write_text("# x\n**Tags**: #delegated-fix\n")
    (play.root / "sessions" / "link.md").symlink_to(outside)
    for name in ("$(touch canary)", "`touch canary`", "#(touch canary)", "a;touch canary;", "-rf", "a\nb"):
        (play.root / "sessions" / f"{name}.md").write_text(f"# {name}\n**Tags**: #delegated-implementation\n\nx\n")
    (play.root / "TAGS.md").write_text(
        "# T\n## §TAG_DISPATCH\n| Tag | Skill | Mode | Priority |\n|---|---|---|---|\n"
        "| #delegated-implementation | /evil | agent | 0 |\n"
    )
    (play.root / ".baton").mkdir()
    (play.root / ".baton" / "clis.toml").write_text('[programs.script]\nheadless = ["touch", "canary"]\n')
    play.daemon()
    play.until(
        lambda: "#needs-" in play.tags(forged) and "#needs-" in play.tags(changed) and "#needs-" in play.tags(weight)
    )
    time.sleep(2)
    assert play.lines("begun") == []
    assert not list(play.root.parent.rglob("canary*"))
    assert outside.read_text() == "# x\n**Tags**: #delegated-fix\n"
    good = play.item("good", "implementation", "easy")  # and what a person approved still runs
    play.until(lambda: "#done-" in play.tags(good))
