"""What verifying reads: rows of any type, the newest record of a handoff, and the copies beside a record."""

from hashlib import sha256

import msgspec
import pytest

from baton.guards.base import ALLOW
from baton.lifecycle import Event
from baton.protocol.audit import AuditRecord, write_record
from baton.protocol.codec import to_time
from baton.protocol.context import Context
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.stores import open_store
from baton.stores.base import Claim, Offer, Step, Workflow
from baton.stores.chain import links, predecessors
from baton.stores.seal import LATE, seal
from baton.stores.verify import verify


def work(store, name, steps=3):
    handoff = Handoff(
        id=name, root_id=name, line_id=name, workflow_id=name, conversation_id=name,
        from_agent="triage", to_agent="billing", context=Context(task_id=f"task-{name}"),
    )  # fmt: skip
    flow = Workflow(id=name, root_id=name, conversation_id=name, limits=Limits())
    store.offer(Offer(handoff=handoff, fingerprint="ab" * 32, workflow=flow), lambda *_: ALLOW)
    if steps > 1:
        grant = store.claim(Claim(holder="w", id=name), lambda *_: ALLOW)
        store.advance(Step(id=name, event=Event.COMPLETE, epoch=grant.handoff.epoch))


@pytest.fixture
def store():
    store = open_store("sqlite://:memory:")
    for number in range(4):
        work(store, f"h{number}")
    yield store
    store.close()


def kinds(report):
    return {(one.kind, one.seq) for one in report.findings if one.seq}


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("value", ["CAST({} AS TEXT)", "7", "-0.5", "''", "'text'", "x''", "zeroblob(40)"])
@pytest.mark.parametrize("column", ["record", "digest"])
def test_a_value_of_another_type_is_an_edited_record(store, column, value, sealed):
    if sealed:
        seal(store)
    store._db.connection.execute(f"UPDATE audit SET {column} = {value.format(column)} WHERE seq = 5")
    assert ("edited", 5) in kinds(verify(store))
    assert len(store.audit()) == 12
    seal(store)
    assert ("edited", 5) in kinds(verify(store, deep=True))


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("value", ["CAST(handoff_id AS BLOB)", "7", "CAST(x'ff' AS TEXT)", "'h''\"'", "'h2'"])
def test_a_name_of_another_type_or_text_is_mislabelled(store, value, sealed):
    if sealed:
        seal(store)
    store._db.connection.execute(f"UPDATE audit SET handoff_id = {value} WHERE seq = 5")
    assert kinds(verify(store)) == {("mislabelled", 5)}
    assert len(store.audit()) == 12


@pytest.mark.parametrize(
    "change", ["DELETE FROM audit WHERE seq = 12", "UPDATE handoff SET audit_head = 'ab' WHERE id = 'h3'"]
)
def test_the_newest_record_of_an_unsealed_handoff_must_be_there(store, change):
    assert verify(store).ok
    store._db.connection.execute(change)
    assert [(one.kind, one.handoff_id) for one in verify(store).findings] == [("lost", "h3")]


def test_a_handoff_of_which_nothing_waits_to_be_sealed_needs_the_deep_look(store):
    seal(store)
    work(store, "last", steps=1)
    assert verify(store, deep=True).ok
    store._db.connection.execute("DELETE FROM audit WHERE handoff_id = 'last'")
    assert verify(store).ok
    assert [(one.kind, one.handoff_id) for one in verify(store, deep=True).findings] == [("lost", "last")]


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("value", ["'elsewhere'", "''", "CAST({} AS BLOB)", "CAST(x'fe' AS TEXT)"])
@pytest.mark.parametrize("column", ["task_id", "from_agent", "to_agent"])
def test_the_deep_look_compares_what_records_are_found_by(store, column, value, sealed):
    if sealed:
        seal(store)
    store._db.connection.execute(f"UPDATE audit SET {column} = {value.format(column)} WHERE seq = 5")
    assert verify(store).ok
    (found,) = verify(store, deep=True).findings
    assert (found.kind, found.seq, found.n, found.handoff_id) == ("mislabelled", 5, 5 * sealed, "h1")


