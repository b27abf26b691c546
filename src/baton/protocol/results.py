"""What an agent gives back: a return, or an instruction on where the work goes next."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, ClassVar, Literal

import msgspec

from baton.errors import Malformed
from baton.protocol import codec
from baton.protocol.artifacts import Artifact
from baton.protocol.context import Message
from baton.protocol.fields import record, several, truth, whole
from baton.protocol.limits import MAX_COST

Status = Literal["success", "partial", "failed", "timeout"]


class Result(codec.Record, frozen=True, kw_only=True):
    """The body of a return."""

    content_type: Literal["text", "json", "artifact_ref"] = "text"
    body: Any = None


class Updates(codec.Record, frozen=True, kw_only=True):
    """What the work changed in the shared context."""

    variables_changed: dict[str, Any] = {}
    artifacts_produced: tuple[Artifact, ...] = ()

    def __post_init__(self) -> None:
        changed: Any = self.variables_changed
        if not isinstance(changed, dict):
            raise Malformed(f"update: {changed!r:.60} is not an object; write {{name: value}}")
        if self.artifacts_produced != ():
            several(self.artifacts_produced, Artifact, "artifacts")


class Account(codec.Record, frozen=True, kw_only=True):
    """What the work took."""

    completion_time: codec.Time | None = None
    tokens_consumed: int = 0
    cost: float = 0.0
    notes: str = ""

    def __post_init__(self) -> None:
        if self.tokens_consumed != 0:
            whole(self.tokens_consumed, "audit.tokens_consumed")
        if self.cost != 0:
            codec.bounded(self.cost, "audit.cost", 0, MAX_COST)


class Return(codec.Record, frozen=True, kw_only=True):
    """The answer to a handoff."""

    handoff_id: str = ""  # written by the supervisor, as are the two names
    from_agent: str = ""
    to_agent: str = ""
    status: Status = "success"
    result: Result = Result()  # the answer; `output` is its body
    context_updates: Updates = msgspec.field(
        default_factory=Updates
    )  # changes and artifacts; a default would share its dict
    audit: Account = Account()  # tokens, money, notes
    agent_name: str = ""
    duration_ms: int = 0
    iterations: int = 0
    conversation_summary: str = ""
    error: str = ""  # the name of the error and what it said
    messages: tuple[Message, ...] = ()  # the conversation that the work added
    onward: dict[str, Any] = {}  # a command for the relay around this one
    history_ref: str = ""  # the head of the conversation after this work
    state_ref: str = ""  # the shared variables after this work, where it changed any
    retryable: bool = True  # False blames the request: no retry, and no mark against the agent

    @property
    def success(self) -> bool:
        """Whether all of the work was done."""
        return self.status == "success"

    @property
    def output(self) -> Any:
        """What the agent answered."""
        return self.result.body


class Send(msgspec.Struct, frozen=True):
    """One of several parallel handoffs."""

    agent: str  # whom
    update: dict[str, Any] = {}  # what this one sees in the shared variables besides; "task" is its task
    task: str = ""  # by default that of the whole
    returns: bool = True  # whether the answer counts; else nobody waits for it

    def __post_init__(self) -> None:
        codec.name(self.agent, "Send.agent")
        if not isinstance(self.update, Mapping):
            raise Malformed(f"Send.update: {self.update!r:.60} is not an object; write {{name: value}}")
        codec.text(self.task or self.update.get("task", ""), "Send.task")
        truth(self.returns, "Send.returns")


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Move control to another agent, with an update of the shared state.

    Without `goto`, `needs` names the capabilities that the next one must have, and the routing map chooses.
    """

    PARENT: ClassVar[str] = "__parent__"

    goto: str | list[Send] = ""  # the name of the next agent
    update: dict[str, Any] = {}  # what changes in the shared variables
    reason: str = ""  # why; stands in the audit
    task: str = ""  # a new task; by default the same
    graph: str | None = None  # Command.PARENT: an agent of the relay around this one
    tokens: int = 0  # what this turn used
    artifacts: tuple[Artifact, ...] = ()  # what it made
    needs: tuple[str, ...] = ()  # instead of goto: what the next one must be able to do

    def __post_init__(self) -> None:
        goto, task, reason = self.goto, self.task, self.reason
        # Almost every command is this plain; the others are looked at field by field.
        if (
            type(goto) is type(task) is type(reason) is str
            and type(self.update) is dict
            and goto.isprintable()
            and task.isascii()
            and reason.isascii()
            and len(goto) <= codec.MAX_NAME
            and len(task) + len(reason) <= codec.MAX_TEXT
            and self.tokens == 0
            and self.artifacts == ()
            and self.needs == ()
            and self.graph is None
        ):
            return
        _instruction(self)


