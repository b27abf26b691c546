"""`doctor` and `audit` on a board."""

import json
from pathlib import Path


def test_doctor_proves_single_claims_on_this_disk(documents, place):
    (found,) = documents("doctor", "--race", "300")
    (check,) = found["checks"]
    assert found["ok"]
    assert "300 items, 8 processes" in check["found"]
    assert ": 0 claimed twice, 0 by nobody" in check["found"]
    assert int(check["found"].rsplit(": ", 1)[1].split()[0]) > 3  # who does it as many do has two winners
    assert list(place.iterdir()) == []


def board(baton, place):
    (place / ".git").mkdir()
    (place / "x.md").write_text("# t\n**Tags**: #P1\n")
    assert baton("tag", "add", "x.md", "needs-fix")[0] == 0
    return next((place / "state" / "baton" / "boards").iterdir()) / "log.jsonl"


def test_doctor_looks_at_the_board(documents, baton, place):
    log = board(baton, place)
    names = {one["name"]: one for one in documents("doctor")[0]["checks"]}
    assert {"board", "change", "log", "trust", "table"} <= names.keys()
    assert names["log"]["found"].startswith("2 records")
    log.write_bytes(log.read_bytes().replace(b"x.md", b"y.md"))
    (found,) = documents("doctor", code=3)
    (bad,) = [one for one in found["checks"] if one["name"] == "log"]
    assert "not what was written there" in bad["found"]


def test_what_was_done_on_the_board_is_queried_verified_and_exported(documents, baton, place):
    log = board(baton, place)
    baton("tag", "swap", "x.md", "needs-fix", "delegated-fix")
    assert [one["event"] for one in documents("audit", "query", "--item", "x.md#fix")] == [
        "needs",
        "approved",
        "delegated",
    ]
    assert [one["event"] for one in documents("audit", "query", "--item", "x.md")][-1] == "delegated"
    assert baton("audit", "query", "--item", "none.md")[0] == 0
    (report,) = documents("audit", "verify")
    assert report["board"]["ok"]
    assert report["board"]["records"] == 4
    (written,) = documents("audit", "export", "--project", "shop")
    lines = [json.loads(line) for line in Path(written["file"]).read_text().splitlines()]
    assert [one["event_type"] for one in lines] == ["begun", "needs", "approved", "delegated"]
    assert all(one["timestamp"].endswith("Z") for one in lines)
    log.write_bytes(log.read_bytes().replace(b'"by":"ana"', b'"by":"bob"'))
    code, _, err = baton("audit", "verify")
    assert code == 3
    assert "not what was written there" in err


def test_people_are_shown_what_people_read(baton, documents, place):
    board(baton, place)
    baton("tag", "swap", "x.md", "needs-fix", "delegated-fix")
    (record,) = (one for one in documents("audit", "query", "--item", "x.md") if one["event"] == "approved")
    _, out, _ = baton("audit", "query", "--item", "x.md")
    assert record["body"] not in out
    assert str(record["expires"]) not in out
    assert ", expires 20" in out


def test_a_repository_without_tags_is_not_asked_for_a_store(baton, place):
    (place / ".git").mkdir()
    code, _, err = baton("recover", "--dry-run")
    assert (code, err) == (0, "no tagged work is stuck\n")


def test_a_cap_on_a_skill_that_is_none_is_refused(baton, place):
    code, _, err = baton("run", "--monitor-tags", "--once", "--cap", "/fxi=1")
    assert code == 1
    assert "/fxi: no row of the dispatch table; there are" in err


def test_an_agent_that_has_ended_leads_to_its_log(baton, place):
    code, _, err = baton("agents", "attach", "agent-fix-1")
    assert code == 1
    assert "agent.log of its session" in err
