"""Looks at every step that the store writes, and says at once which promise it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from baton.errors import Fenced
from baton.lifecycle import ENDED, Event, State
from baton.protocol.groups import tally
from baton.protocol.handoff import SUPERVISOR
from baton.protocol.limits import micro

if TYPE_CHECKING:
    from collections.abc import Callable

    from baton.guards.base import Verdict
    from baton.protocol.handoff import Handoff
    from baton.stores.base import Step, Store
    from baton.stores.change import Change
    from baton.stores.rows import Row
    from baton.testing.simulation.history import History
    from baton.testing.simulation.wire import Wire
    from baton.testing.simulation.world import World

_TAKEN_BACK = {Event.RECLAIM, Event.FAIL, Event.PARK}


class Witness:
    """What it saw of each handoff last, and who is calling."""

    def __init__(self, world: World, history: History) -> None:
        self.world = world
        self.history = history
        self.rows: dict[str, Row] = {}
        self.parts: dict[str, list[str]] = {}
        self.named: dict[tuple[str, str], str] = {}
        self.limits: dict[str, tuple[int | None, int | None]] = {}
        self.decided: dict[str, Any] = {}
        self.capacity: dict[str, int] = {}  # of agents that take only so much at once
        self.wire: Wire | None = None
        self.step: Step | None = None
        self._undo: list[Callable[[], object]] | None = None
        self._free = 0
        self._spender = ""

    def watch(self, store: Store) -> None:
        """See all that this store writes, inside the transaction that writes it."""
        write = store.write  # type: ignore[attr-defined]

        def seen(change: Change) -> None:
            write(change)
            if not self.world.over:
                self._wrote(store, change)

        store.write = seen  # type: ignore[attr-defined]

    def _must(self, holds: object, text: str) -> None:
        if not holds:
            self.world.violate(text)

    # --- one call ------------------------------------------------------------------------------------

    def before(self, wire: Wire, name: str, args: tuple[Any, ...]) -> None:
        """A process asks for a step."""
        self.wire = wire
        self.step = args[0] if name == "advance" else None
        self._free = self._own_reserve(args) if name == "spend" else 0
        if self.step is not None and self.step.by == SUPERVISOR:
            self._judge_taking_back(wire, self.step)

    def after(self, wire: Wire, name: str, came: Any) -> None:
        """What the process was told."""
        if self.step is not None and not isinstance(came, BaseException):
            self.world.counts[self.step.event.value] += 1
        self.wire = self.step = None
        if isinstance(came, Fenced) and name == "advance":
            self.world.counts["late or fenced"] += 1
        if name == "spend" and not isinstance(came, BaseException):
            self._judge_charge(wire, came)
        if name == "lock" and not isinstance(came, BaseException) and not came.blockers:
            self._judge_locks(wire.store)
        if self.world.trace is not None and not isinstance(came, BaseException):
            self.world.say(wire.process, f"{name}: {_told(came)}")

    def _judge_locks(self, store: Store) -> None:
        """Who works for another may use what that one has locked; else a lock keeps everybody out."""
        self.world.counts["locks"] += 1
        held = [one for one in store.locks() if one.granted]
        for number, one in enumerate(held):
            for other in held[number + 1 :]:
                alone = one.path == other.path and one.owner != other.owner and not (one.shared and other.shared)
                kin = alone and (one.owner in self._above(other.owner) or other.owner in self._above(one.owner))
                self._must(not alone or kin, f"{one.path}: locked by {one.owner[:8]} and {other.owner[:8]}")

    def _above(self, handoff_id: str) -> list[str]:
        row = self.rows.get(handoff_id)
        return [row.handoff.parent_id, *self._above(row.handoff.parent_id)] if row is not None else []

    def _own_reserve(self, args: tuple[Any, ...]) -> int:
        """What a charge needs beyond what was set aside for it."""
        row = self.rows.get(args[0])
        self._spender = args[0]
        return int(args[2]) - row.tokens_reserved if row is not None else 0

    def _judge_charge(self, wire: Wire, verdict: Verdict) -> None:
        """What was allowed beyond its own reservation fits into the budget with all else."""
        self.world.counts["charges"] += 1
        row = self.rows.get(self._spender)
        flow = wire.store.workflow(row.handoff.workflow_id) if row else None
        most = self.limits.get(flow.id, (None, None))[0] if flow else None
        if flow is not None and most is not None and verdict.kind == "allow" and self._free > 0:
            total = flow.tokens_spent + flow.tokens_reserved
            self._must(total <= most, f"{flow.id}: a charge was allowed: {total} of {most} tokens")

    def _judge_taking_back(self, wire: Wire, step: Step) -> None:
        """Doubt is not death: who lives on the same host never loses its work because it is slow."""
        row = self.rows.get(step.id)
        if row is None or row.handoff.state is not State.CLAIMED or step.seen is None:
            return
        if step.cause or step.event not in _TAKEN_BACK or step.seen.epoch != row.handoff.epoch:
            return
        world, now = self.world, wire.store.get(step.id)
        owner = world.of_holder.get(row.handoff.holder)
        if owner is None or owner.dead or now is None or now.due_at != step.seen.due_at:
            return  # dead, or the step will not count
        short = step.id[:8]
        if owner is wire.process:
            running = owner.relay._crew.running.get(step.id)  # noqa: SLF001 - the truth about a process
            self._must(running is None, f"{short}: {owner} takes its own running work back")
        elif owner.host == wire.process.host:
            self._must(False, f"{short}: taken from {owner}, which lives on the same host")  # noqa: FBT003
        else:
            until = wire.store.timers(step.id)[0]
            latest = max(world.clock.now() - world.clock.skew, world.clock.before_jump)
            self._must(until is None or until <= latest, f"{short}: its lease holds")

    # --- one transaction -------------------------------------------------------------------------------

    def open(self) -> None:
        """Several steps in one transaction begin."""
        self._undo = []
        self.history.open()

    def close(self, *, kept: bool) -> None:
        """They were written, or none of them."""
        undo, self._undo = self._undo or [], None
        self.history.close(kept=kept)
        for back in () if kept else reversed(undo):
            back()

    def _know(self, known: dict[Any, Any], key: Any, value: Any) -> None:
        if self._undo is not None:
            old, had = known.get(key), key in known
            self._undo.append(lambda: known.__setitem__(key, old) if had else known.pop(key, None))
        known[key] = value

    def _wrote(self, store: Store, change: Change) -> None:
        records = {(one.handoff_id, one.digest.hex()) for one in change.audit}
        taken = [row for row in change.moved if row.handoff.epoch != self.rows[row.handoff.id].handoff.epoch]
        given = [*taken, *(made.row for made in change.made)]
        alerted = {subject for subject, _ in change.alerts}
        flow = change.workflow
        if flow is not None:
            self._know(self.limits, flow.id, (flow.limits.max_tokens, micro(flow.limits.max_cost)))
        for made in change.made:
            self._judge_new(made.row, records)
        for row in change.moved:
            self._judge_move(row, records, alerted)
        self._judge_money(store, change, given)
        for row in change.moved:
            self._judge_end(store, row)

    def _judge_new(self, row: Row, records: set[tuple[str, str]]) -> None:
        handoff = row.handoff
        short = handoff.id[:8]
        self._must(handoff.id not in self.rows, f"{short}: made twice")
        self._must((handoff.id, row.head) in records, f"{short}: made without its audit record")
        self._must(handoff.epoch == handoff.attempt == (handoff.state is State.CLAIMED), f"{short}: begins wrongly")
        if handoff.part and handoff.parent_id:
            key = (handoff.parent_id, handoff.part)
            self._must(key not in self.named, f"{short}: the part {handoff.part} is delegated twice")
            self._know(self.named, key, handoff.id)
            self._know(self.parts, handoff.parent_id, [*self.parts.get(handoff.parent_id, ()), handoff.id])
        if handoff.state is State.CLAIMED:
            self._judge_capacity(handoff)
        self._count(handoff.state)
        self.history.made(row)
        self._know(self.rows, handoff.id, row)

    def _count(self, state: State) -> None:
        self.world.counts[state.value] += 1

    def _judge_move(self, row: Row, records: set[tuple[str, str]], alerted: set[str]) -> None:
        new, before = row.handoff, self.rows[row.handoff.id]
        old, short = before.handoff, row.handoff.id[:8]
        stood = (old.state, old.epoch, old.attempt, old.holder, old.to_agent, before.result)
        stands = (new.state, new.epoch, new.attempt, new.holder, new.to_agent, row.result)
        if row.head != before.head:
            self._must((new.id, row.head) in records, f"{short}: {new.status} without its audit record")
        elif stands != stood:
            self._must(False, f"{short}: {old.status} became {new.status} without an audit record")  # noqa: FBT003
        if old.state in ENDED:
            self._must(stands == stood, f"{short}: {old.status}, and then changed: a late return was applied")
        elif stands != stood:
            self._judge_claim(row, before)
            if new.state is State.PARKED:
                self._must(new.id in alerted, f"{short}: parked, and nobody is told")
            if new.state is not old.state or new.epoch != old.epoch or self._is_own(new.id):
                self.history.moved(row)
        if new.state is not old.state:
            self._count(new.state)
        self._know(self.rows, new.id, row)

    def _is_own(self, handoff_id: str) -> bool:
        return self.step is not None and self.step.id == handoff_id

    def _judge_claim(self, row: Row, before: Row) -> None:
        new, old, short = row.handoff, before.handoff, row.handoff.id[:8]
        if new.epoch != old.epoch:
            self._must(old.state is State.OFFERED, f"{short}: claimed while {old.status}: two owners at a time")
            self._must(new.epoch == old.epoch + 1, f"{short}: epoch {new.epoch} after {old.epoch}")
            self._must(new.attempt == old.attempt + 1, f"{short}: attempt {new.attempt} after {old.attempt}")
            self._must(new.attempt <= new.max_attempts, f"{short}: attempt {new.attempt} of {new.max_attempts}")
            self._judge_capacity(new)
            return
        self._must(new.state is not State.CLAIMED or old.state is State.CLAIMED, f"{short}: held without a claim")
        if new.state is State.CLAIMED:
            self._must(new.holder == old.holder, f"{short}: passed from {old.holder} to {new.holder} within a claim")
        uncounted = self.step is not None and self.step.uncount
        self._must(new.attempt == old.attempt - uncounted * (old.attempt > 0), f"{short}: attempts counted wrongly")
        step = self.step
        if self._is_own(new.id) and step is not None and step.epoch is not None:
            current = old.state is State.CLAIMED and step.epoch == old.epoch
            self._must(current, f"{short}: a step of claim {step.epoch} was applied, the current one is {old.epoch}")

    def _judge_capacity(self, taken: Handoff) -> None:
        agent = taken.to_agent
        if (most := self.capacity.get(agent)) is None:
            return
        waiting, above = set(), taken.parent_id  # what waits for this very work does not count
        while above in self.rows:
            waiting.add(above)
            above = self.rows[above].handoff.parent_id
        rows = (one.handoff for one in self.rows.values() if one.handoff.id not in waiting)
        held = sum(one.state is State.CLAIMED and one.to_agent == agent for one in rows)
        self._must(held < most, f"{agent}: takes more than {most} at once")

    def _judge_money(self, store: Store, change: Change, given: list[Row]) -> None:
        if change.sums is None:
            return
        flow = store.workflow(change.sums.workflow_id)
        if flow is None:
            return
        held = (flow.tokens_reserved, flow.cost_reserved)
        self._must(min(*held, flow.tokens_spent, flow.cost_spent) >= 0, f"{flow.id}: {held} set aside, less than none")
        tokens, cost = self.limits.get(flow.id, (None, None))
        if tokens is not None and any(row.tokens_reserved for row in given):
            total = flow.tokens_spent + flow.tokens_reserved
            self._must(total <= tokens, f"{flow.id}: {total} tokens spent or set aside of {tokens}")
            self.world.counts["reservations"] += 1
        if cost is not None and any(row.cost_reserved for row in given):
            total = flow.cost_spent + flow.cost_reserved
            self._must(total <= cost, f"{flow.id}: {total} millionths spent or set aside of {cost}")

    def _judge_end(self, store: Store, row: Row) -> None:
        handoff, short = row.handoff, row.handoff.id[:8]
        if handoff.state is not State.CLAIMED:
            held = [one.path for one in store.locks() if one.owner == handoff.id and one.granted]
            self._must(not held, f"{short}: {handoff.status}, and still locks {held}")
        if handoff.state not in ENDED:
            return
        for part in self.parts.get(handoff.id, ()):
            one = self.rows[part].handoff
            open_ = not one.ended and one.return_protocol.expected
            self._must(not open_, f"{short}: ended, and its part {part[:8]} was not called off")
        if handoff.broadcast_group_id and handoff.aggregation is not None:
            self._judge_group(store, row)

    def _judge_group(self, store: Store, row: Row) -> None:
        """A group that is decided is closed in the same transaction, and stays as it was decided."""
        group, rule = row.handoff.broadcast_group_id, row.handoff.aggregation
        parent = self.rows[row.handoff.line_id].handoff.parent_id
        given = [
            answer
            for head, answer in store.group_answers(parent, group)  # type: ignore[attr-defined]
            if self.rows[head].handoff.aggregation is not None
        ]
        if rule is None or not (outcome := tally(rule, given)).status:
            return
        left = [answer for answer in given if answer is None]
        ended = self.rows[parent].handoff.ended
        self._must(not left or rule.mode == "all" or ended, f"group {group[:8]}: {outcome.status}, and still open")
        said = (outcome.status, repr(outcome.output))
        if rule.mode != "all" and not ended:
            known = self.decided.get(group, said)
            self._must(known == said, f"group {group[:8]}: closed as {known}, and again as {said}")
            self._know(self.decided, group, said)
            self.world.counts[f"group {rule.mode}"] += group not in self.decided


def _told(came: Any) -> str:
    if getattr(came, "won", None) is False and came.handoff is None:
        return "nothing"
    handoff = getattr(came, "handoff", came[0] if isinstance(came, tuple) else None)
    if handoff is None or not hasattr(handoff, "id"):
        return str(came)[:80]
    said = f"{handoff.id[:8]} {handoff.from_agent}→{handoff.to_agent} {handoff.status} claim {handoff.epoch}"
    verdict = getattr(came, "verdict", None)
    return said if verdict is None or verdict.kind == "allow" else f"{said} ({verdict.kind}: {verdict.reason:.60})"
