"""P3, P10, C1, C10: ownership moves from one agent to the next, with the state."""

import asyncio
import copy
import json
import operator
import pickle
import time

import msgspec
import pytest

from baton import Artifact, Command, HandoffFailed, Relay, Return, Send, answer
from baton.errors import Malformed, UnknownAgent
from baton.protocol.results import Account, Updates


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened


def ended(relay, agent="triage"):
    return relay.audit.query(to_agent=agent)[-1]


def test_a_is_complete_before_b_begins(relay):
    seen = {}

    @relay.agent("a", max_concurrent_tasks=1)
    async def a(turn):
        return Command(goto="b", reason="done with mine")

    @relay.agent("b")
    async def b(turn):
        seen["held"] = [relay.get(handoff_id).to_agent for handoff_id, _ in relay.store.held()]
        seen["load"] = {row.profile.agent_id: row.load for row in relay.store.agents()}
        return "done"

    result = relay.run_sync("a", "work", workflow_id="w")
    trail = [(r.from_agent, r.to_agent, r.event_type) for r in relay.audit.query(task_id="w")]
    assert trail == [
        ("user", "a", "initiated"),
        ("user", "a", "accepted"),
        ("user", "a", "completed"),
        ("a", "b", "initiated"),
        ("a", "b", "accepted"),
        ("a", "b", "completed"),
    ]
    assert seen == {"held": ["b"], "load": {"a": 0, "b": 1}}
    assert result.handoffs[0].reason == "done with mine"


def test_state_is_merged_by_kind(relay):
    @relay.agent("a")
    async def a(turn):
        update = {
            "plain": {"replaced": 1},
            "workflow_state": {"phase": "build", "completed": ["a"]},
            "metrics": {"a": 1},
        }
        return Command(goto="b", update=update)

    @relay.agent("b", writes=["plain"])
    async def b(turn):
        assert turn.state["plain"] == {"replaced": 1}
        update = {"plain": {"new": 2}, "workflow_state": {"phase": "test"}, "metrics": {"b": 2}}
        return Return(context_updates=Updates(variables_changed=update))

    begun = {"plain": {"old": 0}, "workflow_state": {"remaining": ["b"]}, "kept": True}
    assert relay.run_sync("a", "work", state=begun).state == {
        "plain": {"new": 2},
        "workflow_state": {"phase": "test", "completed": ["a"], "remaining": ["b"]},
        "metrics": {"a": 1, "b": 2},
        "kept": True,
    }


def test_a_reserved_key_takes_an_object(relay):
    @relay.agent("a")
    async def a(turn):
        return Command(goto="a", update={"metrics": 5})

    with pytest.raises(Malformed, match=r"update\.metrics: a reserved key takes an object"):
        relay.run_sync("a", "work")


