"""What travels with a handoff: messages, variables, and how much of them crosses.

A history is a chain of nodes, each one message and the digest of the node before it, so that a hop stores only
what is new. Variables are stored as one canonical object in which large values stand by digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from baton.errors import Malformed, TooLarge
from baton.protocol.artifacts import Artifact
from baton.protocol.codec import canonical, canonical_record, digest

Role = Literal["system", "user", "assistant", "tool"]
Mode = Literal["full", "summary", "relevant_only"]
Fetch = Callable[[str], bytes]

LARGE = 512
RECENT = 5
MAX_STATE_KEYS = 1000
RESERVED = ("context", "artifacts", "workflow_state", "metrics")


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A model's request to run a tool."""

    id: str
    name: str
    arguments: str = "{}"


class Message(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One message, free of any provider's own ids."""

    role: Role
    content: str = ""
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    reasoning: str = ""


class Include(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which kinds of messages cross."""

    system_messages: bool = False
    tool_calls: bool = True
    tool_results: bool = True
    agent_reasoning: bool = False


class Transfer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much of the conversation the receiver sees."""

    transfer_mode: Mode = "relevant_only"
    max_messages: int | None = None
    include: Include = Include()


DEFAULT_TRANSFER: dict[str, Transfer] = {
    "sequential": Transfer(transfer_mode="relevant_only"),
    "delegation": Transfer(transfer_mode="summary"),
    "broadcast": Transfer(transfer_mode="summary"),
    "escalation": Transfer(transfer_mode="full", include=Include(agent_reasoning=True)),
}


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The payload of a handoff. `*_ref` point to stored content; the plain fields carry it on the wire."""

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


class Blob(msgspec.Struct, frozen=True):
    """Content and its digest."""

    digest: str
    data: bytes


class _Node(msgspec.Struct, frozen=True, array_like=True):
    previous: str
    message: Message


_read_node = msgspec.json.Decoder(_Node).decode


class _State(msgspec.Struct, frozen=True, omit_defaults=True):
    values: dict[str, Any] = {}
    refs: dict[str, str] = {}


_read_state = msgspec.json.Decoder(_State).decode


def append(history: str, messages: Iterable[Message]) -> tuple[str, list[Blob]]:
    """Chain messages onto a history; the new head and what has to be stored."""
    blobs = []
    for message in messages:
        data = canonical_record(_Node(history, message))
        history = digest(data)
        blobs.append(Blob(history, data))
    return history, blobs


def newest_first(history: str, fetch: Fetch) -> Iterator[Message]:
    """Walk a history back from its head."""
    while history:
        node = _read_node(fetch(history))
        yield node.message
        history = node.previous


def freeze_state(values: Mapping[str, Any]) -> tuple[str, list[Blob]]:
    """Store variables: the digest of the whole, and the content to keep."""
    if len(values) > MAX_STATE_KEYS:
        raise TooLarge(f"state: {len(values)} keys, at most {MAX_STATE_KEYS}; group them under fewer keys")
    if not values:
        return "", []
    small: dict[str, Any] = {}
    refs: dict[str, str] = {}
    blobs = []
    for key, value in values.items():
        data = canonical(value, key)
        if len(data) <= LARGE:
            small[key] = value
        else:
            refs[key] = digest(data)
            blobs.append(Blob(refs[key], data))
    data = canonical_record(_State(small, refs))
    head = Blob(digest(data), data)
    return head.digest, [*blobs, head]


def thaw_state(head: str, fetch: Fetch) -> dict[str, Any]:
    """Read variables back."""
    if not head:
        return {}
    state = _read_state(fetch(head))
    return state.values | {key: msgspec.json.decode(fetch(ref)) for key, ref in state.refs.items()}


def merge(state: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Apply an update: reserved keys are merged by kind, every other key is replaced."""
    merged = dict(state)
    for key, value in update.items():
        before = merged.get(key)
        if key in RESERVED:
            if not isinstance(value, Mapping):
                raise Malformed(f"update.{key}: a reserved key takes an object; use another key for your own value")
            merged[key] = {**(before or {}), **value}
        else:
            merged[key] = value
    return merged


def select(messages: Iterable[Message], transfer: Transfer) -> list[Message]:
    """The messages that cross, oldest first, from a walk newest first. Always a valid conversation."""
    wanted = transfer.max_messages
    if transfer.transfer_mode == "relevant_only":
        wanted = RECENT if wanted is None else wanted
    elif transfer.transfer_mode == "summary":
        wanted = 1 if wanted is None else wanted
    taken: list[Message] = []
    for message in messages:
        if wanted is not None and len(taken) >= wanted:
            break
        kept = _allowed(message, transfer.include)
        if kept is not None:
            taken.append(kept)
    return paired(reversed(taken))


def _allowed(message: Message, include: Include) -> Message | None:
    if message.role == "system" and not include.system_messages:
        return None
    if message.role == "tool" and not include.tool_results:
        return None
    if message.reasoning and not include.agent_reasoning:
        message = msgspec.structs.replace(message, reasoning="")
    if message.tool_calls and not (include.tool_calls and include.tool_results):
        message = msgspec.structs.replace(message, tool_calls=())
    return message if message.content or message.tool_calls or message.reasoning or message.role == "tool" else None


def paired(messages: Iterable[Message]) -> list[Message]:
    """Drop tool results without their call and calls without their result."""
    listed = list(messages)
    answered = {message.tool_call_id for message in listed if message.role == "tool"}
    called: set[str] = set()
    valid: list[Message] = []
    for message in listed:
        kept = message
        if message.tool_calls:
            calls = tuple(call for call in message.tool_calls if call.id in answered)
            called.update(call.id for call in calls)
            if len(calls) != len(message.tool_calls):
                kept = msgspec.structs.replace(message, tool_calls=calls)
        if message.role == "tool":
            if message.tool_call_id not in called:
                continue
            called.discard(message.tool_call_id)
        elif not (kept.content or kept.tool_calls or kept.reasoning):
            continue
        valid.append(kept)
    return valid
