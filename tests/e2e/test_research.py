"""Research with the real clients, a real server on this machine, real files, and processes that are really killed.

Run as a program, this file is the process that is killed: `REQUEST REPORT PROVIDER POINT`, where POINT counts the
moments before and after each write to the request; 0 kills nowhere.
"""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from baton.board import files
from baton.board.research import (
    Patience,
    adopt,
    calls,
    cancel,
    forget,
    record,
    research,
    section,
    with_section,
)
from baton.errors import Conflict, Malformed, NotFound
from baton.testing import kill_sweep
from baton.testing.research import KEY, Fault, ResearchServer

BOTH = pytest.mark.parametrize("provider", ["gemini", "openai"])
QUICK = Patience(longest=60, first=0.01, most=0.02)
TEXT = """# Research Request: Market size
**Tags**: #claimed-research

## Query
How large is the market for left-handed scissors?

## Requesting Session
- **Session**: sessions/one
"""


class FileRequest:
    """A request file, changed under a lock and exchanged at once; `point` is where the process kills itself."""

    def __init__(self, path, point=0):
        self.path = Path(path)
        self._left = point

    def read(self):
        return self.path.read_bytes()

    def name(self, path):
        return Path(path).name

    def note(self, title, change):
        self._mortal()
        self.change(title, lambda data: with_section(data, title, change(section(data, title))))
        self._mortal()

    def change(self, title, edit):
        files.change(str(self.path), edit)
        directory = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)

    def _mortal(self):
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class ForgetfulRequest(FileRequest):
    """What a naive program does: it writes the report, and before that nothing."""

    def change(self, title, edit):
        if title != "Research Job":
            super().change(title, edit)


class CrowdRequest(FileRequest):
    """Waits with the first write until all others have come as far: each of them has seen a request without a job."""

    def note(self, title, change):
        self.wait()
        super().note(title, change)

    def wait(self):
        self.path.with_suffix(f".ready-{os.getpid()}").touch()
        until = time.monotonic() + 50
        while not self.path.with_suffix(".go").exists():
            assert time.monotonic() < until
            time.sleep(0.005)


class NaiveRequest(CrowdRequest):
    """What a naive program does: it looks, and then it writes."""

    def note(self, title, change):
        lines = change(section(self.read(), title))
        self.wait()
        self.change(title, lambda data: with_section(data, title, lines))


def go(request, report, provider="gemini", **more):
    return research(request, Path(report), provider=provider, patience=more.pop("patience", QUICK), **more)


def program(request, report, provider, point, kind="FileRequest"):
    outcome = go(globals()[kind](request, int(point)), report, provider)
    print(f"{outcome.state} {outcome.reason}")


if __name__ == "__main__":
    program(*sys.argv[1:])


@pytest.fixture
def server(monkeypatch):
    with ResearchServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def request_(tmp_path):
    path = tmp_path / "RESEARCH_REQUEST_MARKET.md"
    path.write_text(TEXT)
    return FileRequest(path)


@pytest.fixture
def report(tmp_path):
    return tmp_path / "RESEARCH_RESPONSE_MARKET.md"


def child(request, report, provider, point=0, kind="FileRequest"):
    argv = [sys.executable, __file__, str(request.path), str(report), provider, str(point), kind]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out + err


def starts(server):
    return [call for call in server.calls if call.kind == "start"]


# --- what it does ------------------------------------------------------------------------------


@BOTH
def test_the_report_is_written_and_linked(provider, server, request_, report):
    lines = []
    server.stages = ("queued", "running", "done")
    outcome = go(request_, report, provider, tell=lines.append)
    assert (outcome.state, outcome.report, outcome.usage.total) == ("done", report, 1520)
    said = request_.read().decode()
    assert said.startswith(TEXT)
    assert f"- **Interaction ID**: `{server.jobs[0].id}`" in said
    assert "- **Status**: done" in said
    assert "20 in, 1500 out, 1520 in all" in said
    assert "## Response\n*   **Fulfilled by**: RESEARCH_RESPONSE_MARKET.md\n" in said
    assert "*   **Summary**: Complete: Findings" in said
    written = report.read_text()
    assert written.startswith(
        "# Research Response: Market size\n\n## 1. Metadata\n*   **Original Request**: RESEARCH_REQUEST_MARKET.md\n"
        "*   **Requested By**: unknown\n*   **Responding Session**: "
    )
    assert "found nothing that you did not know" in written
    assert "https://example.org/source" in written
    assert lines[0].endswith(f"{server.jobs[0].id}: the job is started")
    assert ["asking again in" in line for line in lines] == [False, True, True]
    assert [call.kind for call in server.calls] == ["start", "look", "look", "look"]


