"""The only source of time, ids and randomness.

Everything else asks here, so that a simulation can replace all three at once with `use`.
"""

from __future__ import annotations

import os
import random as _random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = 1_000_000


class Source(Protocol):
    """What a clock gives: wall time in microseconds (UTC), monotonic seconds, ids, chance."""

    def now(self) -> int: ...
    def monotonic(self) -> float: ...
    def new_id(self) -> str: ...
    def random(self) -> float: ...


class SystemSource:
    """The machine's own clock and entropy."""

    _chance = _random.SystemRandom()

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self) -> str:
        return uuid4_text(os.urandom(16))

    def random(self) -> float:
        return self._chance.random()


def uuid4_text(raw: bytes) -> str:
    """Write 16 random bytes as a version 4 UUID."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{'89ab'[raw[8] & 3]}{digits[17:20]}-{digits[20:]}"


_source: Source = SystemSource()


def now() -> int:
    """Microseconds since 1970 in UTC."""
    return _source.now()


def monotonic() -> float:
    """Seconds that never go back."""
    return _source.monotonic()


def new_id() -> str:
    """A fresh UUIDv4."""
    return _source.new_id()


def random() -> float:
    """A number in [0, 1)."""
    return _source.random()


@contextmanager
def use(source: Source) -> Iterator[Source]:
    """Replace time, ids and randomness while the block runs."""
    global _source  # noqa: PLW0603 - the one switch that makes simulation possible
    before, _source = _source, source
    try:
        yield source
    finally:
        _source = before
