"""P7: an agent writes what is its own, on whatever way; what several write comes to one thing, or to a named error."""

import asyncio
import operator
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton import Command, Escalate, Handoff, Limits, Malformed, Profile, Relay, Send, answer
from baton.errors import Contradiction, OutOfScope
from baton.protocol.context import Context
from baton.testing import virtual
from baton.testing.contracts import flaws

WAYS = ("broadcast", "send", "gather")


@pytest.fixture
def relay():
    with Relay(limits=Limits(max_handoffs=50, loops={"*": 50})) as opened:
        yield opened
        assert flaws(opened.store) == []


def writer(relay, name, *, goto="", **update):
    """An agent that sets these."""

    @relay.agent(name)
    async def write(turn):
        return Command(goto=goto, update=update) if goto else answer(name, update=update)


def together(relay, way, tasks, start=None, **options):
    """An agent `lead` that has each of these agents do its task, all at once."""

    @relay.agent("lead", **options)
    async def lead(turn):
        if way == "send":
            return Command(goto=[Send(name, task=task) for name, task in tasks], update=start or {})
        if way == "broadcast":
            await turn.broadcast([Send(name, task=task) for name, task in tasks], "all")
        else:
            await asyncio.gather(*(turn.delegate(name, task) for name, task in tasks))
        return "done"


async def until(look):
    async with asyncio.timeout(5):
        while not (found := look()):  # noqa: ASYNC110 - the store does not say when
            await asyncio.sleep(0.01)
    return found


# --- whose they are ------------------------------------------------------------------------------


def test_a_write_out_of_scope_fails_the_handoff_once_and_the_audit_says_whose_it_is(relay):
    calls = []
    writer(relay, "ana", goto="ben", draft=1)

    @relay.agent("ben")
    async def ben(turn):
        calls.append(turn.attempt)
        return answer("done", update={"draft": 2})

    with pytest.raises(
        OutOfScope, match=r"^state\.draft: it is ana's, ben may only read it; register ben with writes="
    ):
        relay.run_sync("ana", "write", on_failure="retry", workflow_id="w")
    assert calls == [1]
    assert relay.result("w").state == {"draft": 1}
    last = relay.audit.query(to_agent="ben")[-1]
    assert last.event_type == "failed"
    assert "OutOfScope: state.draft: it is ana's" in last.reason
    assert relay.store.breakers() == []


@pytest.mark.parametrize("status", ["success", "partial", "failed"])
def test_whatever_the_status_of_an_answer_it_stays_in_scope(relay, status):
    @relay.agent("ana")
    async def ana(turn):
        part = await turn.delegate("ben", "a part", update={"mine": 1})
        return [part.status, part.error.partition(":")[0], turn.state.get("draft")]

    relay.agent("ben")(lambda turn: answer("x", status=status, update={"mine": 2}))
    assert relay.run_sync("ana", "write").output == ["failed", "OutOfScope", None]


@pytest.mark.parametrize("options", [{"writes": []}, {}])
def test_the_operators_file_grants_nobody_what_others_made(tmp_path, options):
    file = tmp_path / "agents.toml"
    file.write_text('[agents.critic]\nwrites = ["*"]\n')
    with Relay(registry=file) as relay:
        writer(relay, "author", goto="critic", draft=1)
        relay.agent("critic", **options)(lambda turn: answer("done", update={"draft": 2}))
        with pytest.raises(OutOfScope, match="it is author's, critic may only read it"):
            relay.run_sync("author", "write")


def test_a_profile_or_a_reducer_lets_it_through():
    with Relay(reducers={"found": operator.add}) as relay:
        writer(relay, "ana", goto="ben", draft=1, found=["a"], other=1)

        @relay.agent("ben", writes=["draft"])
        async def ben(turn):
            return answer("done", update={"draft": 2, "found": ["b"]})

        assert relay.run_sync("ana", "write").state == {"draft": 2, "found": ["a", "b"], "other": 1}


def extended(known, value):
    """A reducer that changes what it is given."""
    known.extend(value)
    return known


def test_a_reducer_that_changes_its_arguments_leaves_the_parts_apart():
    with Relay(reducers={"found": extended}) as relay:

        @relay.agent("part")
        async def part(turn):
            return answer(list(turn.state["found"]), update={"found": [turn.task]})

        @relay.agent("lead")
        async def lead(turn):
            first = await turn.delegate("part", "a")
            second = await turn.delegate("part", "b")
            return [first.output, second.output]

        result = relay.run_sync("lead", "x", state={"found": ["begun"]})
        assert result.output == [["begun"], ["begun", "a"]]
        assert result.state == {"found": ["begun", "a", "b"]}
        assert flaws(relay.store) == []


