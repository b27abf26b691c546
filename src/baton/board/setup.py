"""Set a board up: the pages and skills from which agents learn its commands, put where their programs look.

It changes nothing that it did not write. Each file that it writes whole ends with a seal, a comment with the digest of
all above; what it adds to a file of somebody else's stands between two marks, of which the first has the digest. Where
the digest does not hold, somebody changed it, and it is left alone. Nothing is written through a link.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from baton import config
from baton.board import dispatch, files, tags, trust
from baton.board.actor import Actor
from baton.board.ancestry import refuse_agents
from baton.board.root import Board
from baton.digest import sha256
from baton.errors import BatonError, Conflict

HANDBOOK = Path(__file__).parent / "handbook"
PAGES = ("TAGS.md", "COMMANDS.md", "INVARIANTS.md")
# Claude Code and opencode look into the first; Codex and others that read AGENTS.md into the second.
SKILLS = (".claude/skills", ".agents/skills")
AGENTS, CLAUDE = "AGENTS.md", "CLAUDE.md"
IMPORT = b"@AGENTS.md"

What = Literal["new", "updated", "as it is", "changed", "not ours", "left"]
WRITTEN: tuple[What, ...] = ("new", "updated")
REASONS: dict[What, str] = {
    "new": "",
    "updated": "it was as an earlier `baton init` wrote it",
    "as it is": "",
    "changed": "somebody changed what `baton init` wrote; --force writes it anew",
    "not ours": "`baton init` did not write it; rename it, if ours is to stand there",
    "left": "the marks of `baton init` in it are not one pair; remove them",
}

_SEAL = re.compile(rb"\n<!-- written by `baton init`, sha256 ([0-9a-f]{64}); who changes it keeps it -->\n?\Z")
_SEALED = b"\n<!-- written by `baton init`, sha256 "
_BLOCK = re.compile(
    rb"<!-- begin `baton init`, sha256 ([0-9a-f]{64}) -->\r?\n(.*?)<!-- end `baton init` -->(?:\r?\n|\Z)", re.DOTALL
)
_MARK = re.compile(rb"<!-- (?:begin|end) `baton init`")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One file: how it stands, and what it is before and afterwards; `before` is None where there is none."""

    name: str
    what: What
    reason: str = ""
    before: bytes | None = None
    after: bytes | None = None
    ours: bool = False  # nothing is in it afterwards but what we write

    @property
    def writes(self) -> bool:
        """Whether it is to be written."""
        return self.what in WRITTEN


def plan(board: Board, *, force: bool = False) -> list[Step]:
    """What is to be written. With `force`, what was changed in files of ours is written anew."""
    steps = [_step(board, name, text) for name, text in _handbook()]
    block = _read(HANDBOOK / "BLOCK.md")
    steps += [_step(board, AGENTS, block, whole=False), _claude(board, block)]
    if not force:
        return steps
    gone = "what somebody changed in it is gone"
    return [
        msgspec.structs.replace(one, what="updated", reason=gone) if one.what == "changed" else one for one in steps
    ]


def write(board: Board, steps: list[Step], actor: Actor) -> int:
    """Write what the steps say, and trust what stands there now as we write it; how many files were written.

    It is for a person: what is written here decides what agents do.
    """
    refuse_agents(board)
    known = {step.name for step in steps if step.before is not None and trust.trusted(board, step.name, step.before)}
    if not os.path.lexists(board.path(".git")):
        Path(board.path(".baton")).mkdir(exist_ok=True)  # so that its folders are found to be of one board
    due = [step for step in steps if step.writes]
    for step in due:
        _put(board, step)
    stand = [step for step in steps if step.what in (*WRITTEN, "as it is") and (step.ours or step.name in known)]
    fresh = [step for step in stand if step.after and not trust.trusted(board, step.name, step.after)]
    if fresh:
        changes = [trust.Change(step.name, step.before, step.after) for step in fresh]
        trust.trust(board, changes, actor, why="written by `baton init`")
    return len(due)


# --- what is wanted ---------------------------------------------------------------------------------


def _handbook() -> Iterator[tuple[str, bytes]]:
    """The files that are ours as a whole, with their texts."""
    for name in PAGES:
        yield name, _read(HANDBOOK / name)
    for skill in sorted(one.name for one in (HANDBOOK / "skills").iterdir()):
        for folder in SKILLS:
            yield f"{folder}/{skill}/SKILL.md", _read(HANDBOOK / "skills" / skill / "SKILL.md")


def _read(path: Path) -> bytes:
    """A text of the handbook, its tables filled in from the code that obeys them."""
    text = path.read_text(encoding="utf-8")
    for word, table in (("moves", _moves), ("weights", _weights), ("dispatch", dispatch.written)):
        if f"{{{word}}}" in text:
            text = text.replace(f"{{{word}}}", table())
    return text.encode()


