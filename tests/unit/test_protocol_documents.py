"""Documents in both spellings, there and back, with every field of the two sources."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from baton.errors import Malformed
from baton.lifecycle import State
from baton.protocol import handoff as handoffs
from baton.protocol import results
from baton.protocol.audit import AuditRecord
from baton.protocol.codec import MAX_INTEGER, canonical_record, read, seconds
from baton.protocol.context import Context, Message
from baton.protocol.handoff import Handoff, Requirement, as_priority, checked, read_handoff
from baton.protocol.limits import Autonomy, Budget
from baton.protocol.profile import read_profile
from baton.protocol.results import Acceptance, Return, read_acceptance, read_return

NOON = "2026-01-31T12:00:00Z"

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "protocol.md"
# Every field of the two sources' schemas and types, each with a value that is not its default.
DOCUMENTS = json.loads((Path(__file__).parent / "golden" / "documents.json").read_text(encoding="utf-8"))
FIRST, SECOND = DOCUMENTS["handoff"], DOCUMENTS["request"]
RETURN, RESULT = DOCUMENTS["return"], DOCUMENTS["result"]


def brief(value):
    return f"{value!r:.30}#{crc32(repr(value).encode()):x}"


def dumped(value):
    return json.dumps(value).encode()


# --- both spellings, there and back --------------------------------------------------------------


@pytest.mark.parametrize("document", [FIRST, {"handoff": FIRST}])
def test_the_first_spelling_is_read_and_written(document):
    record = read_handoff(dumped(document))
    written = handoffs.document(record)
    assert written.keys() == {"handoff"}
    assert {key: written["handoff"][key] for key in FIRST} == FIRST
    assert written["handoff"].keys() - FIRST.keys() == {"schema_version"}
    assert read_handoff(dumped(written)) == record
    assert checked(msgspec.structs.replace(record, task="code it"))
    assert record.budget == Budget(max_tokens=5000)
    assert record.validation.autonomy_budget == Autonomy(max_tokens=100)
    assert record.validation.required_capabilities[1] == Requirement(capability_id="sql", min_proficiency=0.5)


def test_the_state_of_the_task_and_its_files_are_not_the_senders_to_say():
    files = [{"path": "a.py", "owner": "coder", "lock_type": "exclusive"}]
    said = {"task_status": "complete", "task_priority": "low", "files_in_progress": files, "custom": {"x": 1}, "y": 2}
    record = read_handoff(dumped({**FIRST, "context": {**FIRST["context"], "context_variables": said}}))
    assert record.context.context_variables == {"x": 1, "y": 2}
    later = msgspec.structs.replace(record, state="claimed", priority="critical")
    written = handoffs.document(later, files_in_progress=files)["handoff"]["context"]["context_variables"]
    assert written == {
        "task_id": "T-1", "task_status": "in_progress", "task_priority": "critical", "files_in_progress": files,
        "custom": {"x": 1, "y": 2},
    }  # fmt: skip


def test_every_state_of_a_handoff_is_one_of_its_task():
    assert set(handoffs.TASK_STATUS) == set(State)
    assert set(handoffs.TASK_STATUS.values()) == {"pending", "in_progress", "blocked", "complete", "failed"}


def test_the_second_spelling_is_read_into_the_same_record():
    record = read_handoff(dumped(SECOND))
    assert record == Handoff(
        id="h1",
        timestamp=datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC),
        from_agent="generalist",
        to_agent="tester",
        type="delegation",
        reason="tests",
        task="run the tests",
        context=Context(
            original_request="deploy",
            conversation_history=(
                Message("user", "deploy"),
                Message("assistant", tool_calls=record.context.conversation_history[1].tool_calls),
                Message("tool", "ok", "run", tool_call_id="c1"),
            ),
            completed_work={"built": True},
            metadata={"k": "v"},
            user_id="u1",
            correlation_id="k1",
        ),
        validation=handoffs.Validation(required_capabilities=(Requirement(capability_id="testing"),)),
        conversation_id="v1",
        max_iterations=7,
    )
    assert record.context.conversation_history[1].tool_calls[0].name == "run"
    assert read_handoff(dumped(handoffs.document(record))) == record


def test_a_schema_with_transfer_settings_in_place_of_the_history_is_read():
    settings = {"transfer_mode": "full", "max_messages": 3, "include": {"system_messages": True}}
    document = {"from_agent": "a", "to_agent": "b", "context": {"conversation_history": settings}}
    assert read_handoff(dumped(document)).context.transfer.max_messages == 3


@pytest.mark.parametrize("document", [RETURN, {"return": RETURN}])
def test_a_return_is_read_and_written(document):
    record = read_return(dumped(document))
    assert results.document(record) == {"return": RETURN}


def test_a_result_in_the_second_spelling_is_read_and_written():
    record = read_return(dumped(RESULT))
    assert (record.status, record.from_agent, record.duration_ms, record.output) == (
        "failed", "tester", 1250, {"passed": 3},
    )  # fmt: skip
    assert results.handoff_result(record) == RESULT


def test_what_is_not_known_is_left_out_of_a_result():
    result = results.handoff_result(Return(handoff_id="h", from_agent="a"))
    assert result == {
        "handoffId": "h", "agentId": "a", "agentName": "a", "success": True, "result": None, "duration": 0,
        "iterations": 0,
    }  # fmt: skip


def test_audit_record_acceptance_and_profile_have_every_field():
    assert (
        json.loads(canonical_record(read(dumped(DOCUMENTS["audit_record"]), AuditRecord, "audit")))
        == DOCUMENTS["audit_record"]
    )
    assert (
        json.loads(canonical_record(read_acceptance(dumped({"acceptance": DOCUMENTS["acceptance"]}))))
        == DOCUMENTS["acceptance"]
    )
    profile = read_profile(dumped(DOCUMENTS["profile"]))
    assert profile.capabilities == {"run-tests": 1.0}
    assert profile.agent_name == "Tester"
    rich = {"agent_id": "a", "capabilities": {"x": 0.5}, "max_execution_time": "10m", "autonomy_budget": 5}
    assert read_profile(dumped(rich)).max_execution_time == 600
    assert read_profile(dumped(rich)).autonomy_budget == Autonomy(max_tokens=5)


def test_times_are_written_in_utc():
    east = datetime(2026, 1, 31, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    record = Handoff(from_agent="a", to_agent="b", timestamp=east, deadline=east)
    written = handoffs.document(record)["handoff"]
    assert written["timestamp"] == written["context"]["constraints"]["deadline"] == NOON


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (30, 30), (0.5, 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5h", 5400), (" 90 s ", 90), ("PT30S", 30), ("PT5M", 300), ("PT1H30M", 5400), ("P1DT1S", 86401),
        ("P2D", 172800),
        ("PT0.5S", 0.5), (timedelta(minutes=1), 60),
    ],
)  # fmt: skip
def test_durations_are_read(said, meant):
    assert seconds(said) == meant
    if not isinstance(said, timedelta):
        document = {"from_agent": "a", "to_agent": "b", "return_protocol": {"timeout": said}}
        assert read_handoff(dumped(document)).return_protocol.timeout == meant


@pytest.mark.parametrize(
    "said",
    [
        "", "s", "30", "-5s", "5 parsecs", "P", "PT", "P1DT", "PT-5S", "P1Y", "1e3s", "٣s", "nan", "inf",
        "9" * 400 + "s",
        "9" * 50 + "d", -1, float("nan"), float("inf"), 10**12, 10**400, True, None, [], {},
        timedelta(days=-1), "1s" * 1000,
    ],
    ids=brief,
)  # fmt: skip
def test_what_is_no_duration_is_refused(said):
    with pytest.raises(Malformed, match="timeout"):
        seconds(said)


@pytest.mark.parametrize(
    ("word", "priority"),
    [("P0", "critical"), ("urgent", "critical"), ("P1", "high"), ("P2", "normal"), ("low", "low")],
)
def test_priorities_have_two_spellings(word, priority):
    assert as_priority(word) == priority
    assert read_handoff(dumped({"from_agent": "a", "to_agent": "b", "priority": word})).priority == priority


# --- the page --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Handoff, Return, Context, AuditRecord, Acceptance])
def test_the_page_names_every_field(kind):
    section = PAGE.read_text(encoding="utf-8").partition(f"### `{kind.__name__}`")[2].partition("\n##")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert set(kind.__struct_fields__) <= named


def test_the_page_gives_the_limits_of_the_code():
    words = PAGE.read_text(encoding="utf-8")
    for number in ("8 MiB", "1,048,576", "64", "200", "1,000", "1,024"):
        assert number in words
    assert MAX_INTEGER == 2**53 - 1
