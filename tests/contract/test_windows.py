"""Where agents run: one suite over tmux windows and plain processes, and what only one of them can get wrong."""

import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from baton import clock, processes
from baton.board import windows_tmux
from baton.board.windows import Job, Window, Windows, open_windows
from baton.board.windows_plain import Plain
from baton.board.windows_tmux import Tmux
from baton.errors import Malformed, NotFound, TimedOut, TooLarge, Unfinished

PATH = os.environ["PATH"]


def until(what, patience=20.0):
    deadline = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
    return found


def job(folder, *argv, noun="fix", item="a/REQUEST.md", **more):
    return Job(
        noun=noun, item=item, request=f"/r/{item}", argv=argv, folder=str(folder),
        environment={"PATH": PATH, **more},
    )  # fmt: skip


def shell(folder, text, *more, **environment):
    return job(folder, "sh", "-c", text, "sh", *more, **environment)


def alive(pid):
    return processes.started(pid) is not None


def seen(place, window):
    return next((one for one in place.list() if one.id == window.id), None)


def ended(place, window):
    return until(lambda: (one := seen(place, window)) and not one.running and one)


def kill(pid, number=signal.SIGKILL):
    os.kill(pid, number)


class Still:
    """A clock that stands."""

    def __init__(self):
        self.system = clock.SystemSource()
        self.monotonic, self.new_id, self.random = self.system.monotonic, self.system.new_id, self.system.random

    def now(self):
        return 1_707_235_200_000_000


@pytest.fixture
def sockets(monkeypatch):
    """A place for the sockets of tmux, with a short name, for sockets need one."""
    with tempfile.TemporaryDirectory(prefix="bt") as folder:
        monkeypatch.setenv("TMUX_TMPDIR", folder)
        yield folder


class WindowsContract:
    """Subclass with `again`, which opens the same place anew."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path, sockets):
        self.tmp = tmp_path
        self.begin()
        self.place = self.again()
        yield
        for window in self.again().list():
            self.place.stop(window, 0)
        self.end()

    def begin(self): ...

    def end(self): ...

    def again(self) -> Windows:
        raise NotImplementedError

    def test_a_program_runs_as_it_was_told_with_nothing_else_around_it(self, monkeypatch):
        monkeypatch.setenv("SECRET", "s")
        inside = self.tmp / "in side;"
        inside.mkdir()
        program = 'printf "%s|" "$PWD" "$@" >out; env >>out; mv out done; sleep 60'
        made = self.place.start(shell(inside, program, "a b", "$(x)", "", "#{y};", ";", MARK="1;"))
        said = until(lambda: (inside / "done").exists() and (inside / "done").read_text())
        head, _, environment = said.rpartition("|")
        assert head == f"{inside}|a b|$(x)||#{{y}};|;"
        names = {line.partition("=")[0] for line in environment.splitlines()}
        assert names - {"PWD", "SHLVL", "_", "OLDPWD", "COLORTERM"} == {"PATH", "MARK", "TERM"}
        assert (made.noun, made.item, made.request, made.running, made.status) == (
            "fix", "a/REQUEST.md", "/r/a/REQUEST.md", True, None,
        )  # fmt: skip
        assert made.name.startswith("agent-fix-")
        assert abs(made.begun - clock.now()) < 60 * clock.SECOND
        assert processes.started(made.pid) == made.started
        assert [one.pid for one in self.again().list()] == [made.pid]
        found = seen(self.place, made)
        assert {name: getattr(found, name) for name in found.__struct_fields__ if name != "active"} == {
            name: getattr(made, name) for name in found.__struct_fields__ if name != "active"
        }

    @pytest.mark.parametrize(
        ("program", "status"),
        [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -15 $$", -15), ("exec nowhere-to-be-found", 127)],
    )
    def test_how_it_ended_is_known_to_whoever_asks_later(self, program, status):
        made = self.place.start(shell(self.tmp, program))
        ended(self.place, made)
        last = seen(self.again(), made)
        assert (last.running, last.status, last.pid, last.started) == (False, status, made.pid, made.started)

    def test_what_cannot_be_started_ends_with_127(self):
        for odd in (job(self.tmp, "nowhere-to-be-found"), job(self.tmp / "gone", "true"), job(self.tmp, str(self.tmp))):
            assert ended(self.place, self.place.start(odd)).status == 127

    def test_it_has_ended_though_others_still_write_to_its_terminal(self):
        made = self.place.start(shell(self.tmp, "trap '' HUP; sleep 60 & echo $! >child; exit 3"))
        assert ended(self.place, made).status == 3
        child = int(until((self.tmp / "child").read_text))
        assert alive(child)
        assert self.place.stop(made, 0).status == 3
        assert not alive(child)

    def test_it_is_asked_to_end_before_it_is_made_to(self):
        made = self.place.start(
            shell(self.tmp, "trap 'echo x >asked; exit 5' TERM; echo >ready; while :; do sleep 0.05; done")
        )
        until((self.tmp / "ready").exists)
        last = self.place.stop(made)
        assert (last.running, last.status) == (False, 5)
        assert (self.tmp / "asked").exists()
        assert self.again().list() == []

    def test_who_does_not_listen_is_killed_with_all_that_came_from_it(self):
        program = """
