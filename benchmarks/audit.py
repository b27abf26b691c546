"""What the audit trail costs: a record, verifying N of them, finding one handoff among them, pruning them.

usage: python benchmarks/audit.py [--quick | --full] [--json FILE]
"""

import argparse
import json
import random
import tempfile
import uuid
from hashlib import sha256
from pathlib import Path
from time import perf_counter

from baton import clock
from baton.protocol.audit import AuditRecord, Snapshot, write_record
from baton.protocol.codec import to_time
from baton.stores import open_store
from baton.stores.export import export
from baton.stores.prune import Order, prune
from baton.stores.retention import Periods
from baton.stores.seal import seal
from baton.stores.verify import verify

EVENTS = (("initiated", "offered"), ("accepted", "claimed"), ("completed", "completed"))
INSERT = "INSERT INTO audit (handoff_id, task_id, from_agent, to_agent, record, digest) VALUES (?, ?, ?, ?, ?, ?)"
REACH = 1.6


def a_record(handoff_id, event, status, previous, task="", now=0):
    return AuditRecord(
        handoff_id=handoff_id,
        timestamp=to_time(now),
        event_type=event,
        from_agent="orchestrator",
        to_agent="billing-specialist",
        handoff_type="delegation",
        workflow_id=handoff_id,
        reason="The customer asks for a refund; billing has the capability and the budget.",
        context_snapshot=Snapshot(task_id=task, task_status=status, context_variables_hash="5e" * 32, artifact_count=2),
        decision_rationale="Only billing may refund, and its queue is short.",
        risk_level="medium",
        attempt=1,
        epoch=1,
        by="worker-3",
        previous=previous,
    )


def rows(count):
    """Records of many handoffs at once, as an orchestrator writes them."""
    chance, now = random.Random(7), clock.now()
    open_handoffs = []
    for number in range(count):
        if len(open_handoffs) < 50:
            open_handoffs.append([str(uuid.UUID(int=chance.getrandbits(128), version=4)), 0, ""])
        one = open_handoffs[chance.randrange(len(open_handoffs))]
        handoff_id, step, previous = one
        data = write_record(a_record(handoff_id, *EVENTS[step], previous, f"task-{number % 997}", now + number))
        raw = sha256(data).digest()
        yield handoff_id, f"task-{number % 997}", "orchestrator", "billing-specialist", data, raw
        one[1:] = [step + 1, raw.hex()]
        if one[1] == len(EVENTS):
            open_handoffs.remove(one)


def seconds(work, times):
    best = float("inf")
    for _ in range(times):
        start = perf_counter()
        work()
        best = min(best, perf_counter() - start)
    return best


def writing(count):
    """Encode and hash one record, against hashing alone."""
    record = a_record(clock.new_id(), "accepted", "claimed", "ab" * 32, "task-1", clock.now())
    data = write_record(record)

    def hashes():
        for _ in range(count):
            sha256(data).digest()

    def encodes():
        for _ in range(count):
            sha256(write_record(record)).digest()

    floor, whole = seconds(hashes, 3), seconds(encodes, 3)
    return row(f"encode + hash ({len(data)} B)", whole / count, floor / count, "SHA-256 alone")


def row(what, took, floor, of, reach=None):
    return {
        "what": what,
        "us": took * 1e6,
        "floor_us": floor * 1e6,
        "ratio": took / floor,
        "of": of,
        "reach": reach,
    }


def loop(path):
    with path.open("rb") as lines:
        for line in lines:
            sha256(line).hexdigest()


def checked(source):
    report = verify(source)
    assert report.ok, report


def reading(count, times, folder):
    """Verify `count` records, stored and exported, against hashing their lines; find handoffs among them."""
    store = open_store(str(folder / "audit.db"), durability="process")
    with store._db:
        store._db.connection.executemany(INSERT, rows(count))
    assert seal(store) == count
    export(store, folder, "bench")
    exported = folder / "core" / "logs" / "bench" / "handoff-audit"
    plain = folder / "records.jsonl"
    with plain.open("wb") as file:
        for first in range(1, count + 1, 1000):
            file.writelines(entry.record + b"\n" for entry in store.sealed(first, first + 999))
    floor = store_time = export_time = float("inf")
    for _ in range(times):  # in turns, so that a busy machine hits all alike
        floor = min(floor, seconds(lambda: loop(plain), 1))
        store_time = min(store_time, seconds(lambda: checked(store), 1))
        export_time = min(export_time, seconds(lambda: checked(exported), 1))
    ids = [store.sealed(n, n)[0].handoff_id for n in random.Random(3).sample(range(1, count + 1), 1000)]
    query = seconds(lambda: [store.audit(handoff_id=one) for one in ids], times) / len(ids)
    order = Order(by="bench", periods=Periods(active=0, completed=0, escalations=0))
    pruned = seconds(lambda: prune(store, order, lambda tombstone: tombstone), 1)
    gone = count - store.audited()
    assert gone > 0.9 * count, gone
    assert verify(store).pruned == gone
    store.close()
    floor /= count
    return [
        row(f"verify {count} in the store", store_time / count, floor, "per-line SHA-256 loop", REACH),
        row(f"verify {count} in the export", export_time / count, floor, "per-line SHA-256 loop", REACH),
        row(f"prune {gone} of them", pruned / gone, floor, "per-line SHA-256 loop"),
        row(f"records of one handoff among {count}", query, floor * count, "the same loop over all"),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20,000 records")
    parser.add_argument("--full", action="store_true", help="1,000,000 records")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "audit.json")
    options = parser.parse_args()
    count = 20_000 if options.quick else 1_000_000 if options.full else 200_000
    with tempfile.TemporaryDirectory() as folder:
        results = [writing(20_000), *reading(count, 3, Path(folder))]
    print(f"{'what':42} {'µs':>9} {'ratio':>9}  of")
    for one in results:
        reach = f" (reach ≤ {one['reach']})" if one["reach"] else ""
        print(f"{one['what']:42} {one['us']:9.2f} {one['ratio']:9.3g}  {one['of']}{reach}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"records": count, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
