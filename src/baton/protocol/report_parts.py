"""How each form of section is written and read: files with notes, options, issues, criteria and more."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from baton.protocol.report_lines import Entry, Line, blocks, entries, is_rule, key, unmarked
from baton.protocol.reports import (
    NOTHING,
    Check,
    Coverage,
    Criterion,
    Issue,
    Item,
    Level,
    Option,
    Outcome,
    Question,
    Risk,
    Severity,
)

_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_PLAIN = re.compile(r"[\w./@+()][\w./@+()-]*(?: [\w./@+()][\w./@+()-]*)*")
_BACKTICKS = re.compile(r"`+")
_DELIMITER = re.compile(r":(?=[ \t]|$)|[ \t][-–—][ \t]")
_SEVERITY = {
    **{one.value.lower(): one for one in Severity},
    "blocker": Severity.CRITICAL,
    "high": Severity.CRITICAL,
    "medium": Severity.MAJOR,
    "moderate": Severity.MAJOR,
    "low": Severity.MINOR,
    "nit": Severity.MINOR,
}
_WRITTEN = re.compile(r"\*\*\[(CRITICAL|MAJOR|MINOR)\]\*\* (.+)")
_MARKED = re.compile(
    rf"[^\w\s]{{0,4}}\s?[*_\[(]{{0,4}}({'|'.join(_SEVERITY)})(?:[\])*_:]{{1,5}}|\s?[–—-](?=\s))\s{{0,3}}:?(.*)",
    re.IGNORECASE,
)
_NO_ISSUES = re.compile(r"no (?:\w+ ){0,2}(?:issues?|problems?)(?: (?:were |was )?found)?\.?", re.IGNORECASE)
_DETAILS = {
    "file": "file", "path": "file", "files": "file", "line": "line", "lines": "line",
    "recommendation": "recommendation", "fix": "recommendation", "suggestion": "recommendation",
}  # fmt: skip
_OPTION = re.compile(r"(\*\*)?option\s{1,3}\w{1,3}:?(\*\*)?:?\s{1,3}(.*)", re.IGNORECASE)
_BOX = re.compile(r"\[([ xX✓✔])\]\s?(.*)")


def escaped(text: str, labels: Collection[str]) -> str:
    r"""A text as it can stand in a section: with `\` before lines that would begin something of their own."""
    lines = text.split("\n")
    found, is_open = blocks(text, labels)
    own = len(found) > 1 or is_open or is_rule(lines[-1]) or any(line.lstrip()[:1] == "\\" for line in lines)
    return "\n".join(map(_escape, lines)) if own else text


def unescaped(text: str) -> str:
    """What `escaped` was given."""
    return "\n".join(map(_unescape, text.split("\n")))


def _escape(line: str) -> str:
    bare = line.lstrip()
    return f"{line[: len(line) - len(bare)]}\\{bare}" if bare[:1] in _PUNCTUATION else line


def _unescape(line: str) -> str:
    bare = line.lstrip()
    return line[: len(line) - len(bare)] + bare[1:] if bare[:1] == "\\" and bare[1:2] in _PUNCTUATION else line


def _listed(text: str) -> str:
    return f"\\{text}" if text.startswith("\\") or is_rule(f"- {text}") else text


def _named(name: str) -> str:
    """A name as it can stand before a colon."""
    if _PLAIN.fullmatch(name):
        return name
    ticks = "`" * (1 + max(map(len, _BACKTICKS.findall(name)), default=0))
    pad = " " if name[0] == "`" or name[-1] == "`" else ""
    return f"{ticks}{pad}{name}{pad}{ticks}"


def _unspanned(text: str) -> tuple[str, str]:
    """A code span at the start of a text and what follows; an empty name where there is none."""
    ticks = len(text) - len(text.lstrip("`"))
    if not ticks:
        return "", text
    for run in _BACKTICKS.finditer(text, ticks):
        if len(run[0]) == ticks:
            inside = text[ticks : run.start()]
            if len(inside) > 2 and inside[0] == inside[-1] == " ":
                inside = inside[1:-1]
            return inside.strip(), text[run.end() :]
    return "", text


def _item(text: str) -> tuple[str, str]:
    """A name and the note behind it."""
    name, rest = _unspanned(text)
    if name:
        found = _DELIMITER.match(rest)
        if found or not rest.strip():
            return name, rest[found.end() :].strip() if found else ""
    found = _DELIMITER.search(text)
    name, note = (text[: found.start()], text[found.end() :]) if found else (text, "")
    name = name.strip()
    if name.startswith("**") and not found:
        name, _, note = name[2:].partition("**")
    elif note.startswith("**") and name.startswith("**"):
        name, note = name[2:], note[2:]
    elif found:
        name = name.removeprefix("**").removesuffix("**")
    return name.replace("`", "").strip() or text.strip("`*: ") or "?", note.strip()


