"""Research on the board, from the request to done: daemon, wrapper and program are processes that are killed."""

import os
import shutil
import signal
import sys

import pytest

from baton.testing.research import Fault, ResearchServer

# `baton research`, killed at the POINTth moment before or after a write to its request, the first time that it runs.
MORTAL = """\
import os, pathlib, signal, sys
from baton.board.research import item
from baton.cli import main

spent, point, victim, request = sys.argv[1:]
left, note = 0 if os.path.exists(spent) else int(point), item.ItemRequest.note

def mortal():
    global left
    left -= 1
    if left == 0:
        pathlib.Path(spent).touch()
        if victim == "wrapper":
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

def deadly(self, title, change):
    mortal()
    note(self, title, change)
    mortal()

item.ItemRequest.note = deadly
sys.exit(main(["research", request]))
"""
HOSTILE = 'import pathlib\npathlib.Path(__file__).with_name("canary").touch()\nraise SystemExit(1)\n'


@pytest.fixture
def server():
    with ResearchServer(stages=("done",)) as server:
        yield server


@pytest.fixture
def play(board_play, server):
    made = board_play("plain")
    made.environment |= server.environment
    return made


def asked(play, topic="Market size"):
    """A request for research that a person approved."""
    play.baton("request", "new", "research", topic, "--field", "query=How large is it?", "--in", "sessions/ASKS")
    path = next((play.root / "sessions" / "ASKS").glob("RESEARCH_REQUEST_*.md"))
    approve(play, path)
    return path


def approve(play, path):
    play.baton("tag", "swap", str(path), "#needs-research", "#delegated-research")


def reports(play):
    return sorted(play.root.glob("sessions/*/RESEARCH_RESPONSE_*.md"))


def events(play, *names):
    return [one for one in play.log() if one["event"] in names and one["path"].startswith("sessions/ASKS")]


def is_done(play, path):
    play.until(lambda: "#done-research" in play.tags(path))
    (report,) = reports(play)
    name, linked = report.relative_to(play.root), path.read_text()
    assert linked.count(f"## Response\n*   **Fulfilled by**: {name}\n*   **Summary**: Complete: Findings\n") == 1
    assert report.name == "RESEARCH_RESPONSE_MARKET_SIZE.md"
    assert len(events(play, "done")) == 1
    return report


# --- what it does ---------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", ["plain", pytest.param("tmux", marks=pytest.mark.proof("tmux"))])
@pytest.mark.parametrize("provider", ["gemini", "openai"])
def test_from_the_request_to_done(windows, provider, server, board_play):
    assert windows == "plain" or shutil.which("tmux")
    play = board_play(windows)
    play.environment |= {**server.environment, "BATON_RESEARCH": provider}
    for name in ("baton.py", "msgspec.py", "json.py", "re.py"):  # what stands in the repository is not imported
        (play.root / name).write_text(HOSTILE)
    path = asked(play)
    play.daemon()
    report = is_done(play, path)
    (job,) = server.jobs
    assert job.provider == provider
    assert job.question == (
        "# Research Request: Market size\n\n## 1. Query\n\nHow large is it?\n\n## 2. Context\n\n## 3. Constraints\n\n"
        "## 4. Expected Output"
    )
    (claim,) = events(play, "claimed")
    assert str(report.parent.relative_to(play.root)) == claim["session"]
    assert report.read_text().startswith(
        "# Research Response: Market size\n\n## 1. Metadata\n"
        "*   **Original Request**: sessions/ASKS/RESEARCH_REQUEST_MARKET_SIZE.md\n*   **Requested By**: ana\n"
        f"*   **Responding Session**: {claim['session']}\n*   **Research Job**: {provider} `{job.id}`\n\n"
        "## 2. Outcome\n*   **Status**: Complete\n*   **Summary**: Findings\n\n## 3. Findings\n\n# Findings\n"
    )
    assert [claim["program"], claim["skill"]] == ["research", "research"]
    assert not (play.root / "canary").exists()
    if windows == "tmux":  # it has no window
        listed = play.tmux("list-windows", "-a")
        assert "agent-research" not in listed


def test_without_a_claim_nothing_is_asked(server, play):
    path = asked(play)
    play.baton("research", str(path), code=3)
    play.environment["BATON_CLAIM"] = f"{path.relative_to(play.root)}#research:0"  # one that is over
    play.baton("research", str(path), code=3)
    assert server.calls == []
    assert "#delegated-research" in play.tags(path)
    assert [one["event"] for one in play.log()][-1] == "late"


@pytest.mark.parametrize("words", [["cancel"], ["forget"], ["adopt", "v1_Mine"]])
def test_what_a_person_says_of_a_job_is_refused_to_agents(words, server, play):
    path = asked(play)
    play.environment["BATON_CLAIM"] = f"{path.relative_to(play.root)}#research:1"
    before = path.read_bytes()
    play.baton("research", words[0], str(path), *words[1:], code=3)
    assert (server.calls, path.read_bytes()) == ([], before)


# --- killed at any moment, one job ---------------------------------------------------------------

