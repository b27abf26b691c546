"""What may be said by keyword, and that everything else is an error that names the way."""

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from baton import (
    ApprovalDenied,
    Command,
    Handoff,
    HandoffFailed,
    Limits,
    Malformed,
    Profile,
    Relay,
    ReturnProtocol,
    Send,
    Turn,
    answer,
)
from baton.errors import StoreError
from baton.flow.crew import Settings
from baton.protocol.handoff import SUPERVISED
from baton.protocol.options import PartOptions, ProfileOptions, RunOptions, SettingOptions
from baton.testing import virtual
from baton.testing.agents import Crashing


@pytest.fixture
def relay():
    with Relay(backoff=0.01) as opened:
        yield opened


def parent(relay, **options):
    """An agent that delegates with these options; what was made, and what came of it."""

    @relay.agent("child")
    async def child(turn):
        return turn.task

    @relay.agent("parent")
    async def body(turn):
        return (await turn.delegate("child", "a part", **options)).output

    output = relay.run_sync("parent", "whole", workflow_id="w").output
    return relay.store.find(workflow_id="w")[-1], output


# --- nothing that only the supervisor writes ---------------------------------------------------------

WRITTEN = {
    "id": "mine", "root_id": "mine", "line_id": "mine", "hop": -4, "depth": -4, "state": "claimed", "attempt": -4,
    "epoch": 7, "reroutes": -4, "holder": "me", "due_at": datetime(2030, 1, 1, tzinfo=UTC), "answer_id": "mine",
    "approved_by": "ana", "warnings": ("none",), "timestamp": datetime(2030, 1, 1, tzinfo=UTC),
    "parent_id": "another", "workflow_id": "another", "conversation_id": "another", "from_agent": "boss",
    "type": "sequential", "schema_version": 1, "traceparent": "00", "broadcast_group_id": "g",
}  # fmt: skip


def test_every_field_that_the_supervisor_writes_is_tried():
    assert set(SUPERVISED) <= WRITTEN.keys()


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("how", ["delegate", "ask"])
def test_an_agent_cannot_write_what_the_supervisor_writes(relay, name, how):
    @relay.agent("child")
    async def child(turn):
        return "never"

    @relay.agent("parent")
    async def body(turn):
        option = {name: WRITTEN[name]}
        return await (turn.delegate("child", "part", **option) if how == "delegate" else turn.ask("what?", **option))

    with pytest.raises(Malformed, match=f"turn.{how}: {name} is not an option; "):
        relay.run_sync("parent", "whole", workflow_id="w", timeout=5)
    assert [one.to_agent for one in relay.store.find(workflow_id="w")] == ["parent"]


@pytest.mark.parametrize("name", sorted({*SUPERVISED, "parent_id", "part", "type"} - {"state"}))
def test_nor_can_a_program_that_begins_a_workflow(relay, name):
    relay.agent("child")(lambda turn: "never")
    with pytest.raises(Malformed, match=f"relay.run: {name} is not an option; "):
        relay.run_sync("child", "work", **{name: "x"})
    with pytest.raises(Malformed, match=f"{name} is not an option; "):
        asyncio.run(relay.delegate("child", "work", from_agent="me", **{name: "x"}))
    assert relay.store.find() == []


def test_nobody_approves_his_own_work():
    with Relay(limits=Limits(approve=("pay",))) as relay:
        paid = []
        relay.agent("pay")(lambda turn: paid.append(turn.task))

        @relay.agent("clerk")
        async def clerk(turn):
            try:
                await turn.delegate("pay", "send 900", approved_by="ana")
            except Malformed:
                return (await turn.delegate("pay", "send 900")).error

        async def main():
            run = asyncio.create_task(relay.run("clerk", "work"))
            await asyncio.sleep(1)
            relay.deny(relay.waiting()[0].id, by="ana")
            with pytest.raises(ApprovalDenied):
                await run

        virtual.run(main())
        events = [one.event_type for one in relay.audit.query(to_agent="pay")]
        assert (events, paid) == (["initiated", "approval_requested", "denied"], [])


# --- the named options -------------------------------------------------------------------------------


