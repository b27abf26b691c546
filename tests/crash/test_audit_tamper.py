"""Attacks on the audit trail, whole or pruned, at many places each: every one is found, and nothing else is.

What ends behind the last checkpoint is found only with checkpoints; that it is not found without them shows
why they exist.
"""

import random
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton import clock
from baton.guards.base import ALLOW
from baton.lifecycle import Event
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.stores import open_store
from baton.stores.base import Claim, Offer, Step, Workflow
from baton.stores.export import TOMBSTONES, export
from baton.stores.prune import Order, prune
from baton.stores.retention import DAY
from baton.stores.seal import checkpoint, checkpoints, root_of, seal
from baton.stores.tombstone import Graves, signed, written_tombstone
from baton.stores.verify import verify
from baton.stores.witness import Witness
from baton.testing.virtual import VirtualClock

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


# --- a log of which parts were pruned --------------------------------------------------------------


class PrunedLog(Log):
    """Half of its handoffs are over for long; what was removed of them, an attacker has kept."""

    def __init__(self, folder):
        super().__init__()
        chance = random.Random(2)
        for number in range(2 * HANDOFFS):
            self.initiate(f"h{number}")
            self.accept(f"h{number}")
            if chance.random() < 0.2:
                seal(self.store, limit=4)
            if number % 5:
                self.complete(f"h{number}")
            if chance.random() < 0.6:
                seal(self.store, limit=7)
        seal(self.store, limit=7)
        clock._source.advance(91 * DAY / 1e6)
        self.initiate("newest")
        seal(self.store)
        self.state = folder
        checkpoint(folder, self.store)
        self.witness = Witness(folder, self.store.id)
        self.before = self.kept()
        export(self.store, folder, "before")
        self.done = prune(self.store, Order(by="ana"), self.witness.sign)
        export(self.store, folder, "before")
        export(self.store, folder, "after")

    def kept(self):
        rows = self.db.execute("SELECT s.n, a.* FROM sealed s JOIN audit a ON a.seq = s.audit_seq").fetchall()
        return {row[0]: row[1:] for row in rows}, {one.n: one for one in self.store.segments()}

    def graves(self):
        return list(Graves(self.store.tombstones(), lambda _: True))

    def steal(self, segment):
        """Remove a segment as pruning does."""
        records = (segment.first, segment.last)
        self.db.execute(
            "DELETE FROM audit WHERE seq IN (SELECT audit_seq FROM sealed WHERE n BETWEEN ? AND ?)", records
        )
        self.db.execute("DELETE FROM sealed WHERE n BETWEEN ? AND ?", records)
        self.db.execute("DELETE FROM segment WHERE n = ?", (segment.n,))

    def put_back(self, n):
        row = self.before[0][n]
        self.db.execute(f"INSERT INTO audit VALUES ({', '.join('?' * len(row))})", row)
        self.db.execute("INSERT INTO sealed VALUES (?, ?)", (n, row[0]))

    def put_segment(self, n):
        self.db.execute("INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(self.before[1][n]))

    def place(self, grave):
        row = (grave.n, written_tombstone(grave))
        self.db.execute("INSERT OR REPLACE INTO tombstone VALUES (?, ?)", row)

    def verify(self, **more):
        return verify(self.store, checkpoints=checkpoints(self.state), witness=self.witness, **more)

    def attacked(self, attack, seed):
        self.db.execute("BEGIN")
        try:
            place = attack(self, random.Random(seed))
            return place, self.verify()
        finally:
            self.db.execute("ROLLBACK")


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    with clock.use(VirtualClock()):
        log = PrunedLog(tmp_path_factory.mktemp("pruned"))
    assert log.done.records > 50
    assert log.done.tombstones > 5
    return log


def theft(log, chance):
    """A segment of which nobody said that it may go."""
    segment = chance.choice(log.store.segments()[:-1])
    log.steal(segment)
    return segment.first


def theft_under_a_forged_tombstone(log, chance):
    """As an honest one would be, but for the secret."""
    segment = chance.choice(log.store.segments()[:-1])
    entries = log.store.sealed(segment.first, segment.last)
    log.steal(segment)
    model = chance.choice(log.graves())
    forged = msgspec.structs.replace(
        model, n=segment.n, to=segment.n, first=segment.first, last=segment.last, previous=segment.previous,
        root=segment.root, ends=tuple(one.digest for one in entries),
    )  # fmt: skip
    log.place(chance.choice([forged, signed(forged, b"guessed"), msgspec.structs.replace(forged, mac="")]))
    return segment.first


def theft_under_a_tombstone_nobody_noted(log, chance):
    """Signed with the very secret, as by one who may read it, but not write beside it."""
    segment = chance.choice(log.store.segments()[:-1])
    log.steal(segment)
    model = chance.choice(log.graves())
    forged = msgspec.structs.replace(
        model, n=segment.n, to=segment.n, first=segment.first, last=segment.last, previous=segment.previous,
        root=segment.root,
    )  # fmt: skip
    log.place(signed(forged, log.witness._key()))
    return segment.first


def theft_under_a_moved_tombstone(log, chance):
    """A real one in the place of another segment."""
    segment = chance.choice(log.store.segments()[:-1])
    log.steal(segment)
    record = written_tombstone(chance.choice(log.graves()))
    log.db.execute("INSERT INTO tombstone VALUES (?, ?)", (segment.n, record))
    return segment.first


def widened(log, chance):
    """A tombstone that stands for its neighbour as well."""
    grave = chance.choice(log.graves())
    after = next(one for one in log.store.segments() if one.n > grave.to)
    log.steal(after)
    log.place(msgspec.structs.replace(grave, to=after.n, last=after.last, root=after.root))
    return after.first


def no_tombstone(log, chance):
    grave = chance.choice(log.graves())
    log.db.execute("DELETE FROM tombstone WHERE n = ?", (grave.n,))
    return grave.first


OTHERS = {
    "log": "another", "n": 1000, "to": 1000, "first": 0, "last": 1000, "previous": "ab" * 32, "root": "ab" * 32,
    "oldest": 0, "newest": 0, "classes": {"completed": 0}, "ends": ("ab" * 32,), "begins": ("ab" * 32,),
    "time": 0, "by": "eve", "reason": "none", "mac": "ab" * 32,
}  # fmt: skip


def tombstone_edited(log, chance):
    """Any field of it, who pruned and why too."""
    grave = chance.choice(log.graves())
    name = chance.choice(list(OTHERS))
    edited = msgspec.structs.replace(grave, **{name: OTHERS[name]})
    log.db.execute("UPDATE tombstone SET record = ? WHERE n = ?", (written_tombstone(edited), grave.n))


def tombstone_damaged(log, chance):
    grave = chance.choice(log.graves())
    data = bytearray(written_tombstone(grave))
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    log.db.execute("UPDATE tombstone SET record = ? WHERE n = ?", (bytes(data), grave.n))


def come_back(log, chance):
    """A run of segments, whole as they were, or changed in one record."""
    grave = chance.choice(log.graves())
    for n in range(grave.n, grave.to + 1):
        log.put_segment(n)
    for n in range(grave.first, grave.last + 1):
        log.put_back(n)
    if chance.random() < 0.5:
        n = chance.randint(grave.first, grave.last)
        seq, record = log.row(n)
        log.put(seq, changed(record, chance))
    return grave.first


def one_comes_back(log, chance):
    """A single record, or a single segment without its records."""
    grave = chance.choice(log.graves())
    if chance.random() < 0.5:
        log.put_back(chance.randint(grave.first, grave.last))
    else:
        log.put_segment(chance.randint(grave.n, grave.to))
    return grave.first


def neighbour_rewritten(log, chance):
    """A segment beside a tombstone, resealed by itself after a change."""
    grave = chance.choice([one for one in log.graves() if one.n > 1])
    before = next(one for one in reversed(log.store.segments()) if one.n < grave.n)
    seq, record = log.row(before.last)
    log.put(seq, changed(record, chance))
    digests = [row.digest for row in log.store.sealed(before.first, before.last)]
    log.db.execute("UPDATE segment SET root = ? WHERE n = ?", (root_of(before, digests), before.n))


def follower_changed(log, chance):
    """A record that follows a pruned one says that it follows something else."""
    kept = {n: log.row(n) for n in range(1, log.last() + 1) if log.row(n)}
    ends = {end for grave in log.graves() for end in grave.ends}
    n = chance.choice([n for n, (_, data) in kept.items() if msgspec.json.decode(data).get("previous") in ends])
    seq, record = kept[n]
    value = {**msgspec.json.decode(record), "previous": sha256(str(chance.random()).encode()).hexdigest()}
    log.put(seq, msgspec.json.encode(value))
    return n


PRUNED_ATTACKS = [
    theft, theft_under_a_forged_tombstone, theft_under_a_tombstone_nobody_noted, theft_under_a_moved_tombstone,
    widened, no_tombstone, tombstone_edited, tombstone_damaged, come_back, one_comes_back, neighbour_rewritten,
    follower_changed,
]  # fmt: skip


def test_a_pruned_log_verifies_and_says_what_is_gone(pruned):
    report = pruned.verify(deep=True)
    assert report.ok, report
    assert (report.pruned, report.tombstones) == (pruned.done.records, pruned.done.tombstones)
    assert report.records + report.pruned == pruned.last()
    assert f"{report.pruned} pruned, under {report.tombstones} tombstones" in str(report)
    assert any(one.ends for one in pruned.graves()), "no chain goes on behind what was pruned"


@pytest.mark.parametrize("attack", PRUNED_ATTACKS, ids=lambda attack: attack.__name__)
def test_every_attack_on_a_pruned_log_is_found(pruned, attack):
    found = 0
    for seed in range(PLACES):
        place, report = pruned.attacked(attack, seed)
        assert not report.ok, f"{attack.__name__} with seed {seed} was not found"
        if place is not None:
            spans = [(one.n, max(one.n, one.to)) for one in report.findings if one.n]
            assert any(first <= place <= last for first, last in spans), (place, report)
        found += 1
    assert found == PLACES
    assert pruned.verify().ok


def test_without_its_witness_a_tombstone_is_taken_at_its_word(pruned):
    assert verify(pruned.store).ok
    pruned.db.execute("BEGIN")
    theft_under_a_forged_tombstone(pruned, random.Random(1))
    assert verify(pruned.store).ok, "structure alone cannot see this"
    pruned.db.execute("ROLLBACK")


def exported_folder(log, project):
    return log.state / "core" / "logs" / project / "handoff-audit"


@pytest.mark.parametrize("project", ["before", "after"])
def test_an_export_made_before_or_after_pruning_verifies(pruned, project):
    report = verify(exported_folder(pruned, project), checkpoints=checkpoints(pruned.state), witness=pruned.witness)
    assert report.ok, report
    assert report.pruned == (pruned.done.records if project == "after" else 0)
    assert report.last == pruned.last()
    (file, *_) = exported_folder(pruned, project).glob("0*.jsonl")
    assert verify(file, witness=pruned.witness).ok


def test_attacks_on_the_export_of_a_pruned_log_are_found(pruned, tmp_path):
    folder = exported_folder(pruned, "after")
    (file,) = folder.glob("0*.jsonl")
    graves = (folder / TOMBSTONES).read_bytes().splitlines(keepends=True)
    for name in (file.name, TOMBSTONES):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert verify(tmp_path, witness=pruned.witness).ok
    for seed in range(PLACES):
        chance = random.Random(seed)
        lines = list(graves)
        at = chance.randrange(len(lines))
        if chance.random() < 0.3:
            del lines[at]
        else:
            edited = bytearray(lines[at])
            edited[chance.randrange(len(edited) - 1)] ^= 1 << chance.randrange(8)
            lines[at] = bytes(edited)
        (tmp_path / TOMBSTONES).write_bytes(b"".join(lines))
        assert not verify(tmp_path, witness=pruned.witness).ok, seed


def test_exported_files_may_go_when_all_in_them_was_pruned(tmp_path):
    with clock.use(VirtualClock()) as now:
        log = Log()
        witness = Witness(tmp_path, log.store.id)
        for number in range(4):
            for step in (log.initiate, log.accept, log.complete):
                step(f"h{number}")
                seal(log.store)
            export(log.store, tmp_path, "shop")
        now.advance(91 * DAY / 1e6)
        log.initiate("open")
        seal(log.store)
        prune(log.store, Order(by="ana"), witness.sign)
        export(log.store, tmp_path, "shop")
    folder = tmp_path / "core" / "logs" / "shop" / "handoff-audit"
    first, *others, last = sorted(folder.glob("0*.jsonl"))
    assert verify(folder, witness=witness).pruned == 0
    others[1].unlink()
    report = verify(folder, witness=witness)
    assert (report.ok, report.pruned, report.tombstones) == (True, 3, 1), report
    first.unlink()
    others[0].unlink()
    assert verify(folder, witness=witness).ok
    last.unlink()
    checkpoint(tmp_path, log.store)
    assert not verify(folder, witness=witness, checkpoints=checkpoints(tmp_path)).ok
    log.store.close()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 5), st.integers(0, 60), st.booleans()), max_size=40),
)
def test_an_honest_log_that_is_pruned_again_and_again_never_raises_an_alarm(tmp_path_factory, steps):
    with clock.use(VirtualClock()) as now:
        log, taken, gone = Log(), {}, 0
        folder = tmp_path_factory.mktemp("honest")
        witness = Witness(folder, log.store.id)
        for number, limit, days, pruning in steps:
            step = taken.get(number, 0)
            if step < 3:
                (log.initiate, log.accept, log.complete)[step](f"h{number}")
                taken[number] = step + 1
            seal(log.store, limit=limit)
            checkpoint(folder, log.store)
            now.advance(days * DAY / 1e6)
            if pruning:
                gone += prune(log.store, Order(by="p"), witness.sign).records
            report = verify(log.store, checkpoints=checkpoints(folder), witness=witness, deep=True)
            assert report.ok, report
            assert (report.pruned, report.records) == (gone, sum(taken.values()) - gone)
            export(log.store, folder, "p")
        if steps:
            copy = verify(folder / "core" / "logs" / "p" / "handoff-audit", witness=witness)
            assert copy.ok, copy
        log.store.close()
