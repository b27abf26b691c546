"""`worker` and `run`: your own module's agents, served from the command line."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from baton import clock, config
from baton.cli.call import Call, argument, verb
from baton.cli.records import counted, full_id, lasting, record, route
from baton.errors import BatonError, Malformed, NotFound
from baton.protocol import codec
from baton.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable

    from baton.cli.screen import Screen
    from baton.protocol.handoff import Handoff
    from baton.relay import Result

APP = argument("--app", required=True, metavar="MODULE:RELAY", help="your module and the Relay in it (default: relay)")


def application(call: Call) -> Relay:
    """Import the user's relay, with the working directory on the path."""
    module, _, name = call.args.app.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    folder = Path(config.STORE).parent
    made = not folder.exists()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)  # the app may keep its work in the default store
        found = getattr(import_module(module.removesuffix(".py")), name or "relay", None)
    except ModuleNotFoundError as error:
        raise NotFound(f"--app {call.args.app}: {error}; name a module that can be imported from {here}") from error
    finally:
        if made and not any(folder.iterdir()):
            folder.rmdir()
    if not isinstance(found, Relay):
        raise Malformed(f"--app {call.args.app}: {name or 'relay'} is not a Relay there; write module:name of one")
    if call.args.store and call.args.store != found.store.url:
        found.close()
        raise Malformed(f"--store {call.args.store}: this app keeps its work in {found.store.url}; leave --store out")
    return found


@verb(
    APP,
    argument("--slots", type=int, default=4, metavar="N", help="how much to do at once (default 4)"),
    examples=("baton worker --app shop:relay --slots 8",),
)
def worker(call: Call) -> int:
    """Serve the agents of your module until interrupted, and say what happens.

    Ctrl-C or SIGTERM stops cleanly: what is under way is offered again at once, and the attempt does not count.
    """
    codec.bounded(call.args.slots, "--slots", 1, 1000)
    return asyncio.run(_serve(call, application(call)))


async def _serve(call: Call, relay: Relay) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    screen = call.screen
    seen: Counter[str] = Counter()
    relay.listen(_teller(screen))
    relay.listen(lambda event, _: seen.update([event]))
    screen.line(f"serving {', '.join(relay.names) or 'nobody'} from {relay.store.url}; Ctrl-C stops")
    screen.document({"event": "serving", "agents": relay.names, "store": relay.store.url})
    screen.flush()
    async with relay:
        await relay.work(stop, slots=call.args.slots)
    screen.line(f"stopped after {counted(seen['accepted'], 'handoff')}")
    screen.document({"event": "stopped", "handoffs": seen["accepted"]})
    return 0


def _teller(screen: Screen) -> Callable[[str, Handoff], None]:
    begun: dict[tuple[str, int], float] = {}

    def tell(event: str, handoff: Handoff) -> None:
        if event == "progress":
            return
        now = clock.monotonic()
        key = (handoff.id, handoff.epoch)
        if event == "accepted":
            begun[key] = now
        since = begun.pop(key, None) if event != "accepted" else None
        took = f"  {lasting(now - since)}" if since is not None else ""
        screen.line(f"{handoff.id[:8]}  {event:<10}  {route(handoff)}  {handoff.task[:80]}{took}", event)
        screen.document({"event": event, "handoff": record(handoff)})
        with suppress(BrokenPipeError):  # the work goes on when nobody reads
            screen.flush()

    return tell


@verb(
    APP,
    argument("agent", nargs="?", metavar="AGENT"),
    argument("task", nargs="?", metavar="TASK", help="- reads standard input"),
    argument("--resume", metavar="WORKFLOW", help="go on with a workflow instead of starting one"),
    argument("--timeout", metavar="TIME", help="how long to wait; exit 124 after that"),
    argument("--conversation", metavar="ID", help="the conversation that it belongs to"),
    examples=('baton run --app shop:relay triage "please refund me"', "baton run --app shop:relay --resume 3fa2c81b"),
)
def run(call: Call) -> int:
    """Run one workflow in this process and print the answer. On a terminal, its steps are told meanwhile."""
    args = call.args
    if bool(args.resume) == bool(args.agent) or bool(args.agent) != bool(args.task):
        raise Malformed("baton run: give AGENT and TASK, or --resume WORKFLOW; --help shows an example")
    relay = application(call)
    if call.screen.tty and not call.screen.as_json:
        relay.listen(lambda event, one: call.screen.line(f"{event:<10}  {route(one)}  {one.task[:80]}", "dim"))
    try:
        result = asyncio.run(_run(call, relay))
    except BatonError as error:
        failed: Result | None = getattr(error, "result", None)
        if failed is not None:
            call.screen.hint(f"workflow {failed.workflow_id}: {failed.status}; `baton graph {failed.workflow_id[:8]}`")
        raise
    if call.screen.as_json:
        call.screen.document({**msgspec.structs.asdict(result), "handoffs": list(map(record, result.handoffs))})
        return 0
    text = result.output if isinstance(result.output, str) else codec.canonical(result.output).decode()
    call.screen.block(text, indent="")
    if result.status != "completed":
        call.screen.hint(f"workflow {result.workflow_id}: {result.status}")
    return 0


async def _run(call: Call, relay: Relay) -> Result:
    args = call.args
    seconds = codec.seconds(args.timeout, "--timeout") if args.timeout else None
    async with relay:
        if args.resume:
            return await relay.resume(full_id(relay, args.resume, "workflow"), timeout=seconds)
        options: dict[str, Any] = {"conversation_id": args.conversation} if args.conversation else {}
        task = sys.stdin.read() if args.task == "-" else args.task
        return await relay.run(args.agent, task, timeout=seconds, **options)
