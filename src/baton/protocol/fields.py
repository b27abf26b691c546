"""What single values given in Python must be: checked where a record is made, so that what is stored can be read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

from baton.errors import Malformed
from baton.protocol.codec import MAX_INTEGER, MAX_TIME, MIN_TIME, ZONE, bounded, name, to_microseconds
from baton.protocol.secrets import redact

T = TypeVar("T")


def whole(value: float | None, field: str, least: float = 0, most: float = MAX_INTEGER) -> None:
    """Check a whole number and its range; None is no number."""
    bounded(value, field, least, most)
    if type(value) is float:
        raise Malformed(f"{field}: expected a whole number, got {value}; round it")


def truth(value: Any, field: str) -> bool:
    """Check that a value is True or False; a word is neither."""
    if type(value) is not bool:
        raise Malformed(f"{field}: expected True or False, got {value!r:.60}")
    return value


def record(value: Any, kind: type[T], field: str) -> T:
    """Check that a value is a record of this kind."""
    if not isinstance(value, kind):
        raise Malformed(f"{field}: {value!r:.60} is no {kind.__name__}; write {kind.__name__}(…), or leave it out")
    return value


def several(values: Any, kind: type[T], field: str) -> tuple[T, ...]:
    """Check a list of records of this kind."""
    if isinstance(values, str | dict) or not isinstance(values, Iterable):
        raise Malformed(f"{field}: expected a list, got {values!r:.60}; write [{kind.__name__}(…)]")
    return tuple(record(one, kind, f"{field}[{number}]") for number, one in enumerate(values))


def moment(value: Any, field: str) -> datetime:
    """Check a time: it has a zone, and stands in the calendar in UTC too."""
    if not isinstance(value, datetime):
        raise Malformed(f"{field}: expected a time, got {value!r:.60}; write datetime(2026, 1, 31, 12, tzinfo=UTC)")
    if value.tzinfo is None:
        raise Malformed(f"{field}: {ZONE}")
    if not MIN_TIME <= to_microseconds(value) <= MAX_TIME:
        raise Malformed(f"{field}: {value.isoformat()} is out of range; use a year from 1 to 9999 in UTC")
    return value


def identifier(value: Any, field: str) -> str:
    """Check a name by which something is found again: what looks like a secret would be masked, and found no more."""
    if redact(name(value, field)) != value:
        raise Malformed(f"{field}: looks like a secret; it is shown, logged and searched for, so use another name")
    return str(value)