def test_what_is_sent_to_gemini(server, request_, report):
    go(request_, report, "gemini")
    assert server.jobs[0].body == {
        "agent": "deep-research-preview-04-2026",
        "input": "# Research Request: Market size\n\n## Query\nHow large is the market for left-handed scissors?",
        "background": True,
        "store": True,
        "agent_config": {"type": "deep-research", "visualization": "off", "collaborative_planning": False},
    }
    assert server.calls[0].headers["x-goog-api-key"] == KEY
    assert server.calls[0].headers["Api-Revision"] == "2026-05-20"


def test_what_is_sent_to_openai(server, request_, report, monkeypatch):
    monkeypatch.setenv("BATON_OPENAI_MODEL", "the-model-of-today")
    go(request_, report, "openai")
    body = server.jobs[0].body
    assert body.pop("metadata") == {"baton_intent": record(request_.read()).intent}
    assert body == {
        "model": "the-model-of-today",
        "input": "# Research Request: Market size\n\n## Query\nHow large is the market for left-handed scissors?",
        "background": True,
        "store": True,
        "tools": [{"type": "web_search"}],
    }
    assert server.calls[0].headers["Authorization"] == f"Bearer {KEY}"


@BOTH
def test_a_question_may_follow_an_earlier_job(provider, server, request_, report):
    request_.path.write_text(f"{TEXT}\n## Previous Research\n- **Interaction ID**: `v1_earlier`\n")
    go(request_, report, provider)
    assert server.jobs[0].previous == "v1_earlier"
    assert "v1_earlier" not in server.jobs[0].question


@BOTH
def test_a_finished_request_asks_nobody(provider, server, request_, report, monkeypatch):
    go(request_, report, provider)
    before = len(server.calls)
    monkeypatch.delenv(f"{provider.upper()}_API_KEY")
    assert go(request_, report, provider).state == "done"
    assert len(server.calls) == before


def test_a_job_stays_with_its_provider(server, request_, report):
    server.stages = ("running",)
    assert go(request_, report, "openai", patience=Patience(0.05, 0.01, 0.01)).state == "waiting"
    server.jobs[0].stages = ["done"]
    assert go(request_, report, "gemini").state == "done"
    assert [job.provider for job in server.jobs] == ["openai"]


@BOTH
def test_when_patience_ends_the_job_is_gone_on_with_later(provider, server, request_, report):
    server.stages = ("running",)
    outcome = go(request_, report, provider, patience=Patience(0.1, 0.01, 0.02))
    assert outcome.state == "waiting"
    assert "run again" in outcome.reason
    server.jobs[0].stages = ["done"]
    assert go(request_, report, provider).state == "done"
    assert len(starts(server)) == 1


# --- never twice -------------------------------------------------------------------------------

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


@BOTH
@pytest.mark.parametrize("point", POINTS, ids=POINTS.get)
def test_killed_at_every_write_it_costs_one_job(point, provider, server, request_, report):
    status, said = finish(child(request_, report, provider, point))
    assert status == -signal.SIGKILL, said
    paid = len(server.jobs)
    assert paid == (point >= 3)

    status, said = finish(child(request_, report, provider))
    assert status == 0, said
    if point in {2, 3}:
        assert said.startswith("doubtful")
        assert "Interaction ID" in said
        assert len(server.jobs) == paid
        if point == 2:
            forget(request_)
        else:
            adopt(request_, server.jobs[0].id)
        status, said = finish(child(request_, report, provider))
    assert said.startswith("done"), said
    assert len(server.jobs) == 1
    assert server.jobs[0].id in request_.read().decode()
    assert "found nothing" in report.read_text()


@BOTH
def test_the_harness_sees_a_naive_program_pay_twice(provider, server, request_, report):
    """Without the intent and the id in the file, the same kill costs a second job."""
    assert finish(child(request_, report, provider, 3, "ForgetfulRequest"))[0] == -signal.SIGKILL
    finish(child(request_, report, provider, 0, "ForgetfulRequest"))
    assert len(server.jobs) == 2


