"""Tags in Markdown: where they stand, what they mean, and how one is changed without touching any other byte.

A tag is `#word` or `#word-word`, in ASCII. On the line that begins with `**Tags**:` it speaks for the whole file;
anywhere else it speaks for its line. What is no prose (see `markdown`) holds no tag; nor does a link, a URL or a word
that has a `#` in it. Bytes in, bytes out, in time linear in their length.
"""

from __future__ import annotations

from baton.board.markdown import BOM, Markdown

HEAD = b"**Tags**:"
STATES = ("needs", "delegated", "next", "claimed", "done")
PRIORITIES = ("P0", "P1", "P2")
EFFORTS = ("S", "M", "L")
WEIGHTS = {  # what they mean to a person
    "P0": "critical: it blocks everything",
    "P1": "important: soon",
    "P2": "normal, as where no priority is named",
    "S": "small: less than 30 minutes",
    "M": "medium: 30 minutes to 2 hours",
    "L": "large: more than 2 hours",
}
ALERT = "active-alert"
RESOLVED = "done-alert"

# Where a tag may go, and when; whatever is not here is refused. None: there is no such tag, before or after.
LEGAL: dict[tuple[str | None, str | None], str] = {
    (None, "needs"): "somebody found work",
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

_LETTER = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WORD = _LETTER | frozenset(b"0123456789")
_SPACE = frozenset(b" \t\r\n")
_BEFORE = frozenset(b"([*_~\"',;|>")
_AFTER = frozenset(b' \t\r\n)],;|<"')
_MIDDLE = frozenset(b".:!?'*_~")  # they end a tag only where no word follows
_TARGETS = (b"](", b"][", b"[[", b'="', b"='")  # what follows names a place, not work
_REACH = 1000  # how far back a URL or the name of a link is looked for
_APART = bytes(32 if byte in b'\t\r\n"<>|)' else byte for byte in range(256))


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
    """A Markdown text as far as tags are concerned: `tags` in order; `head`, the place of the Tags line or -1."""

    __slots__ = ("data", "head", "markdown", "tags")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.markdown = Markdown(data)
        self.head = _head(data, self.markdown)
        self.tags = _tags(data, self.markdown.hidden, self.head)

    def own(self) -> list[Tag]:
        """The tags of the Tags line: they speak for the file."""
        return [tag for tag in self.tags if not tag.inline]

    def at(self, line: int) -> list[Tag]:
        """The inline tags of one line."""
        return [tag for tag in self.tags if tag.inline and tag.line == line]

    def item(self, line: int) -> str:
        """What one line says, without its tags and without the marks of a list, a heading or a quote."""
        start = 0
        for _ in range(line - 1):
            start = self.data.find(b"\n", start) + 1 or len(self.data)
        end = _line_end(self.data, start)
        return _said(_cut(self.data[:end], self.at(line), b"")[start:])

    def title(self) -> str:
        """The first heading, if it is of the first level; else nothing."""
        start, end = self.markdown.title or (0, 0)
        words = self.data[start:end].strip()
        return _said(words if words.startswith(b"#") else words.rstrip(b"="))


# --- meaning ------------------------------------------------------------------------------------------


def is_name(name: str) -> bool:
    """Whether this can be a tag: letters and digits from a letter on, in words joined by single hyphens."""
    return name.isascii() and name[:1].isalpha() and all(word.isalnum() for word in name.split("-"))


def state_of(name: str) -> tuple[str, str] | None:
    """State and noun of a lifecycle tag; None of any other, as of alerts."""
    state, _, noun = name.partition("-")
    return (state, noun) if noun and state in STATES and name != RESOLVED else None


def priority(names: list[str]) -> str:
    """The most urgent one of these; P2 where none is named."""
    return next((name for name in PRIORITIES if name in names), "P2")


def effort(names: list[str]) -> str | None:
    """The greatest one of these; None where it is not known."""
    return next((name for name in reversed(EFFORTS) if name in names), None)


def fits(name: str, pattern: str) -> bool:
    """Whether a name is the one wanted, where `*` stands for any text."""
    first, *parts = pattern.split("*")
    if not parts:
        return name == pattern
    last = parts.pop()
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in parts:
        at = name.find(part, at, end) + len(part)
        if at < len(part):
            return False
    return True


def onward(state: str | None) -> dict[str | None, str]:
    """Where a tag in this state may go, and when."""
    return {after: when for (before, after), when in LEGAL.items() if before == state}


def refusal(old: list[str], new: list[str]) -> str:
    """Why these tags may not become those, with what is legal; nothing where they may."""
    before, after = _by_noun(old), _by_noun(new)
    for noun in {**before, **after}:
        then = after.get(noun, [None])
        if len(then) > 1:
            return f"{' and '.join(f'#{state}-{noun}' for state in then)} exclude each other; name one of them"
        for state in before.get(noun, [None]):
            if state != then[0] and (state, then[0]) not in LEGAL:
                return _legal(noun, state, then[0])
    return ""


def _by_noun(names: list[str]) -> dict[str, list[str | None]]:
    states: dict[str, list[str | None]] = {}
    for name in names:
        if found := state_of(name):
            states.setdefault(found[1], []).append(found[0])
    return states


def _legal(noun: str, before: str | None, after: str | None) -> str:
    def told(state: str | None) -> str:
        return f"#{state}-{noun}" if state else "removed"

    if before is None:
        return f"#{after}-{noun} cannot be added; legal: #needs-{noun} ({LEGAL[None, 'needs']})"
    ways = "; ".join(f"{told(to)} ({when})" for to, when in onward(before).items())
    what = f"become {told(after)}" if after else "be removed"
    return f"#{before}-{noun} cannot {what}; legal: {ways or 'nothing, it is an end'}"


# --- reading ------------------------------------------------------------------------------------------


def _head(data: bytes, markdown: Markdown) -> int:
    """The first line of tags that a reader sees."""
    hidden, number = markdown.hidden, 0
    at = data.find(HEAD, markdown.body)
    while at >= 0:
        while number < len(hidden) and hidden[number][1] <= at:
            number += 1
        seen = number == len(hidden) or at < hidden[number][0]
        if seen and (at == markdown.body or data[at - 1] == 10):
            return at
        at = data.find(HEAD, at + 1)
    return -1


def _tags(data: bytes, hidden: list[tuple[int, int]], head: int) -> list[Tag]:
    tags: list[Tag] = []
    own_end = _line_end(data, head) if head >= 0 else -1
    line, counted, places = 1, 0, iter(hidden)
    start, end = next(places, (len(data), 0))
    at = data.find(b"#")
    while at >= 0:
        while end <= at and start < len(data):
            start, end = next(places, (len(data), 0))
        if start <= at:
            at = data.find(b"#", end)
            continue
        stop = _tag_end(data, at, head)
        if stop:
            line, counted = line + data.count(b"\n", counted, at), at
            tags.append(Tag(data[at + 1 : stop].decode("ascii"), at, stop, line, not head < at < own_end))
        at = data.find(b"#", max(stop, at + 1))
    return tags


def _line_end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _tag_end(data: bytes, at: int, head: int) -> int:
    """Where the tag that begins here ends; 0 where none does."""
    size, stop = len(data), at + 1
    if stop == size or data[stop] not in _LETTER:
        return 0
    while stop < size and data[stop] in _WORD:
        stop += 1
        if stop + 1 < size and data[stop] == 45 and data[stop + 1] in _WORD:
            stop += 1
    return stop if _may_end(data, stop) and (at == head + len(HEAD) > head >= 0 or _may_begin(data, at, stop)) else 0


def _may_end(data: bytes, stop: int) -> bool:
    """Whether what follows makes it no part of a longer word."""
    if stop == len(data):
        return True
    following = data[stop]
    if following > 127:
        return not _is_letter(data[stop : stop + 4])
    return following in _AFTER or (following in _MIDDLE and not data[stop + 1 : stop + 2].isalnum())


def _may_begin(data: bytes, at: int, stop: int) -> bool:
    """Whether what stands before makes it no part of a word, of a link or of an attribute."""
    if at == 0:
        return True
    before = data[at - 1]
    if before in _SPACE:
        return not _is_target(data, at, stop)
    if before > 127:
        return (at == len(BOM) and data.startswith(BOM)) or not _is_letter_before(data, at)
    return before in _BEFORE and data[at - 2 : at] not in _TARGETS and not _in_url(data, at)


def _is_target(data: bytes, at: int, stop: int) -> bool:
    """Whether it is what a link or the definition of one leads to."""
    before = data[max(0, at - _REACH) : at].rstrip()
    if before.endswith(b"]("):
        return True
    if not before.endswith(b"]:"):
        return False
    label = before[before.rfind(b"\n") + 1 :].lstrip(b" >")
    following = data[stop : _line_end(data, stop)].lstrip()[:1]
    return label.startswith(b"[") and not label.startswith((b"[^", b"[ ]:")) and following in b"\"'("


def _in_url(data: bytes, at: int) -> bool:
    before = data[max(0, at - _REACH) : at]
    return b"://" in before and b"://" in before.translate(_APART).rsplit(b" ", 1)[-1]


def _is_letter(start: bytes) -> bool:
    """Whether a text begins with a letter or mark that makes a word longer. What cannot be read might be one."""
    first = start.decode("utf-8", "replace")[0]
    return first == "\ufffd" or ("a" + first).isidentifier()


def _is_letter_before(data: bytes, at: int) -> bool:
    last = data[max(0, at - 4) : at].decode("utf-8", "replace")[-1]
    return last == "\ufffd" or ("a" + last).isidentifier()


def _said(words: bytes) -> str:
    """Words in one line, without the marks that Markdown puts around them."""
    said = words.decode("utf-8", "replace").split()
    if said and not said[0].strip("#") and not said[-1].strip("#"):
        said.pop()  # a heading may be closed
    while said and _is_mark(said[0]):
        said = said[2 if said[:2] == ["[", "]"] else 1 :]
    return " ".join(said)


def _is_mark(word: str) -> bool:
    return (
        word in {"-", "*", "+", "[", "[x]", "[X]"}
        or not word.strip("#>")
        or (word[:-1].isdecimal() and word[-1] in ".)")
    )


# --- editing ------------------------------------------------------------------------------------------


def added(data: bytes, name: str) -> bytes:
    """The text with a tag on its Tags line, which is made below the title, or at the top, where there is none."""
    text = Text(data)
    own = text.own()
    if any(tag.name == name for tag in own):
        return data
    word = b" #" + name.encode("ascii")
    if text.head < 0:
        return _headed(text, HEAD + word)
    at = own[-1].end if own else text.head + len(HEAD)
    gap = b"" if own or data[at : at + 1] in (b"", b" ", b"\t", b"\r", b"\n") else b" "
    return data[:at] + word + gap + data[at:]


def _headed(text: Text, line: bytes) -> bytes:
    """The text with a line below its title, and a blank one behind it where a paragraph would go on in it."""
    data, markdown = text.data, text.markdown
    newline = b"\r\n" if b"\r\n" in data[:4096] else b"\n"
    at = min(markdown.title[1] + 1, len(data)) if markdown.title else markdown.body
    before = newline if at and data[at - 1] != 10 and data[:at] != BOM else b""
    after = b"" if at == len(data) and before else newline
    if data[at : _line_end(data, at)].strip():
        after += newline
    return data[:at] + before + line + after + data[at:]


def replaced(data: bytes, old: list[Tag], new: list[str]) -> bytes:
    """The text with these tags gone, and the new ones in the place of the first, but for those that are there."""
    if not old:
        return data
    words = [b"#" + name.encode("ascii") for name in dict.fromkeys(new)]
    if words and not any(word in data for word in words):
        return _cut(data, old, b" ".join(words))
    gone = {tag.start for tag in old}
    left = [tag for tag in Text(data).tags if tag.start not in gone]
    there = {data[tag.start : tag.end] for tag in left if _same_place(tag, old[0])}
    words = [word for word in words if word not in there]
    if words:
        return _cut(data, old, b" ".join(words))
    without = _cut(data, old, b"")
    if [(tag.name, tag.inline) for tag in Text(without).tags] == [(tag.name, tag.inline) for tag in left]:
        return without
    for tag in sorted(old, key=lambda one: -one.start):  # what follows would be read as something else: hold its place
        data = data[: tag.start] + b"&nbsp;" + data[tag.end :]
    return data


def _same_place(one: Tag, other: Tag) -> bool:
    return one.line == other.line if one.inline and other.inline else one.inline == other.inline


def _cut(data: bytes, tags: list[Tag], words: bytes) -> bytes:
    """The text without these tags, each with a space beside it; words stand in the place of the first."""
    pieces, at = [], 0
    for tag in sorted(tags, key=lambda one: one.start):
        start, end = tag.start, tag.end
        if at or not words:
            if data[start - 1 : start] in {b" ", b"\t"} and start > at:
                start -= 1
            elif data[start - 1 : start] in {b"\n", b""}:
                end += data[end : end + 1] in {b" ", b"\t"}
        pieces += [data[at:start], b"" if at else words]
        at = end
    return b"".join([*pieces, data[at:]])


def escaped(data: bytes, tags: list[Tag]) -> bytes:
    """The text with these tags between backticks: mentioned, and no work any more."""
    loose = Text(data).markdown.loose
    pieces, at, number = [], 0, 0
    near: list[tuple[int, int, int]] = []
    for tag in sorted(tags, key=lambda one: one.start):
        while number < len(loose) and loose[number][0] < tag.start:
            near.append(loose[number])
            number += 1
        near = [run for run in near if run[2] > tag.start]
        taken = {length for _, length, _ in near}
        ticks = b"`" * next(length for length in range(1, len(taken) + 2) if length not in taken)
        pieces += [data[at : tag.start], ticks, data[tag.start : tag.end], ticks]
        at = tag.end
    return b"".join([*pieces, data[at:]])