POINTS = {  # what the next process finds
    1: "nothing was written",
    2: "an intent, and no job",
    3: "an intent, and a job whose id is not known",
    4: "an id",
    5: "an id, and the report is written",
    6: "the response is linked",
    7: "the response is linked, the end is not written",
    8: "the end",
}
KILLS = [(point, "program") for point in POINTS] + [(point, "wrapper") for point in (1, 4, 5, 6)]


@pytest.mark.parametrize(("point", "victim"), KILLS, ids=[f"{victim}-{point}" for point, victim in KILLS])
def test_killed_at_a_write_it_is_done_once_under_the_same_approval(point, victim, server, play):
    mortal, spent = play.root.parent / "mortal.py", play.root.parent / "spent"
    mortal.write_text(MORTAL)
    play.program("research", [sys.executable, str(mortal), str(spent), str(point), victim, "{request}"])
    path = asked(play)
    play.daemon()
    play.until(spent.exists)
    if point in {2, 3}:
        play.until(lambda: events(play, "alert"))
        assert "#needs-research" in play.tags(path)
        assert "a job may have been started" in path.read_text().partition("## Recovery")[2]
        assert [one["event"] for one in events(play, "alert")] == ["alert"]
        assert (len(server.jobs), reports(play)) == (point - 2, [])
        play.baton("research", *(["forget", str(path)] if point == 2 else ["adopt", str(path), server.jobs[0].id]))
        approve(play, path)
    is_done(play, path)
    assert len(server.jobs) == 1
    assert len([call for call in server.calls if call.kind == "start"]) == 1
    assert len(events(play, "approved")) == 1 + (point in {2, 3})
    assert len(events(play, "claimed")) == {2: 3, 3: 3, 6: 1, 7: 1, 8: 1}.get(point, 2)


def test_the_daemon_the_wrapper_and_the_program_die_while_the_job_runs(server, play):
    struck = []

    def kill():
        for pid, command in play.processes():
            if "--monitor-tags" in command or "baton run /research" in command or "baton research" in command:
                struck.append(command)
                os.kill(pid, signal.SIGKILL)

    server.script("look", Fault(works=True, then=kill), Fault(works=True, then=kill))
    path = asked(play)
    for deaths in (3, 6):
        daemon = play.daemon()
        play.until(lambda: daemon.poll() is not None)  # noqa: B023 - it is called at once
        assert len(struck) == deaths
    play.daemon()
    is_done(play, path)
    assert (len(server.jobs), server.left) == (1, 0)
    assert (len(events(play, "claimed")), len(events(play, "approved"))) == (3, 1)


def test_a_job_that_may_not_be_looked_at_is_gone_on_with(server, play):
    server.script("look", Fault(401))
    path = asked(play)
    play.daemon()
    is_done(play, path)
    assert (len(server.jobs), server.left, len(events(play, "claimed"))) == (1, 0, 2)


# --- what only a person can mend ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fault", "stage", "said"),
    [
        ("look", None, "failed", "failed: the provider says that it failed"),
        ("look", None, "cancelled", "cancelled: it was cancelled"),
        ("look", None, "paused", "unknown: the provider says status"),
        ("start", Fault(400), "done", "refused: no job was started"),
        ("start", Fault(500), "done", "doubtful: a job may have been started"),
    ],
    ids=["failed", "cancelled", "unknown", "refused", "doubtful"],
)
def test_what_fails_goes_to_a_person_at_once(kind, fault, stage, said, server, play):
    server.stages = (stage,)
    if stage == "paused":
        play.environment["BATON_RESEARCH"] = "openai"
    if fault:
        server.script(kind, fault)
    path = asked(play)
    play.daemon()
    play.until(lambda: events(play, "alert"))
    assert "#needs-research" in play.tags(path)
    assert f"*   **Action**: Left for a person: research stopped it: {said}" in path.read_text()
    (alert,) = events(play, "alert")
    assert said in alert["reason"]
    assert len(events(play, "claimed")) == 1
    paid = len(server.jobs)
    server.stages = ("done",)
    play.baton("research", "forget", str(path))
    approve(play, path)
    is_done(play, path)
    assert (len(server.jobs), len(events(play, "claimed"))) == (paid + 1, 2)


def test_a_person_cancels_a_job_that_runs(server, play):
    server.stages = ("running",)
    path = asked(play)
    play.daemon()
    play.until(lambda: server.jobs and "**Status**: running" in path.read_text())
    assert play.baton("research", "cancel", str(path)).startswith("cancelled:")
    play.until(lambda: "#needs-research" in play.tags(path))
    assert "research stopped it: cancelled" in path.read_text()
    assert (server.jobs[0].stage, reports(play)) == ("cancelled", [])


def test_without_a_key_a_person_is_told_at_once(server, play):
    del play.environment["GEMINI_API_KEY"]
    path = asked(play)
    play.daemon()
    play.until(lambda: "#needs-research" in play.tags(path))
    assert "GEMINI_API_KEY is not set" in path.read_text()
    assert (server.calls, len(events(play, "claimed"))) == ([], 1)
