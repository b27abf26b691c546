"""OpenAI chat completions, and the many servers that speak the same format: `{"messages": […]}`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from baton.protocol.context import Message, Role, ToolCall
from baton.protocol.conversation.normaliser import OPENING, normal, opened
from baton.protocol.conversation.parts import Content, taken, text

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
ID = re.compile(r"[A-Za-z0-9_-]{1,40}").fullmatch
TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
PERSON = re.compile(r"[^\s<|\\/>]{1,64}").fullmatch
FIELDS = {"role", "content", "name", "tool_calls", "tool_call_id", "refusal"}


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct):
    id: str = ""
    function: _Function | None = None


class _Said(msgspec.Struct):
    role: str
    content: Content = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None


class _Request(msgspec.Struct):
    messages: list[_Said]


def read(request: dict[str, Any]) -> list[Message]:
    """The messages of a request. Roles that no longer exist are left out; a refusal is text."""
    said = taken(request, _Request, "chat").messages
    return opened([_message(one) for one in said if one.role in ROLES])


def _message(said: _Said) -> Message:
    calls = (
        ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
        for call in said.tool_calls or ()
        if call.function is not None
    )
    return Message(
        ROLES[said.role],
        text(said.content) or said.refusal or "",
        said.name or "",
        tuple(calls),
        said.tool_call_id or "",
        said.reasoning_content or "",
    )


def write(messages: Iterable[Message], *, system: bool = False) -> dict[str, Any]:
    """The part of a request that holds the conversation: `create(model=…, **chat.write(messages))`."""
    said = [_written(message) for message in normal(messages, system=system)]
    if not said or said[-1]["role"] == "system":
        said.append({"role": "user", "content": OPENING})
    return {"messages": said}


def _written(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    said: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name:
        said["name"] = message.name
    if message.tool_calls:
        said["content"] = message.content or None
        said["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return said


def problems(request: dict[str, Any]) -> list[str]:
    """What the provider would refuse in it, by its own rules; they share nothing with `write`."""
    messages = request.get("messages") or []
    return list(_refused(messages)) if messages else ["messages: none"]


def _refused(messages: list[dict[str, Any]]) -> Iterator[str]:
    waiting: set[str] = set()
    seen: set[str] = set()
    for at, said in enumerate(messages):
        yield from (f"messages[{at}]: {what}" for what in _misshapen(said))
        if said.get("role") == "tool":
            if said.get("tool_call_id") not in waiting:
                yield f"messages[{at}]: a tool result without its call right before it"
            waiting.discard(str(said.get("tool_call_id")))
            continue
        if waiting:
            yield f"messages[{at}]: comes before the results of {', '.join(sorted(waiting))}"
        ids = [str(call.get("id")) for call in said.get("tool_calls") or ()]
        if len({*ids}) < len(ids) or not seen.isdisjoint(ids):
            yield f"messages[{at}]: an id of a call stands twice"
        waiting = set(ids)
        seen |= waiting
    if waiting:
        yield f"the end: {', '.join(sorted(waiting))} without a result"


def _misshapen(said: dict[str, Any]) -> Iterator[str]:
    role, calls, content = said.get("role"), said.get("tool_calls"), said.get("content")
    if role not in ROLES:
        yield f"role {role!r:.40} is not known"
    if foreign := said.keys() - FIELDS:
        yield f"{', '.join(sorted(foreign))} is no field here"
    if "name" in said and not PERSON(said["name"]):
        yield "name: a space or one of < | \\ / > in it, or too long"
    if calls is not None and (not calls or role != "assistant"):
        yield "tool_calls: empty, or not the assistant's"
    if not (content or calls or role == "tool") or not isinstance(content, str | list | None):
        yield "content: nothing in it"
    for call in calls or ():
        function = call.get("function", {})
        if call.get("type") != "function" or not isinstance(function.get("arguments"), str):
            yield "tool_calls: no function with its arguments as text"
        if not ID(str(call.get("id"))) or not TOOL(str(function.get("name"))):
            yield "tool_calls: id or name is no word of letters, digits, _ and -, or too long"
