"""The export: what a line is, how it goes on, and whom it does not trust."""

import json
import os
from hashlib import sha256

import pytest

from baton.errors import Malformed, StoreError
from baton.guards.base import ALLOW
from baton.lifecycle import Event
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.stores import chain, open_store
from baton.stores import export as exporting
from baton.stores import verify as verifying
from baton.stores.base import Claim, Offer, Step, Workflow
from baton.stores.export import export
from baton.stores.seal import Checkpoint, checkpoint, checkpoints, seal
from baton.stores.verify import verify


def work(store, name):
    handoff = Handoff(
        id=name, root_id=name, line_id=name, workflow_id=name, conversation_id=name,
        from_agent="triage", to_agent="billing", reason='},"record":{"x":"\n',
    )  # fmt: skip
    flow = Workflow(id=name, root_id=name, conversation_id=name, limits=Limits())
    store.offer(Offer(handoff=handoff, fingerprint="ab" * 32, workflow=flow), lambda *_: ALLOW)
    grant = store.claim(Claim(holder="w", id=name), lambda *_: ALLOW)
    store.advance(Step(id=name, event=Event.COMPLETE, epoch=grant.handoff.epoch))


@pytest.fixture
def store():
    store = open_store("sqlite://:memory:")
    yield store
    store.close()


def fill(store, count, start=0, limit=4):
    for number in range(start, start + count):
        work(store, f"h{number}")
    seal(store, limit=limit)


def folder_of(root, project="shop"):
    return root / "core" / "logs" / project / "handoff-audit"


def test_a_line_carries_the_bytes_that_were_hashed(store, tmp_path):
    fill(store, 3)
    (path,) = export(store, tmp_path, "shop")
    assert path == folder_of(tmp_path) / "000000000001-000000000009.jsonl"
    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(1, 10))
    for line, entry in zip(lines, store.sealed(1, 9), strict=True):
        record = line.partition(b',"record":')[2][:-1]
        assert (record, sha256(record).hexdigest()) == (entry.record, json.loads(line)["digest"])
    assert [json.loads(line)["segment"]["n"] for line in lines if b'"segment":{' in line] == [1, 2, 3]
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_export_goes_on_where_the_last_one_ended(store, tmp_path):
    assert export(store, tmp_path, "shop") == []
    fill(store, 2)
    first = export(store, tmp_path, "shop")
    assert export(store, tmp_path, "shop") == []
    fill(store, 2, start=2)
    second = export(store, tmp_path, "shop")
    assert [path.name for path in first + second] == [
        "000000000001-000000000006.jsonl",
        "000000000007-000000000012.jsonl",
    ]
    report = verify(folder_of(tmp_path))
    assert report.ok, report
    assert (report.first, report.last, report.records) == (1, 12, 12)
    assert report.root == store.segments()[-1].root


def test_a_long_export_is_split_into_files_and_numbers_may_grow_a_digit(store, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "FILE_ROWS", 50)
    monkeypatch.setattr(exporting, "_BLOCK", 2000)
    fill(store, 40, limit=45)
    assert len(export(store, tmp_path, "shop")) == 2
    report = verify(folder_of(tmp_path))
    assert report.ok, report
    assert report.records == 120
    (first, second) = sorted(folder_of(tmp_path).iterdir())
    assert verify(second).ok
    assert verify(second).first == 91
    first.unlink()
    assert {one.kind for one in verify(folder_of(tmp_path)).findings} >= {"missing", "segment"}


def test_an_exporter_that_died_leaves_nothing_that_counts(store, tmp_path, monkeypatch):
    fill(store, 2)

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            export(store, tmp_path, "shop")
    assert verify(folder_of(tmp_path)).records == 0
    fill(store, 1, start=2)
    assert len(export(store, tmp_path, "shop")) == 1
    assert verify(folder_of(tmp_path)).records == 9


def test_overlapping_files_are_counted_once_and_must_agree(store, tmp_path):
    fill(store, 2)
    (tmp_path / "a").mkdir()
    (short,) = export(store, tmp_path / "a", "shop")
    fill(store, 2, start=2)
    (tmp_path / "b").mkdir()
    (whole,) = export(store, tmp_path / "b", "shop")
    both = whole.parent / short.name
    both.write_bytes(short.read_bytes())
    report = verify(whole.parent)
    assert report.ok, report
    assert (report.records, report.duplicates) == (12, 6)
    both.write_bytes(short.read_bytes().replace(b"billing", b"selling"))
    assert "edited" in {one.kind for one in verify(whole.parent).findings}


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc", ".hidden", "a b", "a\n", "ä", "a\0", "-rf", "x" * 101, "C:x"],
)
def test_a_project_name_cannot_lead_anywhere(store, tmp_path, name):
    with pytest.raises(Malformed, match="project"):
        export(store, tmp_path, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["core", "core/logs", "core/logs/shop", "core/logs/shop/handoff-audit"])
