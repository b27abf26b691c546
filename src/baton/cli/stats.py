"""`stats`: what the store can tell about how the work goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from baton.cli.call import Call, argument, counting, verb
from baton.cli.records import lasting, money
from baton.cli.screen import Columns
from baton.cli.show import empty
from baton.cli.upkeep import breaker_record
from baton.lifecycle import ENDED, State
from baton.protocol.handoff import HUMAN
from baton.protocol.limits import MILLION

if TYPE_CHECKING:
    from baton.cli.screen import Screen
    from baton.relay import Relay

BATCH = 10_000
FINAL = frozenset(ENDED)
WORK = Columns(("NAME", "WORK", "SUCCESS", "TOKENS", "MONEY"))
WORKFLOWS = Columns(("WORKFLOW", "HANDOFFS", "TOKENS", "MONEY", "AGENTS"))
RESTED = Columns(("SUBJECT", "STATE", "FAILURE", "IN A ROW"))


class Seen(msgspec.Struct, frozen=True):
    """What is needed of an audit record."""

    handoff_id: str
    timestamp: datetime
    event_type: str
    context_snapshot: dict[str, Any] = {}
    detail: dict[str, Any] = {}


_read = msgspec.json.Decoder(Seen).decode


@verb(
    argument("--workflows", type=counting(1), default=10, metavar="N", help="show the newest N workflows (default 10)"),
    examples=("baton stats", "baton stats --json"),
)
def stats(call: Call) -> int:
    """Counts, tokens, money, latency and success: per workflow, agent and route; and what was stopped."""
    relay = call.relay()
    found = collect(relay, call.args.workflows)
    call.screen.document(found)
    if not found["handoffs"]["total"]:
        empty(call, "no handoff here yet")
    elif not call.screen.as_json:
        _print(call.screen, found)
    return 0


def collect(relay: Relay, workflows: int = 10) -> dict[str, Any]:
    """All numbers, as one document. Seconds; money in whole units."""
    usage = relay.store.usage()
    states: Counter[str] = Counter()
    for _, _, state, count, _, _ in usage:
        states[state] += count
    accept, end, loops = _times(_records(relay))
    now = relay.store.now()
    known = {HUMAN, *(row.profile.agent_id for row in relay.store.agents())}
    # An offer to a name that nobody registered was refused: it counts, but there is no such agent.
    usage = [row for row in usage if row[1] in known or row[2] != State.REFUSED]
    known.update(row[1] for row in usage)
    return {
        "handoffs": {"total": sum(states.values()), "by_state": dict(states)},
        "latency": {"to_accept": _spread(accept), "to_end": _spread(end)},
        "agents": _summed((row[1], row) for row in usage),
        "routes": _summed((f"{row[0]} → {row[1]}", row) for row in usage),
        "workflows": [
            {
                "name": one.id,
                "handoffs": len(relay.result(one.id).handoffs),
                "tokens": one.tokens_spent,
                "cost": one.cost_spent / MILLION,
                "agents": [name for name in one.agents if name in known],
            }
            for one in relay.store.workflows(limit=workflows)
        ],
        "breakers": [breaker_record(one, now) for one in relay.store.breakers()],
        "loops_caught": loops,
    }


def _records(relay: Relay) -> Iterator[Seen]:
    after = 0
    while entries := relay.store.audit(limit=BATCH, after=after):
        after = entries[-1].seq
        yield from (_read(entry.record) for entry in entries)


def _times(records: Iterable[Seen]) -> tuple[list[float], list[float], int]:
    """Seconds from offer to first acceptance, from offer to end; and how many loops were stopped."""
    begun: dict[str, datetime] = {}
    accepted: dict[str, float] = {}
    ended: dict[str, float] = {}
    loops = 0
    for one in records:
        first = begun.setdefault(one.handoff_id, one.timestamp)
        passed = (one.timestamp - first).total_seconds()
        if one.event_type == "accepted":
            accepted.setdefault(one.handoff_id, passed)
        if one.context_snapshot.get("task_status") in FINAL and one.event_type != "initiated":
            ended.setdefault(one.handoff_id, passed)
        loops += one.detail.get("error") == "LoopDetected"
    return list(accepted.values()), list(ended.values()), loops


def _spread(seconds: list[float]) -> dict[str, Any]:
    if not seconds:
        return {"count": 0, "average": None, "p99": None}
    ordered = sorted(seconds)
    rank = -(-len(ordered) * 99 // 100)
    return {"count": len(ordered), "average": sum(ordered) / len(ordered), "p99": ordered[rank - 1]}


def _summed(rows: Iterable[tuple[str, tuple[str, str, str, int, int, int]]]) -> list[dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for name, (_, _, state, count, tokens, cost) in rows:
        one = table.setdefault(name, {"name": name, "handoffs": 0, "completed": 0, "failed": 0, "tokens": 0, "cost": 0})
        one["handoffs"] += count
        one["tokens"] += tokens
        one["cost"] += cost
        if state in {"completed", "failed"}:
            one[state] += count
    for one in table.values():
        tried = one["completed"] + one["failed"]
        one["success"] = one["completed"] / tried if tried else None
        one["cost"] /= MILLION
    return sorted(table.values(), key=lambda one: (-one["handoffs"], one["name"]))


def _print(screen: Screen, found: dict[str, Any]) -> None:
    states = ", ".join(f"{count} {state}" for state, count in found["handoffs"]["by_state"].items())
    latency = [
        (title, f"{lasting(one['average'])} on average, {lasting(one['p99'])} p99, of {one['count']}")
        for title, one in (("to accept", found["latency"]["to_accept"]), ("to end", found["latency"]["to_end"]))
        if one["count"]
    ]
    total = f"{found['handoffs']['total']}: {states}"
    screen.fields([("work", total), *latency, ("loops caught", str(found["loops_caught"]))])
    for title, key in (("agents", "agents"), ("routes", "routes")):
        rows = [
            (
                one["name"],
                one["handoffs"],
                f"{one['success']:.0%}" if one["success"] is not None else "",
                one["tokens"],
                money(round(one["cost"] * MILLION)),
            )
            for one in found[key]
        ]
        screen.part(title, WORK, rows)
    short = 8 if screen.tty else None
    flows = [
        (
            one["name"][:short],
            one["handoffs"],
            one["tokens"],
            money(round(one["cost"] * MILLION)),
            ", ".join(one["agents"]),
        )
        for one in found["workflows"]
    ]
    screen.part("newest workflows", WORKFLOWS, flows)
    if found["breakers"]:
        rested = [(one["subject"], one["state"], one["failure"], one["failures"]) for one in found["breakers"]]
        screen.part("breakers", RESTED, rested)
