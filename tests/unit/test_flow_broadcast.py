"""P5, C2: several agents asked at once; what their answers come to; nobody works in vain."""

import asyncio
import operator

import pytest

from baton import Budget, Command, HandoffFailed, LimitExceeded, Limits, Malformed, Relay, Send, answer
from baton.errors import BudgetExceeded, Contradiction, HandoffsDisabled, TimedOut, Undecided, UnknownAgent
from baton.protocol.context import Context
from baton.testing import virtual
from baton.testing.contracts import flaws


@pytest.fixture
def relay():
    with Relay(limits=Limits(max_handoffs=50)) as opened:
        yield opened
        assert flaws(opened.store) == []


async def until(look):
    async with asyncio.timeout(5):
        while not (found := look()):  # noqa: ASYNC110 - the store does not say when
            await asyncio.sleep(0.01)
    return found


def reviewers(relay, **answers):
    """Agents that answer with this; None never does, an exception is raised."""
    started, stopped = [], []

    def register(name, value):
        async def review(turn):
            started.append(name)
            if value is None:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    stopped.append(name)
                    raise
            if isinstance(value, Exception):
                raise value
            return value

        relay.agent(name)(review)

    for name, value in answers.items():
        register(name, value)
    return started, stopped


def lead(relay, *args, **options):
    """An agent that broadcasts this and answers with what came of it; the answers are kept."""
    kept = []

    @relay.agent("lead")
    async def lead(turn):
        kept.append(await turn.broadcast(*args, **options))
        return kept[-1].output

    return kept


def test_everybody_answers_in_the_order_in_which_they_were_asked(relay):
    reviewers(relay, a="A", b="B", c="C")
    kept = lead(relay, ["c", "a", "b"], "look at it")
    assert relay.run_sync("lead", "review").output == ["C", "A", "B"]
    (answers,) = kept
    assert (answers.status, [one.from_agent for one in answers.answers]) == ("success", ["c", "a", "b"])
    made = relay.store.find(from_agent="lead")
    assert {one.broadcast_group_id for one in made} == {answers.group_id}
    assert {(one.type, one.task, one.status) for one in made} == {("broadcast", "look at it", "completed")}


def test_some_that_fail_leave_a_partial_answer(relay):
    reviewers(relay, a="A", b=ValueError("broken"), c="C")
    kept = lead(relay, ["a", "b", "c"])
    relay.run_sync("lead", "review")
    (answers,) = kept
    assert (answers.status, answers.output) == ("partial", ["A", "C"])
    assert answers.answers[1].error == "ValueError: broken"


def test_when_everybody_fails_so_does_the_answer(relay):
    reviewers(relay, a=ValueError("x"), b=ValueError("y"))
    for mode in ("all", "any"):
        asked = asyncio.run(relay.broadcast(["a", "b"], "review", aggregate=mode))
        assert asked.status == "failed"


def test_the_first_success_is_enough_for_any(relay):
    started, stopped = reviewers(relay, ill=ValueError("x"), quick="done", slow=None)
    kept = lead(relay, ["ill", "slow", "quick"], aggregate="any")
    assert relay.run_sync("lead", "review", timeout=5).output == "done"
    assert sorted(started) == ["ill", "quick", "slow"]
    assert stopped == ["slow"]
    assert [one.status for one in kept[0].answers] == ["failed", "failed", "success"]
    assert "decided without it" in kept[0].answers[1].error
    assert relay.store.find(to_agent="slow")[0].status == "cancelled"


def test_a_majority_of_those_asked(relay):
    reviewers(
        relay, a={"verdict": "ship"}, b={"verdict": "wait"}, c={"verdict": "ship", "why": "…"}, d=None, e=ValueError()
    )
    kept = lead(relay, ["a", "b", "c", "f"], aggregate="majority", field="verdict")
    reviewers(relay, f={"verdict": "ship"})
    assert relay.run_sync("lead", "review").output == "ship"
    assert kept[0].votes == {"ship": 3, "wait": 1}


def test_a_tie_goes_to_a_person(relay):
    reviewers(relay, a={"verdict": "ship"}, b={"verdict": "wait"})
    lead(relay, ["a", "b"], aggregate="majority", field="verdict")

    async def main():
        run = asyncio.ensure_future(relay.run("lead", "review"))
        (parked,) = await until(lambda: relay.store.find(state="parked"))
        relay.give_back(parked.id, "ship it", by="ada")
        return parked, relay.store.alerts(), (await run).output

    parked, _, output = asyncio.run(main())
    assert (parked.to_agent, output) == ("lead", "ship it")
    said = [record.reason for record in relay.audit.query(handoff_id=parked.id)]
    assert any("no majority of 2 asked" in reason for reason in said)


