"""Tags in Markdown text: where they stand, what they mean, and how one is changed without touching any other byte.

A tag is `#word` or `#word-word`, in ASCII. On the line that begins with `**Tags**:` it speaks for the whole file;
anywhere else it speaks for its line. What a reader sees as code, comment, front matter, link target or part of a word
is text and no tag. Everything here works on bytes, in time linear in their length, and imports nothing: the commands
that agents call all the time start with it.
"""

from __future__ import annotations

HEAD = b"**Tags**:"
STATES = ("needs", "delegated", "next", "claimed", "done")
PRIORITIES = ("P0", "P1", "P2")
EFFORTS = ("S", "M", "L")
ALERT = "active-alert"

# Where a tag may go, and why; whatever is not here is refused. None is: the tag is removed.
LEGAL: dict[tuple[str, str | None], str] = {
    ("needs", "delegated"): "a person approved it for the daemon",
    ("needs", "next"): "a person chose it for the next skill",
    ("needs", None): "a person dismissed it",
    ("delegated", "claimed"): "a worker took it",
    ("delegated", "needs"): "its approval was revoked, expired, or does not fit the text any more",
    ("next", "claimed"): "the next skill took it",
    ("next", "needs"): "its session is gone",
    ("claimed", "done"): "the work is done",
    ("claimed", "needs"): "its worker is gone",
}

_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_LETTER = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGIT = frozenset(b"0123456789")
_BEFORE = frozenset(b" \t\r\n([*_~\"',;|>")
_AFTER = frozenset(b" \t\r\n)]*_~\"',;|<.:!?")
_MIDDLE = frozenset(b".:!?'")  # they end a tag only where no word follows
_HASH, _DASH = b"#-"
_NESTED = 10  # how many lists in one line are looked through
_LABEL = 1000  # how long the name of a link may be
_BOM = b"\xef\xbb\xbf"


class Tag:
    """One tag: its name without `#`, the bytes from `start` to `end` with it, and its line, from 1."""

    __slots__ = ("end", "inline", "line", "name", "start")

    def __init__(self, name: str, start: int, end: int, line: int, inline: bool) -> None:  # noqa: FBT001
        self.name = name
        self.start = start
        self.end = end
        self.line = line
        self.inline = inline

    def __repr__(self) -> str:
        return f"Tag({self.name!r}, line {self.line}{', inline' if self.inline else ''})"


class Text:
    """A Markdown text as far as tags are concerned."""

    __slots__ = ("closes", "data", "first", "head", "line_end", "newline", "tags")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.tags: list[Tag] = []
        self.head = -1  # where the Tags line begins
        self.line_end = -1  # and where it ends, without its newline
        self.first = _front_matter(data)  # where the body begins
        self.closes = True  # whether a comment that begins from here on may have an end
        self.newline = b"\r\n" if data.find(b"\r\n", 0, 4096) >= 0 else b"\n"
        _read(self)

    def own(self) -> list[Tag]:
        """The tags of the Tags line."""
        return [tag for tag in self.tags if not tag.inline]

    def at(self, line: int) -> list[Tag]:
        """The tags of one line of the body."""
        return [tag for tag in self.tags if tag.inline and tag.line == line]


# --- names --------------------------------------------------------------------------------------------


def is_name(name: str) -> bool:
    """Whether this can be a tag: letters and digits from a letter on, in words joined by single hyphens."""
    if not name.isascii() or not name[:1].isalpha():
        return False
    return all(word.isalnum() for word in name.split("-"))


def state_of(name: str) -> tuple[str, str] | None:
    """State and noun of a lifecycle tag; None of any other."""
    state, dash, noun = name.partition("-")
    return (state, noun) if dash and noun and state in STATES and name != ALERT else None


def fits(name: str, pattern: str) -> bool:
    """Whether a name is the one wanted, where `*` stands for any text."""
    if "*" not in pattern:
        return name == pattern
    parts = pattern.split("*")
    if not name.startswith(parts[0]) or len(name) < len(parts[0]) + len(parts[-1]) or not name.endswith(parts[-1]):
        return False
    at, end = len(parts[0]), len(name) - len(parts[-1])
    for part in parts[1:-1]:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def onward(state: str) -> list[str]:
    """Where a tag in this state may go, in words."""
    return [to or "removed" for (before, to) in LEGAL if before == state]


# --- reading ------------------------------------------------------------------------------------------


