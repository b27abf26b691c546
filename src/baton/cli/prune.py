"""`audit prune`: remove what was kept long enough."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from baton import config
from baton.cli.answer import BY, REASON
from baton.cli.call import Call, argument, verb
from baton.cli.records import counted
from baton.cli.screen import Columns
from baton.errors import Malformed
from baton.stores.retention import CLASSES, DAY, Periods, as_periods

if TYPE_CHECKING:
    from baton.stores.prune import Pruned

KEPT = Columns(("CLASS", "KEPT FOR", "RECORDS", "OVER", "REMOVED"))


@verb(
    argument("--dry-run", action="store_true", help="only say what would go"),
    argument("--yes", action="store_true", help="do not ask"),
    argument(
        "--keep", action="append", default=[], metavar="CLASS=TIME",
        help="keep a class for longer: active, completed or escalations, as in completed=365d",
    ),
    argument("--shorter", action="store_true", help="with --keep: less than 30, 90 and 180 days is meant"),
    argument("--export", metavar="FOLDER", help="before that, write what is new below FOLDER/core/logs"),
    argument("--project", metavar="NAME", help="with --export; default: the name of that folder"),
    BY,
    REASON,
    examples=("baton audit prune --dry-run", "baton audit prune --export . --keep completed=365d --yes"),
    columns=(KEPT,),
)  # fmt: skip
def audit_prune(call: Call) -> int:
    """Remove records that were kept long enough, with the handoffs and the content that nobody needs then.

    A workflow is kept for 30 days after its end, for 90 if anything in it was completed, for 180 if anything in it
    was escalated. Segments go as a whole, so a record stays while it shares one with another that has to stay.
    A signed tombstone stays in the place of what is gone, and `baton audit verify` goes on to work.
    Asks before it does anything, and does nothing where it cannot ask, unless --yes says so.
    """
    args, audit = call.args, call.relay().audit
    keep = dict(_named(word) for word in args.keep)
    given: dict[str, Any] = {"by": args.by or config.person(), "reason": args.reason, "keep": keep}
    periods = as_periods(keep, shorter=args.shorter)
    would = audit.prune(**given, shorter=args.shorter, dry_run=True)
    if args.dry_run or not args.yes:
        _show(call, would, periods)
    if args.dry_run:
        return 0
    if not args.yes and not _agreed(call, would):
        return 1
    project = args.project or (Path(args.export).resolve().name if args.export else "")
    files = audit.export(Path(args.export).resolve(), project) if args.export else []
    done = audit.prune(**given, shorter=args.shorter)
    if args.export:
        audit.export(Path(args.export).resolve(), project)  # the tombstones
    if args.yes:
        _show(call, done, periods, files)
    for said in (*(f"exported: {file}" for file in files), *_sum(done)):
        call.screen.hint(said)
    return 0


def _named(word: str) -> tuple[str, str]:
    name, given, time = word.partition("=")
    if not given:
        raise Malformed(f"--keep {word!r:.60}: write CLASS=TIME, as in completed=365d")
    return name, time


def _agreed(call: Call, would: Pruned) -> bool:
    if not would.records:
        call.screen.hint("nothing is over that could go; content without owner is removed with --yes")
        return False
    question = f"remove {counted(would.records, 'record')} and {counted(would.workflows, 'workflow')} for good?"
    answer = call.screen.ask(question)
    if answer is None:
        raise Malformed("nothing was removed, for nobody can be asked here: --yes says that it is meant")
    if not answer:
        call.screen.hint("nothing was removed")
    return answer


def _show(call: Call, one: Pruned, periods: Periods, files: list[Path] | None = None) -> None:
    classes = [
        {
            "class": name,
            "kept_days": getattr(periods, name) / DAY,
            "records": one.stored.get(name, 0),
            "over": one.over.get(name, 0),
            "removed": one.removed.get(name, 0),
        }
        for name in CLASSES
    ]
    rows = [
        (row["class"], f"{row['kept_days']:g} days", row["records"], row["over"], row["removed"]) for row in classes
    ]
    if call.screen.as_json:
        call.screen.document({"classes": classes, "pruned": one, "files": [str(file) for file in files or ()]})
    else:
        call.screen.table(KEPT, rows)
    if waits := sum(one.over.values()) - sum(one.removed.values()):
        call.screen.hint(f"{counted(waits, 'record')} more are over, and stay with others of their segment")


def _sum(done: Pruned) -> list[str]:
    removed = (
        f"removed: {counted(done.records, 'record')} under {counted(done.tombstones, 'tombstone')}, "
        f"{counted(done.workflows, 'workflow')}, {counted(done.alerts, 'alert')}, "
        f"{counted(done.contents, 'piece')} of content ({done.content_bytes / 2**20:.1f} MiB)"
    )
    lines = [removed]
    if done.skipped:
        lines.append(f"{counted(done.skipped, 'record')} moved meanwhile and stay until the next time")
    return [*lines, "the file keeps its size, and its free room is used first; `baton audit verify` shows who pruned"]