@BOTH
def test_killed_between_the_job_and_the_answer(provider, server, request_, report):
    struck = []
    process = None

    def kill():
        struck.append(process.pid)
        process.kill()
        process.wait()

    server.script("start", Fault(works=True, then=kill))
    process = child(request_, report, provider)
    status, said = finish(process)
    assert (status, len(struck)) == (-signal.SIGKILL, 1), said
    assert len(server.jobs) == 1
    for _ in range(3):
        assert go(request_, report, provider).state == "doubtful"
    assert len(starts(server)) == 1
    adopt(request_, server.jobs[0].id)
    assert go(request_, report, provider).state == "done"
    assert len(server.jobs) == 1


@BOTH
def test_killed_again_and_again_while_it_waits(provider, server, request_, report):
    server.stages = ("running",)
    kills, current = [], []

    def kill():
        kills.append(current[-1].pid)
        current[-1].kill()
        current[-1].wait()

    for _ in range(5):
        server.script("look", Fault(works=True), Fault(works=True, then=kill))
        current.append(child(request_, report, provider))
        assert finish(current[-1])[0] == -signal.SIGKILL
    assert len(kills) == 5
    server.jobs[0].stages = ["done"]
    assert finish(child(request_, report, provider))[1].startswith("done")
    assert len(server.jobs) == len(starts(server)) == 1


def work(provider, environment, directory, acknowledge):
    """What is killed at each of its writes: research for a question that no other run has."""
    os.environ.update(environment)
    path = Path(directory, "REQUEST.md")
    path.write_text(TEXT + f"\n## Context\nrun {os.getpid()} {os.times().elapsed}\n")
    acknowledge("asked")
    if go(FileRequest(path), path.with_name("RESPONSE.md"), provider).state == "done":
        acknowledge("done")


def survived(provider, environment, directory, acknowledged):
    """After the kill another process goes on; nothing was paid twice, and nothing that was said to be done is lost."""
    os.environ.update(environment)
    path = Path(directory, "REQUEST.md")
    if "asked" not in acknowledged:
        return
    marker = path.read_text().partition("## Context\n")[2].splitlines()[0]
    outcome = go(FileRequest(path), path.with_name("RESPONSE.md"), provider)
    url = environment["BATON_GEMINI_URL"]
    with urllib.request.urlopen(f"{url}/jobs") as answer:
        paid = [job for job in json.load(answer) if marker in job["question"]]
    if len(paid) > 1:
        yield f"paid {len(paid)} times"
    if outcome.state not in {"done", "doubtful"}:
        yield f"it ends as {outcome}"
    if "done" in acknowledged and outcome.state != "done":
        yield f"it was done, and is {outcome.state}"
    if outcome.state == "done" and "found nothing" not in path.with_name("RESPONSE.md").read_text():
        yield "the report is torn"


@BOTH
@pytest.mark.parametrize(("mode", "every"), [("kill", 1), ("torn", 1), ("EIO", 3), ("ENOSPC", 3)])
def test_a_fault_at_every_system_call_that_writes_costs_one_job(mode, every, provider, server):
    bound = [functools.partial(part, provider, server.environment) for part in (work, survived)]
    found = kill_sweep(*bound, where=("files",), mode=mode, every=every)
    found.assert_clean()
    assert (found.kills if mode in {"kill", "torn"} else found.errors) == found.points > 5


def crowd(server, request, report, provider, kind):
    """What six processes say that begin at the same moment."""
    server.script("start", Fault(works=True, delay=0.5))
    processes = [child(request, report, provider, 0, kind) for _ in range(6)]
    while len(list(request.path.parent.glob("*.ready-*"))) < len(processes):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    request.path.with_suffix(".go").touch()
    return [finish(process)[1] for process in processes]


@BOTH
def test_many_processes_at_once_start_one_job(provider, server, request_, report):
    said = crowd(server, request_, report, provider, "CrowdRequest")
    assert len(server.jobs) == len(starts(server)) == 1
    assert sum(line.startswith("done") for line in said) == 1, said
    assert sum("somebody else has just begun a job" in line for line in said) == len(said) - 1, said


@BOTH
def test_the_crowd_makes_a_naive_program_pay_twice(provider, server, request_, report):
    crowd(server, request_, report, provider, "NaiveRequest")
    assert len(server.jobs) > 1


# --- what goes wrong ---------------------------------------------------------------------------

