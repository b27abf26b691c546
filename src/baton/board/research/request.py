"""The request file, as far as research reads and writes it.

Below `## Research Job` stands all there is to know of the job, so that any process can go on with it:

    ## Research Job
    - **Provider**: gemini
    - **Intent**: `0c9a…`
    - **Asked**: 2026-02-06T12:00:00Z
    - **Interaction ID**: `v1_Chd…`
    - **Status**: running

The first three lines are the intent: they are on disk before the provider is asked. `Interaction ID` is there before
anybody waits. Who finds an intent without an id knows that a job may have been started, and leaves it to a person.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from baton.board.markdown import Markdown
from baton.board.research.base import ENDS, SAID, is_id
from baton.board.research.report import harmless
from baton.board.tags import HEAD, Text
from baton.errors import Malformed, TooLarge, safe

JOB = "Research Job"
RESPONSE = "Response"
PREVIOUS = "Previous Research"
# What the board and its people note in a request is no part of the question.
_NOTES = frozenset(name.casefold() for name in (JOB, RESPONSE, PREVIOUS, "Recovery", "Requesting Session"))
_NONE = frozenset({"", "-", "–", "none", "n/a", "no"})
SESSION = b"Session: "
LARGEST = 256 * 1024

Change = Callable[[list[str]], list[str]]


class Request(Protocol):
    """One request file.

    `note` calls `change`, under the lock of the file, with the lines that stand below `## SECTION` (none where it is
    missing), writes what it returns in their place, and returns when that would outlive a power cut. Where `change`
    raises, the file stays as it is. It may be called again, when somebody else saves the file meanwhile.
    `name` is how the board calls a file: its path below the root.
    """

    @property
    def path(self) -> Path: ...
    def name(self, path: Path) -> str: ...
    def read(self) -> bytes: ...
    def note(self, section: str, change: Change) -> None: ...


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of its job."""

    provider: str = ""
    intent: str = ""
    asked: str = ""
    id: str = ""
    status: str = ""
    reason: str = ""
    tokens: str = ""

    @property
    def ended(self) -> bool:
        return self.status in ENDS

    @property
    def is_free(self) -> bool:
        """Whether it is sure that there is no job, so that one may be started."""
        return not self.id and (self.status == "not started" or not (self.intent or self.asked or self.status))

    def lines(self) -> list[str]:
        """Write it for the section."""
        said = [(label, getattr(self, name)) for label, name in _LABELS.items()]
        return [f"- **{label}**: {_shown(label, value)}" for label, value in said if value]

    @classmethod
    def of(cls, lines: list[str]) -> Record:
        """Read what stands in the section; an id that can be none is refused."""
        found = cls(**{name: safe(field(lines, label))[:SAID] for label, name in _LABELS.items()})
        if found.id and not is_id(found.id):
            raise Malformed(f"{JOB}: {found.id!r:.60} is no id of a job; write the one that the provider shows")
        return found


_LABELS = {
    "Provider": "provider",
    "Intent": "intent",
    "Asked": "asked",
    "Interaction ID": "id",
    "Status": "status",
    "Reason": "reason",
    "Tokens": "tokens",
}


def _shown(label: str, value: str) -> str:
    return f"`{value}`" if label in {"Intent", "Interaction ID"} else " ".join(harmless(value).split())


def field(lines: list[str], name: str) -> str:
    """The value of the first `- **Name**: value`; empty where there is none."""
    for line in lines:
        label, colon, value = line.strip().lstrip("-* ").replace("**", "").partition(":")
        if colon and label.strip().casefold() == name.casefold():
            return value.strip().strip("`").strip()
    return ""


def has(data: bytes, title: str) -> bool:
    """Whether there is such a section."""
    return _place(_lines(data), title)[0] is not None


def section(data: bytes, title: str) -> list[str]:
    """The lines below the first `## title`."""
    lines = _lines(data)
    start, end = _place(lines, title)
    if start is None:
        return []
    return [line.decode(errors="replace").rstrip("\r\n") for line in lines[start:end]]


class Edit(NamedTuple):
    """One section as it is to be: this piece, heading and all, stands from `start` to `end` of the text."""

    start: int
    end: int
    piece: bytes


def with_section(data: bytes, title: str, lines: list[str]) -> bytes:
    """The file with these lines below `## title`, which is added at the end where it is missing; the rest stays."""
    data = ended(data)
    edit = section_edit(data, title, lines)
    return data[: edit.start] + edit.piece + data[edit.end :]


