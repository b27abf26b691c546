"""`doctor`: whether this machine and this store are fit for work; and `store migrate`."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from baton import clock, config
from baton.cli.call import Call, argument, counting, verb
from baton.cli.check import Check
from baton.cli.records import clock_time, counted
from baton.cli.screen import in_store
from baton.cli.upkeep import stuck
from baton.errors import BatonError, NotFound
from baton.protocol.codec import near, to_microseconds, to_time
from baton.protocol.handoff import HUMAN, Handoff
from baton.protocol.registry import read_registry
from baton.relay import Relay

TOOLS = {
    "tmux": "agents run in windows with it, so that a person can look at them and answer",
    "strace": "`baton.testing.strace_sweep` kills a program with it at every write",
}
BORN = 1_767_225_600_000_000  # 2026 began: a clock before that is wrong
AHEAD = 5_000_000


@verb(
    argument(
        "--race",
        nargs="?",
        type=counting(1),
        const=2000,
        metavar="ITEMS",
        help="let 8 processes claim tagged files in this folder, each of them all (2000), and count who won",
    ),
    examples=("baton doctor", "baton doctor --json", "baton doctor --race"),
)
def doctor(call: Call) -> int:
    """Check machine, file systems, permissions, schema, audit, claims, board, and --agents; say what to do.

    Exit 3 when something has to be done. Tools that are only useful do not count.
    """
    from baton.cli.doctor_board import board_checks, race_check

    found = [*_machine(), *_registry(call), *_store(call), *board_checks(), *_tools()]
    if call.args.race:
        found = [race_check(call.args.race)]
    bad = [one for one in found if not one.ok and not one.optional]
    call.screen.document({"ok": not bad, "checks": [one._asdict() for one in found]})
    for one in found:
        word, style = ("OK", "good") if one.ok else ("--", "dim") if one.optional else ("BAD", "bad")
        cure = "" if one.ok or not one.cure else f"; {one.cure}"
        if not call.screen.as_json:
            said = in_store(f"{one.name}: {one.found}{cure}", call.screen.store)
            print(f"{call.screen.paint(word.ljust(4), style)}{call.screen.paint(said, '')}")
    call.screen.hint("all is well" if not bad else f"{len(bad)} to be cured")
    return 3 if bad else 0


def _machine() -> Iterator[Check]:
    import apsw

    from baton.stores.connection import SAFE_WAL

    yield Check("Python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer")
    safe = SAFE_WAL <= apsw.SQLITE_VERSION_NUMBER
    yield Check("SQLite", safe, apsw.sqlite_lib_version(), "pip install --upgrade apsw")
    now = clock.now()
    yield Check("clock", now > BORN, clock_time(now), "set the time of this machine; leases and deadlines need it")


def schema(path: Path) -> int:
    """The schema of a store, without changing it."""
    import apsw

    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close()


def _store(call: Call) -> Iterator[Check]:
    path = call.path
    if path is None:
        yield Check("store", ok=True, found=f"{call.url} is not a file")
        return
    yield _place(path)
    if gone := call.gone():
        yield Check("store", ok=False, found=f"{path}: gone: {gone}", cure="bring it back from a backup")
        return
    if call.missing:
        cure = "check its name; `baton agents register AGENT` makes it"
        yield Check("store", ok=not call.args.store, found=f"{path}: not there yet", cure=cure)
        return
    yield from _files(path)
    try:
        pending = _known() - schema(path)
        yield Check("schema", pending <= 0, f"{pending} migrations pending" if pending > 0 else "up to date",
                    "copy the file, then `baton store migrate`")  # fmt: skip
        if pending <= 0:
            yield from _opened(call.relay())
    except (BatonError, Exception) as error:  # noqa: BLE001 - whatever is wrong is what was to be found
        yield Check("store", ok=False, found=f"{path}: {error}", cure="give another file, or restore a backup")


def _known() -> int:
    return sum(item.name[:4].isdigit() for item in (files("baton.stores") / "sql").iterdir())


def _place(path: Path) -> Check:
    from baton.stores.mounts import NETWORK, file_system

    folder = next(one for one in path.resolve().parents if one.exists())
    kind = file_system(folder)
    return Check("file system", kind not in NETWORK, kind or "local as far as can be told", "use a local disk")


def _files(path: Path) -> Iterator[Check]:
    for one in (path, path.with_name(f"{path.name}.gate")):
        if one.exists():
            mode = stat.S_IMODE(one.stat().st_mode)
            yield Check("permissions", not mode & 0o077, f"{one.name} {mode:04o}", f"chmod 600 {one}")
    folder = path.resolve().parent
    mode = stat.S_IMODE(folder.stat().st_mode)
    yield Check(
        "folder", not mode & 0o022 or bool(mode & stat.S_ISVTX), f"{folder.name} {mode:04o}", f"chmod go-w {folder}"
    )
    free = shutil.disk_usage(folder).free
    yield Check("disk", free > 100 * 2**20, f"{free // 2**20} MiB free", "make room: a full disk stops every write")


def _opened(relay: Relay) -> Iterator[Check]:
    store = relay.store
    mode, level = store.setting("journal_mode"), store.setting("synchronous")
    yield Check("WAL", mode == "wal", f"journal_mode {mode}", "open it with this version of baton once")
    yield Check("sync", level >= 2, f"synchronous {level}", "use durability='power'")
    size = store.setting("page_count") * store.setting("page_size")
    yield Check("size", ok=True, found=f"{size / 2**20:.1f} MiB")
    yield _order(store.find(limit=1, newest=True), store.now())
    report = relay.audit.verify()
    yield Check("audit", report.ok, str(report).splitlines()[0], "`baton audit verify` names the records")
    yield _expired(relay)
    yield from _approvals(relay)
    waiting = len(relay.waiting())
    yield Check("people", ok=not waiting, found=f"{waiting} waiting", cure="`baton waiting` shows what", optional=True)
    where = relay.audit.checkpoints
    apart = where is None or where.is_relative_to(config.state_dir())
    yield Check("checkpoints", apart, str(where or "none"), "keep them apart from the store")


def _order(newest: list[Handoff], now: int) -> Check:
    last = to_microseconds(newest[0].timestamp) if newest else 0
    ahead = last - now
    text = f"the newest handoff is from {clock_time(to_time(last))}" if last else "no handoff yet"
    return Check("time", ahead < AHEAD, text, "the clock went back: set it right before you go on")


def _expired(relay: Relay) -> Check:
    found = stuck(relay)
    return Check("claims", not found, f"{len(found)} due or orphaned", "`baton recover` or a running worker moves them")


def _approvals(relay: Relay) -> Iterator[Check]:
    known = {HUMAN, "*", *(row.profile.agent_id for row in relay.store.agents())}
    asked = [set(flow.limits.approve) for flow in relay.store.workflows()]
    for name in sorted(set().union(*(names for names in asked if "*" not in names)) - known):
        said = f"asked for {name}, and no agent is called so; {near(name, known - {HUMAN, '*'})}"
        yield Check("approvals", ok=False, found=said, optional=True)


def _registry(call: Call) -> Iterator[Check]:
    """The operator's file: that it can be read, that nobody else may write it, and that its agents are known."""
    if call.agents is None:
        return
    try:
        registry = read_registry(config.read_file(call.agents), call.agents)
    except BatonError as error:
        call.agents = None  # what is wrong with the file says nothing about the store
        yield Check("agents", ok=False, found=str(error))
        return
    counts = f"{counted(len(registry.agents), 'agent')}, {counted(len(registry.routes), 'route')} in {call.agents}"
    yield Check("agents", ok=True, found=counts)
    file = Path(call.agents).resolve()
    mode, owner = stat.S_IMODE(file.stat().st_mode), file.stat().st_uid
    theirs = bool(mode & 0o022) or owner not in {0, os.getuid()}
    yield Check(
        "agents", not theirs, f"{file.name} {mode:04o}", f"chmod go-w {file}, and own it: it limits your agents"
    )
    if not call.missing and call.path is not None and schema(call.path) == _known():
        known = {row.profile.agent_id for row in call.relay().store.agents()}
        for name in sorted(registry.agents.keys() - known):
            said = f"{name} stands only in {call.agents}"
            yield Check("agents", ok=False, found=said, cure="`baton agents register --file …`", optional=True)


def _tools() -> Iterator[Check]:
    for tool, use in TOOLS.items():
        found = shutil.which(tool)
        yield Check(tool, ok=bool(found), found=found or "not found", cure=use, optional=True)


@verb(examples=("baton store migrate",))
def store_migrate(call: Call) -> int:
    """Bring a store to the schema of this version. Every other verb does it too; this one says so."""
    if call.path is None or call.missing:
        raise NotFound(f"store {call.url}: there is no file to migrate; name one with --store")
    before = schema(call.path)
    after = call.relay().store.setting("user_version")
    call.screen.document({"store": str(call.path), "from": before, "to": after})
    call.screen.line(
        f"{call.path}  schema {before} → {after}" if before != after else f"{call.path}  up to date ({after})"
    )
    return 0
