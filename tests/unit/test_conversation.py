"""Conversations in the words of the providers: what is written is never refused, and nothing in it is invented."""

import json
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import Malformed
from baton.protocol.context import Include, Message, ToolCall, Transfer, select
from baton.protocol.conversation import anthropic, chat, normal, responses
from baton.protocol.conversation.normaliser import OPENING

WIRES = [chat, responses, anthropic]
OURS = {OPENING, anthropic.GO_ON}
quiet = settings(deadline=None)
every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.__name__.rpartition(".")[2])


# --- conversations: anything, and what agents really say --------------------------------------------

IDS = st.sampled_from(["a", "b", "", "call_" + "x" * 60, "tool.use:1", "toolu_01", "rs_1"])
TOOLS = st.sampled_from(["look", "mcp.server/look", "", "n" * 90, "größe"])
ARGUMENTS = st.sampled_from(
    ["{}", '{"x": 1}', '{ "y" :[1.0, null] }', "", "[1]", "{", "\ud800", '{"n": 1e999}', '{"big": ' + "9" * 30 + "}"]
)
WORDS = st.sampled_from(["", " \n", "x", "y ", "sehr viel", "[image]"])
CALLS = st.lists(st.builds(ToolCall, id=IDS, name=TOOLS, arguments=ARGUMENTS), max_size=3).map(tuple)
LOOSE = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    WORDS,
    st.sampled_from(["", "billing", "Front Desk", "<x>"]),
    CALLS,
    IDS,
    WORDS,
)


@st.composite
def turns(draw):
    """Calls beside each other, answered in any order, late, twice or not at all, with words in between."""
    ids = draw(st.lists(IDS.filter(bool), max_size=4, unique=True))
    calls = tuple(ToolCall(id=i, name=draw(TOOLS), arguments=draw(ARGUMENTS)) for i in ids)
    after = [Message("tool", f"result of {i}", tool_call_id=i) for i in draw(st.permutations(ids))]
    for _ in range(draw(st.integers(0, 2))):
        after.insert(draw(st.integers(0, len(after))), draw(LOOSE))
    if after and draw(st.booleans()):
        del after[draw(st.integers(0, len(after) - 1))]
    return [Message("assistant", draw(WORDS), tool_calls=calls), *after]


def flat(parts):
    return [item for part in parts for item in part]


TALK = st.lists(LOOSE.map(lambda message: [message]) | turns(), max_size=7).map(flat)
TRANSFERS = st.builds(
    Transfer,
    transfer_mode=st.sampled_from(["full", "summary", "relevant_only"]),
    max_messages=st.none() | st.integers(0, 8),
    include=st.builds(Include, **dict.fromkeys(Include.__struct_fields__, st.booleans())),
)
HOPS = st.lists(st.tuples(st.sampled_from(WIRES), TRANSFERS, TALK), min_size=1, max_size=4)


def nameless(messages):
    """As the formats without names carry it."""
    return [msgspec.structs.replace(message, name="") for message in messages]


# --- what holds for all of them ---------------------------------------------------------------------


@every_wire
@quiet
@given(TALK, st.booleans())
def test_what_is_written_is_never_refused(wire, talk, system):
    assert wire.problems(wire.write(talk, system=system)) == []


@quiet
@given(HOPS, st.booleans())
def test_it_crosses_any_number_of_agents(hops, system):
    """Each receives what crosses, says more, and hands on, each at a provider of its own."""
    talk = []
    for wire, transfer, said in hops:
        crossed = select(reversed(talk), transfer)
        request = wire.write(crossed, system=system)
        assert wire.problems(request) == []
        talk = [*wire.read(request), *said]


@every_wire
@quiet
@given(TALK, st.booleans())
def test_what_was_written_is_read_again(wire, talk, system):
    carried = talk if wire is chat else nameless(talk)
    assert wire.read(wire.write(talk, system=system)) == normal(carried, system=system)
    assert wire.write(normal(carried, system=system), system=True) == wire.write(carried, system=system)


