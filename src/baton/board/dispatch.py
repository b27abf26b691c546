"""Which skill does the work of which tag, and how: the table `§TAG_DISPATCH` of TAGS.md.

The file stands in a repository, so it is hostile input: what is not certainly right is refused, with its line and the
cure. One tag has one skill, and one skill has one tag. A file without the section has the default table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from baton.errors import Malformed, TooLarge

Mode = Literal["interactive", "agent", "async", "interactive/agent"]
MODES: tuple[Mode, ...] = ("interactive", "agent", "async", "interactive/agent")
COLUMNS = ("tag", "skill", "mode", "priority")
HEADER = "| Tag | Skill | Mode | Priority |"
BY_PERSONS = frozenset({"review", "rework", "alert"})  # nouns and skills that no daemon ever starts

MAX_TEXT = 512 * 1024
MAX_ROWS = 200
MAX_LINE = 2000

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]")
_SECTION = re.compile(r"(?<![A-Za-z0-9_])TAG_DISPATCH(?![A-Za-z0-9_])")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r":?-+:?")
_NOUN = re.compile(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*", re.ASCII)
_SKILL = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", re.ASCII)
_PRIORITY = re.compile(r"\d{1,4}(?:\.\d{1,4})?", re.ASCII)
_REMARK = re.compile(r"\s+\(.*\)\Z")
_STATES = frozenset({"needs", "next", "claimed", "done"})


class Route(msgspec.Struct, frozen=True):
    """One row: who does the work of a noun. The line is 0 in the default table."""

    noun: str
    skill: str
    mode: Mode
    priority: float
    line: int = 0


class Way(msgspec.Struct, frozen=True):
    """How work starts, or, where `mode` is None, why it does not start now and what a person can do."""

    mode: Literal["interactive", "agent", "async"] | None
    reason: str = ""


Routes = Mapping[str, Route]

DEFAULT: Routes = {
    route.noun: route
    for route in (
        Route("brainstorm", "brainstorm", "interactive", 1),
        Route("research", "research", "async", 2),
        Route("fix", "fix", "interactive/agent", 3),
        Route("implementation", "implement", "interactive/agent", 4),
        Route("loop", "loop", "interactive", 4.5),
        Route("chores", "chores", "interactive", 5),
        Route("documentation", "document", "interactive", 6),
    )
}


def read_routes(data: bytes, file: str = "TAGS.md") -> Routes:
    """The dispatch table of a file, by noun; the default where the file has no such section."""
    lines = _lines(data, file)
    section = _section(lines, file)
    if section is None:
        return DEFAULT
    routes: dict[str, Route] = {}
    skills: dict[str, Route] = {}
    for number, cells in _table(section, file):
        route = _route(cells, number, f"{file}: line {number}")
        for known, key, what in (
            (routes, route.noun, f"#delegated-{route.noun}"),
            (skills, route.skill, f"/{route.skill}"),
        ):
            if (other := known.get(key)) is not None:
                cure = "one tag has one skill, and one skill has one tag; keep one of the rows"
                raise Malformed(f"{file}: line {number}: {what} stands in line {other.line} already: {cure}")
            known[key] = route
        if len(routes) > MAX_ROWS:
            raise TooLarge(f"{file}: line {number}: more than {MAX_ROWS} rows; dispatch fewer kinds of work")
    return routes


def written(routes: Routes = DEFAULT) -> str:
    """A table as it stands in TAGS.md."""
    rows = (f"| `#delegated-{one.noun}` | `/{one.skill}` | {one.mode} | {one.priority:g} |" for one in routes.values())
    return "\n".join([HEADER, "|---|---|---|---|", *rows])


def way(mode: Mode, *, shows: bool, attached: bool) -> Way:
    """How a mode is done here: `shows` where a window can wait for a person, `attached` where one looks at it."""
    if mode == "async":
        return Way("async")
    if mode == "interactive" and not shows:
        cure = "install tmux or leave out `--windows plain`, or do it yourself: `baton run /SKILL FILE` in a terminal"
        return Way(None, f"it needs a window in which a person can answer, and there is none here; {cure}")
    if mode == "interactive/agent":
        return Way("interactive" if shows and attached else "agent")
    return Way(mode)


# --- the section and its table --------------------------------------------------------------------


def _lines(data: bytes, file: str) -> list[str]:
    if len(data) > MAX_TEXT:
        raise TooLarge(f"{file}: larger than {MAX_TEXT} bytes; move what is no tag out of it")
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Malformed(f"{file}: line {line}: not UTF-8; save the file as UTF-8") from None
    return [line.removesuffix("\r") for line in text.split("\n")]  # as editors count them


def _visible(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The lines outside of blocks of code and of comments, with their numbers."""
    fence, comment = "", False
    for number, line in enumerate(lines, 1):
        found = _FENCE.match(line)
        if comment:
            comment = "-->" not in line
        elif fence:
            if found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif found:
            fence = found[1]
        elif line.lstrip().startswith("<!--"):
            comment = "-->" not in line
        else:
            yield number, line


