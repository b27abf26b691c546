"""Files locked for one turn: taken all at once, waited for in order, and given back when the claim ends."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from baton.errors import Deadlock, Locked, Malformed
from baton.protocol.locks import Wanted
from baton.stores.base import LockAnswer, LockRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from baton.flow.crew import Crew
    from baton.stores.base import Store

LOOK = 5.0  # how long to wait for a notice before looking again: a lease may have ended meanwhile


def wanted(paths: Sequence[str | os.PathLike[str]]) -> tuple[Wanted, ...]:
    """Files as locks know them: without links, and with what tells the file itself by another name."""
    if not paths:
        raise Malformed("lock: no path; name the files to be locked")
    found = {}
    for path in paths:
        given: Any = path
        text = os.fspath(given) if isinstance(given, str | os.PathLike) else given
        if not isinstance(text, str) or not text or not text.isprintable():
            raise Malformed(f"lock: {text!r:.80} is not the name of a file; use printable text")
        real = os.path.realpath(text)
        try:
            found[real] = Wanted(real, _file(Path(real).stat()))
        except OSError:
            found[real] = Wanted(real)
    return tuple(found[real] for real in sorted(found))


def _file(status: os.stat_result) -> str:
    """What tells a file by whatever name; a folder has but one."""
    return f"{status.st_dev}:{status.st_ino}" if stat.S_ISREG(status.st_mode) else ""


def objection(store: Store, answer: LockAnswer) -> Locked | Deadlock:
    """Why not, and who could do something about it."""
    if answer.circle:
        ring = " waits for ".join(_named(store, owner) for owner in (*answer.circle, answer.circle[0]))
        return Deadlock(f"lock: {ring}; give back what you hold and take all files in one call")
    one = answer.blockers[0]
    verb = "is locked" if one.granted else "is waited for"
    who, more = _named(store, one.owner), f" and {len(answer.blockers) - 1} more" if len(answer.blockers) > 1 else ""
    path = os.path.relpath(one.path)
    return Locked(f"lock: {path} {verb} by {who}{more}; wait longer, or `baton lock` lists who holds what")


def in_progress(store: Store, workflow_id: str) -> list[dict[str, str]]:
    """The files that the agents of a workflow have locked, as the protocol names them."""
    owners = ((one, store.get(one.owner)) for one in store.locks() if one.granted)
    return [
        {"path": one.path, "owner": handoff.to_agent, "lock_type": "shared" if one.shared else "exclusive"}
        for one, handoff in owners
        if handoff is not None and handoff.workflow_id == workflow_id
    ]


def _named(store: Store, owner: str) -> str:
    handoff = store.get(owner)
    return f"{handoff.to_agent} (handoff {owner:.8})" if handoff else owner


class Hold:
    """`async with turn.lock(...)`, or `acquire` and `release` by hand."""

    def __init__(self, crew: Crew, request: LockRequest, timeout: float) -> None:
        self._crew = crew
        self._request = msgspec.structs.replace(request, queue=int(timeout * 1e6)) if timeout > 0 else request
        self._timeout = timeout
        self._answer = LockAnswer()
        self.paths = tuple(one.path for one in request.wanted)

    async def acquire(self) -> None:
        """Take all files, or raise Locked when the time is over and Deadlock where waiting would never end."""
        store, loop = self._crew.store, asyncio.get_running_loop()
        last = loop.time() + self._timeout
        try:
            settled = self._ask()
            while not settled and (left := last - loop.time()) > 0:
                await self._crew.hub.changed(min(left, LOOK), self._ask)
                settled = self._ask()
        except BaseException:
            self._leave()
            raise
        if self._answer.blockers:
            self._leave()
            raise objection(store, self._answer)

    def _ask(self) -> bool:
        """Whether there is nothing to wait for any more. Tells nobody: asking frees nothing."""
        self._answer = self._crew.store.lock(self._request)
        return not self._answer.blockers or bool(self._answer.circle)

    def _leave(self) -> None:
        """Give the place in the queue up; those behind it may go on."""
        self._crew.store.unlock(self._request.owner, self.paths, queued=True, epoch=self._request.epoch)
        self._crew.hub.notify()

    async def release(self) -> None:
        """Give the files back; those who wait for them are told."""
        store, request = self._crew.store, self._request
        await self._crew.write(lambda: store.unlock(request.owner, self.paths, epoch=request.epoch))

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()
