"""How handoffs are named, found and put into words."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from baton.cli.screen import Columns, Screen
from baton.errors import Malformed, NotFound
from baton.lifecycle import State
from baton.protocol.codec import read_json, to_microseconds, to_time
from baton.protocol.handoff import HUMAN, Handoff, document

if TYPE_CHECKING:
    from baton.protocol.crossing import Crossing
    from baton.protocol.results import Return
    from baton.relay import Relay
    from baton.stores.base import Kind

LEAST = 4
AN_ID = f"an id, or at least its first {LEAST} characters"
HANDOFFS = Columns(("ID", "STATE", "FROM → TO", "PRIORITY", "AGE", "TASK"), spare=("PRIORITY", "AGE"))


def full_id(relay: Relay, given: str, of: Kind = "handoff") -> str:
    """The whole id that begins with what was given."""
    found = relay.store.starting(given, of)
    if given in found:
        return given
    if len(given) < LEAST:
        raise Malformed(f"{of} {given}: give at least {LEAST} characters of the id")
    if not found:
        listing = {"handoff": "handoff list", "alert": "alerts"}.get(of, "history")
        raise NotFound(f"{of} {given}: not in this store; `baton {listing}` shows what is")
    if len(found) > 1:
        raise Malformed(f"{of} {given}: begins {len(found)} ids: {', '.join(found)}; give more characters")
    return found[0]


def find(relay: Relay, given: str) -> Handoff:
    """The handoff that is meant."""
    return relay.get(full_id(relay, given))


def record(handoff: Handoff, **more: Any) -> dict[str, Any]:
    """The protocol's document, and where it stands even where that is the default."""
    plain: dict[str, Any] = document(handoff, **more)["handoff"]
    return {
        **plain,
        "state": handoff.status,
        "task": handoff.task,
        "priority": handoff.priority,
        "attempt": handoff.attempt,
        "epoch": handoff.epoch,
        "workflow_id": handoff.workflow_id,
    }


def variable(pair: str) -> tuple[str, Any]:
    """A shared variable as --set gives it: JSON, or else text."""
    key, sign, text = pair.partition("=")
    if not sign or not key:
        raise Malformed(f"--set {pair}: write KEY=VALUE, for example customer=42")
    try:
        return key, read_json(text, f"--set {key}")
    except Malformed:
        return key, text


def route(handoff: Handoff) -> str:
    """From whom to whom."""
    return f"{handoff.from_agent} → {handoff.to_agent}"


def placed(said: str, answer: Return | None) -> str:
    """What went wrong, and where in the agent's own code."""
    return f"{said}, {answer.audit.notes}" if answer is not None and answer.audit.notes.startswith("at ") else said


def lasting(seconds: float) -> str:
    """A length of time in the unit that fits."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def age(now: int, moment: datetime) -> str:
    """How long ago."""
    return lasting((now - to_microseconds(moment)) / 1e6)


def clock_time(moment: datetime | int | None) -> str:
    """A moment as a person reads it, in UTC."""
    if moment is None:
        return ""
    at = to_time(moment) if isinstance(moment, int) else moment
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def counted(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def money(millionths: int) -> str:
    """A sum of money."""
    return f"{millionths / 1e6:.6f}".rstrip("0").rstrip(".") if millionths else "0"


def passed_on(crossing: Crossing) -> str:
    """How much crossed with a handoff, on one line. The tokens are an estimate."""
    held = f" ({len(crossing.withheld)} withheld)" if crossing.withheld else ""
    messages = f"{crossing.had.count - crossing.dropped} of {counted(crossing.had.count, 'message')}"
    parts = [messages, counted(len(crossing.variables), "variable") + held]
    if crossing.artifacts:
        parts.append(counted(len(crossing.artifacts), "artifact"))
    return f"{', '.join(parts)}, ≈ {crossing.tokens} tokens"


def row(one: Handoff, now: int, short: int | None) -> tuple[str, ...]:
    """A handoff in the columns of HANDOFFS."""
    return one.id[:short], one.status, route(one), one.priority, age(now, one.timestamp), one.task


def table(screen: Screen, handoffs: list[Handoff], now: int) -> None:
    """Handoffs as rows."""
    short = 8 if screen.tty else None
    rows = [row(one, now, short) for one in handoffs]
    screen.table(HANDOFFS, rows, map(record, handoffs))


def next_step(handoff: Handoff) -> str:
    """What can be done with it now."""
    short = handoff.id[:8]
    if handoff.state is State.WAITING:
        return f"a person decides: `baton approve {short}` or `baton deny {short}`"
    if handoff.state is State.OFFERED and handoff.to_agent == HUMAN:
        return f"a person answers: `baton handoff return {short} --text …`"
    if handoff.state is State.OFFERED:
        return f"a worker of {handoff.to_agent} takes it, or you: `baton handoff accept {short}`"
    if handoff.state is State.PARKED:
        ways = f"`baton handoff return {short} --text …` answers it, `baton handoff reroute {short} AGENT` hands it on"
        return f"a person decides: {ways}, or cancel it"
    if handoff.state is State.REJECTED:
        return f"`baton recover` or a worker moves it on, or you: `baton handoff reroute {short} AGENT`"
    if handoff.state is State.CLAIMED:
        return f"{handoff.to_agent} works on it: `baton handoff return {short} --epoch {handoff.epoch} --text …`"
    return ""


def over(handoff: Handoff) -> str:
    """That nothing can be done with it any more."""
    return f"it was {handoff.status}, and has ended"


def moved(screen: Screen, handoff: Handoff, said: str) -> None:
    """Say where a handoff stands now."""
    screen.document(record(handoff))
    screen.line(f"{handoff.id}  {handoff.status}  {route(handoff)}  {said}".rstrip())
    if following := next_step(handoff):
        screen.hint(f"next: {following}")