def test_what_a_delegation_may_say(relay):
    soon = datetime.now(UTC) + timedelta(hours=1)
    made, output = parent(
        relay,
        timeout="5m",
        on_failure="retry",
        on_timeout="escalate",
        max_attempts=5,
        priority="urgent",
        deadline=soon,
        reason="why",
        goal="the end",
        budget=100,
        risk="medium",
        rationale="decided",
    )
    assert output == "a part"
    assert made.return_protocol == ReturnProtocol(
        expected=True, timeout=300.0, on_timeout="escalate", on_failure="retry"
    )
    assert (made.max_attempts, made.priority, made.deadline) == (5, "critical", soon)
    assert (made.reason, made.goal, made.budget.max_tokens) == ("why", "the end", 100)
    assert (made.audit.risk_level, made.audit.decision_rationale, made.type) == ("medium", "decided", "delegation")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_attempt": 3}, "max_attempt is not an option; did you mean max_attempts?"),
        ({"state": {"x": 1}}, "state is not an option; update= changes what the receiver sees"),
        ({"capabilities": "refunds"}, "capabilities: expected a list of names, got 'refunds'"),
        ({"share": "customer"}, "share: expected a list of names, got 'customer'"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"timeout": 0}, "a delegation needs one"),
        ({"update": "x"}, "update: expected an object"),
        ({"priority": "hihg"}, "priority: 'hihg'; did you mean high?"),
        ({"on_failure": "retyr"}, "on_failure: retyr is not known; did you mean retry?"),
        ({"budget": "much"}, "budget: expected a number"),
        ({"risk": "hihg"}, "risk_level: hihg is not known; did you mean high?"),
    ],
)
def test_what_a_delegation_may_not_say(relay, options, said):
    with pytest.raises(Malformed, match="^.*" + said.replace("?", r"\?")):
        parent(relay, **options)


def test_a_run_and_a_delegation_from_outside_take_the_same_options(relay):
    @relay.agent("a", capabilities=["x"])
    async def a(turn):
        return turn.state["n"]

    said = {"priority": "P1", "on_failure": "retry", "max_attempts": 2, "capabilities": ["x"], "risk": "medium"}
    relay.run_sync("a", "work", workflow_id="run", state={"n": 1}, **said)
    asyncio.run(relay.delegate("a", "work", from_agent="me", timeout="1m", workflow_id="part", state={"n": 1}, **said))
    for name, timeout in (("run", None), ("part", 60.0)):
        (made,) = relay.store.find(workflow_id=name)
        assert (made.priority, made.max_attempts, made.audit.risk_level) == ("high", 2, "medium")
        assert [one.capability_id for one in made.validation.required_capabilities] == ["x"]
        assert (made.return_protocol.on_failure, made.return_protocol.timeout) == ("retry", timeout)


def test_a_time_out_policy_needs_a_time(relay):
    relay.agent("a")(lambda turn: "done")
    with pytest.raises(Malformed, match="on_timeout: this work has no time"):
        relay.run_sync("a", "work", on_timeout="retry")
    relay.run_sync("a", "work", on_timeout="retry", return_protocol=ReturnProtocol(timeout=5), workflow_id="w")
    assert relay.store.find(workflow_id="w")[0].return_protocol == ReturnProtocol(timeout=5, on_timeout="retry")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: r.run_sync("a", "x", updates={}), "relay.run: updates is not an option; "),
        (lambda r: r.run_sync("a", "x", update={}), "update is not an option; state= gives"),
        (lambda r: r.run_sync("a", "x", state="x"), "state: expected an object"),
        (lambda r: r.run_sync("a", "x", limit=3), "limit is not an option; did you mean limits?"),
        (lambda r: r.run_sync("a", "x", limits={"max_handoff": 3}), "limits: max_handoff is not a field; did you mean"),
        (lambda r: r.run_sync("a", "x", limits=3), "limits: expected an object"),
        (lambda r: r.run_sync("a", "x", timeout="soon"), "timeout: 'soon' is not a duration"),
        (lambda r: Relay(back_off=3), "Relay: back_off is not an option; did you mean backoff?"),
        (lambda r: Relay(limits={"aprove": ["a"]}), "limits: aprove is not a field; did you mean approve?"),
        (lambda r: r.agent("b", capability=["x"])(print), "agent b: capability is not an option; did you mean cap"),
        (lambda r: r.agent("b", capabilities="refunds")(print), "capabilities: expected a list of names"),
        (lambda r: r.agent("b", allowed_targets="all")(print), "allowed_targets: expected a list of names"),
        (lambda r: Limits(approve="payout"), "limits.approve: expected a list of names, got 'payout'"),
        (lambda r: Limits(approve=(3,)), "limits.approve: 3"),
        (lambda r: Limits(approve_risk="hihg"), "limits.approve_risk: 'hihg'; did you mean high?"),
        (lambda r: Limits(loops=["a->b"]), "limits.loops: expected an object"),
        (lambda r: Command(goto=["b"]), r"Command.goto: \['b'\] is not the name of an agent"),
        (lambda r: Command(goto=parent), "Command.goto: 'parent' is not the name of an agent"),
        (lambda r: Command(goto="b", update="x"), "Command.update: 'x' is not an object"),
        (lambda r: Command(needs="refunds"), "Command.needs: expected a list of names"),
    ],
)
def test_a_wrong_word_is_an_error_that_names_the_right_one(relay, call, said):
    relay.agent("a")(lambda turn: "done")
    with pytest.raises(Malformed, match=said.replace("?", r"\?")):
        call(relay)
    assert relay.store.find() == []