def test_an_agent_can_decide_itself_where_the_others_do_not(relay):
    reviewers(relay, a={"verdict": "ship"}, b="just text")

    @relay.agent("lead")
    async def lead(turn):
        try:
            await turn.broadcast(["a", "b"], aggregate="majority", field="verdict")
        except Undecided as error:
            return [error.result.votes, str(error)]

    votes, said = relay.run_sync("lead", "review").output
    assert votes == {"ship": 1}
    assert said.startswith("verdict: no majority of 2 asked")


def test_each_its_own_task_and_variables_and_the_same_agent_twice(relay):
    seen = []

    @relay.agent("scout")
    async def scout(turn):
        seen.append((turn.task, dict(turn.state)))
        return turn.task

    @relay.agent("lead")
    async def lead(turn):
        return Command(
            goto=[Send("scout", {"task": "Redis"}), Send("scout", {"depth": 2}, task="caches")], update={"x": 1}
        )

    result = relay.run_sync("lead", "research")
    assert result.output == ["Redis", "caches"]
    assert seen == [("Redis", {"x": 1, "task": "Redis"}), ("caches", {"x": 1, "depth": 2})]
    assert result.state["x"] == 1


def test_from_a_relay_inside_several_agents_of_the_outer_one(relay):
    relay.agent("scout")(lambda turn: [turn.task, turn.state.get("depth"), turn.state["plan"]])
    with Relay() as inner:

        @inner.agent("architect")
        async def architect(turn):
            sends = [Send("scout", {"task": "Redis"}), Send("scout", {"depth": 2}, task="caches")]
            return Command(goto=sends, graph=Command.PARENT, update={"plan": "fast"})

        relay.nest("office", inner, "architect")
        result = relay.run_sync("office", "research")
    assert result.output == [["Redis", None, "fast"], ["caches", 2, "fast"]]
    assert [(one.from_agent, one.to_agent, one.type) for one in result.handoffs] == [
        ("office", "scout", "broadcast")
    ] * 2
    assert result.state == {"plan": "fast"}


def test_reducers_join_what_branches_changed(relay):
    with Relay(reducers={"found": operator.add}) as joining:

        @joining.agent("scout")
        async def scout(turn):
            return answer(turn.task, update={"found": [turn.task], "workflow_state": {turn.task: "done"}})

        @joining.agent("lead")
        async def lead(turn):
            return Command(goto=[Send("scout", task="b"), Send("scout", task="c")], update={"found": ["a"]})

        result = joining.run_sync("lead", "research")
        assert result.state == {"found": ["a", "b", "c"], "workflow_state": {"b": "done", "c": "done"}}


def test_two_that_set_one_variable_differently_need_a_reducer(relay):
    @relay.agent("scout")
    async def scout(turn):
        return answer("ok", update={"same": 1, "found": turn.task})

    lead(relay, [Send("scout", task="b"), Send("scout", task="c")])
    with pytest.raises(Contradiction, match=r"state\.found: scout and scout set it differently; give Relay\(reducers="):
        relay.run_sync("lead", "research")


def test_they_do_not_see_one_another_unless_asked_for(relay):
    seen = []

    @relay.agent("scout")
    async def scout(turn):
        seen.append((turn.handoff.context.metadata.get("asked_together"), [m.content for m in turn.messages]))
        await asyncio.sleep(0)
        return answer("ok", update={turn.idempotency_key: "secret of one"})

    relay.agent("other")(scout)
    lead(relay, ["scout", "other"], "look", visible=True)
    relay.run_sync("lead", "review")
    assert [one[0] for one in seen] == [["scout", "other"]] * 2
    seen.clear()
    asyncio.run(relay.broadcast(["scout", "other"], "look"))
    assert [one[0] for one in seen] == [None, None]
    assert all("secret" not in line for _, lines in seen for line in lines)


