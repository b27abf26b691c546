"""P16: who is well gets work, who is not gets none until it is back. In virtual time."""

import asyncio
import logging

import pytest

from baton import Profile, Reject, Relay, clock
from baton.errors import Malformed, NotFound, StoreError
from baton.guards import health
from baton.protocol.handoff import Handoff, Requirement, Validation
from baton.protocol.results import failed
from baton.testing import virtual
from baton.testing.agents import Fake, Obedient

SQL = ["sql"]


class Checked(Obedient):
    """An agent with a health check of its own, whose answers are set from outside."""

    def __init__(self, answer="by checked"):
        super().__init__(answer)
        self.wrong = None
        self.checks = []

    async def health(self):
        self.checks.append(round(asyncio.get_running_loop().time()))
        if isinstance(self.wrong, float):
            await asyncio.sleep(self.wrong)
        elif self.wrong is not None:
            raise self.wrong


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened


def serving(relay, stop):
    return asyncio.create_task(relay.work(stop))


async def worked(relay, seconds):
    stop = asyncio.Event()
    task = serving(relay, stop)
    await asyncio.sleep(seconds)
    stop.set()
    await task


def well(relay, name):
    return {row.profile.agent_id: row.health for row in relay.store.agents()}[name]


def request(to_agent, **fields):
    return Handoff(from_agent="user", to_agent=to_agent, task="work", **fields)


def test_an_agent_is_checked_every_60_s(relay):
    relay.add("checked", agent := Checked())
    virtual.run(worked(relay, 200))
    assert len(agent.checks) == 4
    assert all(60 <= after - before <= 66 for before, after in zip(agent.checks, agent.checks[1:], strict=False))


def test_the_first_failure_makes_suspect_the_third_unavailable_and_a_good_check_well(relay, caplog):
    relay.add("checked", agent := Checked())
    agent.wrong = OSError("the model is gone\nand its key is sk-proj-" + "a1B2c3D4e5" * 4)

    async def main():
        stop = asyncio.Event()
        task = serving(relay, stop)
        seen = []
        for _ in range(5):
            await asyncio.sleep(58)
            seen.append((well(relay, "checked").state, well(relay, "checked").failures, len(relay.alerts())))
        worst, alerts = well(relay, "checked"), relay.alerts()
        agent.wrong = None
        await asyncio.sleep(66)
        stop.set()
        await task
        return seen, worst, alerts

    with caplog.at_level(logging.WARNING, "baton"):
        seen, worst, alerts = virtual.run(main())
    assert seen[0] == ("suspect", 1, 0)
    assert ("suspect", 2, 0) in seen
    assert ("unavailable", 3, 1) in seen
    assert worst.reason.startswith("its health check failed: OSError: the model is gone and its key is")
    assert "a1B2c3" not in worst.reason
    assert [one.subject for one in alerts] == ["agent:checked"]
    assert "checked is unavailable: its health check failed" in alerts[0].text
    assert (well(relay, "checked").state, relay.alerts()) == ("available", [])
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert said == [
        "checked is suspect and gets no new work",
        "checked is unavailable",
        "checked is available again",
    ]


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt("stop")])
def test_a_check_cannot_end_the_process(relay, raised):
    relay.add("checked", agent := Checked())
    agent.wrong = raised
    try:
        virtual.run(worked(relay, 20))
    except (SystemExit, KeyboardInterrupt):
        pytest.fail("the check of an agent ended its worker")
    assert (well(relay, "checked").state, len(agent.checks)) == ("suspect", 1)
    assert well(relay, "checked").reason.startswith(f"its health check failed: {type(raised).__name__}")


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (Speechless(), "its health check failed: Speechless: (it cannot say why)"),
        (ValueError("bad \ud800 text"), "its health check failed: ValueError: bad \\u{d800} text"),
    ],
)
def test_a_check_that_failed_is_written_down_whatever_it_says(tmp_path, raised, reason):
    with Relay(tmp_path / "b.db") as relay:
        relay.add("checked", agent := Checked())
        agent.wrong = raised
        virtual.run(worked(relay, 20))
        assert (well(relay, "checked").state, well(relay, "checked").reason) == ("suspect", reason)


def test_what_a_check_says_cannot_write_on_a_terminal(relay, caplog):
    relay.add("checked", agent := Checked())
    agent.wrong = ValueError("gone \x1b]0;owned\x07\x1b[31m")
    with caplog.at_level(logging.WARNING, "baton"):
        virtual.run(worked(relay, 200))
    said = [well(relay, "checked").reason, relay.alerts()[0].text, *(one.getMessage() for one in caplog.records)]
    assert len(said) == 4
    assert all("owned" in one and one.isprintable() for one in said)