def test_limits_may_be_a_plain_object():
    with Relay(limits={"max_handoffs": 3, "approve": ["pay"]}) as relay:
        assert relay._crew.settings.limits == Limits(max_handoffs=3, approve=("pay",))
        relay.agent("a")(lambda turn: Command(goto="a", task=f"{turn.handoff.hop}"))
        with pytest.raises(HandoffFailed.__mro__[2], match="max_handoffs"):
            relay.run_sync("a", "work", limits={"max_handoffs": 1})


def test_durations_may_be_words():
    with Relay(delegation_timeout="2m") as relay:
        assert parent(relay)[0].return_protocol.timeout == 120.0
        relay.agent("slow", max_execution_time="5m")(print)
        assert relay._crew.profiles["slow"].max_execution_time == 300.0


# --- the lists are whole -----------------------------------------------------------------------------


def test_the_lists_of_options_have_every_field():
    fields = set(Profile.__struct_fields__) - {"agent_id"}
    assert set(ProfileOptions.__optional_keys__) == fields | {"autonomy"}
    own = {"limits", "handoffs", "independent"}
    assert set(SettingOptions.__optional_keys__) == set(Settings.__struct_fields__) - own | {"telemetry"}
    known = set(Handoff.__struct_fields__)
    own = {"limits", "complexity", "state", "capabilities", "risk", "rationale", "on_failure", "on_timeout"}
    assert set(RunOptions.__optional_keys__) - own <= known - set(SUPERVISED) - {"parent_id", "part"}
    assert set(PartOptions.__optional_keys__) - own - {"timeout", "update", "share", "transfer"} <= known - set(
        SUPERVISED
    )


def test_the_docstrings_name_every_option():
    for known, method in ((RunOptions, Relay.run), (PartOptions, Turn.delegate), (SettingOptions, Relay.__init__)):
        missing = [name for name in known.__optional_keys__ if name not in method.__doc__]
        assert missing == ([] if known is not RunOptions else ["on_timeout"])


# --- again after a failure ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["run", "delegate", "turn"])
def test_on_failure_retry_tries_again_after_an_error(relay, how):
    relay.add("shaky", Crashing(times=2))

    @relay.agent("parent")
    async def body(turn):
        return (await turn.delegate("shaky", "work", on_failure="retry")).output

    async def main():
        if how == "delegate":
            return (await relay.delegate("shaky", "work", from_agent="me", on_failure="retry")).output
        return (await relay.run("shaky" if how == "run" else "parent", "work", on_failure="retry")).output

    assert virtual.run(main()) == "work"
    assert [turn.attempt for turn in relay._crew.agents["shaky"].turns] == [1, 2, 3]


def test_without_it_one_error_is_the_end(relay):
    relay.add("shaky", Crashing(times=1))
    with pytest.raises(HandoffFailed):
        virtual.run(relay.run("shaky", "work"))
    assert len(relay._crew.agents["shaky"].turns) == 1


def test_max_attempts_bounds_the_retries(relay):
    relay.add("shaky", Crashing())

    @relay.agent("parent")
    async def body(turn):
        return (await turn.delegate("shaky", "work", on_failure="retry", max_attempts=2)).error

    assert "the agent broke" in virtual.run(relay.run("parent", "work")).output
    assert len(relay._crew.agents["shaky"].turns) == 2


# --- what raised --------------------------------------------------------------------------------------


def test_the_cause_is_what_ended_the_workflow_and_not_what_was_dealt_with(relay):
    @relay.agent("flaky")
    async def flaky(turn):
        raise ValueError("dealt with")

    @relay.agent("top")
    async def top(turn):
        await turn.delegate("flaky", "part")
        raise KeyError("the end")

    with pytest.raises(HandoffFailed) as raised:
        relay.run_sync("top", "work")
    assert repr(raised.value.__cause__) == "KeyError('the end')"


