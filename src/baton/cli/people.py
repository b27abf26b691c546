"""What people decide, and what they look back at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from baton import clock, config
from baton.cli import beside
from baton.cli.answer import BY, HANDOFF, REASON
from baton.cli.call import Call, argument, counting, verb
from baton.cli.records import AN_ID, HANDOFFS, age, find, full_id, lasting, moved, next_step, over, record, route, table
from baton.cli.screen import Columns
from baton.cli.show import empty
from baton.errors import Conflict, NotFound
from baton.lifecycle import AUDIT_NAME, Event, State
from baton.protocol.codec import to_time
from baton.protocol.handoff import HUMAN
from baton.stores.holder import readable

if TYPE_CHECKING:
    from baton.board.alerts import Alert
    from baton.protocol.handoff import Handoff
    from baton.relay import Relay

WAITING = Columns(("ID", "WHAT", "SINCE", "FROM → TO", "TASK", "WHY"), spare=("SINCE", "WHY"))
ALERTS = Columns(("ID", "ABOUT", "SINCE", "RESOLVED BY", "TEXT"), spare=("SINCE", "RESOLVED BY"), folded=True)
WORKFLOWS = Columns(
    ("WORKFLOW", "CONVERSATION", "STATUS", "SINCE", "HANDOFFS", "FIRST", "TASK"),
    spare=("CONVERSATION", "HANDOFFS", "FIRST"),
)


@verb(HANDOFF, BY, REASON, examples=('baton approve 3fa2c81b --reason "checked with Ana"',))
def approve(call: Call) -> int:
    """Let a waiting handoff start. Works days later, and after every restart."""
    relay = call.relay()
    handoff = _waits(relay, call.args.id)
    done = relay.approve(handoff.id, by=call.args.by or config.person(), reason=call.args.reason)
    moved(call.screen, done, "approved")
    return 0


@verb(HANDOFF, BY, REASON, examples=('baton deny 3fa2c81b --reason "over the limit"',))
def deny(call: Call) -> int:
    """Refuse a waiting handoff for good. Who waits for it learns why."""
    relay = call.relay()
    handoff = _waits(relay, call.args.id)
    done = relay.deny(handoff.id, by=call.args.by or config.person(), reason=call.args.reason)
    moved(call.screen, done, "denied")
    return 0


def _waits(relay: Relay, given: str) -> Handoff:
    """The handoff, if it waits for an approval; else say what it is instead."""
    handoff = find(relay, given)
    if handoff.state is not State.WAITING:
        raise Conflict(f"handoff {handoff.id}: {_instead(relay, handoff)}")
    return handoff


def _instead(relay: Relay, handoff: Handoff) -> str:
    if handoff.approved_by:
        return f"approved by {handoff.approved_by} already; it is {handoff.status}"
    denied = AUDIT_NAME[Event.DENY]
    if said := [one.by for one in relay.audit.query(handoff_id=handoff.id) if one.event_type == denied]:
        return f"denied by {said[-1]} already; that is final"
    if handoff.ended:
        return f"{over(handoff)}; there is nothing to approve or deny"
    if handoff.to_agent == HUMAN:
        return f"this is a question: `baton handoff return {handoff.id[:8]} --text …` answers it"
    return f"{handoff.status}, so there is nothing to approve; {next_step(handoff) or 'it goes on by itself'}"


def _kind(handoff: Handoff) -> str:
    return {State.WAITING: "approval", State.PARKED: "parked"}.get(handoff.state, "question")


def _why(handoff: Handoff, alerts: dict[str, str]) -> str:
    if handoff.type == "escalation" and handoff.to_agent == HUMAN:
        return handoff.audit.decision_rationale
    return alerts.get(handoff.id, "") if handoff.state is State.PARKED else ""


@verb(examples=("baton waiting",), columns=(WAITING,))
def waiting(call: Call) -> int:
    """List what waits for a person: approvals, questions, work that nobody could do, and what waits on the board."""
    board = beside.marked_board()
    staged = [] if board is None else beside.waiting(board, clock.now())
    if board is not None and call.missing:
        _on_board(call, staged)
        return 0
    relay = call.relay()
    found = relay.waiting()
    now = relay.store.now()
    why = {one.subject: one.text for one in relay.alerts()}
    rows = [
        (
            one.id[: 8 if call.screen.tty else None],
            _kind(one),
            age(now, one.timestamp),
            route(one),
            one.task,
            _why(one, why),
        )
        for one in found
    ]
    documents = (
        {
            "kind": _kind(one),
            "why": _why(one, why) or why.get(one.id, ""),
            "assessments": relay.assessments(one.id),
            "handoff": record(one),
        }
        for one in found
    )
    shown = [*rows, *(row for row, _ in staged)]
    call.screen.table(WAITING, shown, [*documents, *(document for _, document in staged)])
    if found:
        call.screen.hint(f"next: {next_step(found[0])}")
    elif staged:
        call.screen.hint("next: `baton review` walks through what waits on the board")
    else:
        call.screen.hint("nothing waits for a person; `baton handoff list` shows what is under way")
    return 0


def _on_board(call: Call, staged: list[tuple[tuple[str, ...], dict[str, object]]]) -> None:
    """What waits where there is a board and no store."""
    call.screen.table(WAITING, (row for row, _ in staged), (document for _, document in staged))
    call.screen.hint("next: `baton review` walks through it" if staged else "nothing waits for a person on this board")


@verb(
    argument("--resolve", metavar="ID", help=f"mark one as dealt with: {AN_ID}"),
    argument("--all", action="store_true", help="the resolved ones too"),
    BY,
    examples=("baton alerts", "baton alerts --resolve 9d1e"),
    columns=(ALERTS,),
)
def alerts(call: Call) -> int:
    """List what a person should look at, in the store and on the board, or mark an alert as dealt with."""
    board = beside.marked_board()
    if board is not None and call.args.resolve and Path(call.args.resolve).is_file():
        beside.resolve(board, call.args.resolve, call.args.by or config.person())
        call.screen.document({"id": call.args.resolve, "resolved_by": call.args.by or config.person()})
        call.screen.line(f"{call.args.resolve}  resolved by {call.args.by or config.person()}")
        return 0
    more = [] if board is None else beside.alerts(board, resolved=call.args.all)
    if board is not None and call.missing and not call.args.resolve:
        _alerts(call, [], [], more)
        return 0
    relay = call.relay()
    if call.args.resolve:
        alert_id = full_id(relay, call.args.resolve, "alert")
        by = call.args.by or config.person()
        if not relay.store.resolve_alert(alert_id, by):
            raise Conflict(f"alert {alert_id}: resolved already; `baton alerts --all` shows by whom")
        call.screen.document({"id": alert_id, "resolved_by": by})
        call.screen.line(f"{alert_id}  resolved by {by}")
        return 0
    found = relay.store.alerts(unresolved=not call.args.all)
    now = relay.store.now()
    short = 8 if call.screen.tty else None
    rows: list[tuple[object, ...]] = [
        (
            one.id[:short],
            one.subject if one.subject.startswith("agent:") else one.subject[:short],
            lasting((now - one.raised_at) / 1e6),
            readable(one.resolved_by),
            one.text,
        )
        for one in found
    ]
    documents: list[dict[str, object]] = [
        {
            "id": one.id,
            "subject": one.subject,
            "text": one.text,
            "raised_at": to_time(one.raised_at),
            "resolved_at": to_time(one.resolved_at) if one.resolved_at else None,
            "resolved_by": one.resolved_by,
        }
        for one in found
    ]
    _alerts(call, rows, documents, more)
    return 0


def _alerts(call: Call, rows: list[tuple[object, ...]], documents: list[dict[str, object]], more: list[Alert]) -> None:
    """Those of the store, then those of the board."""
    now = clock.now()
    shown = [*rows, *(beside.alert_row(one, now) for one in more)]
    call.screen.table(ALERTS, shown, [*documents, *(beside.alert_document(one) for one in more)])
    call.screen.hint("`baton alerts --resolve ID` marks one as dealt with" if shown else "no alert is open")


@verb(
    argument("conversation", nargs="?", metavar="CONVERSATION", help=f"or a workflow or handoff: {AN_ID}"),
    argument("--limit", type=counting(1), default=50, metavar="N", help="the newest N workflows (default 50)"),
    examples=("baton history", "baton history 3fa2c81b"),
    columns=(WORKFLOWS, HANDOFFS._replace(of="a conversation")),
)
def history(call: Call) -> int:
    """List the newest workflows, or all handoffs of one conversation in order."""
    relay = call.relay()
    if call.args.conversation:
        table(call.screen, relay.history(_conversation(relay, call.args.conversation)), relay.store.now())
        return 0
    found = relay.store.workflows(limit=call.args.limit)
    now = relay.store.now()
    short = 8 if call.screen.tty else None
    rows = []
    documents = []
    for one in found:
        root = relay.get(one.root_id)
        result = relay.result(one.id)
        since = lasting((now - one.created_at) / 1e6)
        rows.append(
            (
                one.id[:short],
                one.conversation_id[:short],
                result.status,
                since,
                len(result.handoffs),
                root.to_agent,
                root.task,
            )
        )
        documents.append(
            {
                "workflow_id": one.id,
                "conversation_id": one.conversation_id,
                "status": result.status,
                "created_at": to_time(one.created_at),
                "handoffs": len(result.handoffs),
                "agents": one.agents,
                "tokens": one.tokens_spent,
                "task": root.task,
            }
        )
    call.screen.table(WORKFLOWS, rows, documents)
    if not found:
        empty(call, "no workflow yet")
    return 0


def _conversation(relay: Relay, given: str) -> str:
    try:
        return full_id(relay, given, "conversation")
    except NotFound:
        return find(relay, given).conversation_id