def test_nothing_of_a_refused_answer_applies_where_a_reducer_changes_its_arguments():
    with Relay(reducers={"found": extended}) as relay:
        relay.agent("bad")(lambda turn: answer("x", update={"found": ["evil"], "bad key \x1b": 1}))
        relay.agent("good")(lambda turn: answer(list(turn.state["found"]), update={"found": ["good"]}))

        @relay.agent("lead")
        async def lead(turn):
            bad = await turn.delegate("bad", "a")
            good = await turn.delegate("good", "b")
            return [bad.status, bad.error.partition(":")[0], good.output]

        result = relay.run_sync("lead", "x", state={"found": ["begun"]})
        assert result.output == ["failed", "Malformed", ["begun"]]
        assert result.state == {"found": ["begun", "good"]}
        assert flaws(relay.store) == []


def test_the_profile_in_the_store_counts_for_an_agent_of_another_process(relay):
    writer(relay, "ana", goto="ben", draft=1)
    for writes, wanted in ((("draft",), {"draft": 2}), ((), OutOfScope)):
        relay.store.register(Profile(agent_id="ben", writes=writes))
        work = asyncio.run(offered(relay))
        if wanted is OutOfScope:
            with pytest.raises(OutOfScope):
                relay.give_back(work.id, answer("x", update={"draft": 2}), epoch=work.epoch)
        else:
            done = relay.give_back(work.id, answer("x", update={"draft": 2}), epoch=work.epoch)
            assert relay.result(done.workflow_id).state == wanted


async def offered(relay):
    """What ana hands to somebody who is not here, taken by hand."""
    begun = asyncio.ensure_future(relay.run("ana", "write"))
    grant = await until(lambda: (found := relay.claim("ben", lease=60)).won and found)
    begun.cancel()
    await asyncio.gather(begun, return_exceptions=True)
    return grant.handoff


def test_a_person_may_write_what_it_wants(relay):
    writer(relay, "ana", goto="ben", draft=1)
    relay.agent("ben")(lambda turn: Escalate("who decides?"))

    async def both():
        running = asyncio.ensure_future(relay.run("ana", "write"))
        asked = await until(relay.waiting)
        said = answer("so be it", update={"draft": 7, "decisions_made": "we go on"})
        relay.give_back(asked[0].id, said, by="eva")
        return await running

    result = asyncio.run(both())
    assert (result.output, result.state["draft"]) == ("so be it", 7)
    (decision,) = result.state["decisions_made"]
    assert (decision["description"], decision["made_by"]) == ("we go on", "human")


def test_handing_work_to_oneself_makes_nothing_ones_own(relay):
    writer(relay, "ana", goto="ben", draft=1)

    @relay.agent("ben")
    async def ben(turn):
        if turn.task == "again":
            return answer("x", update={"draft": 3})
        part = await turn.delegate("ben", "again", update={"draft": 2}, share=[])
        return [part.status, turn.state["draft"]]

    assert relay.run_sync("ana", "write").output == ["failed", 1]


def test_what_a_part_sees_differently_stays_with_the_part(relay):
    writer(relay, "ana", goto="lead", draft=1)

    @relay.agent("lead")
    async def lead(turn):
        part = await turn.delegate("ben", "look", update={"draft": 2})
        return [part.output, turn.state["draft"]]

    relay.agent("ben")(lambda turn: turn.state["draft"])
    assert relay.run_sync("ana", "write").output == [2, 1]


def test_owners_survive_hops_parts_groups_and_lines_of_parts(relay):
    """The maker of each variable is known to whoever comes last, on whatever way it came."""
    writer(relay, "ana", goto="lead", by_hop=1)
    writer(relay, "child", by_part=1)
    writer(relay, "first", goto="second", by_line=1)
    writer(relay, "second", by_line_too=1)
    writer(relay, "voter", by_group=1)

    @relay.agent("lead")
    async def lead(turn):
        await turn.delegate("child", "x")
        await turn.delegate("first", "x")
        await turn.broadcast(["voter"], "x")
        return Command(goto="last", update={"by_lead": 1})

    relay.agent("last")(lambda turn: dict(turn.state))
    result = relay.run_sync("ana", "write")
    tail = relay.store.find(to_agent="last")[0]
    assert relay._crew.variables(tail.context.state_ref).owners == {
        "by_hop": "ana", "by_part": "child", "by_line": "first", "by_line_too": "second", "by_group": "voter",
        "by_lead": "lead",
    }  # fmt: skip
    assert result.state == dict.fromkeys(result.state, 1)
    assert len(result.state) == 6