def _labelled(text: str) -> tuple[str, str]:
    """A label, as it is compared, and what it says."""
    if not text.startswith("**"):
        name, _, value = text.partition(":")
        return key(name), value.strip()
    name, _, value = text[2:].partition("**")
    if name.rstrip().endswith(":") or ":" not in name:
        return key(name), (value if name.rstrip().endswith(":") else value.lstrip().removeprefix(":")).strip()
    name, _, value = name.partition(":")
    return key(name), value.strip()


def _said(lines: Iterable[Line]) -> list[Entry]:
    return [one for one in entries(lines) if not NOTHING.fullmatch(one.text) and not _NO_ISSUES.fullmatch(one.text)]


def _whole(entry: Entry) -> str:
    below = filter(None, (line.strip() for line in entry.below))
    return " ".join([_unescape(entry.text), *below])


def _sayings(lines: Iterable[Line]) -> tuple[str, ...]:
    return tuple(text for text in map(_whole, _said(lines)) if not NOTHING.fullmatch(text))


def _items(lines: Iterable[Line]) -> tuple[Item, ...]:
    return tuple(Item(*_item(_whole(one))) for one in _said(lines) if not NOTHING.fullmatch(_item(_whole(one))[0]))


def _checks(lines: Iterable[Line]) -> tuple[Check, ...]:
    return tuple(Check(one.name, _outcome(one.note)) for one in _items(lines))


def _outcome(note: str) -> Outcome:
    words = re.sub(r"\b0 (?:fail|error)\w*", "", note.lower())
    if "❌" in words or "fail" in words or "error" in words or re.search(r"\bnot (?:pass|run)|n't", words):
        return Outcome.NOT_RUN if re.search(r"\bnot run\b", words) and "fail" not in words else Outcome.FAILED
    return Outcome.PASSED if "✅" in words or "pass" in words else Outcome.NOT_RUN


def _coverage(lines: Iterable[Line]) -> tuple[Coverage, ...]:
    return tuple(Coverage(one.name, _level(one.note)) for one in _items(lines))


def _level(note: str) -> Level:
    words = note.lower()
    if "❌" in words or "insufficient" in words or re.search(r"\b(?:not|no|in)\b|inadequate|uncovered", words):
        return Level.INSUFFICIENT
    if "⚠" in words or "partial" in words:
        return Level.PARTIAL
    return Level.ADEQUATE if "✅" in words or "adequate" in words or "covered" in words else Level.UNKNOWN


def _option(text: str) -> str:
    found = _OPTION.fullmatch(text)
    if found is None:
        return _unescape(text)
    return found[3].removesuffix("**") if found[1] and not found[2] else found[3]


def _options(lines: Iterable[Line]) -> tuple[Option, ...]:
    return tuple(Option(_option(one.text).strip() or "?", *_sides(one.below)) for one in _said(lines))