def _read(text: Text) -> None:
    """Walk over the blocks of the text once; a comment may lead from the middle of one into another."""
    data, at = text.data, text.first
    line, counted = data.count(b"\n", 0, at) + 1, at
    while at < len(data):
        starts = at == text.first or data[at - 1] == 10
        end = _line_end(data, at)
        if starts and (fence := _opens(data[at:end])):
            at = _after_fence(data, end + 1, fence)
            continue
        own = starts and text.head < 0 and data.startswith(HEAD, at)
        line, counted = line + data.count(b"\n", counted, at), at
        if own:
            text.head, text.line_end = at, end - data.endswith(b"\r", at, end)
        else:
            end = _block_end(data, at, end)
        at = _scan(text, at, end, line, own)


def _front_matter(data: bytes) -> int:
    """Where the body begins."""
    start = len(_BOM) if data.startswith(_BOM) else 0
    if not data.startswith((b"---\n", b"---\r\n"), start):
        return start
    at = data.find(b"\n", start) + 1
    while at < len(data):
        end = _line_end(data, at)
        if data[at:end].rstrip() in {b"---", b"..."}:
            return min(end + 1, len(data))
        at = end + 1
    return start


def _line_end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _after_fence(data: bytes, at: int, fence: bytes) -> int:
    """Where the text goes on after a block of code; one that is never closed has no end."""
    while at < len(data):
        end = _line_end(data, at)
        line = data[at:end].lstrip(b" \t>").rstrip()
        at = end + 1
        if len(line) >= len(fence) and not line.strip(fence[:1]):
            break
    return min(at, len(data))


def _block_end(data: bytes, start: int, end: int) -> int:
    """Where the lines end over which code between backticks may reach."""
    if _is_heading(data[start:end].lstrip(b" \t>")):
        return end
    while end < len(data):
        following = _line_end(data, end + 1)
        line = data[end + 1 : following]
        bare = line.lstrip(b" \t>")
        if (
            not bare.rstrip()
            or bare[:1] == b"|"
            or _is_heading(bare)
            or len(_bare(line)) < len(bare)
            or _opens(line)
            or line.startswith(HEAD)
        ):
            break
        end = following
    return end


def _is_heading(line: bytes) -> bool:
    rest = line.lstrip(b"#")
    return 0 < len(line) - len(rest) < 7 and rest[:1] in {b" ", b"\t", b"\r", b""}


def _bare(line: bytes) -> bytes:
    """A line without what a quote or a list puts before it."""
    line = line.lstrip(b" \t>")
    for _ in range(_NESTED):
        digits = len(line) - len(line.lstrip(b"0123456789"))
        if line[:2] in {b"- ", b"* ", b"+ "}:
            line = line[2:].lstrip(b" \t>")
        elif 0 < digits < 10 and line[digits : digits + 2] in {b". ", b") "}:
            line = line[digits + 2 :].lstrip(b" \t>")
        else:
            break
    return line


def _opens(line: bytes) -> bytes:
    """The fence that a line opens, else nothing."""
    line = _bare(line)
    mark = line[:1]
    if mark not in {b"`", b"~"}:
        return b""
    count = len(line) - len(line.lstrip(mark))
    return b"" if count < 3 or (mark == b"`" and b"`" in line[count:]) else mark * count


def _scan(text: Text, start: int, end: int, line: int, own: bool) -> int:  # noqa: FBT001
    """Note the tags of a block that no code and no comment covers; where to go on."""
    data, at = text.data, start
    closing = _closing_runs(data, start, end)
    tick = comment = -1
    while at < end:
        if tick < at:  # each is looked for only where the last one found lies behind
            tick = _find(data, b"`", at, end)
        if comment < at:
            comment = _find(data, b"<!--", at, end)
        stop = min(tick, comment)
        if stop > at:
            line = _note(text, at, stop, line, own)
        if stop == end:
            break
        after = _over_code(data, stop, end, closing) if stop == tick else _over_comment(text, stop)
        line += data.count(b"\n", stop, after)
        at = after
    return max(at, end + 1)


def _find(data: bytes, what: bytes, at: int, end: int) -> int:
    found = data.find(what, at, end)
    return end if found < 0 else found


def _closing_runs(data: bytes, start: int, end: int) -> dict[int, list[int]]:
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


def _over_code(data: bytes, at: int, end: int, closing: dict[int, list[int]]) -> int:
    """Behind the code that these backticks open, or behind them where nothing closes it."""
    stop = at
    while stop < end and data[stop] == 96:
        stop += 1
    count = stop - at
    if at and data[at - 1] == 92 and not _is_escaped(data, at - 1):
        return at + 1  # an escaped backtick opens nothing
    runs = closing.get(count, [])
    while runs and runs[-1] < stop:
        runs.pop()
    return runs[-1] + count if runs else stop


