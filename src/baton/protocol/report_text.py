"""Reports as Markdown: `render` writes them in one form, `parse` reads what models make of that form.

A status is read from one place only: the lines under the title of the report itself, before its first section. What is
quoted, fenced or nested in the report never counts; where two places contradict each other, neither does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

from baton.errors import Malformed
from baton.protocol import codec, report_xml
from baton.protocol.report_fields import declared, fields
from baton.protocol.report_lines import Block, Line, blocks, key, normal
from baton.protocol.report_parts import READ, WRITE, escaped, unescaped
from baton.protocol.report_status import PROTOCOL, Kind
from baton.protocol.reports import KINDS, Exploration, Phase, Report


class Section(NamedTuple):
    """A section: its heading, the field of the record, how its content is written, other names that it goes by."""

    heading: str
    field: str = ""  # empty: it only stands above those that follow
    form: str = "text"
    also: tuple[str, ...] = ()
    label: bool = False  # a label in bold, not a heading
    optional: bool = False


class Layout(NamedTuple):
    """How one kind of report is written."""

    level: int
    title: str
    known_as: str  # a pattern
    fields: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]


_STATED = (("Status", "status"), ("Confidence", "confidence"))
_NEXT = ("next step", "recommended next steps", "next actions")

LAYOUTS: dict[Kind, Layout] = {
    "research": Layout(2, "Research Results", r"research(?: results?| report| findings)?", _STATED, (
        Section("Relevant Files", "files", "items", ("files", "key files")),
        Section("Key Functions/Classes", "symbols", "items", ("key functions", "key classes", "functions classes"),
                optional=True),
        Section("Patterns & Conventions", "patterns", "items", ("patterns", "patterns and conventions", "conventions"),
                optional=True),
        Section("Dependencies", "dependencies", "items", optional=True),
        Section("Implementation Options", "options", "options", ("options",)),
        Section("Recommendation", "recommendation", "text", ("recommended approach",), label=True),
        Section("Open Questions", "questions", "lines", ("questions",)),
        Section("Next Steps", "next_steps", "steps", _NEXT),
    )),
    "implementation": Layout(
        2, "Implementation Complete", r"implementation(?: complete[d]?| report| results?| summary)?", _STATED, (
        Section("Summary", "summary", "text", ("overview",)),
        Section("Files Created/Modified", "files", "items", (
            "files", "files created", "files modified", "files changed", "modified files", "changed files",
            "files created and modified", "files modified created")),
        Section("Functions/Classes Created/Modified", "symbols", "items", (
            "functions classes", "functions created modified", "classes created modified"), optional=True),
        Section("Tests Created/Modified", "tests", "items", ("tests", "tests created", "tests modified", "tests added"),
                optional=True),
        Section("Test Results", "results", "checks", ("tests run", "test result")),
        Section("Issues Encountered", "issues", "lines", ("issues", "known issues", "problems encountered")),
        Section("Next Steps", "next_steps", "text", _NEXT),
    )),
    "review": Layout(2, "Code Review", r"(?:code[ -])?review(?: results?| report)?", _STATED, (
        Section("Summary", "summary", "text", ("overview",)),
        Section("Strengths", "strengths", "lines", ("what was done well",), optional=True),
        Section("Issues Found", "issues", "issues", ("issues", "findings", "problems")),
        Section("Test Coverage Assessment", "coverage", "coverage", ("test coverage", "coverage"), optional=True),
        Section("Security/Performance Concerns", "concerns", "text", (
            "security and performance concerns", "security concerns", "performance concerns", "security",
            "security performance"), optional=True),
        Section("Recommendations", "recommendations", "lines", ("suggestions",)),
        Section("Next Steps", "next_steps", "text", _NEXT),
    )),
    "plan": Layout(1, "Plan", r"(?:implementation )?plan", (("Created", "created"), ("Status", "ready")), (
        Section("Summary", "summary", "text", ("overview", "tl dr")),
        Section("Context & Analysis", also=("context", "context and analysis")),
        Section("Relevant Files", "files", "items", label=True),
        Section("Key Functions/Classes", "symbols", "items", ("key functions",), label=True, optional=True),
        Section("Dependencies", "dependencies", "items", label=True, optional=True),
        Section("Patterns & Conventions", "patterns", "items", ("patterns", "patterns and conventions"), label=True,
                optional=True),
        Section("Implementation Phases", "phases", "phases", ("phases",)),
        Section("Open Questions", "questions", "questions", ("questions",), optional=True),
        Section("Risks & Mitigation", "risks", "risks", ("risks", "risks and mitigation", "risks mitigations"),
                optional=True),
        Section("Success Criteria", "criteria", "criteria"),
        Section("Notes for Atlas", "notes", "text", ("notes",), optional=True),
    )),
    "error": Layout(2, "Error Report", r"error(?: report)?", (("Error Type", "fault"), ("Status", "status")), (
        Section("Description", "description", "text", label=True),
        Section("Context", "context", "items", label=True),
        Section("Attempted Solutions", "attempted", "steps", ("attempted fixes",), label=True, optional=True),
        Section("Recommendation", "recommendation", "text", ("recommendations",), label=True),
        Section("Partial Results", "partial_results", "text", label=True, optional=True),
    )),
}  # fmt: skip

PHASE = (
    Section("Objective", "objective", "text", ("goal",), label=True),
    Section("Files to Modify/Create", "files", "items", ("files", "files to modify", "files to create",
                                                         "files to create modify"), label=True),
    Section("Tests to Write", "tests", "items", ("tests",), label=True),
    Section("Steps", "steps", "steps", ("tdd steps",), label=True),
    Section("Acceptance Criteria", "criteria", "criteria", label=True),
)  # fmt: skip

_TITLES = {
    kind: re.compile(
        rf"\W{{0,8}}{layout.known_as}[*_]{{0,2}}(?:(?:\s?[:：]|\s[–—-]\s|\s(?:of|for)\s)(.*))?", re.IGNORECASE
    )
    for kind, layout in LAYOUTS.items()
}
_PHASE = re.compile(r"\W{0,8}phase\s{1,3}\d{1,4}\b(?:\s?[:：.)]|\s[–—-]\s)?(.*)", re.IGNORECASE)


def _names(sections: tuple[Section, ...]) -> dict[str, Section]:
    return {name: one for one in sections for name in (key(one.heading), *one.also)}


_SECTIONS = {kind: _names(layout.sections) for kind, layout in LAYOUTS.items()}
_PHASE_SECTIONS = _names(PHASE)
_LABELS = {kind: frozenset(names) | (_PHASE_SECTIONS.keys() if kind == "plan" else set())
           for kind, names in _SECTIONS.items()}  # fmt: skip


# --- writing ---------------------------------------------------------------------------------------


def render(report: Report) -> str:
    """The report as text: what `parse` reads back into an equal record."""
    if isinstance(report, Exploration):
        return report_xml.render(report)
    layout, labels = LAYOUTS[report.KIND], _LABELS[report.KIND]
    heading = f"{'#' * layout.level} {layout.title}"
    lines = [f"{heading}: {report.title}" if report.title else heading, ""]
    for name, field in layout.fields:
        value = getattr(report, field)
        if value is not None and value != "":
            lines.append(f"**{name}:** {value}{'%' if field == 'confidence' else ''}")
    lines.append(f"**Protocol Version:** {report.protocol}")
    above: Section | None = None
    for one in layout.sections:
        above = one if not one.field else above if one.label else None
        value = getattr(report, one.field) if one.field else None
        if value is None or value == "" or (value == () and not _keeps_none(report, one.field)):
            continue
        if above is not None:
            lines += ["", f"{'#' * (layout.level + 1)} {above.heading}"]
            above = None
        lines += ["", *_section(one, value, layout.level + 1, labels)]
    return "\n".join(lines) + "\n"


def _keeps_none(report: Report, field: str) -> bool:
    """Whether an empty list says more than a missing one."""
    return getattr(type(report)(), field) is None


def _section(one: Section, value: Any, level: int, labels: frozenset[str]) -> list[str]:
    heading = f"**{one.heading}:**" if one.label else f"{'#' * level} {one.heading}"
    if one.form == "phases":
        return [heading, *(line for number, phase in enumerate(value, 1) for line in _phase(number, phase, labels))]
    written = [escaped(value, labels)] if one.form == "text" else WRITE[one.form](value) or ["None"]
    if one.label and one.form == "text" and "\n" not in written[0]:
        return [f"{heading} {written[0]}"]
    return [heading, *([] if one.label else [""]), *written]


def _phase(number: int, phase: Phase, labels: frozenset[str]) -> list[str]:
    lines = ["", f"### Phase {number}: {phase.title}".rstrip()]
    for one in PHASE:
        value = getattr(phase, one.field)
        if value not in ("", ()):
            lines += ["", *_section(one, value, 4, labels)]
    return [*lines, "", "---"]


# --- reading ---------------------------------------------------------------------------------------


def parse(text: str, kind: Kind, *, strict: bool = False) -> Report:
    """Read a report of this kind out of what a model wrote.

    What is missing is left at its default, and other headings, marks and orders are understood. `strict` refuses
    what a reader would have to guess. A status that cannot be read, or stands there twice, is always refused.
    """
    if kind not in KINDS:
        raise Malformed(f"report: {kind!r:.60} is no kind of report; {codec.near(str(kind), KINDS)}")
    text = normal(codec.text(text, "report"))
    if kind == "exploration":
        return report_xml.parse(text, strict=strict)
    found, _ = blocks(text, _LABELS[kind])
    title, found = _titled(found, kind, strict=strict)
    layout = LAYOUTS[kind]
    named = fields(found[0].lines)
    values: dict[str, Any] = {"title": title}
    for name, field in (*layout.fields, ("Protocol Version", "protocol")):
        values[field] = declared(kind, field, named.get(key(name), []), strict=strict and field != "protocol")
    values["protocol"] = _version(values["protocol"] or PROTOCOL, kind)
    read = _Reading(kind, strict=strict)
    for block in _folded(found[1:], kind):
        read.take(block)
    values |= read.done()
    return KINDS[kind](**{name: value for name, value in values.items() if value is not None})


def _version(version: str, kind: Kind) -> str:
    if version.partition(".")[0] != PROTOCOL.partition(".")[0]:
        raise Malformed(f"{kind}.protocol version: {version!r:.20} is not known; write {PROTOCOL}, or leave it out")
    return version


def _titled(found: list[Block], kind: Kind, *, strict: bool) -> tuple[str, list[Block]]:
    """The title of the report, and its blocks from there on."""
    cure = f"begin it once with the heading {LAYOUTS[kind].title}: …"
    starts = [n for n, one in enumerate(found) if 0 < one.level <= 6 and _title(one, kind) is not None]
    if len(starts) > 1:
        raise Malformed(f"{kind}.title: the heading of a report stands here {len(starts)} times; {cure}")
    if starts:
        return _title(found[starts[0]], kind) or "", found[starts[0] :]
    if strict:
        raise Malformed(f"{kind}.title: missing; {cure}")
    others = [one for one in LAYOUTS if one != kind]
    first = next((block for block in found[1:] if block.level <= 6), None)
    if first is not None and any(_title(first, other) is not None for other in others):
        raise Malformed(f"{kind}.title: {first.name!r:.60} begins another kind of report; {cure}")
    return "", found


def _title(block: Block, kind: Kind) -> str | None:
    name = block.name
    if len(name) > 4 and name[:2] == name[-2:] and name[:2] in {"**", "__"}:
        name = name[2:-2].strip()
    if key(name) in _SECTIONS[kind]:
        return None
    match = _TITLES[kind].fullmatch(name)
    return None if match is None else (match[1] or "").strip()


def _folded(found: list[Block], kind: Kind) -> list[Block]:
    """The blocks, those below a section that are none themselves as a part of its text."""
    known, folded = _LABELS[kind], list[Block]()
    for block in found:
        own = key(block.name) in known or (kind == "plan" and _PHASE.fullmatch(block.name) is not None)
        above = folded[-1] if folded else None
        if own or above is None or block.level <= above.level:
            folded.append(block)
        else:
            above.lines.extend([Line(f"{'#' * block.level} {block.name}"), *block.lines])
    return folded


class _Reading:
    """The sections of one report, as they come."""

    def __init__(self, kind: Kind, *, strict: bool) -> None:
        self.kind, self.strict = kind, strict
        self.values: dict[str, list[Any]] = {}
        self.phases: list[dict[str, list[Any]]] = []
        self.phase: dict[str, list[Any]] | None = None

    def take(self, block: Block) -> None:
        """Read one block."""
        start = _PHASE.fullmatch(block.name) if self.kind == "plan" and block.level <= 6 else None
        if start is not None:
            self.phase = {"title": [start[1].strip()]}
            self.phases.append(self.phase)
            return
        name = key(block.name)
        if self.phase is not None and name in _PHASE_SECTIONS:
            self._read(self.phase, _PHASE_SECTIONS[name], block, f"plan.phase {len(self.phases)}")
            return
        if block.level <= 6:
            self.phase = None
        section = _SECTIONS[self.kind].get(name)
        if section is not None:
            if section.field and section.form != "phases":
                self._read(self.values, section, block, self.kind)
        elif self.strict and block.level <= 6:
            known = ", ".join(one.heading for one in LAYOUTS[self.kind].sections)
            raise Malformed(f"{self.kind}: {block.name!r:.60} is not one of its sections; known: {known}")

    def _read(self, into: dict[str, list[Any]], section: Section, block: Block, where: str) -> None:
        value: Any = unescaped(block.text) if section.form == "text" else READ[section.form](block.lines)
        if section.field in into and self.strict:
            raise Malformed(f"{where}: {section.heading} stands twice; keep one")
        into.setdefault(section.field, []).append(value)

    def done(self) -> Mapping[str, Any]:
        """All that was read; where it is strict, nothing of what has to be there is missing."""
        if self.phases:
            self.values["phases"] = [tuple(Phase(**_joined(phase)) for phase in self.phases)]
        for one in LAYOUTS[self.kind].sections if self.strict else ():
            if one.field and not one.optional and one.field not in self.values:
                cure = f"**{one.heading}:**" if one.label else f"### {one.heading}"
                raise Malformed(f'{self.kind}: the section {one.heading} is missing; add "{cure}", with None if empty')
        return _joined(self.values)


def _joined(values: Mapping[str, list[Any]]) -> dict[str, Any]:
    """What several sections of the same name say, as one."""
    return {
        name: "\n\n".join(filter(None, said)) if isinstance(said[0], str) else tuple(chain.from_iterable(said))
        for name, said in values.items()
    }
