"""Which agent takes the work instead, and which fits a few words.

Neither guesses: an order that the configuration gives comes first, and where two agents fit a text about as
well, or none fits it well, the answer is nobody.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import log
from typing import NamedTuple

from baton.protocol.handoff import HUMAN, Handoff, Requirement
from baton.protocol.profile import Profile
from baton.routing.capabilities import match

FLOOR = 0.5  # a score below this is noise
MARGIN = 0.15  # and so is a lead of less than this part of the best score
_SATURATION, _LENGTH = 1.2, 0.75  # the usual constants of BM25
_TOKEN = re.compile(r"[^\W_]+")
_SPACES = re.compile(r"[\W_]+")
_COMMON = frozenset(
    _TOKEN.findall("""
    a an and are as at be by can do for from in is it me my of on or our please so that the this to up us we
    what with you your
    """)
)


class Ranked(NamedTuple):
    """An agent, how well it fits, and what that was judged by."""

    profile: Profile
    score: float
    why: str


def alternatives(
    handoff: Handoff,
    profiles: Iterable[Profile],
    routes: Mapping[str, Sequence[str]],
    tried: Collection[str] = (),
    away: Collection[str] = (),
    loads: Mapping[str, int] | None = None,
) -> tuple[str, ...]:
    """Who may take a handoff that its receiver did not take, in the order to try.

    First the agents that `routes` names for the required capabilities, in that order, then the others that
    have all of them: the most proficient, the least busy, by name. Where nothing is required, what the
    receiver can do stands for it. Agents that have all the work they may hold come last, and who is away does
    not come at all. `loads` says how much each works on now.
    """
    known = {one.agent_id: one for one in profiles}
    usable = _usable(handoff, known, {*tried, *away})
    load = loads or {}
    required = _required(handoff, known)
    routed = [name for one in required for name in routes.get(one.capability_id, ()) if name in usable]
    fits = {name: match(required, one) for name, one in usable.items()}
    able = [name for name in usable if required and fits[name].level == "all"]
    able.sort(key=lambda name: (-fits[name].score, load.get(name, 0), name))
    return tuple(sorted(dict.fromkeys([*routed, *able]), key=lambda name: _is_full(usable[name], load)))


def passed_over(
    handoff: Handoff,
    profiles: Iterable[Profile],
    routes: Mapping[str, Sequence[str]],
    gone: Mapping[str, str],
    loads: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Who could have been meant for a handoff and is not free for it, and why: first those of `routes`, in its order.

    `gone` says why an agent is left out; what the profiles say against it is found here.
    """
    known = {one.agent_id: one for one in profiles}
    usable = _usable(handoff, known, ())
    required = _required(handoff, known)
    routed = [name for one in required for name in routes.get(one.capability_id, ())]
    fits = {name: match(required, one) for name, one in known.items()}
    some = sorted(name for name in known if required and fits[name].level != "none")
    found = {}
    for name in dict.fromkeys([*routed, *some]):
        if name in {HUMAN, handoff.from_agent, handoff.to_agent}:
            continue
        why = "not registered" if name not in known else gone.get(name, "")
        if not why and name not in usable:
            why = "accepts no handoffs" if not known[name].accepts_handoffs else "beyond allowed_targets of the sender"
        if not why and name not in routed and fits[name].gap:
            why = f"lacks {', '.join(fits[name].gap)}"
        if not why and _is_full(known[name], loads or {}):
            why = "at capacity"
        if why:
            found[name] = why
    return found


def rank(wanted: str, agents: Iterable[Profile]) -> list[Ranked]:
    """The agents for a capability, a specialization or a task, best first; none where that is not clear."""
    open_to_work = [agent for agent in agents if agent.accepts_handoffs]
    name = _plain(wanted)
    exact = [found for agent in open_to_work if (found := _exact(name, agent)) is not None]
    ranked = sorted(exact or _by_text(wanted, open_to_work), key=lambda one: (-one.score, one.profile.agent_id))
    if exact or not ranked:
        return ranked
    runner_up = ranked[1].score if len(ranked) > 1 else 0.0
    is_clear = ranked[0].score >= FLOOR and ranked[0].score - runner_up >= MARGIN * ranked[0].score
    return ranked if is_clear else []


def _usable(handoff: Handoff, known: Mapping[str, Profile], gone: Collection[str]) -> dict[str, Profile]:
    sender = known.get(handoff.from_agent)
    targets = None if sender is None else sender.allowed_targets
    never = {HUMAN, handoff.from_agent, handoff.to_agent, *gone}
    return {
        name: one
        for name, one in known.items()
        if one.accepts_handoffs and name not in never and (targets is None or name in targets)
    }


def _required(handoff: Handoff, known: Mapping[str, Profile]) -> tuple[Requirement, ...]:
    """What the work needs; where it says nothing, what its receiver can do."""
    return tuple(handoff.validation.required_capabilities) or _skills(known.get(handoff.to_agent))


def _skills(agent: Profile | None) -> tuple[Requirement, ...]:
    return () if agent is None else tuple(Requirement(capability_id=name) for name in agent.abilities)


def _is_full(agent: Profile, load: Mapping[str, int]) -> bool:
    most = agent.max_concurrent_tasks
    return most is not None and load.get(agent.agent_id, 0) >= most


def _plain(name: str) -> str:
    return _SPACES.sub("-", name.casefold()).strip("-")


def _exact(name: str, agent: Profile) -> Ranked | None:
    for capability, proficiency in agent.abilities.items():
        if name and _plain(capability) == name:
            return Ranked(agent, proficiency, f"capability {capability}")
    if name and _plain(agent.specialization) == name:
        return Ranked(agent, 1.0, f"specialization {agent.specialization}")
    return None


def _terms(text: str) -> list[str]:
    words = (word for word in _TOKEN.findall(text.casefold()) if word not in _COMMON)
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words]


def _by_text(wanted: str, agents: Sequence[Profile]) -> list[Ranked]:
    """BM25: words count more the fewer agents use them, and less in a long text or when repeated."""
    texts = [
        Counter(_terms(" ".join((one.specialization, one.description, *one.examples, *one.abilities))))
        for one in agents
    ]
    average = sum(text.total() for text in texts) / len(texts) if texts else 0.0
    weights = {}
    for term in dict.fromkeys(_terms(wanted)):
        users = sum(term in text for text in texts)
        weights[term] = log(1 + (len(texts) - users + 0.5) / (users + 0.5))
    ranked = []
    for agent, text in zip(agents, texts, strict=True):
        found = {term: weight for term, weight in weights.items() if term in text}
        if found:
            longer = _SATURATION * (1 - _LENGTH + _LENGTH * text.total() / average)
            score = sum(
                weight * text[term] * (_SATURATION + 1) / (text[term] + longer) for term, weight in found.items()
            )
            ranked.append(Ranked(agent, score, f"words: {', '.join(found)}"))
    return ranked
