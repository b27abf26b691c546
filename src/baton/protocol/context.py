"""What travels with a handoff: messages, references to the shared variables, and how much of it crosses.

A history is a chain of nodes, each one message and the digest of the node before it, so that a hop stores
only what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Literal, TypeVar

import msgspec

from baton.errors import Malformed
from baton.protocol.artifacts import Artifact
from baton.protocol.codec import Record, bounded, digest, faithful
from baton.protocol.fields import several

Role = Literal["system", "user", "assistant", "tool"]
Mode = Literal["full", "summary", "relevant_only"]
MODES: tuple[Mode, ...] = ("full", "summary", "relevant_only")
Fetch = Callable[[str], bytes]
T = TypeVar("T")

RECENT = 5
SUMMARY = 10
SUMMARY_LINE = 200


class ToolCall(Record, frozen=True, kw_only=True):
    """A model's request to run a tool."""

    id: str
    name: str
    arguments: str = "{}"


class Message(Record, frozen=True):
    """One message, free of any provider's own ids."""

    role: Role
    content: str = ""
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    reasoning: str = ""


class Include(Record, frozen=True, kw_only=True):
    """Which kinds of messages cross."""

    system_messages: bool = False
    tool_calls: bool = True
    tool_results: bool = True
    agent_reasoning: bool = False


class Transfer(Record, frozen=True, kw_only=True):
    """How much of the conversation the receiver sees."""

    transfer_mode: Mode = "relevant_only"
    max_messages: int | None = None
    include: Include = Include()

    def __post_init__(self) -> None:
        bounded(self.max_messages, "transfer.max_messages")


DEFAULT_TRANSFER: dict[str, Transfer] = {
    "sequential": Transfer(transfer_mode="relevant_only"),
    "delegation": Transfer(transfer_mode="summary"),
    "broadcast": Transfer(transfer_mode="summary"),
    "escalation": Transfer(transfer_mode="full", include=Include(agent_reasoning=True)),
}


class Context(Record, frozen=True, kw_only=True):
    """The payload of a handoff. `*_ref` point to stored content; the plain fields carry it on the wire."""

    # The record is frozen, its dicts are not: the stored bytes count, and a later change does not reach them.

    task_id: str = ""
    original_request: str = ""
    conversation_history: tuple[Message, ...] = ()
    context_variables: dict[str, Any] = {}
    artifacts: tuple[Artifact, ...] = ()
    completed_work: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    user_id: str = ""
    correlation_id: str = ""
    transfer: Transfer | None = None
    history_ref: str = ""
    state_ref: str = ""


class Blob(msgspec.Struct, frozen=True, gc=False):
    """Content and its digest."""

    digest: str
    data: bytes


class _Node(msgspec.Struct, frozen=True, array_like=True):
    previous: str
    message: Message


_read_message = msgspec.json.Decoder(Message).decode
_read_node = msgspec.json.Decoder(_Node).decode


def append(history: str, messages: Iterable[Message]) -> tuple[str, list[Blob]]:
    """Chain messages onto a history; the new head and what has to be stored."""
    blobs = []
    for message in messages:
        data, _ = faithful(_Node(history, message), _read_node, "message")
        history = digest(data)
        blobs.append(Blob(history, data))
    return history, blobs


def readable(messages: Iterable[Message], field: str) -> tuple[Message, ...]:
    """Messages as they are read back from a store."""
    said = several(messages, Message, field)
    return tuple(faithful(one, _read_message, f"{field}[{number}]")[1] for number, one in enumerate(said))


def newest_first(history: str, fetch: Fetch) -> Iterator[Message]:
    """Walk a history back from its head."""
    while history:
        node = stored(_read_node, fetch, history)
        yield node.message
        history = node.previous


def reach(history: str, fetch: Fetch, seen: set[str]) -> None:
    """Add to `seen` all content that a history stands on, as far as it is there (else empty)."""
    while history and history not in seen:
        seen.add(history)
        history = stored(_read_node, fetch, history).previous if fetch(history) else ""


def stored(decode: Callable[[bytes], T], fetch: Fetch, ref: str) -> T:
    """Read content by digest."""
    try:
        return decode(fetch(ref))
    except msgspec.MsgspecError as error:
        raise Malformed(f"stored content {ref:.12}: {error}; restore the store from a backup") from None


def room(transfer: Transfer) -> int | None:
    """How many messages may cross; None is all."""
    if transfer.max_messages is not None:
        return transfer.max_messages
    return {"full": None, "relevant_only": RECENT, "summary": 1}[transfer.transfer_mode]


def select(messages: Iterable[Message], transfer: Transfer) -> list[Message]:
    """The messages that cross, oldest first, from a walk newest first. Always a valid conversation.

    A call and its results cross together; where the room ends inside them, the newest results stay.
    """
    wanted = room(transfer)
    taken: list[Message] = []
    results: list[Message] = []
    for message in messages:
        if wanted is not None and len(taken) >= wanted:
            break
        kept = allowed(message, transfer.include)
        if kept is None:
            continue
        if kept.role == "tool":
            results.append(kept)
        else:
            taken += _turn(kept, results, None if wanted is None else wanted - len(taken))
            results = []
    taken.reverse()
    return taken


def summary(messages: Iterable[Message], request: str = "") -> Message | None:
    """What went before, in a few lines taken from it: the request, and the newest messages, oldest first."""
    lines = [f"- {message.name or message.role}: {_line(message)}" for message in islice(messages, SUMMARY)]
    if not lines and not request:
        return None
    asked = [f"The request was: {' '.join(request.split())[:SUMMARY_LINE]}"] if request else []
    return Message("user", "\n".join(["What went before, in short.", *asked, *reversed(lines)]), name="summary")


def _line(message: Message) -> str:
    said = message.content or ", ".join(f"called {call.name}" for call in message.tool_calls)
    return " ".join(said.split())[:SUMMARY_LINE]


def allowed(message: Message, include: Include) -> Message | None:
    """What of a message is of a kind that crosses; None where nothing is."""
    if message.role == "system" and not include.system_messages:
        return None
    tools = include.tool_calls and include.tool_results
    if message.role == "tool" and not tools:
        return None
    if message.reasoning and not include.agent_reasoning:
        message = msgspec.structs.replace(message, reasoning="")
    if message.tool_calls and (message.role != "assistant" or not tools):
        message = msgspec.structs.replace(message, tool_calls=())
    return message if message.content or message.tool_calls or message.reasoning or message.role == "tool" else None


def _turn(message: Message, results: list[Message], room: int | None) -> list[Message]:
    """A message with the results that answer its calls, newest first; calls without result are left out."""
    open_calls = {call.id: call for call in reversed(message.tool_calls) if call.id}
    answers: dict[str, Message] = {}
    for result in reversed(results):
        if result.tool_call_id in open_calls:
            answers.setdefault(result.tool_call_id, result)
    kept = list(answers.values())
    if room is not None and len(kept) >= room:
        kept = kept[len(kept) - room + 1 :]
    answered = {result.tool_call_id for result in kept}
    calls = tuple(call for key, call in reversed(open_calls.items()) if key in answered)
    if calls != message.tool_calls:
        message = msgspec.structs.replace(message, tool_calls=calls)
    if not (message.content or calls or message.reasoning):
        return []
    return [*reversed(kept), message]


EVERYTHING = Transfer(
    transfer_mode="full",
    include=Include(system_messages=True, tool_calls=True, tool_results=True, agent_reasoning=True),
)


def paired(messages: Iterable[Message]) -> list[Message]:
    """Drop tool results without their call and calls without their result."""
    return select(reversed(list(messages)), EVERYTHING)