LOST = {
    "500": Fault(500),
    "502": Fault(502, works=True),
    "503": Fault(503, works=True, headers={"Retry-After": "1"}),
    "504": Fault(504, works=True),
    "408": Fault(408, works=True),
    "no answer": Fault(works=True, cut="before"),
    "half an answer": Fault(works=True, cut="middle"),
    "no JSON": Fault(works=True, body=b"<html>welcome</html>"),
    "no object": Fault(works=True, body=b'"v1_x"'),
    "no id": Fault(works=True, body=b'{"status": "in_progress"}'),
    "an id that is none": Fault(works=True, body=b'{"id": "../../v1/other?x=1"}'),
    "deep": Fault(works=True, body=b"[" * 100_000),
}


@BOTH
@pytest.mark.parametrize("fault", LOST.values(), ids=LOST)
def test_a_start_whose_answer_is_lost_is_for_a_person(fault, provider, server, request_, report):
    server.script("start", fault)
    for _ in range(3):
        outcome = go(request_, report, provider)
        assert outcome.state == "doubtful"
        assert "Interaction ID" in outcome.reason
    assert len(starts(server)) == 1
    assert server.left == 0
    assert len(server.jobs) == fault.works
    assert not report.exists()
    forget(request_)
    assert go(request_, report, provider).state == "done"


@BOTH
def test_a_start_that_is_too_early_is_repeated(provider, server, request_, report):
    lines = []
    server.script("start", Fault(429, headers={"Retry-After": "1"}), Fault(429))
    assert go(request_, report, provider, tell=lines.append).state == "done"
    assert (len(starts(server)), len(server.jobs), server.left) == (3, 1, 0)
    assert "asking again in 1 s" in lines[0]


@BOTH
def test_a_wait_that_is_longer_than_the_patience_is_not_begun(provider, server, request_, report):
    server.script("start", Fault(429, headers={"Retry-After": "100"}))
    outcome = go(request_, report, provider)
    assert (outcome.state, len(server.jobs)) == ("refused", 0)
    assert go(request_, report, provider).state == "done"


@BOTH
@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
def test_a_refused_start_makes_no_job_and_may_be_tried_again(status, provider, server, request_, report):
    server.script("start", Fault(status))
    outcome = go(request_, report, provider)
    assert (outcome.state, len(server.jobs), len(starts(server))) == ("refused", 0, 1)
    assert str(status) in outcome.reason
    assert "- **Status**: not started" in request_.read().decode()
    assert go(request_, report, provider).state == "done"
    assert len(server.jobs) == 1


