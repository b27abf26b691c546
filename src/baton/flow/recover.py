"""What to do with work whose time has come, whose owner died, or that somebody refused.

Every decision is a pure function from the handoff and a few facts to one step; `sweep` gathers the facts and commits.
Doubt is not death: a claim is taken back only when its lease is over or its process is certainly gone.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from baton.errors import IllegalTransition, StoreError, safe
from baton.flow import escalate, health
from baton.flow.others import Others, others, trail
from baton.guards import breaker
from baton.guards.health import said
from baton.guards.triggers import timeout
from baton.lifecycle import AUDIT_NAME, Event, State
from baton.protocol.codec import to_microseconds
from baton.protocol.handoff import HUMAN, SUPERVISOR
from baton.protocol.results import failed
from baton.routing.ladder import Next
from baton.stores import holder
from baton.stores.base import Step
from baton.stores.rows import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from baton.flow.crew import Crew
    from baton.protocol.handoff import Handoff
    from baton.stores.base import Store

T = TypeVar("T")
logger = logging.getLogger("baton")

GRACE_SHARE = 0.1
GRACE_LEAST = 30.0
ATTENTION = 30.0
MISSED = AUDIT_NAME[Event.MISS]
REFUSALS = frozenset({AUDIT_NAME[Event.REJECT], MISSED})


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a handoff that is due. Times in microseconds."""

    now: int
    lease_until: int | None = None
    timeout_at: int | None = None
    reminded: bool = False
    others: Others = Others()  # who could take the work instead
    alive: bool = False  # the process that holds it certainly lives; however slow, nobody works beside it
    attended: bool = False  # a worker of its receiver was seen lately, and the receiver is well
    away: str = ""  # why the receiver gets no new work
    refusal: str = ""  # what its receiver, or a guard, said to it last
    by_health: bool = False  # that was because the receiver was not well
    way: escalate.Way = escalate.NOWHERE  # who is next up
    rests: bool = False  # whether a breaker rejected it that is still open
    rested: bool = False  # or one that lets a probe through again
    repeatable: bool = True  # whether the receiver's work may be done twice
    max_reroutes: int | None = 3
    ack: int = 30_000_000
    backoff: float = 2.0


def due_step(handoff: Handoff, facts: Facts) -> Step | None:
    """The one step for a handoff whose time has come; None where it should only be looked at later."""
    if handoff.state is State.CLAIMED:
        return _claimed(handoff, facts)
    if handoff.state is State.OFFERED:
        return _offered(handoff, facts)
    if handoff.state is State.DEFERRED:
        return _step(handoff, Event.WAKE, reason="its time has come", due_at=facts.now + facts.ack)
    if handoff.state is State.REJECTED:
        return _rejected(handoff, facts)
    if handoff.state is State.WAITING:
        result = failed("ApprovalDenied: nobody approved it in time; no answer is not an approval", retryable=False)
        return _step(handoff, Event.DENY, reason="the time to approve is over", result=result)
    return None


def _step(handoff: Handoff, event: Event, **fields: object) -> Step:
    return Step(id=handoff.id, event=event, seen=handoff, by=SUPERVISOR, **fields)  # type: ignore[arg-type]


def _claimed(handoff: Handoff, facts: Facts) -> Step | None:
    if trigger := timeout(handoff, facts.timeout_at, facts.now):
        return _late(handoff, facts, trigger.reason)
    if facts.lease_until is not None and facts.now >= facts.lease_until and not facts.alive:
        return reclaim(handoff, facts, "its lease is over and was not renewed")
    return None


def reclaim(handoff: Handoff, facts: Facts, why: str) -> Step:
    """Take work back from an owner that is gone."""
    if handoff.attempt >= handoff.max_attempts:
        error = f"HandoffFailed: {why}; max_attempts {handoff.max_attempts} are used up"
        if facts.way.came_up:
            return _up(handoff, escalate.to_person(facts.way), error)
        return _step(handoff, Event.FAIL, reason=error, result=failed(error, retryable=False))
    if not facts.repeatable:
        error = f"{why}; {handoff.to_agent} is not idempotent, so a person has to look first"
        return _step(handoff, Event.PARK, reason=error, result=failed(f"HandoffFailed: {error}"))
    return _step(handoff, Event.RECLAIM, reason=why, due_at=facts.now + facts.ack)