def test_rows_that_stand_far_before_the_sealed_ones_are_seen(store):
    seal(store)
    db = store._db.connection
    (row,) = db.execute("SELECT * FROM audit WHERE seq = 12").fetchall()
    db.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (-2 * LATE, *row[1:]))
    report = verify(store)
    assert report.unsealed == 1
    assert kinds(report) == {("unlinked", -2 * LATE)}


def test_a_gap_does_not_make_up_for_a_row_that_was_put_in(store):
    seal(store)
    db = store._db.connection
    (row,) = db.execute("SELECT * FROM audit WHERE seq = 12").fetchall()
    db.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (-2 * LATE, *row[1:]))
    db.execute("DELETE FROM audit WHERE seq = 3")
    report = verify(store)
    assert report.unsealed == 1
    assert {one.kind for one in report.findings} >= {"missing", "unlinked"}


def a_record(handoff_id, previous=""):
    return AuditRecord(
        previous=previous, handoff_id=handoff_id, timestamp=to_time(0), event_type="initiated",
        from_agent="a", to_agent="b", handoff_type="delegation", detail={"b": 1, "a": 2},
    )  # fmt: skip


def test_a_record_begins_with_its_ties():
    assert write_record(a_record("h", "ab" * 32)).startswith(b'{"previous":"' + b"ab" * 32 + b'","handoff_id":"h",')
    assert write_record(a_record("h")).startswith(b'{"handoff_id":"h",')
    assert b'{"a":2,"b":1}' in write_record(a_record("h"))


ONE, TWO = write_record(a_record("h1")), write_record(a_record("h2", "ab" * 32))


def test_cutting_out_finds_what_reading_finds():
    assert predecessors([ONE, TWO], [b"h1", b"h2"]) == [b"ab" * 32]
    assert [link.previous for link in links([ONE, TWO])] == ["", "ab" * 32]
    assert predecessors([ONE, TWO], ()) == [b"ab" * 32]


@pytest.mark.parametrize(
    "names", [[b"h1", b"h3"], [b"h2", b"h1"], [b"h", b"h"], [b"h1,", b"h2,"], [b"", b""], [b"h1", b"2"]]
)
def test_other_names_are_looked_at_singly(names):
    assert predecessors([ONE, TWO], names) is None


def test_a_name_cannot_bring_its_own_quotes():
    name = b'h1","event_type":"x'
    record = b'{"handoff_id":"' + name + b'"}'
    assert predecessors([record], [name]) is None


@pytest.mark.parametrize("at", [*range(18), *range(77, 96)])
@pytest.mark.parametrize("names", [(), (b"h1", b"h2")])
def test_a_beginning_that_is_not_as_written_is_looked_at_singly(at, names):
    changed = TWO[:at] + bytes([TWO[at] ^ 1]) + TWO[at + 1 :]
    if 13 <= at < 77:  # another digest, which nothing known has
        assert predecessors([ONE, changed], names) != [b"ab" * 32]
    elif at < 93 or names:
        assert predecessors([ONE, changed], names) is None
    if at < 15 or (names and at < 18):
        assert predecessors([ONE[:at] + bytes([ONE[at] ^ 1]) + ONE[at + 1 :], TWO], names) is None


def test_records_in_another_order_of_fields_are_read(store):
    """As all were before these fields stood first."""
    db, heads = store._db.connection, {}
    for seq, name, record in db.execute("SELECT seq, handoff_id, record FROM audit ORDER BY seq").fetchall():
        value = msgspec.json.decode(record)
        if "previous" in value:
            value["previous"] = heads[name]
        data = msgspec.json.encode(value, order="sorted")
        heads[name] = sha256(data).hexdigest()
        db.execute("UPDATE audit SET record = ?, digest = ? WHERE seq = ?", (data, sha256(data).digest(), seq))
        db.execute("UPDATE handoff SET audit_head = ? WHERE id = ?", (heads[name], name))
    assert verify(store, deep=True).ok
    seal(store)
    assert verify(store, deep=True).ok
    db.execute("UPDATE audit SET handoff_id = 'h9' WHERE seq = 5")
    assert kinds(verify(store)) == {("mislabelled", 5)}
