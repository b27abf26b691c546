"""Files, code and documents that travel by reference; their paths stay inside the allowed roots."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

import msgspec

from baton.errors import Malformed
from baton.protocol.codec import Record, Time, faithful
from baton.protocol.fields import moment, several

ArtifactType = Literal["file", "code", "document", "test_result", "review_comment"]

MAX_PATH = 1024
_SPECIAL = re.compile(r"[\\%]|^[~/]{2}|^~|^[A-Za-z][A-Za-z0-9+.-]*:")
# What looks like a dot, slash or backslash, or becomes one where a file system folds Unicode.
_ALIKE = frozenset("․‥…。｡．﹒⁄∕⧸／╱⧵∖﹨＼⟋⟍ǀ∣")


class Artifact(Record, frozen=True, kw_only=True):
    """A reference to something that the work produced."""

    id: str
    path: str
    type: ArtifactType = "file"
    created_by: str = ""
    created_at: Time | None = None
    description: str = ""
    status: Literal["draft", "final", "superseded"] = "draft"
    digest: str = ""


_decode = msgspec.json.Decoder(Artifact).decode


def readable(artifacts: Iterable[Artifact], field: str) -> tuple[Artifact, ...]:
    """The artifacts as they are read back from a store."""
    given = enumerate(several(artifacts, Artifact, field))
    made = tuple(faithful(one, _decode, f"{field}[{number}]")[1] for number, one in given)
    for number, one in enumerate(made):
        if one.created_at is not None:
            moment(one.created_at, f"{field}[{number}].created_at")
    return made


def inside(path: str, roots: Iterable[str]) -> str:
    """The normalised path, or Malformed when it leaves every root or is not a plain path.

    This is about names only: whoever opens the file must not follow a symbolic link out of the root.
    """
    if type(path) is not str or not path or len(path) > MAX_PATH or not path.isprintable():
        raise _odd(path, f"use 1 to {MAX_PATH} printable characters")
    if _SPECIAL.search(path):
        raise _odd(path, "a URI, drive, home or share, or with % or backslash; use a plain relative path")
    if not path.isascii() and (_ALIKE & set(path) or _marks(unicodedata.normalize("NFKC", path)) != _marks(path)):
        raise _odd(path, "has a character that can pass for a dot or slash; use plain ones")
    for part in path.split("/"):
        if part != part.strip() or (part.strip(". ") == "" and part not in {"", "."}):
            raise _odd(path, "has '..', or a part that is only dots or begins or ends with a space; leave that out")
    clean = posixpath.normpath(path)
    if not posixpath.isabs(clean):
        return clean
    allowed = [posixpath.normpath(root) for root in roots]
    if any(clean == root or clean.startswith(root.rstrip("/") + "/") for root in allowed):
        return clean
    raise _odd(path, f"outside {', '.join(allowed) or 'every root'}; put it below one")


def _marks(path: str) -> list[int]:
    return [path.count(mark) for mark in "./\\~:% "]


def _odd(path: object, why: str) -> Malformed:
    return Malformed(f"artifact path {path!r:.80}: {why}")
