"""Bytes in, bytes out: the canonical form, digests, and the strict reader of foreign documents.

Canonical form: JSON, UTF-8, object keys sorted by code point, no white space, no NaN or infinity, integers
within ±(2⁵³-1). Two values are the same content exactly when these bytes are the same.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from baton.errors import Malformed, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

MAX_DOCUMENT = 8 * 1024 * 1024
MAX_TEXT = 1024 * 1024
MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_encoder = msgspec.json.Encoder(order="deterministic")
canonical_record = _encoder.encode


def check(value: Any, field: str = "value", depth: int = 0) -> None:
    """Refuse what JSON cannot carry faithfully: NaN, huge integers, odd keys or types, deep nesting."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return
    if kind is int:
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise Malformed(f"{field}: {value!s:.24} is beyond ±(2^53-1); send it as a string")
    elif kind is float:
        if not isfinite(value):
            raise Malformed(f"{field}: {value} is not JSON; leave the field out or send null")
    elif depth >= MAX_DEPTH:
        raise Malformed(f"{field}: nested deeper than {MAX_DEPTH} levels; flatten it or send it as an artifact")
    elif isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                raise Malformed(f"{field}: key {key!r} is not a string; use string keys")
            check(item, f"{field}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check(item, f"{field}[{index}]", depth + 1)
    elif not isinstance(value, msgspec.Struct):
        raise Malformed(f"{field}: {kind.__name__} is not JSON; convert it to text, numbers, lists or objects")


def canonical(value: Any, field: str = "value") -> bytes:
    """Write a JSON value in its canonical form, or say which part of it is not JSON."""
    check(value, field)
    try:
        data = _encoder.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError) as error:
        raise Malformed(f"{field}: {error}; send valid Unicode JSON values") from None
    if len(data) > MAX_DOCUMENT:
        raise TooLarge(f"{field}: {len(data)} bytes, at most {MAX_DOCUMENT}; pass a file as an artifact instead")
    return data


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def text(value: str, field: str) -> str:
    """Check a text field's type and size."""
    if type(value) is not str:
        raise Malformed(f"{field}: expected text, got {type(value).__name__}")
    if len(value) > MAX_TEXT:
        raise TooLarge(f"{field}: {len(value)} characters, at most {MAX_TEXT}; pass a file as an artifact instead")
    return value


def to_time(microseconds: int) -> datetime:
    """Microseconds since 1970 as a UTC datetime."""
    return EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """A datetime as microseconds since 1970; one without a zone is refused."""
    if moment.tzinfo is None:
        raise Malformed(f"{moment.isoformat()}: no time zone; write UTC, for example 2026-01-31T12:00:00Z")
    return (moment - EPOCH) // timedelta(microseconds=1)


def iso(microseconds: int) -> str:
    """Microseconds since 1970 as ISO-8601 in UTC."""
    return to_time(microseconds).isoformat().replace("+00:00", "Z")


def read_json(data: bytes | str, what: str = "document") -> Any:
    """Parse JSON from outside: duplicate keys, NaN, huge integers and deep nesting are refused."""
    if len(data) > MAX_DOCUMENT:
        raise TooLarge(f"{what}: {len(data)} bytes, at most {MAX_DOCUMENT}")
    try:
        value = json.loads(data, object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer)
    except RecursionError:
        raise Malformed(f"{what}: nested deeper than {MAX_DEPTH} levels; flatten it") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Malformed(f"{what}: not JSON: {error}") from None
    check(value, what)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Malformed(f"{twice}: this key stands twice; keep one")
    return value


def _constant(name: str) -> NoReturn:
    raise Malformed(f"{name} is not JSON; leave the field out or send null")


def _integer(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > MAX_INTEGER:  # noqa: PLR2004 - 2^53 has 16 digits
        raise Malformed(f"{digits:.24} is beyond ±(2^53-1); send it as a string")
    return int(digits)


def convert(value: Any, kind: type[T], what: str) -> T:
    """Turn parsed JSON into a record; the error names the field and the cure."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise Malformed(_explain(str(error), value, kind, what)) from None


def read(data: bytes | str, kind: type[T], what: str) -> T:
    """Parse a foreign JSON document straight into a record."""
    return convert(read_json(data, what), kind, what)


def _explain(message: str, value: Any, kind: Any, what: str) -> str:
    fields = [field.encode_name for field in msgspec.structs.fields(kind)] if isinstance(value, dict) else []
    if "unknown field" in message:
        name = message.split("`")[1]
        return f"{what}: {name} is not a field; {near(name, fields)}"
    path = message.rpartition(" - at `")[2].rstrip("`").removeprefix("$.") if " - at `" in message else ""
    problem = message.partition(" - at `")[0]
    if "missing required field" in problem:
        name = problem.split("`")[1]
        return f"{what}: {(path + '.' + name).lstrip('.')} is missing; add it"
    return f"{what}: {path or what}: {problem}"


def near(name: str, known: Iterable[str]) -> str:
    """The end of an error message: what the writer probably meant, or what there is."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names) or 'none'}"
