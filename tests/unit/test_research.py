"""What research reads and writes, without a server: the request, the report, and what a provider says."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.board.research import base, calls, gemini, openai, report, request
from baton.board.research.request import Record, field, section, with_section
from baton.board.tags import ALERT, RESOLVED, Text, state_of
from baton.errors import Malformed, TooLarge

REQUEST = b"# Research Request: Scissors\n**Tags**: #claimed-research\n\n## Query\nHow many?\n"
LINES = ["- **Status**: running", "- **Interaction ID**: `v1_x`"]


# --- the request -------------------------------------------------------------------------------


def test_a_section_is_added_once_and_replaced_afterwards():
    one = with_section(REQUEST, "Research Job", LINES)
    assert one == REQUEST + b"\n## Research Job\n" + "\n".join(LINES).encode() + b"\n"
    two = with_section(one, "Research Job", ["- **Status**: done"])
    assert two == REQUEST + b"\n## Research Job\n- **Status**: done\n"
    assert with_section(two, "Research Job", LINES) == one


def test_what_stands_around_a_section_stays():
    data = b"# A\r\n## Research Job\r\nold\r\n\r\n### part\r\n## Last\r\nline\xff without end"
    changed = with_section(data, "Research Job", ["new"])
    assert changed == b"# A\r\n## Research Job\r\nnew\r\n\r\n## Last\r\nline\xff without end\r\n"


def test_a_heading_may_have_a_number_and_code_has_none():
    data = b"# A\n```\n## Response\nno\n```\n~~~~\n~~~\n## Response\nno\n~~~~\n## 6. response\nyes\n"
    assert section(data, "Response") == ["yes"]


@settings(deadline=None)
@given(st.binary(max_size=300), st.lists(st.sampled_from(LINES), max_size=3))
def test_what_is_written_is_found_or_refused_whatever_the_file_holds(data, lines):
    try:
        changed = with_section(data, "Research Job", lines)
    except Malformed:
        return
    assert [line for line in section(changed, "Research Job") if line] == lines
    assert with_section(changed, "Research Job", lines) == changed


@settings(deadline=None)
@given(st.text(alphabet="`~# \nRx1.Job*", max_size=60), st.lists(st.sampled_from(LINES), min_size=1, max_size=2))
def test_fences_and_headings_hide_nothing_that_was_written(text, lines):
    try:
        changed = with_section(text.encode(), "Research Job", lines)
    except Malformed:
        return
    assert request.record(changed).status in {"running", ""}
    assert section(changed, "Research Job")[: len(lines)] == lines


def test_a_record_is_read_as_it_was_written():
    record = Record(
        provider="gemini", intent="i-1", asked="2026-01-01T00:00:00Z", id="v1_a", status="failed", reason="b"
    )
    assert Record.of(record.lines()) == record
    assert record.lines()[0] == "- **Provider**: gemini"


def test_what_a_provider_says_stays_in_its_line_and_is_no_tag():
    record = Record(
        provider="gemini", id="v1_a", status="failed", reason="a\n## Response\n- **Status**: done #needs-fix"
    )
    lines = record.lines()
    assert len(lines) == 4
    assert not any("#needs-" in line for line in lines)
    assert Record.of(lines).status == "failed"


@pytest.mark.parametrize("value", ["../v1/files", "a b", "a/b", "a?b", "a#b", "..", ".", "é", "x" * 257, "a\x1b"])
def test_what_can_be_no_id_goes_into_no_url(value):
    assert not base.is_id(value)
    with pytest.raises(Malformed, match="no id of a job"):
        Record.of([f"- **Interaction ID**: {value}"])
    with pytest.raises(Malformed, match="no id of a job"):
        request.previous(REQUEST + f"## Previous Research\n- **Interaction ID**: {value}\n".encode())


@pytest.mark.parametrize("value", ["", "-", "none", "N/A"])
def test_no_earlier_job(value):
    assert request.previous(REQUEST + f"## Previous Research\n- **Interaction ID**: {value}\n".encode()) is None
    assert request.previous(REQUEST) is None


@pytest.mark.parametrize(
    "line", ["- **Status**: done", "**Status**: done", "Status: done", "* status : `done`", "  - **STATUS:** done"]
)
def test_fields_as_people_write_them(line):
    assert field(["x", line, "- **Status**: failed"], "Status") == "done"


@pytest.mark.parametrize(
    ("lines", "free"),
    [
        ([], True),
        (["some words"], True),
        (["- **Status**: not started", "- **Intent**: i"], True),
        (["- **Status**: starting", "- **Intent**: i"], False),
        (["- **Intent**: i"], False),
        (["- **Status**: whatever"], False),
        (["- **Status**: not started", "- **Interaction ID**: v1_a"], False),
        (["- **Status**: done"], False),
    ],
)
def test_only_where_there_is_surely_no_job_one_may_be_started(lines, free):
    assert Record.of(lines).is_free is free


def test_the_question_is_the_request_without_what_the_board_notes():
    data = REQUEST + b"## Recovery\nold\n## 5. Requesting Session\nmine\n## Context\nhere\n## Research Job\n- x\n"
    assert request.question(data) == "# Research Request: Scissors\n\n## Query\nHow many?\n## Context\nhere"
    assert request.title(data) == "Scissors"


def test_a_request_that_asks_nothing_is_refused():
    with pytest.raises(Malformed, match="asks nothing"):
        request.question(b"# Research Request: x\n**Tags**: #claimed-research\n\n## Query\n")
    with pytest.raises(TooLarge):
        request.question(REQUEST + b"x" * request.LARGEST)


# --- the report --------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.text(alphabet="#＃needs-fixDOaltiv`\\&;\r\n\u202e\x1b", max_size=80))
def test_no_tag_and_no_control_character_is_left(text):
    left = report.harmless(text)
    assert not any(f"#{state}-" in left.lower() for state in ("needs", "delegated", "next", "claimed", "done"))
    assert "#active-alert" not in left.lower()
    assert not set("\r\u202e\x1b") & set(left)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([*"#＃\\`*[](){}<>-~=& \n\t", "needs-x", "done-y", "active-alert", "```", "<!--", "-->"]))
)
def test_the_board_finds_no_work_in_a_response(parts):
    text = report.text_of("".join(parts), {"Original Request": "x"}, "y").encode()
    found = [tag.name for tag in Text(text).tags if state_of(tag.name) or tag.name in {ALERT, RESOLVED}]
    assert found == []


def test_sources_are_listed_once_and_only_where_they_are_addresses():
    notes = [
        {"url": "https://example.org/a", "title": "A  page\nof two lines"},
        {"url": "https://example.org/a"},
        {"url": "https://example.org/said"},
        {"url": "javascript:alert(1)"},
        {"url": "https://example.org/x> <script>"},
        {"url": 7},
        {},
    ]
    text = report.joined(["said: https://example.org/said", " "], notes)
    assert text == "said: https://example.org/said\n\n## Sources\n\n- A page of two lines <https://example.org/a>"
    assert report.joined(["", "  "], notes) == ""


def test_a_summary_is_one_short_line():
    assert report.summary("\n---\n# **The** #needs-x answer\nmore") == "The** &#35;needs-x answer"
    assert report.summary("word " * 100).endswith("…")
    assert len(report.summary("word " * 100)) <= report.SUMMARY
    assert report.summary("***\n```\n") == ""


def test_what_a_response_is_about_stays_in_its_line():
    text = report.text_of("x", {"Requested By": "ann\n## 3. Findings\n#needs-fix <!-- "}, "t")
    assert text.count("\n## 3. Findings\n") == 1
    assert [tag.name for tag in Text(text.encode()).tags if state_of(tag.name)] == []
    assert "<!--" not in text


def test_what_a_claim_writes_below_the_tags_is_not_asked():
    data = REQUEST.replace(b"#claimed-research\n", b"#claimed-research\nSession: sessions/b\nSession: sessions/a\n")
    assert b"sessions" not in request.question(data).encode()
    assert "Session: mine" in request.question(REQUEST + b"Session: mine\n")


# --- what a provider says ----------------------------------------------------------------------

NOTE = {"type": "url_citation", "url": "https://example.org", "title": "x"}
ERROR = {"code": 1, "message": "no", "reason": "no"}
WHOLE = {
    "steps": [{"type": "model_output", "content": [{"type": "text", "text": "a report", "annotations": [NOTE]}]}],
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "a report", "annotations": [NOTE]}]}],
    "usage": {"input_tokens": 1, "total_input_tokens": 1, "total_tokens": 2},
    "error": ERROR,
    "incomplete_details": ERROR,
}
OTHERS = [None, True, 7, -1, 1.5, 10**400, "", "text", [], {}, [[]], [None], {"type": "text", "text": "b"}, [WHOLE]]


def spoiled(chance, value):
    """The value with one part of it, or all of it, replaced by something else."""
    if chance.random() < 0.2 or not isinstance(value, dict | list) or not value:
        return chance.choice(OTHERS)
    if isinstance(value, list):
        return [*value[1:], spoiled(chance, value[0])]
    name = chance.choice(list(value))
    return value | {name: spoiled(chance, value[name])}


@pytest.mark.parametrize("provider", [gemini, openai])
def test_whatever_a_provider_says_is_a_job(provider):
    chance, seen = random.Random(4), set()
    for _ in range(5000):
        body = WHOLE
        for _ in range(chance.randrange(6)):
            body = spoiled(chance, body)
            body = body if isinstance(body, dict) else WHOLE
        status = chance.choice(["completed", "completed", "failed", "incomplete", "queued", 3, [], {}])
        body = body | {"status": status, "id": chance.choice(["j", "j", "j", 1, [], "k"])}
        job = provider.read(body, "j")
        assert (job.state == "done") == bool(job.report)
        assert body["id"] == "j" or job.state == "unanswered"
        seen.add(job.state)
    assert seen == {"running", "done", "failed", "unknown", "unanswered"}


def test_gemini_the_report_is_what_comes_last():
    def out(*texts):
        return {"type": "model_output", "content": [{"type": "text", "text": text} for text in texts]}

    steps = [
        {"type": "user_input"},
        out("a plan"),
        {"type": "thought"},
        out("one"),
        out("two", "three"),
        {"type": "thought"},
    ]
    assert gemini.read({"id": "j", "status": "completed", "steps": steps}, "j").report == "one\n\ntwo\n\nthree"


def test_openai_comments_on_the_way_and_refusals_are_no_report():
    def message(phase, *parts):
        return {"type": "message", "phase": phase, "content": list(parts)}

    said = {"type": "output_text", "text": "the report"}
    output = [message("commentary", {"type": "output_text", "text": "hm"}), message("final_answer", said)]
    assert openai.read({"id": "j", "status": "completed", "output": output}, "j").report == "the report"
    output = [message(None, {"type": "refusal", "refusal": "I may not"})]
    job = openai.read({"id": "j", "status": "completed", "output": output}, "j")
    assert (job.state, job.reason) == ("failed", "the model refused: I may not")


def test_why_it_is_incomplete():
    body = {"id": "j", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert openai.read(body, "j").reason.endswith("max_output_tokens")


# --- the calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base_url",
    [
        "http://example.org",
        "http://localhost:80",
        "http://127.0.0.1",
        "http://127.0.0.1.example.org:80",
        "http://127.0.0.1:x",
        "https://",
        "https://user:word@example.org",
        "https://example.org/?key=1",
        "https://example.org#x",
        "https://exa mple.org",
        "ftp://example.org",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_key_goes_nowhere_in_the_clear(base_url):
    with pytest.raises(Malformed, match="neither https"):
        calls.Caller(base_url, "long-enough", ("x-key", ""))


def test_a_key_that_would_be_two_headers_is_refused_and_not_shown():
    for key in ("secret-key\r\nX: y", "secret key", "seçret-key", "secret"):
        with pytest.raises(Malformed) as refused:
            calls.Caller("https://example.org", key, ("x-key", ""))
        assert "sec" not in str(refused.value)
    assert "hidden" not in repr(calls.Caller("https://example.org", "hidden-key", ("x-key", "")))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        ("999999999", 3600),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
    ],
)
def test_how_long_to_wait(value, seconds):
    assert calls._retry_after(value) == seconds


def test_what_an_error_says_is_short_and_has_no_secrets():
    said = base.said("no\n\x1b[2J way: sk-proj-" + "Ab3" * 20 + " " + "long " * 1000)
    assert len(said) <= base.SAID
    assert "Ab3Ab3Ab3" not in said
    assert "\x1b" not in said


def test_google_wraps_some_errors_into_a_list():
    body = calls._document(json.dumps([{"error": {"message": "no"}}]).encode())
    assert calls._complaint(body) == ": no"
