"""Bytes in, bytes out: the canonical form, digests, and the strict reader of foreign documents.

Canonical form: JSON, UTF-8, object keys sorted by code point, no white space, no NaN or infinity, integers
within ±(2⁵³-1), text as it is (not normalised). Two values are the same content exactly when these bytes are
the same; 1 and 1.0 are not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from math import isfinite
from typing import Annotated, Any, TypeVar

import msgspec

from baton.errors import Malformed, TooLarge

T = TypeVar("T")
Time = Annotated[datetime, msgspec.Meta(tz=True)]

MAX_DOCUMENT = 8 * 1024 * 1024
MAX_TEXT = 1024 * 1024
MAX_NAME = 200
MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1
MAX_SECONDS = 10 * 365 * 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_TIME, MAX_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999  # the calendar's ends, in UTC
_MICROSECOND = timedelta(microseconds=1)
DEEP = f"nested deeper than {MAX_DEPTH} levels; flatten it or send it as an artifact"
ZONE = "no time zone; write UTC, for example 2026-01-31T12:00:00Z"

_encoder = msgspec.json.Encoder(order="sorted")
canonical_record = _encoder.encode


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What is exchanged: written without what has its default, and read strictly."""

    # Values hold one another in one direction only, so that a store may keep many of them unseen by the collector.


class _Fault(Exception):
    """What is wrong, and the path to it, which grows while the error travels up."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path = ""


class _Refused:
    """Stands in parsed JSON where something was refused, so that its path can be told."""

    def __init__(self, why: str) -> None:
        self.why = why


def check(value: Any, field: str = "value") -> None:
    """Refuse what JSON cannot carry faithfully: NaN, huge integers, odd keys or types, deep nesting."""
    try:
        _check(value, 0)
    except _Fault as fault:
        raise Malformed(f"{field}{fault.path}: {fault.why}") from None
    except RecursionError:
        raise Malformed(f"{field}: {DEEP}") from None


def _check(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if not value.isascii():
            _check_text(value)
    elif kind is int or kind is float:
        _check_number(value)
    elif value is None or kind is bool:
        return
    elif isinstance(value, (dict, list, tuple)):
        if depth >= MAX_DEPTH:
            raise _Fault(DEEP)
        if isinstance(value, dict):
            _check_object(value, depth + 1)
        else:
            _check_list(value, depth + 1)
    elif kind is _Refused:
        raise _Fault(value.why)
    elif not isinstance(value, msgspec.Struct):
        raise _Fault(f"{kind.__name__} is not JSON; convert it to text, numbers, lists or objects")


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _Fault(f"half a character (a lone surrogate) at {error.start}; send valid Unicode") from None


def _check_number(value: float) -> None:
    if type(value) is int:
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise _Fault("a whole number beyond ±(2^53-1); send it as text")
    elif not isfinite(value):
        raise _Fault(f"{value} is not JSON; leave the field out or send null")


def _check_object(value: Mapping[Any, Any], depth: int) -> None:
    key: Any = ""
    try:
        for key, item in value.items():
            _check_key(key)
            _check(item, depth)
    except _Fault as fault:
        fault.path = f".{short(key)}{fault.path}"
        raise


def _check_key(key: Any) -> None:
    if type(key) is not str:
        raise _Fault("this key is not text; use text keys")
    if not key.isascii():
        _check_text(key)


def _check_list(value: Iterable[Any], depth: int) -> None:
    index = 0
    try:
        for index, item in enumerate(value):  # noqa: B007 - the handler reads it
            _check(item, depth)
    except _Fault as fault:
        fault.path = f"[{index}]{fault.path}"
        raise


def short(word: Any) -> str:
    """A name from outside as an error message may print it."""
    return word if type(word) is str and word.isidentifier() and len(word) <= 60 else f"{word!r:.60}"


def canonical(value: Any, field: str = "value") -> bytes:
    """Write a JSON value in its canonical form, or say which part of it is not JSON."""
    check(value, field)
    try:
        data = _encoder.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
        raise Malformed(f"{field}: {error}; send valid Unicode JSON values") from None
    if len(data) > MAX_DOCUMENT:
        raise TooLarge(f"{field}: {len(data)} bytes, at most {MAX_DOCUMENT}; pass a file as an artifact instead")
    return data


def faithful(record: T, decode: Callable[[bytes], T], what: str) -> tuple[bytes, T]:
    """The canonical bytes of a record and what they are read back as; Malformed where nobody could read them."""
    try:
        data = canonical_record(record)
        again = decode(data)
    except msgspec.ValidationError as error:
        raise Malformed(_explain(str(error), type(record), what)) from None
    except UnicodeEncodeError:
        raise Malformed(f"{what}: half a character (a lone surrogate); send valid Unicode") from None
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Malformed(f"{what}: {error}; convert it to text, numbers, lists or objects") from None
    if len(data) > MAX_DOCUMENT:
        raise TooLarge(f"{what}: {len(data)} bytes, at most {MAX_DOCUMENT}; pass a file as an artifact instead")
    return data, again


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def text(value: str, field: str) -> str:
    """Check a text field's type and size."""
    if type(value) is not str:
        raise Malformed(f"{field}: expected text, got {type(value).__name__}")
    if len(value) > MAX_TEXT:
        raise TooLarge(f"{field}: {len(value)} characters, at most {MAX_TEXT}; pass a file as an artifact instead")
    if not value.isascii():
        check(value, field)
    return value


