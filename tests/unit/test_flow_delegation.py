"""P4, J6: a part of the work goes to another agent, and the answer comes back to the one who keeps the task."""

import asyncio

import pytest

from baton import BatonError, Command, HandoffFailed, Profile, Relay, Return
from baton.errors import BudgetExceeded, LimitExceeded, Malformed, NotCapable, UnknownAgent
from baton.protocol.limits import Limits
from baton.protocol.results import Updates
from baton.testing import virtual


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened


def with_echo(relay, name="echo"):
    @relay.agent(name)
    async def echo(turn):
        return turn.task.upper()

    return relay


def parent(relay, body, **options):
    relay.agent("parent", **options)(body)


def test_the_parent_keeps_the_work_and_gets_the_answer(relay):
    with_echo(relay)
    held = []

    async def body(turn):
        answer = await turn.delegate("echo", "a part")
        held.extend(handoff_id for handoff_id, _ in relay.store.held())
        assert isinstance(answer, Return)
        return [answer.output, answer.from_agent, answer.to_agent]

    parent(relay, body)
    result = relay.run_sync("parent", "whole", workflow_id="w")
    assert result.output == ["A PART", "echo", "parent"]
    root, child = relay.store.find(workflow_id="w")
    assert held == [root.id]
    assert (child.type, child.parent_id, child.depth, child.from_agent) == ("delegation", root.id, 1, "parent")


def test_several_parts_run_in_parallel(relay):
    @relay.agent("slow")
    async def slow(turn):
        await asyncio.sleep(10)
        return turn.task

    async def body(turn):
        answers = await asyncio.gather(*(turn.delegate("slow", f"part {n}") for n in range(4)))
        return [answer.output for answer in answers]

    parent(relay, body)

    async def main():
        begun = asyncio.get_running_loop().time()
        result = await relay.run("parent", "whole")
        return result.output, asyncio.get_running_loop().time() - begun

    output, took = virtual.run(main())
    assert output == [f"part {n}" for n in range(4)]
    assert took < 12


def test_the_parent_may_go_on_meanwhile(relay):
    with_echo(relay)

    async def body(turn):
        part = asyncio.ensure_future(turn.delegate("echo", "a part"))
        mine = "mine"
        return [mine, (await part).output]

    parent(relay, body)
    assert relay.run_sync("parent", "whole").output == ["mine", "A PART"]


def test_every_delegation_has_a_timeout(relay):
    with_echo(relay)

    async def body(turn):
        await turn.delegate("echo", "one")
        await turn.delegate("echo", "two", timeout=7)

    parent(relay, body)
    relay.run_sync("parent", "whole", workflow_id="w")
    _, one, two = relay.store.find(workflow_id="w")
    assert (one.return_protocol.timeout, two.return_protocol.timeout) == (600.0, 7)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon"])
def test_a_timeout_that_is_none_is_refused(relay, timeout):
    with_echo(relay)

    async def body(turn):
        await turn.delegate("echo", "one", timeout=timeout)

    parent(relay, body)
    with pytest.raises(Malformed, match="timeout"):
        relay.run_sync("parent", "whole")


def test_a_child_that_is_late_answers_timeout(relay):
    ended = []

    @relay.agent("slow")
    async def slow(turn):
        try:
            await asyncio.sleep(10_000)
        finally:
            ended.append(turn.cancelled)

    async def body(turn):
        answer = await turn.delegate("slow", "part", timeout=100)
        return [answer.status, answer.success]

    parent(relay, body)
    assert virtual.run(relay.run("parent", "whole")).output == ["timeout", False]
    events = [r.event_type for r in relay.audit.query(to_agent="slow")]
    assert events == ["initiated", "accepted", "reminded", "timeout", "failed"]
    assert ended == [True]


def test_the_child_sees_what_the_parent_shares(relay):
    @relay.agent("child")
    async def child(turn):
        return [turn.state, [m.content for m in turn.messages]]

    async def body(turn):
        return (await turn.delegate("child", "part", update={"only": "child"})).output

    parent(relay, body)
    state, messages = relay.run_sync("parent", "whole", state={"x": 1}).output
    assert state == {"x": 1, "only": "child"}
    assert messages == ["What went before, in short.\nThe request was: whole\n- user: whole", "part"]