def test_the_cause_is_that_of_the_last_of_a_line(relay):
    relay.agent("a")(lambda turn: Command(goto="b"))

    @relay.agent("b")
    async def b(turn):
        raise ValueError("at b")

    with pytest.raises(HandoffFailed) as raised:
        relay.run_sync("a", "work")
    assert repr(raised.value.__cause__) == "ValueError('at b')"


# --- slips --------------------------------------------------------------------------------------------


def test_a_wrong_time_out_leaves_nothing_claimed(relay):
    relay.agent("x")(lambda turn: "done")
    for timeout in ("soon", -1, [], float("nan")):
        with pytest.raises(Malformed, match="timeout"):
            relay.run_sync("x", "t", timeout=timeout, workflow_id="w")
        with pytest.raises(Malformed, match="timeout"):
            asyncio.run(relay.delegate("x", "t", from_agent="me", timeout=timeout, workflow_id="w"))
    assert relay.store.find() == []
    assert relay.run_sync("x", "t", timeout="5s", workflow_id="w").output == "done"


def test_run_sync_inside_a_loop_names_the_way(relay):
    relay.agent("x")(lambda turn: "done")

    async def main():
        relay.run_sync("x", "t")

    with pytest.raises(Malformed, match=r"write `await relay.run\("):
        asyncio.run(main())


@pytest.mark.parametrize("future", [False, True])
def test_a_missing_await_is_named(relay, future):
    relay.agent("child")(lambda turn: "done")

    @relay.agent("parent")
    async def body(turn):
        call = turn.delegate("child", "part")
        return asyncio.ensure_future(call) if future else call

    with pytest.raises(Malformed, match="`await` is missing"):
        relay.run_sync("parent", "whole", timeout=5)


def test_a_closed_relay_says_that_it_is_closed(tmp_path):
    relay = Relay(str(tmp_path / "team.db"))
    relay.agent("x")(lambda turn: "done")
    relay.run_sync("x", "t")
    relay.close()
    for call in (lambda: relay.run_sync("x", "t"), relay.waiting):
        with pytest.raises(StoreError, match="this relay is closed; open a new Relay"):
            call()


def test_an_instruction_is_checked_also_where_it_is_replaced():
    with pytest.raises(Malformed, match="update"):
        msgspec.structs.replace(Command(goto="b"), update=["x"])
    assert answer("x", update={"a": 1}).context_updates.variables_changed == {"a": 1}


@pytest.mark.parametrize(
    ("call", "cure"),
    [
        (lambda relay: relay.run_sync("a", "x", max_tokens=5), r"limits=Limits\(max_tokens=…\) sets it"),
        (lambda _: Relay(limit=3), "limits"),
        (lambda _: Relay(max_handoffs=3), r"limits=Limits\(max_handoffs=…\)"),
        (lambda _: Command(goto=["a", "b"]), r"goto=\[Send\('a'\), Send\('b'\)\]"),
    ],
)
def test_a_near_miss_names_what_is_meant(relay, call, cure):
    with pytest.raises(Malformed, match=cure):
        call(relay)


@pytest.mark.parametrize("given", [Send("b"), [Send("b")], ["x", Command(goto="b")]])
def test_an_answer_that_was_meant_to_hand_on_is_an_error(relay, given):
    @relay.agent("a")
    def a(turn):
        return given

    with pytest.raises(Malformed, match="return one Command"):
        relay.run_sync("a", "x")


def test_what_was_charged_stands_in_the_return(relay):
    @relay.agent("b")
    async def b(turn):
        await turn.charge(tokens=100, cost=0.5)
        return answer("done", tokens=70)

    @relay.agent("a")
    async def a(turn):
        part = await turn.delegate("b", "part")
        return [part.audit.tokens_consumed, part.audit.cost]

    result = relay.run_sync("a", "x")
    assert (result.output, result.tokens) == ([100, 0.5], 100)


def test_the_place_of_an_error_is_in_the_agents_own_code(relay):
    @relay.agent("a")
    def a(turn):
        return turn.nope

    with pytest.raises(HandoffFailed) as caught:
        relay.run_sync("a", "x")
    assert caught.value.result.answer.audit.notes.startswith("at test_flow_options.py:")