def name(value: str, field: str) -> str:
    """Check the name of an agent or an id: it is shown, logged and searched for."""
    if type(value) is not str or not 0 < len(value) <= MAX_NAME or not value.isprintable() or value != value.strip():
        raise Malformed(f"{field}: {value!r:.60}; use 1 to {MAX_NAME} printable characters, no space at the ends")
    return value


def names(given: Iterable[str], field: str) -> tuple[str, ...]:
    """Check a list of names; one text is not a list, for it would be taken letter by letter."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise Malformed(f'{field}: expected a list of names, got {given!r:.60}; write {field}=["…"]')
    found = tuple(given)
    for one in found:
        name(one, field)
    return found


def bounded(value: float | None, field: str, least: float = 0, most: float = MAX_INTEGER) -> None:
    """Check a number's range; None is no number."""
    if value is None:
        return
    if type(value) not in {int, float}:
        raise Malformed(f"{field}: expected a number, got {type(value).__name__}")
    if not least <= value <= most:
        said = "a huge number" if type(value) is int and value.bit_length() > 64 else value
        raise Malformed(f"{field}: {said} is out of range; use {least} to {most}")


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NUMBER = r"(\d+(?:\.\d+)?)"
_SHORT = re.compile(rf"(?:{_NUMBER}\s*(ms|s|m|h|d)\s*)+", re.ASCII)
_PART = re.compile(rf"{_NUMBER}\s*(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(rf"P(?=\d|T\d)(?:{_NUMBER}D)?(?:T(?=\d)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?", re.ASCII)


def seconds(value: float | str | timedelta, field: str = "timeout") -> float:
    """Read a duration: a number of seconds, "90s", "1h30m" or ISO-8601 "PT90S"."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, str):
        value = _duration(value.strip(), field)
    if value is None:
        raise Malformed(f"{field}: missing; write seconds")
    bounded(value, field, 0, MAX_SECONDS)
    return float(value)


def _duration(word: str, field: str) -> float:
    if len(word) <= 60:
        if _SHORT.fullmatch(word):
            return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(word))
        if iso_form := _ISO.fullmatch(word):
            parts = zip(iso_form.groups(default="0"), (86_400, 3600, 60, 1), strict=True)
            return sum(float(number) * unit for number, unit in parts)
    raise Malformed(f'{field}: {word!r:.60} is not a duration; write seconds, "30s", "5m", "2h" or "PT30S"')


def to_time(microseconds: int) -> datetime:
    """Microseconds since 1970 as a UTC datetime."""
    return EPOCH + microseconds * _MICROSECOND


def to_microseconds(moment: datetime) -> int:
    """A datetime as microseconds since 1970; one without a zone is refused."""
    if moment.tzinfo is None:
        raise Malformed(f"{moment.isoformat()}: {ZONE}")
    return (moment - EPOCH) // _MICROSECOND


def iso(microseconds: int) -> str:
    """Microseconds since 1970 as ISO-8601 in UTC."""
    return to_time(microseconds).isoformat().replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """A record as dicts, lists and text, its times in UTC; fields that have their default are absent."""
    return _utc(msgspec.to_builtins(value, builtin_types=(datetime,)))


def _utc(value: Any) -> Any:
    if isinstance(value, datetime):
        at = to_microseconds(value)
        return iso(at) if MIN_TIME <= at <= MAX_TIME else value.isoformat()
    if isinstance(value, dict):
        return {key: _utc(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_utc(item) for item in value]
    return value


def read_json(data: bytes | str, what: str = "document") -> Any:
    """Parse JSON from outside: duplicate keys, NaN, huge integers and deep nesting are refused."""
    if len(data) > MAX_DOCUMENT:
        raise TooLarge(f"{what}: {len(data)} bytes, at most {MAX_DOCUMENT}; pass large content as an artifact")
    try:
        document = data if isinstance(data, str) else str(data, "utf-8")
        value = json.loads(document, object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer)
    except RecursionError:
        raise Malformed(f"{what}: {DEEP}") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"{what}: byte {error.start} is not UTF-8; save the document as UTF-8") from None
    except json.JSONDecodeError as error:
        raise Malformed(f"{what}: not JSON: {error}; send one JSON document") from None
    check(value, what)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Any:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
    return _Refused(f"key {short(twice)} stands twice; keep one")


def _constant(word: str) -> _Refused:
    return _Refused(f"{word} is not JSON; leave the field out or send null")


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= 17 else MAX_INTEGER + 1  # check() refuses the latter with its path


def read_object(data: bytes | str, what: str) -> dict[str, Any]:
    """Parse a foreign document that is one object, bare or as the only thing under its own name."""
    document = read_json(data, what)
    if isinstance(document, dict) and isinstance(document.get(what), dict):
        for other in document.keys() - {what}:
            raise Malformed(f"{what}: {short(other)} stands beside it; move it inside or leave it out")
        document = document[what]
    if not isinstance(document, dict):
        raise Malformed(f"{what}: expected an object")
    return document


def rename(document: dict[str, Any], names: Mapping[str, str], what: str) -> dict[str, Any]:
    """Give keys their other spelling; a field given in both is refused."""
    renamed = {names.get(key, key): value for key, value in document.items()}
    if len(renamed) != len(document):
        twice = next(old for old, new in names.items() if old in document and new != old and new in document)
        raise Malformed(f"{what}: {twice} and {names[twice]} are the same field; keep one")
    return renamed


def convert(value: Any, kind: type[T], what: str) -> T:
    """Turn parsed JSON into a record; the error names the field and the cure."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise Malformed(_explain(str(error), kind, what)) from None
    except UnicodeEncodeError:
        raise Malformed(f"{what}: half a character (a lone surrogate); send valid Unicode") from None


def read(data: bytes | str, kind: type[T], what: str) -> T:
    """Parse a foreign JSON document straight into a record."""
    return convert(read_json(data, what), kind, what)


_WORDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "an object", "null": "null", "datetime": "a time",
}  # fmt: skip


def _explain(message: str, kind: Any, what: str) -> str:
    problem, _, path = message.rpartition(" - at `$") if " - at `$" in message else (message, "", "")
    place = what + path.rstrip("`")
    word = problem.partition("`")[2].rpartition("`")[0]
    if problem.startswith("Object contains unknown field"):
        return f"{place}: {short(word)} is not a field; {near(word, _known(kind, path))}"
    if problem.startswith("Object missing required field"):
        return f"{place}.{word} is missing; add it"
    if problem.startswith("Invalid enum value"):
        word = problem.removeprefix("Invalid enum value ").strip("'\"")
        return f"{place}: {short(word)} is not known; {near(word, _known(kind, path))}"
    if "timezone" in problem:
        return f"{place}: {ZONE}"
    if "RFC3339" in problem:
        return f"{place}: not a time; write UTC, for example 2026-01-31T12:00:00Z"
    said = re.sub(r"`([^`]*)`", lambda m: " or ".join(_WORDS.get(w, w) for w in m[1].split(" | ")), problem)
    return f"{place}: {said[:1].lower()}{said[1:200]}"


def _known(kind: Any, path: str) -> list[str]:
    """The fields of the record, or the words of the choice, that stands at a path of a type."""
    from msgspec import inspect

    node: Any = inspect.type_info(kind)
    for part in [*re.findall(r"\w+|\[\.{3}", path), ""]:
        if isinstance(node, inspect.UnionType):
            node = next(item for item in node.types if not isinstance(item, inspect.NoneType))
        if isinstance(node, inspect.StructType) and part:
            fields = {field.encode_name: field.type for field in node.fields}
            node = node.fields[int(part)].type if part.isdigit() else fields[part]
        elif part:
            node = getattr(node, "item_type", None) or getattr(node, "value_type", None)
    if isinstance(node, inspect.StructType):
        return [field.encode_name for field in node.fields]
    if isinstance(node, inspect.EnumType):
        return [item.value for item in node.cls]
    return [str(item) for item in getattr(node, "values", ())]


def near(word: str, known: Iterable[str]) -> str:
    """The end of an error message: what the writer probably meant, or what there is."""
    names = sorted(known)
    close = get_close_matches(word[:MAX_NAME], names, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names) or 'none'}"
