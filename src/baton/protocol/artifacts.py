"""Files, code and documents that travel by reference; their paths stay inside the allowed roots."""

from __future__ import annotations

import posixpath
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from baton.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable

ArtifactType = Literal["file", "code", "document", "test_result", "review_comment"]


class Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A reference to something that the work produced."""

    id: str
    path: str
    type: ArtifactType = "file"
    created_by: str = ""
    created_at: datetime | None = None
    description: str = ""
    status: Literal["draft", "final", "superseded"] = "draft"
    digest: str = ""


def inside(path: str, roots: Iterable[str]) -> str:
    """The normalised path, or Malformed when it leaves every root or is not a plain path."""
    if not path or "\0" in path or path.startswith("~") or "\\" in path or "%" in path:
        raise Malformed(f"artifact path {path!r}: empty or with unusual characters; use a plain relative path")
    if "://" in path or path.startswith("file:"):
        raise Malformed(f"artifact path {path!r}: a URI; use a path below one of the artifact roots")
    clean = posixpath.normpath(path)
    allowed = [posixpath.normpath(root) for root in roots]
    if posixpath.isabs(clean):
        if any(clean == root or clean.startswith(root.rstrip("/") + "/") for root in allowed):
            return clean
        raise Malformed(f"artifact path {path!r}: outside {', '.join(allowed) or 'every root'}; put it below one")
    if clean == ".." or clean.startswith("../"):
        raise Malformed(f"artifact path {path!r}: leaves its root; use a path without '..'")
    return clean
