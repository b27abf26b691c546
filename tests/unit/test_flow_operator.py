"""P15: the operator's file in a relay: its map, its limits beside those of the program, and what it cannot do."""

import asyncio
import os
from pathlib import Path

import pytest

from baton import Autonomy, Command, Profile, Reject, Relay
from baton.errors import BatonError, Malformed, NotFound, Refused, TimedOut, TooLarge
from baton.lifecycle import State
from baton.protocol.registry import HealthRules
from baton.testing import virtual
from baton.testing.agents import Obedient

FILE = """
escalation = ["lead", "human"]
[agents.billing]
capabilities = ["refunds"]
max_concurrent_tasks = 1
allowed_targets = ["lead"]
autonomy = { max_risk = "low" }
[agents.lead]
[agents.backup]
capabilities = { refunds = 0.5 }
[routes]
refunds = ["backup", "lead"]
[health]
interval = "5m"
"""


@pytest.fixture
def file(tmp_path):
    found = tmp_path / "agents.toml"
    found.write_text(FILE)
    return found


@pytest.fixture
def relay_of_two():
    with Relay() as relay:
        relay.agent("shop")(lambda turn: "shop did it")
        relay.agent("billing")(lambda turn: Command(goto="shop"))
        yield relay


def profiles(relay):
    return {row.profile.agent_id: row.profile for row in relay.store.agents()}


def test_the_file_gives_routes_ladder_checks_and_agents(file):
    with Relay(registry=file, routes={"refunds": ["nobody"], "tax": ["lead"]}) as relay:
        settings = relay._crew.settings
        assert settings.routes == {"refunds": ("backup", "lead"), "tax": ["lead"]}
        assert settings.escalation == ("lead", "human")
        assert settings.health == HealthRules(interval=300)
        assert relay.registry == str(file)
        assert profiles(relay).keys() == {"billing", "lead", "backup"}
        assert profiles(relay)["backup"].capabilities == {"refunds": 0.5}


def test_what_the_file_leaves_out_stays_as_the_program_says(tmp_path):
    (tmp_path / "agents.toml").write_text("[agents.a]")
    with Relay(registry=tmp_path / "agents.toml", escalation=("a", "human"), health={"threshold": 9}) as relay:
        assert (relay._crew.settings.escalation, relay._crew.settings.health.threshold) == (("a", "human"), 9)


def test_a_program_and_the_file_describe_an_agent_and_the_narrower_counts(file):
    with Relay(registry=file) as relay:
        relay.add("billing", Obedient(), max_concurrent_tasks=5, capabilities=["refunds", "tax"], idempotent=False)
        narrow = Profile(
            agent_id="billing", capabilities={"refunds": 1.0}, max_concurrent_tasks=1, allowed_targets=("lead",),
            autonomy_budget=Autonomy(max_risk="low"), idempotent=False,
        )  # fmt: skip
        assert profiles(relay)["billing"] == relay._crew.profiles["billing"] == narrow


def test_the_file_that_is_read_later_narrows_what_was_registered(file):
    with Relay() as relay:
        relay.add("billing", Obedient(), max_concurrent_tasks=5)
        relay.store.register(Profile(agent_id="backup", max_concurrent_tasks=2))
        relay.read_registry(file, enrol=False)
        assert profiles(relay)["billing"].max_concurrent_tasks == 5
        relay.read_registry(file)
        assert profiles(relay)["billing"].max_concurrent_tasks == 1
        assert relay._crew.profiles["billing"].allowed_targets == ("lead",)
        assert profiles(relay)["backup"].max_concurrent_tasks == 2
        assert profiles(relay)["lead"] == Profile(agent_id="lead")
        before = relay.store.agents()
        relay.read_registry(file)
        assert relay.store.agents() == before


def test_the_limits_of_the_file_are_enforced(file):
    with Relay(registry=file) as relay:
        relay.add("billing", Obedient(Command(goto="backup")))
        with pytest.raises(Refused, match="billing may not hand work to backup"):
            relay.run_sync("billing", "work")


def test_a_rejection_goes_along_the_map_of_the_file(file):
    with Relay(registry=file) as relay:
        relay.add("billing", Obedient(Reject("not I")))
        relay.add("backup", Obedient(Reject("nor I")))
        relay.add("lead", Obedient("done"))

        async def main():
            return await relay.run("billing", "work", workflow_id="w")

        assert virtual.run(main()).output == "done"
        assert [one.to_agent for one in relay.audit.query(task_id="w") if one.event_type == "rerouted"] == [
            "backup",
            "lead",
        ]


def test_with_a_map_that_is_used_up_a_person_hears_who_was_tried(file):
    with Relay(registry=file) as relay:
        for name in ("billing", "backup", "lead"):
            relay.add(name, Obedient(Reject("not I")))

        async def main():
            run = asyncio.create_task(relay.run("billing", "work", max_attempts=9))
            await asyncio.sleep(20)
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            return relay.alerts()

        (alert,) = virtual.run(main())
        assert "nobody else can do it" in alert.text
        assert "backup (already tried)" in alert.text


