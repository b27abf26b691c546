"""What leaves a SQLite store: segments whose time is over, the rows that nobody needs then, content without owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from baton.lifecycle import ENDED
from baton.stores.base import Held
from baton.stores.sqlite_reads import Reads
from baton.stores.tombstone import fits, written_tombstone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from baton.stores.base import Tombstone

_ROWS = "SELECT seq, spec, coalesce(result, '{}') FROM handoff"
_ENDED = ", ".join(f"'{state}'" for state in sorted(ENDED))
_NEEDED = f"""SELECT 1 FROM handoff h WHERE workflow_id = ? AND (state NOT IN ({_ENDED})
    OR EXISTS (SELECT 1 FROM audit WHERE handoff_id = h.id AND seq > ?))"""


class _Refs(msgspec.Struct, gc=False):
    history_ref: str = ""
    state_ref: str = ""


class _Spec(msgspec.Struct, gc=False):
    context: _Refs = msgspec.field(default_factory=_Refs)


_read_spec = msgspec.json.Decoder(_Spec).decode
_read_result = msgspec.json.Decoder(_Refs).decode


class Pruning(Reads):
    """Removal, each in one transaction."""

    def tombstones(self) -> list[bytes]:
        """What stands for segments that were pruned, in order."""
        return [row[0] for row in self._db.rows("SELECT CAST(record AS BLOB) FROM tombstone ORDER BY n")]

    def bury(self, tombstone: Tombstone) -> None:
        """Put a tombstone in the place of a run of segments."""
        run, records = (tombstone.n, tombstone.to), (tombstone.first, tombstone.last)
        with self._db:
            execute = self._db.execute
            fits(tombstone, self.run(*run), self.last_segment())
            execute("DELETE FROM audit WHERE seq IN (SELECT audit_seq FROM sealed WHERE n BETWEEN ? AND ?)", records)
            execute("DELETE FROM sealed WHERE n BETWEEN ? AND ?", records)
            execute("DELETE FROM segment WHERE n BETWEEN ? AND ?", run)
            row = (tombstone.n, written_tombstone(tombstone))
            execute("INSERT INTO tombstone (n, record) VALUES (?, ?)", row)

    def forget(self, workflows: Sequence[str], since: int) -> tuple[int, list[str]]:
        """Remove workflows and their handoffs; how many, and which stay: with something open, or news since."""
        removed, stay = 0, []
        with self._db:
            execute = self._db.execute
            for workflow_id in workflows:
                if execute(_NEEDED, (workflow_id, since)).fetchone():
                    stay.append(workflow_id)
                    continue
                execute("DELETE FROM handoff WHERE workflow_id = ?", (workflow_id,))
                execute("DELETE FROM workflow WHERE id = ?", (workflow_id,))
                removed += self._db.connection.changes()
        return removed, stay

    def forget_alerts(self, before: int) -> int:
        """Remove alerts that were resolved before this moment; how many there were."""
        with self._db:
            self._db.execute("DELETE FROM alert WHERE resolved_at < ?", (before,))
            return self._db.connection.changes()

    def holding(self, *, after: int = 0, limit: int = 1000, handoffs: Sequence[str] | None = None) -> list[Held]:
        """The content that handoffs refer to: of these, or of all in order."""
        if handoffs is None:
            rows = self._db.rows(f"{_ROWS} WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))
        else:
            chosen = msgspec.json.encode(handoffs).decode()
            rows = self._db.rows(f"{_ROWS} WHERE id IN (SELECT value FROM json_each(?))", (chosen,))
        held = []
        for seq, spec, result in rows:
            context, given = _read_spec(spec).context, _read_result(result)
            held.append(Held(seq, context.history_ref, context.state_ref, given.history_ref, given.state_ref))
        return held

    def contents(self, *, after: str = "", limit: int = 1000) -> list[str]:
        """The digests of stored content, in order."""
        query = "SELECT digest FROM blob WHERE digest > ? ORDER BY digest LIMIT ?"
        return [row[0].hex() for row in self._db.rows(query, (bytes.fromhex(after), limit))]

    def drop_contents(self, digests: Sequence[str]) -> int:
        """Remove content; how many bytes it had."""
        freed = 0
        with self._db:
            for digest in digests:
                rows = self._db.execute(
                    "DELETE FROM blob WHERE digest = ? RETURNING length(data)", (bytes.fromhex(digest),)
                )
                freed += sum(length for (length,) in rows)
        return freed
