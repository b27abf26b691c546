"""Alerts of the board: raise one, see which are open, say that one is over."""

from __future__ import annotations

from baton import clock
from baton.board import alerts
from baton.board.actor import from_shell
from baton.board.requests import inside
from baton.board.root import board_of
from baton.cli import given
from baton.cli.call import Call, argument, verb
from baton.cli.records import lasting
from baton.cli.screen import Columns
from baton.protocol.codec import to_time

ALERTS = Columns(("ALERT", "ABOUT", "SINCE", "BY", "TEXT"), spare=("BY", "SINCE"), folded=True)


@verb(
    argument("topic", metavar="TOPIC", help="what is wrong, in a few words; the file is named after it"),
    argument("--what", default="", metavar="TEXT", help="what changed; - is standard input"),
    argument("--impact", default="", metavar="TEXT", help="whom it concerns, and how"),
    argument("--duration", default="", metavar="TEXT", help="how long it is expected to last"),
    argument("--workaround", default="", metavar="TEXT", help="what to do meanwhile"),
    argument("--in", dest="folder", default="", metavar="DIR", help="the session it is of; else sessions/ALERTS"),
    examples=('baton alert raise "Staging is down" --what "the database moves" --duration "until noon"',),
    stored=False,
)
def alert_raise(call: Call) -> int:
    """Write an alert, tagged #active-alert: people see it in `baton review` and `baton alerts` until it is resolved.

    One on the same topic that is open there is left as it is.
    """
    args = call.args
    board, _ = board_of(".")
    said = [given.text(text, "--what") for text in (args.what, args.impact, args.duration, args.workaround)]
    folder = board.name(str(inside(board, args.folder))) if args.folder else alerts.FOLDER
    path = alerts.raise_alert(board, args.topic, dict(zip(alerts.FIELDS, said, strict=True)), from_shell(), folder)
    call.screen.document({"path": path})
    call.screen.line(f"{path}  #active-alert")
    call.screen.hint(f"when it is over: `baton alert resolve {path} --action …`")
    return 0


@verb(
    argument("--all", action="store_true", help="the resolved ones too"),
    examples=("baton alert list",),
    columns=(ALERTS,),
    stored=False,
)
def alert_list(call: Call) -> int:
    """List the open alerts of this board, the oldest first. `baton alerts` shows those of the store beside them."""
    board, _ = board_of(".")
    found = alerts.listed(board, resolved=call.args.all)
    now = clock.now()
    rows = [
        (one.path, one.title + " (resolved)" * one.resolved, lasting((now - one.since) / 1e6), one.by, one.text)
        for one in found
    ]
    documents = (
        {
            "path": one.path, "title": one.title, "text": one.text, "raised_at": to_time(one.since), "by": one.by,
            "resolved": one.resolved,
        }
        for one in found
    )  # fmt: skip
    call.screen.table(ALERTS, rows, documents)
    call.screen.hint("`baton alert resolve FILE --action …` ends one" if found else "no alert is open")
    return 0


@verb(
    argument("file", metavar="FILE", help="the alert"),
    argument("--action", default="", metavar="TEXT", help="what was done"),
    examples=('baton alert resolve sessions/ALERTS/ALERT_RAISE_STAGING_IS_DOWN.md --action "moved"',),
    stored=False,
)
def alert_resolve(call: Call) -> int:
    """Say that an alert is over: it becomes #done-alert, with what was done. Exit 1 when it is resolved already."""
    board, real = board_of(call.args.file)
    alerts.resolve(board, real, call.args.action, from_shell())
    call.screen.document({"path": board.name(real), "resolved": True})
    call.screen.line(f"{board.name(real)}  #done-alert")
    return 0