def test_what_a_child_changed_is_in_the_parents_state_and_goes_on(relay):
    @relay.agent("child")
    async def child(turn):
        changed = {"price": 7, "metrics": {"child": 1}}
        return Return(context_updates=Updates(variables_changed=changed))

    async def body(turn):
        await turn.delegate("child", "part")
        assert turn.state["price"] == 7
        assert turn.state["metrics"] == {"before": 0, "child": 1}
        return Command(goto="next", update={"metrics": {"parent": 2}})

    parent(relay, body)

    @relay.agent("next")
    async def following(turn):
        return turn.state

    wanted = {"price": 7, "metrics": {"before": 0, "child": 1, "parent": 2}}
    result = relay.run_sync("parent", "whole", state={"metrics": {"before": 0}})
    assert result.output == wanted
    assert result.state == wanted


def test_what_a_child_changed_is_in_the_result_of_a_parent_that_answers(relay):
    @relay.agent("child")
    async def child(turn):
        return Return(context_updates=Updates(variables_changed={"price": 7, "both": "child"}))

    async def body(turn):
        await turn.delegate("child", "part")
        return Return(context_updates=Updates(variables_changed={"both": "parent"}))

    relay.agent("parent", writes=["both"])(body)
    assert relay.run_sync("parent", "whole").state == {"price": 7, "both": "parent"}


def test_a_child_may_hand_on_and_the_last_one_answers(relay):
    with_echo(relay)

    @relay.agent("child")
    async def child(turn):
        return Command(goto="echo", task="handed on", update={"by": "child"})

    async def body(turn):
        answer = await turn.delegate("child", "part")
        return [answer.output, answer.from_agent]

    parent(relay, body)
    assert relay.run_sync("parent", "whole").output == ["HANDED ON", "echo"]


def test_a_child_that_fails_gives_a_return(relay):
    @relay.agent("broken")
    async def broken(turn):
        raise ValueError("no such file")

    async def body(turn):
        answer = await turn.delegate("broken", "part")
        return [answer.status, answer.error]

    parent(relay, body)
    assert relay.run_sync("parent", "whole").output == ["failed", "ValueError: no such file"]


def test_a_child_that_is_refused_raises_what_refused_it(relay):
    with_echo(relay)
    raised = []

    async def body(turn):
        for options in ({"to": "ecko"}, {"to": "echo", "budget": 1000}):
            try:
                await turn.delegate(options.pop("to"), "part", **options)
            except BatonError as error:
                raised.append((type(error), str(error)))
        await turn.delegate("echo", "first")
        await turn.delegate("echo", "one too many")

    parent(relay, body)
    with pytest.raises(LimitExceeded, match=r"max_handoffs.*Limits\(max_handoffs=2\)"):
        relay.run_sync("parent", "whole", limits=Limits(max_handoffs=1, max_tokens=100))
    assert [kind for kind, _ in raised] == [UnknownAgent, BudgetExceeded]
    assert "did you mean echo" in raised[0][1]


def test_a_refused_child_is_refused_again_when_the_body_runs_again(relay):
    raised = []

    async def body(turn):
        try:
            await turn.delegate("nobody", "part")
        except UnknownAgent as error:
            raised.append(str(error))
        if turn.attempt == 1 and len(raised) == 1:
            raise asyncio.CancelledError
        return "done"

    parent(relay, body)

    async def main():
        run = asyncio.create_task(relay.run("parent", "whole", workflow_id="w"))
        while not raised:  # noqa: ASYNC110 - the body says when
            await asyncio.sleep(0)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    relay_again = relay
    asyncio.run(main())
    if relay.result("w").status != "failed":
        assert asyncio.run(relay_again.resume("w")).output == "done"
    assert len(set(raised)) == 1


def test_the_same_key_works_once_and_gives_the_stored_answer(relay):
    calls = []

    @relay.agent("child")
    async def child(turn):
        calls.append(turn.task)
        return len(calls)

    async def body(turn):
        same = [(await turn.delegate("child", "part", key="k")).output for _ in range(3)]
        other = (await turn.delegate("child", "part", key="l")).output
        return [same, other]

    parent(relay, body)
    assert relay.run_sync("parent", "whole").output == [[1, 1, 1], 2]
    assert len(calls) == 2


def test_default_keys_are_order_and_content(relay):
    calls = []

    @relay.agent("child")
    async def child(turn):
        calls.append(turn.task)
        return len(calls)

    bodies = []

    async def body(turn):
        bodies.append(1)
        first = [(await turn.delegate("child", task)).output for task in ("a", "b")]
        again = (await turn.delegate("child", "c" if len(bodies) == 1 else "changed")).output
        if len(bodies) == 1:
            await asyncio.sleep(1000)
        return [*first, again]

    parent(relay, body)

    async def main():
        run = asyncio.create_task(relay.run("parent", "whole", workflow_id="w"))
        await asyncio.sleep(5)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        return await relay.resume("w")

    assert virtual.run(main()).output == [1, 2, 4]
    assert calls == ["a", "b", "c", "changed"]


