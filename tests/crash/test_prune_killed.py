"""Killed at every write while it prunes: the log verifies, what is open stays, and the next time finishes it."""

import os
import random
import threading
from pathlib import Path

import apsw
import pytest

from baton import clock
from baton.lifecycle import Event
from baton.protocol.context import Context, Message, append
from baton.protocol.variables import begin, freeze
from baton.stores import open_store, prune, sweep
from baton.stores.base import Step
from baton.stores.prune import Order
from baton.stores.retention import DAY
from baton.stores.seal import checkpoint, checkpoints, seal
from baton.stores.tombstone import replace
from baton.stores.verify import verify
from baton.stores.witness import KEY, Witness
from baton.testing import kill_sweep, power_loss
from baton.testing.children import Child
from baton.testing.contracts.work import allow, answer, claim_of, request
from baton.testing.virtual import VirtualClock

EVERY = 1 if os.environ.get("BATON_REQUIRE_PROOFS", "") not in {"", "0"} else 2
LONG_AGO = VirtualClock(start=clock.now() - 400 * DAY)
NAME = "store.db"


def with_content(text):
    history, messages = append("", [Message("user", text)])
    state, values = freeze(begin({"large": text * 600}))
    offer = request(context=Context(history_ref=history, state_ref=state.ref))
    return replace(offer, blobs=[*messages, *values])


def worked(store, text, *, end=True):
    made = store.offer(with_content(text), allow)[0]
    taken = store.claim(claim_of(made.id), allow).handoff
    if end:
        store.advance(Step(id=made.id, event=Event.COMPLETE, epoch=taken.epoch, result=answer(text)))
    return made


def prepare(directory):
    """Workflows from long ago, one of them open, in several segments; and one from now."""
    store = open_store(f"{directory}/{NAME}")
    with clock.use(LONG_AGO):
        for number in range(4):
            worked(store, f"over {number}")
            if number % 2:
                seal(store, limit=4)
        worked(store, "open", end=False)
        seal(store, limit=4)
    worked(store, "new")
    seal(store)
    checkpoint(f"{directory}/state/{store.id}", store)
    store.close()


def work(directory, acknowledge):
    store = open_store(f"{directory}/{NAME}")
    witness = Witness(Path(directory, "state"), store.id)
    prune.RUN_ROWS, sweep.PIECES = 5, 8
    done = prune.prune(store, Order(by="p"), witness.sign)
    acknowledge(f"{done.records} {done.tombstones}")
    store.close()


def is_sound(directory, acknowledged):
    store = open_store(f"{directory}/{NAME}")
    witness = Witness(Path(directory, "state"), store.id)
    points = checkpoints(f"{directory}/state/{store.id}")
    for round_ in range(2):
        report = verify(store, checkpoints=points, witness=witness, deep=True)
        assert report.ok, report
        assert report.records + report.pruned == 17
        if acknowledged or round_:
            assert report.pruned == 12, report
            assert store.tombstones()
        held = {one.task for one in store.find()}
        assert held
        for handoff in store.find(state="claimed"):
            assert store.fetch(handoff.context.history_ref)
            assert store.fetch(handoff.context.state_ref)
        assert len(store.find(state="claimed")) == 1
        work(directory, lambda _: None)
    assert len(store.find()) == 2
    assert len(store.contents()) == 6
    worked(store, "next")
    store.close()
    raw = apsw.Connection(f"{directory}/{NAME}")
    found = [str(row[0]) for row in raw.execute("PRAGMA integrity_check") if row[0] != "ok"]
    raw.close()
    return found


@pytest.mark.parametrize(("mode", "every"), [("kill", EVERY), ("torn", 3 * EVERY), ("EIO", 5), ("ENOSPC", 5)])
def test_killed_at_every_write(mode, every):
    report = kill_sweep(work, is_sound, prepare=prepare, mode=mode, every=every)
    report.assert_clean()
    assert report.points > 40 // every
    if mode in {"kill", "torn"}:
        assert report.kills == report.points
    if mode == "kill":
        seen = set(report.operations)
        assert f"write {NAME}-wal" in seen
        assert seen & {f"write {KEY}", f"sync {KEY}", "sync audit-tombstones.jsonl", "write audit-tombstones.jsonl"}, (
            seen
        )
    print(f"{mode}: {report.points} points in {report.seconds:.1f} s")