def test_contexts_are_one_frozen_value_and_still_independent(relay):
    @relay.agent("scout")
    async def scout(turn):
        with pytest.raises(Malformed):
            turn.state["plan"].append("mine")
        return answer(list(turn.state["plan"]), update={"plan": "changed"})

    lead(relay, ["scout", "scout"], update={"plan": ["one"]})
    assert relay.run_sync("lead", "review", state={"plan": ["one"]}).output == [["one"], ["one"]]
    refs = {one.context.state_ref for one in relay.store.find(to_agent="scout")}
    assert len(refs) == 1


def test_what_nobody_waits_for_is_done_all_the_same(relay):
    done = []

    @relay.agent("log")
    async def log(turn):
        await asyncio.sleep(0.01)
        done.append(turn.task)
        return "logged"

    reviewers(relay, a="A")
    kept = lead(relay, ["a", Send("log", returns=False)], "look")
    assert relay.run_sync("lead", "review").output == ["A"]
    assert done == ["look"]
    assert len(kept[0].answers) == 1
    assert relay.store.find(to_agent="log")[0].status == "completed"


def test_the_budget_of_all_is_set_aside_before_anybody_begins(relay):
    started, _ = reviewers(relay, a="A", b="B", c="C")
    lead(relay, ["a", "b", "c"], budget=Budget(max_tokens=40))
    with pytest.raises(BudgetExceeded):
        relay.run_sync("lead", "review", limits=Limits(max_tokens=100), workflow_id="w")
    assert started == []
    assert [one.status for one in relay.store.find(workflow_id="w")] == ["failed", "refused"]
    assert relay.store.workflow("w").tokens_reserved == 0


def test_what_waits_for_an_approval_has_its_budget_set_aside_too(relay):
    started, _ = reviewers(relay, a="A", b="B", c="C")
    lead(relay, ["a", "b", "c"], budget=Budget(max_tokens=40))
    asks = ("a", "b", "c")
    with pytest.raises(BudgetExceeded):
        relay.run_sync("lead", "review", limits=Limits(max_tokens=100, approve=asks), workflow_id="short")
    assert [one.status for one in relay.store.find(workflow_id="short")] == ["failed", "refused"]

    async def main():
        limits = Limits(max_tokens=150, approve=asks)
        run = asyncio.ensure_future(relay.run("lead", "review", limits=limits, workflow_id="enough"))
        waiting = await until(lambda: len(relay.waiting()) == 3 and relay.waiting())
        aside = relay.store.workflow("enough").tokens_reserved
        for one in waiting:
            relay.approve(one.id, by="ada")
        return aside, (await run).output

    assert asyncio.run(main()) == (145, ["A", "B", "C"])  # 3 × 40, and the share of the one who asks
    assert sorted(started) == ["a", "b", "c"]
    assert relay.store.workflow("enough").tokens_reserved == 0


def test_more_than_the_workflow_allows_are_not_asked_at_all(relay):
    started, _ = reviewers(relay, a="A", b="B", c="C")
    lead(relay, ["a", "b", "c"])
    with pytest.raises(LimitExceeded, match="max_handoffs"):
        relay.run_sync("lead", "review", limits=Limits(max_handoffs=2))
    assert started == []


def test_from_outside_in_the_name_of_an_agent(relay):
    reviewers(relay, a="A", b="B")
    answers = asyncio.run(
        relay.broadcast(["a", Send("b", task="the other half")], "half", from_agent="ops", timeout="5m")
    )
    assert (answers.output, answers.success) == (["A", "B"], True)
    assert [
        (one.from_agent, one.to_agent, one.task) for one in relay.store.find(broadcast_group_id=answers.group_id)
    ] == [
        ("ops", "a", "half"),
        ("ops", "b", "the other half"),
    ]


def test_from_outside_only_those_who_are_asked_count_as_agents():
    with Relay(limits=Limits(max_agents=2)) as narrow:
        reviewers(narrow, a="A", b="B", c="C")
        assert asyncio.run(narrow.broadcast(["a", "b"], "review")).output == ["A", "B"]
        with pytest.raises(LimitExceeded, match=r"c would be agent 3 of 2 .*\(a, b\)"):
            asyncio.run(narrow.broadcast(["a", "b", "c"], "review"))


