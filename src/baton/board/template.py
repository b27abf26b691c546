"""Requests and responses from their templates: which one counts, and how its fields are filled.

A template is Markdown. Its fields are the bullets `*   **Name**:` and the sections without such bullets; a list in a
section takes one line for each value. What is put in is hostile: it can neither become a tag, nor hide what follows,
nor look like a section of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from baton.board import trust
from baton.board.answered import OWN, TEMPLATES
from baton.board.root import Board
from baton.board.sessions import safe_name
from baton.board.tags import Text, escaped, state_of
from baton.errors import Malformed, safe
from baton.protocol import codec

LONGEST = 64 * 1024
TOPIC = 120
NAME = 60

_BULLET = re.compile(r"\*   \*\*([^*]{1,60})\*\*:")
_HEADING = re.compile(r"##+ (?:\d+\. )?(.{1,60})")
_LIST = re.compile(r"-(?: \[ \])?")
_OPENS = re.compile(r"<(?=[A-Za-z!/?])")
_WORD = re.compile(r"\{([a-z]+)\}")


def read(board: Board, noun: str, kind: str) -> str:
    """The template of a noun, `kind` being REQUEST or RESPONSE; the general one where it has none."""
    name = file_name(noun, kind)
    own = trust.read(board, f"{OWN}/{name}")
    if own is not None:
        try:
            return own.decode()
        except UnicodeDecodeError:
            raise Malformed(f"{OWN}/{name}: not UTF-8; save it as UTF-8, then `baton trust` again") from None
    packaged = Path(TEMPLATES, name)
    return (packaged if packaged.is_file() else Path(TEMPLATES, f"{kind}.md")).read_text(encoding="utf-8")


def file_name(noun: str, kind: str) -> str:
    """What the template of a noun is called."""
    return f"{noun.upper().replace('-', '_')}_{kind}.md"


def topic_name(topic: str) -> str:
    """A topic as a part of a file name, out of letters that are safe everywhere."""
    return safe_name(topic)[:NAME].strip("_") or "UNTITLED"


def plain(text: str) -> str:
    """Words of somebody's on one line of Markdown: no tag, no comment, no element of HTML."""
    line = safe(" ".join(text.split()))
    found = [tag for tag in Text(b" " + line.encode()).tags if state_of(tag.name) is not None]
    line = escaped(b" " + line.encode(), found).decode()[1:] if found else line
    return _OPENS.sub("&lt;", line)


def filled(template: str, words: Mapping[str, str], fields: Mapping[str, list[str]]) -> str:
    """The template with its `{words}` and its fields; a field that it does not have is refused."""
    lines, known, open_fields = list[str](), list[str](), {key(name): values for name, values in fields.items()}
    section = ""
    for line in template.splitlines():
        bullet, heading = _BULLET.match(line), _HEADING.match(line)
        if heading:
            lines += _section(lines, open_fields.pop(section, []))
            section = key(heading[1])
            known.append(section)
        elif bullet and not line[bullet.end() :].strip():
            known.append(key(bullet[1]))
            lines.append(line + _value(open_fields.pop(known[-1], [])))
            continue
        elif _LIST.fullmatch(line.rstrip()):
            lines += [f"{line.rstrip()} {plain(value)}" for value in open_fields.pop(section, [])] or [line]
            continue
        lines.append(_WORD.sub(lambda found: plain(words.get(found[1], found[0])), line))
    lines += _section(lines, open_fields.pop(section, []))
    if open_fields:
        wrong = next(iter(open_fields))
        raise Malformed(f"no field {wrong[:60]!r}; {codec.near(wrong, known)}; it has {', '.join(known)}")
    return "\n".join(lines).rstrip("\n") + "\n"


def key(name: str) -> str:
    """How a field is named on the command line: `Relevant Files` is relevant-files."""
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


def _value(values: Iterable[str]) -> str:
    """What stands behind a bullet; further lines belong to it."""
    lines = [plain(line) for value in values for line in value.splitlines() if line.strip()]
    return "".join(f" {line}" if number == 0 else f"\n    {line}" for number, line in enumerate(lines))


def _section(before: list[str], values: list[str]) -> list[str]:
    """What stands in a section: quoted where it has lines of its own, so that none of them is a heading or a fence."""
    found = [""] if values and before and before[-1] else []
    for value in values:
        lines = [plain(line) for line in value.splitlines() if line.strip()]
        bare = len(lines) == 1 and lines[0][:1].isalnum()
        found += [*(lines if bare else [f"> {line}" for line in lines]), ""]
    return found
