"""What the steps share: the store, the agents of this process, and how they are run."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from baton import guards
from baton.errors import BatonError
from baton.flow.rights import Rights
from baton.lifecycle import OPEN, Event, State
from baton.protocol.codec import near
from baton.protocol.context import Fetch
from baton.protocol.handoff import HUMAN
from baton.protocol.limits import RISKS, Limits, tightest
from baton.protocol.registry import HealthRules, as_rules
from baton.protocol.variables import NOTHING, Variables, freeze, thaw
from baton.routing.ladder import as_ladder
from baton.stores.base import Claim, Offer, Step
from baton.stores.wake import Hub, Writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from baton.agents.base import Agent
    from baton.guards.base import Facts, Verdict
    from baton.protocol.artifacts import Artifact
    from baton.protocol.context import Blob
    from baton.protocol.groups import Aggregation, Answers, Gained
    from baton.protocol.handoff import Handoff
    from baton.protocol.profile import Profile
    from baton.protocol.registry import Described
    from baton.protocol.results import Command, Return
    from baton.protocol.variables import Reducer
    from baton.stores.base import Store
    from baton.telemetry.base import Hook
    from baton.telemetry.trace import Trace

T = TypeVar("T")
logger = logging.getLogger("baton")

CACHED_STATES = 256
ASIDE_LOOK = 0.5  # seconds between two looks whether work beside still goes on here
JUDGES: dict[str, Literal["validate", "acknowledge"]] = {
    "judge_offer": "validate", "judge_group": "validate", "judge_claim": "acknowledge",
}  # fmt: skip
BOUNDS = ("max_handoffs", "max_agents", "max_depth", "max_tokens", "max_cost", "max_seconds", "max_escalations")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a crew works."""

    limits: Limits = Limits()
    lease: float = 60.0
    backoff: float = 2.0
    handoffs: bool = True
    independent: bool = False  # after an error of a handoff, the sender finishes alone
    routes: dict[str, tuple[str, ...]] = {}
    delegation_timeout: float = 600.0
    sequence: dict[str, str] = {}  # who comes next when an agent is done
    escalation: tuple[str, ...] = ()  # who decides what others cannot, lowest first; a person is always the last
    reducers: Mapping[str, Reducer] = {}  # how what is written to a variable joins what is there
    roots: tuple[str, ...] = ()  # where artifacts may stand, beside relative paths
    health: HealthRules = HealthRules()
    registry: str = ""  # the operator's file, where there is one


def settings_from(given: Mapping[str, Any], **fixed: Any) -> Settings:
    """Settings from what a program gives, whose ladder and rules may be said in more than one way."""
    ladder, rules = as_ladder(given.get("escalation", ())), as_rules(given.get("health"))
    return Settings(**{**given, **fixed, "escalation": ladder, "health": rules})


class Running:
    """One claim that this process works on."""

    __slots__ = (
        "artifacts",
        "cost",
        "decided",
        "ended",
        "epoch",
        "escalated",
        "gained",
        "lost",
        "note",
        "over",
        "overspent",
        "pending",
        "task",
        "tokens",
        "told",
    )  # fmt: skip

    def __init__(self, epoch: int, task: asyncio.Task[Any] | None) -> None:
        self.epoch = epoch
        self.task = task
        self.pending = task.cancelling() if task is not None else 0  # cancellations that others asked for before
        self.ended = False  # its task may be at something else by now
        self.told = False  # whether its task was cancelled because the claim is lost
        self.over: Future[None] | None = None  # made where a later attempt waits for the end of this one
        self.lost = ""
        self.escalated = ""
        self.overspent = ""
        self.tokens = 0
        self.cost = 0
        self.gained: Gained | None = None  # by the work that was delegated
        self.artifacts: tuple[Artifact, ...] = ()
        self.decided: list[dict[str, Any]] = []  # in what it wrote before its parts began
        self.note = ""

    def end(self) -> Future[None]:
        """What is done when this attempt has ended."""
        if self.over is None:
            self.over = Future()
        return self.over


