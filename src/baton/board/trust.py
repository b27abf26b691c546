"""Which files of a repository may decide something: those that a person has looked at, as they were then.

A repository can bring a dispatch table, programs, templates and skills along, and whoever can send a pull request
writes them. So they count only when their digest is in what a person trusted last. What was trusted is kept in the
user's state folder, whole, so that the next time only what changed has to be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from baton import clock, config
from baton.board.actor import Actor
from baton.board.ancestry import refuse_agents
from baton.board.root import Board
from baton.digest import sha256
from baton.errors import AuditBroken, BatonError, TooLarge

TRUSTED = "trusted"
MOST = 2000  # files
# What is asked about: files, and folders with all that is in them.
FILES = (
    "TAGS.md", "COMMANDS.md", "INVARIANTS.md", "AGENTS.md", "CLAUDE.md", ".mcp.json", ".claude/settings.json",
    ".claude/settings.local.json", "opencode.json",
)  # fmt: skip
FOLDERS = (
    ".baton", ".directives", ".claude/.directives", ".claude/skills", ".claude/agents", ".claude/commands",
    ".codex", ".opencode", ".agents",
)  # fmt: skip


class Change(msgspec.Struct, frozen=True):
    """A file that is not as it was trusted; `before` or `after` is None where there was or is none."""

    name: str
    before: bytes | None
    after: bytes | None


def read(board: Board, name: str) -> bytes | None:
    """The bytes of a file of the repository, if they are trusted; else None."""
    try:
        data = config.read_file(board.path(name))
    except BatonError:
        return None
    return data if trusted(board, name, data) else None


def trusted(board: Board, name: str, data: bytes) -> bool:
    """Whether a person has looked at exactly these bytes in this file."""
    return _manifest(board).get(name) == _digest(data)


def judge(board: Board) -> Callable[[Path, bytes], bool]:
    """The same as a question about a path, for those who read files themselves."""
    return lambda path, data: trusted(board, board.name(str(path)), data)


def changes(board: Board) -> list[Change]:
    """What a person has to look at, in order of the names."""
    manifest, found = _manifest(board), []
    there = dict(_there(board))
    for name in sorted({*manifest, *there}):
        after = there.get(name)
        if (manifest.get(name) or None) != (None if after is None else _digest(after)):
            found.append(Change(name, _kept(board, manifest[name]) if manifest.get(name) else None, after))
    return found


def trust(board: Board, seen: Iterable[Change], actor: Actor, why: str = "") -> int:
    """Trust what a person saw, those bytes and no others, or what we wrote (`why`); the position of the record."""
    refuse_agents(board)
    manifest = _manifest(board)
    for change in seen:
        if change.after is None:
            manifest.pop(change.name, None)
        else:
            manifest[change.name] = _keep(board, change.after)
    digest = _keep(board, msgspec.json.encode(manifest))
    more = {"why": why} if why else {}
    return board.log.append(TRUSTED, "", "", by=actor.by, manifest=digest, files=len(manifest), **more)


def _there(board: Board) -> Iterator[tuple[str, bytes]]:
    """The files that count, links left out."""
    names = [name for name in FILES if not os.path.islink(board.path(name))]
    for folder in FOLDERS:
        for above, folders, files in os.walk(board.path(folder)):
            folders[:] = [name for name in folders if name not in {".git", "node_modules"}]
            names += [board.name(os.path.join(above, name)) for name in files if _counts(folder, name)]
            if len(names) > MOST:
                raise TooLarge(f"{board.path(folder)}: more than {MOST} files to look at; remove what is none of it")
    for name in names:
        path = Path(board.path(name))
        if path.is_file() and not path.is_symlink():
            yield name, config.read_file(path)


def _counts(folder: str, name: str) -> bool:
    """Beside settings and templates, a store and its like stand in our own folder."""
    return folder != ".baton" or name.endswith((".toml", ".md"))


def _manifest(board: Board) -> dict[str, str]:
    """The digests that were trusted last, by name."""
    for record in board.log.history("", ""):
        if record["event"] == TRUSTED:
            kept = _kept(board, str(record["manifest"]))
            return {} if kept is None else msgspec.json.decode(kept, type=dict[str, str])
    return {}


def _digest(data: bytes) -> str:
    hashed: str = sha256(data).hexdigest()
    return hashed


def _kept(board: Board, digest: str) -> bytes | None:
    path = Path(board.state, TRUSTED, digest)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if _digest(data) != digest:
        raise AuditBroken(f"{path}: it is not what was trusted; remove {path.parent}, then `baton trust` again")
    return data


def _keep(board: Board, data: bytes) -> str:
    """Keep bytes under their digest, on the disk before the log names them."""
    digest = _digest(data)
    folder = Path(board.state, TRUSTED)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / digest).exists():
        beside = folder / f".{clock.new_id()}"
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / digest)
        number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)
    return digest
