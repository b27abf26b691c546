"""The fault kit finds what it is for, and nothing where there is nothing."""

import functools
import os
import sys
from pathlib import Path

import apsw
import pytest

from baton.testing import kill_sweep, power_loss, strace_sweep
from baton.testing.taps import tapped


def create(directory):
    db = apsw.Connection(f"{directory}/work.db")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE line(n INTEGER PRIMARY KEY, body TEXT)")
    db.close()


def insert(directory, acknowledge, synchronous="FULL", rows=8):
    db = apsw.Connection(f"{directory}/work.db")
    db.execute(f"PRAGMA synchronous={synchronous}")
    for n in range(rows):
        db.execute("INSERT INTO line VALUES (?, ?)", (n, "x" * 700))
        acknowledge(str(n))
        if n == rows // 2:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def create_and_insert(directory, acknowledge):
    create(directory)
    insert(directory, acknowledge)


def rows_are_there(directory, acknowledged):
    if not (acknowledged or Path(directory, "work.db").exists()):
        return
    db = apsw.Connection(f"{directory}/work.db")
    try:
        sound = db.execute("PRAGMA integrity_check").get
        tables = db.execute("SELECT count(*) FROM sqlite_schema").get
        kept = {str(n) for (n,) in db.execute("SELECT n FROM line")} if tables else set()
    finally:
        db.close()
    assert sound == "ok"
    assert not set(acknowledged) - kept


def append_and_forget(directory, acknowledge):
    with Path(directory, "log").open("a", buffering=64) as log:
        for n in range(20):
            log.write(f"line {n}\n")
            acknowledge(f"line {n}")


