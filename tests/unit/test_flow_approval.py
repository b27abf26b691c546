"""C7: work that a person approves waits, for days if need be, and silence is not consent."""

import asyncio

import pytest

from baton import Command, Handoff, Limits, Relay
from baton.errors import ApprovalDenied
from baton.testing import virtual


def team(relay):
    @relay.agent("build")
    async def build(turn):
        return Command(goto="deploy", update={"version": 7}, reason="it is built")

    @relay.agent("deploy")
    async def deploy(turn):
        return f"deployed {turn.state['version']}"

    return relay


@pytest.fixture
def relay():
    with Relay(limits=Limits(approve=("deploy",), approval_seconds=3600)) as opened:
        yield team(opened)


def trail(relay):
    return [(r.event_type, r.by) for r in relay.audit.query(to_agent="deploy")]


def test_a_run_waits_for_the_approval(relay):
    async def main():
        run = asyncio.create_task(relay.run("build", "release", workflow_id="w"))
        await asyncio.sleep(1800)
        (asked,) = relay.waiting()
        before = relay.result("w").status
        relay.approve(asked.id, by="ada", reason="looks good")
        return before, (await run).output

    assert virtual.run(main()) == ("waiting", "deployed 7")
    events = [event for event, _ in trail(relay)]
    assert events == ["initiated", "approval_requested", "approved", "accepted", "completed"]
    assert trail(relay)[2] == ("approved", "ada")


@pytest.fixture
def misspelt():
    with Relay(limits=Limits(approve=("payuot", "other", "human"))) as relay:
        for name in ("payout", "other"):
            relay.agent(name)(lambda turn: "done")
        yield relay


SAID = "approve names payuot, and no agent is called so: nobody is asked about it; did you mean payout?"


def test_an_approval_that_protects_nobody_is_said_once(misspelt, caplog):
    for _ in range(2):
        virtual.run(misspelt.run("payout", "x", wait=False))
    assert [record.getMessage() for record in caplog.records] == [SAID]
    assert caplog.records[0].levelname == "WARNING"


def test_also_where_work_is_only_sent(misspelt, caplog):
    misspelt.hand_off(Handoff(from_agent="user", to_agent="payout", task="x"))
    assert [record.getMessage() for record in caplog.records] == [SAID]


def test_also_by_a_worker_before_any_work(misspelt, caplog):
    async def main():
        stop = asyncio.Event()
        stop.set()
        await misspelt.work(stop)

    virtual.run(main())
    assert [record.getMessage() for record in caplog.records] == [SAID]


def test_a_name_that_is_there_is_not_complained_about(caplog):
    with Relay(limits=Limits(approve=("payout",))) as relay:
        relay.agent("payout")(lambda turn: "done")
        virtual.run(relay.run("payout", "x", wait=False))
    assert caplog.records == []


def test_a_denial_ends_it(relay):
    async def main():
        run = asyncio.create_task(relay.run("build", "release", workflow_id="w"))
        await asyncio.sleep(60)
        relay.deny(relay.waiting()[0].id, by="ada", reason="it is Friday")
        with pytest.raises(ApprovalDenied, match="ada said no: it is Friday"):
            await run

    virtual.run(main())
    assert [event for event, _ in trail(relay)] == ["initiated", "approval_requested", "denied"]
    assert relay.result("w").status == "refused"


def test_silence_is_not_consent(relay):
    async def main():
        with pytest.raises(ApprovalDenied, match="no answer is not an approval"):
            await relay.run("build", "release")
        return asyncio.get_running_loop().time()

    assert 3600 <= virtual.run(main()) < 3600 + 60
    assert [event for event, _ in trail(relay)] == ["initiated", "approval_requested", "denied"]
    assert relay.waiting() == []


def test_a_late_approval_changes_nothing(relay):
    async def main():
        with pytest.raises(ApprovalDenied):
            await relay.run("build", "release", workflow_id="w")
        (denied,) = relay.store.find(workflow_id="w", to_agent="deploy")
        with pytest.raises(Exception, match="it has ended"):
            relay.approve(denied.id, by="ada")

    virtual.run(main())


def test_a_delegation_that_a_person_denies_raises_the_denial(relay):
    raised = []

    @relay.agent("boss")
    async def boss(turn):
        try:
            await turn.delegate("deploy", "part", timeout=7200)
        except ApprovalDenied as error:
            raised.append(str(error))
        return "went on"

    async def main():
        run = asyncio.create_task(relay.run("boss", "release"))
        await asyncio.sleep(60)
        relay.deny(relay.waiting()[0].id, by="ada")
        return (await run).output

    assert virtual.run(main()) == "went on"
    assert raised == ["ada said no"]


def test_the_first_request_may_need_an_approval_too(relay):
    async def main():
        begun = await relay.run("deploy", "now", wait=False, state={"version": 8})
        assert begun.status == "waiting"
        relay.approve(relay.waiting()[0].id, by="ada")
        return await relay.resume(begun.workflow_id)

    assert virtual.run(main()).output == "deployed 8"


def test_the_limits_of_the_one_who_takes_the_work_hold_for_work_sent_from_elsewhere(tmp_path):
    path = str(tmp_path / "team.db")
    ran = []

    async def main():
        with Relay(path, limits=Limits(approve=("payout",))) as team, Relay(path) as shell:

            @team.agent("clerk")
            async def clerk(turn):
                return Command(goto="payout")

            @team.agent("payout")
            async def payout(turn):
                ran.append(turn.handoff.approved_by)
                return "paid"

            work = asyncio.ensure_future(team.work())
            direct = shell.hand_off(Handoff(from_agent="user", to_agent="payout", task="pay 1"))
            passed = shell.hand_off(Handoff(from_agent="user", to_agent="clerk", task="pay 2"))
            async with asyncio.timeout(10):
                asked = []
                while len(asked) < 2:
                    await team._crew.hub.changed(1, lambda: False)
                    asked = [one for one in team.waiting() if one.to_agent == "payout"]
                assert ran == []
                for one in asked:
                    shell.approve(one.id, by="ana")
                while not (shell.store.returned(direct.id) and shell.store.returned(passed.id)):
                    await team._crew.hub.changed(1, lambda: False)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    asyncio.run(main())
    assert ran == ["ana", "ana"]