def _late(handoff: Handoff, facts: Facts, why: str) -> Step:
    if not facts.reminded:
        given = handoff.return_protocol.timeout or 0.0
        grace = int(max(given * GRACE_SHARE, min(GRACE_LEAST, given)) * 1e6)
        return _step(handoff, Event.REMIND, reason=f"{why}; a last reminder", due_at=facts.now + grace)
    policy = handoff.return_protocol.on_timeout
    error = f"TimedOut: {why}, nor after a reminder"
    result = failed(error, status="timeout")
    if policy == "retry" and not facts.repeatable:
        policy = "escalate"
    if policy == "retry" and handoff.attempt < handoff.max_attempts:
        due = facts.now + int(facts.backoff * 2 ** (handoff.attempt - 1) * 1e6)
        return _step(handoff, Event.RETRY, reason=error, cause="timeout", result=result, due_at=due)
    if policy == "escalate":
        way = facts.way
        if not facts.repeatable:
            way = escalate.to_person(way, f"{handoff.to_agent} is not idempotent")
        elif facts.others.able and not way.ladder:
            way = msgspec.structs.replace(way, next=Next(facts.others.able[0]))
        return _up(handoff, way, error, cause="timeout", result=result)
    return _step(handoff, Event.FAIL, reason=error, cause="timeout", result=result)


def _up(handoff: Handoff, way: escalate.Way, reason: str, **fields: object) -> Step:
    return escalate.step(handoff, way, reason, seen=handoff, by=SUPERVISOR, **fields)


def _rises(handoff: Handoff, way: escalate.Way) -> bool:
    """Whether whoever does not take the work is passed over upwards, and not for somebody beside."""
    if handoff.type == "escalation":
        return True
    return way.ladder and (way.came_up or way.too_risky or (handoff.priority == "critical" and way.is_agent))


def _offered(handoff: Handoff, facts: Facts) -> Step | None:
    if facts.now >= _last_moment(handoff):
        if handoff.type == "escalation" and not _expired(handoff, facts):
            return _step(handoff, Event.REJECT, reason=f"{handoff.to_agent} has not taken it in time")
        return _too_late(handoff)
    if facts.attended or handoff.to_agent == HUMAN:
        return None
    silence = f"{handoff.to_agent} did not acknowledge in {facts.ack / 1e6:g} s"
    if handoff.priority == "critical" and not _rises(handoff, facts.way):
        return _critical(handoff, f"{silence}{facts.away and f' ({facts.away})'}")
    if _rises(handoff, facts.way) or (facts.others.able and _reroutes_left(handoff, facts)):
        return _step(handoff, Event.MISS, reason=silence)
    return None


def _too_late(handoff: Handoff) -> Step:
    error = "TimedOut: the time was over before anybody took the work"
    return _step(handoff, Event.FAIL, reason=error, cause="timeout", result=failed(error, status="timeout"))


def _critical(handoff: Handoff, why: str) -> Step:
    """Critical work waits for nobody and tries nobody else: a person hears of it at once."""
    return _step(handoff, Event.PARK, reason=f"{why}, and the work is critical; a person has to decide")


def _expired(handoff: Handoff, facts: Facts) -> bool:
    return handoff.deadline is not None and facts.now >= to_microseconds(handoff.deadline)


def _reroutes_left(handoff: Handoff, facts: Facts) -> bool:
    return facts.max_reroutes is None or handoff.reroutes < facts.max_reroutes


def _last_moment(handoff: Handoff) -> float:
    ends = [float("inf")]
    if handoff.deadline is not None:
        ends.append(to_microseconds(handoff.deadline))
    if handoff.return_protocol.timeout is not None and not handoff.attempt:
        ends.append(to_microseconds(handoff.timestamp) + handoff.return_protocol.timeout * 1e6)
    return min(ends)


