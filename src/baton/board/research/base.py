"""The port: what a provider of research can do, and what it says of a job.

Every answer is a `Job`, also one that did not come, so that nobody mistakes silence for a state:

| state | what is known | after `start` | after `look` |
|---|---|---|---|
| running | the provider has the job | its `id` counts | wait, look again |
| done | it ended with a report | – | the report is there |
| failed, cancelled | it ended without one | – | it ended as such |
| unknown | the provider does not know the id, or says what we cannot read | – | a person |
| refused | the provider surely did not do what it was asked | no job was made | look again, if `again` says so |
| unanswered | nobody knows: the answer was cut off, or no answer | a person, never a second job | look again |
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from baton.errors import safe
from baton.protocol.secrets import redact

State = Literal["running", "done", "failed", "cancelled", "unknown", "refused", "unanswered"]
ENDS = frozenset({"done", "failed", "cancelled"})

_ID = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.=~")
MAX_ID = 256
SAID = 300  # characters of somebody else's words in one line of ours


class Usage(msgspec.Struct, frozen=True):
    """What the provider says that it took, in tokens: a claim, never a counter of ours."""

    input: int = 0
    output: int = 0
    total: int = 0


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job; `again` is after how many seconds to ask again, None where that does not help."""

    state: State
    id: str = ""
    report: str = ""
    reason: str = ""
    usage: Usage = Usage()
    steps: int = 0
    again: float | None = None


class Provider(Protocol):
    """One provider: long jobs that are started, looked at and cancelled by their id.

    `start` gets the id of our intent, for a provider that can show it to a person. Neither of the two promises that
    the same intent makes no second job, so nobody may call `start` again unless it was refused.
    """

    @property
    def name(self) -> str: ...
    def start(self, question: str, previous: str | None, intent: str) -> Job: ...
    def look(self, job: str) -> Job: ...
    def cancel(self, job: str) -> Job: ...


def is_id(text: object) -> bool:
    """Whether this can be the id of a job: it goes into a file and into a URL."""
    fits = isinstance(text, str) and 0 < len(text) <= MAX_ID and _ID.issuperset(text)
    return fits and bool(str(text).strip("."))


def said(text: object) -> str:
    """Words of a provider, for one line of a file or terminal: short, without secrets and control characters."""
    return safe(redact(" ".join(str(text)[: 10 * SAID].split())))[:SAID]


def started(body: dict[str, Any]) -> Job:
    """What the answer to a start says; without an id nobody knows which job it made."""
    found = body.get("id")
    if not is_id(found):
        return Job(state="unanswered", reason="the provider's answer holds no id that can be used")
    return Job(state="running", id=str(found))


def dicts(found: object) -> list[dict[str, Any]]:
    """The objects in a list, where there is a list and objects in it."""
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def tokens(found: object, *names: str) -> int:
    """The sum of these counts, as far as they are there and are counts."""
    values = [found.get(name) for name in names] if isinstance(found, dict) else []
    return sum(value for value in values if isinstance(value, int) and value > 0)