class Reject(msgspec.Struct, frozen=True):
    """Refuse the work, so that another agent may take it; where nobody can, a person decides."""

    reason: str  # why; the sender reads it

    def __post_init__(self) -> None:
        _because(self.reason, "reject")


class Defer(msgspec.Struct, frozen=True):
    """Put the work off; it is offered again after so many seconds."""

    reason: str  # why
    seconds: float = 60.0  # for how long

    def __post_init__(self) -> None:
        _because(self.reason, "defer")
        if self.seconds is None:
            raise Malformed("defer.seconds: None is no time; write seconds")
        codec.bounded(self.seconds, "defer.seconds", 0, codec.MAX_SECONDS)


class Acceptance(codec.Record, frozen=True, kw_only=True):
    """What a receiver says to an offer, as it stands on the wire."""

    status: Literal["accepted", "rejected", "deferred"]
    reason: str = ""
    estimated_completion: codec.Time | None = None
    acknowledged_at: codec.Time | None = None

    def __post_init__(self) -> None:
        if self.status != "accepted":
            _because(self.reason, "acceptance")


ACCEPTANCES: dict[str, Literal["accepted", "rejected", "deferred"]] = {
    "accepted": "accepted",
    "rejected": "rejected",
    "deferred": "deferred",
}


def _instruction(command: Command) -> None:
    goto: Any = command.goto
    if not isinstance(goto, str) and not (isinstance(goto, list) and all(isinstance(one, Send) for one in goto)):
        if isinstance(goto, list | tuple):
            cure = "several are written goto=[Send('a'), Send('b')]"
            raise Malformed(f"Command.goto: {goto!r:.60} is not the name of an agent; {cure}")
        said = getattr(goto, "__name__", goto)
        raise Malformed(f"Command.goto: {said!r:.60} is not the name of an agent; write its name as text")
    if isinstance(goto, list) and not goto:
        raise Malformed("Command.goto: an empty list; name at least one agent, or return an answer")
    if isinstance(goto, str) and goto:
        codec.name(goto, "Command.goto")
    codec.text(command.task, "Command.task")
    codec.text(command.reason, "Command.reason")
    if not isinstance(command.update, Mapping):
        raise Malformed(f"Command.update: {command.update!r:.60} is not an object; write update={{name: value}}")
    codec.names(command.needs, "Command.needs")
    several(command.artifacts, Artifact, "Command.artifacts")
    if command.tokens is None:
        raise Malformed("Command.tokens: None is no number; leave it out")
    whole(command.tokens, "Command.tokens")
    if command.graph is not None:
        codec.text(command.graph, "Command.graph")


def _because(reason: str, what: str) -> None:
    if not codec.text(reason, f"{what}.reason").strip():
        raise Malformed(f"{what}.reason: empty; say why, so that the sender can choose what to do")


class Escalate(msgspec.Struct, frozen=True):
    """Say that somebody with more authority has to decide: the next one on the ladder, in the end a person."""

    reason: str  # what is to be decided, and why not here; stands in the audit
    assessment: Any = None  # what was found out so far, for whoever decides: text or JSON

    def __post_init__(self) -> None:
        _because(self.reason, "escalate")
        codec.text(codec.canonical(self.assessment, "escalate.assessment").decode(), "escalate.assessment")


Outcome = Return | Command | Reject | Defer | Escalate


def as_return(value: Any) -> Return:
    """Wrap what an agent's function gave back."""
    if isinstance(value, Return):
        record(value.result, Result, "return.result")
        record(value.context_updates, Updates, "return.context_updates")
        record(value.audit, Account, "return.audit")
        return value
    if isinstance(value, str) or value is None:
        return Return(result=Result(body=value))
    if isinstance(value, Awaitable):
        said = getattr(value, "__qualname__", type(value).__name__).rpartition(".")[2]
        if isinstance(value, Coroutine):
            value.close()
        raise Malformed(f"the answer is a call of {said} that was not awaited: `await` is missing before it")
    if isinstance(value, Send | Command) or (isinstance(value, list | tuple) and any(map(_leads_on, value))):
        raise Malformed("the answer holds a Send or a Command; to hand work on, return one Command(goto=…) by itself")
    return Return(result=Result(content_type="json", body=value))


