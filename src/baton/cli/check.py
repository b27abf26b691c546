"""What `doctor` looked at, and what it found."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """One thing that was looked at; `optional` ones do not make the end result bad."""

    name: str
    ok: bool
    found: str
    cure: str = ""
    optional: bool = False
