"""Alerts: what everybody who works here should know, in a file each, until somebody resolves it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from baton import clock
from baton.board import files, find, moves, template, wrote
from baton.board.actor import Actor
from baton.board.answered import TEMPLATES
from baton.board.root import Board
from baton.board.sections import first_line
from baton.board.tags import ALERT, RESOLVED, Tag, Text, replaced
from baton.errors import Conflict, Malformed, safe
from baton.protocol import codec

RAISED = "raised"
CLEARED = "resolved"
NOTICED = "alert"  # what `recovery` notes of an item
NOUN = "alert"
FOLDER = "sessions/ALERTS"
FIELDS = ("what-changed", "impact", "expected-duration", "workaround")


class Alert(msgspec.Struct, frozen=True):
    """An alert as its file has it; times are microseconds, 0 where nobody noted one."""

    path: str
    title: str
    text: str
    since: int
    by: str = ""
    resolved: bool = False


def raise_alert(board: Board, topic: str, fields: Mapping[str, str], actor: Actor, folder: str = FOLDER) -> str:
    """Write an alert; its path. One on the same topic that is open in this folder is left as it is."""
    topic = " ".join(safe(topic).split())
    if not topic or len(topic) > template.TOPIC:
        raise Malformed(f"the topic {topic[:40]!r}: write 1 to {template.TOPIC} characters that say what is wrong")
    place = Path(board.path(folder))
    place.mkdir(parents=True, exist_ok=True)
    if not place.resolve().is_relative_to(board.root):
        raise Malformed(f"{place}: it leads out of the board; make it a folder")
    date = codec.iso(clock.now())[:19].replace("T", " ")
    form = Path(TEMPLATES, "ALERT_RAISE.md").read_text(encoding="utf-8")
    words = {"topic": topic, "date": date, "requester": actor.by}
    data = template.filled(form, words, {name: [said] for name, said in fields.items() if said}).encode()
    stem = f"ALERT_RAISE_{template.topic_name(topic)}"
    for number in range(1, 10_000):
        path = place / (f"{stem}.md" if number == 1 else f"{stem}_{number}.md")
        name = board.name(str(path))
        if not os.path.lexists(path):
            board.log.append(RAISED, name, NOUN, by=actor.by, topic=topic)
            if files.create(str(path), data):
                return name
        if not path.is_symlink() and _tag(files.read(str(path)), ALERT) is not None:
            return name
    raise Malformed(f"{place / stem}: ten thousand of that name; remove some")


def listed(board: Board, *, resolved: bool = False) -> list[Alert]:
    """The open alerts, the oldest first; with the resolved ones where asked."""
    names = [ALERT, RESOLVED] if resolved else [ALERT]
    hits = [hit for name in names for hit in find.find(name, [board.root], tags_only=True)]
    found = []
    for hit in hits:
        name = board.name(hit.path)
        try:
            data = files.read(hit.path)
        except (Malformed, Conflict):
            continue
        raised = next((one for one in board.log.history(name, NOUN) if one["event"] == RAISED), None)
        found.append(
            Alert(
                path=name,
                title=hit.title().removeprefix("Alert: "),
                text=first_line(data, "What Changed", "Impact", "Workaround"),
                since=int(raised["time"]) if raised else Path(hit.path).stat().st_mtime_ns // 1000,
                by=str(raised["by"]) if raised else "",
                resolved=hit.name == RESOLVED,
            )
        )
    return sorted([*found, *_noticed(board)], key=lambda one: (one.resolved, one.since, one.path))


def _noticed(board: Board) -> list[Alert]:
    """What the daemon noted of items: it is over as soon as one moves on."""
    newest = {(str(one["path"]), str(one["noun"])): one for one in board.log.of(NOTICED) if one["noun"] != NOUN}
    found = []
    for (name, noun), record in newest.items():
        history = list(board.log.history(name, noun))
        cleared = {one["of"] for one in history if one["event"] == CLEARED}
        standing = moves.standing(history)
        if record["at"] not in cleared and (standing is None or int(standing["at"]) < int(record["at"])):
            title = f"#{noun} in {Path(name).stem}: {record['verdict']}"
            found.append(Alert(name, title, str(record["reason"]), int(record["time"]), "baton"))
    return found


def resolve(board: Board, path: str, action: str, actor: Actor) -> None:
    """Say that an alert is over, and what was done."""
    name = board.name(path)
    date = codec.iso(clock.now())[:19].replace("T", " ")
    said = template.plain(action) or "resolved"
    if len(said) > template.LONGEST // 8:
        raise Malformed(f"{len(action)} characters of what was done; say it in a few sentences")
    lines = [
        "## Resolution",
        f"*   **Date**: {date}",
        f"*   **Resolved by**: {template.plain(actor.by)}",
        f"*   **Action**: {said}",
    ]

    noticed = [one for one in board.log.of(NOTICED) if one["path"] == name]
    if noticed and _tag(files.read(path), ALERT) is None:
        for record in noticed:
            board.log.append(CLEARED, name, str(record["noun"]), of=int(record["at"]), by=actor.by, action=said)
        return

    def edit(data: bytes) -> bytes:
        tag = _tag(data, ALERT)
        if tag is None:
            over = _tag(data, RESOLVED) is not None
            raise Conflict(f"{name}: {'it is resolved already' if over else f'no #{ALERT} on its Tags line'}")
        return wrote.section(board, name, replaced(data, [tag], [RESOLVED]), lines)

    moves.write(board, path, edit, lambda _old, _new: [(CLEARED, NOUN, {"action": said})], actor)


def _tag(data: bytes, name: str) -> Tag | None:
    return next((tag for tag in Text(data).own() if tag.name == name), None)
