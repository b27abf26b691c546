"""Agents and requests that lie, misbehave or hold on: the promises hold all the same."""

from __future__ import annotations

import asyncio
import contextlib

import apsw
import pytest

from baton import (
    BatonError,
    Command,
    Escalate,
    Fenced,
    Handoff,
    HandoffFailed,
    Limits,
    Profile,
    Reject,
    Relay,
    Return,
    TimedOut,
    answer,
)
from baton.errors import BudgetExceeded, Malformed
from baton.guards.base import ALLOW, Facts
from baton.guards.loops import loop
from baton.lifecycle import State
from baton.protocol.context import Message
from baton.protocol.results import Updates
from baton.stores import holder
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
    "make",
    [
        lambda: Return(context_updates=Updates(variables_changed=[1])),
        lambda: Return(context_updates=Updates(variables_changed={"metrics": 5})),
        lambda: Return(status="great"),
        lambda: Return(result=7),
    ],
    ids=("list", "reserved", "status", "result"),
)
def test_a_malformed_return_fails_and_stays_readable(relay, make):
    relay.agent("a")(lambda turn: make())
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


# --- what should not be in a store, and is ---------------------------------------------------------


def spoiled(path, table, column, change, where="1"):
    """Write into a store what this version would refuse."""
    connection = apsw.Connection(path)
    connection.execute(f"UPDATE {table} SET {column} = CAST({change} AS BLOB) WHERE {where}")
    assert connection.changes() == 1
    connection.close()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "s.db")


def held_by_the_dead(path, tasks):
    """Work that dead processes hold, by its task."""
    host, boot, *_ = identity().split("/")
    gone = f"{host}/{boot}/999999999/1/gone"
    with Relay(path) as relay:
        relay.store.register(Profile(agent_id="a"))
        found = {task: relay.hand_off(Handoff(from_agent="u", to_agent="a", task=task)).id for task in tasks}
        for one in found.values():
            assert relay.claim("a", handoff_id=one, holder=gone).won
    assert holder.life(gone) == "dead"
    return found


@pytest.mark.parametrize(
    "change",
    ["json_set(spec, '$.task', json('{}'))", "json_set(spec, '$.context', 5)", "json_set(spec, '$.n', 1)", "'no JSON'"],
)
def test_one_row_that_cannot_be_read_stops_nobody_else(path, change):
    work = held_by_the_dead(path, ["first", "spoiled", "last"])
    spoiled(path, "handoff", "spec", change, f"id = '{work['spoiled']}'")
    with Relay(path) as relay:
        relay.recover()
        assert {relay.get(one).state for one in work.values()} == {State.OFFERED}  # also this one is taken back
        (alert,) = relay.alerts()
        assert work["spoiled"] in alert.text
        assert "cannot be read" in alert.text
        assert f"baton handoff cancel {work['spoiled'][:8]}" in alert.text
        ran = []
        relay.agent("a")(lambda turn: ran.append(turn.task) or "done")

        async def serve():
            stop = asyncio.Event()
            serving = asyncio.ensure_future(relay.work(stop))
            async with asyncio.timeout(20):
                while not all(relay.get(one).ended for one in work.values()):
                    await relay._crew.hub.changed(0.05, lambda: False)
            stop.set()
            await serving

        asyncio.run(serve())
        assert sorted(ran) == ["first", "last"]
        assert "cannot be read" in relay.store.returned(work["spoiled"]).error
        assert len(relay.store.find()) == 3
        assert relay.audit.verify().ok


def test_a_person_can_end_a_row_that_cannot_be_read(path):
    work = held_by_the_dead(path, ["spoiled"])
    spoiled(path, "handoff", "spec", "json_set(spec, '$.task', 5)")
    with Relay(path) as relay:
        assert relay.cancel(work["spoiled"], by="ana").status == "cancelled"


