"""Ten attacks on the audit trail, at many places each: every one is found, and nothing else is.

What ends behind the last checkpoint is found only with checkpoints; that it is not found without them shows
why they exist.
"""

import random
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.guards.base import ALLOW
from baton.lifecycle import Event
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.stores import open_store
from baton.stores.base import Claim, Offer, Step, Workflow
from baton.stores.export import export
from baton.stores.seal import checkpoint, checkpoints, root_of, seal
from baton.stores.verify import verify

HANDOFFS, UNSEALED, PLACES = 30, 2, 200


def allow(*_):
    return ALLOW


class Log:
    """A real store, and what an attacker with its file can do to it."""

    def __init__(self):
        self.store = open_store("sqlite://:memory:")
        self.db = self.store._db.connection
        self.claims = {}

    def initiate(self, name):
        handoff = Handoff(
            id=name, root_id=name, line_id=name, workflow_id=name, conversation_id=name,
            from_agent="triage", to_agent="billing", reason="why",
        )  # fmt: skip
        flow = Workflow(id=name, root_id=name, conversation_id=name, limits=Limits())
        self.store.offer(Offer(handoff=handoff, fingerprint="ab" * 32, workflow=flow), allow)

    def accept(self, name):
        self.claims[name] = self.store.claim(Claim(holder="w", id=name), allow).handoff.epoch

    def complete(self, name):
        self.store.advance(Step(id=name, event=Event.COMPLETE, epoch=self.claims[name]))

    def row(self, n):
        return self.db.execute(
            "SELECT a.seq, a.record FROM sealed s JOIN audit a ON a.seq = s.audit_seq WHERE s.n = ?", (n,)
        ).fetchone()

    def put(self, seq, record):
        digest = sha256(record).digest()
        self.db.execute("UPDATE audit SET record = ?, digest = ? WHERE seq = ?", (record, digest, seq))

    def last(self):
        return self.store.segments()[-1].last

    def reseal(self, n):
        """Compute all segments from the one that holds record `n` on as an honest sealer would."""
        previous = ""
        for segment in self.store.segments():
            if segment.last >= n:
                digests = [row.digest for row in self.store.sealed(segment.first, segment.last)]
                root = root_of(msgspec.structs.replace(segment, previous=previous), digests)
                self.db.execute("UPDATE segment SET root = ?, previous = ? WHERE n = ?", (root, previous, segment.n))
                previous = root
            else:
                previous = segment.root


def changed(record, chance):
    """Another record of the same handoff, so that only its content can give it away."""
    value = msgspec.json.decode(record)
    value["reason"] = f"forged {chance.random()}"
    return msgspec.json.encode(value)


def edit(log, chance):
    n = chance.randint(1, log.last())
    seq, record = log.row(n)
    at = chance.randrange(len(record))
    data = record[:at] + bytes([record[at] ^ (1 << chance.randrange(8))]) + record[at + 1 :]
    log.db.execute("UPDATE audit SET record = ? WHERE seq = ?", (data, seq))
    return n


def edit_with_digest(log, chance):
    n = chance.randint(1, log.last())
    seq, record = log.row(n)
    log.put(seq, changed(record, chance))
    return n


def delete(log, chance):
    n = chance.choice([1, chance.randint(1, log.last()), log.last()])
    log.db.execute("DELETE FROM audit WHERE seq = ?", (log.row(n)[0],))
    return n


def delete_and_close_the_gap(log, chance):
    n = chance.randint(1, log.last() - 1)
    log.db.execute("DELETE FROM audit WHERE seq = ?", (log.row(n)[0],))
    log.db.execute("DELETE FROM sealed WHERE n = ?", (n,))
    log.db.execute("UPDATE sealed SET n = -n WHERE n > ?", (n,))
    log.db.execute("UPDATE sealed SET n = -n - 1 WHERE n < 0")
    return n


def reorder(log, chance):
    one, two = sorted(chance.sample(range(1, log.last() + 1), 2))
    first, second = log.row(one)[0], log.row(two)[0]
    log.db.execute("UPDATE sealed SET audit_seq = -1 WHERE n = ?", (one,))
    log.db.execute("UPDATE sealed SET audit_seq = ? WHERE n = ?", (first, two))
    log.db.execute("UPDATE sealed SET audit_seq = ? WHERE n = ?", (second, one))
    return one