def _is_escaped(data: bytes, at: int) -> bool:
    slashes = 0
    while at - slashes > 0 and data[at - slashes - 1] == 92:
        slashes += 1
    return slashes % 2 == 1


def _over_comment(text: Text, at: int) -> int:
    """Behind a comment. One without an end hides all that follows where it begins a line, else it is text."""
    data = text.data
    close = data.find(b"-->", at + 4) if text.closes else -1
    if close >= 0:
        return close + 3
    text.closes = False
    before = at
    while before > text.first and data[before - 1] in b" \t>":
        before -= 1
    return len(data) if before == text.first or data[before - 1] == 10 else at + 4


def _note(text: Text, start: int, end: int, line: int, own: bool) -> int:  # noqa: FBT001
    """Note the tags between two places; the line of the second one."""
    data, at, counted = text.data, text.data.find(b"#", start, end), start
    while at >= 0:
        stop = _tag_end(data, at)
        if stop > 0 and stop <= end:
            line, counted = line + data.count(b"\n", counted, at), at
            text.tags.append(Tag(data[at + 1 : stop].decode("ascii"), at, stop, line, not own))
        at = data.find(b"#", max(stop, at + 1), end)
    return line + data.count(b"\n", counted, end)


def _tag_end(data: bytes, at: int) -> int:
    """Where the tag that begins here ends; 0 where none does."""
    size = len(data)
    if at + 1 >= size or data[at + 1] not in _LETTER or not _may_begin(data, at):
        return 0
    stop = at + 1
    while stop < size and data[stop] in _WORD:
        stop += 1
        if stop + 1 < size and data[stop] == _DASH and data[stop + 1] in _WORD:
            stop += 1
    if stop == size:
        return stop
    following = data[stop]
    if following not in _AFTER or (following in _MIDDLE and stop + 1 < size and data[stop + 1] in _WORD):
        return 0
    return stop


def _may_begin(data: bytes, at: int) -> bool:
    """Whether what stands before makes it no part of a word, of a link or of an attribute."""
    if at == 0:
        return True
    before = data[at - 1]
    if before not in _BEFORE:
        return at == len(_BOM) and data.startswith(_BOM)
    two = data[at - 2 : at] if at > 1 else b""
    if two in {b"](", b'="', b"='"}:
        return False
    if before in b" \t":  # it may be what the definition of a link names
        begins = data.rfind(b"\n", max(0, at - _LABEL), at) + 1
        line = data[max(begins, at - _LABEL) : at].strip()
        return not (line.startswith(b"[") and line.endswith(b"]:"))
    return True


# --- editing ------------------------------------------------------------------------------------------


def added(data: bytes, name: str) -> bytes:
    """The text with a tag on its Tags line, which is made below the title where there is none."""
    text = Text(data)
    if any(tag.name == name for tag in text.own()):
        return data
    word = b"#" + name.encode("ascii")
    if text.head >= 0:
        at = text.head + len(data[text.head : text.line_end].rstrip())
        return data[:at] + b" " + word + data[at:]
    at = _below_title(text)
    line = HEAD + b" " + word
    if at and data[at - 1] != 10 and at != text.first:
        return data[:at] + text.newline + line + data[at:]  # the title has no newline: nor has the new last line
    return data[:at] + line + text.newline + data[at:]


def _below_title(text: Text) -> int:
    """Behind the line of the title, or where the body begins."""
    data, at = text.data, text.first
    while at < len(data):
        end = _line_end(data, at)
        line = data[at:end].strip()
        if line:
            return min(end + 1, len(data)) if line.startswith((b"# ", b"#\t")) else text.first
        at = end + 1
    return text.first


def replaced(data: bytes, old: list[Tag], new: list[str]) -> bytes:
    """The text with these tags gone, and the new ones in the place of the first of them."""
    taken = sorted(old, key=lambda tag: tag.start)
    words = b" ".join(b"#" + name.encode("ascii") for name in new)
    pieces, at = [], 0
    for number, tag in enumerate(taken):
        start = tag.start
        if number or not words:
            start -= start > 0 and data[start - 1] in b" \t"
        pieces += [data[at:start], b"" if number else words]
        at = tag.end
    return b"".join([*pieces, data[at:]])


def escaped(data: bytes, tags: list[Tag]) -> bytes:
    """The text with these tags between backticks: mentioned, and no work any more."""
    pieces, at = [], 0
    for tag in sorted(tags, key=lambda one: one.start):
        pieces += [data[at : tag.start], b"`", data[tag.start : tag.end], b"`"]
        at = tag.end
    return b"".join([*pieces, data[at:]])
