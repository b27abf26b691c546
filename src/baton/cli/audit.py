"""The audit trail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from baton import config
from baton.cli.answer import BY, REASON
from baton.cli.audit_board import TRAIL, board_here, export, query, verified
from baton.cli.call import Call, argument, counting, verb
from baton.cli.records import AN_ID, clock_time, counted, full_id
from baton.cli.screen import Columns
from baton.cli.show import empty
from baton.errors import AuditBroken, Malformed, NotFound, StoreError
from baton.protocol.codec import to_time
from baton.stores.holder import readable
from baton.stores.tombstone import replace
from baton.stores.verify import verify

if TYPE_CHECKING:
    from datetime import datetime

    from baton.relay import Relay
    from baton.stores.base import Kind, Tombstone
    from baton.stores.place import Stood
    from baton.stores.report import Report
    from baton.stores.trail import AuditTrail

RECORDS = Columns(("TIME", "HANDOFF", "EVENT", "FROM → TO", "BY", "REASON"), spare=("HANDOFF", "BY", "TIME"))
FILES = Columns(("FILE",))


@verb(
    argument("--handoff", metavar="ID", help=AN_ID),
    argument("--task", metavar="ID", help=f"that of a workflow ({AN_ID}) unless the request named one"),
    argument("--from", dest="sender", metavar="AGENT"),
    argument("--to", metavar="AGENT"),
    argument("--item", metavar="FILE[#NOUN]", help="what was done on the board with this file, or one item of it"),
    argument("--limit", type=counting(1), default=1000, metavar="N", help="the first N (default 1000)"),
    examples=(
        "baton audit query --handoff 3fa2c81b",
        "baton audit query --to billing --json",
        "baton audit query --item sessions/REQUEST.md",
    ),
    columns=(RECORDS, TRAIL),
)
def audit_query(call: Call) -> int:
    """List audit records by handoff, task, sender, receiver or tagged file, in the order in which they were written."""
    args = call.args
    if args.item:
        query(call, args.item, args.limit)
        return 0
    relay = call.relay()
    found = relay.audit.query(
        handoff_id=_known(relay, args.handoff or "", "handoff"),
        task_id=_known(relay, args.task or "", "workflow"),
        from_agent=args.sender or "",
        to_agent=args.to or "",
        limit=args.limit,
    )
    short = 8 if call.screen.tty else None
    today = f"{to_time(relay.store.now()):%Y-%m-%d}"
    rows = [
        (
            _moment(one.timestamp, today if call.screen.tty else ""),
            one.handoff_id[:short],
            one.event_type,
            f"{one.from_agent} → {one.to_agent}",
            readable(one.by),
            one.reason,
        )
        for one in found
    ]
    call.screen.table(RECORDS, rows, found)
    if not found:
        empty(call, "no record fits")
    return 0


def _known(relay: Relay, given: str, of: Kind) -> str:
    """The whole id; as it was given where its records may have outlived it."""
    try:
        return full_id(relay, given, of) if given else ""
    except NotFound:
        return given


def _moment(at: datetime, today: str) -> str:
    """Whole for a program; for a person (who has a today) as short as it can be."""
    if not today:
        return f"{at:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
    return f"{at:%H:%M:%S}" if f"{at:%Y-%m-%d}" == today else f"{at:%m-%d %H:%M}"


@verb(
    argument("path", nargs="?", metavar="PATH", help="an export to check instead of the store"),
    argument("--deep", action="store_true", help="also the columns by which records are found"),
    argument("--accept-new", action="store_true", help="this log stands where another one stood, and that is meant"),
    BY,
    REASON,
    examples=("baton audit verify", "baton audit verify core/logs/shop/handoff-audit"),
)
def audit_verify(call: Call) -> int:
    """Check that no record was changed, removed, moved or cut off. Exit 3 when the trail is broken.

    What is good and not sealed yet, as after a crash, is sealed then, so that it cannot be cut off unseen.
    A log that was removed or replaced is missed. --accept-new says that this was meant: who said it stays noted.
    """
    args = call.args
    if args.path and not Path(args.path).exists():
        raise NotFound(f"{args.path}: not there; name a directory or file that `baton audit export` wrote")
    if args.path and args.accept_new:
        raise Malformed("baton audit verify: --accept-new is about the store's log; leave PATH out")
    accepted: list[Stood] = []
    checked = {} if args.path else verified()
    if checked and call.missing and not args.store and not call.gone():
        return _board_alone(call, checked["board"])
    if args.path and call.missing and not args.store:
        report = verify(args.path)  # an export stands for itself
    else:
        _missed(call)
        audit = call.relay().audit
        if args.accept_new:
            audit.accept(by=args.by or config.person(), reason=args.reason)
        report, accepted = _verified(call, audit), audit.accepted
    pruned = (
        [replace(one, ends=(), begins=()) for one in call.relay().audit.tombstones()]
        if report.tombstones and not args.path
        else []
    )
    call.screen.document({"ok": report.ok, "report": report, "accepted": accepted, "tombstones": pruned, **checked})
    _said(call, report, pruned, accepted)
    return 0 if report.ok else 3


def _said(call: Call, report: Report, pruned: list[Tombstone], accepted: list[Stood]) -> None:
    for number, text in enumerate(str(report).splitlines()):
        call.screen.line(text, ("good" if report.ok else "bad") if number == 0 else "")
    if not report.ok:
        call.screen.hint("stop the writers, keep a copy of the file, and compare with the newest export or backup")
    elif not report.records and not report.unsealed:
        call.screen.hint("there is no record yet")
    for said in told(pruned):
        call.screen.hint(said)
    for one in accepted:
        why = f": {one.reason}" if one.reason else ""
        call.screen.hint(
            f"it stands in place of {', '.join(one.instead_of)}, as {one.by} said on {clock_time(one.time)}{why}"
        )


def _board_alone(call: Call, checked: dict[str, Any]) -> int:
    call.screen.document({"ok": True, "board": checked})
    call.screen.line(f"{counted(checked['records'], 'record')} of the board, each bound to the one before it", "good")
    return 0


def told(tombstones: list[Tombstone]) -> list[str]:
    """Who pruned what: one line for each time."""
    times: dict[tuple[str, str, str], list[Tombstone]] = {}
    for one in tombstones:
        times.setdefault((clock_time(one.time)[:10], one.by, one.reason), []).append(one)
    lines = []
    for (day, by, reason), stones in sorted(times.items()):
        count = sum(one.last - one.first + 1 for one in stones)
        since, until = min(one.oldest for one in stones), max(one.newest for one in stones)
        span = f"from {clock_time(since)[:10]} to {clock_time(until)[:10]}"
        lines.append(f"{day}: {by} pruned {counted(count, 'record')} {span}{f': {reason}' if reason else ''}")
    return lines


def _missed(call: Call) -> None:
    """Where there is no store any more, say so."""
    gone = call.gone()
    if gone:
        raise AuditBroken(
            f"store {call.url}: not there, and it was: {gone}; bring it back from a backup. If it was removed on "
            "purpose, `baton audit verify --accept-new` says so once a new one stands there"
        )


def _verified(call: Call, audit: AuditTrail) -> Report:
    path, deep = call.args.path, call.args.deep
    report = audit.verify(path, deep=deep)
    if not report.ok or not report.unsealed or path:
        return report
    try:
        audit.seal()
    except StoreError as error:
        call.screen.hint(f"not sealed: {error}")
        return report
    return audit.verify(deep=deep)


@verb(
    argument("--root", default=".", metavar="FOLDER", help="where core/logs stands (default: here)"),
    argument("--project", metavar="NAME", help="default: the name of that folder"),
    examples=("baton audit export --project shop",),
    columns=(FILES,),
)
def audit_export(call: Call) -> int:
    """Write what is new as JSON Lines below ROOT/core/logs/PROJECT/handoff-audit; the log of a board beside it."""
    root = Path(call.args.root).resolve()
    project = call.args.project or root.name
    board = board_here()
    written = [] if board is not None and call.missing else call.relay().audit.export(root, project)
    if board is not None:
        written.append(export(board, root / "core" / "logs" / project / "handoff-audit"))
    call.screen.table(FILES, [(path,) for path in written], ({"file": str(path)} for path in written))
    if not written:
        call.screen.hint("nothing new to export")
    return 0
