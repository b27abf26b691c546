"""What a request says, in one line: the first words of the sections that tell what it is about."""

from __future__ import annotations

import re

from baton.board.tags import HEAD

LONGEST = 200
_HEADING = re.compile(r"#+ (?:\d+\. )?(.*)")
_BULLET = re.compile(r"(?:[*+-]|\d+[.)]) +(?:\[.\](?: |$))?(?:\*\*[^*]{1,60}\*\*: ?)?")
SAID = ("Topic", "Query", "Tasks", "Context", "Expectations")
HANDLING = ("Requesting Session", "Promoted From", "Recovery", "Response")  # who has it and had it, not what it is
SESSION = "Session: "  # the line of the one who works on it, below the Tags line


def first_line(data: bytes, *names: str) -> str:
    """The first words of the first of these sections that has some; where none is named, else of the text."""
    found: dict[str, str] = {}
    section = ""
    for line in data[: 256 * 1024].decode("utf-8", "replace").splitlines():
        heading = _HEADING.match(line)
        if heading:
            section = heading[1].strip()
        elif not line.startswith((HEAD.decode(), SESSION)):
            words = _bare(line)
            if words:
                found.setdefault(section, words)
    for name in names or SAID:
        if name in found:
            return found[name]
    return "" if names else next((words for name, words in found.items() if name not in HANDLING), "")


def _bare(line: str) -> str:
    """A line without the marks of a quote, a list or a field; nothing of a field that is not filled in."""
    words = line.lstrip(" \t>")
    return words[match.end() if (match := _BULLET.match(words)) else 0 :].strip()[:LONGEST]
