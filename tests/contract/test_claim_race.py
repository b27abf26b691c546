"""Processes race for claims and for money: one winner each, nothing overspent, and the harness can fail.

BATON_RACE=N races for N items instead of 10,000.
"""

import functools
import os
import sqlite3
from pathlib import Path

from baton import guards
from baton.guards.base import Verdict
from baton.lifecycle import Event
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Budget, Limits
from baton.protocol.locks import Wanted
from baton.stores import open_store
from baton.stores.base import LockRequest, Step
from baton.testing import NaiveClaims, race
from baton.testing.contracts import flaws
from baton.testing.contracts.evidence import MANY
from baton.testing.contracts.work import allow, answer, claim_of, delegation, request

ITEMS = int(os.environ.get("BATON_RACE", "10000"))
PROCESSES, CHUNK = 8, 500


def opened(path):
    # Durability is another test's question: without the syncs the processes meet more often.
    return open_store(path, durability="process")


def claimer(path, owner):
    store = opened(path)
    return lambda item: store.claim(claim_of(item, owner), allow).won


def next_claimer(path, owner):
    """Each takes whatever is next, as workers do; the item that is named says nothing."""
    from baton.stores.base import Claim

    store, mine = opened(path), set()

    def take(item):
        granted = store.claim(Claim(holder=owner, agents=("a", "b")), allow)
        if granted.won:
            mine.add(granted.handoff.id)
        return item in mine

    return take


def filled(path, count):
    store = opened(path)
    offers = [request("ab"[number % 2]) for number in range(count)]
    for first in range(0, count, CHUNK):
        store.batch([functools.partial(store.offer, offer, allow) for offer in offers[first : first + CHUNK]])
    return store, [offer.handoff.id for offer in offers]


def test_one_winner_each(tmp_path):
    path = str(tmp_path / "store.db")
    store, items = filled(path, ITEMS)
    result = race(functools.partial(claimer, path), items, PROCESSES)
    assert (result.doubles, result.unclaimed) == (0, 0)
    assert len({owner for owners in result.winners_per_item.values() for owner in owners}) > 1
    told = {item: owners[0] for item, owners in result.winners_per_item.items()}
    assert dict(store.held()) == told
    assert len(store.audit(limit=MANY)) == 2 * len(items)
    assert flaws(store) == []
    store.close()
    print(f"{result.attempts} attempts in {result.seconds:.1f} s")


def test_the_same_harness_catches_a_naive_backend(tmp_path):
    result = race(NaiveClaims(str(tmp_path)), [f"item-{number}" for number in range(2000)], PROCESSES)
    assert result.double_rate > 0.01


def test_workers_that_take_what_is_next_take_each_once(tmp_path):
    path = str(tmp_path / "store.db")
    store, items = filled(path, 800)
    race(functools.partial(next_claimer, path), items, PROCESSES)
    found = store.find(limit=MANY)
    assert {(handoff.epoch, handoff.attempt) for handoff in found} == {(1, 1)}
    assert len({handoff.holder for handoff in found}) > 1
    assert flaws(store) == []
    store.close()


def locker(path, owner):
    store = opened(path)
    return lambda item: not store.lock(LockRequest(owner=owner, wanted=(Wanted(f"/r/{item}"),))).blockers


def test_one_holder_of_each_lock(tmp_path):
    path = str(tmp_path / "store.db")
    opened(path).close()
    result = race(functools.partial(locker, path), [f"file-{number}" for number in range(400)], PROCESSES)
    assert (result.doubles, result.unclaimed) == (0, 0)
    store = opened(path)
    assert {(Path(one.path).name, one.owner) for one in store.locks()} == {
        (item, owners[0]) for item, owners in result.winners_per_item.items()
    }
    store.close()


SHARE, USE, CHILDREN = 100, 60, 400
LIMIT = 9000


def reserve(handoff: Handoff, facts, limits):
    left = limits.max_tokens - facts.tokens_spent - facts.tokens_reserved
    return Verdict(reserve_tokens=SHARE) if left >= SHARE else Verdict("refuse", "nothing left")