@quiet
@given(TALK, st.booleans())
def test_the_normal_form_is_stable(talk, system):
    once = normal(talk, system=system)
    assert normal(once, system=True) == once


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings(one)


WORDS_OF_FORMATS = {
    "system", "user", "assistant", "tool", "function", "message", "function_call", "function_call_output", "text",
    "tool_use", "tool_result",
}  # fmt: skip


@every_wire
@quiet
@given(TALK, st.booleans())
def test_nothing_is_invented(wire, talk, system):
    """Each text of a request was said; the names of tools are those of calls, as far as their form goes."""
    request = wire.write(talk, system=system)
    told = "\n\n".join(message.content for message in talk if message.role == "system" and message.content.strip())
    said = {message.content for message in talk if message.role != "system"} | OURS | WORDS_OF_FORMATS
    said |= {message.name for message in talk} | ({told} if system else set())
    calls = flat(message.tool_calls for message in talk)
    tools = {
        "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in x.name)[:64] or "tool" for x in calls
    }
    arguments = {call.arguments for call in calls}
    for text in strings(request):
        if text in said or text in tools or text.startswith("call0"):
            continue
        assert wire is anthropic or text in {json.dumps(as_object(one), separators=(",", ":")) for one in arguments}
    if wire is anthropic:
        inputs = [b["input"] for m in request["messages"] for b in m["content"] if b["type"] == "tool_use"]
        assert all(one in [as_object(text) for text in arguments] for one in inputs)


def as_object(text):
    whole = text.encode(errors="replace").decode()
    try:
        value = json.loads(text)
        msgspec.json.encode(value)
    except (ValueError, OverflowError):
        return {"arguments": whole} if whole.strip() else {}
    return value if isinstance(value, dict) and "inf" not in repr(value) else {"arguments": whole}


@quiet
@given(TALK)
def test_what_can_be_told_is_told(talk):
    """Nothing is lost but what is empty, what has no partner, and what the sender keeps to itself."""
    said = [m.content for m in normal(talk) if m.role in {"user", "assistant"} and m.content]
    assert said == [m.content for m in talk if m.role in {"user", "assistant"} and m.content.strip()]
    assert [m.reasoning for m in normal(talk)] == [""] * len(normal(talk))
    assert not any(m.role == "system" for m in normal(talk))


# --- one by one -------------------------------------------------------------------------------------


def call(key, name="look", arguments="{}"):
    return ToolCall(id=key, name=name, arguments=arguments)


def result(key, content="found"):
    return Message("tool", content, tool_call_id=key)


def test_parallel_calls_are_settled_in_their_order_even_late():
    talk = [
        Message("user", "do"),
        Message("assistant", "", tool_calls=(call("a", "one"), call("b", "two"), call("c", "three"))),
        result("b", "2"),
        Message("user", "hurry"),
        result("a", "1"),
    ]
    assert normal(talk) == [
        Message("user", "do"),
        Message("assistant", "", tool_calls=(call("call00001", "one"), call("call00002", "two"))),
        result("call00001", "1"),
        result("call00002", "2"),
        Message("user", "hurry"),
    ]


def test_an_id_that_comes_again_belongs_to_the_newer_call():
    talk = [
        *(Message("assistant", "", tool_calls=(call("a", name),)) for name in ("old", "new")),
        result("a"),
        result("a", "again"),
    ]
    assert normal(talk) == [Message("assistant", "", tool_calls=(call("call00001", "new"),)), result("call00001")]


def test_the_handoff_call_itself_does_not_travel():
    """A call that its sender will never answer: `transfer_to_billing` beside a tool that was run."""
    talk = [Message("assistant", "I ask billing", tool_calls=(call("a", "look"), call("b", "transfer"))), result("a")]
    assert [c.name for m in normal(talk) for c in m.tool_calls] == ["look"]


@every_wire
def test_nothing_said_is_an_opening_alone(wire):
    request = wire.write([])
    assert wire.problems(request) == []
    assert OPENING in set(strings(request))
    assert wire.read(request) == []


