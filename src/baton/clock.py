"""The only source of time, ids and randomness.

Everything else asks here, so that a simulation can replace all three at once with `use`.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Source(Protocol):
        """What a clock gives: wall time in microseconds (UTC), monotonic seconds, ids, chance."""

        def now(self) -> int: ...
        def monotonic(self) -> float: ...
        def new_id(self) -> str: ...
        def random(self) -> float: ...


SECOND = 1_000_000


class SystemSource:
    """The machine's own clock and entropy."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self) -> str:
        return uuid4_text(os.urandom(16))

    def random(self) -> float:
        return (int.from_bytes(os.urandom(7), "big") >> 3) * 2**-53


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


class use:  # noqa: N801 - used as `with clock.use(source):`; a class, since contextlib would slow down the fast verbs
    """Replace time, ids and randomness while the block runs."""

    def __init__(self, source: Source) -> None:
        self._new = source

    def __enter__(self) -> Source:
        global _source
        self._before, _source = _source, self._new
        return self._new

    def __exit__(self, *_error: object) -> None:
        global _source  # noqa: PLW0603 - the one switch that makes simulation possible
        _source = self._before
