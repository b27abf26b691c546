"""A wrong type in any field that an agent or a program can give: refused under its name, or stored readably."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from baton import (
    Artifact,
    Autonomy,
    BatonError,
    Budget,
    Command,
    Defer,
    Escalate,
    Handoff,
    Limits,
    Message,
    Profile,
    Reject,
    Relay,
    Return,
    ReturnProtocol,
    Send,
    answer,
)
from baton.protocol.context import Context, Include, ToolCall, Transfer
from baton.protocol.handoff import Rationale, Requirement, Validation
from baton.protocol.options import GroupOptions, PartOptions, ProfileOptions, RunOptions, SettingOptions
from baton.protocol.results import Account, Result, Updates
from baton.stores.rows import UNREADABLE, unreadable

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the point
BEFORE_TIME = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
AFTER_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-14)))
WRONG = [
    5, 1.5,
    -1, True, None, b"x", object(), [], [5], (5,), ["x"], {}, {"x": {1}}, {5: 5}, {"x": "y"}, {"a": float("nan")},
    "\ud800", "text", "", "x" * 1_100_000, float("nan"), float("inf"), 2**70, NAIVE, BEFORE_TIME, AFTER_TIME, int,
]  # fmt: skip
RAW = ("AttributeError", "TypeError", "OverflowError", "UnicodeEncodeError", "KeyError")  # that name no field
REFUSED_AT_LEAST = len(WRONG) // 3


def read_again(path):
    """What another process sees of a store, all of it; nothing of it may be a stand-in."""
    with Relay(path, durability="process") as reader:
        reader.recover()
        handoffs = reader.store.find(limit=100_000)
        assert [one.id for one in handoffs if unreadable(one)] == []
        for one in handoffs:
            found = reader.store.returned(one.id)
            assert found is None or UNREADABLE not in found.error
            reader.audit.query(handoff_id=one.id)
        for flow in reader.store.workflows(limit=100_000):
            reader.result(flow.id)
        assert all(UNREADABLE not in row.profile.description for row in reader.store.agents())
        assert reader.audit.verify().ok
        return handoffs


def refused(attempt):
    """What a refusal says, or nothing; any other error than one of ours is a failure of the test."""
    try:
        attempt()
    except BatonError as error:
        said = str(error)
        assert said.isprintable() or "\n" in said
        assert len(said) < 2000
        return f"{type(error).__name__}: {said}"
    return ""


def of(kind, **more):
    """A record of a kind with what it cannot be without."""
    least = {
        Command: {"goto": "b"}, Send: {"agent": "b"}, Reject: {"reason": "x"}, Defer: {"reason": "x"},
        Escalate: {"reason": "x"}, Artifact: {"id": "x", "path": "x"}, Message: {"role": "user"},
        ToolCall: {"id": "x", "name": "x"}, Handoff: {"from_agent": "user", "to_agent": "b", "task": "t"},
        Requirement: {"capability_id": "x"}, Profile: {"agent_id": "p"},
    }  # fmt: skip
    return kind(**{**least.get(kind, {}), **more})


GIVEN_BACK = {
    "command": (Command, lambda one: one),
    "spread": (Send, lambda one: Command(goto=[one])),
    "reject": (Reject, lambda one: one),
    "defer": (Defer, lambda one: one),
    "escalate": (Escalate, lambda one: one),
    "return": (Return, lambda one: one),
    "result": (Result, lambda one: Return(result=one)),
    "updates": (Updates, lambda one: Return(context_updates=one)),
    "account": (Account, lambda one: Return(audit=one)),
    "artifact": (Artifact, lambda one: answer("x", artifacts=(one,))),
    "artifact moved on": (Artifact, lambda one: Command(goto="b", artifacts=(one,))),
    "message": (Message, lambda one: Return(messages=(one,))),
    "call": (ToolCall, lambda one: Return(messages=(Message("assistant", tool_calls=(one,)),))),
}
ANSWERS = [(name, field) for name, (kind, _) in GIVEN_BACK.items() for field in kind.__struct_fields__]
ASKED = {
    "handoff": (Handoff, lambda one: one),
    "context": (Context, lambda one: of(Handoff, context=one)),
    "history": (Message, lambda one: of(Handoff, context=Context(conversation_history=(one,)))),
    "call": (ToolCall, lambda one: of(Handoff, context=Context(conversation_history=(Message("assistant", tool_calls=(one,)),)))),  # noqa: E501
    "artifact": (Artifact, lambda one: of(Handoff, context=Context(artifacts=(one,)))),
    "transfer": (Transfer, lambda one: of(Handoff, context=Context(transfer=one))),
    "include": (Include, lambda one: of(Handoff, context=Context(transfer=Transfer(include=one)))),
    "validation": (Validation, lambda one: of(Handoff, validation=one)),
    "requirement": (Requirement, lambda one: of(Handoff, validation=Validation(required_capabilities=(one,)))),
    "autonomy": (Autonomy, lambda one: of(Handoff, validation=Validation(autonomy_budget=one))),
    "protocol": (ReturnProtocol, lambda one: of(Handoff, return_protocol=one)),
    "rationale": (Rationale, lambda one: of(Handoff, audit=one)),
    "budget": (Budget, lambda one: of(Handoff, budget=one)),
}  # fmt: skip
REQUESTS = [(name, field) for name, (kind, _) in ASKED.items() for field in kind.__struct_fields__]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "s.db")


@pytest.fixture
def relay(path, tmp_path):
    with Relay(path, durability="process", checkpoints=tmp_path / "c", limits=Limits(ack_seconds=3600)) as opened:
        opened.agent("b", capabilities=["x", "a"])(lambda turn: "done")
        yield opened


def test_the_cases_reach_every_kind():
    assert len(ANSWERS) > 60
    assert len(REQUESTS) > 70
    assert ("command", "tokens") in ANSWERS
    assert ("handoff", "deadline") in REQUESTS


@pytest.mark.parametrize("case", ANSWERS, ids=".".join)
def test_what_an_agent_gives_back_is_refused_or_readable(relay, path, case):
    (kind, place), field = GIVEN_BACK[case[0]], case[1]
    values = iter(WRONG)
    relay.agent("a")(lambda turn: place(of(kind, **{field: next(values)})))
    relay.agent("first")(lambda turn: turn.delegate("a", "part").output)
    said = [refused(lambda: relay.run_sync("a", "work", timeout=0.2)) for _ in WRONG]
    assert next(values, None) is None
    free = {"body", "onward", "handoff_id", "from_agent", "to_agent", "history_ref"}  # any JSON, or not the agent's
    assert field in free or sum("Malformed" in one or "TooLarge" in one or "TimedOut" in one for one in said) >= 1
    assert [one for one in said if any(f"{name}: " in one for name in RAW)] == []
    assert len(read_again(path)) >= len(WRONG)


@pytest.mark.parametrize("case", ANSWERS, ids=".".join)
def test_what_a_shell_gives_back_is_refused_or_readable(relay, path, case):
    (kind, place), field = GIVEN_BACK[case[0]], case[1]
    for value in WRONG:
        work = relay.hand_off(of(Handoff))
        taken = relay.claim("b", handoff_id=work.id, lease=600).handoff
        refused(lambda: relay.give_back(work.id, place(of(kind, **{field: value})), epoch=taken.epoch, by="ana"))  # noqa: B023
    assert len(read_again(path)) >= len(WRONG)


@pytest.mark.parametrize("case", REQUESTS, ids=".".join)
def test_what_is_asked_for_is_refused_or_readable(relay, path, case):
    (kind, place), field = ASKED[case[0]], case[1]
    for value in WRONG:
        refused(lambda: relay.hand_off(place(of(kind, **{field: value}))))  # noqa: B023
    relay.hand_off(of(Handoff))
    assert read_again(path)


@pytest.mark.parametrize("option", sorted(RunOptions.__optional_keys__ | {"to", "task", "timeout"}))
def test_an_option_of_run_is_refused_or_readable(relay, path, option):
    def attempt(value):
        given = {"to": "b", "task": "t", "timeout": 1, option: value}
        relay.run_sync(given.pop("to"), given.pop("task"), **given)

    said = [refused(lambda: attempt(value)) for value in WRONG]  # noqa: B023
    assert sum(map(bool, said)) >= REFUSED_AT_LEAST
    relay.run_sync("b", "t")
    assert read_again(path)


PARTS = [
    *(("delegate", option) for option in sorted(PartOptions.__optional_keys__ | {"to", "task", "key"})),
    *(("ask", option) for option in sorted(PartOptions.__optional_keys__ | {"question", "to", "key"})),
    *(("broadcast", option) for option in sorted(GroupOptions.__optional_keys__ | {"to", "task", "key"})),
]


@pytest.mark.parametrize("case", PARTS, ids=".".join)
def test_an_option_of_a_turn_is_refused_or_readable(relay, path, case):
    verb, option = case
    said = []

    @relay.agent("a")
    async def asks(turn):
        for number, value in enumerate(WRONG):
            given = {"to": ["b"] if verb == "broadcast" else "b", "timeout": 1, "key": f"k{number}"}
            given |= {"question" if verb == "ask" else "task": f"t{number}", option: value}
            if option == "field":
                given["aggregate"] = "majority"
            try:
                await getattr(turn, verb)(**given)
            except BatonError as error:
                said.append(str(error))
        return "done"

    assert relay.run_sync("a", "t", limits=Limits(max_handoffs=None), timeout=30).output == "done"
    assert said
    assert read_again(path)


@pytest.mark.parametrize(
    "name", ["charge.tokens", "charge.cost", "lock.shared", "lock.timeout", "lock.path", "progress"]
)
def test_what_a_turn_is_told_is_refused_or_readable(relay, path, name):
    verb, _, field = name.partition(".")

    @relay.agent("a")
    async def tells(turn):
        for value in WRONG:
            try:
                if verb == "charge":
                    await turn.charge(**{field: value})
                elif verb == "lock":
                    given = {"shared": False, "timeout": 0, **({} if field == "path" else {field: value})}
                    async with turn.lock(value if field == "path" else "x", **given):
                        pass
                else:
                    turn.progress(value)
            except BatonError:
                pass
        return "done"

    assert relay.run_sync("a", "t").output == "done"
    relay.store.locks()
    assert read_again(path)


@pytest.mark.parametrize("field", sorted({*Limits.__struct_fields__}))
def test_limits_are_refused_or_readable(relay, path, field):
    for value in WRONG:
        refused(lambda: relay.run_sync("b", "t", limits=Limits(**{field: value}), timeout=0.2))  # noqa: B023
        refused(lambda: relay.run_sync("b", "t", limits={field: value}, timeout=0.2))  # noqa: B023
        refused(lambda: Relay(limits=Limits(**{field: value})).close())  # noqa: B023
    assert Limits(max_reroutes=None, max_same_visits=None).max_reroutes is None
    assert read_again(path)


@pytest.mark.parametrize("option", sorted(SettingOptions.__optional_keys__ | {"durability", "checkpoints"}))
def test_a_setting_is_refused_or_harmless(option):
    def attempt(value):
        with Relay(**{option: value}) as relay:
            relay.agent("b")(lambda turn: "done")
            relay.run_sync("b", "t", timeout=1)

    for value in WRONG:
        refused(lambda: attempt(value))  # noqa: B023


@pytest.mark.parametrize("option", sorted(ProfileOptions.__optional_keys__ | {"name"}))
def test_a_profile_is_refused_or_readable_by_everybody(relay, path, option):
    said = []
    for number, value in enumerate(WRONG):
        given = {"name": f"agent{number}", option: value}
        said.append(refused(lambda: relay.agent(given.pop("name"), **given)(lambda turn: "x")))  # noqa: B023
    assert sum(map(bool, said)) >= REFUSED_AT_LEAST
    for number, value in enumerate(WRONG):
        field = {"name": "agent_id", "autonomy": "autonomy_budget"}.get(option, option)
        refused(lambda: relay.store.register(of(Profile, **{"agent_id": f"row{number}", field: value})))  # noqa: B023
    with Relay(path, durability="process") as other:
        other.agent("late")(lambda turn: "x")
        assert other.run_sync("late", "t").output == "x"
    assert read_again(path)


DESK = [
    ("claim", "agent"), ("claim", "holder"), ("claim", "lease"), ("claim", "estimate"), ("approve", "by"),
    ("approve", "reason"), ("deny", "by"), ("deny", "reason"), ("cancel", "by"), ("cancel", "reason"),
    ("reroute", "to_agent"), ("reroute", "by"), ("reroute", "reason"), ("lock", "owner"), ("lock", "lease"),
    ("lock", "timeout"), ("lock", "shared"), ("give_back", "by"), ("give_back", "epoch"),
]  # fmt: skip


@pytest.mark.parametrize("case", DESK, ids=".".join)
def test_what_a_person_says_is_refused_or_readable(relay, path, case):
    verb, field = case
    call = getattr(relay, verb)
    said = []
    for value in WRONG:
        to = "human" if verb == "give_back" else "b"
        limits = Limits(approve=("*",)) if verb in {"approve", "deny"} else None
        work = relay.hand_off(of(Handoff, to_agent=to), limits=limits)
        given = {"handoff_id": work.id, "agent": "b", "value": "x", "by": "ana", "to_agent": "b", "owner": "ana"}
        known = inspect.signature(call).parameters.keys()
        given = {name: one for name, one in given.items() if name in known} | {field: value}
        if verb == "lock":

            async def hold(given=given):
                async with relay.lock("x", **given):
                    pass

            said.append(refused(lambda: asyncio.run(hold())))
        else:
            said.append(refused(lambda: call(**given)))  # noqa: B023
    assert sum(map(bool, said)) >= REFUSED_AT_LEAST
    assert read_again(path)


def test_another_process_reads_what_hostile_work_left(relay, path):
    """The worst of the cases above in one store, and then the command line."""

    @relay.agent("a")
    async def worst(turn):
        return Command(goto="b", task={"no": "text"})

    assert "Command.task" in refused(lambda: relay.run_sync("a", "t"))
    refused(lambda: relay.agent("x", examples=[5])(worst))
    for verb in (["history"], ["handoff", "list"], ["stats"], ["recover"], ["agents", "list"], ["audit", "verify"]):
        run = subprocess.run(
            [sys.executable, "-m", "baton", *verb, "--store", path],
            capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        assert (run.returncode, "Traceback" in run.stderr) == (0, False), (verb, run.stderr)


def test_the_documents_of_odd_times_can_be_shown(relay):
    odd = Artifact(id="x", path="x", created_at=BEFORE_TIME)
    assert msgspec.json.encode(odd)
    assert "created_at" in refused(lambda: relay.hand_off(of(Handoff, context=Context(artifacts=(odd,)))))
    assert "deadline" in refused(lambda: relay.run_sync("b", "t", deadline=AFTER_TIME))
    good = datetime(2999, 1, 1, tzinfo=UTC)
    assert relay.run_sync("b", "t", deadline=good).output == "done"
