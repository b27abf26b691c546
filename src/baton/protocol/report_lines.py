"""The Markdown of a report line by line: what is said by the report itself, and what is only quoted in it.

Quoted is what stands in a fence, a quotation, a comment or a list: it never begins a section and is never a field.
Where it is not certain, it is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

_WORD = re.compile(r"[^\W_]+")
_MARKER = re.compile(r"([ \t]*)(?:[-*+•]|\d{1,9}[.)])[ \t]+(.*)", re.DOTALL)
_TAG = re.compile(
    r"<(pre|script|style|textarea|blockquote|details|template|code|samp|xmp|q|div|table|section|span|p)\b",
    re.IGNORECASE,
)
_SEPARATOR = frozenset("|-: ")


class Line(NamedTuple):
    """A line, and whether it is only quoted."""

    text: str
    quoted: bool = False


class Block(NamedTuple):
    """A heading or label with what stands below it; level 0 is the text before the first one, 7 a label."""

    level: int
    name: str
    lines: list[Line]

    @property
    def text(self) -> str:
        """What stands below it, as it is."""
        lines = [line.text for line in self.lines]
        while lines and (not lines[-1].strip() or (not self.lines[len(lines) - 1].quoted and is_rule(lines[-1]))):
            lines.pop()
        return "\n".join(lines).strip()


class Entry(NamedTuple):
    """An entry of a list or table, with the lines that belong to it."""

    text: str
    below: list[str]
    cells: dict[str, str] = {}


def key(words: str) -> str:
    """A heading or label as it is compared: its words, whatever signs and numbers stand around them."""
    found = _WORD.findall(words.lower())
    while len(found) > 1 and found[0].isdigit():
        found.pop(0)
    return " ".join(found)


def is_rule(line: str) -> bool:
    """Whether a line is a rule across the page."""
    bare = line.replace(" ", "")
    return len(bare) >= 3 and len(set(bare)) == 1 and bare[0] in "-*_"


def normal(text: str) -> str:
    """Text with one kind of line end, taken out of the fence where one encloses all of it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    lines = text.strip().split("\n")
    opened = _fence(lines[0])
    info = lines[0].strip("`~ ").lower()
    if opened is None or len(lines) < 2 or info not in {"", "markdown", "md", "xml", "text"}:
        return text
    closes = [number for number, line in enumerate(lines[1:], 1) if _closes(line, opened)]
    return "\n".join(lines[1:-1]) if closes == [len(lines) - 1] else text


def _fence(line: str) -> tuple[str, int] | None:
    bare = line.lstrip(" ")
    sign = bare[:1]
    if len(line) - len(bare) > 3 or sign not in {"`", "~"}:
        return None
    length = len(bare) - len(bare.lstrip(sign))
    return (sign, length) if length >= 3 and not (sign == "`" and "`" in bare[length:]) else None


def _closes(line: str, opened: tuple[str, int]) -> bool:
    bare = line.strip()
    return len(bare) >= opened[1] and not bare.strip(opened[0]) and len(line) - len(line.lstrip(" ")) <= 3


class Quotes:
    """What is open at a line: a fence, an element, a quotation."""

    def __init__(self) -> None:
        self.fence: tuple[str, int] | None = None
        self.closer = ""
        self.lazy = False

    def holds(self, line: str) -> bool:
        """Whether this line is only quoted."""
        if self.fence is not None:
            self.fence = None if _closes(line, self.fence) else self.fence
            return True
        if self.closer:
            self.closer = "" if self.closer in line.lower() else self.closer
            return True
        bare = line.strip()
        self.fence = _fence(line)
        if self.fence is not None or self._opens(bare):
            return True
        # A line right below a quotation goes on with it, whether it has the sign or not.
        self.lazy = bare.startswith(">") or (self.lazy and bool(bare) and not bare.startswith("#"))
        return self.lazy

    def _opens(self, bare: str) -> bool:
        if bare.startswith("<!--"):
            self.closer = "" if "-->" in bare else "-->"
            return True
        tag = _TAG.match(bare)
        if tag is None:
            return False
        closer = f"</{tag[1].lower()}"
        self.closer = "" if closer in bare.lower() else closer
        return True


def blocks(text: str, labels: Collection[str]) -> tuple[list[Block], bool]:
    """The parts of a report under its headings and the labels that are known; whether a quotation stays open."""
    found, quotes = [Block(0, "", [])], Quotes()
    for line in text.split("\n"):
        quoted = quotes.holds(line)
        head = None if quoted else _heading(line) or _label(line, labels)
        if head is None:
            found[-1].lines.append(Line(line, quoted))
        else:
            found.append(head)
    return found, quotes.fence is not None or bool(quotes.closer)


def _heading(line: str) -> Block | None:
    level = len(line) - len(line.lstrip("#"))
    if not 0 < level <= 6 or line[level : level + 1] not in {"", " ", "\t"}:
        return None
    return Block(level, line[level:].strip(), [])


def _label(line: str, labels: Collection[str]) -> Block | None:
    """A known word in bold at the start of a line, with what stands behind it as its first line."""
    if not line.startswith(("**", "__")):
        return None
    name, closed, rest = line[2:].partition(line[:2])
    rest = rest.lstrip()
    if (
        not closed
        or key(name) not in labels
        or not (name.rstrip().endswith((":", "：")) or rest[:1] in {"", ":", "："})
    ):
        return None
    rest = rest.removeprefix(":").removeprefix("：") if not name.rstrip().endswith((":", "：")) else rest
    return Block(7, name.strip(" :："), [Line(rest.strip())] if rest.strip() else [])


def unmarked(line: str) -> str | None:
    """What stands behind the sign of a list; None where the line has none."""
    found = None if is_rule(line) else _MARKER.match(line)
    return None if found is None else found[2].strip()


def cells(line: str) -> list[str]:
    """The cells of a row of a table; none where the line is no row."""
    bare = line.strip()
    return [cell.strip() for cell in bare.strip("|").split("|")] if bare.startswith("|") else []


def is_separator(line: str) -> bool:
    """Whether a line is the one between the head of a table and its rows."""
    return "-" in line and set(line.strip()) <= _SEPARATOR and line.strip().startswith("|")


def entries(lines: Iterable[Line]) -> list[Entry]:
    """What a section lists: as a list, a table, or where it is neither, one entry in each line."""
    rows = [line for line in lines if line.text.strip() and (line.quoted or not is_rule(line.text))]
    if any(cells(row.text) for row in rows):
        return _rows([row.text for row in rows if cells(row.text)])
    depth = min((_depth(row.text) for row in rows if not row.quoted and unmarked(row.text) is not None), default=None)
    found: list[Entry] = []
    for row in rows:
        text = None if row.quoted or _depth(row.text) != depth else unmarked(row.text)
        if text is not None or depth is None:
            found.append(Entry(row.text.strip() if text is None else text, []))
        elif found:
            found[-1].below.append(row.text)
    return [entry for entry in found if entry.text]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _rows(rows: list[str]) -> list[Entry]:
    head = [key(cell) for cell in cells(rows[0])] if len(rows) > 1 and is_separator(rows[1]) else []
    found = []
    for row in rows[2:] if head else rows:
        if is_separator(row):
            continue
        values = cells(row)
        text = ": ".join(filter(None, [values[0], ", ".join(filter(None, values[1:]))]))
        if text:
            found.append(Entry(text, [], dict(zip(head, values, strict=False))))
    return found