def _rejected(handoff: Handoff, facts: Facts) -> Step | None:
    if _rises(handoff, facts.way):
        return _up(handoff, facts.way, facts.way.last)
    refused = f"{handoff.to_agent} does not take it{facts.refusal and f' ({facts.refusal:.200})'}"
    if handoff.attempt >= handoff.max_attempts:
        why = f"max_attempts {handoff.max_attempts} are used up"
        return _step(handoff, Event.PARK, reason=f"{refused}; {why}; a person has to decide")
    if facts.by_health and handoff.priority == "critical":
        return _critical(handoff, refused)
    left = _reroutes_left(handoff, facts)
    if facts.others.able and left:
        return _rerouted(handoff, facts, facts.others.able[0], refused)
    if facts.rests:
        return _too_late(handoff) if _expired(handoff, facts) else None
    if facts.rested:
        return _rerouted(handoff, facts, handoff.to_agent, f"the breaker of {handoff.to_agent} lets work through again")
    if facts.by_health and left:
        return _rerouted(handoff, facts, handoff.to_agent, f"{refused}; nobody else can do it, so it waits")
    why = (
        f"{handoff.reroutes} of max_reroutes {facts.max_reroutes} used"
        if facts.others.able
        else "nobody else can do it"
    )
    passed = {"passed_over": dict(facts.others.passed)} if facts.others.passed else {}
    reason = f"{refused}; {why}{facts.others.told()}; a person has to decide"
    return _step(handoff, Event.PARK, reason=reason, detail=passed)


def _rerouted(handoff: Handoff, facts: Facts, to_agent: str, why: str) -> Step:
    """On to somebody, with those who were passed over in the record."""
    passed = {name: said for name, said in facts.others.passed.items() if name != to_agent}
    if to_agent != handoff.to_agent:
        why = f"{why}; {to_agent} can{Others(passed=passed).told()}"
    detail = {"passed_over": passed} if passed else {}
    due = facts.now + facts.ack
    return _step(handoff, Event.REROUTE, reason=why, to_agent=to_agent, due_at=due, detail=detail)


def sweep(crew: Crew) -> list[Step]:
    """Move everything that is due, and take back what dead owners of this host held."""
    steps = [*_orphans(crew), *_due(crew)]
    done = [step for step in steps if _each(crew, step.id, partial(_taken, crew, step))]
    if done:
        crew.hub.notify()
    return done


def _taken(crew: Crew, step: Step) -> bool:
    """Take a step, unless somebody else moved the handoff first."""
    try:
        moved = crew.store.advance(step, crew.judge_offer)
    except IllegalTransition:
        return False
    if step.event in {Event.MISS, Event.PARK} and step.seen is not None and step.seen.state is State.OFFERED:
        health.unanswered(crew, moved.handoff.to_agent, step.reason)
    crew.tell(AUDIT_NAME[step.event], moved.handoff)
    _tell_unreadable(crew, moved.handoff)  # the step resolved what was said before
    return True


def _each(crew: Crew, handoff_id: str, look: Callable[[], T]) -> T | None:
    """Look after one handoff; one that cannot be looked after is told to a person, and stops none of the others."""
    try:
        return look()
    except StoreError:
        raise  # that is not about this one
    except Exception as error:  # noqa: BLE001 - whatever stands in one row is no reason to forget the others
        _ill(crew, handoff_id, f"{type(error).__name__}: {error}")
        if (handoff := crew.store.get(handoff_id)) is not None:
            crew.store.postpone(handoff, crew.store.now() + int(ATTENTION * 1e6))
        return None


def _tell_unreadable(crew: Crew, handoff: Handoff) -> None:
    if not handoff.ended and (why := unreadable(handoff)):
        _ill(crew, handoff.id, why)


def _ill(crew: Crew, handoff_id: str, why: str) -> None:
    """Tell a person, once, about a handoff that does not go on by itself."""
    cure = f"`baton handoff cancel {handoff_id[:8]}` ends it, then send it again; or restore the store from a backup"
    text = f"handoff {handoff_id} does not go on by itself: {why}; {cure}"
    if all(alert.text != text for alert in crew.store.alerts()):
        crew.store.raise_alert(handoff_id, text)
        logger.error("%s", safe(text))


def _orphans(crew: Crew) -> list[Step]:
    lives: dict[str, holder.Life] = {}
    steps = []
    for handoff_id, name in crew.store.held():
        if name == crew.holder:
            continue
        if name not in lives:
            lives[name] = holder.life(name)
        if lives[name] == "dead":
            steps.append(_each(crew, handoff_id, partial(_orphan, crew, handoff_id, name)))
    return [step for step in steps if step is not None]


def _orphan(crew: Crew, handoff_id: str, name: str) -> Step | None:
    handoff = crew.store.get(handoff_id)
    if handoff is None or handoff.holder != name:
        return None
    return reclaim(handoff, _facts(crew, handoff), f"{holder.readable(name)} died")


