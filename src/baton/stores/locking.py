"""Taking and giving back locks on files: one transaction, the same for every store."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

from baton.errors import Fenced
from baton.lifecycle import State
from baton.protocol.locks import Lock, Wanted, blockers, circle
from baton.stores.base import LockAnswer, LockRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from baton.protocol.handoff import Handoff


class Locking(Protocol):
    """Locks over the rows that a store reads and writes."""

    def now(self) -> int: ...
    def get(self, handoff_id: str) -> Handoff | None: ...

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]: ...
    @abstractmethod
    def locks(self) -> list[Lock]:
        """Every lock, and every place in a queue, in the order in which they were asked for."""

    @abstractmethod
    def put_locks(self, drop: Iterable[int], put: Iterable[Lock]) -> None:
        """Remove some locks, and add others at the end of the queue."""

    def lock(self, request: LockRequest) -> LockAnswer:
        """Lock all files or none; who keeps them locked, and whether waiting for them would never end."""
        with self.transaction():
            now, owner = self.now(), request.owner
            if request.epoch is not None:
                self._check_claim(owner, request.epoch)
            rows = self.locks()
            gone = [one.seq for one in rows if one.until is not None and one.until <= now]
            rows = [one for one in rows if one.seq not in gone]
            wanted = {one.path for one in request.wanted}
            own = [one for one in rows if one.owner == owner and one.path in wanted]
            place = min((one.seq for one in own if not one.granted), default=None)
            kin = frozenset(self._above(owner))
            found = blockers(request.wanted, rows, owner=owner, shared=request.shared, kin=kin, before=place)
            closed = circle(owner, self._waits(rows) | {owner: {one.owner for one in found}}) if found else ()
            if not found:
                self.put_locks([*gone, *(one.seq for one in own)], _asked(request, now))
            elif closed or request.queue is None:
                self.put_locks([*gone, *(one.seq for one in own if not one.granted)], ())
            else:
                self.put_locks(gone, () if place is not None else _queued(request, now))
            return LockAnswer(tuple(found), closed)

    def _holds(self, handoff_id: str, epoch: int) -> bool:
        handoff = self.get(handoff_id)
        return handoff is not None and handoff.state is State.CLAIMED and handoff.epoch == epoch

    def _check_claim(self, handoff_id: str, epoch: int) -> None:
        if not self._holds(handoff_id, epoch):
            raise Fenced(f"handoff {handoff_id}: claim {epoch} is no longer current; it can lock nothing any more")

    def _above(self, owner: str) -> list[str]:
        """Those whom a handoff works for."""
        above: list[str] = []
        handoff = self.get(owner)
        while handoff is not None and handoff.parent_id:
            above.append(handoff.parent_id)
            handoff = self.get(handoff.parent_id)
        return above

    def _waits(self, rows: list[Lock]) -> dict[str, set[str]]:
        """Who waits for whom: for those who keep a file locked, and for the part of one's work that waits itself."""
        waits: dict[str, set[str]] = {}
        for one in rows:
            if one.granted:
                continue
            above = self._above(one.owner)
            wanted = [Wanted(one.path, one.file)]
            kin = frozenset(above)
            found = blockers(wanted, rows, owner=one.owner, shared=one.shared, kin=kin, before=one.seq)
            waits.setdefault(one.owner, set()).update(other.owner for other in found)
            for parent in above:
                waits.setdefault(parent, set()).add(one.owner)
        return waits

    def unlock(self, owner: str, paths: Sequence[str] = (), *, queued: bool = False, epoch: int | None = None) -> int:
        """Give back what an owner locked, or only its places in queues; how many files that were.

        With an epoch only while that claim is the current one: what a later claim of the same work locked is not its.
        """
        with self.transaction():
            if epoch is not None and not self._holds(owner, epoch):
                return 0
            mine = [one for one in self.locks() if one.owner == owner and (not paths or one.path in paths)]
            given = [one.seq for one in mine if not queued or not one.granted]
            self.put_locks(given, ())
            return len(given)


def _asked(request: LockRequest, now: int, *, granted: bool = True, until: int | None = None) -> list[Lock]:
    """The rows of a request; with a claim they last as long as that."""
    if until is None and request.epoch is None:
        until = now + request.lease
    return [
        Lock(
            seq=0,
            path=one.path,
            owner=request.owner,
            shared=request.shared,
            granted=granted,
            file=one.file,
            since=now,
            until=until,
        )
        for one in request.wanted
    ]


def _queued(request: LockRequest, now: int) -> list[Lock]:
    return _asked(request, now, granted=False, until=now + (request.queue or 0))