def _leads_on(value: Any) -> bool:
    return isinstance(value, Send | Command)


def answer(
    body: Any = None,
    *,
    status: Status = "success",
    update: dict[str, Any] | None = None,
    artifacts: tuple[Artifact, ...] = (),
    tokens: int = 0,
    cost: float = 0.0,
) -> Return:
    """A return in one call: the answer, what it changes in the shared state, what it made, and what it took."""
    return msgspec.structs.replace(
        as_return(body),
        status=status,
        context_updates=Updates(
            variables_changed=update or {}, artifacts_produced=several(artifacts, Artifact, "artifacts")
        ),
        audit=Account(tokens_consumed=tokens, cost=cost),
    )


def failed(error: str, *, retryable: bool = True, status: Status = "failed") -> Return:
    """The return of work that did not succeed."""
    return Return(status=status, error=error, retryable=retryable)


_decode = msgspec.json.Decoder(Return).decode


def checked(answer: Return) -> Return:
    """A return as it is read back from a store; one that could not be is refused."""
    answer = as_return(answer)
    codec.check(answer.result.body, "result.body")
    codec.check(answer.context_updates.variables_changed, "context_updates.variables_changed")
    whole(answer.duration_ms, "duration_ms")
    whole(answer.iterations, "iterations")
    return codec.faithful(answer, _decode, "return")[1]


def read_return(data: bytes | str) -> Return:
    """Read a return from outside, in either spelling, bare or under a `return` key."""
    document = codec.read_object(data, "return")
    if "handoffId" in document or "agentId" in document:
        document = _from_camel(document)
    answer = codec.convert(document, Return, "return")
    if not answer.handoff_id:
        raise Malformed("return.handoff_id is missing; name the handoff that this answers")
    return checked(answer)


_CAMEL = {
    "handoffId": "handoff_id",
    "agentId": "from_agent",
    "agentName": "agent_name",
    "duration": "duration_ms",
    "conversationSummary": "conversation_summary",
}


def _from_camel(document: dict[str, Any]) -> dict[str, Any]:
    renamed = codec.rename(document, _CAMEL, "return")
    success, body = renamed.pop("success", None), renamed.pop("result", None)
    if type(success) is not bool:
        raise Malformed("return.success: expected true or false")
    if type(renamed.get("duration_ms")) is float:
        renamed["duration_ms"] = round(renamed["duration_ms"])
    content_type = "text" if body is None or isinstance(body, str) else "json"
    status = "success" if success else "failed"
    return {"status": status, **renamed, "result": {"content_type": content_type, "body": body}}


def document(answer: Return) -> dict[str, Any]:
    """The nested document of the protocol: what `read_return` reads back into an equal record."""
    plain = codec.plain(answer)
    return {
        "return": {
            "handoff_id": answer.handoff_id,
            "from_agent": answer.from_agent,
            "to_agent": answer.to_agent,
            "status": answer.status,
            **plain,
            "result": {"content_type": "text", "body": None, **plain.get("result", {})},
            "context_updates": {
                "variables_changed": {}, "artifacts_produced": [], **plain.get("context_updates", {}),
            },
            "audit": {"tokens_consumed": 0, "notes": "", **plain.get("audit", {})},
        }
    }  # fmt: skip


def handoff_result(answer: Return) -> dict[str, Any]:
    """The same return in the second spelling."""
    plain = {
        "handoffId": answer.handoff_id,
        "agentId": answer.from_agent,
        "agentName": answer.agent_name or answer.from_agent,
        "success": answer.success,
        "result": codec.plain(answer.result.body),
        "duration": answer.duration_ms,
        "iterations": answer.iterations,
    }
    if answer.conversation_summary:
        plain["conversationSummary"] = answer.conversation_summary
    if answer.error:
        plain["error"] = answer.error
    return plain


def read_acceptance(data: bytes | str) -> Acceptance:
    """Read what a receiver says to an offer, bare or under an `acceptance` key."""
    return codec.convert(codec.read_object(data, "acceptance"), Acceptance, "acceptance")