trap '' TERM HUP
sh -c 'trap "" TERM HUP; echo $$ >child; while :; do sleep 60; done' &
setsid sh -c 'trap "" TERM HUP; echo $$ >session; while :; do sleep 60; done' &
sleep 60 & echo $! >stopped; kill -STOP $!
while :; do sleep 0.1; done
"""
        made = self.place.start(shell(self.tmp, program))
        files = [self.tmp / name for name in ("child", "session", "stopped")]
        until(lambda: all(file.exists() and file.read_text() for file in files))
        family = [int(file.read_text()) for file in files]
        assert all(map(alive, [made.pid, *family]))
        last = self.place.stop(made, 0.3)
        assert (last.running, last.status) == (False, -9)
        assert not any(map(alive, [made.pid, *family]))
        assert not [one for one in processes.table().values() if one.session == made.pid]
        assert self.place.list() == []

    def test_others_and_the_next_with_the_same_number_are_left_alone(self):
        made = self.place.start(shell(self.tmp, "sleep 60"))
        other = self.place.start(shell(self.tmp, "sleep 60"))
        with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
            fake = type(made)(**{**{n: getattr(made, n) for n in made.__struct_fields__}, "pid": stranger.pid})
            self.place.stop(fake, 0)  # the number is now another one's
            assert alive(stranger.pid)
            self.place.stop(made, 0)
            assert [one.pid for one in self.place.list()] == [other.pid]
            assert alive(other.pid)
            assert alive(stranger.pid)
            stranger.kill()

    def test_to_stop_twice_or_after_the_end_closes_and_harms_nobody(self):
        made = self.place.start(shell(self.tmp, "exit 4"))
        ended(self.place, made)
        assert self.place.stop(made).status == 4
        assert self.place.list() == []
        again = self.place.stop(made)
        assert (again.running, again.pid) == (False, made.pid)

    def test_names_that_meet_are_told_apart(self):
        with clock.use(Still()):
            made = [self.place.start(job(self.tmp, "sleep", "60", noun=noun)) for noun in ("fix", "fix", "a-b", "fix")]
        assert [one.name for one in made] == [
            "agent-fix-1707235200", "agent-fix-1707235200-2", "agent-a-b-1707235200", "agent-fix-1707235200-3",
        ]  # fmt: skip
        assert len({one.id for one in made}) == 4
        self.place.stop(made[1], 0)
        assert sorted(one.name for one in self.place.list()) == sorted(made[n].name for n in (0, 2, 3))

    def test_several_processes_start_at_once_and_each_has_its_own(self):
        program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_windows as t
from baton import clock
place = {self.source()}
with clock.use(t.Still()):
    for _ in range(4):
        place.start(t.job({str(self.tmp)!r}, "sleep", "60"))
"""
        with (
            subprocess.Popen([sys.executable, "-c", program]) as one,
            subprocess.Popen([sys.executable, "-c", program]) as two,
            subprocess.Popen([sys.executable, "-c", program]) as three,
        ):
            pass
        assert [one.returncode, two.returncode, three.returncode] == [0, 0, 0]
        found = self.place.list()  # those of processes that are gone go on
        assert len(found) == len({w.name for w in found}) == len({w.id for w in found}) == 12
        assert all(one.running for one in found)
        until(lambda: not list(self.tmp.rglob("*.start")))

    @pytest.mark.parametrize("step", ["_made", "argv", "go"])
    def test_whoever_dies_half_way_starts_nothing(self, step):
        program = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_windows as t