def test_two_equal_parts_are_two_parts(relay):
    with_echo(relay)

    async def body(turn):
        return [(await turn.delegate("echo", "same")).handoff_id for _ in range(2)]

    parent(relay, body)
    one, two = relay.run_sync("parent", "whole", limits=Limits(loops={"parent->echo": 5})).output
    assert one != two


def test_a_part_without_the_capability_goes_to_who_has_it(relay):
    with_echo(relay)

    @relay.agent("able", capabilities=["sql"])
    async def able(turn):
        return "by able"

    async def body(turn):
        return (await turn.delegate("echo", "part", capabilities=["sql"])).output

    parent(relay, body)
    assert virtual.run(relay.run("parent", "whole")).output == "by able"
    events = [r.event_type for r in relay.audit.query(from_agent="parent")]
    assert events == ["initiated", "rejected", "rerouted", "accepted", "completed"]


def test_relay_delegate_returns_also_what_failed(relay):
    with_echo(relay)

    @relay.agent("broken")
    async def broken(turn):
        raise ValueError("no such file")

    async def main():
        return [await relay.delegate(name, "part", from_agent="me") for name in ("echo", "broken")]

    good, bad = asyncio.run(main())
    assert (good.output, good.to_agent) == ("PART", "me")
    assert (bad.status, bad.error) == ("failed", "ValueError: no such file")


def test_an_agent_of_another_process_is_waited_for(tmp_path):
    with Relay(str(tmp_path / "team.db")) as here, Relay(str(tmp_path / "team.db")) as there:
        with_echo(there)

        @here.agent("parent")
        async def body(turn):
            return (await turn.delegate("echo", "part")).output

        async def main():
            stop = asyncio.Event()
            run = asyncio.create_task(here.run("parent", "whole"))
            await asyncio.sleep(0.2)
            worker = asyncio.create_task(there.work(stop))
            try:
                async with asyncio.timeout(10):
                    return (await run).output
            finally:
                stop.set()
                await worker

        assert asyncio.run(main()) == "PART"


def test_a_question_is_answered_hours_later_by_a_person(relay):
    async def body(turn):
        return f"they said {await turn.ask('may I?')}"

    parent(relay, body)

    async def main():
        run = asyncio.create_task(relay.run("parent", "whole"))
        await asyncio.sleep(5 * 3600)
        (question,) = relay.waiting()
        assert (question.task, question.to_agent) == ("may I?", "human")
        assert [alert.subject for alert in relay.alerts()] == [question.id]
        relay.give_back(question.id, "yes", by="ada")
        return await run

    result = virtual.run(main())
    assert result.output == "they said yes"
    assert relay.alerts() == []
    assert relay.audit.query(to_agent="human")[-1].by == "ada"


def test_a_question_that_nobody_answers_is_not_answered_by_silence(relay):
    async def body(turn):
        return await turn.ask("may I?", timeout=3600)

    parent(relay, body)
    with pytest.raises(HandoffFailed, match="human did not answer"):
        virtual.run(relay.run("parent", "whole", timeout=4 * 3600))


def test_ask_an_agent(relay):
    with_echo(relay)

    async def body(turn):
        return await turn.ask("what?", to="echo")

    parent(relay, body)
    assert relay.run_sync("parent", "whole").output == "WHAT?"


def test_strict_capabilities_without_anybody_able_wait_for_a_person(relay):
    with_echo(relay)

    async def body(turn):
        return (await turn.delegate("echo", "part", capabilities=["sql"])).output

    parent(relay, body)

    async def main():
        run = asyncio.create_task(relay.run("parent", "whole"))
        await asyncio.sleep(60)
        (parked,) = relay.waiting()
        relay.give_back(parked.id, "by hand", by="ada")
        return parked.status, (await run).output

    assert virtual.run(main()) == ("parked", "by hand")
    assert NotCapable.__mro__


def test_a_parent_that_fails_leaves_no_work_behind(relay):
    relay.store.register(Profile(agent_id="elsewhere"))

    @relay.agent("boss")
    async def boss(turn):
        async with asyncio.timeout(0.05):
            await asyncio.shield(turn.delegate("elsewhere", "a part"))

    with pytest.raises(HandoffFailed, match="TimeoutError"):
        relay.run_sync("boss", "work")
    (part,) = relay.store.find(to_agent="elsewhere")
    assert part.status == "cancelled"
