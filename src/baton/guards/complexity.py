"""A guess at how much work a task is, from its words alone, with its reasons.

It counts what a reader would count: steps, different actions, files, list items, breadth and length. A
question with no action in it is simple. It knows English verbs only, does not know the code that a task is
about, and takes "fix the bug" for small whatever the bug is. It is used only where `complexity="auto"` asks.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Tier = Literal["simple", "medium", "complex"]
MEDIUM = 2
COMPLEX = 6

_WORD = re.compile(r"[a-z][a-z'-]*")
_ACTIONS = frozenset(
    _WORD.findall("""
    add analyse analyze benchmark build change clean compare configure convert create debug delete deploy
    design develop document draft evaluate extend extract fetch find fix generate
    implement improve install integrate investigate migrate monitor optimise optimize plan port publish
    refactor release remove rename replace report research review rewrite set ship summarise summarize sync
    test translate update upgrade validate verify write
    """)
)
_LOOKING = frozenset(_WORD.findall("compare fetch find report review summarise summarize test translate"))
_LARGE = frozenset(
    _WORD.findall("""
    app application architecture backend end-to-end framework frontend infrastructure microservice
    microservices migrate migration pipeline platform redesign rewrite service system
    """)
)
_BROAD = re.compile(r"\b(all|every|each|entire|whole|across|codebase|everywhere|from scratch)\b")
_STEP = re.compile(r"\b(?:and then|then|after that|afterwards|finally|next,|once done|followed by)\b")
_ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+\S", re.MULTILINE)
_FILE = re.compile(r"[\w./-]*\w\.(?:py|js|ts|tsx|md|sql|go|rs|java|c|h|cpp|json|toml|ya?ml|html|css|sh|csv|txt)\b")
_QUESTION = re.compile(r"^(?:what|who|when|where|which|why|how|is|are|does|do|can|could|should|will)\b")
_LONG = 400


class Assessment(msgspec.Struct, frozen=True):
    """A tier, the points behind it, and what they were given for."""

    tier: Tier
    points: int
    reasons: tuple[str, ...]


def classify(task: str) -> Tier:
    """The tier of a task: "simple", "medium" or "complex"."""
    return assess(task).tier


def assess(task: str) -> Assessment:
    """Count the signs of work in a task, and say which were found."""
    text = task.strip().lower()
    words = _WORD.findall(text)
    actions = [word for word in dict.fromkeys(words) if word in _ACTIONS]
    if (text.endswith("?") or _QUESTION.match(text)) and not (set(actions) - _LOOKING):
        return Assessment("simple", 0, ("a question",))
    signs = {
        f"{len(actions)} actions ({', '.join(actions[:5])})": max(0, len(actions) - 1),
        "steps that follow one another": len(_STEP.findall(text)),
        "list items": len(_ITEM.findall(task)),
        "files": max(0, len(set(_FILE.findall(text))) - 1),
        "breadth (all, every, across …)": 2 * bool(_BROAD.search(text)),
        "something large": 2 * min(2, len(_LARGE.intersection(words))),
        f"{len(text)} characters": min(3, len(text) // _LONG),
    }
    points = sum(signs.values())
    tier: Tier = "complex" if points >= COMPLEX else "medium" if points >= MEDIUM else "simple"
    reasons = tuple(f"{sign}: +{value}" for sign, value in signs.items() if value)
    return Assessment(tier, points, reasons or ("one small action",))
