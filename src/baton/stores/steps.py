"""The mutators of every store: a transaction, a plan in it, and the plan written."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from baton.protocol.secrets import redact_bytes, suspicious
from baton.stores import groups, money
from baton.stores.locking import Locking
from baton.stores.plan import Plan, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from baton.guards.base import Verdict
    from baton.protocol.handoff import Handoff
    from baton.protocol.limits import Limits
    from baton.stores.base import Claim, Decide, Grant, Moved, Offer, Step
    from baton.stores.change import Change

T = TypeVar("T")


class Steps(Reader, Locking, Protocol):
    """Offer, claim, advance and spend, over the rows that a store reads and writes."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """What is written inside happens as a whole, after everything that other transactions wrote."""

    @abstractmethod
    def write(self, change: Change) -> None:
        """Write what a plan holds."""

    def _planned(self, operation: Callable[[Plan], T]) -> tuple[Plan, T]:
        """A plan and its answer; planned again, and masked, where a look at all of it finds what may be a secret."""
        plan = Plan(self)
        answer = operation(plan)
        if suspicious(plan.text()):
            plan = Plan(self, redact_bytes)
            answer = operation(plan)
        return plan, answer

    def offer(self, offer: Offer, decide: Decide, accept: Decide | None = None) -> tuple[Handoff, Verdict]:
        """Make a handoff: facts, verdict, state and `initiated` in one transaction."""
        with self.transaction():
            plan, made = self._planned(lambda plan: plan.offer(offer, decide, accept))
            self.write(plan)
            return made

    def offer_all(self, offers: Sequence[Offer], decide: Decide) -> tuple[list[Handoff], Verdict]:
        """Make the handoffs of a group together; where their sum is too much, only the one refused is written."""
        with self.transaction():
            plan, made = self._planned(lambda plan: groups.offer_all(plan, offers, decide))
            self.write(plan)
            return made

    def claim(self, claim: Claim, decide: Decide) -> Grant:
        """Give one offered handoff to one holder, or say why not."""
        with self.transaction():
            plan, grant = self._planned(lambda plan: plan.claim(claim, decide))
            if grant.won:
                self.write(plan)
            return grant

    def advance(self, step: Step, decide: Decide | None = None, accept: Decide | None = None) -> Moved:
        """Apply one event; a claim that is no longer current is refused and written down."""
        with self.transaction():
            plan, moved = self._planned(lambda plan: plan.advance(step, decide, accept))
            self.write(plan)
        if plan.late is not None:
            raise plan.late
        return moved

    def spend(self, handoff_id: str, epoch: int, tokens: int, cost: int, most: Limits | None = None) -> Verdict:
        """Count tokens and money while the work runs; refused when it cannot be afforded."""
        with self.transaction():
            plan, verdict = self._planned(lambda plan: money.spend(plan, handoff_id, epoch, tokens, cost, most))
            self.write(plan)
            return verdict
