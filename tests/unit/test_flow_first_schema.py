"""Answers that an earlier version stored: they say what they changed, and not what that came to."""

import json
import operator

import apsw
import pytest

from baton import Command, Relay, answer


def as_stored_before(path):
    """Take out of the stored answers what a store of the first schema has not."""
    raw = apsw.Connection(path)
    taken = 0
    for number, result in list(raw.execute("SELECT seq, result FROM handoff WHERE result IS NOT NULL")):
        said = json.loads(result)
        taken += said.pop("state_ref", None) is not None
        raw.execute("UPDATE handoff SET result = ? WHERE seq = ?", (json.dumps(said).encode(), number))
    raw.close()
    return taken


def team(path, **options):
    relay = Relay(path, backoff=0.001, **options)
    relay.agent("one")(lambda turn: answer("x", update={"receipt": 7, "context": {"b": 2}, "found": ["b"]}))
    relay.agent("first")(lambda turn: Command(goto="one", update={"begun": 1}))
    return relay


START = {"s": 1, "context": {"a": 1}, "found": ["a"]}
GAINED = {"s": 1, "receipt": 7, "context": {"a": 1, "b": 2}, "found": ["b"]}


@pytest.mark.parametrize(("to", "more"), [("one", {}), ("first", {"begun": 1})])
def test_the_result_of_a_workflow_that_ended_before(tmp_path, to, more):
    path = str(tmp_path / "old.db")
    with team(path) as relay:
        new = relay.run_sync(to, "x", state=START, workflow_id="w").state
    assert as_stored_before(path) == 1
    with team(path) as relay:
        assert relay.result("w").state == new == {**GAINED, **more}
        assert relay.result("w").answer.context_updates.variables_changed["receipt"] == 7


@pytest.mark.parametrize("way", ["delegate", "broadcast"])
@pytest.mark.parametrize(("to", "more"), [("one", {}), ("first", {"begun": 1})])
@pytest.mark.parametrize("reducers", [{}, {"found": operator.add}])
def test_a_turn_that_began_before_has_what_its_parts_changed(tmp_path, way, to, more, reducers):
    path = str(tmp_path / "old.db")

    def lead(relay, *, dies):
        @relay.agent("lead")
        async def work(turn):
            await (turn.delegate(to, "x") if way == "delegate" else turn.broadcast([to], "x"))
            if dies and turn.attempt == 1:
                assert as_stored_before(path) == 1
                raise RuntimeError("the old version ends here")
            return {name: turn.state[name] for name in turn.state}

        return relay

    with lead(team(path, reducers=reducers), dies=True) as relay:
        result = relay.run_sync("lead", "x", state=START, workflow_id="w", on_failure="retry", max_attempts=2)
        parts = [one for one in relay.store.find(workflow_id="w") if one.to_agent == to]
        assert len(parts) == 1
    found = ["a", "b"] if reducers else ["b"]
    assert result.output == result.state == {**GAINED, **more, "found": found}


def test_what_an_old_answer_wrote_is_nobodys_yet(tmp_path):
    path = str(tmp_path / "old.db")
    with team(path) as relay:
        relay.agent("other")(lambda turn: answer(turn.state["receipt"], update={"receipt": 8}))

        @relay.agent("lead")
        async def lead(turn):
            await turn.delegate("one", "x")
            if turn.attempt == 1:
                assert as_stored_before(path) == 1
                raise RuntimeError("the old version ends here")
            return Command(goto="other")

        result = relay.run_sync("lead", "x", state=START, on_failure="retry", max_attempts=2)
        assert (result.output, result.state["receipt"]) == (7, 8)


def test_decisions_without_a_number_are_kept_as_they_are(tmp_path):
    path = str(tmp_path / "old.db")
    with Relay(path, backoff=0.001) as relay:
        relay.agent("part")(lambda turn: answer("x", update={"decisions_made": "this"}))

        @relay.agent("lead")
        async def lead(turn):
            await turn.delegate("part", "x")
            if turn.attempt == 1:
                raw = apsw.Connection(path)
                raw.execute(
                    "UPDATE handoff SET result = ? WHERE to_agent = 'part'",
                    (b'{"context_updates":{"variables_changed":{"decisions_made":["old"]}}}',),
                )
                raw.close()
                raise RuntimeError("the old version ends here")
            return answer("x", update={"decisions_made": "new"})

        told = relay.run_sync("lead", "x", on_failure="retry", max_attempts=2).state["decisions_made"]
        assert told[0] == "old"
        assert [one["description"] for one in told[1:]] == ["new"]
