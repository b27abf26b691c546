import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.protocol import Profile
from baton.protocol.handoff import Requirement
from baton.routing.capabilities import Match, by_fit, match

AGENT = Profile(agent_id="b", capabilities={"sql": 0.5, "art": 1.0, "zero": 0.0})


def needs(**least):
    return tuple(Requirement(capability_id=name, min_proficiency=value) for name, value in least.items())


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        ({}, Match("all", (), 1.0)),
        ({"sql": 0.0}, Match("all", (), 0.5)),
        ({"sql": 0.5}, Match("all", (), 0.5)),
        ({"sql": 0.6}, Match("none", ("sql",), 0.0)),
        ({"zero": 0.0}, Match("all", (), 0.0)),
        ({"sea": 0.0}, Match("none", ("sea",), 0.0)),
        ({"sql": 0.0, "art": 1.0}, Match("all", (), 0.75)),
        ({"sea": 0.0, "art": 0.0}, Match("some", ("sea",), 0.5)),
        ({"sea": 0.0, "sql": 0.9}, Match("none", ("sea", "sql"), 0.0)),
    ],
)
def test_match(required, expected):
    assert match(needs(**required), AGENT) == expected


def test_by_fit_puts_the_complete_before_the_proficient():
    agents = [
        Profile(agent_id="half", capabilities={"sql": 1.0}),
        Profile(agent_id="weak", capabilities={"sql": 0.2, "art": 0.2}),
        Profile(agent_id="none"),
        Profile(agent_id="good", capabilities={"sql": 0.9, "art": 0.8}),
        Profile(agent_id="also", capabilities={"sql": 0.8, "art": 0.9}),
    ]
    found = by_fit(needs(sql=0.0, art=0.0), agents)
    assert [agent.agent_id for agent, _ in found] == ["also", "good", "weak", "half"]


LEVELS = st.floats(0, 1)


@given(
    held=st.dictionaries(st.sampled_from("abcd"), LEVELS),
    required=st.dictionaries(st.sampled_from("abcd"), LEVELS, min_size=1),
)
def test_level_gap_and_score_agree(held, required):
    found = match(needs(**required), Profile(agent_id="x", capabilities=held))
    assert (found.level == "all") is (not found.gap)
    assert (found.level == "none") is (len(found.gap) == len(required))
    assert 0.0 <= found.score <= 1.0
    for name, least in required.items():
        assert (name in found.gap) is (name not in held or held[name] < least)