def test_an_empty_account_is_not_waited_for(server, request_, report):
    body = json.dumps({"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}).encode()
    server.script("start", Fault(429, body=body))
    outcome = go(request_, report, "openai")
    assert outcome.state == "refused"
    assert "You exceeded your quota" in outcome.reason
    assert len(starts(server)) == 1


@BOTH
def test_a_provider_that_is_not_there_was_not_asked(provider, server, request_, report, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv(f"BATON_{provider.upper()}_URL", closed)
        outcome = go(request_, report, provider, patience=Patience(0.1, 0.02, 0.02))
    assert outcome.state == "refused"
    assert "cannot be reached" in outcome.reason
    monkeypatch.setenv(f"BATON_{provider.upper()}_URL", server.url)
    assert go(request_, report, provider).state == "done"


TROUBLE = [
    Fault(429, headers={"Retry-After": "0"}),
    Fault(500),
    Fault(503, headers={"Retry-After": "0.01"}),
    Fault(works=True, cut="before"),
    Fault(works=True, cut="middle"),
    Fault(body=b"{"),
    Fault(body=b"null"),
    Fault(body=b'{"id": "somebody-elses", "status": "completed"}'),
    Fault(404),
]


@BOTH
def test_trouble_while_waiting_ends_nothing(provider, server, request_, report):
    server.stages = ("done",)
    server.script("look", *TROUBLE)
    lines = []
    assert go(request_, report, provider, tell=lines.append).state == "done"
    assert (server.left, len(server.jobs), len(lines)) == (0, 1, 1 + len(TROUBLE))


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refused_look_loses_nothing(status, provider, server, request_, report):
    server.script("look", Fault(status))
    outcome = go(request_, report, provider)
    assert outcome.state == "waiting"
    assert str(status) in outcome.reason
    assert go(request_, report, provider).state == "done"
    assert len(server.jobs) == 1


@BOTH
def test_a_job_that_the_provider_does_not_know_is_for_a_person(provider, server, request_, report):
    server.script("look", *[Fault(404)] * 3)
    outcome = go(request_, report, provider)
    assert outcome.state == "unknown"
    assert server.jobs[0].id in outcome.reason
    assert go(request_, report, provider).state == "done"
    assert len(server.jobs) == 1


@pytest.mark.parametrize(
    ("provider", "stage", "state"),
    [
        ("gemini", "failed", "failed"),
        ("gemini", "cancelled", "cancelled"),
        ("gemini", "incomplete", "failed"),
        ("gemini", "budget_exceeded", "failed"),
        ("gemini", "requires_action", "failed"),
        ("openai", "failed", "failed"),
        ("openai", "cancelled", "cancelled"),
        ("openai", "incomplete", "failed"),
    ],
)
def test_what_ends_without_a_report_ends_as_such(provider, stage, state, server, request_, report):
    server.stages = ("running", stage)
    outcome = go(request_, report, provider)
    assert (outcome.state, outcome.report) == (state, None)
    assert outcome.reason
    assert not report.exists()
    assert "## Response" not in request_.read().decode()
    assert f"- **Status**: {state}" in request_.read().decode()
    server.jobs[0].stages = ["done"]  # a provider may change its mind, an end is an end
    before = len(server.calls)
    assert go(request_, report, provider).state == state
    assert len(server.calls) == before


@BOTH
def test_completed_without_a_report_is_not_done(provider, server, request_, report):
    server.report = "  "
    assert go(request_, report, provider).state == "failed"
    assert not report.exists()


@BOTH
def test_a_status_that_is_new_here_is_for_a_person(provider, server, request_, report):
    server.stages = ("paused_for_lunch",)
    outcome = go(request_, report, provider)
    assert outcome.state == "unknown"
    assert "paused_for_lunch" in outcome.reason


@BOTH
def test_cancel(provider, server, request_, report):
    server.stages = ("running",)
    go(request_, report, provider, patience=Patience(0.05, 0.01, 0.01))
    assert cancel(request_, report).state == "cancelled"
    assert server.jobs[0].stage == "cancelled"
    assert cancel(request_, report).state == "cancelled"
    assert go(request_, report, provider).state == "cancelled"
    assert not report.exists()


@BOTH
def test_cancel_that_comes_too_late_gives_the_report(provider, server, request_, report):
    server.stages = ("running",)
    go(request_, report, provider, patience=Patience(0.05, 0.01, 0.01))
    server.jobs[0].stages = ["done"]
    assert cancel(request_, report).state == "done"
    assert "found nothing" in report.read_text()


def test_cancel_without_a_job(server, request_, report):
    with pytest.raises(NotFound, match="nothing to cancel"):
        cancel(request_, report)


@BOTH
def test_a_lost_answer_to_cancel_is_looked_up(provider, server, request_, report):
    server.stages = ("running",)
    go(request_, report, provider, patience=Patience(0.05, 0.01, 0.01))
    server.script("cancel", Fault(works=True, cut="before"))
    assert cancel(request_, report).state == "cancelled"
    assert server.left == 0


# --- safety ------------------------------------------------------------------------------------


@BOTH
def test_the_key_is_told_to_nobody(provider, server, request_, report, monkeypatch):
    """The server says the key in its complaint, as one of the providers does."""
    secret = "sk-local-" + "x9Q" * 8
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", secret)
    lines = []
    outcome = go(request_, report, provider, tell=lines.append)
    assert outcome.state == "refused"
    assert "Incorrect API key provided: [key]" in outcome.reason
    assert any(secret in value for call in server.calls for value in call.headers.values())
    assert secret not in f"{outcome}{lines}{request_.read()}"


@BOTH
@pytest.mark.parametrize(
    ("code", "state"), [(301, "refused"), (302, "doubtful"), (303, "doubtful"), (307, "refused"), (308, "refused")]
)
def test_a_redirect_is_not_followed(code, state, provider, server, request_, report):
    with ResearchServer() as other:
        server.script("start", Fault(code, headers={"Location": f"{other.url}/v1/responses"}))
        assert go(request_, report, provider).state == state
        assert other.calls == []
    assert server.left == 0


@BOTH
def test_an_answer_that_is_too_large_is_none(provider, server, request_, report, monkeypatch):
    monkeypatch.setattr(calls, "LARGEST", 10_000)
    server.script("look", Fault(body=b" " * 20_000))
    lines = []
    assert go(request_, report, provider, tell=lines.append).state == "done"
    assert "larger than" in lines[1]


@BOTH
def test_a_provider_that_is_silent_is_not_waited_for(provider, server, request_, report, monkeypatch):
    monkeypatch.setattr(calls, "SILENCE", 0.2)
    server.script("look", Fault(works=True, delay=0.6))
    lines = []
    assert go(request_, report, provider, tell=lines.append).state == "done"
    assert "gave no whole answer" in lines[1]


def test_a_provider_that_drips_is_cut_off(monkeypatch):
    monkeypatch.setattr(calls, "WHOLE", 0.3)
    listening = socket.create_server(("127.0.0.1", 0))
    code = (
        "import socket, sys, time\n"
        "to, _ = socket.socket(fileno=int(sys.argv[1])).accept()\n"
        "to.sendall(b'HTTP/1.1 200 OK\\r\\nX: ')\n"
        "for _ in range(300): to.sendall(b'x'); time.sleep(0.05)\n"
    )
    argv = [sys.executable, "-c", code, str(listening.fileno())]
    with subprocess.Popen(argv, pass_fds=[listening.fileno()], stderr=subprocess.DEVNULL) as dripping, listening:
        caller = calls.Caller(f"http://127.0.0.1:{listening.getsockname()[1]}", KEY, ("x-key", ""))
        began = time.monotonic()
        answer = caller.call("GET", "/")
        assert time.monotonic() - began < 10  # it would drip for 15
        assert calls.trouble(answer).state == "unanswered"
        dripping.kill()


@pytest.mark.proof("openssl")
def test_a_certificate_that_nobody_vouches_for_gets_no_key(tmp_path, request_, report, monkeypatch):
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    code = (
        "import ssl, socket, sys\n"
        "context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain('cert.pem', 'key.pem')\n"
        "server = socket.create_server(('127.0.0.1', 0)); print(server.getsockname()[1], flush=True)\n"
        "to, _ = server.accept()\n"
        "try:\n    print(context.wrap_socket(to, server_side=True).recv(1000))\n"
        "except OSError as error: print('no handshake', error)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as untrusted:
        port = untrusted.stdout.readline().strip()
        monkeypatch.setenv("BATON_GEMINI_URL", f"https://127.0.0.1:{port}")
        monkeypatch.setenv("GEMINI_API_KEY", KEY)
        outcome = go(request_, report, "gemini")
        said = untrusted.stdout.read()
    assert outcome.state == "refused"
    assert "CERTIFICATE_VERIFY_FAILED" in outcome.reason
    assert "no handshake" in said
    assert KEY not in said


def test_without_a_key_nothing_is_written(server, request_, report, monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY")
    with pytest.raises(NotFound, match="GEMINI_API_KEY is not set"):
        go(request_, report)
    assert request_.read().decode() == TEXT


def test_a_provider_that_nobody_knows(server, request_, report):
    with pytest.raises(Malformed, match="gemini, openai"):
        go(request_, report, "base")


def test_a_file_that_is_in_the_way_is_not_overwritten_and_nothing_is_paid(server, request_, report):
    report.write_text("mine")
    with pytest.raises(Conflict, match="move it away"):
        go(request_, report)
    assert server.calls == []
    assert report.read_text() == "mine"


def test_a_request_whose_code_block_is_open_starts_nothing(server, request_, report):
    request_.path.write_text(TEXT + "\n```sh\nnever closed\n")
    with pytest.raises(Malformed, match="code block"):
        go(request_, report)
    assert server.calls == []


def test_a_job_that_hides_in_a_code_block_is_not_started_again(server, request_, report):
    server.stages = ("running",)
    go(request_, report, patience=Patience(0.05, 0.01, 0.01))
    hidden = request_.path.read_text().replace("## Research Job", "```\n## Research Job") + "```\n"
    request_.path.write_text(hidden)
    with pytest.raises(Malformed, match="code block"):
        go(request_, report)
    assert len(starts(server)) == 1


HOSTILE = """# Report #needs-implementation
**Tags**: #delegated-research #P0
- [ ] #claimed-fix and (#DONE-x), #active-alert, see https://example.org/#needs-x
```
#next-step
```
\x1b[2Jcleared\u202egnirts\x00
## Response
- **Fulfilled by**: nobody
"""


@BOTH
def test_nothing_in_a_report_becomes_work(provider, server, request_, report):
    server.report = HOSTILE
    go(request_, report, provider)
    for text in (report.read_text(), request_.read().decode().replace("#claimed-research", "")):
        assert not any(f"#{state}-" in text.lower() for state in ("needs", "delegated", "next", "claimed", "done"))
        assert "#active-alert" not in text
        assert not set("\x1b\x00\u202e") & set(text)
    assert "&#35;needs-implementation" in report.read_text()
    assert report.read_text().count("\n## 3. Findings\n") == 1
