"""`baton audit prune`: what it shows, asks, removes and refuses, and what the other verbs say afterwards."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from baton import Relay, clock
from baton.lifecycle import Event
from baton.protocol.handoff import Handoff
from baton.protocol.profile import Profile
from baton.stores.base import Step
from baton.stores.retention import DAY
from baton.testing.contracts.work import allow, answer, claim_of
from baton.testing.virtual import VirtualClock

STORE = ".baton/baton.db"


pytestmark = pytest.mark.usefixtures("place")


def work(task, days, event=Event.COMPLETE):
    """One piece of work that ended so many days ago, in a segment of its own; its handoff."""
    Path(STORE).parent.mkdir(exist_ok=True)
    with (
        clock.use(VirtualClock(seed=int.from_bytes(task.encode()), start=clock.now() - int(days * DAY))),
        Relay(STORE) as relay,
    ):
        relay.store.register(Profile(agent_id="a"))
        made = relay.hand_off(Handoff(from_agent="user", to_agent="a", task=task))
        if event is not None:
            taken = relay.store.claim(claim_of(made.id), allow).handoff
            relay.store.advance(Step(id=made.id, event=event, epoch=taken.epoch, result=answer(task)))
        return made


@pytest.fixture
def old():
    made = [work("failed", 181, Event.FAIL), work("done", 179), work("open", 178, None), work("fresh!", 1)]
    return dict(zip(("failed", "done", "open", "fresh"), made, strict=True))


def bytes_of(place):
    return {one: one.read_bytes() for one in place.rglob("*") if one.is_file() and "-shm" not in one.name}


def test_a_dry_run_says_what_would_go_and_writes_nothing(baton, documents, old, place):
    before = bytes_of(place)
    code, out, _ = baton("audit", "prune", "--dry-run")
    assert code == 0
    assert out == "active\t30 days\t4\t3\t3\ncompleted\t90 days\t6\t3\t3\nescalations\t180 days\t0\t0\t0\n"
    [said] = documents("audit", "prune", "--dry-run")
    assert (said["pruned"]["records"], said["pruned"]["dry_run"]) == (6, True)
    assert bytes_of(place) == before


def test_pruning_removes_what_is_over_and_the_rest_still_verifies(baton, documents, old):
    [done] = documents("audit", "prune", "--yes", "--reason", "tidy up")
    assert (done["pruned"]["records"], done["pruned"]["workflows"], done["pruned"]["tombstones"]) == (6, 2, 1)
    assert documents("audit", "prune", "--yes")[0]["pruned"]["records"] == 0
    code, out, err = baton("audit", "verify", "--deep")
    assert (code, out) == (
        0,
        "verified: 4 records (7 to 10), all as written; 6 pruned, under 1 tombstone; 3 checkpoints agree\n",
    )
    assert "ana pruned 6 records" in err
    assert err.strip().endswith("tidy up")
    [checked] = documents("audit", "verify")
    assert [one["by"] for one in checked["tombstones"]] == ["ana"]
    assert [one["task"] for one in documents("handoff", "list")] == ["fresh!", "open"]
    assert documents("audit", "query", "--handoff", old["fresh"].id)
    assert baton("handoff", "show", old["done"].id)[0] == 1
    checks = json.loads(baton("doctor", "--json")[1])["checks"]
    assert {one["name"]: one["ok"] for one in checks}["audit"] is True


def test_records_that_outlive_their_handoff_are_still_found(baton, documents):
    done, _ = work("done", 100), work("open", 99, None)
    with Relay(STORE) as relay:
        assert relay.audit.prune(by="p").workflows == 1
        assert relay.audit.query(handoff_id=done.id) == []
    newest = work("newest", 98)
    documents("audit", "prune", "--yes")
    assert baton("handoff", "show", newest.id)[0] == 1
    assert len(documents("audit", "query", "--handoff", newest.id)) == 3, "the newest segment stays"


def test_without_consent_nothing_is_removed(baton, documents, old):
    code, _, err = baton("audit", "prune")
    assert code == 2
    assert "--yes" in err
    assert documents("audit", "prune", code=2)[-1]["kind"] == "Malformed"
    assert documents("audit", "verify")[0]["report"].get("pruned", 0) == 0


@pytest.mark.parametrize(("said", "left"), [("n", 10), ("", 10), ("y", 4)])
def test_a_person_is_asked(said, left, old, documents):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "baton.cli", "audit", "prune"]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as child:
        os.close(follower)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(leader, 4096)
        os.write(leader, f"{said}\n".encode())
        try:
            while more := os.read(leader, 4096):
                shown += more
        except OSError:  # the end of a terminal
            pass
        assert child.wait(timeout=60) == (0 if said == "y" else 1), shown
    os.close(leader)
    assert b"CLASS" in shown
    assert b"remove 6 records and 2 workflows for good?" in shown
    assert documents("audit", "verify")[0]["report"]["records"] == left


def test_what_is_exported_first_is_not_lost(baton, documents, old, place):
    [done] = documents("audit", "prune", "--yes", "--export", ".", "--project", "shop")
    assert [Path(one).name for one in done["files"]] == ["000000000001-000000000010.jsonl"]
    folder = "core/logs/shop/handoff-audit"
    assert documents("audit", "verify", folder)[0]["report"]["records"] == 10
    for file in Path(folder).glob("0*.jsonl"):
        file.unlink()
    documents("audit", "export", "--project", "shop")
    [checked] = documents("audit", "verify", folder)
    assert (checked["report"]["records"], checked["report"]["pruned"]) == (4, 6)


def test_periods_may_be_longer_and_shorter_only_when_that_is_meant(baton, documents, old):
    assert documents("audit", "prune", "--dry-run", "--keep", "completed=365d")[0]["pruned"]["records"] == 3
    for wrong, code in (("completed=1d", 3), ("completed", 2), ("everything=1d", 2), ("active=soon", 2)):
        assert baton("audit", "prune", "--yes", "--keep", wrong)[0] == code
    shorter = ("--keep", "completed=1h", "--keep", "active=1h", "--shorter")
    [would] = documents("audit", "prune", "--dry-run", *shorter)
    assert would["pruned"]["records"] == 6, "the newest segment stays"
    work("newest", 0)
    assert documents("audit", "prune", "--yes", *shorter)[0]["pruned"]["records"] == 9


def test_a_broken_trail_is_left_alone(baton, old):
    database = apsw.Connection(STORE)
    database.execute("UPDATE audit SET record = CAST(replace(CAST(record AS TEXT), 'user', 'evil') AS BLOB)")
    database.close()
    code, out, err = baton("audit", "prune", "--yes")
    assert (code, out) == (3, "")
    assert "nothing was pruned" in err


def test_a_store_of_the_first_schema_is_brought_up_to_date_and_pruned(baton, documents, place):
    from importlib.resources import files

    from baton.lifecycle import State

    Path(STORE).parent.mkdir()
    first = (files("baton.stores") / "sql" / "0001_initial.sql").read_text(encoding="utf-8")
    database = apsw.Connection(STORE)
    database.execute(first.replace("/* states */", ", ".join(f"'{state}'" for state in State)))
    database.execute("PRAGMA user_version = 1")
    database.close()
    [migrated] = documents("store", "migrate")
    assert migrated["from"] == 1
    names = sorted(one.name for one in (files("baton.stores") / "sql").iterdir() if one.name[:4].isdigit())
    assert [int(name[:4]) for name in names] == list(range(1, migrated["to"] + 1))
    work("done", 100)
    work("fresh", 1)
    assert documents("audit", "prune", "--yes")[0]["pruned"]["records"] == 3
    assert documents("audit", "verify")[0]["report"]["pruned"] == 3


def test_the_secret_is_for_its_owner_only(baton, documents, old, place):
    documents("audit", "prune", "--yes")
    (key,) = (place / "state").rglob("audit-key")
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    code, _, err = baton("audit", "verify")
    assert code == 2
    assert "chmod 600" in err
    key.unlink()
    assert {one["kind"] for one in documents("audit", "verify", code=3)[0]["report"]["findings"]} >= {
        "tombstone",
        "missing",
    }
    key.symlink_to(place / "elsewhere")
    assert baton("audit", "verify")[0] == 2
    assert not (place / "elsewhere").exists()


def test_a_store_that_moves_keeps_its_tombstones(documents, old, place):
    documents("audit", "prune", "--yes")
    (place / STORE).rename(place / "moved.db")
    [checked] = documents("audit", "verify", "--store", "moved.db")
    assert checked["report"]["pruned"] == 6
