"""`graph`: who handed what to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from baton.cli.call import Call, argument, verb
from baton.cli.mermaid import flowchart
from baton.cli.records import AN_ID, counted, find, full_id, passed_on
from baton.cli.show import empty
from baton.errors import NotFound
from baton.lifecycle import State
from baton.protocol.handoff import HUMAN
from baton.protocol.stats import read_seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from baton.protocol.crossing import Crossing
    from baton.protocol.handoff import Handoff
    from baton.relay import Relay

LOOK_BACK = 20  # how many offers to nobody the newest workflow may hide behind
BATCH = 500
ARROWS = {"delegation": "┄▶", "broadcast": "┄▶", "escalation": "━▶"}
DETOURS = {"retried", "rerouted", "escalated", "reclaimed", "released", "deferred", "unavailable", "parked", "timeout"}
MOVED_ON = {"rerouted", "escalated"}


class Edge(msgspec.Struct, frozen=True):
    """One handoff as it is drawn."""

    handoff: Handoff
    files: tuple[str, ...]  # the artifacts that came to be since the handoff before it
    notes: tuple[str, ...]  # its group, and what happened to it on the way
    crossing: Crossing | None = None

    @property
    def moved_by(self) -> str:
        """What moved the work: the condition and the artifacts."""
        files = f" [{', '.join(self.files)}]" if self.files else ""
        return (self.handoff.reason or self.handoff.task) + files

    @property
    def crossed(self) -> str:
        """How much of the context, where that was asked."""
        return passed_on(self.crossing) if self.crossing is not None else ""


@verb(
    argument("workflow", nargs="?", metavar="WORKFLOW", help=f"or a handoff: {AN_ID} (default: the newest)"),
    argument("--mermaid", action="store_true", help="as a Mermaid flowchart, for Markdown pages"),
    argument("--context", action="store_true", help="how much of the context crossed with each handoff"),
    examples=("baton graph", "baton graph --context", "baton graph 3fa2c81b --mermaid"),
)
def graph(call: Call) -> int:
    """Draw a workflow: solid arrows move the ownership, dotted ones ask for an answer, thick ones escalate.

    Edges say why and what, and in parentheses what happened on the way: retries, reroutes, groups that were asked.
    """
    relay = call.relay()
    workflow_id = _workflow(relay, call.args.workflow)
    if not workflow_id:
        empty(call, "no workflow yet")
        return 0
    edges = _edges(relay, workflow_id, context=call.args.context)
    drawn = flowchart([(one.handoff, one.moved_by, (*one.notes, *filter(None, [one.crossed]))) for one in edges])
    if call.screen.as_json:
        call.screen.document({"workflow_id": workflow_id, "edges": list(map(_record, edges)), "mermaid": drawn})
    elif call.args.mermaid:
        call.screen.block(drawn, indent="")
    else:
        result = relay.result(workflow_id)
        count = counted(len(result.handoffs), "handoff")
        call.screen.line(f"workflow {workflow_id}  {result.status}  {count}  {result.tokens} tokens", "bold")
        _draw(call, edges)
    return 0


def _workflow(relay: Relay, given: str | None) -> str:
    if given is None:
        newest = relay.store.workflows(limit=LOOK_BACK)
        known = {HUMAN, *(row.profile.agent_id for row in relay.store.agents())}
        roots = ((one.id, relay.get(one.root_id)) for one in newest)
        begun = (flow for flow, root in roots if root.to_agent in known or root.state is not State.REFUSED)
        return next(begun, newest[0].id if newest else "")
    try:
        return full_id(relay, given, "workflow")
    except NotFound:
        return find(relay, given).workflow_id


def _edges(relay: Relay, workflow_id: str, *, context: bool) -> list[Edge]:
    made = relay.store.find(workflow_id=workflow_id, limit=100_000)
    known = {one.id: one for one in made}
    ways = _ways(relay, list(known))
    asked = dict.fromkeys(one.broadcast_group_id for one in made if one.broadcast_group_id)
    groups = {group: number for number, group in enumerate(asked, 1)}
    found = []
    for one in made:
        before = {item.id: item for item in known[one.parent_id].context.artifacts} if one.parent_id in known else {}
        files = tuple(item.path for item in one.context.artifacts if before.get(item.id) != item)
        group = [_group(one, groups[one.broadcast_group_id])] if one.broadcast_group_id else []
        notes = (*group, *ways.get(one.id, ()))
        found.append(Edge(one, files, notes, relay.crossing(one.id) if context else None))
    return found


def _group(one: Handoff, number: int) -> str:
    rule = one.aggregation
    return f"group {number}: {rule.mode} of {rule.asked}" if rule is not None else f"group {number}: told only"


def _ways(relay: Relay, ids: list[str]) -> dict[str, list[str]]:
    """By handoff: what happened to it beside the straight way, in words."""
    said: dict[str, dict[str, int]] = {}
    holders: dict[str, str] = {}
    for at in range(0, len(ids), BATCH):
        for entry in relay.store.audit(handoff_id=ids[at : at + BATCH], limit=1_000_000):
            seen = read_seen(entry.record)
            before = holders.get(seen.handoff_id, seen.to_agent)
            holders[seen.handoff_id] = seen.to_agent
            if seen.event_type in DETOURS:
                counts = said.setdefault(seen.handoff_id, {})
                what = f"{seen.event_type} from {before}" if seen.event_type in MOVED_ON else seen.event_type
                counts[what] = counts.get(what, 0) + 1
    return {
        one: [what if count == 1 else f"{what} × {count}" for what, count in counts.items()]
        for one, counts in said.items()
    }


def _record(edge: Edge) -> dict[str, Any]:
    one = edge.handoff
    more = {"context": edge.crossing} if edge.crossing is not None else {}
    return {
        "id": one.id,
        "from": one.from_agent,
        "to": one.to_agent,
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "task": one.task,
        "artifacts": [artifact.path for artifact in one.context.artifacts],
        "new_artifacts": edge.files,
        "attempts": one.attempt,
        "group": one.broadcast_group_id,
        "notes": edge.notes,
        **more,
    }


def _draw(call: Call, edges: list[Edge]) -> None:
    children: dict[str, list[Edge]] = {}
    known = {one.handoff.id for one in edges}
    for one in edges:
        children.setdefault(one.handoff.parent_id if one.handoff.parent_id in known else "", []).append(one)
    # A stack and not recursion: a line may have thousands of hops.
    for root in children.get("", []):
        call.screen.line(root.handoff.from_agent)
        stack = [(root, "", True)]
        while stack:
            edge, before, last = stack.pop()
            print("  ".join(_line(call, edge, before, last=last)))
            following = children.get(edge.handoff.id, [])
            indent = before + ("    " if last else "│   ")
            stack += [(child, indent, child is following[-1]) for child in reversed(following)]


def _line(call: Call, edge: Edge, before: str, *, last: bool) -> Iterator[str]:
    one, paint = edge.handoff, call.screen.paint
    yield f"{before}{'└' if last else '├'}{ARROWS.get(one.type, '─▶')} {paint(one.to_agent, 'bold')}"
    yield paint(one.status, one.status)
    yield paint(" · ".join(filter(None, (edge.moved_by, edge.crossed))), "dim")
    if edge.notes:
        yield paint(f"({'; '.join(edge.notes)})", "wait")