def test_a_check_that_takes_longer_than_10_s_has_failed(relay):
    relay.add("slow", slow := Checked())
    relay.add("late", late := Checked())
    slow.wrong, late.wrong = 11.0, 9.0
    virtual.run(worked(relay, 20))
    assert well(relay, "slow").reason == "its health check took longer than 10 s"
    assert (well(relay, "slow").state, well(relay, "late").state) == ("suspect", "available")


def test_a_check_that_never_ends_holds_up_nobody(relay):
    """Not even where it refuses to be cancelled: the others are checked and work, and it is not begun twice."""
    begun = []

    class Stubborn(Obedient):
        async def health(self):
            begun.append(1)
            while True:
                try:
                    await asyncio.sleep(10_000)
                except asyncio.CancelledError:
                    if len(begun) < 2 and released.is_set():
                        raise

    released = asyncio.Event()
    relay.add("stubborn", Stubborn())
    relay.add("good", good := Checked())

    async def main():
        stop = asyncio.Event()
        task = serving(relay, stop)
        relay.hand_off(request("good", workflow_id="w"))
        await asyncio.sleep(2)
        first = relay.result("w").status
        await asyncio.sleep(200)
        released.set()
        stop.set()
        await task
        return first

    assert virtual.run(main()) == "completed"
    assert len(begun) == 1
    assert len(good.checks) == 4
    assert well(relay, "good").state == "available"
    bad = well(relay, "stubborn")
    assert (bad.state, bad.reason) == ("unavailable", "its last health check has not ended")


def test_a_suspect_agent_gets_no_new_work_and_keeps_what_it_has(relay):
    begun = asyncio.Event()

    class Busy(Checked):
        async def behave(self, turn):
            if turn.task == "long":
                begun.set()
                await asyncio.sleep(400)
            return f"{turn.task} by {turn.handoff.to_agent}"

    relay.add("busy", busy := Busy(), capabilities=SQL)
    relay.add("other", other := Fake(), capabilities=SQL)

    async def answer(turn):
        return f"{turn.task} by other"

    other.behave = answer

    async def main():
        first = asyncio.create_task(relay.run("busy", "long", workflow_id="long"))
        await begun.wait()
        busy.wrong = OSError("ill")
        await asyncio.sleep(70)
        assert well(relay, "busy").state == "suspect"
        second = await relay.run("busy", "short", workflow_id="short")
        return await first, second

    first, second = virtual.run(main())
    assert (first.output, second.output) == ("long by busy", "short by other")
    (long,) = relay.store.find(workflow_id="long")
    assert (long.attempt, long.reroutes) == (1, 0)
    (record,) = [one for one in relay.audit.query(task_id="short") if one.event_type == "rerouted"]
    assert record.reason.startswith(
        "busy does not take it (available: busy is suspect and gets no new work (its health"
    )
    assert record.reason.endswith("; other can")


def test_who_was_passed_over_and_why_stands_in_the_record():
    routes = {"sql": ["tired", "ill", "full", "ghost", "good"]}
    with Relay(routes=routes) as relay:

        async def main():
            for name, fields in {
                "first": {},
                "tired": {},
                "ill": {},
                "full": {"max_concurrent_tasks": 1},
                "good": {},
                "half": {"capabilities": {"python": 1.0}},
                "shut": {"accepts_handoffs": False},
            }.items():
                able = {"sql": 1.0, "python": 1.0}
                relay.store.register(Profile(agent_id=name, **{"capabilities": able, **fields}))
            relay.store.mark("ill", lambda known: health.failed(known, "no pulse", relay.store.now()))
            for _ in range(3):
                made = relay.hand_off(request("tired"))
                taken = relay.claim("tired", handoff_id=made.id).handoff
                relay.give_back(made.id, failed("it broke"), epoch=taken.epoch)
            relay.hand_off(request("full"))
            relay.claim("full")
            needs = Validation(required_capabilities=tuple(Requirement(capability_id=one) for one in ("sql", "python")))
            work = relay.hand_off(request("first", validation=needs, workflow_id="w"))
            relay.give_back(work.id, Reject("not I"))
            relay.recover()
            return relay.audit.query(handoff_id=work.id)[-1]

        record = virtual.run(main())
        assert (record.event_type, record.to_agent) == ("rerouted", "good")
        assert record.detail["passed_over"] == {
            "tired": "breaker open: 3 failures (error)",
            "ill": "suspect: no pulse",
            "full": "at capacity",
            "ghost": "not registered",
            "half": "lacks sql",
            "shut": "accepts no handoffs",
        }
        assert (
            "good can; passed over: tired (breaker open: 3 failures (error)), ill (suspect: no pulse)" in record.reason
        )


