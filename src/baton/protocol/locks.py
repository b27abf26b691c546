"""Locks on files: what they cover, whom they keep out, and who waits for whom. Pure.

A lock is a lease. One that a handoff took lasts as long as its claim and ends with it, however that ends; one that a
person or a shell took lasts until its time is over. A folder's lock covers what is below it. Who works for another
(the parts of delegated work) may use what that one has locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec


class Wanted(msgspec.Struct, frozen=True):
    """A file to be locked: its path without links, and what tells the file itself by another name."""

    path: str
    file: str = ""  # device and number, where it exists


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock, or a place in the queue for one. Times in microseconds."""

    seq: int
    path: str
    owner: str  # a handoff, or the name of a person or program
    shared: bool = False
    granted: bool = True
    file: str = ""
    since: int = 0
    until: int | None = None  # None: as long as the owner's claim


def overlap(one: Wanted | Lock, other: Wanted | Lock) -> bool:
    """Whether two locks cover the same file, one the folder of the other, or one file by two names."""
    if one.file and one.file == other.file:
        return True
    short, long = sorted((one.path, other.path), key=len)
    return short == long or long.startswith(short.rstrip("/") + "/")


def blockers(
    wanted: Sequence[Wanted],
    locks: Iterable[Lock],
    *,
    owner: str,
    shared: bool,
    kin: frozenset[str] = frozenset(),
    before: int | None = None,
) -> list[Lock]:
    """The locks that keep an owner out, those who wait longer included; `kin` are those whom the owner works for.

    `before` is the owner's own place in the queue; without one it stands at the end. Whoever waits for the owner's
    family cannot keep a member of it out.
    """
    locks = list(locks)
    family = [lock for lock in locks if lock.granted and (lock.owner == owner or lock.owner in kin)]
    found = []
    for lock in locks:
        if lock.owner == owner or lock.owner in kin or (shared and lock.shared):
            continue
        waiting = not lock.granted
        if waiting and before is not None and lock.seq > before:
            continue
        if waiting and any(overlap(lock, own) for own in family):
            continue
        if any(overlap(one, lock) for one in wanted):
            found.append(lock)
    return found


def circle(start: str, waits: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Who would wait for whom in a circle back to `start`, or nothing."""
    path: list[str] = []
    seen: set[str] = set()

    def walk(owner: str) -> bool:
        path.append(owner)
        for other in waits.get(owner, ()):
            if other == start:
                return True
            if other not in seen:
                seen.add(other)
                if walk(other):
                    return True
        path.pop()
        return False

    return tuple(path) if walk(start) else ()
