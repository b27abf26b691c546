"""Step 8 for an agent that reports: its report, and nothing else that it wrote, says what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import Malformed
from baton.protocol import checklists
from baton.protocol.handoff import HUMAN, SUPERVISOR, USER
from baton.protocol.report_status import Next, Status
from baton.protocol.report_text import parse, render
from baton.protocol.reports import Error, Fault, Item, Report, Research, Review, meaning
from baton.protocol.results import Command, Escalate, Result, Return, as_return
from baton.routing.matching import alternatives

if TYPE_CHECKING:
    from baton.flow.crew import Crew
    from baton.protocol.handoff import Handoff
    from baton.protocol.report_status import Meaning, Reporting

replace = msgspec.structs.replace


def follow(crew: Crew, handoff: Handoff, rules: Reporting, value: Any) -> tuple[Any, Return | None]:
    """What a report leads to: a command with the report behind it, or a value that stands for itself."""
    if isinstance(value, Report):
        value = render(value)
    if isinstance(value, msgspec.Struct) and not isinstance(value, Return):
        return value, None  # an instruction of its own: Command, Escalate, Reject, Defer
    said = as_return(value)
    if not said.success:
        return _with_report(handoff, said), None
    try:
        report = _read(said.output, rules)
        then = meaning(report, rules.second_opinion)
        if rules.checklist == "block" and then.next in {Next.GO_ON, Next.GO_BACK}:
            checklists.block(report)
    except Malformed as error:
        return replace(said, status="failed", error=f"Malformed: {error}"), None
    lacking = ", ".join(one.item for one in checklists.missing(report))
    notes = "; ".join(filter(None, [said.audit.notes, f"missing: {lacking}" if lacking else ""]))
    said = replace(said, status=then.returns, audit=replace(said.audit, notes=notes))
    return _step(crew, handoff, report, then, said)


def _read(text: Any, rules: Reporting) -> Report:
    if not isinstance(text, str):
        raise Malformed(f"{rules.kind}: the answer is no text; answer with the report as Markdown")
    try:
        return parse(text, rules.kind)
    except Malformed:
        if rules.kind == "error":
            raise
        error = _error(text)
        if error is None:
            raise
        return error


def _error(text: str) -> Error | None:
    """The error report that an agent of any kind may write instead."""
    try:
        found = parse(text, "error")
    except Malformed:
        return None
    return found if isinstance(found, Error) and found.title else None


def _step(crew: Crew, handoff: Handoff, report: Report, then: Meaning, said: Return) -> tuple[Any, Return | None]:
    reason = f"{report.KIND} {_status(report)}: {then.why}".replace(" :", ":")
    if then.next is Next.FAIL:
        return replace(said, error=reason), None
    if then.next is Next.ESCALATE:
        return Escalate(reason, assessment=said.output), None
    to, task = "", ""
    if then.next is Next.GO_BACK and crew.settings.handoffs:
        to, task = _sender(handoff), _revision(crew, handoff, report)
    elif then.next is Next.ASK_ANOTHER and crew.settings.handoffs:
        to = _another(crew, handoff)
        reason = f"a second opinion: {then.why}"
    if not to:
        return said, None
    updates = said.context_updates
    command = Command(
        goto=to,
        update=updates.variables_changed,
        artifacts=updates.artifacts_produced,
        reason=reason,
        task=task,
        tokens=said.audit.tokens_consumed,
    )
    return command, said


def _status(report: Report) -> str:
    return getattr(report, "status", None) or ""


def _sender(handoff: Handoff) -> str:
    """Who gave this work and does not wait for its answer; empty where the answer itself goes back."""
    sender = handoff.from_agent
    return "" if handoff.id == handoff.line_id or sender in {USER, HUMAN, SUPERVISOR, handoff.to_agent} else sender


def _revision(crew: Crew, handoff: Handoff, report: Report) -> str:
    """The task of the line with what has to be revised: the same again is the same work, and a loop."""
    first = crew.store.get(handoff.line_id)
    lines = [first.task if first is not None else handoff.task, "", "To revise:"]
    if isinstance(report, Review):
        for one in report.issues or ():
            place = ":".join(filter(None, [one.file, one.line]))
            lines.append(f"- [{one.severity}] {' - '.join(filter(None, [place, one.text, one.recommendation]))}")
    elif isinstance(report, Research):
        lines += [f"- {one}" for one in report.questions or ()]
    return "\n".join(lines)


def _another(crew: Crew, handoff: Handoff) -> str:
    """An agent that can do the same, reports the same, and has not worked on this yet; empty where there is none."""
    rows = crew.store.agents()
    own = crew.profiles[handoff.to_agent]
    asked = {one.to_agent for one in crew.store.find(workflow_id=handoff.workflow_id, line_id=handoff.line_id)}
    found = alternatives(
        handoff,
        [row.profile for row in rows],
        crew.settings.routes,
        asked,
        [row.profile.agent_id for row in rows if not row.available],
        {row.profile.agent_id: row.load for row in rows},
    )
    kinds = {row.profile.agent_id: row.profile.reports.kind for row in rows if row.profile.reports is not None}
    allowed = own.allowed_targets
    fits = (name for name in found if own.reports is not None and kinds.get(name) == own.reports.kind)
    return next((name for name in fits if allowed is None or name in allowed), "")


def _with_report(handoff: Handoff, said: Return) -> Return:
    """A failure that says nothing but its error, with a report of it as the answer."""
    if said.output is not None:
        return said
    timed_out = said.status == "timeout" or said.error.startswith(("TimedOut", "TimeoutError"))
    report = Error(
        title=handoff.to_agent,
        fault=Fault.TIMEOUT if timed_out else Fault.TOOL_FAILURE,
        status=Status.FAILED,
        description=said.error.replace("\r", " ").strip(),
        context=(Item("Task", " ".join(handoff.task.split())), Item("Failure point", f"attempt {handoff.attempt}")),
    )
    return replace(said, result=Result(body=render(report)))
