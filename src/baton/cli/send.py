"""`handoff send`."""

from __future__ import annotations

import time
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from baton import clock, errors
from baton.cli import given
from baton.cli.call import Call, alone, argument, counting, seconds, verb
from baton.cli.records import moved, next_step, record, variable
from baton.errors import Malformed, TimedOut, Unfinished, UnknownAgent
from baton.lifecycle import State
from baton.protocol import codec
from baton.protocol.artifacts import Artifact, inside
from baton.protocol.handoff import (
    HUMAN,
    USER,
    Handoff,
    Rationale,
    Requirement,
    ReturnProtocol,
    Validation,
    as_priority,
    read_handoff,
)
from baton.protocol.limits import RISKS, Budget, Limits
from baton.protocol.results import Return, document

if TYPE_CHECKING:
    from baton.relay import Relay

replace = msgspec.structs.replace
TYPES = ("sequential", "delegation", "escalation")
SWEEP = 1.0


@verb(
    argument("--from", dest="sender", metavar="AGENT", help="who hands over (default: user)"),
    argument("--to", metavar="AGENT", help="who shall do it; `human` asks a person"),
    argument("--task", metavar="TEXT", help="what has to be done; - reads standard input"),
    argument("--reason", metavar="TEXT", help="why it is handed over"),
    argument("--priority", metavar="NAME", help="critical, high, normal or low; P0 to P2 and urgent too"),
    argument("--timeout", metavar="TIME", help='how long the answer may take: 90, "5m", "2h", PT30S'),
    argument("--on-timeout", choices=("retry", "escalate", "fail"), help="what happens without an answer"),
    argument("--on-failure", choices=("retry", "escalate", "fail"), help="what happens after an error"),
    argument("--type", choices=TYPES, help="sequential moves ownership, delegation wants an answer"),
    argument("--require", action="append", metavar="CAP[=MIN]", help="a capability that the work needs; repeatable"),
    argument("--budget", type=counting(0), metavar="TOKENS", help="the most tokens it may use"),
    argument("--max-cost", type=float, metavar="MONEY", help="the most money it may cost"),
    argument("--risk", choices=RISKS, help="how risky it is"),
    argument("--rationale", metavar="TEXT", help="the decision behind it, for the audit"),
    argument("--artifact", action="append", metavar="PATH", help="a file that belongs to it; repeatable"),
    argument("--set", action="append", metavar="KEY=VALUE", help="a shared variable, JSON or text; repeatable"),
    argument("--conversation", metavar="ID", help="the conversation that it belongs to: its id in full, or a new one"),
    argument("--approval", action="store_true", help="a person approves before it starts"),
    argument("--file", metavar="PATH", help="read the request from a JSON document; - is standard input"),
    argument(
        "--wait", nargs="?", const="", metavar="TIME", help="wait for the answer, without TIME for ever, and print it"
    ),
    examples=(
        'baton handoff send --from triage --to billing --task "Refund order 7" --require refunds=0.8',
        "baton handoff send --file request.json --wait 60",
    ),
)
def handoff_send(call: Call) -> int:
    """Offer work to an agent. It is written down before this returns; whoever serves the agent takes it.

    With --wait the answer is printed; exit 124 when it does not come in time (the work goes on).
    """
    alone("send a handoff")
    patience = seconds(call.args.wait, "--wait") if call.args.wait else inf
    request = _request(call)
    limits = Limits(approve=("*",)) if call.args.approval else None
    relay = call.relay(create=True)
    try:
        made = relay.hand_off(request, limits=limits)
    except UnknownAgent as error:
        raise UnknownAgent(f"{error}; or start its worker first: `baton worker --app …` registers its agents") from None
    if call.args.wait is None:
        moved(call.screen, made, made.task)
        return 0
    if made.state in {State.WAITING, State.PARKED, State.REJECTED} or made.to_agent == HUMAN:
        call.screen.hint(f"{made.id} is {made.status}; {next_step(made)}")
    answer = _answer(relay, made, patience)
    call.screen.document({"handoff": record(relay.get(made.id)), **document(answer)})
    body = answer.output
    text = body if isinstance(body, str) else codec.canonical(body).decode() if body is not None else ""
    if text:
        call.screen.block(text, indent="")
    if answer.status in {"success", "partial"}:
        return 0
    name, _, _ = answer.error.partition(": ")
    kind = getattr(errors, name, Unfinished)
    raise (kind if isinstance(kind, type) and issubclass(kind, errors.BatonError) else Unfinished)(
        f"handoff {made.id}: {answer.error or answer.status}; `baton handoff show {made.id[:8]}` tells more"
    )


