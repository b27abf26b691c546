"""A workflow as a Mermaid flowchart. Names and texts are data: whatever stands in them cannot become syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baton.errors import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from baton.protocol.handoff import Handoff

LABEL = 60
ARROWS = {"delegation": "-.->", "broadcast": "-.->", "escalation": "==>"}
STROKES = {
    "completed": "green", "failed": "red", "refused": "red", "cancelled": "gray", "waiting": "orange",
    "parked": "orange", "rejected": "orange", "claimed": "teal", "offered": "blue", "deferred": "orange",
}  # fmt: skip
NAMED = {'"': "quot", "<": "lt", ">": "gt", "&": "amp"}
# All else is written by its number: a quote ends a label, %%{…}%% is a directive wherever it stands, `…` is Markdown.
PLAIN = frozenset(" .,_/()[]+=!?'×·→…≈-")


def flowchart(edges: Sequence[tuple[Handoff, str, Sequence[str]]]) -> str:
    """Handoffs with their labels and notes; the colour of an arrow is where it stands."""
    names = dict.fromkeys(name for one, _, _ in edges for name in (one.from_agent, one.to_agent))
    nodes = {name: f"a{number}" for number, name in enumerate(names)}
    lines = ["flowchart TD", *(f'    {node}["{quoted(name)}"]' for name, node in nodes.items())]
    for number, (one, text, notes) in enumerate(edges, 1):
        cut = text[:LABEL] + ("…" if len(text) > LABEL else "")
        label = f"{number} {cut} ({', '.join((one.status, *notes))})"  # "1. " would be read as a list
        arrow = ARROWS.get(one.type, "-->")
        lines.append(f'    {nodes[one.from_agent]} {arrow}|"{quoted(label)}"| {nodes[one.to_agent]}')
    strokes = (f"    linkStyle {n} stroke:{STROKES[one.status]}" for n, (one, _, _) in enumerate(edges))
    return "\n".join([*lines, *strokes])


def quoted(text: str) -> str:
    """A text inside of a quoted label: plain letters, and everything else as a code."""
    said = safe(text)
    # A sign or a number at the beginning would make a list of it.
    begun = next((n for n, letter in enumerate(said) if letter.isalpha()), len(said))
    return "".join(_letter(letter, first=n < begun) for n, letter in enumerate(said))


def _letter(letter: str, *, first: bool) -> str:
    if letter.isalnum() or letter == " " or (letter in PLAIN and not first):
        return letter
    return f"#{NAMED.get(letter, ord(letter))};"
