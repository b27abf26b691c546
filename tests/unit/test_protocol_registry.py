"""What an operator may write in agents.toml, and what is refused in one line."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import BatonError, Malformed, TooLarge
from baton.protocol import Profile
from baton.protocol.codec import canonical_record
from baton.protocol.limits import Autonomy
from baton.protocol.profile import read_profile
from baton.protocol.registry import (
    RESERVED,
    Described,
    HealthRules,
    as_rules,
    narrowed,
    read_registry,
)
from baton.protocol.toml import MAX_FILE

FULL = b"""
escalation = ["billing", "lead", "human"]

[agents.billing]
agent_name = "Billing"
specialization = "money"
description = "refunds and invoices"
examples = ["refund order 7"]
capabilities = { refunds = 0.9, invoices = 1 }
accepts_handoffs = true
max_concurrent_tasks = 3
max_execution_time = "5m"
autonomy = { max_risk = "medium", max_tokens = 5000 }
allowed_targets = ["lead"]
idempotent = false

[agents.lead]
capabilities = ["refunds", "decisions"]
autonomy = 100

[agents."night shift"]

[routes]
refunds = ["billing", "lead"]

[health]
interval = "30s"
timeout = 5
threshold = 2
"""


def read(text):
    return read_registry(text.encode() if isinstance(text, str) else text, "agents.toml")


def test_everything_that_can_be_said():
    found = read(FULL)
    assert list(found.agents) == ["billing", "lead", "night shift"]
    assert found.agents["billing"].profile == Profile(
        agent_id="billing", agent_name="Billing", specialization="money", description="refunds and invoices",
        examples=("refund order 7",), capabilities={"refunds": 0.9, "invoices": 1.0}, max_concurrent_tasks=3,
        max_execution_time=300.0, autonomy_budget=Autonomy(max_risk="medium", max_tokens=5000),
        allowed_targets=("lead",), idempotent=False,
    )  # fmt: skip
    assert found.agents["lead"].profile.capabilities == {"refunds": 1.0, "decisions": 1.0}
    assert found.agents["lead"].profile.autonomy_budget == Autonomy(max_tokens=100)
    assert found.agents["lead"].given == {"capabilities", "autonomy_budget"}
    assert found.routes == {"refunds": ("billing", "lead")}
    assert found.escalation == ("billing", "lead", "human")
    assert found.health == HealthRules(interval=30, timeout=5, threshold=2)


def test_an_empty_file_says_nothing():
    found = read("")
    assert (found.agents, found.routes, found.escalation, found.health) == ({}, {}, (), None)


WRONG = {
    "agent = 1": "agents.toml: agent is not a table; did you mean agents?",
    "[agents.a]\ncapabilites = []": "agents.toml: agents.a: capabilites is not a field; did you mean capabilities?",
    "[agents.a]\nagent_id = 'b'": "agents.toml: agents.a.agent_id: the name of the table is the name; leave it out",
    "[agents.a]\nautonomy = 1\nautonomy_budget = 2": "autonomy and autonomy_budget are the same field; keep one",
    "[agents.a]\nautonomy = { max_risk = 'huge' }": "agents.a.autonomy_budget.max_risk: huge is not known; ",
    "[agents.a]\nidempotent = 'no'": "agents.toml: agents.a.idempotent: expected true or false, got text",
    "[agents.a]\nmax_concurrent_tasks = 0": "agents.toml: agents.a: max_concurrent_tasks: 0 is out of range; use 1 to",
    "[agents.a]\nmax_concurrent_tasks = 1.5": "agents.a.max_concurrent_tasks: expected",
    "[agents.a]\nmax_execution_time = 'soon'": "agents.toml: agents.a.max_execution_time: 'soon' is not a duration",
    "[agents.a]\nmax_execution_time = 2026-01-01": "date is not JSON; convert it",
    "[agents.a]\ncapabilities = { x = 2 }": "agents.toml: agents.a: capabilities.x: 2.0 is out of range; use 0 to 1",
    "[agents.a]\ncapabilities = 'x'": "agents.toml: agents.a.capabilities: expected an object or null, got text",
    "[agents.a]\ncapabilities = ['x', 'x']": "agents.toml: agents.a.capabilities: x stands twice; keep one",
    "[agents.a]\ncapabilities = { x = nan }": "agents.toml.agents.a.capabilities.x: nan is not JSON",
    "[agents.a]\n[agents.a]": "agents.toml: not TOML: Cannot declare ('agents', 'a') twice (at line 2",
    "[agents.human]": "agents.toml: agents.human: this name is taken; choose another",
    "[agents.user]": "agents.toml: agents.user: this name is taken",
    "[agents.supervisor]": "agents.toml: agents.supervisor: this name is taken",
    '[agents."a\\u001b[31m"]': "agents.toml: [agents]: 'a\\x1b[31m'; use 1 to 200 printable characters",
    '[agents." a"]': "agents.toml: [agents]: ' a'; use 1 to 200 printable characters, no space at the ends",
    '[agents."a\\nb"]': "agents.toml: [agents]: 'a\\nb'; use",
    '[agents.""]': "agents.toml: [agents]: ''; use",
    "agents = ['a']": "agents.toml: agents: expected a table, got list; write [agents]",
    "[agents]\na = 1": "agents.toml: agents.a: expected a table; write [agents.a]",
    "[[agents.a]]": "agents.toml: agents.a: expected a table; write [agents.a]",
    "[agents.a]\n[routes]\nx = 'a'": 'agents.toml: routes.x: expected a list of names; write ["first", "second"]',
    "[agents.a]\n[routes]\nx = [1]": "agents.toml: routes.x: expected a list of names",
    "[agents.alpha]\n[routes]\nx = ['alpah']": "agents.toml: routes.x: no table [agents.alpah]; add it, or did you",
    "[agents.a]\n[routes]\nx = ['a', 'a']": "agents.toml: routes.x: a stands twice; keep one",
    "[agents.a]\n[routes]\nx = ['a', 'human']": "agents.toml: routes.x: human comes by itself when nobody is",
    "[routes]\nescalation = ['human']": "routes.escalation: the ladder is no route; move it above the first",
    '[routes]\n"x\\u0007" = []': "agents.toml: [routes]: 'x\\x07'; use",
    "escalation = 'human'": "agents.toml: escalation: expected a list of names",
    "escalation = ['human', 'a']\n[agents.a]": "agents.toml: escalation: human is the last step; move it to the end",
    "escalation = ['b', 'human']\n[agents.a]": "agents.toml: escalation: no table [agents.b]; add it, or known: a",
    "[health]\ninterval = 0": "agents.toml: health.interval: 0.0 is out of range; use 1 to",
    "[health]\ntimeout = 'x'": "agents.toml: health.timeout: 'x' is not a duration",
    "[health]\nthreshold = 0": "is out of range; use 1 to 1000",
    "[health]\nevery = 5": "agents.toml: health: every is not a field; known: interval, threshold, timeout",
    "health = 5": "agents.toml: health: expected a table, got int; write [health]",
    "[agents.a": "agents.toml: not TOML:",
    "x = " + "9" * 5000: "agents.toml: not TOML:",
    "x = 99999999999999999999": "agents.toml.x: a whole number beyond",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_in_one_line_with_its_place(text):
    with pytest.raises(Malformed) as raised:
        read(text)
    said = str(raised.value)
    assert WRONG[text] in said
    assert said.startswith("agents.toml")
    assert said.isprintable()


HOSTILE = {
    "large": b"#" * (MAX_FILE + 1),
    "a long line": b"x = '" + b"y" * 20_000 + b"'",
    "a key of many parts": b".".join([b"a"] * 8000) + b" = 1",
    "brackets": b"x = " + b"[" * 15_000,
    "brackets over lines": b"x = " + b"[\n" * 200_000,
    "tables in tables": b"x = " + b"{a=" * 5000,
    "dots in many lines": b"\n".join(b"a%d" % n + b".b" * 190 + b" = 1" for n in range(1000)),
    "a deep table": b"[" + b"a." * 150 + b"a]",
    "not UTF-8": b"x = '\xff'",
    "a zero byte": b"x = '\0'",
    "a lone surrogate": rb'x = "\ud800"',
    "a pipe of quotes": b"x = '''" * 30_000,
    "carriage returns": b"x = 1\r\r\r",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(name):
    with pytest.raises(BatonError) as raised:
        read(HOSTILE[name])
    assert isinstance(raised.value, Malformed)
    assert isinstance(raised.value, TooLarge) == (name == "large")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(FULL) - 1), st.binary(max_size=8), st.integers(0, 20))
def test_a_changed_file_is_read_or_refused(at, noise, cut):
    data = FULL[:at] + noise + FULL[at + cut :]
    said = ""
    try:
        found = read(data)
    except Malformed as error:
        found, said = None, str(error)
    if found is None:
        assert said.isprintable()
    else:
        assert not RESERVED & found.agents.keys()
        assert all(one.profile.agent_id == name for name, one in found.agents.items())
        assert all(set(route) <= found.agents.keys() for route in found.routes.values())


def test_a_list_of_many_names_is_read_once():
    names = [f"a{number}" for number in range(20_000)]
    listed = ",\n".join(f"'{name}'" for name in names)
    began = time.process_time()
    with pytest.raises(Malformed, match="no table"):
        read(f"escalation = [{listed}]")
    with pytest.raises(Malformed, match="escalation: a19999 stands twice; keep one"):
        read(f"escalation = [{listed}, 'a19999']")
    assert list(read(f"[agents.a]\ncapabilities = [{listed}]").agents["a"].profile.capabilities) == names
    assert time.process_time() - began < 5  # and not half a minute


def described(**fields):
    return Described(Profile(agent_id="a", **fields), frozenset(fields))


def test_where_both_say_it_the_narrower_counts():
    own = Profile(
        agent_id="a", description="own", capabilities={"x": 0.5, "y": 1.0}, max_concurrent_tasks=2,
        max_execution_time=60.0, autonomy_budget=Autonomy(max_risk="medium", max_tokens=10, max_hops=3),
        allowed_targets=("b", "c"), idempotent=False,
    )  # fmt: skip
    file = described(
        description="theirs", capabilities={"x": 1.0, "z": 1.0}, max_concurrent_tasks=5, max_execution_time=30.0,
        autonomy_budget=Autonomy(max_risk="high", max_tokens=7, max_cost=1.5), allowed_targets=("c", "d"),
        accepts_handoffs=False, idempotent=True,
    )  # fmt: skip
    assert narrowed(own, file) == Profile(
        agent_id="a", description="theirs", capabilities={"x": 0.5}, max_concurrent_tasks=2,
        max_execution_time=30.0, autonomy_budget=Autonomy(max_risk="medium", max_tokens=7, max_cost=1.5, max_hops=3),
        allowed_targets=("c",), accepts_handoffs=False, idempotent=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own", "file", "both"),
    [(("a", "b"), ("b", "c"), ("b",)), ((), ("b",), ()), ((), ("*",), ()), (("a",), (), ()), (("*",), ("b",), ())],
)
def test_variables_of_others_are_written_where_program_and_file_agree(own, file, both):
    assert narrowed(Profile(agent_id="a", writes=own), described(writes=file)).writes == both
    assert narrowed(Profile(agent_id="a", writes=own), described()).writes == own


def test_what_the_program_leaves_open_is_the_files():
    file = described(
        capabilities={"x": 1.0}, max_concurrent_tasks=5, allowed_targets=(), autonomy_budget=Autonomy(max_hops=1)
    )
    assert narrowed(Profile(agent_id="a"), file) == file.profile
    assert narrowed(Profile(agent_id="a", capabilities={"y": 1.0}), described()).capabilities == {"y": 1.0}
    assert narrowed(Profile(agent_id="a", examples=("e",)), None).examples == ("e",)


@pytest.mark.parametrize(
    ("own", "file", "both"),
    [
        (None, {"x": 1.0}, {"x": 1.0}), (None, {}, {}), ({}, {"x": 1.0}, {}), ({"x": 1.0}, {}, {}),
        ({"x": 1.0}, {"y": 1.0}, {}), ({"x": 0.5}, {"x": 1.0, "y": 1.0}, {"x": 0.5}),
    ],
)  # fmt: skip
def test_no_capability_is_not_the_same_as_nothing_said_of_them(own, file, both):
    under = narrowed(Profile(agent_id="a", capabilities=own), described(capabilities=file))
    assert under.capabilities == both
    assert read_profile(canonical_record(under)) == under
    assert narrowed(under, described(capabilities=file)) == under
    assert narrowed(under, described()) == under


NUMBERS = st.none() | st.integers(1, 5)
PROFILES = st.fixed_dictionaries(
    {},
    optional={
        "capabilities": st.none() | st.dictionaries(st.sampled_from("xyz"), st.sampled_from([0.0, 0.5, 1.0])),
        "max_concurrent_tasks": NUMBERS,
        "max_execution_time": NUMBERS.map(lambda n: n and float(n)),
        "accepts_handoffs": st.booleans(),
        "idempotent": st.booleans(),
        "allowed_targets": st.none() | st.lists(st.sampled_from("bcd"), unique=True).map(tuple),
        "autonomy_budget": st.none()
        | st.builds(
            Autonomy, max_risk=st.sampled_from(["low", "medium", "high"]), max_tokens=NUMBERS, max_hops=NUMBERS
        ),
    },
)


def no_more(value, limit):
    return limit is None or (value is not None and value <= limit)


@given(PROFILES, PROFILES)
def test_the_file_never_gives_a_right(own, file):
    own = Profile(agent_id="a", **own)
    under = narrowed(own, described(**file))
    assert narrowed(under, described(**file)) == under
    for name in ("max_concurrent_tasks", "max_execution_time"):
        assert no_more(getattr(under, name), getattr(own, name))
        assert no_more(getattr(under, name), file.get(name))
    assert under.accepts_handoffs <= own.accepts_handoffs
    assert under.idempotent <= own.idempotent
    if own.allowed_targets is not None:
        assert set(under.allowed_targets) <= set(own.allowed_targets)
    if own.capabilities is not None:
        assert under.capabilities is not None
        assert all(much <= own.capabilities[name] for name, much in under.capabilities.items())
    if own.autonomy_budget is not None:
        for name in ("max_tokens", "max_cost", "max_hops"):
            assert no_more(getattr(under.autonomy_budget, name), getattr(own.autonomy_budget, name))


def test_health_checks_in_a_program():
    assert as_rules(None) == HealthRules(interval=60, timeout=10, threshold=3)
    assert as_rules({"threshold": 5}) == HealthRules(threshold=5)
    assert as_rules(HealthRules(interval=7)).interval == 7
    with pytest.raises(Malformed, match="health: evry is not a field"):
        as_rules({"evry": 5})
    with pytest.raises(Malformed, match="expected an object"):
        as_rules(5)
