"""Anthropic messages: `{"system": …, "messages": […]}`, user and assistant in turn, made of blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from baton.protocol.codec import convert
from baton.protocol.context import Message, ToolCall
from baton.protocol.conversation.normaliser import OPENING, normal, opened
from baton.protocol.conversation.parts import Content, described, taken, text

GO_ON = "(Go on from here.)"  # newer models refuse a conversation that the assistant ended
ID = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
TOOL = re.compile(r"[A-Za-z0-9_-]{1,128}").fullmatch
_decode = msgspec.json.decode
_encode = msgspec.json.encode


class _Said(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]]


class _Request(msgspec.Struct):
    messages: list[_Said]
    system: Content = None


class _Call(msgspec.Struct):
    id: str
    name: str
    input: dict[str, Any]


class _Result(msgspec.Struct):
    tool_use_id: str
    content: Content = None


def read(request: dict[str, Any]) -> list[Message]:
    """The messages of a request, one for each text block, so that blocks which were messages are messages again."""
    asked = taken(request, _Request, "anthropic")
    before = text(asked.system)
    said = [Message("system", before)] if before else []
    for one in asked.messages:
        blocks = [{"type": "text", "text": one.content}] if isinstance(one.content, str) else one.content
        said += _turn(blocks) if one.role == "assistant" else _heard(blocks)
    if said and said[-1] == Message("user", GO_ON):
        del said[-1]
    return opened(said)


def _turn(blocks: list[dict[str, Any]]) -> Iterator[Message]:
    """What the assistant said; its calls belong to the last text."""
    words = [""]
    calls: list[ToolCall] = []
    thoughts: list[str] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_use":
            call = convert(block, _Call, "anthropic.tool_use")
            calls.append(ToolCall(id=call.id, name=call.name, arguments=_encode(call.input).decode()))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking", "")))
        elif kind != "redacted_thinking":
            words.append(described(block))
    *earlier, last = [one for one in words if one] or [""]
    yield from (Message("assistant", one) for one in earlier)
    yield Message("assistant", last, tool_calls=tuple(calls), reasoning="\n".join(thoughts))


def _heard(blocks: list[dict[str, Any]]) -> Iterator[Message]:
    for block in blocks:
        if block.get("type") == "tool_result":
            result = convert(block, _Result, "anthropic.tool_result")
            yield Message("tool", text(result.content), tool_call_id=result.tool_use_id)
        else:
            yield Message("user", described(block))


def write(messages: Iterable[Message], *, system: bool = False) -> dict[str, Any]:
    """The part of a request that holds the conversation: `create(model=…, **anthropic.write(messages))`.

    A conversation that does not begin with the user gets an opening, one that does not end with the user a "go on".
    """
    told: dict[str, Any] = {}
    turns: list[dict[str, Any]] = []
    for message in normal(messages, system=system):
        if message.role == "system":
            told["system"] = message.content
        elif message.role == "assistant":
            _add(turns, "assistant", _blocks(message))
        elif message.role == "tool":
            _add(turns, "user", [_result(message)])
        else:
            _add(turns, "user", [{"type": "text", "text": message.content}])
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    if turns[-1]["role"] != "user":
        _add(turns, "user", [{"type": "text", "text": GO_ON}])
    return {**told, "messages": turns}


def _add(turns: list[dict[str, Any]], role: str, blocks: list[dict[str, Any]]) -> None:
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": blocks})


def _blocks(message: Message) -> list[dict[str, Any]]:
    said = [{"type": "text", "text": message.content}] if message.content else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _decode(call.arguments)}
        for call in message.tool_calls
    ]
    return [*said, *calls]


def _result(message: Message) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    return {**result, "content": message.content} if message.content else result


def problems(request: dict[str, Any]) -> list[str]:
    """What the provider would refuse in it, by its own rules; they share nothing with `write`."""
    messages = request.get("messages") or []
    if not messages:
        return ["messages: at least one is required"]
    if "system" in request and not request["system"]:
        return ["system: empty"]
    return list(_refused(messages))


def _refused(messages: list[dict[str, Any]]) -> Iterator[str]:
    roles = [said.get("role") for said in messages]
    if roles[0] != "user" or roles[-1] != "user":
        yield "the first and the last message must be the user's"
    waiting: set[str] = set()
    seen: set[str] = set()
    for at, said in enumerate(messages):
        if roles[at] not in {"user", "assistant"} or (at and roles[at] == roles[at - 1]):
            yield f"messages[{at}]: roles must be user and assistant in turn"
        blocks = said.get("content")
        if not isinstance(blocks, list):
            blocks = [{"type": "text", "text": blocks}]
        if not blocks:
            yield f"messages[{at}]: nothing in it"
        yield from (f"messages[{at}]: {what}" for block in blocks for what in _misshapen(block, roles[at]))
        yield from (f"messages[{at}]: {what}" for what in _unpaired(blocks, waiting))
        ids = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        if len({*ids}) < len(ids) or not seen.isdisjoint(ids):
            yield f"messages[{at}]: tool_use ids must be unique"
        waiting = set(ids)
        seen |= waiting
    if waiting:
        yield "the end: tool_use without tool_result"


def _unpaired(blocks: list[dict[str, Any]], waiting: set[str]) -> Iterator[str]:
    """A message answers all calls of the one before, each once, and before it says anything else."""
    kinds = [block.get("type") for block in blocks]
    answers = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
    if set(answers) != waiting or len({*answers}) < len(answers):
        yield "its tool_results are not those of the tool_uses right before"
    if any(kind != "tool_result" for kind in kinds[: len(answers)]):
        yield "tool_results must come first"


def _misshapen(block: dict[str, Any], role: Any) -> Iterator[str]:
    kind = block.get("type")
    owner = {"tool_use": "assistant", "tool_result": "user", "image": "user", "document": "user", "text": role}
    if owner.get(str(kind)) != role:
        yield f"a {kind} block is not the {role}'s, or belongs to the model that made it"
    if kind == "text" and not str(block.get("text") or "").strip():
        yield "text blocks must contain non-whitespace text"
    if kind == "tool_use":
        if not ID(str(block.get("id"))) or not TOOL(str(block.get("name"))):
            yield "id or name is no word of letters, digits, _ and -, or too long"
        if not isinstance(block.get("input"), dict):
            yield "input: not an object"