def test_after_three_reroutes_the_alert_names_everybody(relay):
    for name in "abcde":

        async def no(turn):
            return Reject("not I")

        relay.agent(name, capabilities=SQL)(no)

    async def main():
        run = asyncio.create_task(relay.run("a", "work", workflow_id="w", max_attempts=10))
        await asyncio.sleep(30)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        return relay.waiting(), relay.alerts()

    (parked,), (alert,) = virtual.run(main())
    assert (parked.status, parked.reroutes) == ("parked", 3)
    assert "d does not take it (not I); 3 of max_reroutes 3 used" in alert.text
    assert "passed over: a (already tried), b (already tried), c (already tried); a person has to decide" in alert.text
    last = relay.audit.query(handoff_id=parked.id)[-1]
    assert last.detail["passed_over"] == dict.fromkeys("abc", "already tried")


def test_critical_work_for_an_agent_that_is_not_well_goes_to_a_person_at_once(relay):
    relay.add("ill", agent := Checked(), capabilities=SQL)
    relay.add("able", Obedient(), capabilities=SQL)
    agent.wrong = OSError("ill")

    async def main():
        stop = asyncio.Event()
        task = serving(relay, stop)
        await asyncio.sleep(10)
        made = relay.hand_off(request("ill", priority="critical"))
        await asyncio.sleep(2)
        stop.set()
        await task
        return relay.get(made.id), relay.alerts()

    parked, alerts = virtual.run(main())
    assert parked.status == "parked"
    assert ["ill is suspect" in one.text and "critical" in one.text for one in alerts] == [True]


def test_where_nobody_else_can_do_it_the_work_waits_until_the_agent_is_well(relay):
    relay.add("only", agent := Checked())
    agent.wrong = OSError("ill")

    async def main():
        stop = asyncio.Event()
        task = serving(relay, stop)
        await asyncio.sleep(10)
        made = relay.hand_off(request("only"))
        await asyncio.sleep(100)
        before, alerts = relay.get(made.id), relay.alerts()
        agent.wrong = None
        await asyncio.sleep(70)
        stop.set()
        await task
        return before, alerts, relay.get(made.id)

    before, alerts, after = virtual.run(main())
    assert (before.status, before.reroutes, before.attempt) == ("offered", 1, 0)
    assert "suspect: its health check failed" in next(one.text for one in alerts if one.subject == before.id)
    assert after.status == "completed"


def test_a_line_that_this_process_runs_waits_for_an_agent_that_is_not_well(relay, caplog):
    relay.add("only", agent := Checked("done"))
    agent.wrong = OSError("ill")

    async def main():
        stop = asyncio.Event()
        task = serving(relay, stop)
        await asyncio.sleep(10)
        run = asyncio.create_task(relay.run("only", "work"))
        await asyncio.sleep(40)
        early, said = run.done(), relay.waits_for(relay.store.find()[0].workflow_id)
        agent.wrong = None
        result = await run
        stop.set()
        await task
        return early, said, result.output

    with caplog.at_level(logging.WARNING, "baton"):
        early, said, output = virtual.run(main())
    assert (early, output) == (False, "done")
    assert len(said) == 1
    assert said[0].startswith("only is suspect since 00:00:00 UTC (its health check failed: OSError: ill) and gets no")
    assert [record.getMessage() for record in caplog.records].count(said[0]) == 1


def test_a_worker_that_is_gone_makes_its_agent_suspect_and_one_that_comes_makes_it_well(tmp_path):
    with clock.use(virtual.VirtualClock()):
        other = Relay(tmp_path / "store.db", durability="process")
        relay = Relay(tmp_path / "store.db", durability="process")
        other.agent("far")(lambda turn: None)
        relay.agent("near")(lambda turn: None)

    async def main():
        await worked(other, 5)
        states = []
        stop = asyncio.Event()
        task = serving(relay, stop)
        for _ in range(20):
            await asyncio.sleep(10)
            states.append(well(relay, "far").state)
        reason = well(relay, "far").reason
        back = asyncio.Event()
        again = serving(other, back)
        await asyncio.sleep(1)
        states.append(well(relay, "far").state)
        await asyncio.sleep(10)
        alerts = relay.alerts()
        stop.set()
        back.set()
        await asyncio.gather(task, again)
        return states, reason, alerts

    states, reason, alerts = virtual.run(main())
    assert states[:2] == ["available", "available"]
    assert states[4] == "suspect"
    assert states[-2:] == ["unavailable", "available"]
    assert "no worker was seen for" in reason
    assert well(relay, "near").state == "available"
    assert alerts == []
    relay.close()
    other.close()


