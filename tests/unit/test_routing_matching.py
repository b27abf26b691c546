import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.protocol import Handoff, Profile
from baton.protocol.handoff import Requirement, Validation
from baton.routing import matching
from baton.routing.matching import rank


def agent(name, *, available=True, load=0, **fields):
    return Profile(agent_id=name, **fields), available, load


def alternatives(handoff, crew, routes, tried=()):
    crew = list(crew)
    away = {profile.agent_id for profile, available, _ in crew if not available}
    loads = {profile.agent_id: load for profile, _, load in crew if load}
    return matching.alternatives(handoff, [profile for profile, _, _ in crew], routes, tried, away, loads)


def handoff(*required, to="b"):
    capabilities = tuple(Requirement(capability_id=name) for name in required)
    return Handoff(from_agent="a", to_agent=to, validation=Validation(required_capabilities=capabilities))


SQL = {"sql": 1.0}
CREW = [
    agent("a", capabilities=SQL),
    agent("b", capabilities=SQL),
    agent("good", capabilities={"sql": 0.9}),
    agent("fair", capabilities={"sql": 0.5}),
    agent("idle", capabilities={"sql": 0.9}, load=0),
    agent("busy", capabilities={"sql": 0.9}, load=2),
    agent("full", capabilities=SQL, load=2, max_concurrent_tasks=2),
    agent("away", capabilities=SQL, available=False),
    agent("shut", capabilities=SQL, accepts_handoffs=False),
    agent("other", capabilities={"art": 1.0}),
]


def test_by_proficiency_then_load_then_name_and_the_full_last():
    assert alternatives(handoff("sql"), CREW, {}) == ("good", "idle", "busy", "fair", "full")


def test_the_configured_route_comes_first_in_its_order():
    routes = {"sql": ["fair", "away", "nobody", "other", "a", "b", "shut", "full"], "art": ["good"]}
    assert alternatives(handoff("sql"), CREW, routes) == ("fair", "other", "good", "idle", "busy", "full")


def test_without_loads_nobody_is_busy_or_full():
    profiles = [profile for profile, available, _ in CREW if available]
    found = matching.alternatives(handoff("sql"), profiles, {})
    assert found == ("full", "busy", "good", "idle", "fair")


def test_who_was_tried_is_not_tried_again():
    assert alternatives(handoff("sql"), CREW, {"sql": ["fair"]}, ["fair", "good"]) == ("idle", "busy", "full")


def test_all_required_capabilities_or_a_route():
    assert alternatives(handoff("sql", "art"), CREW, {}) == ()
    assert alternatives(handoff("sql", "art"), CREW, {"art": ["other"]}) == ("other",)


def test_where_nothing_is_required_the_receivers_capabilities_stand_for_it():
    assert alternatives(handoff(), CREW, {"sql": ["fair"]}) == ("fair", "good", "idle", "busy", "full")
    assert alternatives(handoff(to="unknown"), CREW, {"sql": ["fair"]}) == ()


def test_only_where_the_sender_may_hand_work():
    crew = [agent("a", allowed_targets=("b", "fair")), *CREW[1:]]
    assert alternatives(handoff("sql"), crew, {"sql": ["good"]}) == ("fair",)


NAMES = ["a", "b", "c", "d", "e", "human"]


@given(
    crew=st.lists(
        st.builds(
            agent,
            st.sampled_from(NAMES),
            available=st.booleans(),
            load=st.integers(0, 3),
            accepts_handoffs=st.booleans(),
            max_concurrent_tasks=st.none() | st.integers(1, 3),
            capabilities=st.dictionaries(st.sampled_from("xy"), st.floats(0, 1)),
        ),
        unique_by=lambda row: row[0].agent_id,
    ),
    routes=st.dictionaries(st.sampled_from("xy"), st.lists(st.sampled_from([*NAMES, "ghost"]))),
    tried=st.sets(st.sampled_from(NAMES)),
    required=st.sets(st.sampled_from("xy")),
)
def test_never_somebody_who_cannot_take_it(crew, routes, tried, required):
    found = alternatives(handoff(*sorted(required)), crew, routes, tried)
    known = {row[0].agent_id: row for row in crew}
    assert len(found) == len(set(found))
    assert not {"a", "b", "human", *tried} & set(found)
    for name in found:
        profile, available, _ = known[name]
        assert available
        assert profile.accepts_handoffs
    assert found == alternatives(handoff(*sorted(required)), crew[::-1], routes, tried)


