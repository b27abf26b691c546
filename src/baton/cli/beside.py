"""What of the board a person sees beside what the store has: its alerts, its agents, and how much waits there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from baton.board.root import board_of
from baton.cli.records import counted, lasting
from baton.protocol.codec import to_time

if TYPE_CHECKING:
    from baton.board.alerts import Alert
    from baton.board.root import Board


def marked_board() -> Board | None:
    """The board of the working directory, where somebody made one or where a repository is."""
    board, _ = board_of(".")
    marks = (".git", ".baton/clis.toml", "TAGS.md", "sessions")
    return board if any(Path(board.path(mark)).exists() for mark in marks) else None


def alerts(board: Board, *, resolved: bool = False) -> list[Alert]:
    """The alerts of the board, as `baton alert list` has them."""
    from baton.board.alerts import listed

    return listed(board, resolved=resolved)


def alert_row(one: Alert, now: int) -> tuple[str, ...]:
    """An alert as a row beside those of the store."""
    about = "resolved" if one.resolved else "board"
    return one.path, about, lasting((now - one.since) / 1e6), "", f"{one.title}: {one.text}" if one.text else one.title


def alert_document(one: Alert) -> dict[str, object]:
    """The same for a program, with the names that those of the store have."""
    return {
        "id": one.path, "subject": "board", "text": f"{one.title}: {one.text}", "raised_at": to_time(one.since),
        "resolved_at": None, "resolved_by": "",
    }  # fmt: skip


def resolve(board: Board, path: str, by: str) -> None:
    """Mark an alert of the board as dealt with."""
    from baton.board import alerts as board_alerts
    from baton.board.actor import Actor, from_shell

    _, real = board_of(path)
    board_alerts.resolve(board, real, f"dealt with by {by}", Actor(by, from_shell().holder))


def waiting(board: Board, now: int) -> list[tuple[tuple[str, ...], dict[str, object]]]:
    """What waits for a review, a row and a document for each kind of work."""
    from baton.board.review import waiting as items

    found = items(board)
    groups = {"#next-, stale": found.stale, "failed too often": found.exhausted}
    groups |= {f"#needs-{noun}": group for noun, group in found.groups.items()}
    shown: list[tuple[tuple[str, ...], dict[str, object]]] = []
    for what, group in groups.items():
        if group:
            since = min(item.since for item in group)
            why = f"{counted(len(group), 'item')}; `baton review`"
            row = (group[0].name, "review", lasting((now - since) / 1e6), what, group[0].title, why)
            items_of = [{"item": item.name, "noun": item.noun, "title": item.title} for item in group]
            shown.append((row, {"kind": "review", "why": what, "items": items_of}))
    return shown


def agents(board: Board, now: int) -> list[tuple[tuple[str, ...], dict[str, object]]]:
    """The agents that work on the board, a row and a document for each."""
    from baton.board.agents import places, seen

    return [
        (
            (one.window or one.name, one.how, "1", lasting((now - one.since) / 1e6), f"/{one.skill}", one.name),
            {
                "agent_id": one.window or one.name, "state": one.how, "reason": one.evidence, "skill": one.skill,
                "item": one.name, "since": to_time(one.since),
            },
        )
        for one in seen(board, places(board))
    ]  # fmt: skip
