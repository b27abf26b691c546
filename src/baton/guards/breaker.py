"""Circuit breakers: an agent or route that failed three times in a row rests before it gets more work.

A breaker opens at the third failure in a row, for 30 s. After that it is half-open: one handoff, the probe,
is let through. Where the probe succeeds the breaker is forgotten, where it fails it opens for twice as long,
at most 10 minutes. There is one for each agent, each route and each class of failure, so that one bad agent
stops nobody else. A row is stored; what state it means depends on the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from baton.guards.base import ALLOW, Breaker, Facts, Verdict
from baton.lifecycle import Event
from baton.protocol.handoff import HUMAN, USER, Handoff
from baton.protocol.limits import Limits
from baton.protocol.results import Return

THRESHOLD = 3
COOL_DOWN = 30_000_000
LONGEST = 600_000_000
_DOUBLINGS = 5  # 30 s * 2^5 is beyond LONGEST; the bound keeps the number small after a thousand failures

Mode = Literal["closed", "open", "half-open"]
Failure = Literal["error", "timeout", "unavailable"]

_PROBE = Verdict(probe=True)


def subjects(handoff: Handoff) -> tuple[str, str]:
    """The names of the two breakers that a handoff depends on: its receiver's and its route's."""
    return f"agent:{handoff.to_agent}", f"route:{handoff.from_agent}->{handoff.to_agent}"


def cool_down(breaker: Breaker) -> int:
    """How long it stays open, in microseconds."""
    return min(COOL_DOWN << min(max(breaker.opens - 1, 0), _DOUBLINGS), LONGEST)


def state(breaker: Breaker, now: int) -> Mode:
    """Closed lets work through, open does not, half-open lets one handoff through to try."""
    if breaker.opened_at is None:
        return "closed"
    return "open" if now < breaker.opened_at + cool_down(breaker) else "half-open"


def failure(event: Event, result: Return | None = None, cause: str = "") -> Failure | None:
    """What class of failure a step is, or None where it says nothing against the agent.

    Rejections, refusals and cancellations are answers, a return that says it is not retryable blames the request,
    and a process that died says nothing about what it ran: none of them count.
    """
    if event is Event.MISS:
        return "unavailable"
    if event not in {Event.RETRY, Event.FAIL, Event.ESCALATE, Event.PARK}:
        return None
    if cause == "timeout" or (result is not None and result.status == "timeout"):
        return "timeout"
    return "error" if result is not None and result.status == "failed" and result.retryable else None


def after_failure(breaker: Breaker, now: int, handoff_id: str = "") -> Breaker:
    """The breaker after one more failure; with the id, an older handoff does not decide for the probe."""
    more = replace(breaker, failures=breaker.failures + 1)
    if _is_older(breaker, now, handoff_id) or (breaker.opened_at is None and more.failures < THRESHOLD):
        return more
    return replace(more, opens=breaker.opens + 1, opened_at=now, probing="")


def after_success(breaker: Breaker, now: int, handoff_id: str = "") -> Breaker | None:
    """The breaker as good as new (no failures: a store forgets it), or None where nothing changes."""
    if not breaker.failures or _is_older(breaker, now, handoff_id):
        return None
    return Breaker(breaker.subject, breaker.failure)


def after_nothing(breaker: Breaker, handoff_id: str) -> Breaker | None:
    """The breaker after its probe ended and proved nothing; None where the handoff was not its probe."""
    return replace(breaker, probing="") if breaker.probing and breaker.probing == handoff_id else None


def settled(
    handoff: Handoff, breakers: Iterable[Breaker], outcome: Failure | Literal["success", ""], now: int
) -> tuple[Breaker, ...]:
    """The breakers of a handoff that change with its outcome; "" is an end that proves nothing.

    `breakers` are the stored ones of its receiver and its route; a failure adds those that are missing.
    """
    rows = {(one.subject, one.failure): one for one in breakers}
    changed: list[Breaker | None] = []
    if outcome not in {"", "success"}:
        for subject in subjects(handoff):
            row = rows.pop((subject, outcome), None) or Breaker(subject, outcome)
            changed.append(after_failure(row, now, handoff.id))
    for row in rows.values():
        success = outcome == "success"
        changed.append(after_success(row, now, handoff.id) if success else after_nothing(row, handoff.id))
    return tuple(row for row in changed if row is not None)


def rested(handoff: Handoff, facts: Facts, _limits: Limits) -> Verdict:
    """Reject while a breaker of the receiver or the route is open; half-open, let one handoff probe.

    What a program starts in the name of `user` and does itself at once may probe at any time: whoever started it
    sees how it ends, and may have cured the fault. A breaker is there for work that nobody looks at.
    """
    if not facts.breakers or handoff.to_agent == HUMAN:
        return ALLOW
    verdict = ALLOW
    by_hand = handoff.from_agent == USER and facts.begins
    for breaker in facts.breakers:
        mode = state(breaker, facts.now)
        if mode == "open" and not by_hand:
            return _open(breaker, facts.now)
        if mode != "closed" and breaker.probing not in facts.waiting:  # a part of the probe belongs to it
            if _is_other(breaker, handoff.id):
                return _probed(breaker)
            verdict = _PROBE
    return verdict


def _is_other(breaker: Breaker, handoff_id: str) -> bool:
    return bool(breaker.probing and handoff_id and breaker.probing != handoff_id)


def _is_older(breaker: Breaker, now: int, handoff_id: str) -> bool:
    """Whether the handoff began before the breaker opened, or beside its probe: it decides nothing."""
    if breaker.probing:
        return _is_other(breaker, handoff_id)
    return state(breaker, now) == "open"


def _open(breaker: Breaker, now: int) -> Verdict:
    left = ((breaker.opened_at or 0) + cool_down(breaker) - now) / 1e6
    hit = f"{breaker.failures} failures ({breaker.failure}), open for {left:.0f} s more"
    return _rejection(breaker, hit, "wait, or choose another agent", f"one probe in {left:.0f} s")


def _probed(breaker: Breaker) -> Verdict:
    hit = f"{breaker.failures} failures ({breaker.failure}), half-open and handoff {breaker.probing} probes it"
    return _rejection(breaker, hit, "wait for its end, or choose another agent", "more when the probe succeeds")


def _rejection(breaker: Breaker, hit: str, cure: str, allowed: str) -> Verdict:
    cure = f"{cure}; `baton breaker reset {breaker.subject}` closes it"
    return Verdict("reject", f"breaker {breaker.subject}: {hit}; {cure}", "BreakerOpen", "breaker", allowed)
