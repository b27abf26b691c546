"""Notes when the steps of a handoff begin and end, and tells the hooks. Only there when a relay has hooks."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from baton import clock
from baton.lifecycle import StepName
from baton.telemetry.base import Hook, Passed

if TYPE_CHECKING:
    from baton.guards.base import Facts, Verdict
    from baton.protocol.handoff import Handoff
    from baton.protocol.limits import Limits

    Judge = Callable[[Handoff, Facts, Limits], Verdict]

T = TypeVar("T")
Span = tuple[int, int, str]  # began, ended, outcome

logger = logging.getLogger("baton")

KEPT = 4096  # handoffs under way of which notes are kept
# Where the supervisor or a person moved it, with no turn before: which step that belongs to, by event or state.
MOVED: dict[str, StepName] = {
    "approved": "validate", "waiting": "validate", "refused": "validate", "reroute": "validate", "escalate": "validate",
    "offered": "initiate", "wake": "initiate",
    "miss": "acknowledge", "rejected": "accept", "reject": "accept",
    "reclaim": "release", "release": "release", "retry": "release", "park": "release", "parked": "release",
    "deferred": "release", "defer": "release", "stopped": "release",
    "completed": "complete", "failed": "complete", "cancelled": "complete", "complete": "complete", "fail": "complete",
    "cancel": "complete", "deny": "complete", "late": "complete",
}  # fmt: skip


class Note:
    """What is known of a handoff on its way from one step to the next."""

    __slots__ = ("acknowledge", "due", "executed", "prepare", "settled", "trigger", "validate")

    def __init__(self) -> None:
        self.trigger: Span | None = None
        self.prepare: Span | None = None
        self.validate: Span | None = None
        self.acknowledge: Span | None = None
        self.due = 0  # when it was last seen that another handoff has to follow from it
        self.executed = 0
        self.settled = 0


class Trace:
    """The hooks of one relay, and where each handoff stands between two steps."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []
        self._notes: OrderedDict[str, Note] = OrderedDict()

    def due(self, sender_id: str = "") -> None:
        """From this handoff, or from outside, another one has to follow: it was triggered, and is prepared now."""
        self._note(sender_id).due = clock.now()

    def prepared(self, handoff: Handoff) -> Handoff:
        """A handoff that is about to be offered, with the trace context that it takes along."""
        now, before = clock.now(), self._note(handoff.parent_id)
        due = before.due or now
        note = self._note(handoff.id)
        note.trigger = (before.executed or due, due, handoff.type)
        note.prepare = (due, now, "")
        for hook in self.hooks:
            with _harmless(hook, handoff):
                handoff = msgspec.structs.replace(handoff, traceparent=hook.carry(handoff, note.trigger[0]))
        return handoff

    def timed(self, step: Literal["validate", "acknowledge"], judge: Judge) -> Judge:
        """The same question to the guards, with a note of when it was asked and what they said."""

        def asked(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
            began = clock.now()
            verdict = judge(handoff, facts, limits)
            setattr(self._note(handoff.id), step, (began, clock.now(), verdict.kind))
            return verdict

        return asked

    async def work(self, handoff: Handoff, work: Awaitable[T]) -> T:
        """The agent's work, inside of what each hook puts around it."""
        note, began, outcome = self._note(handoff.id), clock.now(), "returned"
        note.executed = note.settled = note.due = 0
        try:
            with ExitStack() as around:
                for hook in self.hooks:
                    around.enter_context(_around(hook, handoff))
                return await work
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            note.executed = clock.now()
            self._pass("execute", handoff, (began, note.executed, outcome))

    def settled(self, handoff_id: str) -> None:
        """What the agent gave back has become a step, which is committed now."""
        self._note(handoff_id).settled = clock.now()

    def joined(self, parent_id: str, parts: Sequence[Handoff]) -> None:
        """The answers of several that were asked together are there."""
        for hook in self.hooks:
            with _harmless(hook, parts[0]):
                hook.joined(parent_id, parts)

    def told(self, event: str, handoff: Handoff) -> None:
        """Something happened to a handoff, and is committed: the steps that led there are over."""
        now, note = clock.now(), self._note(handoff.id)
        if event == "initiated":
            self._initiated(handoff, note, now)
        elif event == "accepted":
            asked = note.acknowledge or (now, now, "")
            self._pass("acknowledge", handoff, asked)
            self._pass("accept", handoff, (asked[1], now, event))
            note.acknowledge = None
        elif note.settled:
            self._pass("return", handoff, (note.executed or note.settled, note.settled, ""))
            self._pass("complete", handoff, (note.settled, now, event))
            self._pass("release", handoff, (now, now, event))
            self._notes.pop(handoff.id, None)
        elif note.acknowledge is not None:
            self._pass("acknowledge", handoff, note.acknowledge)
            self._pass("accept", handoff, (note.acknowledge[1], now, event))
            note.acknowledge = None
        elif step := MOVED.get(event):
            self._pass(step, handoff, (now, now, event))

    def _initiated(self, handoff: Handoff, note: Note, now: int) -> None:
        began = now
        steps: tuple[tuple[StepName, Span | None], ...] = (
            ("trigger", note.trigger), ("prepare", note.prepare), ("validate", note.validate),
        )  # fmt: skip
        for step, span in steps:
            if span is not None:
                self._pass(step, handoff, span)
                began = span[1]
        state, ended = handoff.status, now
        if handoff.holder and note.acknowledge is not None:  # claimed in the same commit: that is told next
            state, ended = "offered", note.acknowledge[0]
        self._pass("initiate", handoff, (began, ended, state))
        note.trigger = note.prepare = note.validate = None

    def _pass(self, step: StepName, handoff: Handoff, span: Span) -> None:
        passed = Passed(step, handoff, *span)
        for hook in self.hooks:
            with _harmless(hook, handoff):
                hook.passed(passed)

    def _note(self, handoff_id: str) -> Note:
        note = self._notes.get(handoff_id)
        if note is None:
            note = self._notes[handoff_id] = Note()
            if len(self._notes) > KEPT:
                self._notes.popitem(last=False)
        return note


@contextmanager
def _harmless(hook: Hook, handoff: Handoff) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        logger.exception("the telemetry hook %s failed at handoff %s", type(hook).__name__, handoff.id)


@contextmanager
def _around(hook: Hook, handoff: Handoff) -> Iterator[None]:
    """What a hook puts around the work; it sees the error of the work, and neither swallows it nor adds its own."""
    with ExitStack() as stack:
        with _harmless(hook, handoff):
            around = hook.working(handoff)
            around.__enter__()
            stack.push(lambda *error: _leave(hook, handoff, around.__exit__, error))
        yield


def _leave(hook: Hook, handoff: Handoff, leave: Callable[..., object], error: Sequence[object]) -> None:
    try:
        leave(*error)
    except BaseException as raised:
        if raised is not error[1]:
            logger.exception("the telemetry hook %s failed at handoff %s", type(hook).__name__, handoff.id)
