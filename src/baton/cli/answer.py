"""What a receiver, or a person in its place, says to a handoff."""

from __future__ import annotations

from typing import Any

from baton import config, errors
from baton.cli import given
from baton.cli.call import Call, argument, counting, seconds, verb
from baton.cli.records import AN_ID, clock_time, find, moved, next_step, over, record, route, variable
from baton.errors import BatonError, Conflict, Malformed, NotFound, Refused
from baton.lifecycle import State
from baton.protocol import codec
from baton.protocol.handoff import HUMAN, Handoff
from baton.protocol.results import Account, Defer, Escalate, Reject, Result, Return, Updates
from baton.stores.holder import readable

HANDOFF = argument("id", metavar="ID", help=AN_ID)
EPOCH = argument("--epoch", type=counting(1), metavar="N", help="the number of your claim, as `accept` printed it")
BY = argument("--by", metavar="NAME", help="who says so (default: you)")
REASON = argument("--reason", default="", metavar="TEXT", help="why")
WHY = argument("--reason", required=True, metavar="TEXT", help="why; the sender reads it")


@verb(
    argument("id", nargs="?", metavar="ID", help=f"which: {AN_ID}; without it the next one for --agent"),
    argument("--agent", metavar="NAME", help="take the next work of this agent"),
    argument(
        "--lease",
        default="1h",
        metavar="TIME",
        help="how long you may take before others get it (default 1h)",
    ),
    argument("--by", metavar="NAME", help="who takes it (default: you)"),
    examples=("baton handoff accept 3fa2c81b", "baton handoff accept --agent billing --lease 20m --json"),
)
def handoff_accept(call: Call) -> int:
    """Take offered work for this shell: nobody else gets it until the lease is over.

    Prints the id and the epoch of the claim. The claim lasts after this command has ended; finish it with
    `baton handoff return ID --epoch N`. Exit 1 when there is nothing to take or somebody was faster.
    """
    args = call.args
    if bool(args.id) == bool(args.agent):
        raise Malformed("baton handoff accept: name one handoff, or --agent NAME for its next work; --help tells more")
    relay = call.relay()
    wanted = find(relay, args.id) if args.id else None
    agent = wanted.to_agent if wanted else args.agent
    grant = relay.claim(
        agent,
        handoff_id=wanted.id if wanted else "",
        holder=f"shell:{args.by or config.person()}",
        lease=seconds(args.lease, "--lease"),
    )
    taken = grant.handoff
    if taken is None:
        raise NotFound(
            f"agent {agent}: nothing is offered to it; `baton handoff list --to {agent}` shows what there is"
        )
    if not grant.won:
        if grant.verdict.kind == "allow":
            raise Conflict(
                f"handoff {taken.id}: {taken.status} already{_holder(taken)}; only offered work can be taken"
            )
        kind = getattr(errors, grant.verdict.error, Refused)
        raise (kind if isinstance(kind, type) and issubclass(kind, BatonError) else Refused)(grant.verdict.reason)
    call.screen.document(record(taken))
    call.screen.line(f"{taken.id}  epoch {taken.epoch}  {route(taken)}  {taken.task}")
    call.screen.hint(
        f"yours until {clock_time(taken.due_at)}; this claim needs "
        f"`baton handoff return {taken.id[:8]} --epoch {taken.epoch} --text …`"
    )
    return 0


def _holder(handoff: Handoff) -> str:
    return f" by {readable(handoff.holder)}" if handoff.holder else ""


@verb(
    HANDOFF,
    EPOCH,
    argument("--text", metavar="TEXT", help="the answer; - reads standard input"),
    argument("--json-body", metavar="JSON", help="the answer as JSON; - reads standard input"),
    argument("--status", choices=("success", "partial", "failed"), default="success"),
    argument("--error", default="", metavar="TEXT", help="with --status failed: what went wrong"),
    argument("--escalate", metavar="WHY", help="send it up instead; --text or --json-body is what you found out"),
    argument("--tokens", type=counting(0), default=0, metavar="N", help="how many tokens the work took"),
    argument("--cost", type=float, default=0.0, metavar="MONEY", help="what it cost"),
    argument("--set", action="append", metavar="KEY=VALUE", help="change a shared variable; repeatable"),
    BY,
    examples=(
        'baton handoff return 3fa2c81b --epoch 1 --text "refunded 12 EUR" --tokens 840',
        'baton handoff return 3fa2c81b --epoch 1 --text done --set pages=12 --set decisions_made="no cache"',
        "baton handoff return 3fa2c81b --epoch 1 --status failed --error 'no such order'",
        "baton handoff return 3fa2c81b --epoch 1 --escalate 'over my limit' --text 'the order is real'",
    ),
)
def handoff_return(call: Call) -> int:
    """Give the answer back. A claim needs its epoch; a question to a person, or parked work, does not.

    When the claim is no longer current, the answer is stored as `late`, changes nothing, and exits with 3.
    """
    args = call.args
    relay = call.relay()
    handoff = find(relay, args.id)
    _answerable(call, handoff)
    if args.escalate is not None:
        return _up(call, handoff)
    answer = Return(
        status=args.status,
        result=_body(args.text, args.json_body),
        error=args.error or ("the agent says that it failed" if args.status == "failed" else ""),
        audit=Account(tokens_consumed=args.tokens, cost=args.cost),
        context_updates=Updates(variables_changed=dict(variable(pair) for pair in args.set or ())),
    )
    done = relay.give_back(handoff.id, answer, epoch=args.epoch, by=args.by or config.person())
    moved(call.screen, done, "the answer is stored")
    return 0