def section_edit(data: bytes, title: str, lines: list[str]) -> Edit:
    """What to put where, so that these lines stand below `## title`; the text ends with a newline."""
    old = _lines(data)
    start, end = _place(old, title)
    newline = _newline(data)
    new = b"".join(line.encode(errors="replace") + newline for line in lines)
    if start is None or end is None:
        gap = newline if old and old[-1].strip() else b""
        edit = Edit(len(data), len(data), gap + b"## " + title.encode() + newline + new)
    else:
        gap = newline if end < len(old) else b""
        edit = Edit(len(b"".join(old[: start - 1])), len(b"".join(old[:end])), old[start - 1] + new + gap)
    changed = data[: edit.start] + edit.piece + data[edit.end :]
    if [line for line in section(changed, title) if line.strip()] != [line for line in lines if line.strip()]:
        raise Malformed(
            f"what is written below ## {title} would not be found again; close the code block or comment before it"
        )
    return edit


def ended(data: bytes) -> bytes:
    """The text with a newline at its end."""
    return data if not data or data.endswith(b"\n") else data + _newline(data)


def record(data: bytes) -> Record:
    """What the request says of its job."""
    if not has(data, JOB) and any(line.rstrip() == b"## " + JOB.encode() for line in _lines(data)):
        raise Malformed(f"## {JOB} stands in a code block or comment, where it does not count; close that before it")
    return Record.of(section(data, JOB))


def previous(data: bytes) -> str | None:
    """The job that this one follows, where the request names one."""
    found = field(section(data, PREVIOUS), "Interaction ID")
    if found.casefold() in _NONE:
        return None
    if not is_id(found):
        raise Malformed(f"{PREVIOUS}: {found!r:.60} is no id of a job; write one, or none")
    return found


def requester(data: bytes) -> str:
    """Who asks, as the request says."""
    return field(section(data, "Requesting Session"), "Requester") or "unknown"


def title(data: bytes) -> str:
    """What the request is about: its heading, without the words that all of them begin with."""
    said = Text(data).title()
    kind, colon, topic = said.partition(":")
    return harmless(topic.strip() if colon and kind.casefold().endswith("request") else said) or "(no title)"


def question(data: bytes) -> str:
    """What is asked: the request without its tags and without what the board notes in it."""
    kept: list[bytes] = []
    noted = below = False
    for line, heading in _headed(_lines(data)):
        if heading is not None:
            noted = _plain(heading) in _NOTES
        below = line.startswith(HEAD) or (below and line.startswith(SESSION))  # what a claim puts below the tags
        if not noted and not below:
            kept.append(line)
    text = b"".join(kept).decode(errors="replace").strip()
    if not any(line.strip() and not line.startswith("#") for line in text.splitlines()):
        raise Malformed("the request asks nothing; write what you want to know below ## Query")
    if len(text) > LARGEST:
        raise TooLarge(f"the question is longer than {LARGEST} characters; name files instead of quoting them")
    return text


def _newline(data: bytes) -> bytes:
    return b"\r\n" if data.partition(b"\n")[0].endswith(b"\r") else b"\n"


def _lines(data: bytes) -> list[bytes]:
    # Not splitlines: it also ends a line where Markdown does not.
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + [last for last in data.split(b"\n")[-1:] if last]


def _headed(lines: list[bytes]) -> list[tuple[bytes, str | None]]:
    """Each line, and its text where it is a heading of the first or second level; code and comments have none."""
    found: list[tuple[bytes, str | None]] = []
    hidden, at, number = Markdown(b"".join(lines)).hidden, 0, 0
    for line in lines:
        while number < len(hidden) and hidden[number][1] <= at:
            number += 1
        is_prose = number == len(hidden) or hidden[number][0] > at
        found.append((line, line.decode(errors="replace") if is_prose and line.startswith((b"# ", b"## ")) else None))
        at += len(line)
    return found


def _plain(heading: str) -> str:
    """A heading without its marks and its number."""
    words = heading.strip().lstrip("#").strip()
    number, dot, rest = words.partition(".")
    return (rest if dot and number.isdecimal() else words).strip().casefold()


def _place(lines: list[bytes], title: str) -> tuple[int | None, int | None]:
    """Where the lines below a heading begin and end; nowhere, if the heading is missing."""
    start = None
    for at, (line, heading) in enumerate(_headed(lines)):
        if heading is None:
            continue
        if start is not None:
            return start, at
        if line.startswith(b"## ") and _plain(heading) == title.casefold():
            start = at + 1
    return start, len(lines) if start is not None else None