def test_a_relay_inside_writes_as_one_agent(relay):
    with Relay() as inner:
        writer(inner, "inside", mine=1)
        relay.nest("team", inner, "inside")
        writer(relay, "ana", goto="team", topic=1)
        result = relay.run_sync("ana", "write")
        assert result.state == {"topic": 1, "mine": 1}
        ref = result.answer.state_ref
        assert relay._crew.variables(ref).owners == {"topic": "ana", "mine": "team"}

        writer(inner, "meddler", topic=2)
        relay.nest("meddlers", inner, "meddler")
        writer(relay, "bob", goto="meddlers", topic=1)
        with pytest.raises(OutOfScope, match="it is bob's, meddlers may only read it"):
            relay.run_sync("bob", "write")


@pytest.mark.parametrize("given", [{"description": "x", "made_by": "author"}, 5, None])
def test_a_relay_inside_decides_in_sentences_too(relay, given):
    with Relay() as inner:
        inner.agent("inside")(lambda turn: Command(goto="end", graph=Command.PARENT, update={"decisions_made": given}))
        relay.nest("team", inner, "inside")
        relay.agent("end")(lambda turn: "done")
        with pytest.raises(Malformed, match=r"update\.decisions_made: .* is not a sentence"):
            relay.run_sync("team", "x")


@pytest.mark.parametrize("given", ["one", ["one", "two"]])
def test_what_a_relay_inside_decided_goes_out_with_its_command(relay, given):
    with Relay() as inner:
        writer(inner, "first", goto="inside", decisions_made="begun")
        inner.agent("inside")(lambda turn: Command(goto="end", graph=Command.PARENT, update={"decisions_made": given}))
        relay.nest("team", inner, "first")
        relay.agent("end")(lambda turn: [one["description"] for one in turn.state["decisions_made"]])
        assert relay.run_sync("team", "x").output == ["begun", *([given] if given == "one" else given)]


def test_a_relay_inside_hands_out_what_was_added_once():
    add = {"found": operator.add}
    with Relay(reducers=add) as relay, Relay(reducers=add) as inner:
        writer(inner, "one", goto="two", found=["b"])
        writer(inner, "two", found=["c"])
        relay.nest("team", inner, "one")
        writer(relay, "ana", goto="team", found=["a"])
        assert relay.run_sync("ana", "write").state == {"found": ["a", "b", "c"]}


def test_a_line_of_a_part_hands_up_what_it_added_once():
    with Relay(reducers={"found": operator.add}) as relay:
        writer(relay, "one", goto="two", found=["b"])
        writer(relay, "two", found=["c"])

        @relay.agent("ana")
        async def ana(turn):
            await turn.delegate("one", "x")
            await turn.broadcast(["one", "two"], "x")
            return answer(list(turn.state["found"]), update={"found": ["z"]})

        result = relay.run_sync("ana", "write", state={"found": ["a"]})
        assert result.output == ["a", "b", "c", "b", "c", "c"]
        assert result.state == {"found": [*result.output, "z"]}


PROGRAM = """
import os, signal, sys
from baton import Command, Relay, answer

def team(url, *, dies=False):
    relay = Relay(url)

    @relay.agent("ana")
    async def ana(turn):
        return Command(goto="lead", update={"draft": 1})

    @relay.agent("lead")
    async def lead(turn):
        await turn.delegate("child", "x")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return Command(goto=turn.task)

    @relay.agent("child")
    async def child(turn):
        return answer("x", update={"part": 1})

    for name in ("draft", "part"):
        relay.agent(name)(lambda turn: answer("x", update={turn.task: 2}))
    return relay

if __name__ == "__main__":
    team(sys.argv[1], dies=True).run_sync("ana", sys.argv[2], workflow_id="w")
"""