def test_from_outside_nobody_sees_what_the_others_are_asked(relay):
    seen = {}

    @relay.agent("b")
    async def b(turn):
        seen["b"] = dict(turn.handoff.context.metadata)
        return Command(goto="c")

    @relay.agent("c")
    async def c(turn):
        seen["c"] = dict(turn.handoff.context.metadata)
        return dict(turn.state)

    secret = Send("b", {"salary": 100}, task="for b alone")
    context = Context(metadata={"ticket": 7})
    answers = asyncio.run(relay.broadcast([secret, "c"], "work", context=context, visible=True))
    assert answers.output == [{"salary": 100}, {}]
    both = {"ticket": 7, "asked_together": ["b", "c"]}
    assert seen == {"b": both, "c": both}
    parts = relay.store.find(broadcast_group_id=answers.group_id)
    assert len(parts) == 3
    assert all("salary" not in str(one.context) for one in parts)
    assert [str(one.context).count("for b alone") for one in parts] == [0, 0, 0]


def test_a_broadcast_is_remembered(relay):
    calls = []

    @relay.agent("a")
    async def a(turn):
        calls.append("a")
        return "A"

    @relay.agent("lead")
    async def lead(turn):
        first = await turn.broadcast(["a", "a"], key="k")
        again = await turn.broadcast(["a", "a"], key="k")
        return [first.output, again.output, first.group_id == again.group_id]

    assert relay.run_sync("lead", "review").output == [["A", "A"], ["A", "A"], True]
    assert calls == ["a", "a"]


def test_a_key_of_one_way_to_ask_is_no_key_of_another(relay):
    @relay.agent("say")
    async def say(turn):
        return turn.task

    @relay.agent("lead")
    async def lead(turn):
        said = {}
        for key in ("k", "k:1", "goto", "goto:1", "broadcast:k:1", "delegate:goto:1"):
            said[key] = (await turn.delegate("say", f"delegate {key}", key=key)).output
        for key in ("k", "goto"):
            said[f"both {key}"] = (await turn.broadcast(["say"], f"broadcast {key}", key=key)).output[0]
        asked = asyncio.ensure_future(turn.escalate("escalate k", key="k", rationale="two ways"))
        relay.give_back((await until(relay.waiting))[0].id, "escalate k", by="ada")
        said["up"] = (await asked).output
        assert said == {
            **{key: f"delegate {key}" for key in list(said)[:6]},
            "both k": "broadcast k", "both goto": "broadcast goto", "up": "escalate k",
        }  # fmt: skip
        return Command(goto=[Send("say", task="goto")])

    assert relay.run_sync("lead", "review").output == ["goto"]
    parts = {one.part: one.task for one in relay.store.find(from_agent="lead")}
    assert (parts["k"], parts["goto:1"]) == ("delegate k", "goto")  # as they are called in older stores
    groups = [one.broadcast_group_id for one in relay.store.find(from_agent="lead") if one.type == "broadcast"]
    assert len(set(groups)) == len(groups) == 3


def test_wrong_calls_say_what_is_right(relay):
    reviewers(relay, a="A")
    wrong = [
        (("a",), {}, "is not a list of agents"),
        (([],), {}, "is not a list of agents"),
        ((["a"],), {"aggregate": "most"}, "known: all, any, majority"),
        ((["a"],), {"aggregate": "majority"}, "majority counts one field"),
        ((["a"],), {"field": "verdict"}, "majority counts one field"),
        ((["a"],), {"agregate": "any"}, "aggregate"),
        ((["nobody"],), {"aggregate": "any"}, "agent nobody: not registered"),
    ]

    @relay.agent("lead")
    async def lead(turn):
        said = []
        for args, options, _ in wrong:
            try:
                await turn.broadcast(*args, **options)
            except (Malformed, UnknownAgent) as error:
                said.append(str(error))
        return said

    for said, (_, _, expected) in zip(relay.run_sync("lead", "review").output, wrong, strict=True):
        assert expected in said
    with pytest.raises(Malformed, match="empty list"):
        Command(goto=[])
    asyncio.run(relay.broadcast(["a"], "so that the supervisor is known"))
    with pytest.raises(Malformed, match="one to hand work to"):
        relay.run_sync("supervisor", "x")


def test_who_works_alone_asks_nobody(relay):
    reviewers(relay, a="A")
    lead(relay, ["a"])
    relay.handoffs = False
    with pytest.raises(HandoffsDisabled):
        relay.run_sync("lead", "review")


