"""What a store promises.

Every mutator is one transaction: it gathers the facts, lets the guards decide on them, and writes the new state
and its audit record together, or nothing. `decide` is pure and may be called more than once, so a store may
read, decide, and write only if nothing changed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from baton.guards.base import Breaker, Facts, Verdict
from baton.guards.health import Health
from baton.lifecycle import Event, State
from baton.protocol.context import Blob
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.protocol.locks import Lock, Wanted
from baton.protocol.profile import Profile
from baton.protocol.results import Return

Decide = Callable[[Handoff, Facts, Limits], Verdict]


class Workflow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run from a request to its answer: its limits and what it used so far. Money in millionths."""

    id: str
    root_id: str
    conversation_id: str
    limits: Limits
    handoffs: int = 0
    agents: tuple[str, ...] = ()
    tokens_spent: int = 0
    tokens_reserved: int = 0
    cost_spent: int = 0
    cost_reserved: int = 0
    created_at: int = 0


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who takes work, which, and for how long at first."""

    holder: str
    agents: tuple[str, ...] = ()
    id: str = ""
    lease: int = 60_000_000
    estimate: int | None = None  # when the work will probably be done


class Offer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A handoff to be made, with the content that it refers to."""

    handoff: Handoff
    fingerprint: str
    blobs: Sequence[Blob] = ()
    workflow: Workflow | None = None  # given with the first handoff of a workflow
    withheld: tuple[str, ...] = ()  # the shared variables that the receiver does not see, by name
    parent_epoch: int | None = None  # the claim under which a part is delegated; an older one may not any more
    take: Claim | None = None  # who takes it at once if the guards of a claim agree


class Grant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A claim that was won, or why it was not: `handoff` is None where there is nothing to take."""

    handoff: Handoff | None = None
    verdict: Verdict = Verdict()
    won: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event of one handoff. With `epoch` it counts only while that claim is the current one."""

    id: str
    event: Event
    epoch: int | None = None
    expect: State | None = None
    seen: Handoff | None = None  # the reading that the step was decided on; it counts only while that still holds
    by: str = ""
    reason: str = ""
    rationale: str = ""  # why this step, where it is not what the handoff itself gives
    detail: dict[str, Any] = {}
    cause: str = ""  # an audit event written before the event's own record, for example "timeout"
    due_at: int | None = None
    to_agent: str = ""  # reroute, escalate
    uncount: bool = False  # the last attempt does not count, or a person grants one more
    result: Return | None = None
    blobs: Sequence[Blob] = ()
    then: Offer | None = None  # the next handoff of the same line


class LockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Files that an owner wants, all of them or none. A handoff is an owner while `epoch` is its current claim."""

    owner: str
    wanted: tuple[Wanted, ...]
    shared: bool = False
    epoch: int | None = None
    lease: int = 600_000_000  # without a claim: how long
    queue: int | None = None  # keep a place for so long where it has to wait


class LockAnswer(msgspec.Struct, frozen=True):
    """Granted where nobody keeps it out; `circle` names those who would wait for one another for ever."""

    blockers: tuple[Lock, ...] = ()
    circle: tuple[str, ...] = ()


class Moved(msgspec.Struct, frozen=True, gc=False):
    """After a step: the handoff, and the next one of its line if there is one.

    Where `verdict` refuses the next one, the step itself was not taken and the claim goes on.
    """

    handoff: Handoff
    then: Handoff | None = None
    verdict: Verdict = Verdict()


class Entry(msgspec.Struct, frozen=True):
    """An audit row as stored: the bytes that were hashed, and their digest."""

    seq: int
    handoff_id: str
    record: bytes
    digest: str


Setting = Literal["journal_mode", "synchronous", "user_version", "page_count", "page_size"]
Kind = Literal["handoff", "workflow", "conversation", "alert"]
Row = tuple[int, bytes, bytes, bytes]  # an audit row as `verify` reads it: place, handoff, record, digest


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed run of audit rows in their public order, chained to the segment before it."""

    n: int
    first: int  # public numbers, first to last
    last: int
    root: str  # SHA-256 over the previous segment's root and the rows' digests
    previous: str
    sealed_at: int


