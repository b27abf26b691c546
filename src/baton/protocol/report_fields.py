"""The fields under the title of a report, such as its status: found where the report itself states them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from baton.errors import Malformed
from baton.protocol.codec import near
from baton.protocol.report_lines import Line, cells, is_rule, is_separator, key, unmarked
from baton.protocol.report_status import MEANING, Kind, Next, Status
from baton.protocol.reports import Fault

_NAMES = {
    "status": "status", "overall status": "status", "review status": "status", "research status": "status",
    "implementation status": "status", "confidence": "confidence", "confidence score": "confidence",
    "confidence level": "confidence", "overall confidence": "confidence", "error type": "error type",
    "created": "created", "protocol version": "protocol version", "protocol": "protocol version",
}  # fmt: skip
_ELEMENT = re.compile(r"<confidence>([^<]*)</confidence>", re.IGNORECASE)
_AROUND = re.compile(r"^[\W_]+|[\W_]+$")
_EXPLAINED = re.compile(r"[ \t]*(?:[(;,.:]|[ \t][-–—][ \t])")
_DOUBT = frozenset({
    "not", "isn", "t", "doesn", "wasn", "never", "if", "unless", "until", "once", "after", "pending", "except", "but",
    "however", "without", "maybe",
})  # fmt: skip
_SPELLED = {"COMPLETED": "COMPLETE", "SUCCESSFUL": "SUCCESS", "NEEDS_REVISIONS": "NEEDS_REVISION"}
_LONG = 200
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def fields(lines: Iterable[Line]) -> dict[str, list[str]]:
    """What is stated: only by lines that begin a paragraph, or follow one that states something."""
    found: dict[str, list[str]] = {}
    head: list[str] = []
    leads = True
    rows = list(lines)
    for number, line in enumerate(rows):
        if line.quoted or not line.text.strip() or is_rule(line.text):
            leads, head = True, []
            continue
        below = rows[number + 1].text if number + 1 < len(rows) else ""
        row = cells(line.text)
        if leads and row:
            head = _row(row, head, below, found)
            continue
        stated = _stated(line.text) if leads else None
        if stated is None:
            leads = False
        else:
            found.setdefault(stated[0], []).append(stated[1])
    return found


def _row(row: list[str], head: list[str], below: str, found: dict[str, list[str]]) -> list[str]:
    """Read a row of a table, that names its fields above or in its first column; its head from here on."""
    names = [_NAMES.get(key(cell), "") for cell in row]
    if is_separator(below) and len(row) > 1 and all(names):
        return names
    if head:
        for name, cell in zip(head, row, strict=False):
            if not set(cell) <= set("-: "):
                found.setdefault(name, []).append(cell)
    elif len(row) == 2 and names[0]:
        found.setdefault(names[0], []).append(row[1])
    return head


def _stated(line: str) -> tuple[str, str] | None:
    if line[:1] in {" ", "\t"}:
        return None
    text = line.strip() if (marked := unmarked(line)) is None else marked
    element = _ELEMENT.fullmatch(text)
    if element is not None:
        return "confidence", element[1]
    name, colon, value = text.replace("：", ":", 1).partition(":")
    if not colon:
        name, colon, value = text.partition("—")
    name = name.strip()
    if not colon or len(name) > 40 or any(sign in name for sign in "`\"'<>[](){}|\\~") or key(name) not in _NAMES:
        return None
    value = value.strip()
    if name.startswith("**") and not name.endswith("**"):  # the bold ends behind the colon, or behind the value
        value = value[2:] if value.startswith("**") else value.removesuffix("**")
    return _NAMES[key(name)], value.strip()


def declared(kind: Kind, field: str, given: list[str], *, strict: bool) -> Any:
    """The one value of a field; None where nothing was said."""
    label = "error type" if field == "fault" else "status" if field == "ready" else field
    words = [word for word in given if word]
    if not words:
        if strict and field not in {"created", "ready"}:
            raise Malformed(f"{kind}.{label}: missing; write **{label.title()}:** under the title")
        return None
    values = [_value(kind, field, word) for word in words]
    if any(value != values[0] for value in values):
        said = " and ".join(dict.fromkeys(f"{word!r:.30}" for word in words))
        raise Malformed(f"{kind}.{label}: stands there as {said:.100}; state it once")
    return values[0]


def _value(kind: Kind, field: str, word: str) -> Any:
    if field in {"status", "fault"} and len(word) > _LONG:
        raise Malformed(f"{kind}.{field}: {word!r:.60} is a text; write one word")
    if field == "status":
        return status(word, kind)
    if field == "confidence":
        return _confidence(word, kind)
    if field == "fault":
        return _fault(word)
    return word


def status(word: str, kind: Kind) -> Status:
    """The status that a value states; anything that leaves a doubt is refused."""
    known = MEANING[kind]
    bare = _AROUND.sub("", word)
    cut = _EXPLAINED.search(bare)
    head, rest = (bare[: cut.start()], bare[cut.start() :]) if cut else (bare, "")
    spelled = re.sub(r"[\s_-]+", "_", _AROUND.sub("", head).upper())
    spelled = _SPELLED.get(spelled, spelled)
    cure = f"write one of {', '.join(known)}"
    if word.lstrip()[:1] in {"~", "!", "?"} or spelled not in set(known):
        raise Malformed(f"{kind}.status: {word!r:.60} is none; {cure}")
    found = Status(spelled)
    tokens = re.findall(r"[^\W_]+", rest.lower())
    spoken = f"_{'_'.join(tokens).upper()}_"
    others = [one for one in known if one != found and f"_{one}_" in spoken]
    mixed = others or word.rstrip().endswith("?") or (known[found].next is Next.GO_ON and _DOUBT.intersection(tokens))
    if mixed:
        raise Malformed(f"{kind}.status: {word!r:.60} says more than one thing; {cure}, and nothing beside it")
    return found


def _confidence(word: str, kind: Kind) -> int | None:
    numbers = [float(one) for one in _NUMBER.findall(word[:40])]
    if not numbers:
        return None
    least = min(numbers[:2]) if re.search(r"\d\s*%?\s*[-–—]\s*\d", word[:40]) else numbers[0]
    if "." in word and least <= 1 and "%" not in word:
        least *= 100
    if word.lstrip("*_~ ").startswith(("-", "−")) or least > 100:
        raise Malformed(f"{kind}.confidence: {word!r:.30} is out of range; write a number from 0 to 100 and %")
    return int(least)


def _fault(word: str) -> Fault:
    spelled = re.sub(r"[\s_-]+", "_", _AROUND.sub("", word).upper())
    if spelled not in set(Fault):
        raise Malformed(f"error.error type: {word!r:.60} is none; {near(spelled, Fault)}")
    return Fault(spelled)
