"""`recover` and `breaker`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baton.cli.call import Call, argument, verb
from baton.cli.records import clock_time, record, route
from baton.cli.screen import Columns
from baton.errors import NotFound
from baton.lifecycle import AUDIT_NAME
from baton.stores.measure import resting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from baton.protocol.handoff import Handoff
    from baton.relay import Relay

DUE = Columns(("HANDOFF", "WHAT", "FROM → TO", "WHY"), spare=("FROM → TO",), folded=True)
STUCK = Columns(("ITEM", "WHAT", "WHY", "ACTION"), of="tagged work", folded=True)
BREAKERS = Columns(("SUBJECT", "STATE", "FAILURE", "IN A ROW", "TRIES AGAIN"), spare=("IN A ROW", "FAILURE"))


@verb(
    argument("--dry-run", action="store_true", help="only say what is due or orphaned"),
    argument(
        "--on-dead", choices=("requeue", "alert"), default="requeue", help="tagged work of a dead worker: again, or ask"
    ),
    examples=("baton recover --dry-run", "baton recover", "baton recover --on-dead alert"),
    columns=(DUE, STUCK),
)
def recover(call: Call) -> int:
    """Move what is due and free what dead workers held: handoffs of the store, and tagged work of the board.

    Every worker and the daemon do this by themselves all the time; this is for when none runs. Tagged work whose worker
    is gone is done if its response is there, else back in the queue while its approval stands, three times at most.
    """
    from baton.cli.audit_board import board_here
    from baton.cli.beside import marked_board
    from baton.cli.recovered import recover_board

    if (board := board_here() or (marked_board() if call.missing else None)) is not None:
        recover_board(call, board, STUCK)
        if call.missing:
            return 0
    relay = call.relay()
    short = 8 if call.screen.tty else None
    if call.args.dry_run:
        found = stuck(relay)
        rows = [(one.id[:short], one.status, route(one), why) for one, why in found]
        call.screen.table(DUE, rows, ({"why": why, "handoff": record(one)} for one, why in found))
        call.screen.hint("`baton recover` decides about these" if found else "nothing is due, nothing is orphaned")
        return 0
    done = list(_decided(relay))
    rows = [(one.id[:short], event, route(one), why) for event, one, why in done]
    documents = ({"event": event, "reason": why, "handoff": record(one)} for event, one, why in done)
    call.screen.table(DUE, rows, documents)
    if not done:
        call.screen.hint("nothing was due, nothing was orphaned")
    return 0


def _decided(relay: Relay) -> Iterator[tuple[str, Handoff, str]]:
    """What one look did to all that was due: its event, and why; also where nothing could be done yet."""
    due = relay.store.due()
    steps = relay.recover()
    yield from ((AUDIT_NAME[step.event], relay.get(step.id), step.reason) for step in steps)
    told = {alert.subject: alert.text for alert in relay.alerts()}
    moved = {step.id for step in steps}
    for before in due:
        now = relay.get(before.id)
        if now.id not in moved and (now.state, now.epoch) == (before.state, before.epoch):
            again = f"the next look is at {clock_time(now.due_at)}" if now.due_at else "nothing to do yet"
            yield "postponed", now, told.get(now.id, again)


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


@verb(examples=("baton breaker list",), columns=(BREAKERS,))
def breaker_list(call: Call) -> int:
    """List breakers: three failures in a row open one, after a pause one handoff tries whether it works again."""
    relay = call.relay()
    found = [resting(one, relay.store.now()) for one in relay.store.breakers()]
    rows = [(one.subject, one.state, one.failure, one.failures, clock_time(one.tries_again_at)) for one in found]
    call.screen.table(BREAKERS, rows, found)
    call.screen.hint("`baton breaker reset SUBJECT` closes one" if found else "no agent and no route has failed lately")
    return 0


@verb(
    argument("subject", metavar="SUBJECT", help='an agent with the routes to it, or one "route:FROM->TO"'),
    examples=("baton breaker reset billing", "baton breaker reset 'route:triage->billing'"),
)
def breaker_reset(call: Call) -> int:
    """Close the breakers of an agent or route by hand, for example after its fault was cured."""
    subject = call.args.subject
    count = call.relay().reset_breaker(subject)
    if not count:
        raise NotFound(f"breaker {subject}: there is none; `baton breaker list` shows what is")
    call.screen.document({"subject": subject, "closed": count})
    call.screen.line(f"{subject}  closed")
    return 0
