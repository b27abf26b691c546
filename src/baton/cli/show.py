"""`handoff list` and `handoff show`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from baton.cli.call import Call, argument, counting, verb
from baton.cli.records import AN_ID, HANDOFFS, age, clock_time, find, full_id, next_step, record, route, row, table
from baton.cli.screen import Screen
from baton.lifecycle import State
from baton.protocol import codec
from baton.protocol.context import newest_first
from baton.protocol.results import document
from baton.protocol.variables import DECISIONS
from baton.stores.holder import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from baton.protocol.audit import Assessment, AuditRecord
    from baton.protocol.context import Message
    from baton.protocol.crossing import Crossing
    from baton.protocol.handoff import Handoff
    from baton.protocol.results import Return
    from baton.relay import Relay

# What is looked at when the time comes that the store has noted for a handoff.
LOOKS = {
    State.OFFERED: "whether a worker has taken it",
    State.CLAIMED: "whether its owner is still there, or its time is over",
    State.DEFERRED: "it is offered again",
    State.REJECTED: "who else can do it",
    State.WAITING: "the time to approve it is over",
}
RECENT = 5
CUT = 300
EVERY = 0.5


@verb(
    argument(
        "--state",
        action="append",
        type=lambda word: State.CLAIMED.value if word == "accepted" else word,
        choices=[state.value for state in State],
        metavar="STATE",
        help="where it stands: offered, waiting, claimed (or accepted, as the audit says), …; repeatable",
    ),
    argument("--to", metavar="AGENT"),
    argument("--from", dest="sender", metavar="AGENT"),
    argument("--workflow", metavar="ID", help=AN_ID),
    argument("--conversation", metavar="ID", help=AN_ID),
    argument("--limit", type=counting(1), default=50, metavar="N", help="the newest N (default 50)"),
    argument("--watch", action="store_true", help="keep looking until interrupted"),
    examples=("baton handoff list --state offered --to billing", "baton handoff list --watch"),
    columns=(HANDOFFS,),
)
def handoff_list(call: Call) -> int:
    """List the newest handoffs. Into a pipe: one per line, tab-separated, whole ids."""
    relay = call.relay()
    where = _where(call, relay)
    if call.args.watch:
        return _watch(call, relay, where)
    found = relay.store.find(limit=call.args.limit, newest=True, **where)
    table(call.screen, found, relay.store.now())
    if not found:
        empty(call, "no handoff here yet" if not where else "no handoff fits")
    return 0


def empty(call: Call, what: str) -> None:
    """Say that there is nothing, and how something would come to be."""
    call.screen.hint(f'{what}; `baton handoff send --to AGENT --task "…"` makes one, `baton demo` shows how it works')


def _where(call: Call, relay: Relay) -> dict[str, Any]:
    args = call.args
    where = {"state": args.state, "to_agent": args.to, "from_agent": args.sender}
    if args.workflow:
        where["workflow_id"] = full_id(relay, args.workflow, "workflow")
    if args.conversation:
        where["conversation_id"] = full_id(relay, args.conversation, "conversation")
    return {name: value for name, value in where.items() if value}


def _watch(call: Call, relay: Relay, where: dict[str, Any]) -> int:
    try:
        if call.screen.tty and not call.screen.as_json:
            _live(call, relay, where)
        else:
            _changes(call, relay, where)
    except KeyboardInterrupt:
        return 0
    return 0


def _live(call: Call, relay: Relay, where: dict[str, Any]) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            found = relay.store.find(limit=min(call.args.limit, 30), newest=True, **where)
            now = relay.store.now()
            lines = list(call.screen.drawn(HANDOFFS, [row(one, now, short=8) for one in found]))
            live.update(Text.from_ansi("\n".join(lines or ["nothing yet; Ctrl-C ends"])), refresh=True)
            time.sleep(EVERY)


def _changes(call: Call, relay: Relay, where: dict[str, Any]) -> None:
    """Into a pipe: every handoff as it is now, then each one again when it moved."""
    known: dict[str, tuple[str, int]] = {}
    version = None
    while True:
        if version != (version := relay.store.version()):
            found = relay.store.find(limit=call.args.limit, newest=True, **where)
            new = [one for one in reversed(found) if known.get(one.id) != (one.status, one.epoch)]
            known.update({one.id: (one.status, one.epoch) for one in new})
            table(call.screen, new, relay.store.now())
            call.screen.flush()
        time.sleep(EVERY)


@verb(
    argument("id", metavar="ID", help=AN_ID),
    argument("--full", action="store_true", help="every message and value in full length"),
    examples=("baton handoff show 3fa2c81b --full",),
)
def handoff_show(call: Call) -> int:
    """Show one handoff: the record, variables, messages that crossed, what each level said when it went up, the answer
    and the audit timeline.
    """
    relay = call.relay()
    handoff = find(relay, call.args.id)
    variables, files = relay.variables(handoff.id), relay.files_in_progress(handoff.workflow_id)
    messages = list(newest_first(handoff.context.history_ref, relay.store.fetch))[::-1]
    crossing = relay.crossing(handoff.id)
    answer = relay.store.returned(handoff.id)
    trail = relay.audit.query(handoff_id=handoff.id)
    if call.screen.as_json:
        call.screen.document(
            {
                "handoff": record(handoff, state=variables, files_in_progress=files),
                "variables": variables,
                "messages": messages,
                "crossing": crossing,
                "assessments": relay.assessments(handoff.id),
                "return": document(answer)["return"] if answer else None,
                "audit": trail,
            }
        )
        return 0
    _head(call.screen, handoff, relay.store.now())
    cut = None if call.args.full else CUT
    _variables(call.screen, variables, files, cut)
    _messages(call.screen, messages, cut)
    _crossed(call.screen, crossing)
    _assessed(call.screen, relay.assessments(handoff.id), cut)
    _answered(call.screen, answer, cut)
    _timeline(call.screen, trail)
    if following := next_step(handoff):
        call.screen.hint(f"next: {following}")
    return 0


def _head(screen: Screen, handoff: Handoff, now: int) -> None:
    context, protocol = handoff.context, handoff.return_protocol
    needs = [
        f"{one.capability_id}={one.min_proficiency:g}" if one.min_proficiency else one.capability_id
        for one in handoff.validation.required_capabilities
    ]
    budget = handoff.budget
    spend = (f"{budget.max_tokens} tokens" if budget.max_tokens else "", budget.max_cost) if budget else ()
    screen.line(f"{handoff.id}  {route(handoff)}", "bold")
    screen.fields(
        [
            ("state", handoff.status),
            ("task", handoff.task),
            ("reason", handoff.reason),
            ("type", handoff.type),
            ("priority", handoff.priority),
            ("offered", f"{clock_time(handoff.timestamp)} ({age(now, handoff.timestamp)} ago)"),
            ("deadline", clock_time(handoff.deadline)),
            ("next look", _next_look(handoff)),
            ("attempt", f"{handoff.attempt} of {handoff.max_attempts}"),
            ("claim", f"{handoff.epoch} by {readable(handoff.holder)}" if handoff.holder else ""),
            ("timeout", f"{protocol.timeout:g} s, then {protocol.on_timeout}" if protocol.timeout else ""),
            ("budget", ", ".join(str(one) for one in spend if one)),
            ("requires", ", ".join(needs)),
            ("risk", handoff.audit.risk_level),
            ("rationale", handoff.audit.decision_rationale),
            ("artifacts", ", ".join(one.path for one in context.artifacts)),
            ("warnings", "; ".join(handoff.warnings)),
            ("parent", handoff.parent_id),
            ("workflow", handoff.workflow_id),
            ("conversation", handoff.conversation_id),
        ]
    )


def _next_look(handoff: Handoff) -> str:
    if handoff.due_at is None or handoff.due_at == handoff.deadline:
        return ""
    return f"{clock_time(handoff.due_at)}: {LOOKS.get(handoff.state, '')}".rstrip(": ")


def _variables(screen: Screen, variables: Mapping[str, Any], files: list[dict[str, str]], cut: int | None) -> None:
    decided = variables.get(DECISIONS, ())
    if rest := [name for name in variables if name != DECISIONS]:
        screen.heading("variables")
        for name in rest:
            screen.line(f"  {name} = {codec.canonical(variables[name]).decode()[:cut]}")
    if decided:
        screen.heading("decisions")
        for one in decided:
            screen.line(f"  {one['made_by']}: {one['description'][:cut]}")
    if files:
        screen.heading("files in progress")
        for one in files:
            screen.line(f"  {one['path']}  {one['lock_type']}  {one['owner']}")


def _messages(screen: Screen, messages: list[Message], cut: int | None) -> None:
    shown = messages if cut is None else messages[-RECENT:]
    if not shown:
        return
    more = f" (the last {RECENT} of {len(messages)}; --full shows all)" if len(shown) < len(messages) else ""
    screen.heading(f"messages{more}")
    for one in shown:
        screen.line(f"  {one.name or one.role}:", "dim")
        screen.block(one.content[:cut] + ("…" if cut and len(one.content) > cut else ""), indent="    ")


def _assessed(screen: Screen, said: list[Assessment], cut: int | None) -> None:
    if said:
        screen.heading("what each level said")
    for one in said:
        screen.line(f"  {one.agent} → {one.to}: {one.reason}")
        if one.content is not None:
            text = one.content if isinstance(one.content, str) else codec.canonical(one.content).decode()
            screen.block(text[:cut], indent="    ")


def _crossed(screen: Screen, crossing: Crossing) -> None:
    had, room, told = crossing.had, crossing.max_messages, crossing.summary.bytes
    most = "" if room is None else f", at most {room}"
    reasons = (
        (crossing.by_kind, "of a kind that stays behind"),
        (crossing.by_room, "for which there was no room"),
    )
    dropped = ", ".join(f"{count} {why}" for count, why in reasons if count)
    summed_up = f" ({crossing.summarised} in a summary)" if crossing.summarised else ""
    size = f"{crossing.passed.bytes} of {had.bytes} bytes of messages, {crossing.state.bytes} of variables"
    screen.heading("what crossed")
    screen.fields(
        [
            ("messages", f"{had.count - crossing.dropped} of {had.count} ({crossing.mode}{most})"),
            ("not passed on", dropped + summed_up),
            ("variables", ", ".join(crossing.variables)),
            ("withheld", ", ".join(crossing.withheld)),
            ("artifacts", len(crossing.artifacts) or ""),
            ("size", f"{size}, {told} of the summary" if told else size),
            ("tokens", f"≈ {crossing.tokens} to read; the whole history has ≈ {had.tokens} (estimated)"),
        ]
    )


def _answered(screen: Screen, answer: Return | None, cut: int | None) -> None:
    if answer is None:
        return
    screen.heading(f"answer of {answer.from_agent or 'nobody'}: {answer.status}")
    if answer.error:
        screen.line(f"  {answer.error}", "bad")
    if answer.audit.notes:
        screen.line(f"  {answer.audit.notes}", "dim")
    if answer.output is not None:
        text = answer.output if isinstance(answer.output, str) else codec.canonical(answer.output).decode()
        screen.block(text[:cut])


def _timeline(screen: Screen, trail: list[AuditRecord]) -> None:
    screen.heading("audit")
    for one in trail:
        by = f" by {readable(one.by)}" if one.by and one.event_type != "accepted" else ""
        tokens = f" ({one.tokens_consumed} tokens)" if one.tokens_consumed else ""
        reason = f": {one.reason}" if one.reason else ""
        screen.line(f"  {one.timestamp:%H:%M:%S.%f}"[:-3] + f"  {one.event_type}{by}{tokens}{reason}")
