"""The log of a board: what a power cut, a kill, a full disk, a second process or a hostile hand makes of it."""

import functools
import json
import random
import threading
from pathlib import Path

import pytest

from baton.board import log as logs
from baton.board.heads import FEWEST, HEADER, SLOT, key_of
from baton.board.log import Log, item_of
from baton.errors import AuditBroken, Malformed, StoreError
from baton.stores import holder
from baton.testing import kill_sweep
from baton.testing.children import Child

ITEMS = 5


@pytest.fixture
def log(tmp_path):
    made = Log(str(tmp_path / "state"), str(tmp_path))
    yield made
    made.close()


def fill(log, count=20):
    return [log.append("needs", f"{number % ITEMS}.md", "fix", number=number) for number in range(count)]


def numbers(log, item=0):
    return [record["number"] for record in log.history(f"{item}.md", "fix")]


def fresh(log):
    """Another process's look at the same log."""
    return Log(str(Path(log.path).parent), "")


def test_a_record_comes_back_as_it_was_written(log):
    hostile = 'a "b"\\ \n\t\0 Ü 😀 \udc80 }{,:'
    at = log.append("claimed", hostile, "fix", by=hostile, count=-7)
    record = log.at(at)
    assert (record["path"], record["by"], record["count"]) == (hostile, hostile, -7)
    assert log.last(hostile, "fix") == record
    lines = Path(log.path).read_bytes().splitlines()
    assert json.loads(lines[-1])["count"] == -7
    assert all(line.isascii() for line in lines)


def test_positions_grow_and_each_item_has_its_own_history(log):
    positions = fill(log)
    assert positions == sorted(set(positions))
    assert positions[0] > 0
    assert numbers(log, 3) == [18, 13, 8, 3]
    assert [record["number"] for record in log.records() if "number" in record] == list(range(20))
    assert list(log.history("nobody.md", "fix")) == []
    with pytest.raises(Malformed):
        log.at(positions[0] + 10**9)


def test_a_log_that_is_not_there_is_empty(tmp_path):
    assert list(Log(str(tmp_path / "no"), "").records()) == []
    assert list(Log(str(tmp_path / "no"), "").history("a", "b")) == []
    assert not (tmp_path / "no").exists()


class Rebooted(holder.SystemMachine):
    def place(self):
        return super().place()[0], "another boot"


@pytest.mark.parametrize("heads", ["kept", "gone"])
def test_a_tail_that_was_not_synced_is_no_record(heads, log):
    fill(log, 8)
    whole = Path(log.path).read_bytes()
    table = Path(log.path).with_name("heads")
    known = table.read_bytes()
    images = 0
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in [*range(last, len(whole), 7), len(whole)]:
        for zeros in (0, 1, 5000):
            Path(log.path).write_bytes(whole[:cut] + bytes(zeros))
            table.write_bytes(known)
            if heads == "gone":
                table.unlink()
            with holder.use(Rebooted()):
                one = fresh(log)
                at = one.append("needs", "new.md", "fix", number=99)
            found = [record["number"] for record in one.records() if "number" in record]
            assert found == [*range(8 if cut == len(whole) else 7), 99]
            assert one.at(at)["number"] == 99
            one.close()
            images += 1
    assert images > 60


def test_zeros_before_a_whole_record_are_cut_and_kept(log):
    fill(log, 8)
    whole = Path(log.path).read_bytes()
    first = whole.rindex(b"\n", 0, whole.rindex(b"\n", 0, -1)) + 1
    last = whole.rindex(b"\n", 0, -1) + 1
    Path(log.path).write_bytes(whole[:first] + bytes(last - first) + whole[last:])
    Path(log.path).with_name("heads").unlink()
    one = fresh(log)
    one.append("needs", "new.md", "fix")
    assert len(list(one.records())) == 1 + 6 + 1
    kept = next(Path(log.path).parent.glob("log.jsonl.cut-*"))
    assert kept.read_bytes() == bytes(last - first) + whole[last:]
    one.close()


def test_the_table_of_another_boot_is_not_believed(log):
    fill(log)
    table = Path(log.path).with_name("heads")
    data = bytearray(table.read_bytes())
    for at in range(HEADER, len(data), SLOT):  # as if its pages were of another age than the log
        data[at : at + SLOT] = bytes(SLOT)
    table.write_bytes(data)
    with holder.use(Rebooted()):
        one = fresh(log)
        assert numbers(one) == [15, 10, 5, 0]
        one.close()


