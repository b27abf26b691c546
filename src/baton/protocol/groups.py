"""Several agents asked at once: whose answers count, and what they come to.

`all` waits for everybody, `any` for the first success. `majority` counts one declared field of the answers, among all
who were asked: a failure is no vote, and the question is decided as soon as one value has more than half of those
asked, or none can have it any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from baton.errors import Contradiction, Malformed
from baton.protocol.codec import EPOCH, Record, Time, canonical, text
from baton.protocol.fields import whole
from baton.protocol.results import Return, Send, Status
from baton.protocol.variables import DECISIONS, RESERVED, Reducers, Variables, apply, reducer_of, same

Aggregate = Literal["all", "any", "majority"]
AGGREGATES: tuple[Aggregate, ...] = ("all", "any", "majority")
MAX_VOTE = 200
TOLD = 5  # how many are named in a message


class Aggregation(Record, frozen=True, kw_only=True):
    """How the answers of a group become one."""

    mode: Aggregate = "all"
    field: str = ""  # majority: the field of the answers that is counted
    asked: int = 0  # how many are asked whose answers count

    def __post_init__(self) -> None:
        whole(self.asked, "aggregation.asked")
        text(self.field, "field")
        if self.mode not in AGGREGATES:
            raise Malformed(f"aggregate: {self.mode!r:.60}; known: {', '.join(AGGREGATES)}")
        if (self.mode == "majority") != bool(self.field):
            cure = "majority counts one field of the answers: aggregate='majority', field='verdict'"
            raise Malformed(f"field: {self.field!r:.60} with aggregate={self.mode!r}; {cure}")


def as_sends(to: Sequence[str | Send], task: str) -> list[Send]:
    """Everybody who is asked, each with a task."""
    given: Any = to
    if isinstance(given, str) or not isinstance(given, Iterable) or not to:
        raise Malformed(f"broadcast: {to!r:.60} is not a list of agents; write ['a', 'b'], or Send(…) for each")
    sends = [one if isinstance(one, Send) else Send(one) for one in to]
    return [msgspec.structs.replace(one, task=one.task or str(one.update.get("task") or task)) for one in sends]


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of the work changed in the shared variables, and when it worked."""

    agent: str
    began: Time
    ended: Time
    group: str = ""
    changed: Mapping[str, Any] = {}
    makers: Mapping[str, str] = {}

    def beside(self, other: Branch) -> bool:
        """Whether neither could see what the other one wrote."""
        return (self.group != "" and self.group == other.group) or (
            self.began < other.ended and other.began < self.ended
        )


class Gained(msgspec.Struct, frozen=True):
    """The variables with what parts of the work changed in them, and who of those set what last."""

    variables: Variables
    by: Mapping[tuple[str, str], tuple[Branch, Any]] = {}


def combine(so_far: Gained, branches: Sequence[Branch], reducers: Reducers) -> Gained:
    """Add what branches changed; two beside each other that set a variable differently need a reducer."""
    variables, by = so_far.variables, dict(so_far.by)
    for branch in branches:
        for place, value in _places(branch.changed, reducers):
            key, name = place
            other, known = by.get(place, (branch, value))
            if not same(known, value) and other.beside(branch):
                raise Contradiction(
                    f"state.{key}{name and '.'}{name}: {other.agent} and {branch.agent} set it differently; "
                    f"give Relay(reducers={{{key!r}: …}}), or have each write its own"
                )
            by[place] = branch, value
        variables = apply(variables, branch.changed, branch.makers, reducers)
    return Gained(variables, by)


def _places(changed: Mapping[str, Any], reducers: Reducers) -> Iterator[tuple[tuple[str, str], Any]]:
    """Where two can contradict each other: a variable, or a name in a reserved object."""
    for key, value in changed.items():
        if key == DECISIONS or reducer_of(key, reducers):
            continue
        if key in RESERVED:
            yield from (((key, name), one) for name, one in value.items())
        else:
            yield (key, ""), value