def test_limits_that_cannot_be_read_allow_nothing(path):
    work = held_by_the_dead(path, ["spoiled"])
    spoiled(path, "workflow", "limits", "json_set(limits, '$.max_tokens', 5.5)")
    with Relay(path) as relay:
        relay.recover()
        assert relay.store.workflow(relay.get(work["spoiled"]).workflow_id).limits.max_tokens == 0
        assert relay.get(work["spoiled"]).state is State.OFFERED


def test_an_answer_that_cannot_be_read_is_a_failure(path):
    with Relay(path) as relay:
        relay.agent("a")(lambda turn: "done")
        first = relay.run_sync("a", "t").workflow_id
        spoiled(path, "handoff", "result", "json_set(result, '$.agent_name', 5)")
        assert "cannot be read" in relay.result(first).error
        assert relay.run_sync("a", "again").output == "done"


def test_a_profile_that_cannot_be_read_is_shut_and_stops_nobody(path):
    with Relay(path) as relay:
        relay.store.register(Profile(agent_id="ill"))
        spoiled(path, "agent", "profile", "json_set(profile, '$.examples', json('[5]'))")
        relay.agent("a")(lambda turn: "done")
        assert relay.run_sync("a", "t").output == "done"
        (ill,) = (row.profile for row in relay.store.agents() if row.profile.agent_id == "ill")
        assert (ill.accepts_handoffs, ill.allowed_targets) == (False, ())
        assert "register ill again" in ill.description
        relay.agent("ill")(lambda turn: "well")
        assert relay.run_sync("ill", "t").output == "well"


def test_a_row_that_no_step_can_be_taken_on_stops_nobody_else(path, monkeypatch):
    work = held_by_the_dead(path, ["ill", "well"])
    with Relay(path) as relay:
        asked = relay.store.timers
        raised = []

        def timers(handoff_id):
            if handoff_id == work["ill"]:
                raised.append(handoff_id)
                raise ValueError("odd \x1b[31m")
            return asked(handoff_id)

        monkeypatch.setattr(relay.store, "timers", timers)
        relay.recover()
        relay.recover()
        assert len(raised) == 2
        assert [relay.get(work[name]).state for name in ("ill", "well")] == [State.CLAIMED, State.OFFERED]
        (alert,) = relay.alerts()
        assert "ValueError: odd" in alert.text


def test_sealing_goes_on_where_the_sweep_cannot(path, tmp_path, monkeypatch):
    with Relay(path, checkpoints=tmp_path / "c") as relay:
        failed = []

        def held():
            failed.append(1)
            raise ValueError("odd")

        @relay.agent("a")
        async def slow(turn):
            async with asyncio.timeout(20):
                while relay.store.last_segment() is None:
                    await relay._crew.hub.changed(0.05, lambda: False)
            return "done"

        monkeypatch.setattr(relay.store, "held", held)
        assert relay.run_sync("a", "t").output == "done"
        assert failed


# --- names, variables, terminals ---------------------------------------------------------------------


@pytest.mark.parametrize("field", ["workflow_id", "conversation_id", "traceparent"])
def test_an_id_that_looks_like_a_secret_is_refused(relay, field):
    relay.agent("b")(lambda turn: "done")
    with pytest.raises(Malformed, match=f"{field}: looks like a secret"):
        relay.run_sync("b", "t", **{field: SECRET})
    assert relay.store.find() == []


def test_a_name_that_looks_like_a_secret_is_refused(relay):
    with pytest.raises(Malformed, match="agent_id: looks like a secret"):
        relay.agent(SECRET)(lambda turn: "done")
    with pytest.raises(Malformed, match="owner: looks like a secret"):
        relay.lock("x", owner=SECRET)
    relay.agent("a")(lambda turn: Command(goto=SECRET))
    with pytest.raises(Malformed, match=r"Command\.goto: looks like a secret"):
        relay.run_sync("a", "t")
    said = Message("assistant", "x", name=SECRET)
    relay.agent("c")(lambda turn: Return(messages=(said,)))
    assert SECRET not in str([relay.store.fetch(head) for head in [relay.run_sync("c", "t").answer.history_ref]])


