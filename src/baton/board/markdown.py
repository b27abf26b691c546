"""Which bytes of a Markdown text are prose, and which are code, a comment or front matter.

The blocks are those of CommonMark: quotes, lists, fences, headings, paragraphs, and lines that go on lazily. Bytes in,
places out; the time is linear in the length, and nothing is imported: the commands that agents call all the time read
with it. Where it differs from CommonMark, and why:

- Lines end at a line feed. A carriage return before it belongs to the end; one that stands alone ends nothing.
- Indented code is prose: work is often tagged in lists, and these are often indented too far.
- Of HTML, comments are known, and `<pre>`, `<script>`, `<style>` and `<textarea>` to their end. Other HTML is prose.
- A comment ends where it ends: what stands behind it on its last line is prose.
- The definition of a link is a paragraph like any other, and a row of a table is a line of one.
- Quotes and lists are known to a depth of 32. What begins deeper is prose.
- Front matter in YAML is known: from `---` on the first line to the next line of `---` or `...`.
"""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"

_PLAIN = frozenset(b"\nABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") | frozenset(range(128, 256))
_BLANK = b" \t\r\n"
_QUOTE = b">"
_OUTER = frozenset(bytes([mark]) for mark in b">-+*0123456789")  # what a quote or a list may begin with
_DEPTH = 32
_NONE, _PROSE, _FENCE, _HTML = range(4)  # what the last line left open
_COMMENT = (b"-->",)
_RAW = tuple(b"<" + name for name in (b"pre", b"script", b"style", b"textarea"))
_RAW_ENDS = tuple(b"</" + name + b">" for name in (b"pre", b"script", b"style", b"textarea"))


