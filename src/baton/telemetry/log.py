"""Steps as lines of Python's own logging, on the logger `baton.telemetry` at level INFO."""

from __future__ import annotations

import json
import logging

from baton.telemetry.base import Hook, Passed


class Log(Hook):
    """One record for each step: a line of `key=value`, and the same values in `record.handoff`."""

    def __init__(self, name: str = "baton.telemetry", level: int = logging.INFO) -> None:
        self._logger = logging.getLogger(name)
        self._level = level

    def passed(self, step: Passed) -> None:
        """Write one line. The task and all other content stay out of it."""
        if not self._logger.isEnabledFor(self._level):
            return
        handoff = step.handoff
        fields = {
            "step": step.step,
            "handoff": handoff.id,
            "workflow": handoff.workflow_id,
            "from": handoff.from_agent,
            "to": handoff.to_agent,
            "type": handoff.type,
            "attempt": handoff.attempt,
            "ms": round(step.seconds * 1000, 3),
            "outcome": step.outcome,
            "traceparent": handoff.traceparent,
        }
        said = " ".join(f"{key}={_plain(value)}" for key, value in fields.items() if value != "")
        self._logger.log(self._level, "%s", said, extra={"handoff": fields})


def _plain(value: object) -> str:
    text = str(value)
    return text if text.isascii() and not set(text) & set(' "=\\') else json.dumps(text)