def test_anthropic_takes_turns_that_begin_and_end_with_the_user():
    talk = [
        Message("assistant", "a"),
        Message("assistant", "b", tool_calls=(call("x"),)),
        result("x"),
        Message("user", "c"),
    ]
    talk += [Message("user", "d"), Message("assistant", "e ")]
    assert anthropic.write(talk)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": OPENING}]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b"},
            {"type": "tool_use", "id": "call00001", "name": "look", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call00001", "content": "found"},
            {"type": "text", "text": "c"},
            {"type": "text", "text": "d"},
        ]},
        {"role": "assistant", "content": [{"type": "text", "text": "e "}]},
        {"role": "user", "content": [{"type": "text", "text": anthropic.GO_ON}]},
    ]  # fmt: skip


def test_chat_and_responses_in_full():
    talk = [Message("system", "be kind"), Message("user", "hi", name="ann"), Message("assistant", "well")]
    talk += [Message("assistant", "", tool_calls=(call("x", "look", '{"a": 1}'),)), result("x")]
    function = {"name": "look", "arguments": '{"a":1}'}
    calls = [{"id": "call00001", "type": "function", "function": function}]
    assert chat.write(talk, system=True)["messages"] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi", "name": "ann"},
        {"role": "assistant", "content": "well", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call00001", "content": "found"},
    ]
    assert responses.write(talk, system=True) == {
        "instructions": "be kind",
        "input": [
            {"type": "message", "role": "user", "content": "hi"},
            {"type": "message", "role": "assistant", "content": "well"},
            {"type": "function_call", "call_id": "call00001", **function},
            {"type": "function_call_output", "call_id": "call00001", "output": "found"},
        ],
    }


# --- reading what providers and frameworks keep -----------------------------------------------------

PICTURE = "data:image/png;base64," + "A" * 400
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "x",
}


def test_chat_is_read():
    asked = {"messages": [
        {"role": "developer", "content": "rules"},
        {"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": PICTURE}},
        ]},
        {"role": "assistant", "content": None, "refusal": "no", "reasoning_content": "hm", "audio": {"id": "audio_1"}},
        {"role": "function", "name": "old", "content": "x"},
    ]}  # fmt: skip
    assert chat.read(asked) == [
        Message("system", "rules"),
        Message("user", "see\n[image: image/png, 300 bytes]"),
        Message("assistant", "no", reasoning="hm"),
    ]


def test_responses_are_read():
    asked = {"input": [
        {"role": "user", "content": [
            {"type": "input_text", "text": "hi"},
            {"type": "input_file", "file_id": "file-1"},
        ]},
        THOUGHT,
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "I look"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "output": {"x": 1}},
        {"type": "custom_tool_call", "call_id": "c2", "name": "code", "input": "1 + 1"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "2"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "found"}]},
    ]}  # fmt: skip
    said = responses.read(asked)
    assert said == [
        Message("user", "hi\n[file]"),
        Message(
            "assistant", "I look", reasoning="hm", tool_calls=(call("c1"), call("c2", "code", '{"input":"1 + 1"}'))
        ),
        result("c2", "2"),
        result("c1"),
    ]
    assert responses.read({"input": "hi", "instructions": "rules"}) == [
        Message("system", "rules"),
        Message("user", "hi"),
    ]
    for wire in WIRES:
        written = wire.write(said)
        assert wire.problems(written) == []
        assert not {"rs_1", "msg_1", "fc_1", "c1", "c2", "hm", "file-1"} & set(strings(written))


def test_anthropic_is_read():
    asked = {"system": [{"type": "text", "text": "rules"}], "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}},
            {"type": "text", "text": "I look"},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": False, "content": [
                {"type": "text", "text": "found"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "AAAA"}},
            ]},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "document", "title": "terms", "source": {"type": "file", "file_id": "file_1"}},
        ]},
    ]}  # fmt: skip
    assert anthropic.read(asked) == [
        Message("system", "rules"),
        Message("user", "hi"),
        Message("assistant", "I look", reasoning="hm", tool_calls=(call("toolu_1", "look", '{"a":1}'),)),
        result("toolu_1", "found\n[image: image/gif, 3 bytes]"),
        Message("user", "[image: https://example.org/a.png]"),
        Message("user", "[document: terms]"),
    ]