class Markdown:
    """A text, read once.

    `body` is where it begins behind front matter; `title` the place of the lines of its first heading, if that is of
    the first level; `hidden` the places that are no prose, in order; `loose` the runs of backticks that no other one
    closes, each as its place, its length and the end of its block.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.hidden: list[tuple[int, int]] = []
        self.loose: list[tuple[int, int, int]] = []
        self.title: tuple[int, int] | None = None
        self.body = _front_matter(data)
        self._containers: list[bytes] = []  # a quote, or the spaces that the lines of a list item begin with
        self._bare = False  # an item has begun, and nothing stands in it yet
        self._headed = False
        self._open = _NONE
        self._begins = 0  # where that began
        self._closing: tuple[bytes, ...] = ()  # what ends it
        self._read()

    def _read(self) -> None:
        data, at = self.data, self.body
        if at:
            self.hidden.append((0, at))
        while at < len(data):
            end = data.find(b"\n", at)
            if end < 0:
                end = len(data)
            if self._containers or self._open > _PROSE or data[at] not in _PLAIN:
                self._line(at, end)
            elif at == end:
                self._close(at)
            elif not self._open:
                self._open, self._begins = _PROSE, at
            at = end + 1
        self._close(len(data))

    # --- blocks ---------------------------------------------------------------------------------------

    def _line(self, at: int, end: int) -> None:
        line = self.data[at:end].rstrip(b" \t\r")
        if b"\t" in line:
            line = line.expandtabs(4)  # columns, not bytes, tell what belongs where
        place, depth = self._enter(line)
        if self._bare and place >= len(line) and depth == len(self._containers):
            depth -= 1  # an item may begin with one blank line, not with two
        self._bare = False
        if self._open >= _FENCE:
            if depth == len(self._containers):
                self._go_on(line[place:], at, end)
                return
            self._close(at)
        rest, depth = self._begin(line, place, depth, at)
        self._leaf(rest, depth, at, end)

    def _enter(self, line: bytes) -> tuple[int, int]:
        """How far the open containers reach into this line, and how many of them go on."""
        if not line:  # ends quotes, and no list
            return 0, self._containers.index(_QUOTE) if _QUOTE in self._containers else len(self._containers)
        place = depth = 0
        for container in self._containers:
            if container == _QUOTE:
                inner = _after_quote(line, place)
                if not inner:
                    break
                place = inner
            elif line.startswith(container, place):
                place += len(container)
            elif place < len(line):
                break
            depth += 1
        return place, depth

    def _go_on(self, rest: bytes, at: int, end: int) -> None:
        """One more line of a fence or of HTML, which may end it."""
        if self._open == _HTML:
            self._end_html(at, at, end)
            return
        bare, mark = rest.lstrip(b" "), self._closing[0]
        if len(rest) - len(bare) < 4 and len(bare) >= len(mark) and not bare.strip(mark[:1]):
            self._close(end)

    def _begin(self, line: bytes, place: int, depth: int, at: int) -> tuple[bytes, int]:
        """Open the quotes and lists that begin on this line; what is left of it, and how deep that stands."""
        while True:
            rest = line[place:]
            bare = rest.lstrip(b" ")
            indent = len(rest) - len(bare)
            goes_on = self._open == _PROSE and depth == len(self._containers)
            if bare[:1] not in _OUTER or indent > 3 or depth == _DEPTH or (goes_on and _underlines(bare)):
                return rest, depth
            if bare.startswith(_QUOTE):
                container, place = _QUOTE, _after_quote(line, place)
            else:
                width = 0 if _rules(bare) else _marker(bare, interrupts=goes_on)
                if not width:
                    return rest, depth
                container, place = b" " * (indent + width), place + indent + width
            self._leave(depth, at)
            self._containers.append(container)
            self._bare = container != _QUOTE and place >= len(line)
            depth += 1

    def _leaf(self, rest: bytes, depth: int, at: int, end: int) -> None:
        """What the line is inside its containers."""
        bare = rest.lstrip(b" ")
        indented = len(rest) - len(bare) > 3
        goes_on = self._open == _PROSE
        if goes_on and bare and (indented or bare[0] in _PLAIN):
            return
        if goes_on and depth == len(self._containers) and not indented and _underlines(bare):
            self._head(bare[:1] == b"=", self._begins, end)
            self._close(end)
        elif not bare or indented or _heading(bare) or _rules(bare):
            self._leave(depth, at)
            self._inline(at, end)
            if not indented and (level := _heading(bare)):
                self._head(level == 1, at, end)
        elif closing := _fence(bare) or _html(bare):
            self._leave(depth, at)
            self._open, self._begins, self._closing = (_HTML if bare[:1] == b"<" else _FENCE), at, closing
            if self._open == _HTML:
                self._end_html(at, self.data.index(b"<", at) + 2, end)
        elif not goes_on:
            self._leave(depth, at)
            self._open, self._begins = _PROSE, at

    def _leave(self, depth: int, at: int) -> None:
        """End the block that is open, and the containers that do not go on."""
        self._close(at)
        del self._containers[depth:]

    def _close(self, at: int) -> None:
        if self._open == _PROSE:
            self._inline(self._begins, at)
        elif self._open:
            self.hidden.append((self._begins, at))
        self._open = _NONE

    def _end_html(self, at: int, begins: int, end: int) -> None:
        if self._closing is not _COMMENT:
            line = self.data[at:end].lower()
            if any(closing in line for closing in self._closing):
                self._close(end)
        elif (close := self.data.find(b"-->", begins, end)) >= 0:
            self._close(close + 3)
            self._inline(close + 3, end)

    def _head(self, first: bool, begins: int, end: int) -> None:  # noqa: FBT001
        if not self._headed and not self._containers:
            self._headed = True
            self.title = (begins, end) if first else None

    # --- inside a block -------------------------------------------------------------------------------

    def _inline(self, start: int, end: int) -> None:
        """Find the code and the comments of one block."""
        data = self.data
        tick, comment = _find(data, b"`", start, end), _find(data, b"<!--", start, end)
        if tick == comment:
            return
        runs = _runs(data, start, end)
        last = data.rfind(b"-->", start, end)
        at = min(tick, comment)
        while at < end:
            after = self._code(at, end, runs) if at == tick else self._comment(at, last)
            if tick < after:  # each is looked for only where the last one found lies behind
                tick = _find(data, b"`", after, end)
            if comment < after:
                comment = _find(data, b"<!--", after, end)
            at = min(tick, comment)

    def _code(self, at: int, end: int, runs: dict[int, list[int]]) -> int:
        """Behind the code that these backticks open, or behind them where nothing closes it."""
        data, stop = self.data, at
        if _escaped(data, at):
            return at + 1
        while stop < end and data[stop] == 96:
            stop += 1
        later = runs.get(stop - at, [])
        while later and later[-1] < stop:
            later.pop()
        if not later:
            self.loose.append((at, stop - at, end))
            return stop
        after = later[-1] + stop - at
        self.hidden.append((at, after))
        return after

    def _comment(self, at: int, last: int) -> int:
        """Behind a comment; one without an end is text."""
        if last < at + 2 or _escaped(self.data, at):
            return at + 4
        after = self.data.find(b"-->", at + 2) + 3
        self.hidden.append((at, after))
        return after


def _front_matter(data: bytes) -> int:
    """Where the body begins."""
    start = len(BOM) if data.startswith(BOM) else 0
    at = _line_end(data, start)
    if data[start:at].rstrip(_BLANK) != b"---":
        return start
    while at < len(data):
        end = _line_end(data, at)
        if data[at:end].rstrip(_BLANK) in {b"---", b"..."}:
            return end
        at = end
    return start


def _line_end(data: bytes, at: int) -> int:
    """Behind the line that goes on here."""
    return data.find(b"\n", at) + 1 or len(data)


def _find(data: bytes, what: bytes, at: int, end: int) -> int:
    found = data.find(what, at, end)
    return end if found < 0 else found


def _after_quote(line: bytes, place: int) -> int:
    """Behind the mark of a quote, 0 where there is none."""
    rest = line[place : place + 4].lstrip(b" ")
    if not rest.startswith(_QUOTE):
        return 0
    place = line.index(_QUOTE, place) + 1
    return place + line.startswith(b" ", place)


def _marker(line: bytes, *, interrupts: bool) -> int:
    """How wide the mark of a list is, with the spaces behind it; 0 where there is none."""
    if line[:1] in {b"-", b"+", b"*"}:
        width = 1
    else:
        digits = len(line[:10]) - len(line[:10].lstrip(b"0123456789"))
        if not 0 < digits < 10 or line[digits : digits + 1] not in {b".", b")"}:
            return 0
        if interrupts and int(line[:digits]) != 1:
            return 0
        width = digits + 1
    rest = line[width:]
    spaces = len(rest) - len(rest.lstrip(b" "))
    if not rest:
        return 0 if interrupts else width + 1
    return 0 if not spaces else width + (spaces if spaces < 5 else 1)


def _rules(line: bytes) -> bool:
    """Whether it is a line across the page."""
    if line[:1] not in {b"-", b"*", b"_"}:
        return False
    marks = line.replace(b" ", b"")
    return len(marks) > 2 and not marks.strip(line[:1])


def _underlines(line: bytes) -> bool:
    """Whether it makes a heading of the paragraph above it."""
    return line[:1] in {b"=", b"-"} and not line.strip(line[:1])


def _heading(line: bytes) -> int:
    """Its level, 0 of no heading."""
    level = len(line) - len(line.lstrip(b"#"))
    return level if 0 < level < 7 and line[level : level + 1] in {b" ", b""} else 0


def _fence(line: bytes) -> tuple[bytes, ...]:
    """What closes the block of code that this opens, if it does."""
    mark = line[:1]
    if mark not in {b"`", b"~"}:
        return ()
    count = len(line) - len(line.lstrip(mark))
    return () if count < 3 or (mark == b"`" and mark in line[count:]) else (mark * count,)


def _html(line: bytes) -> tuple[bytes, ...]:
    """What closes the comment or the raw text that this opens, if it does."""
    if line[:1] != b"<":
        return ()
    if line.startswith(b"<!--"):
        return _COMMENT
    start = line[:10].lower()
    for name in _RAW:
        if start.startswith(name) and start[len(name) : len(name) + 1] in {b" ", b">", b""}:
            return _RAW_ENDS
    return ()


def _runs(data: bytes, start: int, end: int) -> dict[int, list[int]]:
    """Runs of backticks by their length, the last one first."""
    runs: dict[int, list[int]] = {}
    at = data.rfind(b"`", start, end)
    while at >= 0:
        stop = at + 1
        while at > start and data[at - 1] == 96:
            at -= 1
        runs.setdefault(stop - at, []).append(at)
        at = data.rfind(b"`", start, at)
    return runs


def _escaped(data: bytes, at: int) -> bool:
    """Whether an odd number of backslashes stands before it."""
    slashes = 0
    while at > slashes and data[at - slashes - 1] == 92:
        slashes += 1
    return slashes % 2 == 1
