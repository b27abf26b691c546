"""`worker` and `run`: your own module's agents, served from the command line."""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from baton import clock
from baton.cli import given
from baton.cli.app import APP, TELEMETRY, application
from baton.cli.call import Call, argument, counting, seconds, verb
from baton.cli.records import AN_ID, counted, full_id, lasting, placed, record, route
from baton.errors import BatonError, HandoffsDisabled, Malformed, TimedOut
from baton.lifecycle import ENDED
from baton.protocol import codec

if TYPE_CHECKING:
    from argparse import Namespace

    from baton import Result
    from baton.cli.screen import Screen
    from baton.protocol.handoff import Handoff
    from baton.relay import Relay

UNWELCOME = {"waits", "failed", "deferred", "parked", "rejected", "refused", "cancelled"}


@verb(
    APP,
    TELEMETRY,
    argument("--slots", type=counting(1), default=4, metavar="N", help="how much to do at once (default 4)"),
    examples=("baton worker --app shop:relay --slots 8",),
)
def worker(call: Call) -> int:
    """Serve the agents of your module until interrupted, and say what happens.

    Ctrl-C or SIGTERM stops cleanly: what is under way is offered again at once, and the attempt does not count. A
    second one ends the process where an agent does not stop; its work is taken back then.
    """
    codec.bounded(call.args.slots, "--slots", 1, 1000)
    return asyncio.run(_serve(call, application(call)))


async def _serve(call: Call, relay: Relay) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told(number: int) -> None:
        if stop.is_set():  # an agent does not let itself be stopped; others take its work when this process is gone
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told, number)
    screen = call.screen
    if not relay.store.on_disk:
        screen.notice(
            "this relay keeps its work in memory: none from another process reaches it; name a file in Relay(…)"
        )
    log = Log(screen, relay)
    relay.listen(log.tell)
    screen.line(f"serving {', '.join(relay.names) or 'nobody'} from {relay.store.url}; Ctrl-C stops")
    screen.document({"event": "serving", "agents": relay.names, "store": relay.store.url})
    screen.flush()
    logging.getLogger("baton").addHandler(Notices(screen))
    async with relay:
        await relay.work(stop, slots=call.args.slots)
        relay.let_go()
        back = log.given_back()
    more = f"; {counted(back, 'handoff')} given back unfinished" if back else ""
    screen.line(f"stopped after {counted(log.finished, 'handoff')}{more}")
    screen.document({"event": "stopped", "handoffs": log.finished, "given_back": back})
    screen.flush()
    return 0


class Notices(logging.Handler):
    """Prints what the library says meanwhile (that work waits for a person, say) beside the output."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """One line for one notice."""
        error = record.exc_info[1] if record.exc_info else None
        said = f"{record.getMessage()}: {type(error).__name__}: {error}" if error else record.getMessage()
        with suppress(BrokenPipeError):
            self._screen.notice(said)


class Log:
    """Tells what happens to the work of this process, and counts it."""

    def __init__(self, screen: Screen, relay: Relay) -> None:
        self._screen = screen
        self._relay = relay
        self._begun: dict[tuple[str, int], float] = {}
        self.finished = 0

    def tell(self, event: str, handoff: Handoff) -> None:
        """One line for one event."""
        if event == "progress":
            return
        now = clock.monotonic()
        key = (handoff.id, handoff.epoch)
        if event == "accepted":
            self._begun[key] = now
        since = self._begun.pop(key, None) if event != "accepted" else None
        self.finished += since is not None and event not in {"late", "stopped"}
        took = f"  {lasting(now - since)}" if since is not None else ""
        reason = self._reason(event, handoff) if event in UNWELCOME else ""
        said = f"{handoff.id[:8]}  {event:<10}  {route(handoff)}  {handoff.task[:80]}{took}"
        if event != "waits":  # that is a notice
            self._screen.line(f"{said}  {reason[:300]}".rstrip(), event)
        self._screen.document({"event": event, "handoff": record(handoff), **({"reason": reason} if reason else {})})
        with suppress(BrokenPipeError):  # the work goes on when nobody reads
            self._screen.flush()

    def _reason(self, event: str, handoff: Handoff) -> str:
        """Why it does not go on, or did not go well, as its newest record says, and where in the agent's code."""
        if event == "waits":
            return "; ".join(self._relay.waits_for(handoff.workflow_id))
        said = next((one.reason for one in self._relay.audit.query(handoff_id=handoff.id)[::-1] if one.reason), "")
        return placed(said, self._relay.store.returned(handoff.id))

    def given_back(self) -> int:
        """How many were under way when this process was told to stop, and are still to be done."""
        return sum(not self._relay.get(handoff_id).ended for handoff_id, _ in self._begun)