TEAM = [
    Profile(
        agent_id="billing",
        specialization="Payments",
        description="Handles invoices, refunds and failed credit card charges",
        examples=("refund an order", "why was I charged twice"),
        capabilities={"refunds": 0.9, "code_review": 0.2},
    ),
    Profile(
        agent_id="tester",
        specialization="quality-assurance",
        description="Writes and runs unit tests, finds bugs",
        examples=("add tests for the parser",),
        capabilities={"testing": 1.0, "code_review": 0.6},
    ),
    Profile(
        agent_id="deployer",
        specialization="deployment",
        description="Deploys services to production and rolls them back",
        examples=("deploy the app to production",),
        capabilities={"deploy": 1.0},
    ),
    Profile(agent_id="closed", description="refunds refunds refunds", accepts_handoffs=False),
]


@pytest.mark.parametrize(
    ("wanted", "names", "why"),
    [
        ("refunds", ["billing"], "capability refunds"),
        ("Code Review", ["tester", "billing"], "capability code_review"),
        ("code-review", ["tester", "billing"], "capability code_review"),
        ("payments", ["billing"], "specialization Payments"),
        ("quality assurance", ["tester"], "specialization quality-assurance"),
    ],
)
def test_an_exact_name_wins(wanted, names, why):
    found = rank(wanted, TEAM)
    assert [one.profile.agent_id for one in found] == names
    assert found[0].why == why


@pytest.mark.parametrize(
    ("task", "best"),
    [
        ("please refund the order of this customer", "billing"),
        ("I was charged twice on my credit card", "billing"),
        ("Deploy the new version to production", "deployer"),
        ("write unit tests for the tokenizer", "tester"),
        ("there are bugs in the parser", "tester"),
    ],
)
def test_a_task_finds_its_agent(task, best):
    profile, score, why = rank(task, TEAM)[0]
    assert profile.agent_id == best
    assert score > 0
    assert why.startswith("words: ")


@pytest.mark.parametrize(
    "task",
    ["", "?!", "the and of", "water the plants", "code", "invoices or bugs"],
)
def test_where_it_is_not_clear_the_answer_is_nobody(task):
    assert rank(task, TEAM) == []


def test_the_score_is_bm25():
    """By hand: log(1 + 2.5 / 1.5) * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / (5 / 3)))."""
    agents = [
        Profile(agent_id="x", description="maps islands maps"),
        Profile(agent_id="y", description="bread"),
        Profile(agent_id="z", description="gas"),
    ]
    [(profile, score, why)] = rank("map", agents)
    assert (profile.agent_id, round(score, 5), why) == ("x", 1.10093, "words: map")
    assert rank("ga", agents) == []
    assert rank("brea", agents) == []


def test_nobody_to_choose_from():
    assert rank("refund", []) == []
    assert rank("refund", [Profile(agent_id="blank")]) == []


def test_twins_are_not_told_apart_by_chance():
    twins = [Profile(agent_id=name, description="draws maps of islands") for name in ("x", "y")]
    crowd = [*twins, *(Profile(agent_id=f"z{n}", description="bakes bread") for n in range(5))]
    assert rank("draw a map of islands", crowd) == []


@given(st.text(max_size=80))
def test_any_text_gets_an_ordered_answer(wanted):
    found = rank(wanted, TEAM)
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    assert all(one.profile.accepts_handoffs for one in found)
    assert [one.profile for one in found] == [one.profile for one in rank(wanted, TEAM[::-1])]