def _due(crew: Crew) -> list[Step]:
    found = [_each(crew, handoff.id, partial(_look, crew, handoff)) for handoff in crew.store.due()]
    return [step for step in found if step is not None]


def _look(crew: Crew, handoff: Handoff) -> Step | None:
    """What follows for a handoff that is due; where nothing does, it is looked at again later."""
    facts = _facts(crew, handoff)
    step = due_step(handoff, facts)
    if step is None:
        _look_later(crew.store, handoff, facts)
        _tell_unreadable(crew, handoff)
    return step


def _look_later(store: Store, handoff: Handoff, facts: Facts) -> None:
    """Nothing to decide: somebody works on it, or nobody else could; then a person hears of it once."""
    if handoff.state is State.CLAIMED:
        _stuck(store, handoff, facts)
        return
    last = _last_moment(handoff)
    ends = None if last == float("inf") else int(last)
    if handoff.state is State.OFFERED and handoff.to_agent != HUMAN and not facts.attended:
        told = any(alert.subject == handoff.id for alert in store.alerts())
        if store.postpone(handoff, ends) and not told:
            waited = f"no worker of {handoff.to_agent} has taken it for {facts.ack / 1e6:g} s"
            why = f"{facts.away and f' ({facts.away})'}{facts.others.told()}"
            store.raise_alert(handoff.id, f"{waited}{why}; start one: `baton worker --app …`")
    else:
        store.postpone(handoff, min(facts.now + facts.ack, int(min(last, 2**62))))


def _stuck(store: Store, handoff: Handoff, facts: Facts) -> None:
    """Its owner lives and does not renew: a person hears of it, and nobody else works beside it."""
    again = facts.now + facts.ack
    told = any(alert.subject == handoff.id for alert in store.alerts())
    if store.postpone(handoff, again if facts.timeout_at is None else min(again, facts.timeout_at)) and not told:
        who = holder.readable(handoff.holder)
        store.raise_alert(handoff.id, f"{handoff.to_agent} is stuck: {who} lives but does not renew its claim")


def _is_alive(crew: Crew, handoff: Handoff) -> bool:
    if handoff.holder == crew.holder:
        return handoff.id in crew.running or (handoff.id, handoff.epoch) in crew.outlasting
    return holder.life(handoff.holder) == "alive"


def _facts(crew: Crew, handoff: Handoff) -> Facts:
    store = crew.store
    now = store.now()
    flow = store.workflow(handoff.workflow_id)
    limits = flow.limits if flow is not None else crew.settings.limits
    lease_until, timeout_at, reminded = store.timers(handoff.id)
    receiver = store.agent(handoff.to_agent)
    seen = receiver.health.seen_at if receiver is not None else None
    away = said(receiver.health) if receiver is not None else ""
    ack = int(limits.ack_seconds * 1e6)
    records = trail(crew, handoff)
    refusals = [one for one in records if one.event_type in REFUSALS] if handoff.state is State.REJECTED else []
    last = refusals[-1] if refusals else None
    by_breaker = last is not None and last.detail.get("error") == "BreakerOpen"
    is_open = by_breaker and any(
        row.subject in breaker.subjects(handoff) and breaker.state(row, now) == "open" for row in store.breakers()
    )
    return Facts(
        rests=is_open,
        rested=by_breaker and not is_open,
        now=now,
        lease_until=lease_until,
        timeout_at=timeout_at,
        reminded=reminded,
        alive=handoff.state is State.CLAIMED and _is_alive(crew, handoff),
        others=others(crew, handoff, limits, records),
        way=escalate.ahead(crew, handoff),
        attended=not away
        and (handoff.to_agent in crew.agents or (seen is not None and now - seen < max(ack, ATTENTION * 1e6))),
        away=away,
        refusal=last.reason if last is not None else "",
        by_health=last is not None and (last.event_type == MISSED or last.detail.get("limit") == "available"),
        repeatable=receiver is None or receiver.profile.idempotent,
        max_reroutes=limits.max_reroutes,
        ack=ack,
        backoff=crew.settings.backoff,
    )


def elsewhere(crew: Crew, handoff: Handoff) -> bool:
    """Whether somebody could take a handoff instead, as things stand."""
    facts = _facts(crew, handoff)
    return bool(facts.others.able) or _rises(handoff, facts.way)