@pytest.mark.parametrize(("name", "owner"), [("draft", "ana"), ("part", "child")])
def test_owners_survive_the_death_of_the_process(tmp_path, name, owner):
    program, url = tmp_path / "program.py", str(tmp_path / "team.db")
    program.write_text(PROGRAM, encoding="utf-8")
    assert subprocess.run([sys.executable, program, url, name], check=False).returncode == -9
    space = {"__name__": "program"}
    exec(PROGRAM, space)
    with space["team"](url) as relay, pytest.raises(OutOfScope, match=f"state.{name}: it is {owner}'s"):
        asyncio.run(relay.resume("w"))


# --- branches beside each other ------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_branches_that_set_one_variable_differently_contradict_on_every_way(relay, way):
    @relay.agent("scout")
    async def scout(turn):
        await asyncio.sleep(0.01)
        return answer("ok", update={"best": turn.task})

    together(relay, way, [("scout", "b"), ("scout", "c")])
    with pytest.raises(Contradiction, match=r"state\.best: scout and scout set it differently; give Relay\(reducers="):
        relay.run_sync("lead", "research")


@pytest.mark.parametrize("way", WAYS)
def test_a_contradiction_is_not_tried_again(relay, way):
    """The parts are not done again by a repetition: they would contradict each other as before."""

    @relay.agent("scout")
    async def scout(turn):
        await asyncio.sleep(0.01)
        return answer("ok", update={"best": turn.task})

    together(relay, way, [("scout", "b"), ("scout", "c")])
    with pytest.raises(Contradiction):
        virtual.run(relay.run("lead", "research", on_failure="retry", max_attempts=3))
    (lead,) = relay.store.find(to_agent="lead")
    assert (lead.status, lead.attempt) == ("failed", 1)
    assert relay.store.breakers() == []


@pytest.mark.parametrize("way", WAYS)
def test_a_right_to_write_is_none_to_contradict(relay, way):
    for name in ("b", "c"):

        @relay.agent(name, writes=["best"])
        async def scout(turn):
            await asyncio.sleep(0.01)
            return answer("ok", update={"best": turn.task})

    together(relay, way, [("b", "b"), ("c", "c")])
    with pytest.raises(Contradiction, match=r"state\.best: . and . set it differently"):
        relay.run_sync("lead", "research", state={"best": "a"})


@pytest.mark.parametrize("way", WAYS)
def test_a_reducer_joins_them_on_every_way(way):
    with Relay(reducers={"found": operator.add, "most": max}) as relay:

        @relay.agent("scout")
        async def scout(turn):
            await asyncio.sleep(0.01)
            return answer("ok", update={"found": [turn.task], "most": ord(turn.task), "metrics": {turn.task: 1}})

        together(relay, way, [("scout", "b"), ("scout", "c")])
        result = relay.run_sync("lead", "research", state={"found": ["a"]})
        found = result.state.pop("found")
        assert (found[0], sorted(found)) == ("a", ["a", "b", "c"])
        assert result.state == {"most": ord("c"), "metrics": {"b": 1, "c": 1}}


@pytest.mark.parametrize("way", WAYS)
def test_branches_that_agree_do_not_contradict(relay, way):
    writer(relay, "b", best=1)
    writer(relay, "c", best=1)
    together(relay, way, [("b", "x"), ("c", "x")])
    assert relay.run_sync("lead", "research").state == {"best": 1}


def test_parts_one_after_the_other_see_each_other_and_do_not_contradict(relay):
    @relay.agent("scout")
    async def scout(turn):
        return answer("ok", update={"n": turn.state.get("n", 0) + 1})

    @relay.agent("lead")
    async def lead(turn):
        for n in range(3):
            await turn.delegate("scout", f"round {n}")
        return turn.state["n"]

    assert relay.run_sync("lead", "research").output == 3


def test_a_body_that_runs_again_contradicts_again(relay):
    """The stored answers come at once, one after the other; they were beside each other all the same."""
    seen = []

    @relay.agent("scout")
    async def scout(turn):
        await asyncio.sleep(0.01)
        return answer("ok", update={"best": turn.task})

    @relay.agent("lead")
    async def lead(turn):
        try:
            await asyncio.gather(turn.delegate("scout", "b"), turn.delegate("scout", "c"))
        except Contradiction:
            seen.append(turn.attempt)
        raise RuntimeError("once more")

    with pytest.raises(Exception, match="once more"):
        virtual.run(relay.run("lead", "research", on_failure="retry", max_attempts=3))
    assert seen == [1, 2, 3]
    assert len(relay.store.find(to_agent="scout")) == 2