def test_who_was_only_registered_is_not_missed(relay):
    with clock.use(virtual.VirtualClock()):
        relay.store.register(Profile(agent_id="by-hand"))
        relay.agent("near")(lambda turn: None)
    virtual.run(worked(relay, 400))
    assert well(relay, "by-hand").state == "available"


def test_who_takes_work_by_hand_has_acknowledged(relay):
    relay.store.register(Profile(agent_id="shell"))
    made = relay.hand_off(request("shell"))
    relay.store.mark("shell", lambda known: health.failed(known, "silent", 1))
    assert relay.claim("shell", handoff_id=made.id).won
    assert well(relay, "shell").state == "available"


def test_several_processes_ask_an_agent_once_in_each_interval(tmp_path):
    agents = []
    with clock.use(virtual.VirtualClock()):
        relays = [Relay(tmp_path / "store.db", durability="process") for _ in range(3)]
        for relay in relays:
            relay.add("shared", agent := Checked())
            agent.wrong = OSError("ill")
            agents.append(agent)

    async def main():
        stop = asyncio.Event()
        tasks = [serving(relay, stop) for relay in relays]
        await asyncio.sleep(100)
        known = well(relays[0], "shared")
        stop.set()
        await asyncio.gather(*tasks)
        return known

    known = virtual.run(main())
    assert sum(len(agent.checks) for agent in agents) == 2
    assert (known.state, known.failures) == ("suspect", 2)
    for relay in relays:
        relay.close()


def test_a_store_that_fails_for_a_moment_ends_no_checks(relay, caplog):
    relay.add("checked", agent := Checked())
    agent.wrong = OSError("ill")
    failures = []

    def failing(name, only=""):
        real = getattr(relay.store, name)

        def fail(*args):
            if failures.count(name) < 2 and only in asyncio.current_task().get_coro().__qualname__:
                failures.append(name)
                raise StoreError("full")
            return real(*args)

        setattr(relay.store, name, fail)

    failing("agents")
    failing("mark", only="Checks._ask")
    virtual.run(worked(relay, 300))
    assert sorted(failures) == ["agents", "agents", "mark", "mark"]
    assert "looking after :memory: failed; trying again" in caplog.text
    assert "the health of checked was not written down" in caplog.text
    assert well(relay, "checked").failures == len(agent.checks) - 2 == 3


def test_a_health_that_is_no_coroutine_is_refused(relay):
    class Wrong(Obedient):
        def health(self):
            return True

    with pytest.raises(Malformed, match="agent wrong: its health is no `async def health"):
        relay.add("wrong", Wrong())


def test_the_rules_are_those_of_the_relay():
    with Relay(health={"interval": 5, "timeout": 1, "threshold": 2}) as relay:
        relay.add("checked", agent := Checked())
        agent.wrong = 2.0
        virtual.run(worked(relay, 12))
        assert len(agent.checks) in {2, 3}
        assert well(relay, "checked").state == "unavailable"


def test_a_person_ends_the_illness_of_an_agent_whose_program_has_no_check_any_more(tmp_path):
    with clock.use(virtual.VirtualClock()), Relay(tmp_path / "store.db", durability="process") as relay:
        relay.add("model", agent := Checked())
        agent.wrong = OSError("gone")
        virtual.run(worked(relay, 200))
        assert [one.subject for one in relay.alerts()] == ["agent:model"]
    with clock.use(virtual.VirtualClock()), Relay(tmp_path / "store.db", durability="process") as relay:
        relay.agent("model")(lambda turn: "done")
        virtual.run(worked(relay, 200))
        assert well(relay, "model").state == "unavailable"
        made = relay.run_sync("model", "work", wait=False)
        (said,) = relay.waits_for(made.workflow_id)
        assert said.endswith(f"`baton agents reset model --store {tmp_path / 'store.db'}`, ends that")
        assert relay.reset_health("model")
        assert (well(relay, "model").state, well(relay, "model").ill, relay.alerts()) == ("available", False, [])
        assert not relay.reset_health("model")
        virtual.run(worked(relay, 200))
        assert relay.result(made.workflow_id).output == "done"
        with pytest.raises(NotFound, match="agent modle: not registered"):
            relay.reset_health("modle")


def test_a_check_that_still_fails_makes_ill_again_after_a_reset(relay):
    relay.add("checked", agent := Checked())
    agent.wrong = OSError("gone")
    virtual.run(worked(relay, 20))
    assert relay.reset_health("checked")
    virtual.run(worked(relay, 200))
    assert well(relay, "checked").ill