def spender(path, owner):
    store = opened(path)

    def work(item):
        granted = store.claim(claim_of(item, owner), reserve)
        if not granted.won:
            return False
        assert store.spend(item, granted.handoff.epoch, USE // 2, 0).kind == "allow"
        event = Event.COMPLETE if hash(item) % 3 else Event.RELEASE
        store.advance(Step(id=item, event=event, epoch=granted.handoff.epoch, result=answer(tokens=USE)), allow)
        return event is Event.COMPLETE

    return work


def naive_spender(path, owner):
    db = sqlite3.connect(path, timeout=60, isolation_level=None)

    def work(_item):
        (spent,) = db.execute("SELECT spent FROM budget").fetchone()
        if spent + USE > LIMIT:
            return False
        db.execute("UPDATE budget SET spent = spent + ?", (USE,))
        return True

    return work


def test_nothing_is_overspent(tmp_path):
    path = str(tmp_path / "store.db")
    store = opened(path)
    root = store.offer(request(limits=Limits(max_tokens=LIMIT, max_handoffs=None)), allow)[0]
    offers = [delegation(root) for _ in range(CHILDREN)]
    store.batch([functools.partial(store.offer, offer, allow) for offer in offers])
    race(functools.partial(spender, path), [offer.handoff.id for offer in offers], PROCESSES)
    flow = store.workflow(root.workflow_id)
    attempts = sum(handoff.attempt for handoff in store.find(parent_id=root.id, limit=MANY))
    assert flow.tokens_reserved == 0
    assert flow.tokens_spent == attempts * USE
    assert LIMIT - SHARE < flow.tokens_spent <= LIMIT
    assert flaws(store) == []
    store.close()


PURSE, WORKS, ROUNDS, AT_ONCE = 60_000, 2500, 5, 50


def batches(ids):
    return [ids[first : first + AT_ONCE] for first in range(0, len(ids), AT_ONCE)]


def reserver(path, ids, flow, owner):
    """Claims many works in one transaction, with the product's own guards; half of them are done, half given back."""
    store, groups = opened(path), batches(ids)
    decide = functools.partial(guards.decide, guards.CLAIM)

    def end(granted):
        done = int(granted.id[:8], 16) % 2
        event = Event.COMPLETE if done else Event.RELEASE
        result = answer(tokens=USE) if done else None
        return Step(id=granted.id, event=event, epoch=granted.epoch, result=result, uncount=True)

    def reserve_some(item):
        some = groups[int(item.partition(":")[2])]
        claimed = store.batch([functools.partial(store.claim, claim_of(one, owner), decide) for one in some])
        stands = store.workflow(flow)
        assert stands.tokens_spent + stands.tokens_reserved <= PURSE
        won = [one.handoff for one in claimed if one.won]
        store.batch([functools.partial(store.advance, end(one), allow) for one in won])
        return bool(won)

    return reserve_some


def test_a_hundred_thousand_racing_reservations_overspend_nothing(tmp_path):
    path = str(tmp_path / "store.db")
    store = opened(path)
    root = store.offer(request(limits=Limits(max_tokens=PURSE, max_handoffs=None)), allow)[0]
    offers = [delegation(root, budget=Budget(max_tokens=SHARE)) for _ in range(WORKS)]
    for some in batches(offers):
        store.batch([functools.partial(store.offer, offer, allow) for offer in some])
    ids = [offer.handoff.id for offer in offers]
    items = [f"{turn}:{number}" for turn in range(ROUNDS) for number in range(len(batches(ids)))]
    assert len(items) * AT_ONCE * PROCESSES == 100_000
    result = race(functools.partial(reserver, path, ids, root.workflow_id), items, PROCESSES)
    flow = store.workflow(root.workflow_id)
    done = len(store.find(state="completed", limit=MANY))
    assert (flow.tokens_reserved, flow.tokens_spent) == (0, done * USE)
    assert 0.9 * PURSE < flow.tokens_spent <= PURSE
    assert len({owner for owners in result.winners_per_item.values() for owner in owners}) > 1
    assert flaws(store) == []
    store.close()
    print(f"{100_000 / result.seconds:.0f} reservations a second")


def test_the_same_harness_catches_read_then_write(tmp_path):
    path = str(tmp_path / "budget.db")
    over = 0
    for _ in range(5):
        db = sqlite3.connect(path, isolation_level=None)
        db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;")
        db.executescript(
            "DROP TABLE IF EXISTS budget; CREATE TABLE budget (spent INTEGER); INSERT INTO budget VALUES (0)"
        )
        db.close()
        race(functools.partial(naive_spender, path), [str(number) for number in range(CHILDREN)], PROCESSES)
        db = sqlite3.connect(path)
        over += max(0, db.execute("SELECT spent FROM budget").fetchone()[0] - LIMIT)
        db.close()
        if over:
            break
    assert over > 0
