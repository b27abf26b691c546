"""Providers of research on this machine: a server that speaks the format of Gemini and of OpenAI.

`ResearchServer` keeps jobs as the providers do and counts every one that was started, because that is what costs money.
`script` says what goes wrong with the next calls. Point a program at it with `environment`; it binds to 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

KEY = "a-key-for-this-machine"
REPORT = "# Findings\n\nThe local provider found nothing that you did not know.\n"
STAGES = ("running", "done")

Kind = Literal["start", "look", "cancel"]
Cut = Literal["before", "middle"]


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one call: with `works` the server does what it was asked all the same.

    `cut` closes the connection before the answer or in the middle of it; `body` is sent instead of a document;
    `then` is called when the server has done its part, and before it answers.
    """

    status: int = 200
    works: bool = False
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: Cut | None = None
    delay: float = 0.0
    then: Callable[[], object] | None = None


@dataclass
class Started:
    """One job, which somebody pays for."""

    provider: str
    id: str
    question: str
    previous: str | None
    body: dict[str, Any]
    stages: list[str]

    @property
    def stage(self) -> str:
        return self.stages[0]


@dataclass(frozen=True)
class Call:
    """One call as it came in."""

    kind: Kind | None
    method: str
    path: str
    headers: dict[str, str]


class ResearchServer:
    """Both providers at one address. `stages` is what each look at a new job finds, the last one for ever."""

    def __init__(self, *, stages: tuple[str, ...] = STAGES, report: str = REPORT, key: str = KEY) -> None:
        self.stages, self.report, self.key = stages, report, key
        self.jobs: list[Started] = []
        self.calls: list[Call] = []
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.kept = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """What a program must find in its environment to come here."""
        urls = {"BATON_GEMINI_URL": self.url, "BATON_OPENAI_URL": self.url}
        return urls | {"GEMINI_API_KEY": self.key, "OPENAI_API_KEY": self.key}

    def script(self, kind: Kind, *faults: Fault) -> None:
        """Let the next calls of a kind go wrong, one after the other."""
        self._faults[kind].extend(faults)

    @property
    def left(self) -> int:
        """How many of the scripted faults did not happen."""
        return sum(len(faults) for faults in self._faults.values())

    def next_fault(self, kind: str) -> Fault:
        """The fault for this call, if one is due."""
        with self.lock:
            return self._faults[kind].popleft() if self._faults[kind] else Fault(works=True)

    def start(self, provider: str, body: dict[str, Any]) -> Started:
        """Make a job; from here on it costs money."""
        previous = body.get("previous_interaction_id") or body.get("previous_response_id")
        with self.lock:
            number = len(self.jobs) + 1
            name = f"v1_Local{number:04}" if provider == "gemini" else f"resp_local{number:04}"
            job = Started(provider, name, str(body.get("input")), previous, body, list(self.stages))
            self.jobs.append(job)
        return job

    def find(self, provider: str, name: str) -> Started | None:
        """The job of that id at that provider."""
        return next((job for job in self.jobs if (job.provider, job.id) == (provider, name)), None)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    kept: ResearchServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients are killed here, and connections cut."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path == "/jobs":
            jobs = [{"provider": job.provider, "id": job.id, "question": job.question} for job in self.server.kept.jobs]
            return self._send(200, json.dumps(jobs).encode(), Fault())
        return self._answer("GET")

    def do_POST(self) -> None:
        return self._answer("POST")

    def _answer(self, method: str) -> None:
        kept = self.server.kept
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        provider, kind, name = _asked(method, self.path)
        kept.calls.append(Call(kind, method, self.path, dict(self.headers)))
        fault = kept.next_fault(kind or "")
        status, document = (200, {}) if kind else (404, _error(404, "no such place"))
        if not self._may(provider):
            status, document = 401, _error(401, f"Incorrect API key provided: {self._given(provider)}")
        elif kind and fault.works:
            status, document = self._do(provider, kind, name, body)
        if fault.then:
            fault.then()
        time.sleep(fault.delay)
        if fault.status != 200:
            status, document = fault.status, _error(fault.status, "scripted")
        self._send(status, json.dumps(document).encode() if fault.body is None else fault.body, fault)

    def _given(self, provider: str) -> str:
        name = "x-goog-api-key" if provider == "gemini" else "Authorization"
        return (self.headers.get(name) or "").removeprefix("Bearer ")

    def _may(self, provider: str) -> bool:
        newest = provider != "gemini" or self.headers.get("Api-Revision") == "2026-05-20"
        return newest and self._given(provider) == self.server.kept.key

    def _do(self, provider: str, kind: str, name: str, body: bytes) -> tuple[int, dict[str, Any]]:
        kept = self.server.kept
        if kind == "start":
            return self._start(provider, json.loads(body))
        job = kept.find(provider, name)
        if job is None:
            return 404, _error(404, "no such job")
        with kept.lock:
            if kind == "cancel" and job.stage in {"queued", "running"}:
                job.stages = ["cancelled"]
            document = _document(job, kept.report)
            if kind == "look" and len(job.stages) > 1:
                job.stages.pop(0)
        return 200, document

    def _start(self, provider: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        needed = {"input": str, "agent" if provider == "gemini" else "model": str}
        wrong = [name for name, kind in needed.items() if not isinstance(body.get(name), kind)]
        if wrong or body.get("background") is not True or body.get("store") is not True:
            return 400, _error(400, f"give {', '.join(needed)}, background and store")
        job = self.server.kept.start(provider, body)
        return 200, _document(job, "", stage="running")

    def _send(self, status: int, data: bytes, fault: Fault) -> None:
        if fault.cut == "before":
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **fault.headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # the client may be dead
            self.wfile.write(data[: len(data) // 2] if fault.cut else data)
        self.close_connection = bool(fault.cut)


def _asked(method: str, path: str) -> tuple[str, Kind | None, str]:
    for provider, root in (("gemini", "/v1beta/interactions"), ("openai", "/v1/responses")):
        if path == root:
            return provider, "start" if method == "POST" else None, ""
        if path.startswith(root + "/"):
            name, _, verb = path.removeprefix(root + "/").partition("/")
            kinds: dict[tuple[str, str], Kind] = {("GET", ""): "look", ("POST", "cancel"): "cancel"}
            return provider, kinds.get((method, verb)), name
    return "", None, ""


def _error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "type": "local_error", "status": "LOCAL"}}


_STATUS = {"running": "in_progress", "done": "completed"}  # the others are called the same here and there


def _document(job: Started, report: str, stage: str = "") -> dict[str, Any]:
    stage = stage or job.stage
    found: dict[str, Any] = {"id": job.id, "status": _STATUS.get(stage, stage)}
    found |= {"error": {"code": "server_error", "message": "the local provider failed"}} if stage == "failed" else {}
    return found | (_interaction if job.provider == "gemini" else _response)(job, report if stage == "done" else None)


def _interaction(job: Started, report: str | None) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"type": "user_input", "content": [{"type": "text", "text": job.question}]}]
    if report is None:
        return {"object": "interaction", "steps": steps}
    source = {"type": "url_citation", "url": "https://example.org/source", "title": None}
    text = {"type": "text", "text": report, "annotations": [source]}
    steps += [{"type": "thought"}, {"type": "model_output", "content": [text]}]
    usage = {"total_input_tokens": 20, "total_output_tokens": 1000, "total_thought_tokens": 500, "total_tokens": 1520}
    return {"object": "interaction", "steps": steps, "usage": usage}


def _response(job: Started, report: str | None) -> dict[str, Any]:
    output: list[dict[str, Any]] = [{"type": "web_search_call", "id": "ws_1", "status": "completed"}]
    found = {"object": "response", "output": output, "metadata": job.body.get("metadata"), "usage": None}
    if report is None:
        return found
    source = {"type": "url_citation", "url": "https://example.org/source", "title": "A source"}
    part = {"type": "output_text", "text": report, "annotations": [source]}
    output.append({"type": "message", "role": "assistant", "status": "completed", "content": [part]})
    return found | {"usage": {"input_tokens": 20, "output_tokens": 1500, "total_tokens": 1520}}
