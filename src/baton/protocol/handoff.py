"""The handoff itself: who passes what to whom, under which conditions, and where it stands."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from baton.errors import Malformed
from baton.lifecycle import ENDED, State
from baton.protocol import codec
from baton.protocol.context import Context
from baton.protocol.limits import Autonomy, Budget, Risk

SCHEMA_VERSION = 1
USER = "user"
HUMAN = "human"

Type = Literal["sequential", "delegation", "broadcast", "escalation"]
OnTimeout = Literal["retry", "escalate", "fail"]
Priority = Literal["critical", "high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = ("critical", "high", "normal", "low")
_PRIORITY_WORDS: dict[str, Priority] = {"urgent": "critical", "P0": "critical", "P1": "high", "P2": "normal"}


class Requirement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A capability that the work needs."""

    capability_id: str
    min_proficiency: float = 0.0


class Validation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the receiver has to bring."""

    required_capabilities: tuple[Requirement, ...] = ()
    autonomy_budget: Autonomy | None = None
    required_strictly: bool = False


class ReturnProtocol(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Whether and when an answer is expected, and what happens without one. Seconds."""

    expected: bool = False
    timeout: float | None = None
    on_timeout: OnTimeout = "fail"
    on_failure: OnTimeout = "fail"


class Rationale(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Why, and at what risk."""

    decision_rationale: str = ""
    risk_level: Risk = "low"


class Handoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One passing of work between two agents. Frozen: a later state is another value."""

    id: str = ""
    timestamp: datetime = codec.EPOCH
    from_agent: str
    to_agent: str
    type: Type = "sequential"
    reason: str = ""
    task: str = ""
    goal: str = ""
    context: Context = Context()
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
    key: str = ""  # what the sender calls this delegation, so that it is made once
    broadcast_group_id: str = ""
    traceparent: str = ""
    priority: Priority = "normal"
    deadline: datetime | None = None
    budget: Budget | None = None
    max_attempts: int = 3
    max_iterations: int = 15
    warnings: tuple[str, ...] = ()
    state: State = State.OFFERED
    attempt: int = 0
    epoch: int = 0
    reroutes: int = 0
    holder: str = ""
    due_at: datetime | None = None
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
    """What the work is about (task, goal, artifacts), without counters and times: the key of loop detection."""
    artifacts = sorted(item.digest or item.path for item in handoff.context.artifacts)
    return codec.digest(codec.canonical_record((handoff.task, handoff.goal, artifacts)))


def rank(priority: Priority) -> int:
    """0 for critical to 3 for low."""
    return PRIORITIES.index(priority)


def as_priority(word: str) -> Priority:
    """Accept P0 to P2 and `urgent` beside the four names."""
    name = _PRIORITY_WORDS.get(word, word)
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
    "metadata": "metadata",
}


def read_handoff(data: bytes | str) -> Handoff:
    """Read a request from outside, in either spelling, bare or under a `handoff` key."""
    document = codec.read_json(data, "handoff")
    if isinstance(document, dict) and isinstance(document.get("handoff"), dict):
        document = document["handoff"]
    if not isinstance(document, dict):
        raise Malformed("handoff: expected an object with from_agent, to_agent and task")
    if "fromAgentId" in document or "toAgentId" in document:
        document = _from_camel(document)
    return codec.convert(_plain(document), Handoff, "handoff")


def _from_camel(document: dict[str, Any]) -> dict[str, Any]:
    renamed = {_CAMEL.get(key, key): value for key, value in document.items()}
    context = renamed.pop("context", {})
    if not isinstance(context, dict):
        raise Malformed("handoff: context: expected an object")
    context = {_CAMEL_CONTEXT.get(key, key): value for key, value in context.items()}
    required = context.pop("requiredCapabilities", [])
    if required:
        renamed["validation"] = {"required_capabilities": required}
    return {"type": "delegation", **renamed, "context": context}


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """Expand the short forms: bare capability names, a bare number as budget, constraints, priority words."""
    plain = dict(document)
    context = plain.get("context")
    if isinstance(context, dict) and "constraints" in context:
        context = dict(context)
        constraints = context.pop("constraints")
        if not isinstance(constraints, dict):
            raise Malformed("handoff: context.constraints: expected an object with budget and deadline")
        plain = {**constraints, **plain, "context": context}
    if isinstance(plain.get("budget"), int | float):
        plain["budget"] = {"max_tokens": int(plain["budget"])}
    if isinstance(plain.get("priority"), str):
        plain["priority"] = as_priority(plain["priority"])
    validation = plain.get("validation")
    if isinstance(validation, dict):
        validation = dict(validation)
        names = validation.get("required_capabilities")
        if isinstance(names, list):
            validation["required_capabilities"] = [
                {"capability_id": name} if isinstance(name, str) else name for name in names
            ]
        if isinstance(validation.get("autonomy_budget"), int | float):
            validation["autonomy_budget"] = {"max_tokens": int(validation["autonomy_budget"])}
        plain["validation"] = validation
    return plain


SUPERVISED = (
    "id", "root_id", "line_id", "hop", "depth", "state", "attempt", "epoch", "reroutes", "holder", "due_at",
    "answer_id", "warnings", "timestamp",
)  # fmt: skip


def checked(handoff: Handoff) -> Handoff:
    """Refuse a request whose parts do not fit together."""
    codec.text(handoff.task, "task")
    codec.text(handoff.reason, "reason")
    if handoff.schema_version != SCHEMA_VERSION:
        raise Malformed(f"schema_version: {handoff.schema_version}; this version reads {SCHEMA_VERSION}")
    if handoff.type == "delegation" and not handoff.return_protocol.timeout:
        raise Malformed("return_protocol.timeout: a delegation needs one; give the longest wait in seconds")
    if handoff.type in {"delegation", "escalation"} and not handoff.task:
        raise Malformed("task: empty; say what the receiver has to do")
    if handoff.type == "escalation" and not handoff.audit.decision_rationale:
        raise Malformed("audit.decision_rationale: empty; an escalation says why")
    if handoff.max_attempts < 1:
        raise Malformed(f"max_attempts: {handoff.max_attempts}; at least 1")
    return handoff