@verb(
    APP,
    argument("agent", nargs="?", metavar="AGENT"),
    argument("task", nargs="?", metavar="TASK", help="- reads standard input"),
    argument("--resume", metavar="WORKFLOW", help=f"go on with a workflow instead of starting one; {AN_ID}"),
    argument("--timeout", metavar="TIME", help="how long to wait: 90, 5m, 2h; exit 124 after that"),
    argument("--conversation", metavar="ID", help="the conversation that it belongs to: its id in full, or a new one"),
    argument("--enable-handoffs", action="store_true", help="agents may hand work on (default: as the Relay says)"),
    argument("--no-handoffs", action="store_true", help="each agent finishes alone"),
    TELEMETRY,
    argument("--on-failure", choices=("retry", "escalate", "fail"), help="what happens after an error (default: fail)"),
    examples=('baton run --app shop:relay triage "please refund me"', "baton run --app shop:relay --resume 3fa2c81b"),
)
def run(call: Call) -> int:
    """Run one workflow in this process and print the answer. On a terminal, its steps are told meanwhile.

    With tags in Markdown files, `baton run /SKILL FILE` does a request, and `baton run --monitor-tags` is the daemon;
    each has its own --help.
    """
    args = call.args
    _fit(args)
    relay = application(call)
    if args.enable_handoffs or args.no_handoffs:
        relay.handoffs = args.enable_handoffs
    logging.getLogger("baton").addHandler(Notices(call.screen))
    begun: list[str] = []
    relay.listen(lambda _, one: begun.append(one.workflow_id) if not begun else None)
    if call.screen.tty and not call.screen.as_json:
        relay.listen(partial(_step, call.screen))
    try:
        result = asyncio.run(_run(call, relay))
    except KeyboardInterrupt:
        if begun or args.resume:
            call.screen.hint(_unfinished(call, relay, [*begun, args.resume][0], "not finished"))
        return 130
    if call.screen.as_json:
        call.screen.document({**msgspec.structs.asdict(result), "handoffs": list(map(record, result.handoffs))})
        return 0
    if result.output is None:
        call.screen.hint("no output")
    else:
        text = result.output if isinstance(result.output, str) else codec.canonical(result.output).decode()
        call.screen.block(text, indent="")
    if result.status != "completed":
        call.screen.hint(f"workflow {result.workflow_id}: {result.status}")
    return 0


def _fit(args: Namespace) -> None:
    if bool(args.resume) == bool(args.agent) or bool(args.agent) != bool(args.task):
        raise Malformed("baton run: give AGENT and TASK, or --resume WORKFLOW; --help shows an example")
    if args.enable_handoffs and args.no_handoffs:
        raise Malformed("baton run: --enable-handoffs is not allowed with --no-handoffs; leave one out")


def _step(screen: Screen, event: str, handoff: Handoff) -> None:
    if event != "waits":  # that is a notice
        screen.line(f"{event:<10}  {route(handoff)}  {handoff.task[:80]}", "dim")


def _unfinished(call: Call, relay: Relay, workflow: str, why: str) -> str:
    if relay.store.on_disk:
        again = f"`baton run --app {shlex.quote(call.args.app)} --resume {workflow[:8]}` goes on"
    else:
        again = "it was kept in memory only, and is gone"
    return f"workflow {workflow}: {why}; {again}"


async def _run(call: Call, relay: Relay) -> Result:
    args = call.args
    patience = seconds(args.timeout, "--timeout") if args.timeout else None
    async with relay:
        try:
            if args.resume:
                return await relay.resume(full_id(relay, args.resume, "workflow"), timeout=patience)
            said = {"conversation_id": args.conversation, "on_failure": args.on_failure}
            options: Any = {name: value for name, value in said.items() if value}
            return await relay.run(args.agent, given.text(args.task, "TASK"), timeout=patience, **options)
        except BatonError as error:
            relay.let_go()
            stands: Result | None = getattr(error, "result", None)
            if stands is None:
                raise
            if isinstance(error, TimedOut) and stands.status not in ENDED:
                why = f"not finished within {patience:g} s: {'; '.join(relay.waits_for(stands.workflow_id))}"
                late = TimedOut(_unfinished(call, relay, stands.workflow_id, why))
                late.result = stands
                raise late from None
            _failed(call, relay, stands)
            if isinstance(error, HandoffsDisabled) and not relay.handoffs:
                call.screen.hint(
                    "`baton run --enable-handoffs …` lets agents hand work on, so does Relay(handoffs=True)"
                )
            raise
        finally:
            relay.let_go()


def _failed(call: Call, relay: Relay, result: Result) -> None:
    """Say whose work ended the workflow, and where more stands."""
    flow = relay.store.workflow(result.workflow_id)
    if flow is None:
        return
    root = relay.get(flow.root_id)
    last = relay.get(root.answer_id) if root.answer_id else root
    more = f"; `baton handoff show {last.id[:8]}`, `baton graph {result.workflow_id[:8]}`"
    said = placed(f"workflow {result.workflow_id}: {result.status} at agent {last.to_agent}", result.answer)
    call.screen.hint(said + (more if relay.store.on_disk else ""))
