"""Find tags in a tree: every file is looked at, most by one test for bytes, and only what may hit is parsed.

What of a tree counts says `tree.py`; links are never followed.
"""

from __future__ import annotations

import os
import stat
from os.path import dirname, isdir, join

from baton.board.files import LARGEST
from baton.board.index import FAMILIES, Index, family, signature
from baton.board.root import board_of
from baton.board.tags import Text, fits
from baton.board.tree import is_document, is_folder
from baton.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SESSIONS = "sessions"  # where nothing is named, work is looked for here
PAGE = 64 * 1024  # larger buffers are fresh mappings, which cost more than a second read


class Hit:
    """A tag that was found: its file, as it is shown, its line and its name."""

    __slots__ = ("_data", "inline", "line", "name", "path")

    def __init__(self, path: str, name: str, line: int, data: bytes, *, inline: bool) -> None:
        self.path = path
        self.name = name
        self.line = line
        self.inline = inline
        self._data = data

    def text(self, beside: int) -> str | None:
        """The text of its line, or of one that many lines further; None where there is none."""
        lines = self._data.split(b"\n")
        at = self.line - 1 + beside
        if at < 0 or at >= len(lines) or (at == len(lines) - 1 and not lines[at]):
            return None
        return lines[at].rstrip(b"\r").decode("utf-8", "replace")

    def title(self) -> str:
        """The first heading of its file."""
        return Text(self._data).title()


def find(pattern: str, paths: list[str], *, tags_only: bool = False) -> list[Hit]:
    """The tags that fit, in order of their files and lines; a file that several paths lead to is shown once."""
    literal = b"#" + pattern.partition("*")[0].encode()
    hits, seen = list[Hit](), set[str]()
    for shown, real, state in [start(path) for path in paths or [_where()]]:
        for name, data in _with(literal, real, state):
            path = join(real, name) if name else real
            if path not in seen:
                seen.add(path)
                hits += hits_in(join(shown, name) if name else shown, data, pattern, tags_only=tags_only)
    hits.sort(key=lambda hit: (hit.path, hit.line))
    return hits


def hits_in(path: str, data: bytes, pattern: str, *, tags_only: bool = False) -> list[Hit]:
    """The tags of one text that fit, each line once."""
    found: dict[tuple[int, str], Hit] = {}
    for tag in Text(data).tags:
        if fits(tag.name, pattern) and not (tags_only and tag.inline):
            found.setdefault((tag.line, tag.name), Hit(path, tag.name, tag.line, data, inline=tag.inline))
    return list(found.values())


def _where() -> str:
    return SESSIONS if isdir(board_of(SESSIONS)[1]) else "."


def start(path: str) -> tuple[str, str, str]:
    """How a path is shown, where it really is (in a linked worktree elsewhere), and what its board keeps for itself."""
    board, real = board_of(path)
    if not os.path.lexists(real):
        raise NotFound(f"{path}: no such folder or file to look into; name one that is there")
    if not os.path.exists(path) or not os.path.samefile(real, path):
        return real, real, board.state
    return ("" if path == "." else path.rstrip("/") or "/"), real, board.state


def _with(literal: bytes, top: str, state: str) -> Iterator[tuple[str, bytes]]:
    """The documents below a folder, or this one, whose bytes contain this; named from the folder on."""
    if not isdir(top):
        folder = os.open(dirname(top), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = _read(folder, top[len(dirname(top).rstrip("/")) + 1 :])
            if found is not None and literal in found[1]:
                yield "", found[1]
        finally:
            os.close(folder)
        return
    index, bit = Index(state, top), family(literal)
    if bit:
        index.load()
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            folder = os.open(join(top, inside), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            if inside:
                continue  # it went away meanwhile, or may not be read
            raise
        try:
            for name, data in _in_folder(index, bit, literal, folder, inside, waiting):
                yield join(inside, name), data
        finally:
            os.close(folder)
    if bit:
        index.save()


def _in_folder(
    index: Index, bit: int, literal: bytes, folder: int, inside: str, waiting: list[str]
) -> Iterator[tuple[str, bytes]]:
    """What contains this in one folder; the folders in it wait for their turn."""
    noted, known = index.folder(inside, os.fstat(folder))
    if known is not None:
        folders, files = known.folders, known.files
    else:
        documents, folders = _names(folder)
        before = index.before(inside)
        files = [before.get(name) or (name, 0, 0, 0, 0, 0, 0) for name in documents]
    waiting += [join(inside, name) for name in folders]
    start, settled = FAMILIES[bit.bit_length() - 1] if bit else literal, index.settled
    for entry in files:
        name, mtime, ctime, size, inode, asked, there = entry
        if mtime:
            try:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            same = (
                info.st_mtime_ns == mtime
                and info.st_ctime_ns == ctime
                and info.st_size == size
                and info.st_ino == inode
                and mtime < settled > ctime
            )
            if same and asked & bit and not there & bit:
                noted.files.append(entry)
                continue
            if not same:
                asked = there = 0
        found = _read(folder, name)
        if found is None:
            continue
        info, data = found
        has = start in data
        if not asked & bit:
            index.stale += 1
            asked |= bit
            there |= bit if has else 0
        noted.files.append((name, *signature(info), asked, there))
        if has and literal in data:
            yield name, data


def _names(folder: int) -> tuple[list[str], list[str]]:
    """The documents and the folders in a folder."""
    documents, folders = list[str](), list[str]()
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if is_document(name):
                if entry.is_file(follow_symlinks=False):
                    documents.append(name)
            elif is_folder(name) and entry.is_dir(follow_symlinks=False):
                folders.append(name)
    return documents, folders


def _read(folder: int, name: str) -> tuple[os.stat_result, bytes] | None:
    """A document, and what it was before it was read; None where it went away, may not be read, or is none."""
    try:
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        info = os.fstat(number)
        if not stat.S_ISREG(info.st_mode):
            return None
        data = os.read(number, PAGE)
        if len(data) == PAGE:
            while len(data) < LARGEST and (more := os.read(number, 1024 * 1024)):
                data += more
        return info, data
    except OSError:
        return None
    finally:
        os.close(number)
