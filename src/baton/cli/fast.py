"""The verbs that agents call all the time, without argparse and whatever else is slow to import.

Only what is written in the plain way is read here. All else (help, `--inline=3`, a wrong number of words) is left to
`cli/tag.py`, which declares the same verbs as all others are declared and ends in the same functions.
"""

from __future__ import annotations

import sys

from baton import clock
from baton.board import tagging
from baton.board.log import encode
from baton.errors import BatonError, Malformed, safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from baton.board.find import Hit
    from baton.board.tagging import Done


class Given:
    """What stands on a command line; argparse makes one of its own with the same names."""

    words: list[str]
    inline = 0
    timeout = ""
    dir = ""
    force = context = json = tags_only = False

    def __init__(self) -> None:
        self.words = []


# verb → how many words at least and at most, and its options
TAKES: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "tag add": (2, 2, ("--force", "--json")),
    "tag remove": (2, 2, ("--inline", "--force", "--json")),
    "tag swap": (3, 3, ("--inline", "--force", "--json")),
    "tag find": (1, 1000, ("--context", "--tags-only", "--json")),
    "await-tag": (1, 2, ("--dir", "--timeout", "--json")),
}
VALUED = {"--inline", "--timeout", "--dir"}


def run(words: list[str]) -> int | None:
    """Do what the words say; None where they are not for here."""
    name = words[0] if words[0] in TAKES else " ".join(words[:2])
    if name not in TAKES:
        return None
    try:
        given = parsed(name, words[len(name.split()) :])
        return None if given is None else DOES[name](given)
    except BatonError as error:
        from baton.cli.exits import code_of

        _complain(error, as_json="--json" in words)
        return code_of(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        _complain(BatonError(f"{error.filename or ''}: {error.strerror}".lstrip(": ")), as_json="--json" in words)
        return 2


def parsed(name: str, words: list[str]) -> Given | None:
    """The command line, as far as it is plain."""
    least, most, options = TAKES[name]
    given, rest = Given(), iter(words)
    for word in rest:
        if word == "--":
            given.words += rest
        elif word in VALUED and word in options:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
            setattr(given, word[2:], value if word != "--inline" else line_number(value))
        elif word in options:
            setattr(given, word[2:].replace("-", "_"), True)
        elif word.startswith("-"):
            return None
        else:
            given.words.append(word)
    return given if least <= len(given.words) <= most else None


def line_number(text: str) -> int:
    """A line of a file, from 1."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) < 1:
        raise Malformed(f"--inline {text[:60]!r}: give the number of a line, from 1 on")
    return int(text)


def _place(given: Any) -> tuple[tagging.Place, Any]:
    from baton.board.actor import from_shell

    actor = from_shell()
    return tagging.place_of(given.words[0], given.inline, actor, forced=given.force), actor


def add(given: Any) -> int:
    """`tag add`."""
    names = tagging.read_names(given.words[1])
    place, actor = _place(given)
    code = _said(given, place, tagging.add(place, names, actor))
    for name in names:
        if state := tagging.meant(name):
            print(f"#{name} is a word like any other: did you mean #{state}-…?", file=sys.stderr)
    return code


def remove(given: Any) -> int:
    """`tag remove`."""
    names = tagging.read_names(given.words[1])
    place, actor = _place(given)
    return _said(given, place, tagging.remove(place, names, actor))


def swap(given: Any) -> int:
    """`tag swap`."""
    old, new = (tagging.read_names(text) for text in given.words[1:])
    place, actor = _place(given)
    return _said(given, place, tagging.swap(place, old, new, actor))


def _said(given: Any, place: tagging.Place, done: Done) -> int:
    """One line of what is so now."""
    item = f"#{done.state}-{done.noun}" if done.state not in {"", "removed"} else ""
    if given.json:
        document: dict[str, str | int] = {"path": place.name, "state": done.state, "noun": done.noun}
        if done.state == "claimed":
            document["epoch"] = done.epoch
        print(encode(document).decode()[:-1] + f',"changed":{"true" if done.changed else "false"}}}')
        return 0
    if done.state == "claimed":
        told = f"{item}, {'already yours' if not done.changed else 'yours'} (claim {done.epoch})"
    elif done.changed:
        told = item or "changed"
    else:
        told = "as it was already"
    print(f"{safe(place.name)}: {told}")
    return 0


def find(given: Any) -> int:
    """`tag find`."""
    from baton.board import find as finding

    pattern = tagging.read_pattern(given.words[0])
    shown = ("", 0)
    for hit in finding.find(pattern, given.words[1:], tags_only=given.tags_only):
        if given.json:
            print(encode({"path": hit.path, "line": hit.line, "tag": hit.name, "text": hit.text(0) or ""}).decode())
            continue
        place = (hit.path, hit.line if given.context else 0)
        if place != shown:
            shown = place
            _show(hit) if given.context else print(_path(hit.path))
    return 0


def _path(path: str) -> str:
    """A path as it may be pasted; what would spoil the line is spelled out."""
    return path if path.isprintable() and not sys.stdout.isatty() else safe(path)


def _show(hit: Hit) -> None:
    print(f"{_path(hit.path)}:{hit.line}")
    for number in (hit.line - 1, hit.line, hit.line + 1):
        if number > 0 and (text := hit.text(number - hit.line)) is not None:
            print(f"  {number}: {safe(text)}")
    print()


def await_tag(given: Any) -> int | None:
    """`await-tag`."""
    from baton.board import waiting

    if (len(given.words) != 1) if given.dir else (len(given.words) != 2):
        return None
    tag = tagging.read_pattern(given.words[-1])
    until = None
    if given.timeout:
        until = clock.monotonic() + _seconds(given.timeout)
    found, at_once = waiting.wait(given.dir or given.words[0], tag, until)
    if given.json:
        print(encode({"file": found.path, "tag": found.name, "title": found.title()}).decode())
        return 0
    if at_once:
        print("already there")
    print(f"file: {_path(found.path)}\ntag: #{found.name}\ntitle: {safe(found.title())}")
    return 0


def _seconds(text: str) -> float:
    bare = text.removesuffix("s")
    if bare.isascii() and bare.isdecimal() and len(bare) < 10:
        return float(bare)
    from baton.cli.call import seconds

    return seconds(text, "--timeout")


def _complain(error: BatonError, *, as_json: bool) -> None:
    """An error as every verb says it."""
    if as_json:
        print(encode({"error": str(error), "kind": type(error).__name__}).decode(), flush=True)
    print(f"error: {safe(error)}", file=sys.stderr, flush=True)


DOES: dict[str, Callable[[Any], int | None]] = {
    "tag add": add,
    "tag remove": remove,
    "tag swap": swap,
    "tag find": find,
    "await-tag": await_tag,
}
