"""What an agent gives back: a return, or an instruction on where the work goes next."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal

import msgspec

from baton.errors import Malformed
from baton.protocol.artifacts import Artifact
from baton.protocol.context import Message

Status = Literal["success", "partial", "failed", "timeout"]


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of a return."""

    content_type: Literal["text", "json", "artifact_ref"] = "text"
    body: Any = None


class Updates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the work changed in the shared context."""

    variables_changed: dict[str, Any] = {}
    artifacts_produced: tuple[Artifact, ...] = ()


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the work took."""

    completion_time: datetime | None = None
    tokens_consumed: int = 0
    cost: float = 0.0
    notes: str = ""

    def __post_init__(self) -> None:
        if self.tokens_consumed < 0 or self.cost < 0:
            raise Malformed("audit.tokens_consumed and audit.cost cannot be negative")


class Return(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The answer to a handoff."""

    handoff_id: str = ""
    from_agent: str = ""
    to_agent: str = ""
    status: Status = "success"
    result: Result = Result()
    context_updates: Updates = Updates()
    audit: Account = Account()
    agent_name: str = ""
    duration_ms: int = 0
    iterations: int = 0
    conversation_summary: str = ""
    error: str = ""
    messages: tuple[Message, ...] = ()
    retryable: bool = True

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

    agent: str
    update: dict[str, Any] = {}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Move control to another agent, with an update of the shared state."""

    PARENT: ClassVar[str] = "__parent__"

    goto: str | list[Send]
    update: dict[str, Any] = {}
    reason: str = ""
    task: str = ""
    graph: str | None = None
    tokens: int = 0


class Reject(msgspec.Struct, frozen=True):
    """Refuse the work, so that another agent may take it."""

    reason: str


class Defer(msgspec.Struct, frozen=True):
    """Put the work off; it is offered again after so many seconds."""

    reason: str
    seconds: float = 60.0


Outcome = Return | Command | Reject | Defer


def as_return(value: Any) -> Return:
    """Wrap what an agent's function gave back."""
    if isinstance(value, Return):
        return value
    if isinstance(value, str) or value is None:
        return Return(result=Result(body=value))
    return Return(result=Result(content_type="json", body=value))


def failed(error: str, *, retryable: bool = True, status: Status = "failed") -> Return:
    """The return of work that did not succeed."""
    return Return(status=status, error=error, retryable=retryable)
