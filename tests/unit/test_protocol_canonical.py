"""The canonical form and its digests are pinned: stored data depends on every byte."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import Malformed, TooLarge
from baton.protocol import codec
from baton.protocol.context import Message
from baton.protocol.variables import begin, freeze

GOLDEN = json.loads((Path(__file__).parent / "golden" / "canonical.json").read_text(encoding="utf-8"))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-codec.MAX_INTEGER, codec.MAX_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_the_form_and_the_digest_are_those_of_the_golden_file(case):
    data = codec.canonical(case["value"])
    assert data.decode() == case["canonical"]
    assert codec.digest(data) == case["sha256"]


@given(JSON)
def test_what_is_written_is_read_back_and_written_the_same(value):
    data = codec.canonical(value)
    assert codec.read_json(data) == value
    assert codec.canonical(codec.read_json(data)) == data


@given(st.dictionaries(TEXT, JSON, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value, random):
    keys = list(value)
    random.shuffle(keys)
    assert codec.canonical({key: value[key] for key in keys}) == codec.canonical(value)


def test_records_have_sorted_keys_too():
    data = codec.canonical_record(Message(role="tool", content="x", name="n", tool_call_id="c"))
    assert data == codec.canonical(json.loads(data))


def test_content_that_differs_has_other_bytes():
    values = [1, 1.0, "1", True, None, [], {}, [None], {"a": None}, -0.0, 0.0, "é", "e\u0301"]
    assert len({codec.canonical(value) for value in values}) == len(values)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [1, float("nan")]}, r"v\.a\[1\]: nan is not JSON"),
        ({"a": float("inf")}, r"v\.a: inf is not JSON"),
        ([2**53], r"v\[0\]: a whole number beyond"),
        ([-(10**5000)], r"v\[0\]: a whole number beyond"),
        ({"a": {1: 2}}, r"v\.a\.1: this key is not text"),
        ({"a": {None: 2}}, r"v\.a\.None: this key is not text"),
        ({"a": "\ud800"}, r"v\.a: half a character"),
        ({"\udfff": 1}, r"v\.'\\udfff': half a character"),
        ({"a": {1, 2}}, r"v\.a: set is not JSON"),
        ({"a": b"x"}, r"v\.a: bytes is not JSON"),
        ({"a": object()}, r"v\.a: object is not JSON"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_path(value, says):
    with pytest.raises(Malformed, match="^" + says):
        codec.canonical(value, "v")


def nested(levels, value=1):
    for _ in range(levels):
        value = [value]
    return value


def test_depth_is_bounded():
    assert codec.read_json(codec.canonical(nested(64))) == nested(64)
    for levels in (65, 1000, 100_000):
        with pytest.raises(Malformed, match="nested deeper than 64"):
            codec.canonical(nested(levels))


def test_a_value_that_contains_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(Malformed, match="nested deeper"):
        codec.canonical(loop)


def test_size_is_bounded():
    with pytest.raises(TooLarge, match="artifact"):
        codec.canonical("x" * 9_000_000)
    with pytest.raises(TooLarge, match="artifact"):
        freeze(begin({"key": "x" * 9_000_000}))