def refused(path, error, match):
    with pytest.raises(error, match=match) as raised:
        Relay(registry=path)
    assert str(path) in str(raised.value)
    assert str(raised.value).isprintable()


def test_what_is_no_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * 2**21)
    (tmp_path / "wrong").write_text("[agents.a]\nmax = 1")
    refused(tmp_path / "pipe", Malformed, "not a regular file")
    refused("/dev/zero", Malformed, "not a regular file")
    refused(tmp_path, Malformed, "not a regular file")
    refused(tmp_path / "large", TooLarge, "larger than")
    refused(tmp_path / "nowhere", NotFound, "No such file")
    refused(tmp_path / "wrong", Malformed, "agents.a: max is not a field")
    with pytest.raises(Malformed, match="not a path"):
        Relay(registry="a\0b")


def test_a_link_to_a_file_is_followed(tmp_path, file):
    (tmp_path / "link").symlink_to(file)
    with Relay(registry=tmp_path / "link") as relay:
        assert "billing" in profiles(relay)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(tmp_path / "loop", NotFound, "symbolic links")


def test_a_relay_with_a_wrong_file_leaves_no_store_open(tmp_path, file):
    file.write_text("nonsense")
    before = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(BatonError):
        Relay(tmp_path / "store.db", registry=file)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_no_file_is_looked_for(tmp_path, monkeypatch, file):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATON_AGENTS", str(file))
    with Relay(tmp_path / "store.db") as relay:
        assert (relay.registry, relay.store.agents()) == ("", [])


def test_a_process_without_the_file_takes_no_limit_away_from_one_that_has_it(tmp_path):
    (tmp_path / "agents.toml").write_text("[agents.billing]\nallowed_targets = []")

    def shop(**settings):
        relay = Relay(tmp_path / "b.db", **settings)
        relay.agent("shop")(lambda turn: "shop did it")
        relay.agent("billing")(lambda turn: Command(goto="shop"))
        return relay

    with shop(registry=tmp_path / "agents.toml") as narrow:
        with pytest.raises(Refused, match="allowed_targets"):
            narrow.run_sync("billing", "one")
        with shop() as wide:
            assert profiles(wide)["billing"].allowed_targets is None
            assert wide.run_sync("billing", "two").output == "shop did it"
        with pytest.raises(Refused, match="allowed_targets"):
            narrow.run_sync("billing", "three")


def test_what_is_registered_narrower_counts_for_a_program_that_says_nothing(relay_of_two):
    relay_of_two.store.register(Profile(agent_id="billing", allowed_targets=()))
    with pytest.raises(Refused, match="allowed_targets"):
        relay_of_two.run_sync("billing", "one")
    relay_of_two.store.register(Profile(agent_id="billing"))
    assert relay_of_two.run_sync("billing", "two").output == "shop did it"


@pytest.mark.parametrize(("here", "registered", "ends"), [(60, None, 60), (60, 20, 20), (20, 60, 20), (None, 20, 20)])
def test_work_may_take_as_long_as_the_narrower_says(here, registered, ends):
    with Relay() as relay:

        @relay.agent("slow", max_execution_time=here)
        async def slow(turn):
            await asyncio.sleep(1000)

        relay.store.register(Profile(agent_id="slow", max_execution_time=registered))

        async def main():
            began = asyncio.get_running_loop().time()
            with pytest.raises(TimedOut):
                await relay.run("slow", "work")
            trail = relay.audit.query(to_agent="slow")
            accepted, reminded = (
                next(one.timestamp for one in trail if one.event_type == name) for name in ("accepted", "reminded")
            )
            return (reminded - accepted).total_seconds(), asyncio.get_running_loop().time() - began

        late, whole = virtual.run(main())
        assert ends <= late <= ends + 1
        assert whole < 1000


def test_an_agent_with_no_capability_left_gets_no_work_that_needs_one(tmp_path):
    file = tmp_path / "agents.toml"
    file.write_text('[agents.clerk]\ncapabilities = ["tax"]')
    with Relay(tmp_path / "b.db", registry=file) as relay:
        relay.agent("clerk", capabilities=["refunds"])(lambda turn: "done")

        def stand():
            said = [
                relay.run_sync("clerk", f"needs {one}", capabilities=[one], wait=False) for one in ("refunds", "tax")
            ]
            return [relay.store.find(workflow_id=one.workflow_id)[0].state for one in said]

        assert relay.run_sync("clerk", "needs nothing").output == "done"
        assert stand() == [State.REJECTED, State.REJECTED]
        relay.read_registry(file)
        Relay(tmp_path / "b.db", registry=file).close()
        assert profiles(relay)["clerk"].capabilities == relay._crew.profiles["clerk"].capabilities == {}
        assert stand() == [State.REJECTED, State.REJECTED]
        relay.store.register(Profile(agent_id="clerk", capabilities={"refunds": 1.0, "tax": 1.0}))
        assert stand() == [State.REJECTED, State.REJECTED]
