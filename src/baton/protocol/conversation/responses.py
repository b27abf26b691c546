"""OpenAI responses: `{"instructions": …, "input": […]}`, items where calls and results stand by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from baton.protocol.codec import convert
from baton.protocol.context import Message, Role, ToolCall
from baton.protocol.conversation.normaliser import OPENING, normal, opened
from baton.protocol.conversation.parts import Content, taken, text

ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
CALLS = {"function_call", "custom_tool_call"}
RESULTS = {"function_call_output", "custom_tool_call_output"}
KINDS = {"message", "reasoning", *CALLS, *RESULTS}
ID = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
SAID = {"user": {"input_text", "input_image", "input_file"}, "assistant": {"output_text", "refusal"}}


class _Item(msgspec.Struct):
    type: str = "message"
    role: str = ""
    content: Content = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    input: str = ""
    output: Content = None
    summary: Content = None


class _Request(msgspec.Struct):
    input: str | list[dict[str, Any]]
    instructions: str | None = None


def read(request: dict[str, Any]) -> list[Message]:
    """The messages of a request. What only the provider's servers can read is left out."""
    asked = taken(request, _Request, "responses")
    said = [Message("system", asked.instructions)] if asked.instructions else []
    if isinstance(asked.input, str):
        return [*said, Message("user", asked.input)]
    thought = ""
    for given in asked.input:
        kind = given.get("type", "message")
        if not (isinstance(kind, str) and kind in KINDS):
            continue
        item = convert(given, _Item, "responses.input")
        if item.type == "reasoning":
            thought = text(item.summary) or text(item.content)
        elif item.type in CALLS:
            _called(said, item, thought)
            thought = ""
        elif item.type in RESULTS:
            said.append(Message("tool", text(item.output), tool_call_id=item.call_id))
        elif item.type == "message" and item.role in ROLES:
            said.append(Message(ROLES[item.role], text(item.content), reasoning=thought))
            thought = ""
    return opened(said)


def _called(said: list[Message], item: _Item, thought: str) -> None:
    """Calls belong to the assistant's message right before them."""
    arguments = item.arguments
    if item.type == "custom_tool_call":
        arguments = msgspec.json.encode({"input": item.input}).decode()
    call = ToolCall(id=item.call_id, name=item.name, arguments=arguments)
    if said and said[-1].role == "assistant":
        last = said.pop()
        calls = (*last.tool_calls, call)
        said.append(Message("assistant", last.content, tool_calls=calls, reasoning=last.reasoning or thought))
    else:
        said.append(Message("assistant", tool_calls=(call,), reasoning=thought))


def write(messages: Iterable[Message], *, system: bool = False) -> dict[str, Any]:
    """The part of a request that holds the conversation: `create(model=…, **responses.write(messages))`."""
    told: dict[str, Any] = {}
    items: list[dict[str, Any]] = []
    for message in normal(messages, system=system):
        if message.role == "system":
            told["instructions"] = message.content
        elif message.role == "tool":
            items.append({"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content})
        else:
            if message.content:
                items.append({"type": "message", "role": message.role, "content": message.content})
            items += [
                {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
                for call in message.tool_calls
            ]
    return {**told, "input": items or [{"type": "message", "role": "user", "content": OPENING}]}


def problems(request: dict[str, Any]) -> list[str]:
    """What the provider would refuse in it, by its own rules; they share nothing with `write`."""
    items = request.get("input") or []
    if "instructions" in request and not request["instructions"]:
        return ["instructions: empty"]
    return list(_refused(items)) if items else ["input: none"]


def _refused(items: list[dict[str, Any]]) -> Iterator[str]:
    waiting: set[str] = set()
    seen: set[str] = set()
    for at, item in enumerate(items):
        kind, key = item.get("type", "message"), str(item.get("call_id"))
        if "id" in item:
            yield f"input[{at}]: an id of another provider's or account's server"
        if kind == "message":
            if waiting:  # OpenAI pairs by id wherever they stand; other servers of this format want them adjacent
                yield f"input[{at}]: comes before the results of {', '.join(sorted(waiting))}"
            yield from (f"input[{at}]: {what}" for what in _misshapen(item))
        elif kind == "function_call":
            if key in seen:
                yield f"input[{at}]: call_id {key} stands twice"
            yield from (f"input[{at}]: {what}" for what in _miscalled(item))
            waiting.add(key)
            seen.add(key)
        elif kind == "function_call_output":
            if key not in waiting or not isinstance(item.get("output"), str | list):
                yield f"input[{at}]: no call found for this output, or no output in it"
            waiting.discard(key)
        else:
            yield f"input[{at}]: {kind} is an item of the provider's own servers"
    if waiting:
        yield f"the end: no output found for {', '.join(sorted(waiting))}"


def _misshapen(item: dict[str, Any]) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in SAID:
        yield f"role {role!r:.40} is not known, or belongs into the instructions"
    if not content:
        yield "content: nothing in it"
    if isinstance(content, list) and {part.get("type") for part in content} - SAID.get(str(role), set()):
        yield "content: a part that this role cannot have"
    if foreign := item.keys() - {"type", "role", "content", "id"}:
        yield f"{', '.join(sorted(foreign))} is no field here"


def _miscalled(item: dict[str, Any]) -> Iterator[str]:
    if not ID(str(item.get("call_id"))) or not ID(str(item.get("name"))):
        yield "call_id or name is no word of letters, digits, _ and -, or too long"
    if not isinstance(item.get("arguments"), str):
        yield "arguments: not text"