def test_the_power_fails():
    report = power_loss(work, is_sound, prepare=prepare)
    report.assert_clean()


def test_a_tombstone_that_is_noted_after_the_removal_is_caught():
    report = kill_sweep(notes_too_late, is_sound, prepare=prepare, every=4)
    assert any("tombstone" in found.detail for found in report.violations)


def notes_too_late(directory, acknowledge):
    store = open_store(f"{directory}/{NAME}")
    witness, sign, late = Witness(Path(directory, "state"), store.id), Witness.sign, []
    prune.RUN_ROWS = 5

    def signs(tombstone):
        for one in late:
            sign(witness, one)
        late[:] = [tombstone]
        from baton.stores.tombstone import signed

        return signed(tombstone, witness._key() or witness._new_key())

    prune.prune(store, Order(by="p"), signs)
    sign(witness, late[0])
    store.close()


# --- while others write ----------------------------------------------------------------------------


def lost(store):
    """Handoffs whose content is not there."""
    known = set(store.contents(limit=1_000_000))
    refs = [(one.context.history_ref, one.context.state_ref) for one in store.find(limit=1_000_000)]
    return [ref for pair in refs for ref in pair if ref not in known]


@pytest.mark.parametrize("careful", [True, False], ids=["as it is", "naive"])
def test_content_that_is_used_again_meanwhile_stays(tmp_path, monkeypatch, careful):
    prepare(str(tmp_path))
    store, other = open_store(f"{tmp_path}/{NAME}"), open_store(f"{tmp_path}/{NAME}")
    if not careful:
        monkeypatch.setattr(sweep._Marks, "follow", lambda _: None)
    marks, again = sweep._Marks.everything, []

    def everything(self):
        marks(self)
        again.append(worked(other, "over 1", end=False))  # its content was nobody's a moment ago

    monkeypatch.setattr(sweep._Marks, "everything", everything)
    prune.prune(store, Order(by="p"), lambda one: one)
    assert len(again) == 1
    assert bool(lost(store)) != careful
    store.close()
    other.close()


WRITERS, ROUNDS = 3, 60


def writes(path, seed):
    def body(tell):
        chance = random.Random(seed)
        store = open_store(path, durability="process")
        for _ in range(ROUNDS):
            worked(store, f"over {chance.randrange(4)}", end=chance.random() < 0.5)
            if chance.random() < 0.3:
                seal(store)
        tell(b"A", "done")
        store.close()

    return Child(body)


def test_several_prune_while_others_write_and_seal(tmp_path):
    prepare(str(tmp_path))
    path = f"{tmp_path}/{NAME}"
    children = [writes(path, seed) for seed in range(WRITERS)]
    stop, failures, rounds = threading.Event(), [], []

    def prunes():
        store = open_store(path, durability="process")
        witness = Witness(tmp_path / "state", store.id)
        try:
            while not stop.is_set() or not rounds:
                # Everything that ended is over at once, so there is something to remove all the time.
                periods = prune.Periods(active=0, completed=0, escalations=0)
                rounds.append(prune.prune(store, Order(by="p", periods=periods), witness.sign).records)
                assert not lost(store)
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            store.close()

    threads = [threading.Thread(target=prunes) for _ in range(2)]
    for thread in threads:
        thread.start()
    outcomes = [child.finish() for child in children]
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert [one.of(b"A") for one in outcomes] == [["done"]] * WRITERS, outcomes
    store = open_store(path)
    assert sum(rounds) > 12 + WRITERS * ROUNDS // 4, rounds
    assert len(store.find(state="claimed", limit=1000)) > WRITERS * ROUNDS // 4
    assert not lost(store)
    seal(store)
    report = verify(store, witness=Witness(tmp_path / "state", store.id), deep=True)
    assert report.ok, report
    assert report.pruned == sum(rounds)
    store.close()
