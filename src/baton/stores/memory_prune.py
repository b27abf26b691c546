"""What leaves a store in memory: segments, the rows that nobody needs then, content without owner."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from baton.stores.base import Held
from baton.stores.memory_reads import MemoryReads
from baton.stores.rows import read_return
from baton.stores.tombstone import fits, written_tombstone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from baton.stores.base import Tombstone


class MemoryPruning(MemoryReads):
    """Removal, from the rows and from every index over them."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived = 0
        self._named: dict[tuple[str, str], str] = {}  # parent and part
        self._parts: defaultdict[str, list[str]] = defaultdict(list)  # what each handoff delegated
        self._chains: set[tuple[str, bytes, str]] = set()  # workflow, fingerprint and receiver
        self._prints: dict[str, bytes] = {}
        self._graves: dict[int, bytes] = {}

    def tombstones(self) -> list[bytes]:
        """What stands for segments that were pruned, in order."""
        return [record for _, record in sorted(self._graves.items())]

    def bury(self, tombstone: Tombstone) -> None:
        """Put a tombstone in the place of a run of segments."""
        run = range(tombstone.n, tombstone.to + 1)
        with self._lock:
            fits(tombstone, [self._segments[n] for n in run if n in self._segments], self.last_segment())
            for n in run:
                del self._segments[n]
            for number in range(tombstone.first, tombstone.last + 1):
                place = self._sealed.pop(number)
                del self._numbers[place]
                handoff_id = self._trail.pop(place).handoff_id
                self._of[handoff_id].remove(place)
                if not self._of[handoff_id]:
                    del self._of[handoff_id]
            self._graves[tombstone.n] = written_tombstone(tombstone)
            self._version += 1

    def forget(self, workflows: Sequence[str], since: int) -> tuple[int, list[str]]:
        """Remove workflows and their handoffs; how many, and which stay: with something open, or news since."""
        removed, stay = 0, []
        with self._lock:
            for workflow_id in workflows:
                if self._is_needed(workflow_id, since):
                    stay.append(workflow_id)
                    continue
                removed += self._flows.pop(workflow_id, None) is not None
                self._forget(workflow_id)
            self._version += 1
        return removed, stay

    def _is_needed(self, workflow_id: str, since: int) -> bool:
        return any(
            not self._rows[one].handoff.ended or any(place > since for place in self._of.get(one, ()))
            for one in self._within.get(workflow_id, ())
        )

    def _forget(self, workflow_id: str) -> None:
        for handoff_id in self._within.pop(workflow_id, ()):
            handoff = self._rows.pop(handoff_id).handoff
            self._chains.discard((workflow_id, self._prints.pop(handoff_id), handoff.to_agent))
            self._named.pop((handoff.parent_id, handoff.part), None)
            indexes: tuple[dict[str, Any], ...] = (self._arrival, self._parts)
            for index in indexes:
                index.pop(handoff_id, None)

    def forget_alerts(self, before: int) -> int:
        """Remove alerts that were resolved before this moment; how many there were."""
        with self._lock:
            old = [one.id for one in self._alerts.values() if one.resolved_at is not None and one.resolved_at < before]
            for alert_id in old:
                del self._alerts[alert_id]
            return len(old)

    def holding(self, *, after: int = 0, limit: int = 1000, handoffs: Sequence[str] | None = None) -> list[Held]:
        """The content that handoffs refer to: of these, or of all in order."""
        with self._lock:
            if handoffs is None:
                chosen = [one for one, place in self._arrival.items() if place > after][:limit]
            else:
                chosen = [one for one in handoffs if one in self._rows]
            held = []
            for one in chosen:
                row = self._rows[one]
                context, given = row.handoff.context, read_return(row.result or b"{}")
                refs = (context.history_ref, context.state_ref, given.history_ref, given.state_ref)
                held.append(Held(self._arrival[one], *refs))
            return held

    def contents(self, *, after: str = "", limit: int = 1000) -> list[str]:
        """The digests of stored content, in order."""
        with self._lock:
            return sorted(digest for digest in self._blobs if digest > after)[:limit]

    def drop_contents(self, digests: Sequence[str]) -> int:
        """Remove content; how many bytes it had."""
        with self._lock:
            return sum(len(self._blobs.pop(digest, b"")) for digest in digests)
