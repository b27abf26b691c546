"""The report of an explorer, which is written in elements.

Inside an element only its own end counts: an element that is quoted in an answer is text.
"""

from __future__ import annotations

import re
from typing import Any

from baton.errors import Malformed
from baton.protocol.report_fields import declared
from baton.protocol.report_lines import Line, Quotes
from baton.protocol.report_parts import READ, WRITE
from baton.protocol.report_status import PROTOCOL
from baton.protocol.reports import Exploration

_LEAVES = ("analysis", "files", "answer", "next_steps", "confidence", "protocol_version")
_OPEN = re.compile(rf"<({'|'.join(_LEAVES)})>", re.IGNORECASE)
_CLOSE = {name: re.compile(f"</{name}>", re.IGNORECASE) for name in _LEAVES}
_ELEMENT = re.compile(rf"<(?=/?(?:{'|'.join(_LEAVES)}|results)>)|&(?=(?:lt|amp);)", re.IGNORECASE)
_ENTITY = re.compile(r"&(lt|amp);")


def _escaped(text: str) -> str:
    return _ELEMENT.sub(lambda found: "&lt;" if found[0] == "<" else "&amp;", text)


def _unescaped(text: str) -> str:
    return _ENTITY.sub(lambda found: "<" if found[1] == "lt" else "&", text)


def render(report: Exploration) -> str:
    """The report as text."""
    inside = {
        "files": "\n".join(WRITE["items"](report.files)),
        "answer": report.answer,
        "next_steps": "\n".join(WRITE["steps"](report.next_steps)),
    }
    lines = [f"<analysis>\n{_escaped(report.analysis)}\n</analysis>\n", "<results>"]
    lines += [f"<{name}>\n{_escaped(text)}\n</{name}>\n" for name, text in inside.items()]
    if report.confidence is not None:
        lines.append(f"<confidence>{report.confidence}</confidence>")
    return "\n".join([*lines, f"<protocol_version>{report.protocol}</protocol_version>", "</results>"]) + "\n"


def parse(text: str, *, strict: bool) -> Exploration:
    """Read the elements; one that stands there twice is refused, what is between them is left out."""
    said = _elements(text, strict=strict)
    for name in _LEAVES[:-1] if strict else ():
        if name not in said:
            raise Malformed(f"exploration: the section {name} is missing; add <{name}>…</{name}>")
    if not said:
        raise Malformed("exploration: none of its elements is there; write <results> with <files>, <answer>, …")
    values: dict[str, Any] = {
        "analysis": _unescaped(said.get("analysis", "")).strip(),
        "answer": _unescaped(said.get("answer", "")).strip(),
        "files": READ["items"](_lines(said.get("files", ""))),
        "next_steps": READ["steps"](_lines(said.get("next_steps", ""))),
        "confidence": declared("exploration", "confidence", [said.get("confidence", "").strip()], strict=strict),
        "protocol": said.get("protocol_version", "").strip() or PROTOCOL,
    }
    if values["protocol"].partition(".")[0] != PROTOCOL.partition(".")[0]:
        raise Malformed(f"exploration.protocol_version: {values['protocol']!r:.20} is not known; write {PROTOCOL}")
    return Exploration(**values)


def _lines(text: str) -> list[Line]:
    return [Line(line) for line in _unescaped(text).split("\n")]


def _elements(text: str, *, strict: bool) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    quotes, leaf = Quotes(), ""
    for line in text.split("\n"):
        at = 0
        if not leaf and quotes.holds(line):
            continue
        while at <= len(line):
            if not leaf:
                opened = _OPEN.search(line, at)
                if opened is None:
                    break
                leaf, at = opened[1].lower(), opened.end()
                if leaf in found:
                    raise Malformed(f"exploration.{leaf}: stands twice; keep one")
                found[leaf] = []
            end = _CLOSE[leaf].search(line, at)
            found[leaf].append(line[at : end.start() if end else len(line)])
            if end is None:
                break
            at, leaf = end.end(), ""
    if leaf and strict:
        raise Malformed(f"exploration.{leaf}: does not end; add </{leaf}>")
    return {name: "\n".join(lines) for name, lines in found.items()}
