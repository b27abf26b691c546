"""What a SQLite file promises beyond the contract: reopened, shared, forked, guarded, refused."""

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from baton.errors import StoreError
from baton.guards.health import Health
from baton.lifecycle import Event, State
from baton.protocol import Profile
from baton.protocol.codec import canonical_record
from baton.protocol.context import Blob
from baton.stores import connection, mounts, open_store
from baton.stores.base import Offer, Step
from baton.testing.children import Child
from baton.testing.contracts import flaws
from baton.testing.contracts.work import allow, answer, claim_of, delegation, following, refuse, request

SHARED = (1073741826, 510)  # the bytes of the file that a reader of SQLite locks


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def store(path):
    opened = open_store(path)
    yield opened
    opened.close()


def worked(store):
    root = store.offer(request(), allow)[0]
    held = store.claim(claim_of(root.id), allow).handoff
    done = Step(id=root.id, event=Event.COMPLETE, epoch=held.epoch, result=answer(tokens=3), then=following(root))
    return store.advance(done, allow).then


def everything(store):
    return store.find(), store.audit(), store.workflows(), store.agents(), store.alerts(unresolved=False)


def test_reopened_it_gives_the_same_answers(store, path):
    then = worked(store)
    before = everything(store)
    store.close()
    again = open_store(path)
    assert everything(again) == before
    assert flaws(again) == []
    assert again.claim(claim_of(then.id), allow).won
    again.close()


def test_two_stores_on_one_file_see_each_other(store, path):
    other = open_store(path)
    version = other.version()
    made = store.offer(request(), allow)[0]
    assert other.get(made.id) == store.get(made.id)
    assert other.version() != version
    assert other.claim(claim_of(made.id, "other"), allow).won
    assert not store.claim(claim_of(made.id), allow).won
    other.close()
    assert store.get(made.id).holder == "other"


def locked_by_others(path):
    """Whether another process finds the file in use."""
    program = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, {}, {})"
    command = [sys.executable, "-S", "-c", program.format(SHARED[1], SHARED[0]), path]
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_opening_a_file_twice_keeps_the_locks_of_the_first(store, path):
    # A close of any descriptor of a file drops all locks that the process has on it, SQLite's as well.
    store.raise_alert("a", "text")
    assert locked_by_others(path)
    other = open_store(path)
    assert locked_by_others(path)
    other.close()


def test_nobody_else_may_read_it(store, path):
    worked(store)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in Path(path).parent.iterdir()}
    assert modes == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm", "store.db.gate"], 0o600)


