"""OpenAI: the Responses API with `background`.

The format, as the OpenAI SDK for Python 2 and the API's reference have it:

    POST /v1/responses             {"model", "input", "background": true, "store": true, "metadata",
                                    "tools": [{"type": "web_search"}], "previous_response_id"}
    GET  /v1/responses/ID
    POST /v1/responses/ID/cancel   only for background responses; a second cancel answers the same

Header: `Authorization: Bearer KEY`. Each answers a response:

    {"id", "status", "output": [{"type": "message", "role": "assistant", "phase", "content":
        [{"type": "output_text", "text", "annotations"} or {"type": "refusal", "refusal"}]}, …],
     "usage": {"input_tokens", "output_tokens", "total_tokens"}, "error": {"code", "message"},
     "incomplete_details": {"reason"}}

`status` is queued, in_progress, completed, failed, cancelled or incomplete. An error of the call is
`{"error": {"message", "type", "code"}}`. Without `store` a background response is deleted after about ten minutes, so
it is set; with it, a response is kept for 30 days.

The reference names no idempotency header, the SDK sends none, and there is no list of responses. `metadata` holds the
id of our intent, so that a person can find the job of a lost answer in the logs of the provider's dashboard.
"""

from __future__ import annotations

from typing import Any

import msgspec

from baton import config
from baton.board.research.base import Job, Usage, dicts, said, started, tokens
from baton.board.research.calls import Answer, Caller, trouble
from baton.board.research.report import joined

NAME = "openai"
URL = "https://api.openai.com"
MODEL = "gpt-5.5-pro"  # what the provider names in place of its retired deep-research models

_RUNNING = frozenset({"queued", "in_progress"})


class OpenAI:
    """A model of the Responses API that searches the web."""

    name = NAME

    def __init__(self, caller: Caller, model: str) -> None:
        self._caller = caller
        self._model = model

    def start(self, question: str, previous: str | None, intent: str) -> Job:
        """Begin a background response."""
        body: dict[str, Any] = {
            "model": self._model,
            "input": question,
            "background": True,
            "store": True,
            "tools": [{"type": "web_search"}],
            "metadata": {"baton_intent": intent},
        }
        if previous:
            body["previous_response_id"] = previous
        answer = self._caller.call("POST", "/v1/responses", body)
        return _trouble(answer) or started(answer.body or {})

    def look(self, job: str) -> Job:
        """Ask how it stands."""
        answer = self._caller.call("GET", f"/v1/responses/{job}")
        return _trouble(answer, job) or read(answer.body or {}, job)

    def cancel(self, job: str) -> Job:
        """Ask to end it; what came of that, the answer says."""
        answer = self._caller.call("POST", f"/v1/responses/{job}/cancel")
        return _trouble(answer, job) or read(answer.body or {}, job)


def provider() -> OpenAI:
    """OpenAI as the environment describes it."""
    caller = Caller(config.provider_url(NAME, URL), config.provider_key(NAME), ("Authorization", "Bearer "))
    return OpenAI(caller, config.provider_model(NAME, MODEL))


def _trouble(answer: Answer, job: str = "") -> Job | None:
    found = trouble(answer, job)
    error = (answer.body or {}).get("error")
    spent = isinstance(error, dict) and error.get("code") == "insufficient_quota"
    # The same 429 as for haste, but waiting does not fill an account.
    return msgspec.structs.replace(found, again=None) if found and spent else found


def read(body: dict[str, Any], job: str) -> Job:
    """What a response says."""
    status = str(body.get("status"))
    output = dicts(body.get("output"))
    if body.get("id") != job:
        return Job(state="unanswered", id=job, reason="the provider answered about another job", again=0.0)
    if status in _RUNNING:
        return Job(state="running", id=job, steps=len(output))
    found = body.get("usage")
    usage = Usage(tokens(found, "input_tokens"), tokens(found, "output_tokens"), tokens(found, "total_tokens"))
    if status == "completed":
        report, refusal = _report(output)
        if report:
            return Job(state="done", id=job, report=report, usage=usage, steps=len(output))
        why = (
            f"the model refused: {said(refusal)}" if refusal else "the provider says completed, but there is no report"
        )
        return Job(state="failed", id=job, reason=why, usage=usage)
    if status == "cancelled":
        return Job(state="cancelled", id=job, reason="it was cancelled", usage=usage)
    if status == "failed":
        return Job(state="failed", id=job, reason=_why("the provider says that it failed", body, "error"), usage=usage)
    if status == "incomplete":
        why = _why("the provider stopped before the report was complete", body, "incomplete_details")
        return Job(state="failed", id=job, reason=why, usage=usage)
    return Job(state="unknown", id=job, reason=f"the provider says status {said(status)!r:.60}, which is new here")


def _why(what: str, body: dict[str, Any], field: str) -> str:
    found = body.get(field)
    words = (found.get("message") or found.get("reason")) if isinstance(found, dict) else None
    return f"{what}: {said(words)}" if words else what


def _report(output: list[dict[str, Any]]) -> tuple[str, str]:
    """The text of the messages, and what the model said where it refused; comments on the way are left out."""
    parts: list[str] = []
    sources: list[dict[str, Any]] = []
    refusal = ""
    for item in output:
        if item.get("type") != "message" or item.get("phase") == "commentary":
            continue
        for part in dicts(item.get("content")):
            if part.get("type") == "output_text" and isinstance(part.get("text"), str):
                parts.append(part["text"])
                sources += dicts(part.get("annotations"))
            elif part.get("type") == "refusal":
                refusal = str(part.get("refusal"))
    return joined(parts, sources), refusal