def _request(call: Call) -> Handoff:
    args = call.args
    if args.file:
        base = read_handoff(given.data(args.file, "--file"))
    elif not args.to or args.task is None:
        raise Malformed("baton handoff send: --to and --task are needed (or --file); --help shows an example")
    else:
        base = Handoff(from_agent=USER, to_agent=args.to)
    said: dict[str, Any] = {
        "from_agent": args.sender,
        "to_agent": args.to,
        "task": _task(args.task),
        "reason": args.reason,
        "type": args.type,
        "conversation_id": args.conversation,
        "priority": args.priority and as_priority(args.priority),
    }
    request = replace(base, **{name: value for name, value in said.items() if value is not None})
    return _conditions(call, _context(call, request))


def _task(said: str | None) -> str | None:
    task = None if said is None else given.text(said, "--task")
    if task is not None and not task.strip():
        raise Malformed("--task: nothing stands there; say what has to be done")
    return task


def _conditions(call: Call, request: Handoff) -> Handoff:
    args = call.args
    if args.timeout or args.on_timeout or args.on_failure:
        protocol: ReturnProtocol = request.return_protocol
        wished = {
            "timeout": args.timeout and seconds(args.timeout, "--timeout"),
            "on_timeout": args.on_timeout,
            "on_failure": args.on_failure,
        }
        terms = {name: value for name, value in wished.items() if value}
        request = replace(request, return_protocol=replace(protocol, expected=True, **terms))
    if args.require:
        wanted = tuple(map(_requirement, args.require))
        strict: Validation = request.validation
        request = replace(request, validation=replace(strict, required_capabilities=wanted))
    if args.budget is not None or args.max_cost is not None:
        request = replace(request, budget=Budget(max_tokens=args.budget, max_cost=args.max_cost))
    if args.risk or args.rationale:
        said = request.audit
        rationale = Rationale(
            decision_rationale=args.rationale or said.decision_rationale,
            risk_level=args.risk or said.risk_level,
        )
        request = replace(request, audit=rationale)
    return request


def _requirement(text: str) -> Requirement:
    name, _, least = text.partition("=")
    try:
        return Requirement(capability_id=name, min_proficiency=float(least or 0))
    except ValueError:
        raise Malformed(f"--require {text}: write a name, or a name and a number: refunds=0.8") from None


def _context(call: Call, request: Handoff) -> Handoff:
    files = [_artifact(path, request.from_agent) for path in call.args.artifact or ()]
    values = dict(variable(pair) for pair in call.args.set or ())
    context = request.context
    if not files and not values:
        return request
    variables = {**context.context_variables, **values}
    return replace(
        request, context=replace(context, artifacts=(*context.artifacts, *files), context_variables=variables)
    )


def _artifact(path: str, by: str) -> Artifact:
    clean = inside(path, [str(Path.cwd())])
    file = Path(clean)
    if not file.exists():
        raise Malformed(f"--artifact {path}: there is no such file; name one that is there, by its path from here")
    return Artifact(id=file.name, path=clean, created_by=by, digest=given.digest(file))


def _answer(relay: Relay, made: Handoff, patience: float) -> Return:
    """Wait for the end of the line; meanwhile what is due anywhere is moved, for there may be no worker."""
    end = clock.monotonic() + patience
    swept, pause = clock.monotonic(), 0.01
    while True:
        head = relay.get(made.id)
        if head.answer_id or head.state == "cancelled":
            return relay.store.returned(made.id) or Return(status="failed", error="Cancelled: called off")
        now = clock.monotonic()
        if now >= end:
            why = "; ".join(relay.waits_for(made.workflow_id))
            raise TimedOut(
                f"handoff {made.id}: no answer within {patience:g} s: {why}; it stays there, "
                f"`baton handoff show {made.id[:8]}` tells more"
            )
        if now - swept >= SWEEP:
            relay.recover()
            swept = now
        time.sleep(min(pause, max(0.0, end - now)))
        pause = min(pause * 1.5, 0.2)
