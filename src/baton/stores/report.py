"""What `verify` says: how much it read, and what is wrong, where, and what that means."""

from __future__ import annotations

import msgspec

MEANING = {
    "edited": "the record is not the one that was written: its bytes do not match its digest",
    "mislabelled": "the row stands under other names than its record, so queries miss it",
    "unlinked": "it does not follow the handoff's record before it: one was changed, removed or forged",
    "lost": "the newest record of this handoff is gone, or is not the one that was written",
    "missing": "records that were sealed are gone",
    "root": "these records or their order are not what was sealed: one was changed, moved, added or removed",
    "segment": "this segment does not continue the one before it: segments were removed, moved or rewritten",
    "rewritten": "a checkpoint holds another root for this point: the log was rewritten after it was taken",
    "cut": "the log ends before a checkpoint that it had reached: its end was cut off (or not exported yet)",
    "replaced": "it stood at this place, and now another log stands there: bring it back from a backup, "
    "or, if this was meant, say so with `baton audit verify --accept-new`",
    "unreadable": "a line is not what an export writes: it was damaged or changed",
    "tombstone": "it is not one that was made here, or not as it was made: it excuses nothing that is gone",
    "returned": "records that were pruned stand here again: somebody put them back",
    "unread": "more rows wait to be sealed than one pass looks at: seal them and verify again",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong: what, where (public numbers `n` to `to`), and what it means."""

    kind: str
    n: int = 0  # 0: not sealed
    to: int = 0
    seq: int = 0  # in the store
    handoff_id: str = ""
    segment: int = 0
    place: str = ""  # file and line of an export

    @property
    def meaning(self) -> str:
        return MEANING[self.kind]

    def __str__(self) -> str:
        span = f"record {self.n}" if self.to in {0, self.n} else f"records {self.n} to {self.to}"
        parts = [
            span if self.n else "",
            f"row {self.seq}" if self.seq else "",
            f"handoff {self.handoff_id}" if self.handoff_id else "",
            f"segment {self.segment}" if self.segment else "",
            self.place,
        ]
        return f"{self.kind}: {', '.join(filter(None, parts)) or 'log'}: {self.meaning}"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` read and what it found; `findings` holds the first hundred of `problems`."""

    first: int = 0
    last: int = 0
    root: str = ""
    records: int = 0
    segments: int = 0
    unsealed: int = 0
    duplicates: int = 0  # exported twice, with the same content
    checkpoints: int = 0  # that the log agrees with
    pruned: int = 0  # records that are gone, and tombstones stand for them
    tombstones: int = 0
    problems: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        span = f" ({self.first} to {self.last})" if self.first > 1 else ""
        read = f"{_counted(self.records, 'record')}{span}"
        more = f"; {self.unsealed} more not sealed yet" if self.unsealed else ""
        if self.tombstones:
            more += f"; {self.pruned} pruned, under {_counted(self.tombstones, 'tombstone')}"
        if self.checkpoints:
            more += f"; {_counted(self.checkpoints, 'checkpoint')} {'agrees' if self.checkpoints == 1 else 'agree'}"
        if self.ok:
            return f"verified: {read}, all as written{more}"
        rest = [f"and {self.problems - len(self.findings)} more"] if self.problems > len(self.findings) else []
        head = f"BROKEN: {_counted(self.problems, 'finding')} in {read}{more}"
        return "\n".join([head, *map(str, self.findings), *rest])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
