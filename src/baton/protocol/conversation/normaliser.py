"""The one form that every provider accepts: each call with its result, nothing of the sender's own, nothing empty."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from baton.protocol.context import Message, ToolCall

TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
PERSON = re.compile(r"[^\s<|\\/>]{1,64}").fullmatch
OPENING = "(What was said before is not shown.)"  # where a provider demands a user's message and there is none
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_write = msgspec.json.encode
_read_object = msgspec.json.Decoder(dict[str, Any]).decode

# A call on its way to its result: the call, and the result when it is there.
_Slots = list[tuple[ToolCall, list[str]]]


def normal(messages: Iterable[Message], *, system: bool = False) -> list[Message]:
    """The same conversation as any provider takes it.

    Results follow their calls, in the order of the calls. A call without a result, a result without a call, what is
    empty, and all reasoning are left out; so are system messages, which `system=True` joins into one at the front.
    Calls get new ids, names of tools and people the form that all accept, arguments that of a JSON object.
    """
    told: list[str] = []
    turns: list[tuple[Message, _Slots]] = []
    open_calls: dict[str, list[str]] = {}
    for message in messages:
        if message.role == "tool":
            slot = open_calls.pop(message.tool_call_id, None)
            if slot is not None:
                slot.append(message.content)
        elif message.role == "system":
            told.append(message.content)
        else:
            turns.append((message, _slots(message, open_calls)))
    said = _settled(turns)
    before = "\n\n".join(text for text in told if text.strip()) if system else ""
    return [Message("system", before), *said] if before else said


def _slots(message: Message, open_calls: dict[str, list[str]]) -> _Slots:
    """Open the calls of a message; an id that comes again stands for the newer call."""
    if not message.tool_calls or message.role != "assistant":
        return []
    mine: dict[str, tuple[ToolCall, list[str]]] = {}
    for call in message.tool_calls:
        if call.id and call.id not in mine:
            mine[call.id] = call, []
            open_calls[call.id] = mine[call.id][1]
    return list(mine.values())


def _settled(turns: list[tuple[Message, _Slots]]) -> list[Message]:
    """Write the turns out: text, calls that were answered, and their results."""
    said: list[Message] = []
    number = 0
    for message, slots in turns:
        text = message.content if message.content.strip() else ""
        calls: list[ToolCall] = []
        results: list[Message] = []
        for call, answer in slots:
            if answer:
                number += 1
                # Nine letters and digits: the strictest server that speaks OpenAI's format takes no other id.
                key = f"call{number:05}"
                calls.append(ToolCall(id=key, name=_tool(call.name), arguments=_object(call.arguments)))
                results.append(Message("tool", answer[0] if answer[0].strip() else "", tool_call_id=key))
        if not (text or calls):
            continue
        name = message.name if PERSON(message.name) else ""
        if calls and not text and said and said[-1].role == "assistant" and said[-1].name == name:
            text = said.pop().content  # a text and the calls after it are one turn: two formats cannot tell them apart
        said.append(Message(message.role, text, name, tuple(calls)))
        said += results
    return said


def _tool(name: str) -> str:
    return name if TOOL(name) else _FOREIGN.sub("_", name)[:64] or "tool"


def _object(arguments: str) -> str:
    """Arguments as the JSON object that they are, else as the only field of one."""
    if arguments == "{}":
        return arguments
    try:
        return _write(_read_object(arguments)).decode()
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        whole = arguments.encode(errors="replace").decode()  # half a character has no place in JSON
        return _write({"arguments": whole}).decode() if whole.strip() else "{}"


def opened(messages: list[Message]) -> list[Message]:
    """The messages without the opening that a writer put before them."""
    at = 1 if messages and messages[0].role == "system" else 0
    if messages[at : at + 1] == [Message("user", OPENING)]:
        del messages[at]
    return messages
