"""The walk of `baton review`: one item after the other, until a person has said something to each, or leaves."""

from __future__ import annotations

import shlex
import subprocess
from collections import Counter

from baton import clock, config
from baton.board import requests
from baton.board import review as reviewing
from baton.board.actor import Actor
from baton.board.approvals import Terms
from baton.board.review import MEANING, Decision, Item
from baton.board.root import Board
from baton.cli.records import lasting
from baton.cli.screen import Columns, Screen
from baton.errors import BatonError, Conflict, NotFound

GROUP = Columns(("", "ITEM", "WEIGHT", "WAITS", "TITLE", "SUMMARY"), spare=("SUMMARY", "WAITS", "WEIGHT"))
KEYS: dict[str, tuple[str, Decision | None]] = {
    "a": ("approve", "approve"), "n": ("next", "next"), "d": ("defer", "defer"), "x": ("dismiss", "dismiss"),
    "t": ("text", None), "e": ("edit", None), "A": ("approve all", None), "N": ("next all", None),
    "s": ("skip", None), "q": ("quit", None),
}  # fmt: skip
STALE_KEYS: dict[str, tuple[str, Decision | None]] = {
    "b": ("back on the list", "return"), "k": ("keep", "defer"), "x": ("dismiss", "dismiss"), "t": ("text", None),
    "s": ("skip", None), "q": ("quit", None),
}  # fmt: skip


SAID: dict[Decision, str] = {
    "approve": "approved", "next": "next", "defer": "deferred", "dismiss": "dismissed", "return": "back on the list"
}  # fmt: skip


class Left(Exception):
    """The person leaves, or is not there any more."""


def walk(screen: Screen, board: Board, folder: str, actor: Actor, terms: Terms) -> int:
    """Show everything that waits, ask about each, and sum up."""
    return _Walk(screen, board, actor, terms).run(reviewing.waiting(board, folder))


class _Walk:
    def __init__(self, screen: Screen, board: Board, actor: Actor, terms: Terms) -> None:
        self.screen = screen
        self.board = board
        self.actor = actor
        self.terms = terms
        self.counts: Counter[str] = Counter()

    def run(self, found: reviewing.Waiting) -> int:
        total = len(found.items())
        if not total and not found.alerts:
            self.screen.hint("nothing waits for a person here; `baton request new SKILL TOPIC` puts work on the list")
            return 0
        now = clock.now()
        if found.alerts:
            self.screen.heading(f"Open alerts: {len(found.alerts)}")
            for one in found.alerts:
                self.screen.line(f"  {one.title}, for {lasting((now - one.since) / 1e6)}: {one.text}", "bad")
                self.screen.line(f"    {one.path}", "dim")
        try:
            self._group("Waits as #next- for more than a day", found.stale, STALE_KEYS)
            self._group("Failed three times or more", found.exhausted, KEYS)
            routes = requests.routes(self.board)
            for noun, group in found.groups.items():
                route = routes.get(noun)
                how = f"/{route.skill}, {route.mode}" if route else "no skill is known for it"
                self._group(f"#needs-{noun} ({how})", group, KEYS)
        except Left:
            self.screen.line()
        said = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        self.screen.line(
            f"{said or 'nothing decided'}; {total - sum(self.counts.values())} of {total} left as they were"
        )
        return 0

    def _group(self, title: str, items: list[Item], keys: dict[str, tuple[str, Decision | None]]) -> None:
        if not items:
            return
        now = clock.now()
        rows = [
            (number, item.name, weight(item), waits(item, now), item.title, item.summary)
            for number, item in enumerate(items, 1)
        ]
        self.screen.part(f"{title}: {len(items)}", GROUP, rows)
        queue = list(items)
        while queue:
            item = queue.pop(0)
            key, item = self._asked(item, keys)
            if key in {"A", "N"}:
                queue = self._all([item, *queue], "approve" if key == "A" else "next")

    def _asked(self, item: Item, keys: dict[str, tuple[str, Decision | None]]) -> tuple[str, Item]:
        """Show an item until something is decided about it; the key that did, and the item as it was then."""
        self._show(item)
        while True:
            words = "  ".join(f"[{key}] {what}" for key, (what, _) in keys.items())
            key = self.screen.answer(f"{words} ?")
            if key is None or key == "q":
                raise Left
            if key not in keys:
                continue  # also an empty line: it is no decision
            decision = keys[key][1]
            if key == "t":
                self.screen.block(item.text)
                continue
            if key != "e" and (decision is None or self._done(item, decision)):
                return key, item
            if key == "e":
                self._edit(item)
            found = reviewing.again(self.board, item)
            if found is None:
                self.screen.line("it waits no more as it did; `baton review` lists it anew if it still does", "wait")
                self.counts["changed"] += 1
                return "s", item
            item = found
            self._show(item)

    def _show(self, item: Item) -> None:
        self.screen.heading(f"{item.name}  #{item.state}-{item.noun}")
        self.screen.fields(
            (
                ("title", item.title),
                ("summary", item.summary),
                ("weights", weights(item)),
                ("waits for", waits(item, clock.now())),
                ("failed", f"{item.attempts} times" if item.attempts else ""),
            )
        )

    def _done(self, item: Item, decision: Decision) -> bool:
        """Whether it is done; else it has changed, and is to be looked at again."""
        try:
            where = reviewing.decide(self.board, item, decision, self.actor, self.terms)
        except (Conflict, NotFound) as error:
            self.screen.line(str(error), "wait")
            return False
        except BatonError as error:
            self.screen.line(str(error), "bad")
            self.counts["refused"] += 1
            return True
        self.counts[SAID[decision]] += 1
        self.screen.line(f"{SAID[decision]}{f': {where}' if where != item.name else ''}", "good")
        return True

    def _all(self, items: list[Item], decision: Decision) -> list[Item]:
        """Decide on all that is left of a group, after a question; what has changed meanwhile is to be shown again."""
        if not self.screen.ask(f"{SAID[decision].capitalize()}: these {len(items)} items as they were listed?"):
            return items
        changed = [item for item in items if not self._done(item, decision)]
        return [found for item in changed if (found := reviewing.again(self.board, item)) is not None]

    def _edit(self, item: Item) -> None:
        words = [*shlex.split(config.editor()), self.board.path(item.path)]
        try:
            subprocess.run(words, check=False)
        except OSError as error:
            self.screen.line(f"{words[0]}: {error.strerror}; set EDITOR to a program that is there", "bad")


def weight(item: Item) -> str:
    """Priority and effort in short."""
    return f"{item.priority} {item.effort}".strip()


def weights(item: Item) -> str:
    """Priority and effort with their meaning."""
    named = [f"{one} ({MEANING[one]})" for one in (item.priority, item.effort) if one]
    return ", ".join([*named, *(["effort unknown"] if not item.effort else [])])


def waits(item: Item, now: int) -> str:
    """How long it waits."""
    return lasting((now - item.since) / 1e6)