from baton.board import jobs
place = {self.source()}
before = jobs.Ticket.{step}
def die(*args, **more):
    if {step!r} == "argv":
        import threading, time
        threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        return before(*args, **more)
    if {step!r} == "_made":
        before(*args, **more)
    os.kill(os.getpid(), signal.SIGKILL)
jobs.Ticket.{step} = die
if {step!r} == "argv":
    jobs.Ticket.go = lambda *args, **more: __import__("time").sleep(60)
place.start(t.shell({str(self.tmp)!r}, "echo >canary; sleep 60"))
"""
        done = subprocess.run([sys.executable, "-c", program], check=False)
        assert done.returncode == -9
        time.sleep(0.3)
        assert not [one for one in self.place.list() if one.running and "launch.py" not in command_of(one.pid)]
        until(lambda: not [one for one in self.place.list() if one.running])
        assert not (self.tmp / "canary").exists()
        assert all(one.status == 75 for one in self.place.list())
        for left in (self.tmp / "state").glob("*.start"):
            os.utime(left, (1, 1))
        self.place.start(shell(self.tmp, "sleep 60"))
        until(lambda: not list((self.tmp / "state").glob("*.start")))

    def test_what_is_written_shows_that_it_works(self):
        made = self.place.start(shell(self.tmp, "while [ ! -e go ]; do sleep 0.05; done; echo something; sleep 60"))
        time.sleep(1.1)
        before = seen(self.place, made).active
        (self.tmp / "go").touch()
        assert until(lambda: seen(self.place, made).active > before)

    def test_the_command_to_attach_shows_it(self):
        made = self.place.start(shell(self.tmp, "echo hello from inside; sleep 60"))
        assert not self.place.attached()
        pid, terminal = pty.fork()
        if not pid:
            os.environ["TERM"] = "xterm"
            os.environ.pop("TMUX", None)
            argv = self.place.attach(made)
            os.execvp(argv[0], argv)
        said = b""
        while b"hello from inside" not in said:
            said += os.read(terminal, 4096)
        assert until(self.place.attached) if self.place.shows else not self.place.attached()
        kill(pid)
        os.waitpid(pid, 0)
        os.close(terminal)
        until(lambda: not self.place.attached())
        assert alive(made.pid)

    @pytest.mark.parametrize(
        ("more", "error"),
        [({"noun": odd}, Malformed) for odd in ("", "a b", "#(x)", "x;", "-x", "a\n", "é", "x" * 61, "a--b", "../a")]
        + [({"item": odd}, Malformed) for odd in ("", "a\0b", "x" * 4097)]
        + [({"argv": odd}, Malformed) for odd in ((), ("",), ("a\0",))]
        + [({"environment": odd}, Malformed) for odd in ({"A=": "1"}, {"": "1"}, {"A": "\0"})]
        + [({"argv": ("a", "x" * 1024 * 1024)}, TooLarge)],
    )
    def test_a_job_that_cannot_be_is_refused_before_anything_happens(self, more, error):
        right = {"noun": "fix", "item": "a", "request": "/a", "argv": ("true",), "folder": "/"}
        with pytest.raises(error):
            self.place.start(Job(**{**right, **more}))
        assert self.place.list() == []


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return "launch.py"  # it is gone


class TestPlain(WindowsContract):
    def again(self):
        return Plain(self.tmp / "state")

    def source(self):
        return f"t.Plain(t.Path({str(self.tmp / 'state')!r}))"

    def test_what_it_writes_is_in_its_log(self):
        made = self.place.start(shell(self.tmp, "echo out; echo err >&2; read x || echo no input"))
        ended(self.place, made)
        assert Path(made.log).read_text() == "out\nerr\nno input\n"
        assert Path(made.log).stat().st_mode & 0o077 == 0
        self.place.stop(made)
        assert Path(made.log).exists()

    def test_where_nobody_saw_the_end_its_status_is_unknown(self):
        made = self.place.start(shell(self.tmp, "sleep 60"))
        keeper = json.loads((self.tmp / "state" / f"{made.name}.json").read_text())["keeper"][0]
        kill(keeper)
        until(lambda: not alive(keeper))
        assert seen(self.place, made).running
        kill(made.pid)
        last = ended(self.place, made)
        assert last.status is None
        assert self.place.stop(made).running is False
        assert self.place.list() == []

    def test_a_record_of_an_earlier_boot_is_of_no_living_process(self):
        made = self.place.start(shell(self.tmp, "sleep 60"))
        file = self.tmp / "state" / f"{made.name}.json"
        whole = file.read_text()
        file.write_text(json.dumps({**json.loads(whole), "boot": "before"}))
        assert (seen(self.place, made).running, seen(self.place, made).status) == (False, None)
        file.write_text(whole)
        assert seen(self.place, made).running
        file.write_text("[]")
        with pytest.raises(Unfinished, match="not readable"):
            self.place.list()
        file.write_text("{")
        with pytest.raises(Unfinished, match="not readable; end that agent by hand"):
            self.place.list()
        file.write_text(whole)


@pytest.mark.proof("tmux")
class TestTmux(WindowsContract):
    def begin(self):
        self.socket = f"baton-test-{os.getpid()}-{random.randrange(10**9)}"

    def again(self):
        return Tmux(self.tmp / "state", self.socket)

    def source(self):
        return f"t.Tmux(t.Path({str(self.tmp / 'state')!r}), {self.socket!r})"

    def end(self):
        self.tmux("kill-server")

    def tmux(self, *argv):
        done = subprocess.run(["tmux", "-L", self.socket, *argv], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def test_the_session_is_dispatch_and_windows_keep_their_names(self):
        made = self.place.start(shell(self.tmp, r"printf '\033kevil\033\\'; echo >ready; sleep 60"))
        until((self.tmp / "ready").exists)
        time.sleep(0.1)
        assert self.tmux("list-windows", "-a", "-F", "#{session_name}:#{window_name}:#{window_id}") == (
            f"dispatch:{made.name}:{made.id}"
        )

    def test_a_session_with_a_longer_name_is_not_taken_for_it(self):
        self.tmux("new-session", "-d", "-s", "dispatch-of-mine", "sleep", "60")
        self.place.start(shell(self.tmp, "sleep 60"))
        assert self.tmux("list-sessions", "-F", "#{session_name}").split() == ["dispatch", "dispatch-of-mine"]

    def test_only_what_is_ours_is_listed_and_closed(self):
        self.tmux("new-session", "-d", "-s", "dispatch", "-n", "agent-fix-1", "sleep", "60")
        self.tmux("set-option", "-w", "-t", "dispatch:agent-fix-1", "@baton", "JTA.MQ")
        assert self.place.list() == []
        made = self.place.start(shell(self.tmp, "sleep 60"))
        self.tmux("split-window", "-d", "-t", made.id, "sleep", "61")
        self.tmux("set-option", "-g", "@baton", "a|b\nc")
        assert [one.id for one in self.place.list()] == [made.id]
        self.place.stop(made, 0)
        assert self.place.list() == []
        left = self.tmux("list-panes", "-a", "-F", "#{pane_start_command}")
        assert "sleep 60" in left
        assert "sleep 61" in left

    def test_the_same_id_after_a_restart_of_the_server_is_another_window(self):
        made = self.place.start(shell(self.tmp, "sleep 60"))
        self.tmux("kill-server")
        until(lambda: not alive(made.pid))
        assert self.place.list() == []
        after = self.place.start(shell(self.tmp, "sleep 60"))
        assert after.id == made.id
        assert self.place.stop(made, 0).pid == made.pid
        assert [one.pid for one in self.place.list()] == [after.pid]
        assert alive(after.pid)

    def test_a_program_that_outlives_the_server_is_still_stopped(self):
        made = self.place.start(shell(self.tmp, "trap '' HUP TERM; echo >ready; while :; do sleep 0.1; done"))
        until((self.tmp / "ready").exists)
        server = int(self.tmux("display-message", "-p", "#{pid}"))
        kill(server)
        until(lambda: not alive(server))
        assert self.place.list() == []
        assert not self.place.attached()
        assert alive(made.pid)
        assert self.place.stop(made, 0.1).running is False
        assert not alive(made.pid)

    def test_a_tmux_that_fails_or_hangs_is_an_error_and_never_an_empty_list(self, monkeypatch):
        fake = self.tmp / "bin" / "tmux"
        fake.parent.mkdir()
        fake.write_text("#!/bin/sh\necho protocol version mismatch >&2\nexit 1\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{fake.parent}:{PATH}")
        with pytest.raises(Unfinished, match="list-panes: protocol version mismatch"):
            self.place.list()
        with pytest.raises(Unfinished, match="protocol version mismatch"):
            self.place.start(shell(self.tmp, "true"))
        assert not list(self.tmp.rglob("*.start"))
        monkeypatch.setattr(windows_tmux, "_SECONDS", 0.2)
        fake.write_text("#!/bin/sh\nexec sleep 60\n")
        with pytest.raises(TimedOut, match="no answer in"):
            self.place.list()
        fake.unlink()
        monkeypatch.setenv("PATH", str(fake.parent))
        with pytest.raises(NotFound, match="install tmux"):
            self.place.list()
        monkeypatch.setenv("PATH", PATH)

    def test_a_server_that_missed_the_end_of_a_program_is_told_to_look(self, monkeypatch):
        """tmux 3.3a misses one of some hundred ends; the next SIGCHLD shows it what it missed."""
        told, fake = self.tmp / "told", self.tmp / "bin" / "tmux"
        program = (
            "import pathlib, signal, sys; signal.signal(signal.SIGCHLD, lambda *_: pathlib.Path(sys.argv[1]).touch())"
        )
        with (
            subprocess.Popen(["true"]) as gone,
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"{program}; print(1, flush=True); [signal.pause() for _ in range(99)]",
                    str(told),
                ],
                stdout=subprocess.PIPE,
            ) as server,
        ):
            server.stdout.readline()
            gone.wait()
            window = Window(
                id="@0", name="agent-fix-1", noun="fix", item="a", request="/a", pid=gone.pid, started="1", begun=1,
                active=1, running=True,
            )  # fmt: skip
            line = f"@0|%0|{gone.pid}||$sign|1|{server.pid}|{windows_tmux._mark(window, '%0')}"
            fake.parent.mkdir()
            fake.write_text(f'#!/bin/sh\n[ ! -e {told} ] || sign=15\necho "{line}"\n')
            fake.chmod(0o755)
            with monkeypatch.context() as patch:
                patch.setenv("PATH", f"{fake.parent}:{PATH}")
                found = self.place.list()
            server.kill()
        assert [(one.running, one.status) for one in found] == [(False, -15)]
        assert told.exists()

    def test_a_socket_has_a_plain_name(self):
        for odd in ("../x", "-x y", "", "a;b"):
            with pytest.raises(Malformed, match="tmux socket"):
                Tmux(self.tmp, odd)


@pytest.mark.proof("tmux")
def test_without_tmux_or_with_an_old_one_auto_is_plain_and_tmux_says_why(tmp_path, monkeypatch):
    assert isinstance(open_windows(tmp_path), Tmux)
    assert isinstance(open_windows(tmp_path, "plain"), Plain)
    fake = tmp_path / "bin" / "tmux"
    fake.parent.mkdir()
    monkeypatch.setenv("PATH", str(fake.parent))
    for text, said in [
        (None, "tmux: not found on PATH; install tmux, or let agents run as plain processes"),
        ("echo tmux 2.9a", "tmux 2.9a is too old; install 3.0 or later, or let agents run as plain processes"),
    ]:
        if text:
            fake.write_text(f"#!/bin/sh\n{text}\n")
            fake.chmod(0o755)
        assert isinstance(open_windows(tmp_path), Plain)
        with pytest.raises(NotFound) as caught:
            open_windows(tmp_path, "tmux")
        assert str(caught.value) == said
    for text in ("echo tmux 3.0", "echo tmux next-3.6", "echo tmux master"):
        fake.write_text(f"#!/bin/sh\n{text}\n")
        assert isinstance(open_windows(tmp_path), Tmux)


# --- hostile names --------------------------------------------------------------------------------

PIECES = (
    "$(canary)", "`canary`", "#(canary)", "; canary", ";canary;", "| canary", "& canary &", "&& canary", "|| canary",
    "\ncanary\n", "'; canary; '", '"; canary; "', "'$(canary)'", '"$(canary)"', "\\; run-shell canary",
    "; run-shell canary", "#{?1,#(canary),}", "#{E:@x}#(canary)", "#{l:a}", "#[fg=red]", "${IFS}canary", "$(canary",
    "-c canary", "--", "-t", "-n x", "-x;", ";", "\\;", "{ canary }", "} ; canary", "%if 1 canary", "~", "*", "?",
    "[a]", "!canary", "\\", "'", '"', "`", "$", "#", " ", "\t", "\r", "\x1b[2J", "\x1bkx\x1b\\", "\x7f", "é", "中文",
    "\u202e", "😀", "\ufeff", "\udcff", "a", "plan", "REQUEST", ".md", "@0", "%0", "=", ":", "dispatch:", "> out",
    "< in", "(canary)", "eval canary", "exec canary",
)  # fmt: skip


def hostile(count):
    chance = random.Random(7)
    first = [f"{piece};" for piece in PIECES] + [f"-{piece}" for piece in PIECES] + list(PIECES)
    return first + ["".join(chance.choices(PIECES, k=chance.randint(1, 5))) for _ in range(count - len(first))]


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A command that leaves a mark when it is run, known to tmux and to all that it starts."""
    (tmp_path / "bin").mkdir()
    mark = tmp_path / "executed"
    program = tmp_path / "bin" / "canary"
    program.write_text(f"#!/bin/sh\necho x >>{mark}\n")
    program.chmod(0o755)
    real = shutil.which("tmux")
    spy = tmp_path / "bin" / "tmux"
    if real:
        spy.write_text(
            f'#!/bin/sh\nfor one in "$@"; do printf "%s\\0" "$one"; done >>{tmp_path}/argv\nexec {real} "$@"\n'
        )
        spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{PATH}")
    return mark


