"""The handoff itself: who passes what to whom, under which conditions, and where it stands."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Literal

import msgspec

from baton.errors import Malformed
from baton.lifecycle import ENDED, State
from baton.protocol import codec, variables
from baton.protocol.context import Context, readable
from baton.protocol.fields import identifier, moment, record, whole
from baton.protocol.groups import Aggregation
from baton.protocol.limits import Autonomy, Budget, Risk, as_tokens
from baton.protocol.secrets import suspicious

replace = msgspec.structs.replace

SCHEMA_VERSION = 1
USER = "user"
HUMAN = "human"
SUPERVISOR = "supervisor"

Type = Literal["sequential", "delegation", "broadcast", "escalation"]
OnTimeout = Literal["retry", "escalate", "fail"]
Priority = Literal["critical", "high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = ("critical", "high", "normal", "low")
_PRIORITY_WORDS: dict[str, Priority] = {"urgent": "critical", "P0": "critical", "P1": "high", "P2": "normal"}


class Requirement(codec.Record, frozen=True, kw_only=True):
    """A capability that the work needs."""

    capability_id: str
    min_proficiency: float = 0.0

    def __post_init__(self) -> None:
        codec.bounded(self.min_proficiency, "min_proficiency", 0, 1)


class Validation(codec.Record, frozen=True, kw_only=True):
    """What the receiver has to bring."""

    required_capabilities: tuple[Requirement, ...] = ()
    autonomy_budget: Autonomy | None = None
    required_strictly: bool = False


class ReturnProtocol(codec.Record, frozen=True, kw_only=True):
    """Whether and when an answer is expected, and what happens without one. Seconds."""

    expected: bool = False  # whether somebody waits for it
    timeout: float | None = None  # how long it may take from the claim; after a reminder on_timeout decides
    on_timeout: OnTimeout = "fail"  # or retry, or escalate to the next one up, in the end to a person
    on_failure: OnTimeout = "fail"  # or retry after a pause, or escalate in the same way


class Rationale(codec.Record, frozen=True, kw_only=True):
    """Why, and at what risk."""

    decision_rationale: str = ""
    risk_level: Risk = "low"


class Handoff(codec.Record, frozen=True, kw_only=True):
    """One passing of work between two agents. Frozen: a later state is another value."""

    id: str = ""
    timestamp: codec.Time = codec.EPOCH
    from_agent: str
    to_agent: str
    type: Type = "sequential"
    reason: str = ""
    task: str = ""
    goal: str = ""
    context: Context = msgspec.field(default_factory=Context)  # a default would share its dicts
    validation: Validation = Validation()
    return_protocol: ReturnProtocol = ReturnProtocol()
    audit: Rationale = Rationale()
    schema_version: int = SCHEMA_VERSION
    workflow_id: str = ""
    conversation_id: str = ""
    parent_id: str = ""
    root_id: str = ""
    line_id: str = ""  # the first handoff of the chain whose end answers the parent
    hop: int = 0
    depth: int = 0
    part: str = ""  # what the sender calls this part of its work, so that it is made once
    broadcast_group_id: str = ""
    aggregation: Aggregation | None = None  # in a broadcast whose answers count: what they come to
    traceparent: str = ""
    priority: Priority = "normal"
    deadline: codec.Time | None = None
    budget: Budget | None = None
    max_attempts: int = 3
    max_iterations: int = 15
    warnings: tuple[str, ...] = ()
    state: State = State.OFFERED
    attempt: int = 0
    epoch: int = 0
    reroutes: int = 0
    holder: str = ""
    due_at: codec.Time | None = None
    approved_by: str = ""  # the person who let it start
    answer_id: str = ""  # on the first handoff of a line: the one that ended it

    @property
    def status(self) -> str:
        """Where it stands, as a plain word."""
        return self.state.value

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen to it."""
        return self.state in ENDED

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt: hand it to whatever the work does outside."""
        return self.id


def fingerprint(handoff: Handoff) -> str:
    """What the work is about (task, goal, artifacts) without counters and times: loops are found by it."""
    artifacts = sorted(item.digest or item.path for item in handoff.context.artifacts)
    return codec.digest(codec.canonical_record((handoff.task, handoff.goal, artifacts)))


def rank(priority: Priority) -> int:
    """0 for critical to 3 for low."""
    return PRIORITIES.index(priority)


def as_priority(word: str) -> Priority:
    """Accept P0 to P2 and `urgent` beside the four names."""
    name = _PRIORITY_WORDS.get(codec.text(word, "priority"), word)
    if name not in PRIORITIES:
        raise Malformed(f"priority: {word!r}; {codec.near(word, [*PRIORITIES, *_PRIORITY_WORDS])}")
    return name


# The same request under the names of the second source: one record, two spellings.
_CAMEL = {
    "fromAgentId": "from_agent",
    "toAgentId": "to_agent",
    "conversationId": "conversation_id",
    "maxIterations": "max_iterations",
}
_CAMEL_CONTEXT = {
    "originalRequest": "original_request",
    "conversationHistory": "conversation_history",
    "completedWork": "completed_work",
    "userId": "user_id",
    "correlationId": "correlation_id",
}
_CAMEL_MESSAGE = {"toolCalls": "tool_calls", "toolCallId": "tool_call_id"}


def read_handoff(data: bytes | str) -> Handoff:
    """Read a request from outside, in either spelling, bare or under a `handoff` key."""
    document = codec.read_object(data, "handoff")
    if "fromAgentId" in document or "toAgentId" in document:
        document = _from_camel(document)
    return codec.convert(_plain(document), Handoff, "handoff")


def _from_camel(document: dict[str, Any]) -> dict[str, Any]:
    renamed = codec.rename(document, _CAMEL, "handoff")
    context = codec.rename(_object(renamed, "context"), _CAMEL_CONTEXT, "handoff.context")
    if "requiredCapabilities" in context:
        renamed["validation"] = {"required_capabilities": context.pop("requiredCapabilities")}
    history = context.get("conversation_history")
    if isinstance(history, list):
        context["conversation_history"] = [_message(item) for item in history]
    return {"type": "delegation", **renamed, "context": context}


def _message(item: Any) -> Any:
    """A chat message as model providers spell it: null content, calls under `function`."""
    if not isinstance(item, dict):
        return item
    message = codec.rename(item, _CAMEL_MESSAGE, "handoff.context.conversation_history")
    message = {key: value for key, value in message.items() if value is not None}
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = [
            {"id": call.get("id", ""), **call["function"]}
            if isinstance(call, dict) and isinstance(call.get("function"), dict)
            else call
            for call in message["tool_calls"]
        ]
    return message


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """Expand the short forms: constraints, bare numbers as budgets, bare capability names, durations."""
    plain = dict(document)
    context = plain["context"] = dict(_object(plain, "context"))
    constraints = _object(context, "constraints", "handoff.context")
    context.pop("constraints", None)
    for key, value in constraints.items():
        if key not in {"budget", "deadline"}:
            known = codec.near(key, ["budget", "deadline"])
            raise Malformed(f"handoff.context.constraints: {codec.short(key)} is not a field; {known}")
        if key in plain:
            raise Malformed(f"handoff: {key} and context.constraints.{key} are the same field; keep one")
        plain[key] = value
    if "context_variables" in context:
        where = "handoff.context.context_variables"
        context["context_variables"] = variables.read(_object(context, "context_variables", "handoff.context"), where)
    if isinstance(context.get("conversation_history"), dict):
        context["transfer"] = context.pop("conversation_history")
    _budget(plain, "budget", "handoff")
    if isinstance(plain.get("priority"), str):
        plain["priority"] = as_priority(plain["priority"])
    if "validation" in plain:
        plain["validation"] = validation = dict(_object(plain, "validation"))
        _budget(validation, "autonomy_budget", "handoff.validation")
        names = validation.get("required_capabilities")
        if isinstance(names, list):
            validation["required_capabilities"] = [
                {"capability_id": name} if isinstance(name, str) else name for name in names
            ]
    answer = plain.get("return_protocol")
    if isinstance(answer, dict) and isinstance(answer.get("timeout"), str):
        timeout = codec.seconds(answer["timeout"], "handoff.return_protocol.timeout")
        plain["return_protocol"] = {**answer, "timeout": timeout}
    return plain


def _object(document: dict[str, Any], key: str, where: str = "handoff") -> dict[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise Malformed(f"{where}.{key}: expected an object")
    return value


def _budget(document: dict[str, Any], key: str, where: str) -> None:
    value = document.get(key)
    if type(value) is int or type(value) is float:
        document[key] = {"max_tokens": as_tokens(value, f"{where}.{key}")}


TASK_STATUS = {
    State.OFFERED: "pending",
    State.WAITING: "blocked",
    State.DEFERRED: "pending",
    State.CLAIMED: "in_progress",
    State.REJECTED: "pending",
    State.PARKED: "blocked",
    State.COMPLETED: "complete",
    State.FAILED: "failed",
    State.CANCELLED: "failed",
    State.REFUSED: "failed",
}


def document(handoff: Handoff, **more: Any) -> dict[str, Any]:
    """The nested document of the protocol: what `read_handoff` reads back into an equal record.

    `state` gives the shared variables that it refers to, `files_in_progress` what its workflow has locked.
    """
    plain = codec.plain(handoff)
    context = {"task_id": "", **plain.pop("context", {})}
    context = {"conversation_history": [], "artifacts": [], **context}
    context["context_variables"] = variables.document(
        more.pop("state", None) or context.get("context_variables", {}),
        task_id=handoff.context.task_id,
        task_status=TASK_STATUS[handoff.state],
        task_priority=handoff.priority,
        **more,
    )
    constraints = {key: plain.pop(key) for key in ("budget", "deadline") if key in plain}
    if constraints:
        context["constraints"] = {key: _short_budget(value) for key, value in constraints.items()}
    validation = {"required_capabilities": [], **plain.pop("validation", {})}
    validation["required_capabilities"] = [
        item["capability_id"] if len(item) == 1 else item for item in validation["required_capabilities"]
    ]
    if "autonomy_budget" in validation:
        validation["autonomy_budget"] = _short_budget(validation["autonomy_budget"])
    return {
        "handoff": {
            "id": handoff.id,
            "timestamp": codec.plain(handoff.timestamp),
            "from_agent": handoff.from_agent,
            "to_agent": handoff.to_agent,
            "type": handoff.type,
            "reason": handoff.reason,
            "schema_version": handoff.schema_version,
            **plain,
            "context": context,
            "validation": validation,
            "return_protocol": {"expected": False, "on_timeout": "fail", **plain.get("return_protocol", {})},
            "audit": {"decision_rationale": "", "risk_level": "low", **plain.get("audit", {})},
        }
    }


def _short_budget(value: Any) -> Any:
    return value["max_tokens"] if isinstance(value, dict) and value.keys() == {"max_tokens"} else value


SUPERVISED = (
    "id", "root_id", "line_id", "hop", "depth", "state", "attempt", "epoch", "reroutes", "holder", "due_at",
    "answer_id", "approved_by", "warnings", "timestamp",
)  # fmt: skip


_decode = msgspec.json.Decoder(Handoff).decode
_NAMES = (
    "id", "from_agent", "to_agent", "workflow_id", "conversation_id", "parent_id", "root_id", "line_id",
    "part", "broadcast_group_id", "traceparent", "holder", "answer_id", "approved_by",
)  # fmt: skip
_CONTEXT_NAMES = ("task_id", "user_id", "correlation_id", "history_ref", "state_ref")
_names_of = attrgetter(*_NAMES)
_context_names_of = attrgetter(*_CONTEXT_NAMES)


def checked(handoff: Handoff) -> Handoff:
    """A request as it is read back from a store; one that could not be, or does not fit together, is refused."""
    asked: Any = record(handoff, Handoff, "handoff").return_protocol
    handoff = _read_back(handoff)
    codec.text(handoff.task, "task")
    codec.text(handoff.reason, "reason")
    _named(handoff)
    answer = handoff.return_protocol
    given = asked.timeout if isinstance(asked, ReturnProtocol) else answer.timeout  # before NaN became nothing
    codec.bounded(given, "return_protocol.timeout", 0, codec.MAX_SECONDS)
    whole(handoff.max_attempts, "max_attempts", 1)
    whole(handoff.max_iterations, "max_iterations", 1)
    if handoff.deadline is not None:
        moment(handoff.deadline, "deadline")
    if handoff.schema_version != SCHEMA_VERSION:
        raise Malformed(f"schema_version: {handoff.schema_version}; this version reads {SCHEMA_VERSION}")
    if handoff.type == "delegation" and not answer.timeout:
        raise Malformed("return_protocol.timeout: a delegation needs one; give the longest wait in seconds")
    if handoff.type in {"delegation", "broadcast", "escalation"} and not handoff.task.strip():
        raise Malformed("task: empty; say what the receiver has to do")
    if handoff.type == "escalation" and not handoff.audit.decision_rationale.strip():
        raise Malformed("audit.decision_rationale: empty; an escalation says why (rationale=…)")
    return handoff


def _read_back(handoff: Handoff) -> Handoff:
    """Types, times and text by reading the record back; variables are checked when stored."""
    context: Any = handoff.context
    large: dict[str, Any] = {}
    if isinstance(context, Context):
        if context.conversation_history or context.context_variables:
            history = readable(context.conversation_history, "context.conversation_history")
            variables: Any = context.context_variables
            if not isinstance(variables, dict):
                raise Malformed(f"context.context_variables: {variables!r:.60} is not an object")
            large = {"conversation_history": history, "context_variables": variables}
            slim = replace(context, conversation_history=(), context_variables={})
            handoff = replace(handoff, context=slim)
        if context.completed_work or context.metadata:
            codec.check(context.completed_work, "context.completed_work")
            codec.check(context.metadata, "context.metadata")
    _, again = codec.faithful(handoff, _decode, "handoff")
    return replace(again, context=replace(again.context, **large)) if large else again


def _named(handoff: Handoff) -> None:
    codec.name(handoff.from_agent, "from_agent")
    codec.name(handoff.to_agent, "to_agent")
    names = _names_of(handoff) + _context_names_of(handoff.context)
    said = " ".join(names)
    if max(map(len, names)) <= codec.MAX_NAME and said.isprintable() and not suspicious(said.encode()):
        return
    for owner, fields, where in ((handoff, _NAMES, ""), (handoff.context, _CONTEXT_NAMES, "context.")):
        for field in fields:
            if value := getattr(owner, field):
                identifier(value, where + field)
