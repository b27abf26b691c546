"""Nothing hostile gets further than one error that names the path and the cure."""

import json
import random
import re
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import Malformed, TooLarge
from baton.protocol import handoff as handoffs
from baton.protocol import results
from baton.protocol.codec import MAX_TEXT, canonical_record, to_microseconds
from baton.protocol.context import Context, Message
from baton.protocol.handoff import Handoff, Requirement, ReturnProtocol, checked, read_handoff
from baton.protocol.limits import Autonomy, Budget, Limits, as_autonomy, as_budget
from baton.protocol.profile import Profile, read_profile
from baton.protocol.results import Acceptance, Defer, Escalate, Reject, Return, read_acceptance, read_return

NOON = "2026-01-31T12:00:00Z"

# Every field of the two sources' schemas and types, each with a value that is not its default.
DOCUMENTS = json.loads((Path(__file__).parent / "golden" / "documents.json").read_text(encoding="utf-8"))
FIRST, SECOND = DOCUMENTS["handoff"], DOCUMENTS["request"]
RETURN, RESULT = DOCUMENTS["return"], DOCUMENTS["result"]
PROFILE = DOCUMENTS["profile"]


def brief(value):
    return f"{value!r:.30}#{crc32(repr(value).encode()):x}"


def dumped(value):
    return json.dumps(value).encode()


# --- wrong at every field ------------------------------------------------------------------------


def refusal(reader, data):
    """What the one error says, or nothing where the document was read."""
    try:
        reader(data)
    except Malformed as error:
        said = str(error)
    else:
        return ""
    assert said.isprintable()
    assert len(said) < 1000
    return said


WRONG = ["text", 5, 1.5, True, None, [], {}, [5], {"x": 5}, {"x": {}}]
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the point
READERS = {
    "handoff": (read_handoff, {**FIRST, "context": {"task_id": "T-1"}}),
    "return": (read_return, RETURN),
    "profile": (read_profile, {"agent_id": "a"}),
    "acceptance": (read_acceptance, {"status": "accepted"}),
}


def spots(kind, path=()):
    """Every field of a record and of the records in it."""
    for field in msgspec.structs.fields(kind):
        here = (*path, field.encode_name)
        yield here
        for part in (field.type, *getattr(field.type, "__args__", ())):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                yield from spots(part, here + ((0,) if part is not field.type and "tuple" in str(field.type) else ()))


def placed(document, path, value):
    """A copy of a document with a value at a path."""
    copy = json.loads(json.dumps(document))
    node = copy
    for step, following in pairwise(path):
        fresh = [] if isinstance(following, int) else {}
        if isinstance(step, int):
            node[:] = [item for item in node if isinstance(item, type(fresh))][:1] or [fresh]
        elif not isinstance(node.get(step), type(fresh)):
            node[step] = fresh
        node = node[step]
    node[path[-1]] = value
    return copy


CASES = [
    (what, path)
    for what, kind in (
        ("handoff", Handoff),
        ("return", Return),
        ("profile", Profile),
        ("acceptance", Acceptance),
    )
    for path in spots(kind)
]


def test_the_cases_reach_every_field():
    assert len(CASES) > 90
    assert ("handoff", ("context", "transfer", "include", "tool_calls")) in CASES
    assert ("handoff", ("context", "artifacts", 0, "created_at")) in CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: ".".join(map(str, (case[0], *case[1]))))
def test_a_wrong_type_is_read_or_named_at_every_field(case):
    what, path = case
    reader, document = READERS[what]
    said = [refusal(reader, dumped(placed(document, path, value))) for value in WRONG]
    names = [what, *(step for step in path if not isinstance(step, int))]
    for message in filter(None, said):
        assert names[-1] in message or names[-2] in message
        assert re.search(r"; |expected|missing", message)
    assert any(said) or path[-1] == "body"


@pytest.mark.parametrize("case", CASES, ids=lambda case: ".".join(map(str, (case[0], *case[1]))))
def test_a_near_miss_is_named_at_every_field(case):
    what, path = case
    reader, document = READERS[what]
    if isinstance(path[-1], int):
        return
    with pytest.raises(Malformed) as caught:
        reader(dumped(placed(document, (*path[:-1], path[-1] + "z"), 5)))
    assert f"{path[-1]}z" in str(caught.value)
    assert "did you mean" in str(caught.value)