def test_a_newer_schema_is_refused_and_left_alone(store, path):
    store.close()
    raw = apsw.Connection(path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    before, descriptors = Path(path).read_bytes(), len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(StoreError, match="newer baton"):
        open_store(path)
    assert len(list(Path("/dev/fd").iterdir())) == descriptors
    assert Path(path).read_bytes() == before


def test_what_is_not_a_database_is_refused(tmp_path):
    (tmp_path / "text").write_text("not a database\n" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        open_store(str(tmp_path / "text"))
    with pytest.raises(StoreError, match="folder"):
        open_store(str(tmp_path / "no" / "where" / "store.db"))
    with pytest.raises(StoreError, match="no such store"):
        open_store("mysql://there")


MOUNTS = """\
22 1 0:20 / / rw - ext4 /dev/root rw
30 22 0:30 / /mnt rw - nfs4 server:/ rw
31 30 0:31 / /mnt/local\\040disk rw - xfs /dev/b rw
32 22 0:32 / /mnt2 rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/a", "ext4"),
        ("/mnt", "nfs4"),
        ("/mnt/x/y", "nfs4"),
        ("/mnt/local disk/z", "xfs"),
        ("/mnt2/x", "tmpfs"),
    ],
)
def test_which_file_system_a_path_is_on(path, kind):
    assert mounts.file_system(path, MOUNTS) == kind


def test_a_network_file_system_is_refused(path, monkeypatch):
    for kind in ("nfs4", "cifs", "9p"):
        monkeypatch.setattr(connection, "file_system", lambda _, kind=kind: kind)
        with pytest.raises(StoreError, match=f"network file system \\({kind}\\)"):
            open_store(path)
    assert not Path(path).exists()


def test_a_file_with_two_names_is_refused_for_each_would_have_a_log_of_its_own(store, path):
    store.raise_alert("a", "text")
    other = Path(path).with_name("other.db")
    os.link(path, other)
    for name in (path, str(other)):
        with pytest.raises(StoreError, match=r"2 names \(hard links\), each with a log of its own.*find .* -samefile"):
            open_store(name)
    assert locked_by_others(path)  # looking drops no lock of the first
    assert not list(Path(path).parent.glob("other.db?*"))  # nothing beside it
    other.unlink()
    again = open_store(path)
    assert [alert.text for alert in again.alerts()] == ["text"]
    again.close()
    link = Path(path).with_name("link.db")
    link.symlink_to(path)  # SQLite follows it to the one log
    again = open_store(link)
    assert [alert.text for alert in again.alerts()] == ["text"]
    again.close()


def in_child(body):
    """What a forked child answers."""

    def told(tell):
        try:
            tell(b"R", repr(body()))
        except StoreError as error:
            tell(b"R", str(error))

    return "".join(Child(told).finish(20).of(b"R"))


def test_after_a_fork_only_the_parent_goes_on(store):
    made = store.offer(request(), allow)[0]
    assert "open the store again" in in_child(lambda: store.offer(request(), allow))
    assert "open the store again" in in_child(lambda: store.get(made.id))
    assert "open the store again" in in_child(store.due)
    with store._db._lock:  # as another thread of the parent may hold it
        assert "open the store again" in in_child(lambda: store.claim(claim_of(made.id), allow))
    assert store.claim(claim_of(made.id), allow).won


def test_the_same_offer_again_is_the_same_handoff(store):
    root = store.offer(request(part="k"), allow)[0]
    offer = delegation(store.claim(claim_of(root.id), allow).handoff)
    first = store.offer(offer, allow)[0]
    assert store.offer(offer, allow)[0] == store.get(first.id)
    assert len(store.find()) == 2
    assert flaws(store) == []


def test_a_step_repeated_answers_with_the_next_handoff(store):
    root = store.offer(request(), allow)[0]
    held = store.claim(claim_of(root.id), allow).handoff
    step = Step(id=root.id, event=Event.COMPLETE, epoch=held.epoch, result=answer(), then=following(held))
    first, again = store.advance(step, allow), store.advance(step, allow)
    assert again.then.id == first.then.id
    assert len(store.find()) == 2


def test_a_refused_next_handoff_can_be_tried_again(store):
    root = store.offer(request(), allow)[0]
    held = store.claim(claim_of(root.id), allow).handoff
    step = Step(id=root.id, event=Event.COMPLETE, epoch=held.epoch, result=answer(), then=following(held))
    for _ in range(2):
        moved = store.advance(step, refuse)
        assert (moved.handoff.state, moved.then.state) == (State.CLAIMED, State.REFUSED)
    assert flaws(store) == []


def test_writers_wait_for_the_gate(store, path):
    gate = os.open(f"{path}.gate", os.O_RDWR)
    fcntl.flock(gate, fcntl.LOCK_EX)
    program = "import sys; from baton.stores import open_store; open_store(sys.argv[1]).raise_alert('a', 'text')"
    writer = subprocess.Popen([sys.executable, "-c", program, path])
    with pytest.raises(subprocess.TimeoutExpired):
        writer.wait(1.0)
    assert store.alerts() == []
    fcntl.flock(gate, fcntl.LOCK_UN)
    os.close(gate)
    assert writer.wait(30) == 0
    assert [alert.text for alert in store.alerts()] == ["text"]


def limited(store, pages):
    store._db.connection.execute(f"PRAGMA max_page_count = {pages}")


def big(size):
    offer = request()
    return Offer(
        handoff=offer.handoff,
        fingerprint=offer.fingerprint,
        workflow=offer.workflow,
        blobs=[Blob(os.urandom(32).hex(), os.urandom(size))],
    )


def test_a_full_disk_is_a_store_error_and_the_next_step_works(store):
    worked(store)
    limited(store, 300)
    with pytest.raises(StoreError, match="full"):
        store.offer(big(5_000_000), allow)
    assert store.offer(request(), allow)[0].state is State.OFFERED
    assert len(store.find()) == 3
    assert flaws(store) == []


def test_a_batch_that_lost_its_transaction_acknowledges_nothing(store):
    limited(store, 300)
    offers = [request(), big(5_000_000), request()]
    try:
        results = store.batch([lambda offer=offer: store.offer(offer, allow) for offer in offers])
    except StoreError:
        kept = []
    else:
        kept = [offer.handoff.id for offer, result in zip(offers, results, strict=True) if isinstance(result, tuple)]
    assert [handoff.id for handoff in store.find()] == kept
    assert flaws(store) == []


PLANS = {
    "next_offered": ("a",),
    "due": (0, 10),
}


@pytest.mark.parametrize("name", PLANS)
def test_finding_the_next_one_neither_scans_nor_sorts(store, name):
    from baton.stores.sqlite import SQL

    plan = [row[3] for row in store._db.rows(f"EXPLAIN QUERY PLAN {SQL[name]}", PLANS[name])]
    index = {"next_offered": "handoff_queue", "due": "handoff_due"}[name]
    assert plan
    assert all(step.startswith("SEARCH") and index in step for step in plan)


def test_a_folder_for_a_store_is_made_but_no_path_to_it(tmp_path):
    open_store(tmp_path / "new" / "store.db").close()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    with pytest.raises(StoreError, match="choose a folder that exists"):
        open_store(tmp_path / "not" / "there" / "store.db")
    assert not (tmp_path / "not").exists()


def test_what_is_no_store_gets_nothing_beside_it(tmp_path):
    (tmp_path / "notes.txt").write_text("no database, and longer than the head of one: " * 20)
    for name, why in (("notes.txt", "not a database"), ("", "a folder"), (".", "a folder")):
        with pytest.raises(StoreError, match=why):
            open_store(tmp_path / name)
    with pytest.raises(StoreError, match="empty"):
        open_store("")
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]
    assert not tmp_path.with_name(f"{tmp_path.name}.gate").exists()


def of_schema_1(path):
    """A store as the first release made it, with an agent that was there and one that was away."""
    (script,) = (Path(connection.__file__).parent / "sql").glob("0001_*.sql")
    raw = apsw.Connection(path)
    raw.execute(script.read_text().replace("/* states */", ", ".join(f"'{state}'" for state in State)))
    raw.execute("INSERT INTO meta VALUES ('id', 'old')")
    for name, available, reason in (("here", 1, ""), ("away", 0, "away did not acknowledge in time")):
        profile = canonical_record(Profile(agent_id=name))
        raw.execute("INSERT INTO agent VALUES (?, ?, ?, ?, 7)", (name, profile, available, reason))
    raw.execute("PRAGMA user_version = 1")
    raw.close()


def test_a_store_of_the_first_schema_is_brought_to_this_one(tmp_path):
    path = str(tmp_path / "old.db")
    of_schema_1(path)
    store = open_store(path)
    here, away = store.agents()[1], store.agents()[0]
    assert store.id == "old"
    assert here.health == Health(seen_at=7)
    assert away.health == Health("suspect", "away did not acknowledge in time", failures=1, seen_at=7)
    store.register(Profile(agent_id="new"))
    store.seen(["away"])
    assert all(row.available for row in store.agents())
    worked(store)
    assert flaws(store) == []
    new = open_store(str(tmp_path / "new.db"))
    assert tables(store) == tables(new)
    assert store.setting("user_version") == new.setting("user_version")
    new.close()
    store.close()


def tables(store):
    raw = apsw.Connection(store.url, flags=apsw.SQLITE_OPEN_READONLY)
    names = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
    return {name: sorted(raw.execute(f"PRAGMA table_xinfo({name})"), key=lambda column: column[1]) for name in names}


def test_migrations_are_numbered_without_a_gap():
    names = sorted(file.name for file in (Path(connection.__file__).parent / "sql").glob("[0-9]*.sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
