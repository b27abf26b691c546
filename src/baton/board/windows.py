"""Where agents run: one interface, and two that keep it. tmux shows a person each agent; plain processes write a log.

Neither keeps anything in memory: whoever opens the same place later, after a crash too, finds the same agents. What
to start travels on a ticket (`launch.py`), so no name, path or text from a file is ever an argument of tmux, part of a
window's name, or in a shell.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from baton.board import windows_plain, windows_tmux
from baton.board.jobs import GRACE, Job, Window
from baton.errors import NotFound

__all__ = ["Job", "Window", "Windows", "open_windows"]


class Windows(Protocol):
    """Where agents run."""

    @property
    def shows(self) -> bool:
        """Whether a window can wait for a person."""

    def start(self, job: Job) -> Window:
        """Start a program; when this returns it runs, or has already ended, and all others see it."""

    def list(self) -> list[Window]:
        """Those that run, and those that ended and were not closed, the oldest first."""

    def stop(self, window: Window, grace: float = GRACE) -> Window:
        """End the program with all that came from it, be sure that it is gone, and close the window."""

    def attach(self, window: Window) -> tuple[str, ...]:
        """The command by which a person looks at it."""

    def attached(self) -> bool:
        """Whether a person looks now."""


def open_windows(folder: Path, kind: Literal["auto", "tmux", "plain"] = "auto", socket: str | None = None) -> Windows:
    """The place of agents. `auto` is tmux where it is there and new enough; `socket` is tmux's -L."""
    fault = "" if kind == "plain" else windows_tmux.fault()
    if kind == "tmux" and fault:
        raise NotFound(fault)
    if kind == "plain" or fault:
        return windows_plain.Plain(folder)
    return windows_tmux.Tmux(folder, socket)
