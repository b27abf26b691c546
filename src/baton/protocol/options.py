"""What may be said by keyword: the options of `run`, `delegate`, `Relay` and of an agent, and nothing else.

The classes are for editors and type checkers. `closed` holds those who use neither to the same lists: what only
the supervisor writes (an approval, a claim, a count) cannot be slipped in as an option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from baton.errors import Malformed
from baton.protocol import codec
from baton.protocol.context import MODES, Context, Mode, Transfer
from baton.protocol.fields import moment, record
from baton.protocol.handoff import OnTimeout, Rationale, Requirement, ReturnProtocol, Validation, as_priority
from baton.protocol.limits import Autonomy, Budget, Limits, Risk, as_autonomy, as_budget
from baton.protocol.profile import as_capabilities
from baton.protocol.registry import HealthRules
from baton.protocol.report_status import Kind, Reporting, as_reporting

if TYPE_CHECKING:
    from pathlib import Path

replace = msgspec.structs.replace

Priority = Literal["critical", "high", "normal", "low", "urgent", "P0", "P1", "P2"]
Duration = float | str | timedelta


class WorkOptions(TypedDict, total=False):
    """What may be said about any work."""

    reason: str  # why it is handed over; stands in the audit
    goal: str  # what it is good for in the end
    priority: Priority  # `urgent` and P0 are critical, P1 is high, P2 is normal
    deadline: datetime  # after that it is of no use; with a time zone
    budget: Budget | int  # the most it may use; a bare number is tokens
    capabilities: Sequence[str]  # what the receiver must be able to do
    risk: Risk  # low, medium or high
    rationale: str  # the decision behind it, for the audit
    max_attempts: int  # how often it may be tried, over all paths; by default 3
    on_failure: OnTimeout  # `fail` (the default), `retry` after a pause, or `escalate` to the next one up
    on_timeout: OnTimeout  # the same, when its time is over


class PartOptions(WorkOptions, total=False):
    """What `turn.delegate` and `turn.ask` take besides."""

    timeout: Duration  # how long the answer may take: seconds or "5m"; else Relay(delegation_timeout=…)
    update: Mapping[str, Any]  # what the receiver sees in the shared variables besides, or differently
    share: Sequence[str]  # the names of the shared variables that it sees; by default all
    transfer: Mode  # how much of the conversation it sees: full, relevant_only, summary; by default summary


class GroupOptions(PartOptions, total=False):
    """What `turn.broadcast` takes besides."""

    aggregate: Literal["all", "any", "majority"]  # whose answers are needed; by default all
    field: str  # majority: the field of the answers that is counted
    visible: bool  # whether each is told who else is asked


class RequestOptions(WorkOptions, total=False):
    """What a request from outside, which begins a workflow, takes besides."""

    workflow_id: str  # a name of your own; the same one attaches to that workflow
    conversation_id: str  # the conversation that it belongs to
    limits: Limits | Mapping[str, Any]  # of this workflow, never beyond those of the relay
    complexity: str  # a tier of limits: simple, medium, complex; auto guesses it from the task
    state: Mapping[str, Any]  # the shared variables at the start
    max_iterations: int  # how many rounds an agent with a loop may make
    validation: Validation  # what the receiver has to bring, as a record
    return_protocol: ReturnProtocol  # the answer that is expected, as a record
    audit: Rationale  # risk and rationale, as a record
    context: Context  # a conversation, artifacts and variables to begin with
    traceparent: str  # the trace around it


class RunOptions(RequestOptions, total=False):
    """What `run`, `run_sync` and `stream` take besides."""

    from_agent: str  # in whose name; by default `user`


class AskOptions(RequestOptions, total=False):
    """What `relay.broadcast` takes besides."""

    aggregate: Literal["all", "any", "majority"]  # whose answers are needed; by default all
    field: str  # majority: the field of the answers that is counted
    visible: bool  # whether each is told who else is asked
    timeout: Duration  # how long the answers may take


class ProfileOptions(TypedDict, total=False):
    """What is said of an agent."""

    agent_name: str  # for people
    specialization: str  # its field, in a few words
    description: str  # what it does; by default the docstring of its function
    capabilities: Sequence[str] | Mapping[str, float]  # what it can do; with numbers, how well from 0 to 1
    examples: Sequence[str]  # tasks that fit it
    accepts_handoffs: bool  # whether others may hand work to it
    max_concurrent_tasks: int | None  # how much it may hold at once
    max_execution_time: Duration | None  # how long one attempt may take
    autonomy: Autonomy | int  # how far it goes by itself; a bare number is tokens
    autonomy_budget: Autonomy | int | None  # the same, under the protocol's name
    allowed_targets: Sequence[str] | None  # to whom it may hand work; by default anybody
    writes: Sequence[str]  # shared variables of other agents that it may write, as names or patterns; "*" is any
    idempotent: bool  # whether its work may be done twice; False: a person decides instead of a retry
    reports: Reporting | Kind | None  # its answers are reports of this kind, which say what comes next


class SettingOptions(TypedDict, total=False):
    """How a relay works."""

    lease: float  # seconds until the claim of a silent worker on another host may be taken over; 60
    backoff: float  # seconds before the first retry, doubled for each further one; 2
    routes: Mapping[str, Sequence[str]]  # for each capability, who does work that needs it, the first choice first
    delegation_timeout: Duration  # how long a delegation may take that names no time-out; 600 seconds
    sequence: Mapping[str, str]  # who comes next when an agent is done
    escalation: Sequence[str]  # the ladder: who decides what others cannot, lowest first; in the end a person
    reducers: Mapping[str, Callable[[Any, Any], Any]]  # joins what is written to a variable; "*" is any other one
    telemetry: str | Sequence[Any]  # who is told of the ten steps: "log", "opentelemetry", "prometheus", a hook
    roots: Sequence[str]  # where artifacts may stand, beside relative paths
    health: HealthRules | Mapping[str, Any]  # interval, timeout and threshold of the health checks; 60 s, 10 s, 3
    registry: str | Path  # an agents.toml: agents, routes, escalation and health checks by the operator


_ELSEWHERE = {
    "turn.delegate": {"state": "update= changes what the receiver sees of the shared variables"},
    "turn.ask": {"state": "update= changes what the receiver sees of the shared variables"},
    "relay.run": {"update": "state= gives the shared variables at the start"},
}
_OF_LIMITS = frozenset(Limits.__struct_fields__)


def closed(given: Mapping[str, Any], known: type, what: str, *more: str) -> None:
    """Refuse an option that is not in the list, or one of the others."""
    names: frozenset[str] = known.__optional_keys__  # type: ignore[attr-defined]
    for name in given.keys() - names:
        cure = _ELSEWHERE.get(what, {}).get(name) or codec.near(name, {*names, *more})
        if name in _OF_LIMITS and "limits" in {*names, *more}:
            cure = f"limits=Limits({name}=…) sets it"
        raise Malformed(f"{what}: {codec.short(name)} is not an option; {cure}")


def as_profile(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the fields of a profile."""
    fields = dict(given)
    fields["capabilities"] = as_capabilities(fields.get("capabilities"))
    fields["autonomy_budget"] = as_autonomy(fields.pop("autonomy", fields.get("autonomy_budget")))
    if fields.get("max_execution_time") is not None:
        fields["max_execution_time"] = codec.seconds(fields["max_execution_time"], "max_execution_time")
    if fields.get("allowed_targets") is not None:
        fields["allowed_targets"] = codec.names(fields["allowed_targets"], "allowed_targets")
    fields["reports"] = as_reporting(fields.get("reports"))
    fields["writes"] = codec.names(fields.get("writes", ()), "writes")
    return fields


