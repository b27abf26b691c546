"""Content that nobody refers to any more is removed, while others go on writing.

Whoever writes content refers to it in the same transaction, with an audit record. So what is referred to is found by
walking all handoffs once, and after that only those of newer audit records. The last such look and the removal are
one transaction, of a few hundred pieces each: no writer waits for long, and nothing that was just referred to is lost.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import Malformed, NotFound
from baton.protocol import context, variables
from baton.protocol.audit import LATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from baton.stores.base import Entry, Held, Store

PAGE = 1000
PIECES = 250  # looked at in one transaction
_LATE = f'"{LATE}"'.encode()


class _Kept(msgspec.Struct, gc=False):
    detail: dict[str, Any] = {}


_read = msgspec.json.Decoder(_Kept).decode


def sweep(store: Store) -> tuple[int, int]:
    """Remove content without owner; how many pieces, and their bytes."""
    marks = _Marks(store)
    marks.everything()
    pieces = freed = 0
    after = ""
    while page := store.contents(after=after, limit=PIECES):
        after = page[-1]
        if all(digest in marks.seen for digest in page):
            continue
        marks.follow()
        count, size = _drop(store, marks, page)
        pieces, freed = pieces + count, freed + size
    return pieces, freed


def _drop(store: Store, marks: _Marks, page: list[str]) -> tuple[int, int]:
    def within() -> tuple[int, int]:
        marks.follow()
        gone = [digest for digest in page if digest not in marks.seen]
        return len(gone), store.drop_contents(gone)

    (answer,) = store.batch([within])  # one transaction
    if isinstance(answer, Exception):
        raise answer
    return answer  # type: ignore[no-any-return]


class _Marks:
    """All content that is referred to, as far as was looked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at = 0  # the audit row up to which it was followed
        self.seen: set[str] = set()
        self._fetched = ("", b"")

    def everything(self) -> None:
        """Look at every record and every handoff."""
        for _ in self._records():
            pass
        after = 0
        while page := self._store.holding(after=after, limit=PAGE):
            self._mark(page)
            after = page[-1].seq

    def follow(self) -> None:
        """Look at what happened since."""
        for page in self._records():
            self._mark(self._store.holding(handoffs=list({entry.handoff_id for entry in page})))

    def _records(self) -> Iterator[list[Entry]]:
        """The audit records that were not looked at yet, with what came too late and stands by digest in them."""
        while page := self._store.audit(after=self._at, limit=PAGE):
            self._at = page[-1].seq
            for entry in page:
                if _LATE in entry.record:
                    self.seen.add(str(_read(entry.record).detail.get("result")))
            yield page

    def _mark(self, held: Iterable[Held]) -> None:
        for one in held:
            context.reach(one.history_ref, self._fetch, self.seen)
            variables.reach(one.state_ref, self._fetch, self.seen)
            with suppress(Malformed):  # an agent may have written anything there
                context.reach(one.result_history, self._fetch, self.seen)
            with suppress(Malformed):
                variables.reach(one.result_state, self._fetch, self.seen)

    def _fetch(self, digest: str) -> bytes:
        if digest != self._fetched[0]:
            try:
                self._fetched = (digest, self._store.fetch(digest))
            except (NotFound, ValueError):
                self._fetched = (digest, b"")
        return self._fetched[1]