def edited(**changes):
    return {**FIRST, **changes}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (dumped({"to_agent": "b"}), r"handoff\.from_agent is missing; add it"),
        (
            dumped(edited(context={"artifacts": [{"id": "x"}]})),
            r"handoff\.context\.artifacts\[0\]\.path is missing",
        ),
        (
            dumped(edited(context={"tsk_id": 1})),
            r"handoff\.context: tsk_id is not a field; did you mean task_id\?",
        ),
        (dumped(edited(type="delegate")), r"handoff\.type: delegate is not known; did you mean delegation\?"),
        (dumped(edited(state="done")), r"handoff\.state: done is not known"),
        (dumped(edited(priority="hgih")), r"priority: 'hgih'; did you mean high\?"),
        (dumped(edited(timestamp="2026-01-31T12:00:00")), r"handoff\.timestamp: no time zone; write UTC"),
        (dumped(edited(timestamp="yesterday")), r"handoff\.timestamp: not a time; write UTC"),
        (dumped(edited(timestamp=5)), r"handoff\.timestamp: expected a time, got a whole number"),
        (
            dumped(edited(context={"constraints": {"state": "completed"}})),
            r"constraints: state is not a field",
        ),
        (dumped(edited(budget=5)), r"handoff: budget and context\.constraints\.budget are the same field"),
        (dumped(edited(context={"constraints": 5})), r"handoff\.context\.constraints: expected an object"),
        (
            dumped(edited(context={"constraints": {"budget": 1.5}})),
            r"handoff\.budget: 1\.5 is not a whole number",
        ),
        (dumped(edited(context={"constraints": {"budget": -1}})), r"handoff\.budget: -1 is out of range"),
        (
            dumped(edited(return_protocol={"timeout": "soon"})),
            r"handoff\.return_protocol\.timeout: 'soon' is not a dur",
        ),
        (
            dumped(edited(validation={"required_capabilities": [{"capability_id": "x", "min_proficiency": 2}]})),
            r"min_proficiency: 2.0 is out of range; use 0 to 1",
        ),
        (dumped({"handoff": FIRST, "more": 1}), r"handoff: more stands beside it"),
        (dumped({**SECOND, "from_agent": "x"}), r"handoff: fromAgentId and from_agent are the same field"),
        (dumped([FIRST]), r"handoff: expected an object"),
        (b'{"from_agent": "a", "from_agent": "b"}', r"handoff: key from_agent stands twice; keep one"),
        (
            b'{"context": {"metadata": [{"k": 1, "k": 2}]}}',
            r"handoff\.context\.metadata\[0\]: key k stands twice",
        ),
        (b'{"context": {"metadata": {"k": NaN}}}', r"handoff\.context\.metadata\.k: NaN is not JSON"),
        (
            b'{"context": {"metadata": {"k": [-Infinity]}}}',
            r"handoff\.context\.metadata\.k\[0\]: -Infinity is not JSON",
        ),
        (b'{"context": {"metadata": {"k": 1e999}}}', r"handoff\.context\.metadata\.k: inf is not JSON"),
        (b'{"hop": 9007199254740992}', r"handoff\.hop: a whole number beyond"),
        (b'{"hop": ' + b"9" * 100_000 + b"}", r"handoff\.hop: a whole number beyond"),
        (b'{"task": "\\ud800"}', r"handoff\.task: half a character"),
        (b'{"task": "\\udc00\\ud800"}', r"handoff\.task: half a character"),
        (b'{"\\ud800": 1}', r"handoff\.'\\ud800': half a character"),
        (b'{"task": "\xff"}', r"handoff: byte 10 is not UTF-8"),
        (b'{"task": "\xed\xa0\x80"}', r"handoff: byte 10 is not UTF-8"),
        (b'{"task": "\xc0\x80"}', r"handoff: byte 10 is not UTF-8"),
        (json.dumps(FIRST).encode("utf-16"), r"handoff: byte 0 is not UTF-8"),
        (b"\xef\xbb\xbf{}", r"handoff: not JSON"),
        (b"", r"handoff: not JSON"),
        (b"{}{}", r"handoff: not JSON"),
        (b"{'a': 1}", r"handoff: not JSON"),
        (b'{"task": "a\x00b"}', r"handoff: not JSON"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, r"handoff\.a.*: nested deeper than 64"),
        (b"[" * 100_000 + b"]" * 100_000, r"handoff: nested deeper than 64"),
        (b'{"a":' * 100_000, r"handoff: nested deeper than 64"),
        (b"[" * 8_000_000, r"handoff: nested deeper than 64"),
        (b'{"a\x7f`- at `$.b\\n' + b"x" * 5_000_000 + b'": 1}', r"handoff: .* is not a field"),
        (dumped(edited(**{"x` - at `$.type": 1})), r"handoff.*known"),
        (dumped(edited(type="x` - at `$.nonsense`")), r"handoff.*: .*known"),
    ],
    ids=brief,
)
def test_the_error_names_the_path_and_the_cure(data, says):
    start = time.perf_counter()
    with pytest.raises(Malformed, match="^" + says if says.startswith("handoff") else says) as caught:
        read_handoff(data)
    assert time.perf_counter() - start < 2
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


