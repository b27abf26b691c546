"""Who made an artifact is the supervisor's word: whoever gave it back, or whoever made what is only passed on."""

import asyncio

import pytest

from baton import Artifact, Command, Escalate, Relay, Send, answer
from baton.testing.contracts import flaws

LIE = Artifact(id="lie", path="out/lie.md", created_by="author")


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened
        assert flaws(opened.store) == []


def makers(artifacts):
    return {one.id: one.created_by for one in artifacts}


def made(result):
    return makers(result.answer.context_updates.artifacts_produced)


def there(relay):
    """An agent `end` that says whose the artifacts are that it got."""
    relay.agent("end")(lambda turn: makers(turn.handoff.context.artifacts))


def test_an_answer_names_its_own_agent_as_the_author(relay):
    relay.agent("author")(lambda turn: answer("x", artifacts=(Artifact(id="a", path="a"),)))
    relay.agent("critic")(lambda turn: answer("x", artifacts=(LIE,)))
    assert made(relay.run_sync("author", "x")) == {"a": "author"}
    assert made(relay.run_sync("critic", "x")) == {"lie": "critic"}


def test_so_do_a_command_and_what_is_only_named(relay):
    there(relay)
    relay.agent("critic")(lambda turn: Command(goto="end", artifacts=(LIE,), update={"artifacts": {"named": "n"}}))
    assert relay.run_sync("critic", "x").output == {"lie": "critic", "named": "critic"}


def test_what_is_passed_on_keeps_its_author(relay):
    there(relay)
    plan = Artifact(id="plan", path="./plan.md", digest="d")
    relay.agent("author")(lambda turn: Command(goto="critic", artifacts=(plan,)))

    @relay.agent("critic")
    async def critic(turn):
        (known,) = turn.handoff.context.artifacts
        assert known.path == "plan.md"
        return Command(goto="end" if turn.task == "command" else "last", artifacts=(known, LIE))

    @relay.agent("last")
    async def last(turn):
        return answer("x", artifacts=turn.handoff.context.artifacts)

    assert relay.run_sync("author", "command").output == {"plan": "author", "lie": "critic"}
    assert made(relay.run_sync("author", "answer")) == {"plan": "author", "lie": "critic"}


@pytest.mark.parametrize("other", [{"path": "other.md"}, {"digest": "e"}])
def test_another_thing_under_the_same_id_is_its_makers(relay, other):
    there(relay)
    plan = {"id": "plan", "path": "plan.md", "digest": "d"}
    relay.agent("author")(lambda turn: Command(goto="critic", artifacts=(Artifact(**plan),)))
    relay.agent("critic")(
        lambda turn: Command(goto="end", artifacts=(Artifact(**{**plan, **other}, created_by="author"),))
    )
    assert relay.run_sync("author", "x").output == {"plan": "critic"}


@pytest.mark.parametrize("way", ["delegate", "broadcast", "send"])
def test_what_parts_made_stays_theirs(relay, way):
    relay.agent("part")(lambda turn: answer("x", artifacts=(LIE,)))
    own = Artifact(id="own", path="own", created_by="part")

    @relay.agent("lead")
    async def lead(turn):
        if way == "send":
            return Command(goto=[Send("part")], artifacts=(own,))
        await (turn.delegate("part", "x") if way == "delegate" else turn.broadcast(["part"], "x"))
        return answer("x", artifacts=(own,))

    assert made(relay.run_sync("lead", "x")) == {"lie": "part", "own": "lead"}


def test_a_relay_inside_makes_them_as_one_agent(relay):
    with Relay() as inner:
        inner.agent("inside")(lambda turn: answer("x", artifacts=(LIE,)))
        relay.nest("team", inner, "inside")
        assert made(relay.run_sync("team", "x")) == {"lie": "team"}


def test_what_a_person_answers_with_is_the_persons(relay):
    relay.agent("asks")(lambda turn: Escalate("who decides?"))

    async def both():
        running = asyncio.ensure_future(relay.run("asks", "x", workflow_id="w"))
        async with asyncio.timeout(5):
            while not (waiting := [one for one in relay.store.find(workflow_id="w") if one.status == "parked"]):  # noqa: ASYNC110 - the store does not say when
                await asyncio.sleep(0.01)
        relay.give_back(waiting[0].id, answer("x", artifacts=(LIE,)), by="pat")
        return await running

    assert made(asyncio.run(both())) == {"lie": "human"}
