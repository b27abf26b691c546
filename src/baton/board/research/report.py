"""The report: what a provider wrote becomes a Markdown file that is only text.

A report is hostile: pages of the web had their say in it. Nothing in it may become work, so no lifecycle tag is left in
it, not even for a search that knows nothing of Markdown; nothing in it may steer a terminal.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from baton.board.template import plain
from baton.errors import Conflict

SUMMARY = 200  # characters
_SOURCES = 200

# Whatever a search for tags could take for one; `#` as an entity looks the same on a rendered page.
_TAG = re.compile(r"[#\uff03](?=(?:needs|delegated|next|claimed|done)-|active-alert)", re.IGNORECASE)
_URL = re.compile(r"https?://[!-;=?-~]+")
# Control and direction characters, lines that are none of ours, halves of characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def harmless(text: str) -> str:
    """The text without lifecycle tags and without characters that steer a terminal."""
    return _TAG.sub("&#35;", _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def joined(parts: list[str], notes: list[dict[str, Any]]) -> str:
    """The parts of a report as one, with the sources from its notes below; empty where there is no text."""
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    sources: dict[str, str] = {}
    for note in notes:
        url, title = note.get("url"), note.get("title")
        if isinstance(url, str) and _URL.fullmatch(url) and url not in text:
            sources.setdefault(url, " ".join(str(title or "").split()))
    if not text or not sources:
        return text
    lines = [
        f"- {title[:SUMMARY]} <{url}>" if title else f"- <{url}>" for url, title in list(sources.items())[:_SOURCES]
    ]
    return f"{text}\n\n## Sources\n\n" + "\n".join(lines)


def summary(report: str) -> str:
    """The first line of a report that says something, for one line elsewhere."""
    for line in harmless(report).splitlines():
        words = " ".join(line.strip("#*_->| \t").split())
        if words and not set(words) <= set("`~-=*_ "):
            return words if len(words) <= SUMMARY else words[: SUMMARY - 1] + "…"
    return ""


def text_of(report: str, about: dict[str, str], title: str) -> str:
    """The response file: what it is about, then the report to the end of the file."""
    lines = [f"*   **{name}**: {plain(value)}" for name, value in about.items()]
    head = [f"# Research Response: {title}", "", "## 1. Metadata", *lines, "", "## 2. Outcome"]
    said = plain(summary(report)) or "see the findings"
    head += ["*   **Status**: Complete", f"*   **Summary**: {said}", "", "## 3. Findings", ""]
    return "\n".join(head) + "\n" + harmless(report).strip() + "\n"


def free(path: Path, job: str) -> None:
    """Refuse to write over a file that is not of this job."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return
    if not job or job.encode() not in written:
        raise Conflict(f"{path}: is there already and is not the report of this job; move it away and run again")


def write(path: Path, text: str) -> None:
    """Write the file at once and durably: who reads it sees all of it or nothing of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    number = os.open(temporary, flags, 0o666)
    try:
        with open(number, "wb", closefd=False) as file:
            file.write(text.encode(errors="replace"))
        os.fsync(number)
    finally:
        os.close(number)
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
