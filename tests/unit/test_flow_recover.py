"""A supervisor's step counts only while what it saw still holds; a full agent does not hold up the others."""

from __future__ import annotations

import pytest

from baton import Handoff, Limits, Profile
from baton.errors import IllegalTransition
from baton.flow import prepare
from baton.flow.crew import Crew, Settings
from baton.flow.recover import Facts, reclaim
from baton.lifecycle import Event, State
from baton.stores import open_store
from baton.stores.base import Claim, Step


@pytest.fixture
def crew():
    store = open_store(":memory:")
    yield Crew(store, "here", Settings())
    store.close()


def offered(crew, to="a"):
    request = Handoff(from_agent="user", to_agent=to, task="work")
    return crew.store.offer(prepare.begin(crew, request, Limits()), crew.judge_offer)[0]


def test_a_second_sweeper_does_not_take_work_from_its_new_owner(crew):
    crew.store.register(Profile(agent_id="a"))
    work = offered(crew)
    dead = crew.store.claim(Claim(holder="dead", id=work.id), crew.judge_claim).handoff
    stale = reclaim(dead, Facts(now=crew.store.now()), "it died")
    crew.store.advance(reclaim(crew.store.get(work.id), Facts(now=crew.store.now()), "it died"))
    alive = crew.store.claim(Claim(holder="alive", id=work.id), crew.judge_claim)
    assert alive.won
    with pytest.raises(IllegalTransition):
        crew.store.advance(stale)
    assert crew.store.get(work.id).holder == "alive"


def test_a_claim_that_was_just_renewed_is_not_reclaimed(crew):
    crew.store.register(Profile(agent_id="a"))
    work = offered(crew)
    crew.store.claim(Claim(holder="slow", id=work.id), crew.judge_claim)
    seen = crew.store.get(work.id)
    assert crew.store.renew(work.id, seen.epoch, 90_000_000)
    with pytest.raises(IllegalTransition):
        crew.store.advance(Step(id=work.id, event=Event.RECLAIM, seen=seen))
    assert crew.store.get(work.id).state is State.CLAIMED


def test_a_full_agent_does_not_keep_the_others_from_their_work(crew):
    crew.store.register(Profile(agent_id="d", max_concurrent_tasks=1))
    crew.store.register(Profile(agent_id="e"))
    first, second, third = offered(crew, "d"), offered(crew, "d"), offered(crew, "e")
    assert crew.store.claim(Claim(holder="x", agents=("d", "e")), crew.judge_claim).handoff.id == first.id
    assert crew.store.claim(Claim(holder="x", agents=("d", "e")), crew.judge_claim).handoff.id == third.id
    full = crew.store.claim(Claim(holder="x", agents=("d", "e")), crew.judge_claim)
    assert (full.won, full.handoff.id, full.verdict.error) == (False, second.id, "AtCapacity")