def insert(log, chance):
    """Put a forged record in the middle and shift the numbers of those after it."""
    n = chance.randint(1, log.last())
    data = changed(log.row(n)[1], chance)
    log.db.execute(
        "INSERT INTO audit (seq, handoff_id, task_id, from_agent, to_agent, record, digest)"
        " VALUES (-9, ?, '', '', '', ?, ?)",
        (msgspec.json.decode(data)["handoff_id"], data, sha256(data).digest()),
    )
    log.db.execute("UPDATE sealed SET n = -n - 1 WHERE n >= ?", (n,))
    log.db.execute("UPDATE sealed SET n = -n WHERE n < 0")
    log.db.execute("INSERT INTO sealed VALUES (?, -9)", (n,))
    return n


def swap_segments(log, chance):
    one, two = chance.sample(range(1, len(log.store.segments()) + 1), 2)
    for old, new in ((one, -1), (two, one), (-1, two)):
        log.db.execute("UPDATE segment SET n = ? WHERE n = ?", (new, old))
    return log.store.segments()[min(one, two) - 1].first


def alter_root(log, chance):
    segment = chance.choice(log.store.segments())
    root = sha256(segment.root.encode()).hexdigest()
    log.db.execute("UPDATE segment SET root = ? WHERE n = ?", (root, segment.n))
    return segment.first


def relabel(log, chance):
    n = chance.randint(1, log.last())
    log.db.execute("UPDATE audit SET handoff_id = 'elsewhere' WHERE seq = ?", (log.row(n)[0],))
    return n


def change_unsealed(log, chance):
    """Before they are sealed, only the handoff's own chain protects records that others follow."""
    handoff = chance.randint(HANDOFFS, HANDOFFS + UNSEALED - 1)
    seqs = log.db.execute("SELECT seq FROM audit WHERE handoff_id = ? ORDER BY seq", (f"h{handoff}",)).fetchall()
    seq = chance.choice(seqs[:-1])[0]
    if chance.random() < 0.5:
        log.db.execute("DELETE FROM audit WHERE seq = ?", (seq,))
    else:
        (record,) = log.db.execute("SELECT record FROM audit WHERE seq = ?", (seq,)).fetchone()
        log.put(seq, changed(record, chance))


ATTACKS = [
    edit, edit_with_digest, delete, delete_and_close_the_gap, reorder, insert, swap_segments, alter_root,
    relabel, change_unsealed,
]  # fmt: skip


def cut(log, chance):
    """Remove the last segments, their rows, and what is not sealed."""
    segments = log.store.segments()
    end = segments[chance.randint(0, len(segments) - 2)]
    log.db.execute("DELETE FROM audit WHERE seq NOT IN (SELECT audit_seq FROM sealed WHERE n <= ?)", (end.last,))
    log.db.execute("DELETE FROM sealed WHERE n > ?", (end.last,))
    log.db.execute("DELETE FROM segment WHERE n > ?", (end.n,))


def rewrite(log, chance):
    """Change one record, and everything that depends on it: later records, digests, roots."""
    n = chance.randint(1, log.last())
    seq, record = log.row(n)
    data = changed(record, chance)
    handoff = msgspec.json.decode(record)["handoff_id"]
    rows = log.db.execute(
        "SELECT seq, record FROM audit WHERE handoff_id = ? AND seq > ? ORDER BY seq", (handoff, seq)
    ).fetchall()
    log.put(seq, data)
    for later, old in rows:
        value = msgspec.json.decode(old)
        value["previous"] = sha256(data).hexdigest()
        data = msgspec.json.encode(value)
        log.put(later, data)
    log.reseal(n)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    log = Log()
    chance = random.Random(1)
    steps = [[f"h{number}", 0] for number in range(HANDOFFS)]
    while steps:  # many handoffs at once, sealed in uneven pieces
        one = chance.choice(steps[:5])
        (log.initiate, log.accept, log.complete)[one[1]](one[0])
        one[1] += 1
        if one[1] == 3:
            steps.remove(one)
        if chance.random() < 0.2:
            seal(log.store, limit=chance.randint(1, 9))
    seal(log.store, limit=7)
    log.state = tmp_path_factory.mktemp("state")
    checkpoint(log.state, log.store)
    for number in range(HANDOFFS, HANDOFFS + UNSEALED):
        log.initiate(f"h{number}")
        log.accept(f"h{number}")
        log.complete(f"h{number}")
    report = verify(log.store, checkpoints=checkpoints(log.state))
    assert report.ok, report
    assert (report.records, report.unsealed, report.checkpoints) == (3 * HANDOFFS, 3 * UNSEALED, 1)
    return log


