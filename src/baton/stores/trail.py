"""The audit trail as people ask for it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from baton.errors import AuditBroken
from baton.protocol.audit import AuditRecord, read_record
from baton.protocol.codec import name, text
from baton.stores import seal
from baton.stores.place import Place, Stood

if TYPE_CHECKING:
    from collections.abc import Mapping

    from baton.protocol.options import Duration
    from baton.stores.base import Store, Tombstone
    from baton.stores.prune import Pruned
    from baton.stores.report import Report


class AuditTrail:
    """Query, verify and export the records of one store."""

    def __init__(self, store: Store, checkpoints: str | Path | None = None) -> None:
        self._store = store
        self._place = Place(store.url, checkpoints) if store.on_disk else None
        self._noted = False

    @property
    def checkpoints(self) -> Path | None:
        """Where the checkpoints of this store stand: with the user, not beside the log."""
        return self._place.checkpoints(self._store.id) if self._place else None

    @property
    def replaced(self) -> list[str]:
        """The logs that stood at this place and were removed or replaced, unless a person accepted that."""
        return self._place.others(self._store.id) if self._place else []

    @property
    def accepted(self) -> list[Stood]:
        """Who said that this log may stand where others stood, and when."""
        noted = self._place.stood() if self._place else []
        return [one for one in noted if one.log == self._store.id and one.instead_of]

    def accept(self, *, by: str, reason: str = "") -> list[str]:
        """Say that this is the log from now on; which others it replaces. They stay noted, and so does who said it."""
        name(by, "by")
        text(reason, "reason")
        others = self.replaced
        if self._place and others:
            said = Stood(log=self._store.id, time=self._store.now(), by=by, reason=reason, instead_of=tuple(others))
            self._place.note(said)
        return others

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
        if count and self._place is not None:
            if not self._noted and all(one.log != self._store.id for one in self._place.stood()):
                self._place.note(Stood(log=self._store.id, time=self._store.now()))
            self._noted = True
            seal.checkpoint(self._place.checkpoints(self._store.id), self._store)
        return count

    def verify(self, path: str | Path | None = None, *, deep: bool = False) -> Report:
        """Check this trail, or an export of it, against itself and the checkpoints; `deep`, also the index columns."""
        from baton.stores.report import Finding
        from baton.stores.verify import verify

        if self._place is None:
            return verify(path or self._store, deep=deep)
        known = seal.checkpoints(self._place.checkpoints(self._store.id))
        witness = self._place.witness(self._store.id)
        report = verify(path or self._store, checkpoints=known, deep=deep, witness=witness)
        missed = [Finding(kind="replaced", place=self._place.described(log)) for log in self.replaced]
        problems, findings = report.problems + len(missed), (*missed, *report.findings)
        return msgspec.structs.replace(report, problems=problems, findings=findings)

    def export(self, root: str | Path, project: str) -> list[Path]:
        """Write what is new as JSON Lines below core/logs/<project>/handoff-audit."""
        from baton.stores.export import export

        self.seal()
        return export(self._store, root, project)

    def prune(
        self,
        *,
        by: str,
        reason: str = "",
        keep: Mapping[str, Duration] | None = None,
        shorter: bool = False,
        dry_run: bool = False,
    ) -> Pruned:
        """Remove what was kept long enough, under signed tombstones; what was removed, or with `dry_run` would be.

        `keep` gives other periods than 30 days after the end ("active"), 90 ("completed") and 180 ("escalations");
        shorter ones only with `shorter=True`. A trail that does not verify is left alone.
        """
        from baton.stores.prune import Order, prune
        from baton.stores.retention import as_periods

        order = Order(by=by, reason=reason, periods=as_periods(keep or {}, shorter=shorter), dry_run=dry_run)
        witness = self._place.witness(self._store.id) if self._place else None
        with witness.alone() if witness and not dry_run else nullcontext():
            if not dry_run:
                self.seal()
            report = self.verify(deep=True)
            if not report.ok:
                raise AuditBroken(f"nothing was pruned: {report.findings[0]}; see `baton audit verify --deep`")
            return prune(self._store, order, witness.sign if witness else lambda tombstone: tombstone)

    def tombstones(self) -> list[Tombstone]:
        """What stands for what was pruned, in order."""
        from baton.stores.tombstone import Graves

        return list(Graves(self._store.tombstones(), lambda _: True))