def _up(call: Call, handoff: Handoff) -> int:
    args = call.args
    if args.epoch is None:
        raise Malformed(f"handoff {handoff.id}: nobody stands above a person; answer it, reroute it or cancel it")
    if args.status != "success" or args.error or args.tokens or args.cost:
        raise Malformed("--escalate: goes with --text or --json-body only; it is no answer yet")
    value = Escalate(args.escalate, assessment=_body(args.text, args.json_body).body)
    moved(call.screen, call.relay().give_back(handoff.id, value, epoch=args.epoch), "it goes up")
    return 0


def _epoch_given(call: Call, handoff: Handoff) -> None:
    if handoff.state is State.CLAIMED and call.args.epoch is None:
        raise Malformed(
            f"handoff {handoff.id}: claimed{_holder(handoff)}; "
            f"say --epoch {handoff.epoch}, the number of that claim, if it is yours"
        )


def _answerable(call: Call, handoff: Handoff) -> None:
    """Say what has to be done first, where an answer without a claim would not be taken."""
    _epoch_given(call, handoff)
    asked = handoff.to_agent == HUMAN and handoff.state is State.OFFERED
    if call.args.epoch is not None or asked or handoff.state is State.PARKED:
        return
    if handoff.ended:
        raise Conflict(f"handoff {handoff.id}: {over(handoff)}; what comes with --epoch N is only noted as late")
    if handoff.state is State.OFFERED:
        take = f"take it first: `baton handoff accept {handoff.id[:8]}`"
        raise Conflict(f"handoff {handoff.id}: nobody has taken it; {take}")
    raise Conflict(f"handoff {handoff.id}: {handoff.status}; {next_step(handoff) or 'it goes on by itself'}")


def _body(text: str | None, body: str | None) -> Result:
    if text is not None and body is not None:
        raise Malformed("--text and --json-body: give one of them")
    if body is not None:
        value: Any = codec.read_json(given.text(body, "--json-body"), "--json-body")
        return Result(content_type="json", body=value)
    return Result(body=None if text is None else given.text(text, "--text"))


@verb(HANDOFF, WHY, EPOCH, examples=('baton handoff reject 3fa2c81b --reason "orders are not my field"',))
def handoff_reject(call: Call) -> int:
    """Say no before or after accepting. Another able agent gets the work, else a person decides."""
    return _say(call, Reject(call.args.reason), "rejected")


@verb(
    HANDOFF,
    argument("--for", dest="seconds", default="60s", metavar="TIME", help="for how long (default 60s)"),
    WHY,
    EPOCH,
    examples=('baton handoff defer 3fa2c81b --for 10m --reason "the bank is closed"',),
)
def handoff_defer(call: Call) -> int:
    """Put work off: it is offered again after a while, and the attempt does not count."""
    return _say(call, Defer(call.args.reason, seconds(call.args.seconds, "--for")), "put off")


def _say(call: Call, value: Reject | Defer, said: str) -> int:
    relay = call.relay()
    handoff = find(relay, call.args.id)
    _epoch_given(call, handoff)
    if handoff.state not in {State.OFFERED, State.CLAIMED} and call.args.epoch is None:
        raise Conflict(f"handoff {handoff.id}: {handoff.status}; only offered or claimed work can be {said}")
    moved(call.screen, relay.give_back(handoff.id, value, epoch=call.args.epoch), said)
    return 0


@verb(HANDOFF, REASON, BY, examples=('baton handoff cancel 3fa2c81b --reason "the customer called back"',))
def handoff_cancel(call: Call) -> int:
    """Call work off, with all that it delegated. Who works on it is told; an answer that still comes is not applied."""
    relay = call.relay()
    handoff = find(relay, call.args.id)
    done = relay.cancel(handoff.id, by=call.args.by or config.person(), reason=call.args.reason)
    moved(call.screen, done, "called off")
    return 0


@verb(
    HANDOFF,
    argument("agent", metavar="AGENT", help="who shall do it instead"),
    REASON,
    BY,
    examples=("baton handoff reroute 3fa2c81b refunds",),
)
def handoff_reroute(call: Call) -> int:
    """Give rejected or parked work to another agent."""
    relay = call.relay()
    handoff = find(relay, call.args.id)
    if relay.store.agent(call.args.agent) is None:
        raise errors.UnknownAgent(f"agent {call.args.agent}: not registered; `baton agents list` shows who is")
    done = relay.reroute(handoff.id, call.args.agent, by=call.args.by or config.person(), reason=call.args.reason)
    moved(call.screen, done, "rerouted")
    return 0