@pytest.mark.parametrize("spoil", ["empty", "short", "magic", "no slots", "no room", "ahead", "random"])
def test_a_spoiled_table_is_made_anew(spoil, log):
    fill(log)
    table = Path(log.path).with_name("heads")
    data = bytearray(table.read_bytes())
    change = {
        "empty": (0, b""),
        "short": (0, b""),
        "magic": (0, b"heads 0"),
        "no slots": (32, bytes(8)),
        "no room": (40, FEWEST.to_bytes(8, "little")),
        "ahead": (24, (10**9).to_bytes(8, "little")),
        "random": (0, random.Random(1).randbytes(HEADER)),
    }[spoil]
    data[change[0] : change[0] + len(change[1])] = change[1]
    table.write_bytes(b"" if spoil == "empty" else data[: HEADER // 2] if spoil == "short" else data)
    one = fresh(log)
    assert numbers(one) == [15, 10, 5, 0]
    one.append("needs", "0.md", "fix", number=20)
    assert numbers(one)[0] == 20
    one.close()


def test_a_table_that_leads_to_another_item_is_an_error(log):
    positions = fill(log)
    table = Path(log.path).with_name("heads")
    data = table.read_bytes()
    key = key_of("0.md", "fix")
    at = data.index(key) + 16
    table.write_bytes(data[:at] + positions[1].to_bytes(8, "little") + data[at + 8 :])
    with pytest.raises(AuditBroken, match="made anew"):
        numbers(fresh(log))


@pytest.mark.parametrize("at", range(0, 20, 3))
def test_a_record_that_was_changed_is_seen(at, log):
    fill(log)
    lines = Path(log.path).read_bytes().split(b"\n")
    lines[at] = lines[at].replace(b'"noun":"', b'"noun":"x', 1)
    Path(log.path).write_bytes(b"\n".join(lines))
    with pytest.raises(AuditBroken, match="is not what was written"):
        list(fresh(log).records())


@pytest.mark.parametrize("how", ["left out", "twice", "exchanged", "chain"])
def test_records_that_were_moved_are_seen(how, log):
    fill(log)
    lines = Path(log.path).read_bytes().split(b"\n")
    if how == "left out":
        del lines[4]
    elif how == "twice":
        lines.insert(4, lines[4])
    elif how == "exchanged":
        lines[4], lines[5] = lines[5], lines[4]
    else:
        lines[4] = lines[4][:-10] + b"0" * 8 + b'"}'
    Path(log.path).write_bytes(b"\n".join(lines))
    with pytest.raises(AuditBroken):
        list(fresh(log).records())


def test_the_table_grows_under_two_processes(tmp_path):
    def body(name, tell):
        log = Log(str(tmp_path / "state"), str(tmp_path))
        for number in range(FEWEST):
            log.append("needs", f"{name}{number}.md", "fix")

    syncs, logs._sync = logs._sync, lambda number: None
    try:
        children = [Child(functools.partial(body, name)) for name in ("a", "b")]
        assert [child.finish().status for child in children] == [0, 0]
    finally:
        logs._sync = syncs
    log = Log(str(tmp_path / "state"), str(tmp_path))
    assert len(list(log.records())) == 1 + 2 * FEWEST
    for number in range(FEWEST):
        for name in ("a", "b"):
            assert len(list(log.history(f"{name}{number}.md", "fix"))) == 1
    assert (tmp_path / "state" / "heads").stat().st_size > HEADER + 2 * FEWEST * SLOT
    log.close()


def test_threads_and_a_fork_write_one_log(log):
    log.append("needs", "first.md", "fix")

    def write(name):
        for number in range(30):
            log.append("needs", f"{name}.md", "fix", number=number)

    threads = [threading.Thread(target=write, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child = Child(lambda tell: write("child"))
    write("parent")
    assert child.finish().status == 0
    for name in ("t0", "t1", "t2", "t3", "child", "parent"):
        assert [record["number"] for record in log.history(f"{name}.md", "fix")] == list(range(29, -1, -1))
    assert len(list(log.records())) == 2 + 6 * 30


def test_a_log_that_was_removed_is_begun_anew_by_all(log):
    fill(log)
    other = fresh(log)
    assert numbers(other)
    Path(log.path).unlink()
    Path(log.path).with_name("heads").unlink()
    other.append("needs", "a.md", "fix")
    log.append("needs", "b.md", "fix")
    assert len(list(fresh(log).records())) == 3
    other.close()


def writes(directory, acknowledge):
    log = Log(f"{directory}/state", directory)
    for number in range(6):
        log.append("needs", f"{number % 2}.md", "fix", number=number)
        acknowledge(str(number))


def holds(directory, acknowledged):
    log = Log(f"{directory}/state", directory)
    try:
        at = log.append("needs", "after.md", "fix", number=100)
    except (StoreError, AuditBroken) as error:
        return [f"no record can be written any more: {error}"]
    found = [record["number"] for record in log.records() if "number" in record]
    missing = {int(one) for one in acknowledged} - set(found)
    problems = [f"lost: {missing}"] if missing else []
    for item in (0, 1):
        history = [record["number"] for record in log.history(f"{item}.md", "fix") if "number" in record]
        if history != sorted((one for one in found if one % 2 == item and one < 100), reverse=True):
            problems.append(f"history of {item}: {history}, log {found}")
    if log.last("after.md", "fix")["at"] != at:
        problems.append("the newest record is not found")
    log.close()
    return problems


@pytest.mark.parametrize("mode", ["kill", "torn", "EIO", "ENOSPC"])
def test_the_log_survives_a_fault_at_every_write(mode):
    report = kill_sweep(functools.partial(_writes, mode), holds, where=("files",), mode=mode)
    assert report.points > 10
    assert not report.violations, report.violations[:3]


def _writes(mode, directory, acknowledge):
    try:
        writes(directory, acknowledge)
    except (OSError, StoreError):
        if mode not in {"EIO", "ENOSPC"}:
            raise


def test_events_are_those_of_the_records(tmp_path):
    log = Log(str(tmp_path), "/a")
    names = ["a.md", 'b","noun":"x.md', "ä\n\u2028.md", "\udcff.md", '"event":"done".md', ""]
    for name in names:
        log.append("claimed", name, "fix", why='"event":"done","path":"z"')
    records = list(log.records())
    events = [(at, event, item_of(raw)) for at, event, raw in log.events()]
    assert events == [(one["at"], one["event"], (one["path"], one["noun"])) for one in records]
    assert [at for at, _, _ in log.events(int(records[3]["at"]))] == [one["at"] for one in records[4:]]
    log.close()
