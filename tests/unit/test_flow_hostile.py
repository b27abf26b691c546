"""Agents and requests that lie, misbehave or hold on: the promises hold all the same."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from baton import BatonError, Command, Fenced, Handoff, HandoffFailed, Limits, Profile, Reject, Relay, Return, answer
from baton.errors import BudgetExceeded, Malformed
from baton.lifecycle import State
from baton.protocol.context import Message
from baton.protocol.results import Updates
from baton.stores.holder import identity
from baton.testing import virtual


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened


def test_a_request_cannot_answer_somebody_elses_delegation(relay):
    relay.store.register(Profile(agent_id="child"))
    forged = Handoff(
        from_agent="x",
        to_agent="child",
        task="evil",
        parent_id="p",
        part="k",
        attempt=-5,
        epoch=7,
        hop=3,
        answer_id="a",
    )
    made = relay.hand_off(forged)
    assert (made.parent_id, made.part, made.attempt, made.epoch, made.hop, made.answer_id) == ("", "", 0, 0, 0, "")


def test_every_try_counts_over_all_paths(relay):
    ran = []
    for name in "abcd":

        @relay.agent(name, capabilities=["x"])
        async def agent(turn):
            ran.append(turn.attempt)
            return Reject("not I")

    async def main():
        async with asyncio.timeout(5):
            task = asyncio.ensure_future(relay.run("a", "work", max_attempts=2))
            while not relay.waiting():
                await relay._crew.hub.changed(1, lambda: False)
            task.cancel()

    asyncio.run(main())
    assert ran == [1, 2]
    assert "max_attempts 2 are used up" in relay.alerts()[0].text


@pytest.mark.parametrize(
    "value",
    [
        Return(context_updates=Updates(variables_changed=[1])),
        Return(context_updates=Updates(variables_changed={"metrics": 5})),
        Return(status="great"),
        Return(result=7),
    ],
)
def test_a_malformed_return_fails_and_stays_readable(relay, value):
    relay.agent("a")(lambda turn: value)
    with pytest.raises(BatonError):
        relay.run_sync("a", "work")
    (root,) = relay.store.find()
    assert root.status == "failed"
    assert relay.store.returned(root.id).status == "failed"
    assert relay.result(root.workflow_id).status == "failed"


def test_a_forged_command_to_the_outside_goes_nowhere(relay):
    relay.agent("a")(lambda turn: Return(onward={"goto": "b"}))
    assert relay.run_sync("a", "work").answer.onward == {}


class Evil(Exception):
    def __str__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("error", [Evil(), SystemExit(3)])
def test_an_agent_that_raises_oddly_only_fails_itself(relay, error):
    @relay.agent("a")
    async def odd(turn):
        raise error

    with pytest.raises(HandoffFailed):
        relay.run_sync("a", "work")
    assert relay.store.find()[0].status == "failed"


def test_an_approval_names_a_person_and_counts_for_one_receiver(relay):
    relay.store.register(Profile(agent_id="a", capabilities={"x": 1.0}))
    relay.agent("prod")(lambda turn: "ran")
    work = relay.hand_off(Handoff(from_agent="u", to_agent="a", task="t"), limits=Limits(approve=("a", "prod")))
    with pytest.raises(Malformed, match="say who"):
        relay.approve(work.id, by=" ")
    relay.approve(work.id, by="ana")
    taken = relay.claim("a").handoff
    relay.give_back(taken.id, Reject("no"), epoch=taken.epoch)
    relay.reroute(work.id, "prod", by="agent-a")
    grant = relay.claim("prod")
    assert (grant.won, grant.verdict.kind) == (False, "ask")


def test_an_answer_without_an_epoch_is_only_for_the_holder(relay):
    relay.store.register(Profile(agent_id="a"))
    work = relay.hand_off(Handoff(from_agent="u", to_agent="a", task="t"))
    taken = relay.claim("a", holder="shell:1").handoff
    with pytest.raises(Malformed, match="give the epoch"):
        relay.give_back(work.id, "late")
    assert relay.give_back(work.id, "in time", epoch=taken.epoch).status == "completed"


def test_a_turn_that_leaked_cannot_delegate_any_more(relay):
    relay.agent("child")(lambda turn: "ran")
    kept = []

    @relay.agent("a")
    async def leaks(turn):
        kept.append(turn)
        return "done"

    async def main():
        await relay.run("a", "work")
        with pytest.raises(Fenced, match="cannot delegate"):
            await kept[0].delegate("child", "more")

    asyncio.run(main())
    assert relay.store.find(to_agent="child") == []


def test_a_part_that_the_parent_gave_up_on_is_called_off(relay):
    relay.store.register(Profile(agent_id="elsewhere"))

    @relay.agent("a")
    async def impatient(turn):
        try:
            async with asyncio.timeout(0.02):
                await turn.delegate("elsewhere", "pay")
        except TimeoutError:
            return "went on without"

    assert relay.run_sync("a", "work").output == "went on without"
    assert relay.store.find(to_agent="elsewhere")[0].status == "cancelled"


def test_work_that_ignores_its_budget_does_not_count_as_done(relay):
    @relay.agent("a")
    async def stubborn(turn):
        with contextlib.suppress(BudgetExceeded):
            await turn.charge(500)
        return "did it all the same"

    with pytest.raises(BudgetExceeded):
        relay.run_sync("a", "work", limits=Limits(max_tokens=100))


@pytest.mark.parametrize(("tokens", "cost"), [(1.5, 0.0), (float("inf"), 0.0), (0, float("inf")), (0, float("nan"))])
def test_a_charge_is_a_number(relay, tokens, cost):
    @relay.agent("a")
    async def odd(turn):
        await turn.charge(tokens, cost)

    with pytest.raises(Malformed, match="charge"):
        relay.run_sync("a", "work")


def test_the_smallest_charges_count(relay):
    @relay.agent("a")
    async def drip(turn):
        for _ in range(10):
            await turn.charge(cost=4e-7)
        return "x"

    with pytest.raises(BudgetExceeded):
        relay.run_sync("a", "work", limits=Limits(max_cost=0.000005))


SECRET = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_no_secret_reaches_the_disk_in_any_field(tmp_path):
    path = tmp_path / "s.db"
    with Relay(str(path), checkpoints=tmp_path / "c") as relay:
        relay.agent("b", description=f"uses {SECRET}")(
            lambda turn: answer(f"token {SECRET}", update={"x": {"y": SECRET}})
        )

        @relay.agent("a")
        async def body(turn):
            await turn.delegate("b", f"part {SECRET}", reason=f"because {SECRET}", update={"k": SECRET})
            return Command(goto="c", reason=SECRET, update={"z": [SECRET]})

        @relay.agent("c")
        async def talks(turn):
            said = Message("assistant", "x", reasoning=SECRET)
            return Return(messages=(said,), conversation_summary=SECRET, error=SECRET, agent_name=SECRET)

        relay.run_sync("a", f"do {SECRET}", reason=SECRET, goal=SECRET)
        work = relay.hand_off(Handoff(from_agent="u", to_agent="human", task="q"))
        relay.give_back(work.id, answer(SECRET, update={"v": SECRET}), by="ana")
        other = relay.hand_off(Handoff(from_agent="u", to_agent="b", task="q"))
        relay.cancel(other.id, by="ana", reason=SECRET)
        relay.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert path in files
    assert [file.name for file in files if SECRET.encode() in file.read_bytes()] == []


def test_work_of_a_live_process_is_not_taken_however_late_it_renews(relay):
    """Another relay of this process holds it: it certainly lives."""

    async def main():
        stuck = Relay()
        stuck.store.register(Profile(agent_id="a"))
        work = stuck.hand_off(Handoff(from_agent="u", to_agent="a", task="t"))
        stuck.claim("a", holder=identity())
        await asyncio.sleep(600)
        stuck.recover()
        await asyncio.sleep(600)
        stuck.recover()
        return stuck.get(work.id), stuck.alerts()

    work, alerts = virtual.run(main())
    assert work.state is State.CLAIMED
    assert [alert.text.partition(":")[0] for alert in alerts] == ["a is stuck"]


def test_a_full_disk_does_not_fail_the_work(tmp_path):
    """The answer could not be written: the work is offered again, it has not failed."""
    with Relay(str(tmp_path / "s.db"), checkpoints=tmp_path) as relay:
        refused = []

        @relay.agent("a")
        async def worker(turn):
            if not refused:
                refused.append(relay.store._db.execute("PRAGMA max_page_count").fetchone()[0])
                pages = relay.store._db.execute("PRAGMA page_count").fetchone()[0]
                relay.store._db.execute(f"PRAGMA max_page_count = {pages}")
                return "x" * 500_000
            return "small"

        with pytest.raises(BatonError, match="full"):
            relay.run_sync("a", "work", workflow_id="w")
        relay.store._db.execute(f"PRAGMA max_page_count = {refused[0]}")
        assert relay.store.find()[0].status != "failed"
