"""P1, P2, P10, P12, P20: what the protocol promises and no other test shows."""

import asyncio
import json
import uuid
from datetime import UTC
from pathlib import Path

import pytest

from baton import Command, HandoffFailed, Limits, Relay, answer
from baton.protocol.handoff import Handoff, read_handoff
from baton.protocol.results import Return

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schema"


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened


@pytest.mark.parametrize("record", [Handoff, Return])
def test_the_published_schema_has_the_fields_of_the_record(record):
    schema = json.loads((SCHEMAS / f"{record.__name__}.json").read_text(encoding="utf-8"))
    assert set(schema["$defs"][record.__name__]["properties"]) == set(record.__struct_fields__)


def test_a_handoff_says_who_asked_for_it(relay):
    """An explicit request without a reason gets one."""

    @relay.agent("a")
    async def a(turn):
        return Command(goto="b")

    relay.agent("b")(lambda turn: "done")
    assert [one.reason for one in relay.run_sync("a", "work").handoffs] == ["a asks for b"]


@pytest.mark.parametrize(("status", "ended"), [("success", "completed"), ("partial", "completed")])
def test_tokens_and_money_of_a_return_are_counted(relay, status, ended):
    @relay.agent("parent")
    async def parent(turn):
        part = await turn.delegate("child", "a part")
        return answer([part.status, part.audit.tokens_consumed], tokens=5)

    relay.agent("child")(lambda turn: answer("half", status=status, tokens=30, cost=0.5))
    result = relay.run_sync("parent", "work", limits=Limits(max_tokens=1000))
    assert (result.output, result.tokens) == ([status, 30], 35)
    assert relay.store.workflow(result.workflow_id).cost_spent == 500_000
    last = relay.audit.query(to_agent="child")[-1]
    assert (last.event_type, last.outcome, last.tokens_consumed) == (ended, status, 30)


def test_what_a_failed_return_used_is_counted_too(relay):
    relay.agent("a")(lambda turn: answer("half", status="failed", tokens=30))
    with pytest.raises(HandoffFailed) as caught:
        relay.run_sync("a", "work")
    assert (caught.value.result.tokens, caught.value.result.answer.status) == (30, "failed")
    assert relay.audit.query(to_agent="a")[-1].outcome == "failed"


def test_a_part_of_the_capabilities_is_accepted_with_a_warning_that_stays(relay):
    relay.agent("clerk", capabilities={"refunds": 0.9, "invoices": 0.3})(lambda turn: "done")

    @relay.agent("desk")
    async def desk(turn):
        return (await turn.delegate("clerk", "a part", capabilities=["refunds", "audits"])).output

    assert relay.run_sync("desk", "work").output == "done"
    document = {
        "from_agent": "desk",
        "to_agent": "clerk",
        "task": "pay",
        "validation": {"required_capabilities": ["refunds", {"capability_id": "invoices", "min_proficiency": 0.5}]},
    }
    made = relay.hand_off(read_handoff(json.dumps(document)))
    assert made.status == "offered"
    assert [one.warnings for one in relay.store.find(to_agent="clerk")] == [
        ("clerk lacks audits",),
        ("clerk lacks invoices (proficiency 0.3 of 0.5)",),
    ]


def test_ids_are_uuid4_and_times_are_utc(relay):
    @relay.agent("a")
    async def a(turn):
        await turn.delegate("b", "a part")
        return Command(goto="b", task="the rest")

    relay.agent("b")(lambda turn: "done")
    result = asyncio.run(relay.run("a", "work"))
    made = relay.store.find(workflow_id=result.workflow_id)
    assert len(made) == 3
    for text in (result.workflow_id, *(one.id for one in made)):
        assert (uuid.UUID(text).version, str(uuid.UUID(text))) == (4, text)
    assert {record.timestamp.tzinfo for record in relay.audit.query()} == {UTC}
    for entry in relay.store.audit():
        assert json.loads(entry.record)["timestamp"].endswith("Z")
