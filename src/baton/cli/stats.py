"""`stats`: what the store can tell about how the work goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baton.cli.call import Call, argument, counting, seconds, verb
from baton.cli.records import clock_time, counted, lasting, money
from baton.cli.screen import Columns
from baton.cli.show import empty
from baton.errors import Malformed
from baton.protocol.exposition import exposition
from baton.protocol.limits import MILLION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from baton.cli.screen import Screen
    from baton.protocol.stats import Spread, Stats, Work

WORK = Columns(("NAME", "WORK", "SUCCESS", "TOKENS", "MONEY"))
WORKFLOWS = Columns(("WORKFLOW", "HANDOFFS", "TOKENS", "MONEY", "AGENTS"))
RESTED = Columns(("SUBJECT", "STATE", "FAILURE", "IN A ROW"))
ORDINARY = frozenset(("accepted", "completed"))  # the states say as much


@verb(
    argument("--since", metavar="TIME", help="only what was offered in the last 90s, 2h, P7D"),
    argument("--workflows", type=counting(1), default=10, metavar="N", help="show the newest N workflows (default 10)"),
    argument("--prometheus", action="store_true", help="in the text format that Prometheus reads"),
    examples=("baton stats", "baton stats --since 2h --json", "baton stats --prometheus > baton.prom"),
)
def stats(call: Call) -> int:
    """Counts, tokens, money, latency and success: per workflow, agent and route; and what was stopped."""
    if call.args.prometheus and call.screen.as_json:
        raise Malformed("baton stats: --prometheus is not allowed with --json; leave one out")
    since = None if call.args.since is None else seconds(call.args.since, "--since")
    found = call.relay().stats(since=since, workflows=call.args.workflows)
    if call.args.prometheus:
        call.screen.verbatim(exposition(found))
        return 0
    call.screen.document(found)
    if not found.handoffs.total:
        empty(call, "no handoff here yet" if since is None else "no handoff was offered in that time")
    elif not call.screen.as_json:
        _print(call.screen, found)
    return 0


def _print(screen: Screen, found: Stats) -> None:
    states = ", ".join(f"{count} {state}" for state, count in found.handoffs.by_state.items())
    events = ", ".join(f"{count} {name}" for name, count in found.events.items() if name not in ORDINARY)
    latency = found.latency
    screen.fields(
        [
            ("since", clock_time(found.since)),
            ("work", f"{found.handoffs.total}: {states}"),
            ("attempts", found.events.get("accepted", 0)),
            ("on the way", events),
            *(
                (title, _said(one))
                for title, one in (
                    ("to accept", latency.to_accept), ("working", latency.working), ("to end", latency.to_end),
                )
                if one.count
            ),
            ("loops caught", str(found.loops_caught)),
            ("deadlocks", str(found.deadlocks)),
        ]
    )  # fmt: skip
    for title, works in (("agents", found.agents), ("routes", found.routes)):
        screen.part(title, WORK, list(_rows(works)))
    short = 8 if screen.tty else None
    flows = [
        (one.name[:short], one.handoffs, one.tokens, money(round(one.cost * MILLION)), ", ".join(one.agents))
        for one in found.workflows
    ]
    screen.part("newest workflows", WORKFLOWS, flows)
    if (all_ := found.per_workflow).count and all_.average is not None:
        screen.line(
            f"{all_.average:.1f} handoffs on average, {all_.p99} p99, of {counted(all_.count, 'workflow')}", "dim"
        )
    if found.breakers:
        rested = [(one.subject, one.state, one.failure, one.failures) for one in found.breakers]
        screen.part("breakers", RESTED, rested)


def _said(one: Spread) -> str:
    if one.average is None or one.p50 is None or one.p99 is None:
        return ""
    return f"{lasting(one.average)} on average, {lasting(one.p50)} p50, {lasting(one.p99)} p99, of {one.count}"


def _rows(works: Iterable[Work]) -> Iterable[tuple[object, ...]]:
    for one in works:
        success = f"{one.success:.0%}" if one.success is not None else ""
        yield one.name, one.handoffs, success, one.tokens, money(round(one.cost * MILLION))
