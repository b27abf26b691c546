"""`graph`: who handed what to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from baton.cli.call import Call, argument, verb
from baton.cli.records import AN_ID, counted, find, full_id
from baton.cli.screen import safe
from baton.cli.show import empty
from baton.errors import NotFound
from baton.lifecycle import State
from baton.protocol.handoff import HUMAN

if TYPE_CHECKING:
    from baton.protocol.handoff import Handoff
    from baton.relay import Relay

LABEL = 60
LOOK_BACK = 20  # how many offers to nobody the newest workflow may hide behind


@verb(
    argument("workflow", nargs="?", metavar="WORKFLOW", help=f"or a handoff: {AN_ID} (default: the newest)"),
    argument("--mermaid", action="store_true", help="as a Mermaid flowchart, for Markdown pages"),
    examples=("baton graph", "baton graph 3fa2c81b --mermaid"),
)
def graph(call: Call) -> int:
    """Draw a workflow: solid arrows move the ownership, dotted ones ask for an answer. Edges say why and what."""
    relay = call.relay()
    workflow_id = _workflow(relay, call.args.workflow)
    if not workflow_id:
        empty(call, "no workflow yet")
        return 0
    made = relay.store.find(workflow_id=workflow_id, limit=100_000)
    if call.screen.as_json:
        call.screen.document({"workflow_id": workflow_id, "edges": list(map(_edge, made)), "mermaid": mermaid(made)})
    elif call.args.mermaid:
        call.screen.block(mermaid(made), indent="")
    else:
        result = relay.result(workflow_id)
        count = counted(len(result.handoffs), "handoff")
        call.screen.line(f"workflow {workflow_id}  {result.status}  {count}  {result.tokens} tokens", "bold")
        _draw(call, made)
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


def _edge(one: Handoff) -> dict[str, Any]:
    return {
        "id": one.id,
        "from": one.from_agent,
        "to": one.to_agent,
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "task": one.task,
        "artifacts": [artifact.path for artifact in one.context.artifacts],
    }


def _label(one: Handoff) -> str:
    files = ", ".join(artifact.path for artifact in one.context.artifacts)
    return (one.reason or one.task) + (f" [{files}]" if files else "")


def _draw(call: Call, made: list[Handoff]) -> None:
    children: dict[str, list[Handoff]] = {}
    known = {one.id for one in made}
    for one in made:
        children.setdefault(one.parent_id if one.parent_id in known else "", []).append(one)
    # A stack and not recursion: a line may have thousands of hops.
    for root in children.get("", []):
        call.screen.line(root.from_agent)
        stack = [(root, "", True)]
        while stack:
            one, before, last = stack.pop()
            arrow = ("└" if last else "├") + ("┄▶ " if one.type == "delegation" else "─▶ ")
            screen = call.screen
            status = screen.paint(one.status, one.status)
            print(f"{before}{arrow}{screen.paint(one.to_agent, 'bold')}  {status}  {screen.paint(_label(one), 'dim')}")
            following = children.get(one.id, [])
            indent = before + ("    " if last else "│   ")
            stack += [(child, indent, child is following[-1]) for child in reversed(following)]


def mermaid(made: list[Handoff]) -> str:
    """A Mermaid flowchart; names and texts are quoted, so that they cannot become syntax."""
    names = dict.fromkeys(name for one in made for name in (one.from_agent, one.to_agent))
    nodes = {name: f"a{number}" for number, name in enumerate(names)}
    lines = ["flowchart TD", *(f'    {node}["{_quoted(name)}"]' for name, node in nodes.items())]
    for number, one in enumerate(made, 1):
        text = _label(one)
        cut = text[:LABEL] + ("…" if len(text) > LABEL else "")
        arrow = "-.->" if one.type == "delegation" else "-->"
        label = _quoted(f"{number}. {cut} ({one.status})")
        lines.append(f'    {nodes[one.from_agent]} {arrow}|"{label}"| {nodes[one.to_agent]}')
    return "\n".join(lines)


def _quoted(text: str) -> str:
    said = safe(text).replace("#", "#35;").replace("&", "#amp;")
    for letter, name in (('"', "quot"), ("<", "lt"), (">", "gt"), ("`", "96"), ("|", "124"), ("\\", "92")):
        said = said.replace(letter, f"#{name};")
    return said