def append_and_sync(directory, acknowledge, sync_directory=True):
    log = os.open(f"{directory}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if sync_directory:
        home = os.open(directory, os.O_RDONLY)
        os.fsync(home)
        os.close(home)
    for n in range(10):
        os.write(log, f"line {n}\n".encode())
        os.fsync(log)
        acknowledge(f"line {n}")
    os.close(log)


def lines_are_there(directory, acknowledged):
    log = Path(directory, "log")
    kept = log.read_text().splitlines() if log.exists() else []
    missing = [line for line in acknowledged if line not in kept]
    return f"missing: {missing}" if missing else None


def write_config(directory):
    Path(directory, "config").write_text("old\n" * 500)


def replace_config(directory, acknowledge, sync=True):
    temporary = Path(directory, "config.new")
    with temporary.open("w") as file:
        file.write("new\n" * 500)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    temporary.replace(Path(directory, "config"))


def config_is_whole(directory, acknowledged):
    found = Path(directory, "config").read_text()
    return [] if found in {"old\n" * 500, "new\n" * 500} else [f"torn: {len(found)} characters"]


@pytest.mark.parametrize("mode", ["kill", "torn", "EIO", "ENOSPC"])
def test_sqlite_survives_a_fault_at_every_operation(mode):
    report = kill_sweep(create_and_insert, rows_are_there, mode=mode)
    report.assert_clean()
    assert report.points > 20
    assert (report.kills, report.errors)[mode in {"EIO", "ENOSPC"}] == report.points
    assert report.acknowledged > 0
    if mode == "kill":
        seen = set(report.operations)
        assert {"create work.db", "write work.db-wal", "sync work.db-wal", "sync work.db"} <= seen


def test_prepare_sets_the_stage_once_and_every_skips_points():
    whole = kill_sweep(insert, rows_are_there, prepare=create, where=["sqlite"])
    third = kill_sweep(insert, rows_are_there, prepare=create, where=["sqlite"], every=3)
    whole.assert_clean()
    assert third.points == -(-whole.points // 3)


def test_a_buffered_append_is_caught():
    report = kill_sweep(append_and_forget, lines_are_there)
    assert report.kills == report.points
    with pytest.raises(AssertionError, match="missing: "):
        report.assert_clean()


def test_a_synced_append_and_an_atomic_replace_survive():
    kill_sweep(append_and_sync, lines_are_there).assert_clean()
    report = kill_sweep(replace_config, config_is_whole, prepare=write_config)
    report.assert_clean()
    assert "rename config.new" in report.operations


def find_and_break(directory, acknowledged):
    yield "first"
    raise LookupError("in the middle")


def test_a_check_that_breaks_is_a_finding():
    report = power_loss(append_and_sync, find_and_break, images=10)
    assert len(report.violations) == 10
    assert "in the middle" in report.violations[0].detail
    assert kill_sweep(append_and_sync, find_and_break, every=9).violations


def test_a_sweep_without_a_hit_fails():
    with pytest.raises(AssertionError, match="no operation was hit"):
        kill_sweep(append_and_sync, lines_are_there, where=["sqlite"])


def fail(directory, acknowledge):
    raise LookupError("on its own account")


def test_a_workload_that_fails_by_itself_is_not_a_finding():
    with pytest.raises(RuntimeError, match="on its own account"):
        kill_sweep(fail, lines_are_there)


def test_taps_see_plain_files_and_are_taken_off_again(tmp_path):
    seen = []

    def tap(operation, perform):
        seen.append((operation.kind, Path(operation.path).name))
        return perform(operation.data)

    before = (os.write, os.open, open)
    with tapped(tap, ["files"]):
        (tmp_path / "a").write_text("one")
        (tmp_path / "a").rename(tmp_path / "b")
        with open(tmp_path / "b", "r+b") as file:  # noqa: PTH123 - the function itself is tapped
            file.truncate(1)
        os.link(tmp_path / "b", tmp_path / "c")
        (tmp_path / "b").unlink()
    assert (os.write, os.open, open) == before
    assert (tmp_path / "c").read_bytes() == b"o"
    assert seen == [
        *[
            ("create", "a"),
            ("write", "a"),
            ("rename", "a"),
            ("truncate", "b"),
            ("link", "b"),
            ("delete", "b"),
        ],
    ]


@pytest.mark.parametrize("mode", ["kill", "EIO"])
@pytest.mark.proof("strace")
def test_the_same_from_outside(mode):
    program = (
        "import os, sys\n"
        "log = os.open(sys.argv[1] + '/log', os.O_WRONLY | os.O_CREAT)\n"
        "for n in range(4):\n"
        "    os.write(log, b'line %d\\n' % n)\n"
        "    os.fsync(log)\n"
        "    print('line', n, flush=True)\n"
    )
    report = strace_sweep([sys.executable, "-S", "-c", program, "{directory}"], lines_are_there, mode=mode)
    report.assert_clean()
    assert report.points == 9
    assert (report.kills, report.errors)[mode == "EIO"] == 9


def test_a_thousand_power_cuts():
    report = power_loss(insert, rows_are_there, prepare=create, images=1000)
    report.assert_clean()
    assert report.images == 1000
    assert report.lossy > 200
    assert report.syncs > 8


def test_power_loss_from_the_first_byte():
    power_loss(create_and_insert, rows_are_there, images=500, seed=3).assert_clean()


@pytest.mark.parametrize("level", ["OFF", "NORMAL"])
def test_a_commit_without_its_sync_is_caught(level):
    workload = functools.partial(insert, synchronous=level)
    kill_sweep(workload, rows_are_there, prepare=create, every=4).assert_clean()
    assert power_loss(workload, rows_are_there, prepare=create, images=300).violations


@pytest.mark.parametrize("lie", [True, "-wal", ".db"])
def test_a_disk_that_lies_is_caught(lie):
    assert power_loss(insert, rows_are_there, prepare=create, images=300, ignore_sync=lie).violations


def test_what_sqlite_says_of_its_rollback_journal():
    # "EXTRA is like FULL with the addition that the directory is synced after the journal is unlinked."
    for level, kept in (("EXTRA", True), ("FULL", False)):
        workload = functools.partial(insert, synchronous=level)
        report = power_loss(workload, rows_are_there, prepare=create_with_rollback_journal, images=300)
        assert (not report.violations) == kept


def create_with_rollback_journal(directory):
    db = apsw.Connection(f"{directory}/work.db")
    db.execute("CREATE TABLE line(n INTEGER PRIMARY KEY, body TEXT)")
    db.close()


def test_power_loss_of_plain_files():
    power_loss(append_and_sync, lines_are_there, images=200).assert_clean()
    nameless = functools.partial(append_and_sync, sync_directory=False)
    assert power_loss(nameless, lines_are_there, images=200).violations
    power_loss(replace_config, config_is_whole, prepare=write_config, images=200).assert_clean()
    hasty = functools.partial(replace_config, sync=False)
    assert power_loss(hasty, config_is_whole, prepare=write_config, images=200).violations


def test_a_seed_replays_its_images():
    cut = functools.partial(power_loss, insert, rows_are_there, prepare=create, images=100, ignore_sync=True)
    assert cut(seed=5).violations == cut(seed=5).violations