class Tombstone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands for a run of segments that was pruned."""

    log: str  # the id of the store
    n: int  # segments, n to `to`
    to: int
    first: int  # public numbers of their records, first to last
    last: int
    previous: str  # the root before them, and their last one
    root: str
    oldest: int  # when the first and the last of the records were written
    newest: int
    classes: dict[str, int]  # how many of each class
    ends: tuple[str, ...] = ()  # digests among them that records elsewhere follow
    begins: tuple[str, ...] = ()  # digests elsewhere that records among them followed
    time: int
    by: str
    reason: str = ""
    mac: str = ""  # by the secret of the user who pruned


class Held(msgspec.Struct, frozen=True, gc=False):
    """The content that one handoff refers to."""

    seq: int
    history_ref: str
    state_ref: str
    result_history: str = ""
    result_state: str = ""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person should see."""

    id: str
    subject: str
    text: str
    raised_at: int
    resolved_at: int | None = None
    resolved_by: str = ""


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as the store knows it."""

    profile: Profile
    health: Health = Health()
    load: int = 0

    @property
    def available(self) -> bool:
        """Whether it gets new work."""
        return self.health.state == "available"


class Claims(Protocol):
    """Exclusive ownership with a fencing epoch."""

    def claim(self, claim: Claim, decide: Decide) -> Grant: ...
    def renew(self, handoff_id: str, epoch: int, lease: int) -> bool: ...
    def advance(self, step: Step, decide: Decide | None = None, accept: Decide | None = None) -> Moved: ...
    def due(self, limit: int = 100) -> list[Handoff]: ...


class Store(Claims, Protocol):
    """Where handoffs, their audit trail and their context are remembered."""

    url: str
    on_disk: bool

    @property
    def id(self) -> str: ...

    def now(self) -> int: ...
    def offer(self, offer: Offer, decide: Decide, accept: Decide | None = None) -> tuple[Handoff, Verdict]: ...
    def offer_all(self, offers: Sequence[Offer], decide: Decide) -> tuple[list[Handoff], Verdict]: ...
    def spend(self, handoff_id: str, epoch: int, tokens: int, cost: int, most: Limits | None = None) -> Verdict: ...
    def postpone(self, handoff: Handoff, due_at: int | None) -> bool: ...
    def lock(self, request: LockRequest) -> LockAnswer: ...
    def unlock(
        self, owner: str, paths: Sequence[str] = (), *, queued: bool = False, epoch: int | None = None
    ) -> int: ...
    def locks(self) -> list[Lock]: ...
    def batch(self, operations: Sequence[Callable[[], Any]]) -> list[Any]: ...
    def close(self) -> None: ...

    def get(self, handoff_id: str) -> Handoff | None: ...
    def find(self, *, limit: int = 1000, newest: bool = False, **where: Any) -> list[Handoff]: ...
    def returned(self, handoff_id: str) -> Return | None: ...
    def starting(self, prefix: str, of: Kind = "handoff", limit: int = 10) -> list[str]: ...
    def setting(self, name: Setting) -> Any: ...
    def usage(self, since: int = 0) -> list[tuple[str, str, str, int, int, int]]: ...
    def workflow(self, workflow_id: str) -> Workflow | None: ...
    def workflows(self, *, conversation_id: str = "", limit: int = 100) -> list[Workflow]: ...
    def fetch(self, digest: str) -> bytes: ...
    def version(self) -> int: ...
    def timers(self, handoff_id: str) -> tuple[int | None, int | None, bool]: ...
    def next_due(self) -> int | None: ...
    def held(self) -> list[tuple[str, str]]: ...

    def register(self, profile: Profile) -> None: ...
    def seen(self, agents: Sequence[str]) -> None: ...
    def mark(self, agent: str, change: Callable[[Health], Health]) -> Health | None: ...
    def agent(self, name: str) -> AgentRow | None: ...
    def agents(self) -> list[AgentRow]: ...
    def breakers(self) -> list[Breaker]: ...
    def reset_breaker(self, subject: str) -> int: ...

    def audit(self, *, limit: int = 10_000, after: int = 0, **where: Any) -> list[Entry]: ...
    def unsealed(self, limit: int, after: int = 0) -> list[Entry]: ...
    def sealed(self, first: int, last: int) -> list[Entry]: ...
    def unsealed_rows(self, limit: int, after: int = 0) -> Sequence[Row]: ...
    def sealed_rows(self, first: int, last: int) -> Sequence[Row]: ...
    def audited(self) -> int: ...
    def labelled(self, limit: int, after: int = 0) -> list[tuple[int, int, bytes, tuple[bytes, ...]]]: ...
    def headless(self, handoffs: Sequence[str] | None = None) -> list[str]: ...
    def last_segment(self) -> Segment | None: ...
    def segments(self) -> list[Segment]: ...
    def add_segment(self, segment: Segment, seqs: Sequence[int]) -> None: ...

    def tombstones(self) -> list[bytes]: ...
    def bury(self, tombstone: Tombstone) -> None: ...
    def forget(self, workflows: Sequence[str], since: int) -> tuple[int, list[str]]: ...
    def forget_alerts(self, before: int) -> int: ...
    def holding(self, *, after: int = 0, limit: int = 1000, handoffs: Sequence[str] | None = None) -> list[Held]: ...
    def contents(self, *, after: str = "", limit: int = 1000) -> list[str]: ...
    def drop_contents(self, digests: Sequence[str]) -> int: ...

    def raise_alert(self, subject: str, text: str) -> str: ...
    def alerts(self, *, unresolved: bool = True) -> list[Alert]: ...
    def resolve_alert(self, alert_id: str, by: str) -> bool: ...
