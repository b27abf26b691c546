"""How long records are kept, as a function of what they say."""

from datetime import UTC, datetime, timedelta

import pytest

from baton.errors import Malformed, Refused
from baton.protocol.audit import UP, AuditRecord, Snapshot, write_record
from baton.protocol.codec import EPOCH, to_microseconds
from baton.stores.base import Tombstone
from baton.stores.retention import DAY, LEAST, Lives, as_periods, loose_ends, read_told
from baton.stores.tombstone import Graves, is_signed, replace, signed, written_tombstone

START = datetime(2026, 1, 1, tzinfo=UTC)


def told(event, status, *, day=0, handoff="h", flow="w", digest="d", **more):
    record = AuditRecord(
        handoff_id=handoff, workflow_id=flow, timestamp=START + timedelta(days=day), event_type=event,
        from_agent="a", to_agent="b", context_snapshot=Snapshot(task_status=status),
        **{"handoff_type": "sequential", **more},
    )  # fmt: skip
    one = read_told(write_record(record), digest)
    assert one is not None
    return one


def kept_days(*records, periods=LEAST):
    """For how many days after its newest record the workflow is kept; None: while it is open."""
    lives = Lives()
    lives.add(records)
    (newest,) = {max(one.timestamp for one in records)}
    for days in range(400):
        if lives.may_go(periods, to_microseconds(newest) + days * DAY):
            return days
    return None


BEGUN = told("initiated", "offered")


@pytest.mark.parametrize(
    ("records", "days"),
    [
        ([BEGUN], None),
        ([told("completed", "completed"), told("initiated", "offered", handoff="other")], None),
        ([BEGUN, told("failed", "failed")], 30),
        ([BEGUN, told("cancelled", "cancelled")], 30),
        ([BEGUN, told("denied", "refused")], 30),
        ([BEGUN, told("completed", "completed", day=5)], 90),
        ([BEGUN, told("escalated", "offered"), told("cancelled", "cancelled")], 180),
        ([BEGUN, told("parked", "parked"), told("completed", "completed")], 180),
        ([told("initiated", "offered", handoff_type="escalation"), told("failed", "failed")], 180),
        ([told("rerouted", "offered", detail={UP: {"to": "human"}}), told("completed", "completed")], 180),
        ([told("completed", "completed"), told("failed", "failed", handoff="other")], 90),
        ([told("failed", "failed"), told("late", "failed", day=300)], 30),
    ],
)
def test_the_longest_class_counts_from_the_newest_record(records, days):
    assert kept_days(*records) == days


def test_workflows_do_not_hold_one_another():
    lives = Lives()
    lives.add([told("initiated", "offered"), told("failed", "failed", handoff="x", flow="v")])
    assert set(lives.may_go(LEAST, to_microseconds(START) + 31 * DAY)) == {"v"}
    assert lives.classes() == {"active": 2, "completed": 0, "escalations": 0}


def test_what_was_followed_by_something_that_is_gone_was_over():
    lives = Lives()
    lives.add([told("initiated", "offered", digest="one"), told("initiated", "offered", flow="v", handoff="x")])
    assert not lives.may_go(LEAST, to_microseconds(START) + 1000 * DAY)
    lives.ended_before({"one"})
    assert set(lives.may_go(LEAST, 0)) == {"w"}


def test_of_a_run_only_what_crosses_its_border_is_remembered():
    run = [
        told("accepted", "claimed", digest="b", previous="a"),
        told("progress", "claimed", digest="c", previous="b"),
        told("completed", "completed", flow="v", handoff="x", digest="f", previous="e"),
    ]
    lives = Lives()
    lives.add(run)
    over = {one.whole: lives._of[one.whole] for one in run}
    assert loose_ends(run, over, ()) == (["c"], ["a", "e"])
    assert loose_ends(run, over, {"w"}) == ([], ["e"])
    over["v"].late = True
    assert loose_ends(run, over, {"w"}) == (["f"], ["e"])


def test_what_cannot_be_read_is_not_told():
    good = write_record(AuditRecord(handoff_id="h", timestamp=EPOCH, event_type="e", from_agent="a", to_agent="b",
                                    handoff_type="sequential"))  # fmt: skip
    assert read_told(good, "d").digest == "d"
    assert read_told(good.replace(b"Z", b""), "d") is None
    assert read_told(good[:-1], "d") is None
    assert read_told(b"\xff", "d") is None


def test_periods_below_the_least_must_be_meant():
    assert as_periods({"completed": "91d"}, shorter=False).completed == 91 * DAY
    with pytest.raises(Refused, match="at least 90 days"):
        as_periods({"completed": "89d"}, shorter=False)
    assert as_periods({"completed": "1h"}, shorter=True).completed == DAY // 24
    with pytest.raises(Malformed, match="known: active, completed, escalations"):
        as_periods({"done": "91d"}, shorter=True)


STONE = Tombstone(
    log="l", n=1, to=2, first=1, last=9, previous="", root="r", oldest=0, newest=1, classes={"completed": 9}, time=2,
    by="p",
)  # fmt: skip


def test_a_tombstone_is_signed_as_a_whole():
    one = signed(STONE, b"key")
    assert is_signed(one, b"key")
    assert not is_signed(one, b"other")
    assert not is_signed(STONE, b"key")
    for name, value in (("by", "q"), ("reason", "x"), ("last", 8), ("ends", ("d",)), ("log", "m"), ("classes", {})):
        assert not is_signed(replace(one, **{name: value}), b"key")


def test_of_tombstones_that_overlap_only_one_counts():
    other = replace(STONE, n=2, to=3, first=5, last=12)
    graves = Graves([written_tombstone(one) for one in (STONE, other)], lambda _: True, "l")
    assert [one.last for one in graves] == [9]
    assert graves.invalid == ["tombstone of records 5 to 12"]
    assert (graves.over(9), graves.over(10), graves.over(0)) == (STONE, None, None)
    assert len(Graves([b"{}", b"\xff", written_tombstone(STONE)], lambda _: True, "another").invalid) == 3