def _section(lines: list[str], file: str) -> list[tuple[int, str]] | None:
    """The lines below the heading with the name of the table, the heading first."""
    found: list[tuple[int, str]] | None = None
    level = 0
    for number, line in _visible(lines):
        heading = _HEADING.match(line)
        if heading and level and len(heading[1]) <= level:
            level = 0
        if heading and _SECTION.search(line):
            if found is not None:
                raise Malformed(f"{file}: line {number}: §TAG_DISPATCH begins in line {found[0][0]} already; keep one")
            found, level = [(number, line)], len(heading[1])
        elif level and found is not None:
            found.append((number, line))
    return found


def _table(section: list[tuple[int, str]], file: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of the one table of the section, by column."""
    at = next((at for at, (_, line) in enumerate(section) if line.lstrip().startswith("|")), None)
    if at is None:
        raise Malformed(f"{file}: line {section[0][0]}: no table below this heading; write {HEADER}")
    number, line = section[at]
    columns = [cell.lower() for cell in _cells(line, f"{file}: line {number}")]
    if sorted(columns) != sorted(COLUMNS):
        raise Malformed(f"{file}: line {number}: the columns are not Tag, Skill, Mode, Priority; write {HEADER}")
    rest = section[at + 1 :]
    rule = _cells(rest[0][1], f"{file}: line {rest[0][0]}") if rest else []
    if len(rule) != len(columns) or not all(_RULE.fullmatch(cell) for cell in rule):
        raise Malformed(f"{file}: line {number}: no line |---|---|---|---| below the names of the columns; add it")
    ended = False
    for number, line in rest[1:]:
        where = f"{file}: line {number}"
        if line.lstrip().startswith("|"):
            if ended:
                raise Malformed(f"{where}: a row apart from the table; close the gap, or give it a heading of its own")
            cells = _cells(line, where)
            if len(cells) != len(columns):
                raise Malformed(f"{where}: {len(cells)} cells instead of {len(columns)}; write {HEADER}")
            yield number, dict(zip(columns, cells, strict=True))
        elif line.strip() and not ended and not _HEADING.match(line):
            raise Malformed(f"{where}: no row of the table; begin it with |, or leave a line empty before it")
        else:
            ended = True


def _cells(line: str, where: str) -> list[str]:
    if len(line) > MAX_LINE:
        raise TooLarge(f"{where}: {len(line)} characters in a row, at most {MAX_LINE}; shorten the remark")
    line = line.replace("\t", " ").strip()
    if not line.isprintable():
        odd = next(char for char in line if not char.isprintable())
        raise Malformed(f"{where}: the character U+{ord(odd):04X}, which nobody sees; remove it")
    if not line.startswith("|"):
        return []
    return [cell.strip() for cell in _CELL.split(line.removeprefix("|").removesuffix("|"))]


# --- one row --------------------------------------------------------------------------------------


def _route(cells: dict[str, str], number: int, where: str) -> Route:
    noun, skill = _noun(_bare(cells["tag"]), where), _skill(_bare(cells["skill"]), where)
    mode = _REMARK.sub("", cells["mode"])
    if mode not in MODES:
        raise Malformed(f"{where}: mode {mode!r:.60}; write interactive, agent, async or interactive/agent")
    priority = _REMARK.sub("", cells["priority"])
    if not _PRIORITY.fullmatch(priority):
        raise Malformed(f"{where}: priority {priority!r:.60}; write a number such as 4 or 4.5, smaller is sooner")
    return Route(noun, skill, mode, float(priority), number)


def _bare(cell: str) -> str:
    """What a cell says, without backticks around all of it."""
    return cell[1:-1].strip() if len(cell) > 2 and cell[0] == cell[-1] == "`" else cell


def _noun(tag: str, where: str) -> str:
    state, _, noun = tag.removeprefix("#").partition("-")
    if state in _STATES and noun:
        raise Malformed(f"{where}: {tag!r:.80}: only what a person approved is dispatched; write #delegated-…")
    if not tag.startswith("#delegated-") or len(noun) > 60 or not _NOUN.fullmatch(noun):
        cure = "write #delegated- and a word of letters, digits and single hyphens"
        raise Malformed(f"{where}: {tag!r:.80} is no tag for the daemon; {cure}")
    if noun in BY_PERSONS:
        raise Malformed(f"{where}: {tag} is for a person, the daemon never starts it; remove the row")
    return noun


def _skill(cell: str, where: str) -> str:
    name = cell.removeprefix("/")
    if not cell.startswith("/") or len(name) > 60 or not _SKILL.fullmatch(name):
        cure = "write / and a name of small letters, digits, - and _, such as /implement"
        raise Malformed(f"{where}: skill {cell!r:.80}; {cure}")
    if name in BY_PERSONS:
        raise Malformed(f"{where}: {cell} is for a person, the daemon never starts it; remove the row")
    return name
