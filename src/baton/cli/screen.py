"""The only place that prints. Whatever comes from outside passes through one escaper."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import Any, NamedTuple
from unicodedata import east_asian_width

import msgspec

from baton import config
from baton.errors import safe
from baton.protocol import codec

# A command that a message names, and that looks into a store of its own accord.
_COMMAND = re.compile(r"`(baton (?!demo|[^`]*--(?:app|store|help))[^`]+)`")
STYLES = {
    "dim": "2", "bold": "1", "good": "32", "bad": "31", "wait": "33", "busy": "36",
    "completed": "32", "failed": "31", "refused": "31", "cancelled": "2", "waiting": "33", "parked": "33",
    "rejected": "33", "claimed": "36", "offered": "34",
}  # fmt: skip


LEAST = 11  # how far a column is cut before another one is left out
FOLDED = 24  # and how narrow one may be that goes on below


class Columns(NamedTuple):
    """What the columns of a table are called."""

    names: tuple[str, ...]
    spare: tuple[str, ...] = ()  # what a narrow terminal can do without, the least important one first
    of: str = ""  # what the table is of, where a verb has several
    folded: bool = False  # the last column has to be read whole: it goes on below


def in_store(text: str, store: str) -> str:
    """The commands that a message names, so that they can be pasted: they go to the same store."""
    return _COMMAND.sub(lambda found: f"`{found[1]} --store {shlex.quote(store)}`", text) if store else text


def _json(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    if text.isascii():
        return text
    return "".join(one if safe(one) == one else f"\\u{ord(one):04x}" for one in _paired(text))


def _paired(text: str) -> Iterable[str]:
    """Letters; what JSON has to spell with two surrogates is given as two."""
    for one in text:
        if ord(one) > 0xFFFF and safe(one) != one:
            high, low = divmod(ord(one) - 0x10000, 0x400)
            yield from (chr(0xD800 + high), chr(0xDC00 + low))
        else:
            yield one


def complain(message: str, kind: str, *, as_json: bool, more: dict[str, str] | None = None) -> None:
    """Say one error: a line for people, with --json also a document."""
    if as_json:
        print(_json({"error": message, "kind": kind, **(more or {})}), flush=True)
    print(f"error: {safe(message)}", file=sys.stderr, flush=True)


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(2 if east_asian_width(one) in "WF" else 1 for one in text)


def _cut(text: str, room: int) -> str:
    if _width(text) <= room:
        return text
    while text and _width(text) >= room:
        text = text[: max(0, min(len(text) - 1, room - 1))]
    return text + "…"


def _fitted(widths: dict[str, int], columns: Columns, room: int) -> dict[str, int]:
    """How wide each column may be; the least important ones are left out until the others can be read."""
    fitted = {title: min(width, room) for title, width in widths.items()}
    least = {columns.names[-1]: FOLDED} if columns.folded else {}
    for title in columns.spare:
        if sum(min(width, least.get(one, LEAST)) + 2 for one, width in fitted.items()) - 2 <= room:
            break
        fitted.pop(title, None)
    room -= 2 * len(fitted) - 2
    while sum(fitted.values()) > max(room, len(fitted)):
        fitted[max(fitted, key=fitted.__getitem__)] -= 1
    return fitted


def _folded(row: list[str], room: int) -> Iterable[list[str]]:
    """A row whose last cell goes on below, broken between words."""
    line = ""
    for word in row[-1].split(" "):
        if line and _width(f"{line} {word}") > room:
            yield [*row[:-1], line]
            row, line = [""] * len(row), ""
        line = f"{line} {word}" if line else word
    yield [*row[:-1], line]


class Screen:
    """Where one verb says what it has to say: to a person, into a pipe, or as JSON."""

    def __init__(self, *, as_json: bool, store: str = "") -> None:
        self.as_json = as_json
        self.store = store  # as it was named on the command line
        self.tty = sys.stdout.isatty()
        self.colour = self.tty and not as_json and config.coloured()
        self.width = get_terminal_size().columns

    def paint(self, text: str, style: str) -> str:
        """Escape, then colour where a person looks."""
        code = STYLES.get(style) if self.colour else None
        return f"\x1b[{code}m{safe(text)}\x1b[0m" if code else safe(text)

    def line(self, text: object = "", style: str = "") -> None:
        """One line for people."""
        if not self.as_json:
            print(self.paint(str(text), style))

    def heading(self, text: str) -> None:
        """A title with room above it."""
        self.line()
        self.line(text, "bold")

    def flush(self) -> None:
        """Let a reader see it now."""
        sys.stdout.flush()

    def block(self, text: str, indent: str = "  ") -> None:
        """Text with its own lines."""
        for one in text.splitlines() or [""]:
            self.line(f"{indent}{one}")

    def verbatim(self, text: str) -> None:
        """Text in a format of its own, for a program."""
        sys.stdout.write(text)

    def hint(self, text: str) -> None:
        """What to do next; never in the way of a program that reads."""
        if not self.as_json:
            sys.stdout.flush()
            print(safe(in_store(text, self.store)), file=sys.stderr)

    def notice(self, text: str) -> None:
        """What a person should hear while a program waits, whatever the format of its output."""
        sys.stdout.flush()
        print(safe(in_store(text, self.store)), file=sys.stderr, flush=True)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Names and values; what is empty is left out."""
        shown = [(name, value) for name, value in pairs if value not in {None, ""}]
        room = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            if not self.as_json:
                said = self.paint(str(value), str(value) if name == "state" else "")
                print(f"{self.paint(name.ljust(room), 'dim')}  {said}")

    def ask(self, question: str) -> bool | None:
        """Whether a person says yes; None where nobody is there to ask."""
        if not self.interactive:
            return None
        return (self.answer(f"{question} [y/N]") or "").lower() in {"y", "yes"}

    @property
    def interactive(self) -> bool:
        """Whether a person looks and can answer."""
        return not self.as_json and self.tty and sys.stdin is not None and sys.stdin.isatty()

    def answer(self, question: str) -> str | None:
        """What a person types on one line; None at the end of the input."""
        print(f"{safe(question)} ", end="", flush=True)
        line = sys.stdin.readline()
        return line.strip() if line else None

    def choose(self, question: str, *words: str) -> str:
        """Which of these a person says, or begins to say; nothing where nobody does."""
        if self.as_json or not self.tty or not sys.stdin.isatty():
            return ""
        print(f"{safe(question)} [{'/'.join(words)}] ", end="", flush=True)
        said = sys.stdin.readline().strip().lower()
        return next((word for word in words if said and word.startswith(said)), "")

    def document(self, value: Any) -> None:
        """One JSON document."""
        if self.as_json:
            print(_json(codec.plain(value)))

    def records(self, values: Iterable[Any]) -> None:
        """JSON Lines."""
        if self.as_json:
            for value in values:
                print(_json(codec.plain(value)))

    def table(self, columns: Columns, rows: Iterable[Sequence[object]], records: Iterable[Any] = ()) -> None:
        """Columns for a person, tab-separated values for a pipe, JSON Lines for a program.

        A pipe gets data only: what the columns are called says the verb's help.
        """
        if self.as_json:
            self.records(records)
            return
        for text in self.drawn(columns, rows):
            print(text)

    def part(self, title: str, columns: Columns, rows: Sequence[Sequence[object]]) -> None:
        """One of several tables of a report, which is read by people in a pipe too."""
        self.heading(title)
        for text in self.drawn(columns, rows if self.tty else [columns.names, *rows]):
            print(text)

    def drawn(self, columns: Columns, rows: Iterable[Sequence[object]]) -> Iterable[str]:
        """The lines of a table."""
        cells = [[safe(cell) for cell in row] for row in rows]
        if not self.tty:
            yield from ("\t".join(row) for row in cells)
            return
        if not cells:
            return
        filled = {title: cell for title, *cell in zip(columns.names, *cells, strict=True) if any(cell)}
        widths = {title: max(map(_width, (title, *cell))) for title, cell in filled.items()}
        widths = _fitted(widths, columns, self.width)
        if columns.folded and (last := widths.get(columns.names[-1])):
            cells = [line for row in cells for line in _folded(row, last)]
        for number, row in enumerate([columns.names, *cells]):
            padded = []
            for title, cell in zip(columns.names, row, strict=True):
                if (room := widths.get(title, 0)) == 0:
                    continue
                text = _cut(cell, room)
                style = "dim" if number == 0 else cell if title in {"STATE", "STATUS"} else ""
                padded.append(self.paint(text, style) + " " * (room - _width(text)))
            yield "  ".join(padded).rstrip()
