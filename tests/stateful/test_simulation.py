"""The promises hold in simulated processes under all kinds of faults, and a simulation notices when they do not.

BATON_SCHEDULES=N plays N schedules instead of 10,000; `script/chaos` plays any number, and one of them aloud.
"""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from baton.stores.base import Store
from baton.testing.simulation import bugs, simulate
from baton.testing.simulation.faults import FAULTS
from baton.testing.simulation.schedule import HEALED, Outcome, play
from baton.testing.simulation.wire import Wire
from baton.testing.simulation.workloads import WORKLOADS

SCHEDULES = int(os.environ.get("BATON_SCHEDULES", "10000"))
CHUNKS = max(1, min(32, SCHEDULES // 300))  # each with enough of everything, and short

# Of a hundred schedules at least so many must have had it; what did not happen proves nothing.
LEAST = {
    "crash": 25, "pause": 30, "overtake": 50, "clock jump": 12, "lost notices": 20, "notices lost": 20,
    "slow disk": 15, "power cut": 6, "crash in a transaction": 1, "reclaim": 10, "late or fenced": 3, "remind": 3,
    "retry": 0.5, "decisions": 20, "parked": 8, "cancelled": 10, "refused": 5, "deferred": 2, "rejected": 1,
    "reservations": 15, "charges": 15, "approve": 1, "deny": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_is_kept(chunk):
    count = SCHEDULES // CHUNKS
    happened, broken = play(1 + chunk * count, count)
    assert broken == []
    assert {name: happened[name] for name, least in LEAST.items() if happened[name] < least * count / 100} == {}


@pytest.mark.parametrize("name", bugs.BUGS)
def test_a_planted_bug_is_found(name):
    found = bugs.find(name, 1000)
    assert found is not None, f"{name}: not found"
    with pytest.raises(AssertionError, match=f"script/chaos --seed {found.seed} --store {found.store} -v"):
        found.assert_sound()


def test_a_planted_bug_is_gone_afterwards():
    seed = bugs.find("claimed twice", 100).seed
    assert simulate(seed).broken == ()


def test_every_part_has_been_played():
    """Each workload and each fault is in some of the first schedules."""
    told = "\n".join(simulate(seed, trace=True).trace[0] for seed in range(1, 120))
    assert [name for name in (*WORKLOADS, *FAULTS) if name not in told] == []


def test_a_wire_has_all_that_a_store_has():
    """What is added to the store goes into one of the lists of `wire.py`."""
    assert [name for name in dir(Store) if not name.startswith("_") and not hasattr(Wire, name)] == []


@pytest.mark.parametrize("seed", [12368, 27205, 45456, 58175, 62534, 86731])
def test_a_rest_of_minutes_is_no_broken_promise(seed):
    """An agent that fails at each try rests for twice as long each time; what waits for it is not stuck."""
    outcome = simulate(seed, trace=True)
    assert outcome.broken == ()
    assert outcome.counts["virtual seconds"] > HEALED
    assert any("reject: breaker" in line for line in outcome.trace[-1000:])


SEEDS = (3, 40, 77, 250)


def aloud(seed, salt):
    argv = [sys.executable, "-m", "baton.testing.simulation", "--seed", str(seed), "-v"]
    environment = {**os.environ, "PYTHONHASHSEED": salt}
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=environment).stdout


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_is_the_same_schedule_in_every_process(seed):
    first = aloud(seed, "1")
    assert len(first.splitlines()) > 10
    assert first == aloud(seed, "2")


def test_many_are_played_in_several_processes_and_summed_up():
    argv = [sys.executable, "-m", "baton.testing.simulation", "110", "--first", "500", "--jobs", "2"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "seeds 500 to 609" in said
    assert said.endswith("promises broken: 0\n")
    assert re.search(r"crash [1-9]", said)


def test_another_seed_is_another_schedule():
    assert len({simulate(seed, trace=True).trace for seed in SEEDS}) == len(SEEDS)


def test_a_broken_promise_says_how_to_see_it_again():
    broken = Outcome(7, "memory", ("two owners",), Counter(), ())
    with pytest.raises(
        AssertionError, match="seed 7, memory: two owners\nreplay: script/chaos --seed 7 --store memory"
    ):
        broken.assert_sound()
