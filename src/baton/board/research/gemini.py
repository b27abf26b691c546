"""Gemini: the Interactions API with `background`, and the Deep Research agent.

The format, as the Gen AI SDK for Python 2 and the API's reference have it (revision 2026-05-20, which replaced the
flat `outputs` by `steps`; the older one was switched off in June 2026):

    POST /v1beta/interactions             {"agent", "input", "background": true, "store": true, "agent_config",
                                           "previous_interaction_id"}
    GET  /v1beta/interactions/ID
    POST /v1beta/interactions/ID/cancel   only while it runs

Headers: `x-goog-api-key`, and `Api-Revision`. Each answers an interaction:

    {"id", "status", "steps": [{"type": "model_output", "content": [{"type": "text", "text", "annotations"}]}, …],
     "usage": {"total_input_tokens", "total_output_tokens", "total_thought_tokens", "total_tool_use_tokens",
               "total_tokens"}, "error": {"code", "message"}}

`status` is queued, in_progress, requires_action, completed, failed, cancelled, incomplete or budget_exceeded. An error
of the call is `{"error": {"code", "message", "status"}}`, sometimes in a list. A job runs for at most an hour, and is
kept for 55 days (paid) or one day (free).

There is no idempotency key, no list of interactions and no field for a note of ours: an answer that got lost can only
be found by a person, in the provider's own console. So `intent` is not sent.
"""

from __future__ import annotations

from typing import Any

from baton import config
from baton.board.research.base import Job, Usage, dicts, said, started, tokens
from baton.board.research.calls import Caller, trouble
from baton.board.research.report import joined

NAME = "gemini"
URL = "https://generativelanguage.googleapis.com"
AGENT = "deep-research-preview-04-2026"
REVISION = "2026-05-20"

_RUNNING = frozenset({"queued", "in_progress"})
_FAILED = {
    "failed": "the provider says that it failed",
    "incomplete": "the provider stopped before the report was complete",
    "budget_exceeded": "the provider stopped it at its token budget",
    "requires_action": "it waits for an input that cannot be given here",
}


class Gemini:
    """The Deep Research agent of the Gemini API."""

    name = NAME

    def __init__(self, caller: Caller, agent: str) -> None:
        self._caller = caller
        self._agent = agent

    def start(self, question: str, previous: str | None, intent: str) -> Job:  # noqa: ARG002 - no place for it
        """Begin a background interaction."""
        body: dict[str, Any] = {
            "agent": self._agent,
            "input": question,
            "background": True,
            "store": True,
            # A report in text, and nobody here who could approve a plan.
            "agent_config": {"type": "deep-research", "visualization": "off", "collaborative_planning": False},
        }
        if previous:
            body["previous_interaction_id"] = previous
        answer = self._caller.call("POST", "/v1beta/interactions", body)
        return trouble(answer) or started(answer.body or {})

    def look(self, job: str) -> Job:
        """Ask how it stands."""
        answer = self._caller.call("GET", f"/v1beta/interactions/{job}")
        return trouble(answer, job) or read(answer.body or {}, job)

    def cancel(self, job: str) -> Job:
        """Ask to end it; what came of that, the answer says."""
        answer = self._caller.call("POST", f"/v1beta/interactions/{job}/cancel")
        return trouble(answer, job) or read(answer.body or {}, job)


def provider() -> Gemini:
    """Gemini as the environment describes it."""
    caller = Caller(
        config.provider_url(NAME, URL), config.provider_key(NAME), ("x-goog-api-key", ""), Api_Revision=REVISION
    )
    return Gemini(caller, config.provider_model(NAME, AGENT))


def read(body: dict[str, Any], job: str) -> Job:
    """What an interaction says."""
    status = str(body.get("status"))
    steps = dicts(body.get("steps"))
    if body.get("id") != job:
        return Job(state="unanswered", id=job, reason="the provider answered about another job", again=0.0)
    if status in _RUNNING:
        return Job(state="running", id=job, steps=len(steps))
    found = body.get("usage")
    usage = Usage(
        tokens(found, "total_input_tokens", "total_tool_use_tokens"),
        tokens(found, "total_output_tokens", "total_thought_tokens"),
        tokens(found, "total_tokens"),
    )
    if status == "completed":
        report = _report(steps)
        if report:
            return Job(state="done", id=job, report=report, usage=usage, steps=len(steps))
        return Job(state="failed", id=job, reason="the provider says completed, but there is no report", usage=usage)
    if status == "cancelled":
        return Job(state="cancelled", id=job, reason="it was cancelled", usage=usage)
    if status in _FAILED:
        error = body.get("error")
        words = error.get("message") if isinstance(error, dict) else None
        reason = f"{_FAILED[status]}: {said(words)}" if words else _FAILED[status]
        return Job(state="failed", id=job, reason=reason, usage=usage)
    return Job(state="unknown", id=job, reason=f"the provider says status {said(status)!r:.60}, which is new here")


def _report(steps: list[dict[str, Any]]) -> str:
    """The text of the last outputs in a row: what stands before them are notes on the way."""
    last: list[dict[str, Any]] = []
    for step in reversed(steps):
        if step.get("type") != "model_output":
            if last:
                break
            continue
        last.insert(0, step)
    parts: list[str] = []
    sources: list[dict[str, Any]] = []
    for step in last:
        for part in dicts(step.get("content")):
            if part.get("type") == "text" and isinstance(part.get("text"), str):
                parts.append(part["text"])
                sources += dicts(part.get("annotations"))
    return joined(parts, sources)