def attacked(log, attack, seed, **arguments):
    log.db.execute("BEGIN")
    try:
        place = attack(log, random.Random(seed))
        return place, verify(log.store, **arguments)
    finally:
        log.db.execute("ROLLBACK")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_every_attack_is_found_and_located(log, attack):
    for seed in range(PLACES):
        place, report = attacked(log, attack, seed)
        assert not report.ok, f"{attack.__name__} with seed {seed} was not found"
        if place is not None:
            assert any(one.n <= place <= max(one.n, one.to) for one in report.findings if one.n), (
                place,
                report,
            )
        assert all(str(one).count(":") >= 2 and one.meaning for one in report.findings)
    assert verify(log.store).ok


@pytest.mark.parametrize(("attack", "kind"), [(cut, "cut"), (rewrite, "rewritten")])
def test_a_cut_or_rewritten_log_needs_checkpoints(log, attack, kind):
    kept = checkpoints(log.state)
    for seed in range(PLACES):
        assert attacked(log, attack, seed)[1].ok, "a chain alone cannot see this"
        _, report = attacked(log, attack, seed, checkpoints=kept)
        assert kind in {one.kind for one in report.findings}


def test_what_is_cut_after_the_last_checkpoint_is_not_seen(tmp_path):
    log = Log()
    log.initiate("kept")
    seal(log.store)
    checkpoint(tmp_path, log.store)
    log.initiate("lost")
    seal(log.store)
    for table, column in (("audit", "seq"), ("sealed", "n"), ("segment", "n")):
        log.db.execute(f"DELETE FROM {table} WHERE {column} = 2")
    assert verify(log.store, checkpoints=checkpoints(tmp_path)).ok


@pytest.fixture(scope="module")
def exported(log, tmp_path_factory):
    (path,) = export(log.store, tmp_path_factory.mktemp("root"), "shop")
    return path.read_bytes()


def swapped(lines, chance):
    one, two = chance.sample(range(len(lines)), 2)
    lines[one], lines[two] = lines[two], lines[one]


def line_edits(lines, chance):
    at = chance.randrange(len(lines))
    line = bytearray(lines[at])
    line[chance.randrange(len(line))] ^= 1 << chance.randrange(8)
    lines[at] = bytes(line)


def line_digest_edits(lines, chance):
    at = chance.randrange(len(lines))
    head, middle, record = lines[at].partition(b',"record":')
    data = changed(record[:-1], chance)
    start = head.index(b'"digest":"') + 10
    digest = sha256(data).hexdigest().encode()
    lines[at] = head[:start] + digest + head[start + 64 :] + middle + data + b"}"


def line_deletions(lines, chance):
    del lines[chance.choice([0, chance.randrange(len(lines)), -1])]


def line_insertions(lines, chance):
    at = chance.randrange(len(lines))
    lines.insert(at, lines[chance.randrange(len(lines))])


def torn(lines, chance):
    lines[-1] = lines[-1][: chance.randrange(1, len(lines[-1]))]


LINE_ATTACKS = [swapped, line_edits, line_digest_edits, line_deletions, line_insertions, torn]


@pytest.mark.parametrize("attack", LINE_ATTACKS, ids=lambda attack: attack.__name__)
def test_every_attack_on_an_exported_file_is_found(exported, attack, tmp_path):
    path = tmp_path / "000000000001-000000000090.jsonl"
    path.write_bytes(exported)
    assert verify(path).ok
    assert verify(tmp_path).ok
    for seed in range(PLACES):
        lines = exported.split(b"\n")[:-1]
        attack(lines, random.Random(seed))
        changed_file = b"\n".join(lines) + b"\n"
        if changed_file == exported:
            continue
        path.write_bytes(changed_file)
        report = verify(tmp_path)
        # A whole segment that stands there twice, equal to the byte, says nothing new.
        assert not report.ok or report.duplicates, f"{attack.__name__} with seed {seed} was not found"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.integers(1, 5)), max_size=40),
    st.integers(0, 3),
)
def test_an_honest_log_never_raises_an_alarm(tmp_path_factory, steps, lag):
    log, taken = Log(), {}
    folder = tmp_path_factory.mktemp("honest")
    for index, (number, sealing, limit) in enumerate(steps):
        step = taken.get(number, 0)
        if step < 3:
            (log.initiate, log.accept, log.complete)[step](f"h{number}")
            taken[number] = step + 1
        if sealing:
            seal(log.store, limit=limit)
            checkpoint(folder, log.store)
        if index % (lag + 1) == 0:
            export(log.store, folder, "p")
    report = verify(log.store, checkpoints=checkpoints(folder), deep=True)
    assert report.ok, report
    assert report.records + report.unsealed == sum(taken.values())
    if report.segments:
        export(log.store, folder, "p")
        copy = verify(folder / "core" / "logs" / "p" / "handoff-audit", checkpoints=checkpoints(folder))
        assert copy.ok, copy
        assert (copy.records, copy.root) == (report.records, report.root)
    log.store.close()