CHANGES = {
    "set": lambda state: state.__setitem__("x", 1),
    "update": lambda state: state.update(x=1),
    "delete": lambda state: state.__delitem__("list"),
    "merge": lambda state: operator.ior(state, {"x": 1}),
    "default": lambda state: state.setdefault("x", []),
    "nested": lambda state: state["deep"].pop("y"),
    "append": lambda state: state["list"].append(4),
    "extend": lambda state: operator.iadd(state["list"], [4]),
    "sort": lambda state: state["deep"]["z"].sort(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_state_that_an_agent_sees_is_an_error_that_names_the_way(relay, change):
    @relay.agent("a")
    async def a(turn):
        change(turn.state)

    with pytest.raises(Malformed, match=r"return Command\(update=.*answer\("):
        relay.run_sync("a", "work", state={"list": [1, 2, 3], "deep": {"y": 1, "z": [2, 1]}})


def test_the_state_that_an_agent_sees_reads_like_a_dict_and_its_copies_are_plain(relay):
    values = {"list": [1, 2, 3], "deep": {"y": 1}}

    @relay.agent("a")
    async def a(turn):
        assert turn.state == values
        for copied in (copy.copy(turn.state), copy.deepcopy(turn.state), pickle.loads(pickle.dumps(turn.state))):
            copied["x"] = 1
        deep = copy.deepcopy(turn.state)
        deep["list"].append(4)
        deep["deep"]["y"] = 2
        return [json.loads(json.dumps(turn.state)), {**turn.state, "x": 1}, deep]

    @relay.agent("b")
    async def b(turn):
        return turn.state

    assert relay.run_sync("a", "work", state=values).output == [
        values, {**values, "x": 1}, {"list": [1, 2, 3, 4], "deep": {"y": 2}},
    ]  # fmt: skip
    assert relay.run_sync("b", "work", state=values).output == values


def test_a_command_may_carry_a_new_task(relay):
    @relay.agent("a")
    async def a(turn):
        return Command(goto="b", task="the second half", reason="half done")

    @relay.agent("b")
    async def b(turn):
        return [turn.task, [(m.role, m.content) for m in turn.messages]]

    task, messages = relay.run_sync("a", "the whole").output
    assert task == "the second half"
    assert ("user", "the whole") in [tuple(m) for m in messages]
    assert ("assistant", "half done") in [tuple(m) for m in messages]


def test_parent_in_a_flat_relay_is_a_plain_move(relay):
    @relay.agent("a")
    async def a(turn):
        return Command(goto="b", graph=Command.PARENT, update={"x": 1})

    @relay.agent("b")
    async def b(turn):
        return turn.state["x"]

    assert relay.run_sync("a", "work").output == 1


def nested(relay, inner):
    @inner.agent("draft")
    async def draft(turn):
        return Command(goto="check", update={"drafted": turn.state["topic"]})

    @inner.agent("check")
    async def check(turn):
        if turn.task == "stay":
            return Return(
                context_updates=Updates(variables_changed={"checked": True}), audit=Account(tokens_consumed=7)
            )
        return Command(goto="print", graph=Command.PARENT, update={"checked": True}, reason="ready", task="print it")

    @relay.agent("print")
    async def printer(turn):
        return [turn.task, turn.state, turn.handoff.from_agent, turn.handoff.reason]

    relay.nest("writers", inner, "draft")


def test_parent_in_a_nested_relay_moves_control_out(relay):
    with Relay() as inner:
        nested(relay, inner)
        result = relay.run_sync("writers", "write", state={"topic": "ice"})
        assert result.output == [
            "print it",
            {"topic": "ice", "drafted": "ice", "checked": True},
            "writers",
            "ready",
        ]
        assert [(h.from_agent, h.to_agent) for h in result.handoffs] == [("writers", "print")]
        assert {h.status for h in inner.store.find()} == {"completed"}


def test_parent_takes_everything_of_a_command_along(relay):
    made = Artifact(id="plan", path="out/plan.md")

    @relay.agent("print", capabilities=["printing"])
    async def printer(turn):
        names = [item.path for item in turn.handoff.context.artifacts]
        return [turn.task, turn.handoff.from_agent, dict(turn.state), names]

    relay.agent("copy")(printer)
    several = [Send("print", {"size": 1}, task="print it"), Send("copy", task="copy it")]
    commands = {
        "several": Command(goto=several, update={"x": 1}),
        "one": Command(goto="print", artifacts=(made,), update={"x": 1}, task="print it"),
        "needs": Command(needs=("printing",), task="print it"),
    }
    with Relay() as inner:

        @inner.agent("printer", capabilities=["printing"])
        async def wrong(turn):
            return "inside"

        @inner.agent("entry")
        async def entry(turn):
            return msgspec.structs.replace(commands[turn.task], graph=Command.PARENT)

        relay.nest("team", inner, "entry")
        out = {name: relay.run_sync("team", name).output for name in commands}
        assert {one.to_agent for one in inner.store.find()} == {"entry"}
    assert out == {
        "several": [
            ["print it", "team", {"x": 1, "size": 1}, []],
            ["copy it", "team", {"x": 1}, []],
        ],
        "one": ["print it", "team", {"x": 1}, ["out/plan.md"]],
        "needs": ["print it", "team", {}, []],
    }


def test_what_a_nested_relay_made_is_part_of_its_answer(relay):
    with Relay() as inner:

        @inner.agent("entry")
        async def entry(turn):
            return answer("done", artifacts=(Artifact(id="plan", path="out/plan.md"),))

        relay.nest("team", inner, "entry")
        made = relay.run_sync("team", "work").answer.context_updates.artifacts_produced
    assert [item.path for item in made] == ["out/plan.md"]


def test_a_nested_relay_answers_with_its_state_and_what_it_used(relay):
    with Relay() as inner:
        nested(relay, inner)

        @inner.agent("first")
        async def first(turn):
            await turn.charge(100)
            return Command(goto="check", tokens=100)

        relay.nest("counted", inner, "first")
        result = relay.run_sync("counted", "stay", state={"topic": "ice"})
        assert result.state == {"topic": "ice", "checked": True}
        assert result.tokens == 107


def test_an_error_inside_a_nested_relay_comes_out_named(relay):
    with Relay() as inner:

        @inner.agent("entry")
        async def entry(turn):
            return Command(goto="nobody")

        relay.nest("team", inner, "entry")
        with pytest.raises(UnknownAgent, match="nobody"):
            relay.run_sync("team", "work")


def test_an_unknown_target_is_an_error_that_names_near_ones(relay):
    @relay.agent("triage")
    async def triage(turn):
        return Command(goto="biling")

    @relay.agent("billing")
    async def billing(turn):
        return "never"

    with pytest.raises(UnknownAgent, match=r"agent biling: not registered.*did you mean billing") as caught:
        relay.run_sync("triage", "work")
    assert caught.value.result.status == "failed"
    assert ended(relay).event_type == "failed"
    assert "biling" in ended(relay).reason
    assert [r.event_type for r in relay.audit.query(to_agent="biling")] == ["initiated", "rejected"]
    assert relay.audit.query(to_agent="billing") == []


def test_run_for_an_unknown_agent_names_near_ones(relay):
    @relay.agent("billing")
    async def billing(turn):
        return "never"

    with pytest.raises(UnknownAgent, match="did you mean billing"):
        relay.run_sync("biling", "work")
    with pytest.raises(UnknownAgent, match="known: billing"):
        relay.run_sync("zzz", "work")


def test_a_handoff_to_oneself_with_nothing_new_is_a_loop(relay):
    calls = []

    @relay.agent("a")
    async def a(turn):
        calls.append(1)
        return Command(goto="a")

    with pytest.raises(Exception, match="loops"):
        relay.run_sync("a", "work", timeout=5)
    assert len(calls) <= 2


def test_each_agent_sees_its_own_run_in_concurrent_runs(relay):
    @relay.agent("a")
    async def a(turn):
        await asyncio.sleep(0)
        return Command(goto="b", update={"mine": turn.task})

    @relay.agent("b")
    async def b(turn):
        await asyncio.sleep(0)
        return turn.state["mine"]

    async def main():
        return await asyncio.gather(*(relay.run("a", f"task {n}") for n in range(20)))

    assert [r.output for r in asyncio.run(main())] == [f"task {n}" for n in range(20)]


def test_a_returned_artifact_stays_inside_the_roots():
    with Relay() as relay:
        relay.agent("a")(lambda turn: answer("x", artifacts=(Artifact(id="1", path="../../etc/passwd"),)))
        with pytest.raises(Malformed, match="artifact path"):
            relay.run_sync("a", "work")


def test_a_return_says_when_it_was_done_and_how_long_it_took():
    with Relay() as relay:
        relay.agent("a")(lambda turn: time.sleep(0.02) or "x")
        done = relay.run_sync("a", "work").answer
        assert done.duration_ms >= 20
        assert done.audit.completion_time is not None


def test_an_error_says_where_it_happened():
    with Relay() as relay:

        @relay.agent("a")
        def broken(turn):
            raise ValueError("boom")

        with pytest.raises(HandoffFailed) as caught:
            relay.run_sync("a", "work")
        assert caught.value.result.answer.audit.notes.startswith("at test_flow_sequential.py:")


def test_the_name_of_an_agent_cannot_be_left_out():
    with Relay() as relay, pytest.raises(Malformed, match="with the name in parentheses"):
        relay.agent(lambda turn: "x")
