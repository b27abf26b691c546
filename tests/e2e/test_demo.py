"""`baton demo` tells the truth: its facts are looked up again in the store that it leaves."""

import json
import subprocess
import sys

import pytest

from baton import Relay
from baton.cli import demo


def play(*options):
    argv = [sys.executable, "-m", "baton.cli.demo", "--fast", *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    place = tmp_path_factory.mktemp("demo") / "new"
    done = play("--json", "--keep", str(place))
    assert done.returncode == 0, done.stderr
    return place, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def relay(played):
    with Relay(str(played[0] / "demo.db")) as opened:
        yield opened


def facts(events, scene):
    return {
        key: value
        for one in events
        if one["scene"] == scene and one["event"] == "checked"
        for key, value in one.items()
    }


def test_it_plays_six_scenes_and_names_its_directory(played):
    place, events = played
    assert [one["scene"] for one in events if one["event"] == "scene"] == [1, 2, 3, 4, 5, 6]
    assert str(place) in events[0]["text"]
    assert any("baton audit verify" in one["text"] for one in events if one["event"] == "command")


def test_it_says_where_to_read_on_only_what_is_there(played, monkeypatch, capsys, tmp_path):
    demo.goodbye(tmp_path, demo.Teller(as_json=True, fast=True))
    said = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert any(one.startswith("Read on: ") and "docs/tutorial/first-handoff.md" in one for one in said)
    monkeypatch.setattr(demo, "TUTORIAL", tmp_path / "not-there.md")
    demo.goodbye(tmp_path, demo.Teller(as_json=True, fast=True))
    said = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert not any("docs/" in one or "README" in one for one in said)
    assert any("`baton --help`" in one and "help(baton)" in one for one in said)


def test_the_approval_was_given_by_another_process(relay):
    (paid,) = relay.store.find(to_agent="payout")
    records = relay.audit.query(handoff_id=paid.id)
    assert [one.event_type for one in records] == [
        "initiated", "approval_requested", "approved", "accepted", "completed",
    ]  # fmt: skip
    assert [one.by for one in records if one.event_type == "approved"] == ["ana"]


def test_the_killed_worker_was_replaced_and_fenced(relay, played):
    (work,) = relay.store.find(to_agent="analyst")
    records = relay.audit.query(handoff_id=work.id)
    events = [one.event_type for one in records]
    assert events == ["initiated", "accepted", "reclaimed", "accepted", "completed", "late"]
    first, second = (one.by.split("/")[2] for one in records if one.event_type == "accepted")
    assert first != second
    assert (work.status, work.attempt, work.epoch) == ("completed", 2, 2)
    assert relay.store.returned(work.id).output == "total 42"
    told = facts(played[1], 3)["seconds"]
    reclaimed, taken = records[2], records[3]
    assert 0 <= told < 30
    assert (taken.timestamp - reclaimed.timestamp).total_seconds() <= told


def test_the_finished_step_ran_once(relay, played):
    assert [(one.status, one.attempt) for one in relay.store.find(to_agent="reader")] == [("completed", 1)]
    assert (played[0] / "ran.log").read_text().splitlines().count("reader") == 1


def test_the_loop_and_the_budget_were_refused(relay):
    edges = [(one.from_agent, one.to_agent, one.status) for one in relay.result("demo-loop").handoffs]
    assert edges == [
        ("planner", "coder", "completed"), ("coder", "planner", "failed"), ("planner", "coder", "refused"),
    ]  # fmt: skip
    assert relay.result("demo-loop").error.startswith("LoopDetected")
    over = relay.result("demo-budget")
    assert over.error.startswith("BudgetExceeded")
    assert over.tokens == 9_000
    assert [one.status for one in over.handoffs] == ["refused"]


def test_the_store_verifies_and_the_forged_copy_does_not(relay, played):
    assert relay.audit.verify().ok
    with Relay(str(played[0] / "forged.db")) as forged:
        report = forged.audit.verify()
    assert not report.ok
    assert {one.kind for one in report.findings} >= {"edited"}
    genuine, copy = ((played[0] / name).read_bytes() for name in ("demo.db", "forged.db"))
    assert sum(a != b for a, b in zip(genuine, copy, strict=True)) == 1


def test_into_a_pipe_it_prints_plain_lines(tmp_path):
    done = play("--keep", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "took over after" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100 + len(str(tmp_path))


def test_it_fails_when_something_is_not_as_told(tmp_path, monkeypatch, capsys):

    async def quiet(stage):
        stage.tell.check(1 + 1 == 3, "the sum is right")

    monkeypatch.setattr(demo, "SCENES", (quiet,))
    assert demo.main(["--fast", "--keep", str(tmp_path / "new")]) == 1
    assert "this did not hold: the sum is right" in capsys.readouterr().err


def test_a_directory_that_exists_is_left_alone(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        demo.main(["--keep", str(tmp_path)])
    assert stop.value.code == 2
    assert "name a new directory" in capsys.readouterr().err