@pytest.mark.parametrize(
    ("wire", "asked"),
    [
        (chat, {}),
        (chat, {"messages": [{"content": "x"}]}),
        (chat, {"messages": [{"role": "user", "content": 5}]}),
        (responses, {"input": 5}),
        (responses, {"input": [{"type": "function_call", "call_id": 5}]}),
        (anthropic, {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]}),
        (anthropic, {"messages": [{"role": "user", "content": [5]}]}),
        (anthropic, {"messages": [{"role": "user", "content": "\ud800"}]}),
        (chat, {"messages": [{"role": "user", "content": [{"type": "text", "text": object()}]}]}),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(wire, asked):
    with pytest.raises(Malformed, match=wire.__name__.rpartition(".")[2]):
        wire.read(asked)


KEYS = st.sampled_from(["type", "role", "content", "source", "url", "text", "id", "input", "name", "file"])
JSON = st.recursive(
    st.sampled_from([None, 1, 10**30, float("inf"), "\ud800", "größe", "text", "user", "url", "data:", "tool_use"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)  # fmt: skip


@every_wire
@quiet
@given(st.lists(st.dictionaries(st.sampled_from(["type", "role", "content", "call_id", "name"]), JSON), max_size=3))
def test_any_json_is_read_or_refused(wire, items):
    key = "input" if wire is responses else "messages"
    try:
        said = wire.read({key: items})
    except Malformed:
        return
    assert wire.problems(wire.write(said)) == []


# --- the rules are not those of the writer: they refuse what providers refuse ------------------------

CALL = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ASK = {"role": "user", "content": "hi"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "call00001", "content": "found"}
CHAT_FAULTS = {
    "none": [],
    "is not known": [{"role": "human", "content": "hi"}],
    "nothing in it": [{"role": "user", "content": ""}],
    "tool_calls: empty": [{"role": "assistant", "content": "x", "tool_calls": []}],
    "not the assistant's": [{"role": "user", "content": "x", "tool_calls": [CALL]}, ANSWER],
    "without a result": [ASK, CALLED],
    "comes before the results": [ASK, CALLED, ASK, ANSWER],
    "without its call": [ASK, ANSWER],
    "without its call right": [ASK, CALLED, ANSWER, ANSWER],
    "stands twice": [ASK, CALLED, ANSWER, CALLED, ANSWER],
    "an id of a call": [ASK, {**CALLED, "tool_calls": [CALL, CALL]}, ANSWER],
    "is no word": [ASK, {**CALLED, "tool_calls": [{**CALL, "id": "x" * 41}]}, {**ANSWER, "tool_call_id": "x" * 41}],
    "id or name": [ASK, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "a.b", "arguments": ""}}]}, ANSWER],
    "arguments as text": [
        ASK,
        {**CALLED, "tool_calls": [{**CALL, "function": {"name": "a", "arguments": {}}}]},
        ANSWER,
    ],
    "is no field": [{"role": "assistant", "content": "x", "reasoning_content": "hm"}],
    "a space": [{"role": "user", "content": "x", "name": "front desk"}],
}
F_CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
F_OUT = {"type": "function_call_output", "call_id": "c1", "output": "found"}
RESPONSES_FAULTS = {
    "none": [],
    "servers": [THOUGHT | {"id": "rs_1"}],
    "server": [{"type": "message", "id": "msg_1", "role": "assistant", "content": "x"}],
    "no output found": [ASK, F_CALL],
    "no call found": [ASK, F_OUT],
    "no call found for": [F_OUT, F_CALL],
    "stands twice": [F_CALL, F_OUT, F_CALL, F_OUT],
    "comes before the results": [F_CALL, ASK, F_OUT],
    "call_id or name": [{**F_CALL, "name": "a.b"}, F_OUT],
    "arguments": [{**F_CALL, "arguments": {}}, F_OUT],
    "no output in it": [F_CALL, {**F_OUT, "output": None}],
    "belongs into the instructions": [{"role": "system", "content": "x"}],
    "nothing in it": [{"role": "user", "content": ""}],
    "a part": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
    "is no field": [{"role": "user", "content": "x", "name": "ann"}],
}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "found"}


