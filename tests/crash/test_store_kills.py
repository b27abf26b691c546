"""Kill, tear or fail the store at every write: nothing acknowledged is lost, nothing is half done."""

import os
import sys
from pathlib import Path

import apsw
import pytest

from baton.errors import StoreError
from baton.lifecycle import Event, State
from baton.stores import open_store
from baton.stores.base import Step
from baton.testing import kill_sweep, strace_sweep
from baton.testing.contracts import flaws
from baton.testing.contracts.evidence import names
from baton.testing.contracts.work import allow, answer, claim_of, following, request

NAME = "store.db"


def warm(directory):
    """A file that was used before."""
    store = open_store(f"{directory}/{NAME}")
    for _ in range(3):
        store.offer(request("old"), allow)
    store.close()


def create_claim_return(directory, acknowledge, durability="power", rounds=1):
    store = open_store(f"{directory}/{NAME}", durability=durability)
    for _ in range(rounds):
        root = store.offer(request(), allow)[0]
        acknowledge(f"offered {root.id}")
        first = store.claim(claim_of(root.id), allow).handoff
        acknowledge(f"claimed {root.id}")
        done = Step(id=root.id, event=Event.COMPLETE, epoch=first.epoch, result=answer("1"), then=following(first))
        then = store.advance(done, allow).then
        acknowledge(f"completed {root.id}")
        acknowledge(f"offered {then.id}")
        last = store.claim(claim_of(then.id), allow).handoff
        acknowledge(f"claimed {then.id}")
        store.advance(Step(id=last.id, event=Event.COMPLETE, epoch=last.epoch, result=answer("2", tokens=5)), allow)
        acknowledge(f"answered {root.id}")
    store.close()


EVENT = {"offered": "initiated", "claimed": "accepted", "completed": "completed"}


def is_kept(store, what, handoff_id):
    if what == "answered":
        return getattr(store.returned(handoff_id), "output", None) == "2"
    return store.get(handoff_id) is not None and EVENT[what] in names(store, handoff_id)


def kept(directory, acknowledged):
    """What is wrong with what a fault left behind, opened as a user would."""
    path = f"{directory}/{NAME}"
    store = open_store(path)
    found = flaws(store)
    found += [f"lost: {line}" for line in acknowledged if not is_kept(store, *line.split())]
    for handoff in store.find(state="completed"):
        line = store.find(line_id=handoff.id, state=["offered", "claimed", "completed"])
        if handoff.id == handoff.root_id and not line:
            found += [f"half done: {handoff.id}"]
    then = store.offer(request("next"), allow)[0]
    if not store.claim(claim_of(then.id), allow).won:
        found.append("no new work can be done")
    store.close()
    raw = apsw.Connection(path)
    found += [str(row[0]) for row in raw.execute("PRAGMA integrity_check") if row[0] != "ok"]
    raw.close()
    return found


@pytest.mark.parametrize("prepare", [None, warm], ids=["fresh", "warm"])
@pytest.mark.parametrize("mode", ["kill", "torn"])
def test_killed_at_every_write(mode, prepare):
    report = kill_sweep(create_claim_return, kept, mode=mode, prepare=prepare)
    report.assert_clean()
    assert report.kills == report.calls > 60
    assert report.acknowledged > 100
    print(f"{mode}: {report.kills} kills in {report.seconds:.1f} s")


def go_on_after_errors(directory, acknowledge):
    """Each step again until it is done, in the same process, as a caller that is told of an error would."""
    for _ in range(6):
        try:
            store = open_store(f"{directory}/{NAME}")
        except StoreError:
            continue
        break
    else:
        return
    offers = [request() for _ in range(2)]
    for offer in offers:
        for _ in range(3):
            try:
                root = store.offer(offer, allow)[0]
                acknowledge(f"offered {root.id}")
                first = root if root.state is not State.OFFERED else store.claim(claim_of(root.id), allow).handoff
                acknowledge(f"claimed {root.id}")
                store.advance(Step(id=root.id, event=Event.COMPLETE, epoch=first.epoch, result=answer("2")), allow)
                acknowledge(f"answered {root.id}")
            except StoreError:
                continue
            break
        assert flaws(store) == []
    store.close()


@pytest.mark.parametrize("mode", ["EIO", "ENOSPC"])
@pytest.mark.parametrize(("prepare", "every"), [(None, 3), (warm, 1)], ids=["fresh", "warm"])
def test_an_error_at_every_write(mode, prepare, every):
    report = kill_sweep(go_on_after_errors, kept, mode=mode, prepare=prepare, every=every)
    report.assert_clean()
    assert report.errors == report.calls > 10
    print(f"{mode}: {report.errors} errors in {report.seconds:.1f} s")


def test_a_store_that_acknowledges_too_early_is_caught():
    report = kill_sweep(acknowledges_first, kept, prepare=warm)
    assert any("lost: offered" in found.detail for found in report.violations)


def acknowledges_first(directory, acknowledge):
    store = open_store(f"{directory}/{NAME}")
    for _ in range(2):
        offer = request()
        acknowledge(f"offered {offer.handoff.id}")
        store.offer(offer, allow)
    store.close()


PROGRAM = """
import functools, importlib.util, sys
spec = importlib.util.spec_from_file_location("kills", sys.argv[1])
kills = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kills)
kills.create_claim_return(sys.argv[2], functools.partial(print, flush=True), rounds=1)
"""


EVERY = 1 if os.environ.get("BATON_REQUIRE_PROOFS", "") not in {"", "0"} else 5


@pytest.mark.parametrize("prepare", [None, warm], ids=["fresh", "warm"])
@pytest.mark.proof("strace")
@pytest.mark.timeout(600)
def test_killed_at_every_system_call(prepare):
    """At every one where the proofs are required, as in CI; else at one in five."""
    argv = [sys.executable, "-c", PROGRAM, str(Path(__file__)), "{directory}"]
    report = strace_sweep(argv, kept, prepare=prepare, every=EVERY)
    report.assert_clean()
    assert report.kills == report.calls > 100 // EVERY
    print(f"strace: {report.kills} kills in {report.seconds:.1f} s")