def test_a_link_on_the_way_is_refused(store, tmp_path, step):
    fill(store, 1)
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / step).parent.mkdir(parents=True)
    (root / step).symlink_to(elsewhere)
    with pytest.raises(StoreError, match="link"):
        export(store, root, "shop")
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_the_place_of_a_draft_is_refused(store, tmp_path):
    fill(store, 1)
    target = tmp_path / "precious"
    target.write_text("keep")
    folder_of(tmp_path).mkdir(parents=True)
    (folder_of(tmp_path) / ".000000000001-000000000003.jsonl.part").symlink_to(target)
    with pytest.raises(StoreError, match="remove it"):
        export(store, tmp_path, "shop")
    assert target.read_text() == "keep"


def test_the_export_of_another_log_is_not_continued(store, tmp_path):
    fill(store, 1)
    export(store, tmp_path, "shop")
    other = open_store("sqlite://:memory:")
    fill(other, 2)
    with pytest.raises(StoreError, match="does not come from this log"):
        export(other, tmp_path, "shop")
    other.close()


def test_a_planted_file_does_not_hide_what_was_not_exported(store, tmp_path):
    fill(store, 1)
    folder_of(tmp_path).mkdir(parents=True)
    (folder_of(tmp_path) / "000000000001-999999999999.jsonl").write_text("{}\n")
    with pytest.raises(StoreError, match="does not come from this log"):
        export(store, tmp_path, "shop")


def test_checkpoints_hold_for_an_export_too(store, tmp_path):
    fill(store, 2)
    export(store, tmp_path, "shop")
    one = checkpoint(tmp_path / "state", store)
    assert verify(folder_of(tmp_path), checkpoints=[one]).checkpoints == 1
    fill(store, 1, start=2)
    checkpoint(tmp_path / "state", store)
    report = verify(folder_of(tmp_path), checkpoints=checkpoints(tmp_path / "state"))
    assert [(f.kind, f.n, f.to) for f in report.findings] == [("cut", 7, 9)]
    export(store, tmp_path, "shop")
    assert verify(folder_of(tmp_path), checkpoints=checkpoints(tmp_path / "state")).checkpoints == 2
    (first, second) = sorted(folder_of(tmp_path).iterdir())
    assert verify(first, checkpoints=checkpoints(tmp_path / "state")).ok
    assert verify(second, checkpoints=checkpoints(tmp_path / "state")).checkpoints == 2
    assert not verify(second, checkpoints=[Checkpoint(n=6, root="ab", time=0)]).ok


def test_a_root_that_is_not_there_is_named(store, tmp_path):
    with pytest.raises(StoreError, match="nowhere"):
        export(store, tmp_path / "nowhere", "shop")


def test_a_record_that_is_gone_is_not_exported_around(store, tmp_path):
    fill(store, 2)
    store._db.connection.execute("DELETE FROM audit WHERE seq = 3")
    with pytest.raises(StoreError, match="some are gone"):
        export(store, tmp_path, "shop")


def test_garbage_is_reported_line_by_line_and_the_list_is_bounded(store, tmp_path):
    path = tmp_path / "000000000001-000000000009.jsonl"
    path.write_bytes(b"\xff\n" * 5000 + b"x" * 100)
    report = verify(path)
    assert (report.problems, len(report.findings)) == (5001, verifying.FINDINGS)
    assert report.findings[0].place == f"{path.name}:1"
    assert "4901 more" in str(report)
    with pytest.raises(StoreError, match=r"nothing\.jsonl"):
        verify(tmp_path / "nothing.jsonl")


def test_a_line_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_MAX_LINE", 1 << 20)
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    assert verify(path).findings[0].kind == "unreadable"


def test_heads_of_very_many_handoffs_move_to_a_file(store, monkeypatch):
    monkeypatch.setattr(chain, "HEADS", 3)
    monkeypatch.setattr(verifying, "BATCH", 2)
    for number in range(9):
        name = f"h{number}"
        work(store, name)
    db = store._db.connection
    db.execute("UPDATE audit SET seq = 1000 + seq / 3 + 100 * (seq % 3 + 3 * (seq % 3 = 0))")
    seal(store, limit=2)
    assert verify(store).ok
    db.execute("DELETE FROM audit WHERE seq = (SELECT audit_seq FROM sealed WHERE n = 12)")
    assert "unlinked" in {one.kind for one in verify(store).findings}