def test_a_document_that_is_too_large_is_refused_unread():
    for reader in (read_handoff, read_return, read_profile, read_acceptance):
        with pytest.raises(TooLarge, match="artifact"):
            reader(b'{"task": "' + b"x" * 9_000_000 + b'"}')


def test_many_equal_keys_and_many_small_lists_take_linear_time():
    start = time.perf_counter()
    for data in (b"{" + b'"a":1,' * 500_000 + b'"a":1}', b"[" + b"[]," * 1_000_000 + b"[]]"):
        with pytest.raises(Malformed):
            read_handoff(data)
    keys = b",".join(b'"%d":1' % n for n in range(300_000))
    with pytest.raises(Malformed, match="299999"):
        read_handoff(b"{" + keys + b',"299999":1}')
    assert time.perf_counter() - start < 10


# --- what Python programs build ------------------------------------------------------------------


def good(**changes):
    return Handoff(
        **{
            "from_agent": "a",
            "to_agent": "b",
            "task": "t",
            "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
            **changes,
        }
    )


DELEGATION = {"type": "delegation", "return_protocol": ReturnProtocol(timeout=5)}


def test_good_requests_pass():
    assert checked(good()) == good()
    assert checked(good(**DELEGATION))
    assert checked(good(context=Context(context_variables={"a": 1}, conversation_history=(Message("user", "x"),))))
    assert checked(good(id="i" * 32, workflow_id="w" * 64, root_id="r" * 64, context=Context(task_id="t" * 200)))


@pytest.mark.parametrize("field", Handoff.__struct_fields__)
def test_a_field_of_a_wrong_python_type_is_refused(field):
    with pytest.raises(Malformed):
        checked(good(**{field: object()}))
    with pytest.raises(Malformed):
        checked(good(**{field: {"surely": {"wrong"}}}))


@pytest.mark.parametrize(
    "agent",
    ["", " ", "a ", " a", "a\0", "a\nb", "\x1b[2J", "a\u202eb", "a\u200b", "\ud800", "x" * 201, "\x85"],
)
def test_agents_have_printable_names(agent):
    for field in ("from_agent", "to_agent"):
        with pytest.raises(Malformed, match=field if agent != "\ud800" else "half a character"):
            checked(good(**{field: agent}))
    with pytest.raises(Malformed, match="agent_id"):
        Profile(agent_id=agent)