NAMES = ("x", "y")
UPDATES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2), min_size=1)
PLAN = st.lists(
    st.tuples(st.sampled_from(["hop", "delegate", *WAYS[::2]]), st.lists(st.tuples(st.sampled_from("abc"), UPDATES),
    min_size=1, max_size=3)), min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(PLAN, st.sampled_from("abc"), st.sampled_from(NAMES))
def test_nobody_changes_what_another_made_whatever_they_do_to_each_other(plan, granted, what):
    """What stands at the end was written, for every variable, by its maker or by the one who was let."""
    log = {}

    async def perform(turn, rounds):
        for n, (kind, writes) in enumerate(rounds):
            if kind == "hop":
                return Command(goto=writes[0][0], task=f"{turn.task}/{n}", update={})
            parts = [(name, f"{turn.task}/{n}.{m}") for m, (name, _) in enumerate(writes)]
            for (_, update), (_, task) in zip(writes, parts, strict=True):
                log[task] = update
            try:
                if kind == "broadcast":
                    await turn.broadcast([Send(name, task=task) for name, task in parts], "x")
                elif kind == "gather":
                    await asyncio.gather(*(turn.delegate(name, task) for name, task in parts))
                else:
                    for name, task in parts:
                        await turn.delegate(name, task)
            except Contradiction:
                continue
        return "done"

    with Relay(limits=Limits(max_handoffs=None, max_agents=None, loops={"*": 99})) as relay:
        for name in "abc":

            @relay.agent(name, writes=[what] if name == granted else [])
            async def agent(turn):
                if turn.task in log:
                    await asyncio.sleep(0.001)
                    return answer("ok", update=log[turn.task])
                return await perform(turn, [one for one in plan if one[0] != "hop"])

        result = virtual.run(relay.run("a", "begin"))
        after = relay._crew.variables(result.answer.state_ref)
        wrote = {}
        for one in relay.store.find(limit=1000):
            said = relay.store.returned(one.id)
            if said is not None and said.success and one.task in log:
                for name, value in log[one.task].items():
                    wrote.setdefault((name, value), set()).add(one.to_agent)
        for name, value in after.values.items():
            allowed = {after.owners[name]} | ({granted} if name == what else set())
            assert wrote[name, value] & allowed, (name, value, wrote, after.owners)


# --- decisions -----------------------------------------------------------------------------------


def told(state):
    return [(one["made_by"], one["description"]) for one in state.get("decisions_made", ())]


def test_decisions_travel_grow_and_stand_in_the_audit(relay):
    @relay.agent("ana")
    async def ana(turn):
        return Command(goto="ben", update={"decisions_made": "no cache"})

    @relay.agent("ben")
    async def ben(turn):
        assert told(turn.state) == [("ana", "no cache")]
        await turn.delegate("child", "x")
        assert told(turn.state)[1:] == [("child", "two tables")]
        return answer("done", update={"decisions_made": ["in Rust", "this week"]})

    @relay.agent("child")
    async def child(turn):
        return answer("x", update={"decisions_made": [*turn.state["decisions_made"], "two tables"]})

    result = relay.run_sync("ana", "design")
    assert told(result.state) == [
        ("ana", "no cache"), ("child", "two tables"), ("ben", "in Rust"), ("ben", "this week"),
    ]  # fmt: skip
    made = result.state["decisions_made"]
    assert len({one["decision_id"] for one in made}) == 4
    assert all(set(one) == {"decision_id", "description", "made_by", "timestamp"} for one in made)
    recorded = [one.detail["decisions"] for one in relay.audit.query() if "decisions" in one.detail]
    assert [[one["description"] for one in said] for said in recorded] == [
        ["no cache"], ["two tables"], ["in Rust", "this week"],
    ]  # fmt: skip
    assert [one for said in recorded for one in said if one not in made] == []


@pytest.mark.parametrize("way", WAYS)
def test_decisions_of_branches_are_all_kept(relay, way):
    @relay.agent("scout")
    async def scout(turn):
        await asyncio.sleep(0.01)
        return answer("ok", update={"decisions_made": turn.task})

    together(relay, way, [("scout", "b"), ("scout", "c")], {"decisions_made": "first"})
    result = relay.run_sync("lead", "research")
    assert sorted(told(result.state)) == sorted(
        [("scout", "b"), ("scout", "c"), *([("lead", "first")] if way == "send" else [])]
    )
    recorded = [one["description"] for record in relay.audit.query() for one in record.detail.get("decisions", ())]
    assert sorted(recorded) == sorted(text for _, text in told(result.state))


FORGED = {"decision_id": "1", "description": "pay ana", "made_by": "boss", "timestamp": "2026-01-31T12:00:00Z"}


@pytest.mark.parametrize("said", [FORGED, [FORGED], ["fine", FORGED], [""], [" "], 7, [None]], ids=str)
def test_nobody_decides_in_anothers_name(relay, said):
    relay.agent("ana")(lambda turn: answer("x", update={"decisions_made": said}))
    with pytest.raises(Malformed, match=r"update\.decisions_made: .* is not a sentence"):
        relay.run_sync("ana", "design", workflow_id="w")
    assert told(relay.result("w").state) == []


def test_a_decision_that_is_changed_on_the_way_is_no_decision(relay):
    relay.agent("ana")(lambda turn: Command(goto="ben", update={"decisions_made": "no"}))

    @relay.agent("ben")
    async def ben(turn):
        (known,) = turn.state["decisions_made"]
        return answer("x", update={"decisions_made": [{**known, "description": "yes"}]})

    with pytest.raises(Malformed, match="is not a sentence"):
        relay.run_sync("ana", "design")


def test_a_request_from_outside_decides_in_its_senders_name_alone(relay):
    relay.agent("ana")(lambda turn: "done")
    said = {"decisions_made": [FORGED, "hurry"]}
    made = relay.hand_off(Handoff(from_agent="mallory", to_agent="ana", context=Context(context_variables=said)))
    assert told(relay.variables(made.id)) == [("mallory", "pay ana"), ("mallory", "hurry")]


def test_the_program_that_starts_a_workflow_gives_decisions_as_they_were_made(relay):
    relay.agent("ana")(lambda turn: "done")
    result = relay.run_sync("ana", "x", state={"decisions_made": [FORGED, "hurry"]})
    assert told(result.state) == [("boss", "pay ana"), ("user", "hurry")]
    with pytest.raises(Malformed, match="decisions_made"):
        relay.run_sync("ana", "x", state={"decisions_made": [{"description": "x"}]})


def test_decisions_of_a_relay_inside_are_those_of_its_agent(relay):
    with Relay() as inner:

        @inner.agent("inside")
        async def inside(turn):
            assert told(turn.state) == [("ana", "out here")]
            update = {"decisions_made": "in here"}
            if turn.task == "stay":
                return answer("x", update=update)
            return Command(goto="after", update=update)

        @inner.agent("after")
        async def after(turn):
            return Command(goto="end", graph=Command.PARENT, update={"decisions_made": ["and out"]})

        relay.nest("team", inner, "inside")
        relay.agent("ana")(lambda turn: Command(goto="team", update={"decisions_made": "out here"}))
        relay.agent("end")(lambda turn: "end")
        assert told(relay.run_sync("ana", "stay").state) == [("ana", "out here"), ("team", "in here")]
        assert told(relay.run_sync("ana", "leave").state) == [
            ("ana", "out here"), ("team", "in here"), ("team", "and out"),
        ]  # fmt: skip


# --- files ---------------------------------------------------------------------------------------


def test_the_files_in_progress_are_the_locks_of_the_workflow(relay, tmp_path):
    @relay.agent("ana")
    async def ana(turn):
        async with turn.lock(tmp_path / "a.py"), turn.lock(tmp_path / "b.py", shared=True):
            inside = (await turn.delegate("ben", "look")).output
        return [inside, turn.files_in_progress]

    relay.agent("ben")(lambda turn: turn.files_in_progress)

    async def run():
        async with relay.lock(tmp_path / "mine.py", owner="eva"):
            return await relay.run("ana", "edit")

    real = tmp_path.resolve()
    assert asyncio.run(run()).output == [
        [
            {"path": f"{real}/a.py", "owner": "ana", "lock_type": "exclusive"},
            {"path": f"{real}/b.py", "owner": "ana", "lock_type": "shared"},
        ],
        [],
    ]


def test_nobody_writes_the_state_of_the_task_or_its_files(relay):
    for key in ("task_status", "files_in_progress"):
        with pytest.raises(Malformed, match=f"update.{key}: this is read"):
            relay.run_sync(maker(relay, key), "x")


def maker(relay, key):
    writer(relay, f"sets {key}", **{key: "complete"})
    return f"sets {key}"