class Crew:
    """The agents of one process around one store."""

    def __init__(self, store: Store, holder: str, settings: Settings) -> None:
        self.store = store
        self.holder = holder
        self.settings = settings
        self.nested = False
        self._approving: set[str] = set()  # names in `approve` that were looked at
        self._routed: set[str] = set()  # and keys of `routes`
        self._limits = (settings.limits, settings.limits)
        self.claim = Claim(holder=holder, lease=int(settings.lease * 1e6))
        self.agents: dict[str, Agent] = {}
        self.profiles: dict[str, Profile] = {}
        self.described: Mapping[str, Described] = {}  # agents as the operator's file describes them
        self.rights = Rights(self)
        self.ill: frozenset[str] = frozenset()  # agents whose own health check failed, as last seen
        self.running: dict[str, Running] = {}
        self.outlasting: dict[tuple[str, int], tuple[Handoff, Future[Any]]] = {}  # cancelled; their functions go on
        self.listeners: list[Callable[[str, Handoff], None]] = []
        self.trace: Trace | None = None  # where somebody wants to be told of each step
        self.failures: dict[str, BaseException] = {}
        self.seal: Callable[[], int] = lambda: 0
        self.minders: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self.hub = Hub(store)
        self.write = Writer(store, self.hub)
        self.entrust: Callable[[Offer], Awaitable[tuple[Handoff, Return]]]
        self.run_line: Callable[[Handoff], Awaitable[Return]]
        self.gather: Callable[[Sequence[Offer], Aggregation], Awaitable[tuple[list[Handoff], Answers]]]
        self.asides: dict[asyncio.Future[Return], Handoff] = {}  # work for whose answer nobody waits
        self.busy: set[asyncio.Task[object]] = set()  # of a worker: what runs and was not told to stop
        self.serving = 0  # how many workers of this process take whatever is offered
        self._variables: OrderedDict[str, Variables] = OrderedDict()

    @property
    def fetch(self) -> Fetch:
        """How content is read by digest."""
        return self.store.fetch

    def judge_offer(self, handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
        """Whether this handoff may be made: within the workflow's limits, and those of who makes it."""
        return guards.decide(guards.OFFER, handoff, self.rights.judged(facts), self._both(limits))

    def judge_group(self, handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
        """Whether this handoff of a group may be made, and what is set aside for it."""
        return guards.decide(guards.GROUP, handoff, self.rights.judged(facts), self._both(limits))

    def judge_claim(self, handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:
        """Whether this handoff may be taken now: within the workflow's limits, and those of who takes it."""
        judged = self.rights.judged(facts)
        verdict = guards.decide(guards.CLAIM, handoff, judged, self._both(limits))
        if judged is facts or judged.target is None:
            return verdict
        return msgspec.structs.replace(verdict, seconds=judged.target.max_execution_time)

    def _both(self, limits: Limits) -> Limits:
        if limits is not self._limits[0]:
            self._limits = (limits, within(limits, self.settings.limits))
        return self._limits[1]

    def check_approve(self, limits: Limits) -> None:
        """Warn, once, of names in `approve` that nobody has: they would protect nothing."""
        if not limits.approve or "*" in limits.approve:
            return
        if new := set(limits.approve) - self.agents.keys() - self._approving:
            self._approving |= new
            known = [row.profile.agent_id for row in self.store.agents()]
            for name in sorted(new - {*known, HUMAN}):
                logger.warning(
                    "approve names %s, and no agent is called so: nobody is asked about it; %s", name, near(name, known)
                )

    def leads_out(self, command: Command) -> bool:
        """Whether it is a command for the relay around this one."""
        return self.nested and command.graph == command.PARENT

    def check_routes(self) -> None:
        """Warn, once, of keys of `routes` that are agents and no capabilities: nothing would be routed by them."""
        if new := self.settings.routes.keys() - self._routed:
            self._routed |= new
            profiles = [row.profile for row in self.store.agents()]
            new -= {name for one in profiles for name in one.abilities}
            for name in sorted(new & {one.agent_id for one in profiles}):
                logger.warning(
                    "routes names %s, which is an agent and no capability: nothing is routed by it; write what the "
                    "work needs, as in routes={'refunds': ['billing']}",
                    name,
                )

    def variables(self, ref: str) -> Variables:
        """Shared variables by digest; the newest are kept at hand."""
        if not ref:
            return NOTHING
        found = self._variables.get(ref)
        return self._keep(thaw(ref, self.fetch)) if found is None else found

    def freeze(self, variables: Variables) -> tuple[str, list[Blob]]:
        """Their digest, and what has to be stored for it."""
        if variables.ref or variables is NOTHING:
            return variables.ref, []
        frozen, blobs = freeze(variables)
        return self._keep(frozen).ref, blobs

    def _keep(self, variables: Variables) -> Variables:
        self._variables[variables.ref] = variables
        if len(self._variables) > CACHED_STATES:
            self._variables.popitem(last=False)
        return variables

    def writes(self, agent: str) -> Sequence[str]:
        """The variables of others that an agent may write; a person may write all."""
        if agent == HUMAN:
            return ("*",)
        if (known := self.profiles.get(agent)) is not None:
            return known.writes
        row = self.store.agent(agent)
        return () if row is None else row.profile.writes

    async def commit(self, operation: Callable[[], T], unwanted: Callable[[T], None]) -> T:
        """Write; a caller that is cancelled, at whatever moment, leaves what came of it to `unwanted`, once."""
        if not self.write.shared:
            return self.write.alone(operation)  # without a pause in which it could be cancelled
        came: list[T] = []

        def keep() -> T:
            came[:] = [operation()]
            return came[0]

        def drop(_: T | None = None) -> None:
            if came:
                unwanted(came.pop())

        try:
            return await self.write(keep, drop)
        except asyncio.CancelledError:
            drop()  # the writer may have answered just before, and takes this caller for served
            raise

    def leave(self, handoffs: Sequence[Handoff]) -> None:
        """Work on these beside what is waited for; where a worker serves, it takes them in their turn."""
        if self.serving:
            self.hub.notify()
            return
        for handoff in handoffs:
            task = asyncio.ensure_future(self.run_line(handoff))
            self.asides[task] = handoff
            task.add_done_callback(self._aside)

    async def beside(self, workflow_id: str) -> None:
        """Wait for what this event loop works on beside in a workflow; not for what others have to go on with."""
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        while found := [
            task
            for task, head in self.asides.items()
            if head.workflow_id == workflow_id and task.get_loop() is loop and task is not this and self._goes_on(head)
        ]:
            await asyncio.wait(found, timeout=ASIDE_LOOK)

    def _goes_on(self, head: Handoff) -> bool:
        """Whether this process can still work on that line: it stands with nobody else."""
        stands = self.store.find(workflow_id=head.workflow_id, line_id=head.line_id, state=tuple(OPEN), limit=1)
        if not stands or stands[0].state in {State.WAITING, State.PARKED}:
            return False
        return stands[0].to_agent in self.agents

    def _aside(self, task: asyncio.Future[Return]) -> None:
        self.asides.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("work for whose answer nobody waits stopped", exc_info=error)

    def observe(self, hooks: Sequence[Hook]) -> None:
        """Tell these hooks, too, of every step that is taken from now on."""
        if not hooks:
            return
        if self.trace is None:
            from baton.telemetry.trace import Trace

            self.trace = Trace()
            for name, step in JUDGES.items():  # so that nobody pays for it who is not told
                setattr(self, name, self.trace.timed(step, getattr(self, name)))
        self.trace.hooks += hooks

    def tell(self, event: str, handoff: Handoff) -> None:
        """Let the hooks and the listeners know what happened."""
        if self.trace is not None:
            self.trace.told(event, handoff)
        for listener in self.listeners:
            try:
                listener(event, handoff)
            except KeyboardInterrupt:
                raise
            except BaseException:
                # What is told has happened: a listener cannot undo it, and must not stop what follows from it.
                logger.exception("a listener failed at %s of handoff %s", event, handoff.id)


def within(given: Limits | None, ceiling: Limits) -> Limits:
    """The limits of one run: its own, but never beyond what the relay was given or past whom it asks."""
    if given is None:
        return ceiling
    plain = Limits()
    set_here = {name: getattr(ceiling, name) for name in BOUNDS if getattr(ceiling, name) != getattr(plain, name)}
    chosen = tightest(given, Limits(**{**dict.fromkeys(BOUNDS), **set_here}))
    risks = [risk for risk in (given.approve_risk, ceiling.approve_risk) if risk is not None]
    return msgspec.structs.replace(
        chosen,
        approve=tuple(dict.fromkeys((*given.approve, *ceiling.approve))),
        approve_risk=min(risks, key=RISKS.index, default=None),
        approval_seconds=given.approval_seconds if given.approval_seconds is not None else ceiling.approval_seconds,
    )


def objection(crew: Crew, verdict: Verdict, to_agent: str) -> str:
    """Why not, with the names that may have been meant."""
    if verdict.error != "UnknownAgent":
        return verdict.reason
    return f"{verdict.reason}; {near(to_agent, [row.profile.agent_id for row in crew.store.agents()])}"


def give_back(crew: Crew, taken: Handoff | None, *, uncount: bool = True) -> None:
    """A clean stop: work that was claimed here is offered again, and the attempt does not count.

    At once, or when a function that could not be stopped has ended: nobody else may begin beside it.
    """
    if taken is None or taken.state is not State.CLAIMED or taken.holder != crew.holder:
        return
    if (key := (taken.id, taken.epoch)) in crew.outlasting:
        crew.outlasting[key][1].add_done_callback(lambda _: let_go(crew, key))
        return
    due = crew.store.now() + int(crew.settings.lease * 1e6)
    step = Step(
        id=taken.id, event=Event.RELEASE, epoch=taken.epoch, reason="its worker stopped", due_at=due, uncount=uncount
    )
    with suppress(BatonError):
        crew.store.advance(step)
    crew.hub.notify()


def let_go(crew: Crew, key: tuple[str, int]) -> None:
    """Give back what a cancelled function held."""
    taken, _ = crew.outlasting.pop(key, (None, None))
    give_back(crew, taken)


def forget(crew: Crew, lost: Handoff) -> None:
    """Of a claim that was lost, a function that goes on is remembered only until it ends."""
    if (key := (lost.id, lost.epoch)) in crew.outlasting:
        crew.outlasting[key][1].add_done_callback(lambda _: crew.outlasting.pop(key, None))