def by(role, *blocks):
    return {"role": role, "content": list(blocks)}


ANTHROPIC_FAULTS = {
    "at least one": [],
    "the first": [by("assistant", USE), by("user", RESULT)],
    "the last": [ASK, by("assistant", {"type": "text", "text": "x"})],
    "in turn": [ASK, ASK],
    "roles": [ASK, {"role": "tool", "content": "x"}, ASK],
    "nothing": [by("user")],
    "non-whitespace": [by("user", {"type": "text", "text": " \n"})],
    "whitespace": [{"role": "user", "content": ""}],
    "not those": [ASK, by("assistant", USE), ASK],
    "right before": [by("user", RESULT)],
    "its tool_results": [ASK, by("assistant", USE), by("user", RESULT, RESULT)],
    "must come first": [ASK, by("assistant", USE), by("user", {"type": "text", "text": "x"}, RESULT)],
    "unique": [ASK, by("assistant", USE), by("user", RESULT), by("assistant", USE), by("user", RESULT)],
    "must be unique": [ASK, by("assistant", USE, USE), by("user", RESULT)],
    "without tool_result": [ASK, by("assistant", USE)],
    "model that made it": [ASK, by("assistant", {"type": "thinking", "thinking": "hm", "signature": "s"}), ASK],
    "is not the user's": [by("user", USE), by("assistant", RESULT), ASK],
    "is no word": [ASK, by("assistant", {**USE, "id": "a:1"}), by("user", {**RESULT, "tool_use_id": "a:1"})],
    "not an object": [ASK, by("assistant", {**USE, "input": "{}"}), by("user", RESULT)],
}
FAULTS = [
    *((chat, {"messages": given}, said) for said, given in CHAT_FAULTS.items()),
    *((responses, {"input": given}, said) for said, given in RESPONSES_FAULTS.items()),
    *((anthropic, {"messages": given}, said) for said, given in ANTHROPIC_FAULTS.items()),
    (responses, {"input": [ASK], "instructions": ""}, "instructions"),
    (anthropic, {"messages": [ASK], "system": ""}, "system"),
]


@pytest.mark.parametrize(
    ("wire", "request_", "said"), FAULTS, ids=[f"{one[0].__name__[28:]}-{one[2]}" for one in FAULTS]
)
def test_each_rule_refuses(wire, request_, said):
    assert any(said in problem for problem in wire.problems(request_))


def naive(messages):
    """What people write first: each message as it stands."""
    return {"messages": [
        {"role": m.role, "content": m.content, "tool_call_id": m.tool_call_id}
        | ({"tool_calls": [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                           for c in m.tool_calls]} if m.tool_calls else {})
        for m in messages
    ]}  # fmt: skip


def test_the_rules_catch_a_naive_writer():
    """The fault of the first frameworks: the newest five messages, which begin with a result."""
    talk = [
        Message("user", "do"),
        Message("assistant", "", tool_calls=(call("a"), call("b"))),
        result("a"),
        result("b"),
    ]
    assert chat.problems(naive(talk[2:]))
    assert not chat.problems(chat.write(talk[2:]))


@every_wire
def test_time_is_linear(wire):
    turn = [
        Message("user", "do it"),
        Message("assistant", "I look", tool_calls=(call("a", "look", '{"path": "a.py"}'), call("b"))),
        result("b"),
        result("a"),
    ]

    def took(times):
        best = 9.0
        for _ in range(5):
            start = time.process_time()
            wire.write(turn * times)
            best = min(best, time.process_time() - start)
        return best

    assert took(4000) < 24 * took(500)