@pytest.mark.parametrize("field", ["id", "workflow_id", "parent_id", "part", "holder", "conversation_id"])
def test_ids_are_printable_and_bounded(field):
    for value in ("a\0b", "x" * 201, "a\n"):
        with pytest.raises(Malformed, match=field):
            checked(good(**{field: value}))
    with pytest.raises(Malformed, match=r"context\.task_id"):
        checked(good(context=Context(task_id="a\0b")))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"type": "delegation"}, r"return_protocol\.timeout: a delegation needs one"),
        ({**DELEGATION, "task": " "}, "task: empty"),
        ({"type": "escalation"}, r"audit\.decision_rationale: empty"),
        ({"schema_version": 2}, "schema_version: 2"),
        ({"max_attempts": 0}, "max_attempts: 0 is out of range"),
        ({"max_iterations": -1}, "max_iterations: -1 is out of range"),
        ({"max_attempts": 2**60}, "max_attempts"),
        ({"return_protocol": ReturnProtocol(timeout=-1)}, r"return_protocol\.timeout: -1 is out of range"),
        ({"return_protocol": ReturnProtocol(timeout=10**9)}, r"return_protocol\.timeout"),
        ({"return_protocol": ReturnProtocol(timeout=float("nan"))}, r"return_protocol\.timeout"),
        ({"return_protocol": ReturnProtocol(timeout=float("inf"))}, r"return_protocol\.timeout"),
        ({"return_protocol": ReturnProtocol(timeout="30s")}, r"handoff\.return_protocol\.timeout: expected"),
        ({"timestamp": NAIVE}, r"handoff\.timestamp: no time zone"),
        ({"deadline": NAIVE}, r"handoff\.deadline: no time zone"),
        ({"task": "\ud800"}, "half a character"),
        ({"task": "x" * 1_100_000}, "task: 1100000 characters"),
        ({"goal": "x" * 9_000_000}, "at most"),
        ({"context": Context(metadata={"x": float("nan")})}, r"context\.metadata\.x: nan"),
        ({"context": Context(completed_work={"x": {1, 2}})}, r"context\.completed_work\.x: set"),
        ({"context": Context(task_id=5)}, r"handoff\.context\.task_id: expected text"),
        ({"context": None}, r"handoff\.context: expected"),
    ],
)
def test_a_request_that_does_not_fit_together_is_refused(changes, says):
    with pytest.raises(Malformed, match=says):
        checked(good(**changes))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Budget(max_tokens=-1), r"budget\.max_tokens: -1"),
        (lambda: Budget(max_cost=float("nan")), r"budget\.max_cost: nan"),
        (lambda: Budget(max_cost=1e13), r"budget\.max_cost"),
        (lambda: Budget(max_tokens="5"), "expected a number, got str"),
        (lambda: Budget(max_tokens=True), "expected a number, got bool"),
        (lambda: Autonomy(max_hops=-1), r"autonomy_budget\.max_hops"),
        (lambda: Requirement(capability_id="x", min_proficiency=1.5), "min_proficiency"),
        (lambda: Limits(max_handoffs=-1), r"limits\.max_handoffs"),
        (lambda: Limits(max_seconds=float("inf")), r"limits\.max_seconds"),
        (lambda: Limits(ack_seconds=-1), r"limits\.ack_seconds"),
        (lambda: Limits(loops={"a->b": -1}), r"limits\.loops\.a->b"),
        (lambda: Profile(agent_id="a", capabilities={"x": 1.1}), r"capabilities\.x: 1\.1"),
        (lambda: Profile(agent_id="a", capabilities={"x": float("nan")}), r"capabilities\.x"),
        (lambda: Profile(agent_id="a", capabilities={"x": "high"}), r"capabilities\.x: expected a number"),
        (lambda: Profile(agent_id="a", max_concurrent_tasks=0), "max_concurrent_tasks: 0"),
        (lambda: as_budget(float("nan")), "budget: nan"),
        (lambda: as_budget(float("inf")), "budget: inf"),
        (lambda: as_budget(-5), "budget: -5"),
        (lambda: as_budget(True), "expected a number"),
        (lambda: as_autonomy(0.5), "not a whole number"),
        (lambda: Reject(""), r"reject\.reason: empty"),
        (lambda: Defer(" "), r"defer\.reason: empty"),
        (lambda: Defer("x", -1), r"defer\.seconds"),
        (lambda: Defer("x", float("nan")), r"defer\.seconds: nan"),
        (lambda: Escalate(" "), r"escalate\.reason: empty"),
        (lambda: Escalate("x", assessment={"a": float("nan")}), r"escalate\.assessment\.a: nan"),
        (lambda: Escalate("x", assessment=["y" * MAX_TEXT]), r"escalate\.assessment: .* at most"),
        (lambda: Limits(max_escalations=-1), r"limits\.max_escalations"),
        (lambda: Acceptance(status="rejected"), r"acceptance\.reason: empty"),
        (lambda: results.Account(cost=float("nan")), r"audit\.cost"),
        (lambda: results.Account(tokens_consumed=-1), r"audit\.tokens_consumed"),
        (lambda: results.checked(results.as_return({1: 2})), r"result\.body\.1"),
        (lambda: results.checked(results.as_return(float("nan"))), r"result\.body: nan"),
        (lambda: results.checked(results.as_return("\ud800")), r"result\.body: half"),
        (lambda: results.checked(Return(duration_ms=-1)), "duration_ms"),
        (lambda: results.checked(Return(error=5)), r"return\.error: expected text"),
        (lambda: to_microseconds(NAIVE), "no time zone"),
    ],
)
def test_values_out_of_range_are_refused_where_they_are_made(make, says):
    with pytest.raises(Malformed, match=says):
        make()


