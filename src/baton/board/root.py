"""Which board a path belongs to: one folder for all worktrees of a repository, and this user's own records of it.

The records stand outside of the repository, in the user's state folder: what a repository brings along decides nothing.
"""

from __future__ import annotations

import os
from os.path import basename, dirname, isdir, isfile, join, realpath

from baton import config
from baton.board.log import Log
from baton.digest import sha256
from baton.errors import Malformed, NotFound

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Board:
    """A folder of Markdown files with tags, and the log of what was done on it."""

    __slots__ = ("_log", "root", "state")

    def __init__(self, root: str) -> None:
        self.root = root
        name = "".join(letter if letter in LETTERS else "-" for letter in basename(root))[:40]
        digest = sha256(root.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.state = join(config.state_home(), "boards", f"{name or 'root'}-{digest}")
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        """What was done here, by whom."""
        if self._log is None:
            self._log = Log(self.state, self.root)
        return self._log

    def name(self, path: str) -> str:
        """A file of the board as the log knows it; `path` is a real one."""
        return path[len(self.root.rstrip("/")) + 1 :]

    def path(self, name: str) -> str:
        """Where a file of the board stands."""
        return join(self.root, name)


def board_of(path: str) -> tuple[Board, str]:
    """The board that a path belongs to, and the real path there of what is meant."""
    if not path or "\0" in path:
        raise Malformed(f"{path!r}: not a path; name a file or folder")
    real = realpath(path)
    start = real if isdir(real) else dirname(real)
    if (given := config.board_root()) and _within(real, top := realpath(given)):
        return Board(top), real
    folder = start
    while not os.path.lexists(join(folder, ".git")):
        if folder == dirname(folder):
            return Board(_without_git(start)), real
        folder = dirname(folder)
    main = _main_worktree(folder)
    return Board(main), join(main, real[len(folder.rstrip("/")) + 1 :]) if main != folder else real


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _without_git(start: str) -> str:
    """The root where no repository is: the folder with `.baton`, else the one that holds `sessions`, else this one."""
    folder = start
    while folder != dirname(folder):
        if isdir(join(folder, ".baton")):
            return folder
        folder = dirname(folder)
    above, found, _ = start.rpartition("/sessions")
    if found and (start.endswith("/sessions") or start[len(above) + 9] == "/"):
        return above or "/"
    return start


def _main_worktree(folder: str) -> str:
    """The worktree that all linked ones share; a submodule stands for itself."""
    pointer = join(folder, ".git")
    if not isfile(pointer):
        return folder
    git = realpath(join(folder, _line(pointer).removeprefix("gitdir: ")))
    if not isfile(join(git, "commondir")):
        return folder
    common = realpath(join(git, _line(join(git, "commondir"))))
    back = join(git, "gitdir")
    if dirname(git) != join(common, "worktrees") or not isfile(back) or realpath(join(git, _line(back))) != pointer:
        return folder  # a folder that claims to be a worktree of a repository which does not know it
    if basename(common) != ".git":
        raise NotFound(
            f"{folder}: a worktree of a bare repository, which has no folder that all worktrees share; "
            "set BATON_ROOT to the one that is the board"
        )
    return dirname(common)


def _line(path: str) -> str:
    """The first line of a small file of git's."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.fsdecode(os.read(number, 4096).split(b"\n", 1)[0])
    finally:
        os.close(number)
