"""What comes in: the conversation of a request, checked, and what stands in it beside text, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from baton.errors import Malformed
from baton.protocol.codec import convert

T = TypeVar("T", bound=msgspec.Struct)

Content = str | list[str | dict[str, Any]] | None
TEXTS = {"text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text"}


def taken(request: dict[str, Any], kind: type[T], what: str) -> T:
    """The fields of a request that hold its conversation; Malformed where they are no JSON of that form."""
    part = {field: request[field] for field in kind.__struct_fields__ if field in request}
    try:
        msgspec.json.encode(part)
    except UnicodeEncodeError:
        raise Malformed(f"{what}: half a character (a lone surrogate); send valid Unicode") from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Malformed(f"{what}: {error}; convert it to text, numbers, lists or objects") from None
    return convert(part, kind, what)


def texts(content: Content) -> list[str]:
    """The texts of a message, and one in brackets for each part that is none. Empty ones are left out."""
    if content is None or isinstance(content, str):
        return [content] if content else []
    found = (part if isinstance(part, str) else described(part) for part in content)
    return [one for one in found if one]


def text(content: Content) -> str:
    """All of it as one text, a line for each part."""
    return "\n".join(texts(content))


def described(part: Mapping[str, Any]) -> str:
    """A part in words: its text; else its kind, and what says which one it is (never a provider's own id)."""
    kind = part.get("type")
    if kind in TEXTS:
        return _first(part, ("text", "refusal"))
    inner = next((part[key] for key in ("source", "image_url", "input_audio", "file") if part.get(key)), part)
    if isinstance(inner, str):
        inner = {"url": inner}
    if not isinstance(inner, Mapping):
        inner = {}
    link = _first(inner, ("url", "file_url"))
    if link.startswith("data:"):
        media, _, data = link.removeprefix("data:").partition(",")
        return _bracketed(kind, media.partition(";")[0], len(data))
    data = _first(inner, ("data", "file_data"))
    named = _first({**inner, **part}, ("title", "filename", "name", "media_type", "format"))
    return _bracketed(kind, link or named, 0 if link else len(data))


def _bracketed(kind: Any, which: str, base64: int) -> str:
    what = kind.removeprefix("input_").removesuffix("_url") if isinstance(kind, str) and kind else "part"
    size = f"{base64 * 3 // 4} bytes" if base64 else ""
    return f"[{': '.join(filter(None, (what, ', '.join(filter(None, (which, size))))))}]"


def _first(part: Mapping[str, Any], keys: Iterable[str]) -> str:
    return next((part[key] for key in keys if isinstance(part.get(key), str)), "")
