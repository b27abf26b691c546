"""`lock` and `unlock`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from baton import config
from baton.cli.call import Call, argument, seconds, verb
from baton.cli.records import clock_time
from baton.cli.screen import Columns
from baton.protocol import codec

if TYPE_CHECKING:
    from baton.protocol.locks import Lock
    from baton.relay import Relay

LOCKS = Columns(("PATH", "LOCK", "STATE", "OWNER", "UNTIL"), spare=("LOCK", "UNTIL"))
OWNER = argument("--as", dest="owner", metavar="NAME", help="whose lock it is; by default your login name")


def _plain(relay: Relay, one: Lock) -> dict[str, Any]:
    """A lock as people know it."""
    handoff = relay.store.get(one.owner)
    return {
        "path": one.path,
        "lock_type": "shared" if one.shared else "exclusive",
        "state": "held" if one.granted else "waits",
        "owner": handoff.to_agent if handoff else one.owner,
        "handoff_id": handoff.id if handoff else "",
        "since": codec.to_time(one.since),
        "until": None if one.until is None else codec.to_time(one.until),
    }


@verb(
    argument("paths", nargs="*", metavar="PATH", help="files or folders; a folder stands for all below it"),
    OWNER,
    argument("--shared", action="store_true", help="others may lock it as well, but nobody for himself alone"),
    argument("--wait", metavar="TIME", default="0s", help="how long to wait for it, such as 30s or 5m"),
    argument("--lease", metavar="TIME", default="10m", help="when it is free again at the latest"),
    examples=("baton lock src/a.py src/b.py --as claude --wait 30s", "baton lock --shared docs", "baton lock"),
    columns=(LOCKS,),
)
def lock(call: Call) -> int:
    """Lock files so that nobody else who asks can, all of them or none; without a path, list who holds which.

    The same owner may ask again, which prolongs the lease. Exit 1 says that somebody else has it, and who.
    """
    relay = call.relay(create=bool(call.args.paths))
    if call.args.paths:
        owner = call.args.owner or config.person()
        wait = seconds(call.args.wait, "--wait")
        lease = seconds(call.args.lease, "--lease")
        hold = relay.lock(*call.args.paths, owner=owner, shared=call.args.shared, timeout=wait, lease=lease)
        asyncio.run(hold.acquire())
        found = [one for one in relay.locks() if one.owner == owner and one.path in hold.paths]
    else:
        found = relay.locks()
    documents = [_plain(relay, one) for one in found]
    rows = [
        (
            os.path.relpath(one["path"]) if call.screen.tty else one["path"],
            one["lock_type"],
            one["state"],
            one["owner"],
            clock_time(one["until"]) if one["until"] else "its claim ends",
        )
        for one in documents
    ]
    call.screen.table(LOCKS, rows, documents)
    if not found:
        call.screen.hint("no file is locked; `baton lock PATH` locks one")
    return 0


@verb(
    argument("paths", nargs="*", metavar="PATH", help="only these; by default all that the owner locked"),
    OWNER,
    examples=("baton unlock src/a.py --as claude", "baton unlock"),
)
def unlock(call: Call) -> int:
    """Give locked files back."""
    owner = call.args.owner or config.person()
    count = call.relay().unlock(owner, *call.args.paths)
    call.screen.document({"owner": owner, "unlocked": count})
    call.screen.line(f"{owner}  {count} unlocked")
    return 0 if count else 1