def _sides(below: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    sides: dict[str, list[str]] = {"pro": [], "con": []}
    side = ""
    for line in below:
        text = unmarked(line)
        name, value = _labelled(text or line.strip())
        now = {"pros": "pro", "pro": "pro", "advantages": "pro", "cons": "con", "con": "con", "disadvantages": "con"}
        if name in now:
            side = now[name]
        elif side and text:
            value = text
        if side and value and not NOTHING.fullmatch(value) and (name in now or text):
            sides[side].append(value)
    return tuple(sides["pro"]), tuple(sides["con"])


def _questions(lines: Iterable[Line]) -> tuple[Question, ...]:
    found = []
    for one in _said(lines):
        options, recommendation = [], ""
        for line in one.below:
            text = unmarked(line) or line.strip()
            if _OPTION.fullmatch(text):
                options.append(_option(text).strip())
            elif _labelled(text)[0] == "recommendation":
                recommendation = _labelled(text)[1]
        kept = tuple(option for option in options if option and not NOTHING.fullmatch(option))
        found.append(Question(_unescape(one.text), kept, recommendation))
    return tuple(found)


def _risks(lines: Iterable[Line]) -> tuple[Risk, ...]:
    found = []
    for one in _said(lines):
        name, value = _labelled(one.text)
        below = [_labelled(unmarked(line) or line.strip()) for line in one.below]
        mitigation = next((said for label, said in below if label == "mitigation"), "")
        text = value if name == "risk" else _unescape(one.text)
        if text and not NOTHING.fullmatch(text):
            found.append(Risk(text, mitigation))
    return tuple(found)


def _criteria(lines: Iterable[Line]) -> tuple[Criterion, ...]:
    found = []
    for text in map(_whole, _said(lines)):
        box = _BOX.fullmatch(text)
        met, words = (box[1] != " ", box[2]) if box else (text.startswith("✅"), text.lstrip("✅❌ "))
        if words.strip() and not NOTHING.fullmatch(words.strip()):
            found.append(Criterion(words.strip(), met))
    return tuple(found)


def _issues(lines: list[Line]) -> tuple[Issue, ...]:
    """The issues with their severity; one without is taken for major, for it must not get lost."""
    found: list[dict[str, Any]] = []
    goes_on = False
    for line in lines:
        text = line.text.strip()
        start = None if line.quoted else _issue(line.text)
        if start is not None:
            found.append({"severity": start[0], "text": [start[1]]})
        elif found and text and not line.quoted:
            name, value = _labelled(unmarked(line.text) or text)
            if name in _DETAILS and value:
                found[-1].setdefault(_DETAILS[name], _item(value)[0] if name == "file" else value)
            elif goes_on and unmarked(line.text) is None:
                found[-1]["text"].append(text)
        goes_on = bool(text) and not line.quoted and (start is not None or (goes_on and unmarked(line.text) is None))
    if found:
        return tuple(Issue(**{**one, "text": " ".join(filter(None, one["text"])) or "?"}) for one in found)
    return tuple(Issue(*_plain_issue(one)) for one in _said(lines))


def _issue(line: str) -> tuple[Severity, str] | None:
    if written := _WRITTEN.fullmatch(line):
        return Severity(written[1]), written[2].strip()
    bare = line.lstrip("# ")
    marked = _MARKED.fullmatch((unmarked(bare) or bare).strip())
    return None if marked is None else (_SEVERITY[marked[1].lower()], marked[2].removesuffix("**").strip())


def _plain_issue(entry: Entry) -> tuple[Severity, str, str, str, str]:
    row = entry.cells
    severity = _SEVERITY.get(key(row.get("severity", "")), Severity.MAJOR)
    text = next((row[name] for name in ("issue", "description", "problem") if row.get(name)), _whole(entry))
    fix = row.get("recommendation", "") or row.get("fix", "")
    return severity, text, _item(row["file"])[0] if row.get("file") else "", row.get("line", ""), fix


def _write_items(items: Iterable[Item]) -> list[str]:
    return [f"- {_named(one.name)}: {one.note}" if one.note else f"- {_named(one.name)}" for one in items]


def _write_options(options: Iterable[Option]) -> list[str]:
    lines = []
    for number, one in enumerate(options):
        lines.append(f"{number + 1}. **Option {_letter(number)}:** {one.approach}")
        lines += [f"   - Pros: {pro}" for pro in one.pros] + [f"   - Cons: {con}" for con in one.cons]
    return lines


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(min(number + 1, 999))


def _write_issues(issues: Iterable[Issue]) -> list[str]:
    lines: list[str] = []
    for one in issues:
        lines += ["", f"**[{one.severity}]** {one.text}"] if lines else [f"**[{one.severity}]** {one.text}"]
        details = {"File": one.file and _named(one.file), "Line": one.line, "Recommendation": one.recommendation}
        lines += [f"- {name}: {value}" for name, value in details.items() if value]
    return lines


def _write_questions(questions: Iterable[Question]) -> list[str]:
    lines = []
    for number, one in enumerate(questions, 1):
        lines.append(f"{number}. {_listed(one.text)}")
        lines += [f"   - **Option {_letter(at)}:** {option}" for at, option in enumerate(one.options)]
        lines += [f"   - **Recommendation:** {one.recommendation}"] if one.recommendation else []
    return lines


def _write_risks(risks: Iterable[Risk]) -> list[str]:
    lines = []
    for one in risks:
        lines += [f"- **Risk:** {one.text}", *([f"  - **Mitigation:** {one.mitigation}"] if one.mitigation else [])]
    return lines


_OUTCOMES = {Outcome.PASSED: "✅ PASSED", Outcome.FAILED: "❌ FAILED", Outcome.NOT_RUN: "NOT RUN"}
_LEVELS = {Level.ADEQUATE: "✅ ", Level.PARTIAL: "⚠️ ", Level.INSUFFICIENT: "❌ ", Level.UNKNOWN: ""}

WRITE: dict[str, Callable[[Any], list[str]]] = {
    "items": _write_items,
    "lines": lambda lines: [f"- {_listed(one)}" for one in lines],
    "steps": lambda steps: [f"{number}. {_listed(one)}" for number, one in enumerate(steps, 1)],
    "checks": lambda checks: [f"- {_named(one.name)}: {_OUTCOMES[one.outcome]}" for one in checks],
    "coverage": lambda all_of: [f"- {_named(one.name)}: {_LEVELS[one.level]}{one.level}" for one in all_of],
    "options": _write_options,
    "issues": _write_issues,
    "questions": _write_questions,
    "risks": _write_risks,
    "criteria": lambda criteria: [f"- [{'x' if one.met else ' '}] {one.text}" for one in criteria],
}
READ: dict[str, Callable[[list[Line]], Any]] = {
    "items": _items,
    "lines": _sayings,
    "steps": _sayings,
    "checks": _checks,
    "coverage": _coverage,
    "options": _options,
    "issues": _issues,
    "questions": _questions,
    "risks": _risks,
    "criteria": _criteria,
}