@pytest.mark.parametrize("update", [{" bad\x1b key ": 1}, {str(n): n for n in range(1001)}])
def test_variables_that_could_not_go_on_fail_the_one_who_set_them(relay, update):
    relay.agent("child")(lambda turn: answer("x", update=update))
    relay.agent("other")(lambda turn: "fine")

    @relay.agent("a")
    async def parent(turn):
        spoiled = await turn.delegate("child", "t")
        return [spoiled.status, "state: " in spoiled.error, (await turn.delegate("other", "t")).output]

    assert relay.run_sync("a", "t").output == ["failed", True, "fine"]


def test_what_an_agent_says_does_not_reach_the_terminal_raw(relay, caplog):
    relay.agent("a")(lambda turn: Escalate("look \x1b]0;owned\x07\x1b[31m\nfake: line"))
    with pytest.raises(TimedOut) as caught:
        relay.run_sync("a", "t", timeout=0.2)
    assert "\\u{1b}" in str(caught.value)
    assert str(caught.value).replace("\n", "").isprintable()
    logged = [record.getMessage() for record in caplog.records]
    assert any("owned" in line for line in logged)
    assert all(line.isprintable() for line in logged)

    relay.agent("b")(lambda turn: Return(status="failed", error="\x1b[31mred"))
    with pytest.raises(HandoffFailed) as ended:
        relay.run_sync("b", "t")
    assert str(ended.value).isprintable()


def test_a_denial_names_a_person(relay):
    relay.agent("a")(lambda turn: "done")
    work = relay.hand_off(Handoff(from_agent="u", to_agent="a", task="t"), limits=Limits(approve=("a",)))
    with pytest.raises(Malformed, match="deny: say who"):
        relay.deny(work.id, by="")
    assert relay.deny(work.id, by="ana").status == "refused"


@pytest.mark.parametrize(
    ("given", "says"),
    [({"tokens": 2**62}, r"charge\.tokens"), ({"tokens": -1}, r"charge\.tokens"), ({"tokens": 2**70}, "huge"),
     ({"cost": "5"}, r"charge\.cost: expected a number"), ({"cost": 1e300}, r"charge\.cost"), ({"cost": -1}, "cost")],
)  # fmt: skip
def test_a_charge_has_bounds_and_types(relay, given, says):
    @relay.agent("a")
    async def odd(turn):
        await turn.charge(**given)

    with pytest.raises(Malformed, match=says):
        relay.run_sync("a", "t")


@pytest.mark.parametrize(
    ("given", "says"),
    [({"task": "x" * 9_000_000}, r"Command\.task: 9000000"), ({"reason": 5}, r"Command\.reason: expected text"),
     ({"tokens": 1.5}, r"Command\.tokens"), ({"goto": "x" * 201}, r"Command\.goto"), ({"task": {}}, "Command")],
)  # fmt: skip
def test_a_command_is_checked_where_it_is_made(given, says):
    with pytest.raises(Malformed, match=says):
        Command(**{"goto": "b", **given})


def test_no_limit_is_unlimited():
    assert (
        loop(Handoff(from_agent="a", to_agent="b", hop=1), Facts(0, visits=99), Limits(max_same_visits=None)) == ALLOW
    )
    with Relay(limits=Limits(max_reroutes=None)) as relay:
        for name in ("a", "b", "c", "d", "e", "f"):
            relay.agent(name, capabilities=["x"])(lambda turn: Reject("no"))
        relay.agent("g", capabilities={"x": 0.1})(lambda turn: "done")
        assert relay.run_sync("a", "t", max_attempts=10, timeout=20).output == "done"


def test_a_key_of_the_routes_that_is_an_agent_is_told(caplog):
    with Relay(routes={"a": ["b"], "x": ["b"], "later": ["b"]}) as relay:
        relay.agent("a", capabilities=["x"])(lambda turn: "done")
        relay.run_sync("a", "t")
        relay.run_sync("a", "t")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "routes names a, which is an agent and no capability"
    ]