class Tally(msgspec.Struct, frozen=True):
    """What the answers so far come to; `status` is empty while the question is open."""

    status: Status | Literal["", "undecided"] = ""
    output: Any = None
    votes: dict[str, int] = {}


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What a broadcast came to, with the answer of everybody who was asked and whose answer counts, in that order."""

    status: Status  # success, partial (only `all`: some failed), failed
    output: Any = None  # all: the outputs of those that succeeded; any: the first one; majority: the value that won
    answers: tuple[Return, ...] = ()
    votes: dict[str, int] = {}  # majority: how many for each value
    group_id: str = ""

    @property
    def success(self) -> bool:
        """Whether it came to what was asked for."""
        return self.status == "success"

    @property
    def error(self) -> str:
        """Who did not succeed, and why; empty where all did."""
        ill = [f"{one.from_agent}: {one.error or one.status}" for one in self.answers if not one.success]
        return "; ".join([*ill[:TOLD], *([f"and {len(ill) - TOLD} more"] if len(ill) > TOLD else [])])


def tally(rule: Aggregation, answers: Sequence[Return | None]) -> Tally:
    """Count the answers; None is one that is still to come."""
    if rule.mode == "majority":
        return _majority(rule, answers)
    given = [answer for answer in answers if answer is not None]
    won = [answer for answer in given if answer.success]
    if rule.mode == "any" and won:
        return Tally("success", min(won, key=lambda one: one.audit.completion_time or EPOCH).output)
    if len(given) < len(answers):
        return Tally()
    if rule.mode == "any":
        return Tally("failed")
    status: Status = "success" if len(won) == len(given) else "partial" if won else "failed"
    return Tally(status, [answer.output for answer in won])


def _majority(rule: Aggregation, answers: Sequence[Return | None]) -> Tally:
    values: dict[str, Any] = {}  # by their canonical form: 1, "1" and true are three
    count: Counter[str] = Counter()
    for answer in answers:
        if answer is not None and not _no_vote(rule, answer):
            value = answer.output[rule.field]
            kind = canonical(value, "vote").decode()
            values[kind] = value
            count[kind] += 1
    votes = {_readable(kind, values): number for kind, number in count.items()}
    leading, most = max(count.items(), key=lambda one: one[1], default=("", 0))
    quorum = rule.asked // 2 + 1
    if most >= quorum:
        return Tally("success", values[leading], votes)
    waiting = sum(answer is None for answer in answers)
    return Tally("" if most + waiting >= quorum else "undecided", None, votes)


def _readable(kind: str, values: Mapping[str, Any]) -> str:
    value = values[kind]
    return value if isinstance(value, str) and value not in values else kind


def _no_vote(rule: Aggregation, answer: Return) -> str:
    """Why an answer is no vote; empty where it is one."""
    body = answer.output
    if not answer.success:
        return answer.error or answer.status
    if not isinstance(body, Mapping):
        return f"the answer is not an object with a field {rule.field!r}"
    if rule.field not in body:
        return f"has no field {rule.field!r} (it has {', '.join(map(str, body)) or 'none'})"
    value = body[rule.field]
    if not isinstance(value, str | int | bool) or (isinstance(value, str) and not 0 < len(value) <= MAX_VOTE):
        return f"{rule.field} is neither a word, nor a whole number, nor true or false"
    return ""


def undecided(rule: Aggregation, answers: Sequence[Return], votes: Mapping[str, int]) -> str:
    """Why there is no majority, and what kept whom from voting."""
    counted = ", ".join(f"{value}: {number}" for value, number in votes.items()) or "no votes"
    mute = [(answer.from_agent, _no_vote(rule, answer)) for answer in answers]
    mute = [(agent, why) for agent, why in mute if why]
    silent = "".join(f"; {agent}: {why:.200}" for agent, why in mute[:TOLD])
    return f"{rule.field}: no majority of {rule.asked} asked ({counted}{silent})"
