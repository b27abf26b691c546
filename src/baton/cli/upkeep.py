"""`recover` and `breaker`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from baton.cli.call import Call, argument, verb
from baton.cli.records import clock_time, record, route
from baton.errors import NotFound
from baton.guards.breaker import cool_down, state
from baton.protocol.codec import to_time

if TYPE_CHECKING:
    from baton.guards.base import Breaker
    from baton.protocol.handoff import Handoff
    from baton.relay import Relay


@verb(
    argument("--dry-run", action="store_true", help="only say what is due or orphaned"),
    examples=("baton recover --dry-run", "baton recover"),
)
def recover(call: Call) -> int:
    """Move what is due (deadlines, acknowledgements, retries) and free what dead workers of this host held.

    Every worker does this by itself all the time; this is for a store without workers.
    """
    relay = call.relay()
    head = ("HANDOFF", "WHAT", "FROM → TO", "WHY")
    short = 8 if call.screen.tty else None
    if call.args.dry_run:
        found = stuck(relay)
        rows = [(one.id[:short], one.status, route(one), why) for one, why in found]
        call.screen.table(head, rows, ({"why": why, "handoff": record(one)} for one, why in found))
        call.screen.hint("`baton recover` decides about these" if found else "nothing is due, nothing is orphaned")
        return 0
    done = [(step, relay.get(step.id)) for step in relay.recover()]
    rows = [(one.id[:short], step.event.value, route(one), step.reason) for step, one in done]
    documents = ({"event": step.event.value, "reason": step.reason, "handoff": record(one)} for step, one in done)
    call.screen.table(head, rows, documents)
    if not done:
        call.screen.hint("nothing was due, nothing was orphaned")
    return 0


def stuck(relay: Relay) -> list[tuple[Handoff, str]]:
    """What is due or orphaned, and why."""
    from baton.stores.holder import life, readable

    orphans = [
        (relay.get(handoff_id), f"{readable(name)} died")
        for handoff_id, name in relay.store.held()
        if life(name) == "dead"
    ]
    named = {one.id for one, _ in orphans}
    due = [(one, f"due since {clock_time(one.due_at)}") for one in relay.store.due() if one.id not in named]
    return [*orphans, *due]


def breaker_record(one: Breaker, now: int) -> dict[str, Any]:
    """A breaker, and what it means now."""
    again = one.opened_at + cool_down(one) if one.opened_at is not None else None
    return {
        "subject": one.subject,
        "state": state(one, now),
        "failure": one.failure,
        "failures": one.failures,
        "opens": one.opens,
        "tries_again_at": to_time(again) if again is not None else None,
        "probing": one.probing,
    }


@verb(examples=("baton breaker list",))
def breaker_list(call: Call) -> int:
    """List breakers: three failures in a row open one, after a pause one handoff tries whether it works again."""
    relay = call.relay()
    found = [breaker_record(one, relay.store.now()) for one in relay.store.breakers()]
    rows = [
        (one["subject"], one["state"], one["failure"], one["failures"], clock_time(one["tries_again_at"]))
        for one in found
    ]
    call.screen.table(("SUBJECT", "STATE", "FAILURE", "IN A ROW", "TRIES AGAIN"), rows, found)
    call.screen.hint("`baton breaker reset SUBJECT` closes one" if found else "no agent and no route has failed lately")
    return 0


@verb(
    argument("subject", metavar="SUBJECT", help='an agent, "agent:NAME" or "route:FROM->TO"'),
    examples=("baton breaker reset billing", "baton breaker reset 'route:triage->billing'"),
)
def breaker_reset(call: Call) -> int:
    """Close the breakers of an agent or route by hand, for example after its fault was cured."""
    given = call.args.subject
    subject = given if given.startswith(("agent:", "route:")) else f"agent:{given}"
    count = call.relay().store.reset_breaker(subject)
    if not count:
        raise NotFound(f"breaker {subject}: there is none; `baton breaker list` shows what is")
    call.screen.document({"subject": subject, "closed": count})
    call.screen.line(f"{subject}  closed")
    return 0