def _moves() -> str:
    rows = ["| from | to | when |", "|---|---|---|"]
    for (before, after), when in tags.LEGAL.items():
        cells = [f"`#{state}-X`" if state else empty for state, empty in ((before, "–"), (after, "removed"))]
        rows.append(f"| {' | '.join(cells)} | {when} |")
    return "\n".join(rows)


def _weights() -> str:
    return "\n".join(
        ["| tag | meaning |", "|---|---|", *(f"| `#{tag}` | {what} |" for tag, what in tags.WEIGHTS.items())]
    )


# --- how it stands ----------------------------------------------------------------------------------


def _step(board: Board, name: str, text: bytes, *, whole: bool = True) -> Step:
    """How one file stands beside the text that is to be in it."""
    before, reason = _there(board, name)
    if reason:
        return Step(name=name, what="left", reason=reason)
    what, after = _sealed(before, text) if whole else _marked(before, text)
    ours = whole or after == _block(text)
    return Step(name=name, what=what, reason=REASONS[what], before=before, after=after, ours=ours)


def _claude(board: Board, block: bytes) -> Step:
    """CLAUDE.md: a new one imports AGENTS.md; one that is there gets the block, unless it imports or is AGENTS.md."""
    path = board.path(CLAUDE)
    if os.path.islink(path) and os.path.realpath(path) == board.path(AGENTS):
        return Step(name=CLAUDE, what="as it is", reason="it is a link to AGENTS.md")
    before, reason = _there(board, CLAUDE)
    if before is None or reason:
        return _step(board, CLAUDE, IMPORT + b"\n", whole=False)
    if any(line.strip() == IMPORT for line in before.splitlines()):
        ours = before == _block(IMPORT + b"\n")
        return Step(name=CLAUDE, what="as it is", reason="it imports AGENTS.md", before=before, after=before, ours=ours)
    return _step(board, CLAUDE, block, whole=False)


def _there(board: Board, name: str) -> tuple[bytes | None, str]:
    """The bytes of a file, None where there is none; else why nothing can be written there."""
    path = board.path(name)
    if (linked := _link(board, name)) is not None:
        return None, f"{linked} is a link, and nothing is written through one"
    if not os.path.lexists(path):
        return None, ""
    try:
        return config.read_file(path), ""
    except BatonError as error:
        return None, str(error)


def _link(board: Board, name: str) -> str | None:
    """The first part of a path that is a link."""
    parts = name.split("/")
    above = ("/".join(parts[: number + 1]) for number in range(len(parts)))
    return next((part for part in above if os.path.islink(board.path(part))), None)


def _sealed(before: bytes | None, text: bytes) -> tuple[What, bytes]:
    """How a file that is ours as a whole stands, and how it is to stand."""
    after = text + b"\n<!-- written by `baton init`, sha256 %s; who changes it keeps it -->\n" % _digest(text)
    if before is None:
        return "new", after
    plain = before.replace(b"\r\n", b"\n")
    if plain == after:
        return "as it is", before
    seal = _SEAL.search(plain)
    if seal is None:
        return ("changed" if _SEALED in plain else "not ours"), after
    return ("updated" if _digest(plain[: seal.start()]) == seal[1] else "changed"), after


def _marked(before: bytes | None, text: bytes) -> tuple[What, bytes]:
    """How our part of somebody else's file stands, and how the file is to stand."""
    if before is None:
        return "new", _block(text)
    newline = b"\r\n" if b"\r\n" in before else b"\n"
    block = _block(text).replace(b"\n", newline)
    found = _BLOCK.findall(before)
    if len(_MARK.findall(before)) != 2 * len(found) or len(found) > 1:
        return "left", before  # nobody but a person can say what is ours
    if not found:
        gap = b"" if not before else newline if before.endswith(b"\n") else newline * 2
        return "new", before + gap + block
    after = _BLOCK.sub(lambda _: block, before)
    if after == before:
        return "as it is", before
    ((digest, inside),) = found
    return ("updated" if _digest(inside.replace(b"\r\n", b"\n")) == digest else "changed"), after


def _block(text: bytes) -> bytes:
    return b"<!-- begin `baton init`, sha256 %s -->\n%s<!-- end `baton init` -->\n" % (_digest(text), text)


def _digest(text: bytes) -> bytes:
    hashed: str = sha256(text).hexdigest()
    return hashed.encode()


# --- writing ----------------------------------------------------------------------------------------


def _put(board: Board, step: Step) -> None:
    path, after = board.path(step.name), step.after
    assert after is not None  # noqa: S101 - a step that writes has it
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    gone = f"{path}: somebody changed it just now; look with `baton init --dry-run`, then run it again"
    if _link(board, step.name) is not None:
        raise Conflict(gone)
    if step.before is None:
        if not files.create(path, after):
            raise Conflict(gone)
        return

    def edit(data: bytes) -> bytes:
        if data != step.before:
            raise Conflict(gone)
        return after

    files.change(path, edit)