def as_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a relay as they are kept."""
    settings = dict(given)
    for name in ("lease", "backoff", "delegation_timeout"):
        if name in settings:
            settings[name] = codec.seconds(settings[name], name)
    for name in ("routes", "sequence", "reducers"):
        if not isinstance(settings.get(name, {}), Mapping):
            raise Malformed(f"{name}: {settings[name]!r:.60} is not an object; write {{name: …}}")
    codec.names(settings.get("roots", ()), "roots")
    if not isinstance(settings.get("telemetry", ()), Iterable):
        raise Malformed(f"telemetry: {settings['telemetry']!r:.60} is not a list of hooks; write telemetry=['log']")
    return settings


def as_variables(given: Any, field: str) -> dict[str, Any]:
    """Shared variables as they are given."""
    if not isinstance(given or {}, Mapping):
        raise Malformed(f"{field}: expected an object of names and values, got {given!r:.60}")
    return dict(given or {})


def as_transfer(mode: Any) -> Transfer:
    """How much of the conversation crosses."""
    if mode not in MODES:
        raise Malformed(f"transfer: {mode!r:.60}; {codec.near(str(mode), MODES)}")
    return Transfer(transfer_mode=mode)


def as_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the fields of a handoff that they fill."""
    fields = dict(given)
    if "priority" in fields:
        fields["priority"] = as_priority(fields["priority"])
    if "budget" in fields:
        fields["budget"] = as_budget(fields["budget"])
    if fields.get("deadline") is not None:
        moment(fields["deadline"], "deadline")
    if "capabilities" in fields:
        wanted = tuple(
            Requirement(capability_id=name) for name in codec.names(fields.pop("capabilities"), "capabilities")
        )
        fields["validation"] = replace(
            record(fields.get("validation", Validation()), Validation, "validation"), required_capabilities=wanted
        )
    _into(fields, "audit", Rationale(), {"risk": "risk_level", "rationale": "decision_rationale"})
    answer = {"timeout": "timeout", "on_timeout": "on_timeout", "on_failure": "on_failure"}
    if "timeout" in fields:
        fields["timeout"] = codec.seconds(fields["timeout"])
        fields.setdefault("return_protocol", ReturnProtocol(expected=True))
    _into(fields, "return_protocol", ReturnProtocol(), answer)
    if "on_timeout" in given and not fields["return_protocol"].timeout:
        raise Malformed(
            "on_timeout: this work has no time that could be over; give return_protocol=ReturnProtocol(timeout=…)"
        )
    return fields


def _into(fields: dict[str, Any], field: str, plain: msgspec.Struct, names: Mapping[str, str]) -> None:
    """Move single options into the record that they are a part of."""
    said = {names[name]: fields.pop(name) for name in names.keys() & fields.keys()}
    if said:
        fields[field] = replace(record(fields.get(field, plain), type(plain), field), **said)
