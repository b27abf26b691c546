"""Processes by number and begin: who belongs to a family, and what is said where there is no /proc."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from baton import processes
from baton.processes import Family, Process, end, started, table


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        yield child
        child.kill()


def test_a_process_is_known_by_number_and_begin(sleeper):
    fields = Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()
    assert started(sleeper.pid) == fields[19]
    assert table()[sleeper.pid] == Process(sleeper.pid, os.getpid(), sleeper.pid, sleeper.pid, fields[19])


def test_what_ended_and_was_not_fetched_does_not_live(sleeper):
    sleeper.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert started(sleeper.pid) is None
    assert sleeper.pid not in table()
    assert started(2**22 + 1) is None


def test_without_proc_ps_says_the_same(sleeper, monkeypatch):
    with_proc = {pid: one[:3] for pid, one in table().items()}
    monkeypatch.setattr(processes, "_PROC", False)
    without = {pid: one[:3] for pid, one in table().items()}
    assert without[sleeper.pid] == with_proc[sleeper.pid]
    assert with_proc.keys() & without.keys() >= {1, os.getpid(), sleeper.pid}
    begun = time.mktime(time.strptime(started(sleeper.pid)))
    assert abs(begun - time.time()) < 30
    assert end(sleeper.pid, started(sleeper.pid), 5) == []
    assert sleeper.wait() == -signal.SIGTERM


def test_a_number_with_another_begin_is_not_touched(sleeper):
    assert end(sleeper.pid, "1", 0) == []
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ({10: (1, 10, 10), 11: (10, 10, 10), 12: (11, 12, 12), 13: (1, 13, 13)}, [10, 11, 12]),
        (
            {11: (1, 10, 10), 12: (1, 12, 10), 13: (12, 13, 13), 14: (1, 10, 9)},
            [11, 12, 13, 14],
        ),  # the first one is gone
        ({10: (1, 10, 10, "later"), 11: (10, 10, 10)}, []),  # and its number is another one's now
    ],
)
def test_a_family_is_the_session_and_all_that_came_from_it(rows, found, monkeypatch):
    every = {pid: Process(pid, *row, *(["t"] if len(row) == 3 else [])) for pid, row in rows.items()}
    monkeypatch.setattr(processes, "table", lambda: every)
    assert [one.pid for one in Family(10, "t").living()] == found


def test_who_was_once_seen_belongs_to_it_for_good(monkeypatch):
    family = Family(10, "t")
    monkeypatch.setattr(processes, "table", lambda: {10: Process(10, 1, 10, 10, "t"), 11: Process(11, 10, 11, 11, "t")})
    assert len(family.living()) == 2
    monkeypatch.setattr(processes, "table", lambda: {11: Process(11, 1, 11, 11, "t"), 12: Process(12, 11, 12, 12, "t")})
    assert [one.pid for one in family.living()] == [11, 12]
    monkeypatch.setattr(processes, "table", lambda: {11: Process(11, 1, 11, 11, "later")})
    assert family.living() == []


def test_nobody_ends_himself():
    session = os.getsid(0)
    assert os.getpid() not in {one.pid for one in Family(session, started(session) or "").living()}


def test_what_does_not_end_is_named(sleeper, monkeypatch):
    monkeypatch.setattr(processes, "_send", lambda *_: None)
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    assert [one.pid for one in end(sleeper.pid, started(sleeper.pid), 0)] == [sleeper.pid]