def test_a_hundred_at_once(relay):
    @relay.agent("scout")
    async def scout(turn):
        await asyncio.sleep(0)
        return turn.task

    with Relay(limits=Limits(max_handoffs=200)) as wide:
        wide.agent("scout")(scout)
        answers = asyncio.run(wide.broadcast([Send("scout", task=str(n)) for n in range(100)], "count"))
    assert answers.output == [str(n) for n in range(100)]


def test_a_person_in_the_group(relay):
    reviewers(relay, a={"verdict": "ship"})
    lead(relay, ["a", "human"], "ship it?", aggregate="all")

    async def main():
        run = asyncio.ensure_future(relay.run("lead", "review"))
        asked = await until(lambda: relay.store.find(to_agent="human"))
        relay.give_back(asked[0].id, {"verdict": "wait"}, by="ada")
        return (await run).output

    assert asyncio.run(main()) == [{"verdict": "ship"}, {"verdict": "wait"}]


def test_one_that_is_late_counts_as_a_failure():
    with Relay() as relay:
        reviewers(relay, a="A", slow=None)
        kept = lead(relay, ["a", "slow"], timeout=60)

        async def main():
            return (await relay.run("lead", "review")).output

        assert virtual.run(main()) == ["A"]
        assert [one.status for one in kept[0].answers] == ["success", "timeout"]


def test_a_failing_group_member_is_an_error_of_nobody_else(relay):
    reviewers(relay, a=HandoffFailed("no"), b="B")
    kept = lead(relay, ["a", "b"], aggregate="any")
    assert relay.run_sync("lead", "review").output == "B"
    assert kept[0].answers[0].status == "failed"


def test_a_program_hears_that_there_is_no_majority(relay):
    reviewers(relay, a={"verdict": "ship"}, b={"verdict": "wait"})
    with pytest.raises(Undecided, match="no majority of 2 asked") as caught:
        asyncio.run(relay.broadcast(["a", "b"], "review", aggregate="majority", field="verdict"))
    assert caught.value.result.votes == {"ship": 1, "wait": 1}
    assert [one.from_agent for one in caught.value.result.answers] == ["a", "b"]
    assert relay.waiting() == []


def test_without_a_single_vote_nothing_is_decided(relay):
    reviewers(relay, a={"verdict": "ship"}, b={"verdict": "ship"}, c="ship", d=ValueError("broken"))
    wanted = {"verdct": r"a: has no field 'verdct' \(it has verdict\)", "verdict": "c: the answer is not an object"}
    for field, to in (("verdct", ["a", "b"]), ("verdict", ["c", "d"])):
        with pytest.raises(Undecided, match=wanted[field]):
            asyncio.run(relay.broadcast(to, "review", aggregate="majority", field=field))
    lead(relay, ["a", "b"], aggregate="majority", field="verdct")
    with pytest.raises(TimedOut):
        relay.run_sync("lead", "review", timeout=0.2)
    assert [one.to_agent for one in relay.waiting()] == ["lead"]
    said = [answer.error for one in relay.store.find(from_agent="lead") if (answer := relay.store.returned(one.id))]
    assert not any("decided without it" in one for one in said)


def test_a_name_that_nobody_has_asks_nobody(relay):
    started, _ = reviewers(relay, alpha="A", beta="B")
    with pytest.raises(UnknownAgent, match="did you mean beta"):
        asyncio.run(relay.broadcast(["alpha", "betta"], "review"))
    kept = lead(relay, ["alpha", "betta"])
    with pytest.raises(UnknownAgent, match="did you mean beta"):
        relay.run_sync("lead", "review")
    assert started == kept == []


def test_whoever_did_not_answer_is_named(relay):
    reviewers(relay, quick="done", slow=None)
    kept = lead(relay, ["slow", "quick"], aggregate="any")
    relay.run_sync("lead", "review", timeout=5)
    slow, quick = kept[0].answers
    assert (slow.from_agent, slow.to_agent, quick.from_agent) == ("slow", "lead", "quick")
    assert [relay.store.get(one.handoff_id).to_agent for one in kept[0].answers] == ["slow", "quick"]


def test_a_command_to_several_that_all_fail_says_why(relay):
    reviewers(relay, a=ValueError("x"), b=ValueError("y"))

    @relay.agent("lead")
    async def lead(turn):
        return Command(goto=[Send("a"), Send("b")])

    with pytest.raises(HandoffFailed, match="a: ValueError: x; b: ValueError: y"):
        relay.run_sync("lead", "review")
