"""The audit trail as people ask for it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baton import config
from baton.protocol.audit import AuditRecord, read_record
from baton.stores import seal

if TYPE_CHECKING:
    from baton.stores.base import Store
    from baton.stores.verify import Report


class AuditTrail:
    """Query, verify and export the records of one store."""

    def __init__(self, store: Store, checkpoints: str | Path | None = None) -> None:
        self._store = store
        self._given = checkpoints

    @property
    def checkpoints(self) -> Path | None:
        """Where the checkpoints of this store stand: with the user, not beside the log."""
        if not self._store.on_disk:
            return None
        if self._given is not None:
            return Path(self._given) / self._store.id
        name = sha256(str(Path(self._store.url).resolve()).encode()).hexdigest()[:16]
        return config.state_dir() / "checkpoints" / name / self._store.id

    @property
    def replaced(self) -> bool:
        """Whether another log stood at this place before: it was removed or replaced."""
        place = self.checkpoints
        return place is not None and place.parent.is_dir() and any(item != place for item in place.parent.iterdir())

    def query(
        self,
        *,
        handoff_id: str = "",
        task_id: str = "",
        from_agent: str = "",
        to_agent: str = "",
        limit: int = 10_000,
    ) -> list[AuditRecord]:
        """Records by any of the four keys, in the order in which they were written."""
        given = {"handoff_id": handoff_id, "task_id": task_id, "from_agent": from_agent, "to_agent": to_agent}
        where: dict[str, Any] = {key: value for key, value in given.items() if value}
        return [read_record(entry.record) for entry in self._store.audit(limit=limit, **where)]

    def seal(self) -> int:
        """Give the newest records their public numbers; how many there were."""
        count = seal.seal(self._store)
        if count and self.checkpoints is not None:
            seal.checkpoint(self.checkpoints, self._store)
        return count

    def verify(self, path: str | Path | None = None, *, deep: bool = False) -> Report:
        """Check this trail, or an export of it, against itself and the checkpoints; `deep`, also the index columns."""
        from baton.stores.verify import verify

        known = seal.checkpoints(self.checkpoints) if self.checkpoints is not None else []
        return verify(path or self._store, checkpoints=known, deep=deep)

    def export(self, root: str | Path, project: str) -> list[Path]:
        """Write what is new as JSON Lines below core/logs/<project>/handoff-audit."""
        from baton.stores.export import export

        self.seal()
        return export(self._store, root, project)