def test_a_return_needs_to_say_what_it_answers():
    with pytest.raises(Malformed, match=r"return\.handoff_id is missing"):
        read_return(b"{}")
    with pytest.raises(Malformed, match=r"return\.success: expected true or false"):
        read_return(dumped({**RESULT, "success": "yes"}))


def test_records_are_frozen_and_share_nothing_that_can_change():
    record = good()
    with pytest.raises(AttributeError):
        record.task = "other"
    record.context.context_variables["leak"] = 1
    Return().context_updates.variables_changed["leak"] = 1
    assert good().context.context_variables == {}
    assert Return().context_updates.variables_changed == {}
    assert msgspec.json.decode(b'{"from_agent":"a","to_agent":"b"}', type=Handoff).context.context_variables == {}


def test_what_was_written_does_not_change_with_the_record():
    variables = {"a": 1}
    record = good(context=Context(context_variables=variables))
    data = canonical_record(record)
    variables["a"] = 2
    assert json.loads(data)["context"]["context_variables"] == {"a": 1}


# --- chance ---------------------------------------------------------------------------------------

VALID = [
    (read_handoff, FIRST),
    (read_handoff, SECOND),
    (read_return, RETURN),
    (read_return, RESULT),
    (read_profile, PROFILE),
]
PIECES = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\u", b"\\ud800", b"\xff", b"\x00", b"NaN", b"1e999",
    b"-0", b"null",
          b"9" * 30, b"[" * 70, b'{"a":' * 70, b"`", b"\xed\xa0\x80", b'"id":1,', b"true", b"-", b"T", b"Z",
          b"+99:99", b"0000"]  # fmt: skip


def mutated(data, chance):
    data = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        upto = min(len(data), at + chance.choice([0, 0, 1, 3, 20]))
        data[at:upto] = chance.choice(
            [b"", bytes([chance.randrange(256)]), chance.choice(PIECES), data[upto : upto + 9]]
        )
    return bytes(data)


def outcome(reader, data):
    if refusal(reader, data):
        return False
    record = reader(data)
    canonical_record(record)
    if isinstance(record, Handoff):
        refusal(handoffs.document, record)
        refusal(checked, record)
    return True


def test_mutated_documents_are_read_or_refused():
    chance = random.Random(25)
    valid = [(reader, dumped(document)) for reader, document in VALID]
    passed = sum(outcome(reader, mutated(data, chance)) for _ in range(2500) for reader, data in valid)
    assert 100 < passed < 12_000


KEYS = st.sampled_from(
    [
        *Handoff.__struct_fields__,
        *Context.__struct_fields__,
        *SECOND,
        *SECOND["context"],
        "constraints",
        "x",
        "",
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([NOON, "30s", "P0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=300)
@given(st.dictionaries(KEYS, JSON, max_size=8), st.sampled_from([FIRST, SECOND, RETURN, RESULT, {}]))
def test_any_json_is_read_or_refused(extra, base):
    for reader in (read_handoff, read_return, read_profile, read_acceptance):
        outcome(reader, json.dumps({**base, **extra}))


@settings(max_examples=300)
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    for reader in (read_handoff, read_return, read_profile, read_acceptance):
        outcome(reader, data)


def test_no_depth_of_the_stack_turns_into_another_error():
    def descend(levels):
        return descend(levels - 1) if levels else outcome(read_handoff, dumped(FIRST))

    for levels in range(700, 960, 10):
        try:
            descend(levels)
        except RecursionError:  # the caller's own depth, before the reader was reached
            break