def attack(place, folder, names):
    """Start programs with these names as arguments, paths, folders and variables; what each program saw."""
    program = 'for one in "$@" "$EVIL" "$PWD"; do printf "%s\\0" "$one"; done >"$0.new"; mv "$0.new" "$0"'
    batch, outs = 50, []
    for number in range(0, len(names), batch):
        some = names[number : number + batch]
        odd, out = some[-1], folder / f"out{number}"
        where = folder / f"d{number}" / odd.replace("/", "_")
        where.mkdir(parents=True)
        made = place.start(
            Job(
                noun="fix", item=odd, request=f"/r/{some[0]}", argv=("sh", "-c", program, str(out), *some),
                folder=str(where), environment={"PATH": os.environ["PATH"], "EVIL": some[1]},
            )
        )  # fmt: skip
        outs.append((out, [*some, some[1], str(where)], made, odd, some[0]))
    for out, wanted, made, odd, first in outs:
        got = [os.fsdecode(one) for one in until(lambda out=out: out.exists() and out.read_bytes()).split(b"\0")[:-1]]
        assert got == wanted
        assert (made.item, made.request) == (odd, f"/r/{first}")
    listed = {one.id: (one.item, one.request) for one in place.list()}
    assert listed == {made.id: (odd, f"/r/{first}") for _, _, made, odd, first in outs}
    return len(names)


