"""Sealing, checkpoints and the public order."""

import threading

import msgspec
import pytest

from baton.errors import AuditBroken, Conflict, StoreError
from baton.guards.base import ALLOW
from baton.lifecycle import Event
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.stores import open_store
from baton.stores import seal as sealing
from baton.stores.base import Claim, Offer, Segment, Step, Workflow
from baton.stores.seal import CHECKPOINTS, checkpoint, checkpoints, root_of, seal
from baton.stores.verify import Finding, Report, verify


def allow(*_):
    return ALLOW


def work(store, name):
    """One handoff from offer to its end: three audit rows."""
    handoff = Handoff(
        id=name, root_id=name, line_id=name, workflow_id=name, conversation_id=name,
        from_agent="triage", to_agent="billing", reason='a "quoted\\" reason – ünïcode\n',
    )  # fmt: skip
    flow = Workflow(id=name, root_id=name, conversation_id=name, limits=Limits())
    store.offer(Offer(handoff=handoff, fingerprint="ab" * 32, workflow=flow), allow)
    grant = store.claim(Claim(holder="w", id=name), allow)
    store.advance(Step(id=name, event=Event.COMPLETE, epoch=grant.handoff.epoch))


@pytest.fixture
def store():
    store = open_store("sqlite://:memory:")
    yield store
    store.close()


def fill(store, count, start=0):
    for number in range(start, start + count):
        work(store, f"h{number}")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"first": 1, "last": 1, "records": 1, "checkpoints": 1}, "1 record, all as written; 1 checkpoint agrees"),
        ({"first": 1, "last": 9, "records": 9, "unsealed": 2}, "9 records, all as written; 2 more not sealed yet"),
        (
            {"first": 4, "last": 9, "records": 6, "checkpoints": 2},
            "6 records (4 to 9), all as written; 2 checkpoints agree",
        ),
    ],
)
def test_a_report_is_one_plain_sentence(fields, said):
    assert str(Report(**fields)) == f"verified: {said}"


def test_what_is_broken_is_counted_first():
    found = Finding(kind="edited", n=2, seq=2, handoff_id="h1")
    assert str(Report(first=1, last=3, records=3, problems=1, findings=(found,))).splitlines()[0] == (
        "BROKEN: 1 finding in 3 records"
    )


def test_sealing_numbers_every_row_once_and_in_order(store):
    fill(store, 5)
    assert seal(store, limit=4) == 15
    segments = store.segments()
    assert [(s.first, s.last) for s in segments] == [(1, 4), (5, 8), (9, 12), (13, 15)]
    assert [s.previous for s in segments] == ["", *(s.root for s in segments[:-1])]
    assert [row.seq for row in store.sealed(1, 15)] == [row.seq for row in store.audit()]
    assert seal(store) == 0
    assert store.segments() == segments


def test_a_root_commits_to_every_field_of_its_segment_and_every_digest():
    segment = Segment(n=2, first=3, last=4, root="", previous="ab", sealed_at=7)
    roots = {root_of(segment, ["c" * 64, "d" * 64]), root_of(segment, ["d" * 64, "c" * 64])}
    for change in ({"n": 3}, {"first": 2}, {"last": 5}, {"previous": "ac"}, {"sealed_at": 8}):
        roots.add(root_of(msgspec.structs.replace(segment, **change), ["c" * 64, "d" * 64]))
    assert len(roots) == 7


def test_a_row_that_commits_late_is_picked_up_by_a_later_segment(store):
    fill(store, 3)
    db = store._db.connection
    (row,) = db.execute("SELECT * FROM audit WHERE seq = 4").fetchall()
    db.execute("DELETE FROM audit WHERE seq = 4")
    seal(store)
    db.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert seal(store) == 1
    assert [entry.seq for entry in store.sealed(9, 9)] == [4]


def test_the_slower_of_two_sealers_reads_again(store):
    fill(store, 2)
    original, races = store.add_segment, []

    def raced(segment, seqs):
        if not races:
            races.append(1)
            other = store.unsealed(2)
            first = Segment(n=1, first=1, last=2, root="", previous="", sealed_at=1)
            root = root_of(first, [row.digest for row in other])
            original(msgspec.structs.replace(first, root=root), [row.seq for row in other])
        original(segment, seqs)

    store.add_segment = raced
    assert seal(store) == 4
    assert [(s.first, s.last) for s in store.segments()] == [(1, 2), (3, 6)]
    assert verify(store).ok


def test_sealers_in_several_connections_seal_every_row_once(tmp_path):
    path = str(tmp_path / "team.db")
    first = open_store(path)
    fill(first, 40)
    done, errors = [], []

    def run():
        store = open_store(path)
        try:
            done.append(seal(store, limit=3))
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sum(done) == 120
    report = verify(first)
    assert report.ok, report
    assert (report.records, report.unsealed) == (120, 0)
    first.close()


def test_a_sealer_that_never_wins_says_so(store, monkeypatch):
    fill(store, 1)
    monkeypatch.setattr(sealing, "_ATTEMPTS", 3)

    def lose(segment, seqs):
        raise Conflict("somebody else")

    store.add_segment = lose
    with pytest.raises(Conflict, match="3 times"):
        seal(store)


def test_checkpoints_are_appended_once_for_each_head(store, tmp_path):
    folder = tmp_path / "state"
    assert checkpoint(folder, store) is None
    fill(store, 1)
    seal(store)
    one = checkpoint(folder, store)
    assert checkpoint(folder, store) == one
    fill(store, 1, start=1)
    seal(store)
    two = checkpoint(folder, store)
    assert checkpoints(folder) == [one, two]
    assert (one.n, two.n) == (3, 6)
    assert (folder / CHECKPOINTS).stat().st_mode & 0o777 == 0o600
    assert verify(store, checkpoints=checkpoints(folder)).checkpoints == 2


def test_half_a_line_of_a_writer_that_died_is_dropped(store, tmp_path):
    fill(store, 1)
    seal(store)
    one = checkpoint(tmp_path, store)
    path = tmp_path / CHECKPOINTS
    line = path.read_bytes()
    for size in range(len(line)):
        path.write_bytes(line + line[:size])
        assert checkpoints(tmp_path) == [one]
        assert checkpoint(tmp_path, store) == one
        assert path.read_bytes() == line


def test_a_damaged_checkpoint_is_not_taken_for_none(store, tmp_path):
    fill(store, 1)
    seal(store)
    checkpoint(tmp_path, store)
    path = tmp_path / CHECKPOINTS
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(AuditBroken, match="damaged"):
        checkpoints(tmp_path)
    path.write_bytes(b"x" * 5000)
    with pytest.raises(AuditBroken, match="damaged"):
        checkpoint(tmp_path, store)


def test_a_checkpoint_is_refused_where_the_log_is_not_the_one_before(store, tmp_path):
    fill(store, 2)
    seal(store)
    checkpoint(tmp_path, store)
    other = open_store("sqlite://:memory:")
    with pytest.raises(AuditBroken, match="cut off"):
        checkpoint(tmp_path, other)
    fill(other, 2)
    seal(other)
    with pytest.raises(AuditBroken, match="another root"):
        checkpoint(tmp_path, other)
    other.close()


def test_a_link_in_the_place_of_the_checkpoints_is_refused(store, tmp_path):
    fill(store, 1)
    seal(store)
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / CHECKPOINTS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="link"):
        checkpoint(tmp_path, store)
    with pytest.raises(StoreError, match="link"):
        checkpoints(tmp_path)
    assert (tmp_path / "elsewhere").read_text() == ""
