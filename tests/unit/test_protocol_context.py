"""History: stored once, read back, and always a valid conversation."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import Malformed
from baton.protocol import codec
from baton.protocol.context import (
    DEFAULT_TRANSFER,
    Include,
    Message,
    ToolCall,
    Transfer,
    append,
    newest_first,
    paired,
    select,
)


def flat(parts):
    return [item for part in parts for item in part]


class Blobs(dict):
    def keep(self, frozen):
        head, blobs = frozen
        new = {blob.digest for blob in blobs} - set(self)
        for blob in blobs:
            assert codec.digest(blob.data) == blob.digest
            self[blob.digest] = blob.data
        self.new = len(new)
        return head

    fetch = dict.__getitem__


# --- history -----------------------------------------------------------------------------------


def test_a_history_is_read_back_newest_first_and_shares_its_beginning():
    blobs = Blobs()
    messages = [Message("user", f"m{n}") for n in range(5)]
    head = blobs.keep(append("", messages))
    left, right = blobs.keep(append(head, messages[:1])), blobs.keep(append(head, messages[1:2]))
    assert blobs.new == 1
    assert list(newest_first(head, blobs.fetch)) == messages[::-1]
    assert list(newest_first(left, blobs.fetch)) == [messages[0], *messages[::-1]]
    assert list(newest_first(right, blobs.fetch)) == [messages[1], *messages[::-1]]
    assert append(append("", messages[:2])[0], messages[2:])[0] == head


@pytest.mark.parametrize(
    "message",
    [
        Message("user", 5),
        Message("robot", "x"),
        Message("user", "\ud800"),
        Message("user", None),
        Message("assistant", tool_calls=(5,)),
        Message("assistant", tool_calls=(ToolCall(id="a", name=None),)),
        Message("user", {"x": object()}),
    ],
)
def test_a_message_that_could_not_be_read_back_is_refused(message):
    with pytest.raises(Malformed, match="message"):
        append("", [message])


# --- what crosses ------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c", ""])
CALLS = st.lists(st.builds(ToolCall, id=IDS, name=st.just("f")), max_size=3).map(tuple)
WORDS = st.sampled_from(["", "x", "y"])
LOOSE = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    WORDS,
    tool_calls=CALLS,
    tool_call_id=IDS,
    reasoning=WORDS,
)
TURN = st.lists(st.sampled_from("abcd"), max_size=4, unique=True).map(
    lambda ids: [
        Message("assistant", "calling", tool_calls=tuple(ToolCall(id=i, name="f") for i in ids)),
        *(Message("tool", f"result {i}", tool_call_id=i) for i in ids),
    ]
)
TALK = st.lists(LOOSE.map(lambda message: [message]) | TURN, max_size=8).map(flat)
TRANSFERS = st.builds(
    Transfer,
    transfer_mode=st.sampled_from(["full", "summary", "relevant_only"]),
    max_messages=st.none() | st.integers(0, 8),
    include=st.builds(Include, **dict.fromkeys(Include.__struct_fields__, st.booleans())),
)


def assert_valid(messages):
    """As a provider judges it: the results of all calls of a message follow it at once, and nothing else."""
    waiting = set()
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in waiting
            waiting.remove(message.tool_call_id)
            continue
        assert not waiting
        ids = [call.id for call in message.tool_calls]
        assert len(set(ids)) == len(ids)
        assert not ids or message.role == "assistant"
        assert message.content or ids or message.reasoning
        waiting = set(ids)
    assert not waiting


def skeleton(message):
    return msgspec.structs.replace(message, tool_calls=(), reasoning="")


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(any(item == other for other in rest) for item in part)


@given(TALK, TRANSFERS)
def test_what_crosses_is_a_valid_conversation_in_its_order(talk, transfer):
    crossed = select(reversed(talk), transfer)
    assert_valid(crossed)
    assert is_subsequence(map(skeleton, crossed), list(map(skeleton, talk)))
    include = transfer.include
    assert include.system_messages or not any(m.role == "system" for m in crossed)
    assert include.agent_reasoning or not any(m.reasoning for m in crossed)
    if not (include.tool_calls and include.tool_results):
        assert not any(m.role == "tool" or m.tool_calls for m in crossed)
    room = transfer.max_messages
    if room is None:
        room = {"full": len(talk), "summary": 1, "relevant_only": 5}[transfer.transfer_mode]
    assert len(crossed) <= room


@given(TALK)
def test_pairing_gives_a_valid_conversation_and_is_stable(talk):
    once = paired(talk)
    assert_valid(once)
    assert paired(once) == once


@given(st.lists(TURN, max_size=5).map(flat))
def test_a_conversation_that_is_valid_crosses_whole(talk):
    assert paired(talk) == talk


def calls(*ids):
    return Message("assistant", "", tool_calls=tuple(ToolCall(id=i, name="f") for i in ids))


def result(name):
    return Message("tool", name, tool_call_id=name)


def test_where_the_room_ends_inside_a_turn_its_newest_results_stay_with_their_calls():
    talk = [Message("user", "do"), calls(*"abcdef"), *map(result, "abcdef")]
    assert select(reversed(talk), Transfer()) == [calls(*"cdef"), *map(result, "cdef")]
    assert select(reversed(talk), Transfer(max_messages=1)) == [Message("user", "do")]
    assert select(reversed(talk), Transfer(max_messages=0)) == []


def test_ids_that_come_again_are_matched_by_place():
    talk = [calls("a"), result("a"), calls("a"), Message("user", "stop")]
    assert paired(talk) == [calls("a"), result("a"), Message("user", "stop")]


def test_a_result_that_comes_after_another_message_is_no_answer():
    talk = [calls("a"), Message("user", "wait"), result("a")]
    assert paired(talk) == [Message("user", "wait")]


def test_messages_that_do_not_cross_take_no_room():
    talk = [Message("user", "1"), Message("user", "2"), calls("a"), result("a")]
    transfer = Transfer(max_messages=2, include=Include(tool_calls=False))
    assert [m.content for m in select(reversed(talk), transfer)] == ["1", "2"]


def test_defaults_by_type():
    assert {kind: transfer.transfer_mode for kind, transfer in DEFAULT_TRANSFER.items()} == {
        "sequential": "relevant_only",
        "delegation": "summary",
        "broadcast": "summary",
        "escalation": "full",
    }


@pytest.mark.parametrize(
    "turn", [[calls("a"), result("a")], [result("a")], [calls(*map(str, range(50)))], [Message("user", "x")]]
)
def test_time_is_linear(turn):
    def took(times):
        talk = turn * times
        best = 9.0
        for _ in range(5):
            start = time.process_time()
            paired(talk)
            best = min(best, time.process_time() - start)
        return best

    assert took(8000) < 24 * took(1000)


def test_a_short_transfer_reads_only_what_it_takes():
    read = []
    source = (read.append(n) or Message("user", str(n)) for n in range(10_000))
    assert len(select(source, Transfer())) == 5
    assert len(read) <= 6


@pytest.mark.parametrize("value", [-1, float("nan"), "5", True])
def test_max_messages_is_a_count(value):
    with pytest.raises(Malformed, match="max_messages"):
        Transfer(max_messages=value)


def test_damaged_content_is_named():
    head, _ = append("", [Message("user", "x")])
    with pytest.raises(Malformed, match=r"stored content .* backup"):
        list(newest_first(head, lambda ref: b"[1]"))