@pytest.mark.timeout(300)
def test_no_name_is_ever_executed_by_plain_processes(tmp_path, trap):
    place = Plain(tmp_path / "state")
    assert attack(place, tmp_path, hostile(2000)) >= 2000
    for window in place.list():
        place.stop(window)
    assert not trap.exists()


@pytest.mark.proof("tmux")
@pytest.mark.timeout(300)
def test_no_name_is_ever_executed_by_tmux_and_the_naive_form_executes(tmp_path, trap, sockets):
    names = hostile(2000)
    socket = f"baton-hostile-{os.getpid()}"
    place = Tmux(tmp_path / "state", socket)

    def tmux(*argv):
        return subprocess.run(["tmux", "-L", socket, *argv], capture_output=True, check=False)

    try:
        assert attack(place, tmp_path, names) >= 2000
        tmux("list-windows", "-a", "-F", "#{E:@baton} #{T:@baton} #{E:window_name}")
        tmux("display-message", "-p", "-t", "dispatch:", "#{E:@baton}#{W:#{E:@baton}}#{S:#{E:window_name}}")
        time.sleep(0.5)  # what tmux runs in its formats it runs a little later
        assert not trap.exists()
        words = (tmp_path / "argv").read_bytes().decode("ascii").split("\0")
        allowed = str(tmp_path)
        assert not {"send-keys", "run-shell", "respawn-pane", "-c"} & set(words)
        own = [word for word in words if word not in {";", ""} and not word.startswith(("#{", allowed, sys.executable))]
        assert {char for word in own for char in word} <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@%=:/ +"
        ) | set(str(Path(sys.executable))) | set("#{}|,")  # fmt: skip

        for name in names[:300]:  # one text for a shell: the naive form
            tmux("new-window", "-d", "-t", "dispatch:", "-n", "agent-fix-1", os.fsencode(f"cat /r/{name}"))
        until(lambda: trap.exists() and len(trap.read_text().splitlines()) > 20)
    finally:
        tmux("kill-server")
