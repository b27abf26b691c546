"""Research: a long job at a provider, started once, whoever dies meanwhile.

`research` does what is left to do for a request: it starts a job or goes on with the one that the request names, waits
for it, and writes the report. A backend is a file here and a line in `BACKENDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from baton.board.research.base import Job, Provider, Usage
from baton.board.research.flow import Outcome, Patience, Tell, Work, adopt, forget
from baton.board.research.request import Record, Request, record, section, with_section
from baton.errors import Malformed

__all__ = [
    "BACKENDS",
    "Job",
    "Outcome",
    "Patience",
    "Provider",
    "Record",
    "Request",
    "Usage",
    "adopt",
    "cancel",
    "forget",
    "record",
    "research",
    "section",
    "with_section",
]

BACKENDS = ("gemini", "openai")


def research(
    request: Request,
    report: Path,
    *,
    provider: str = "gemini",
    patience: Patience | None = None,
    tell: Tell = lambda _: None,
) -> Outcome:
    """Do what is left to do for a request, and wait for the report; `provider` is for a job that is yet to start."""
    work = Work(request, report, patience or Patience(), tell)
    return work.known() or work.go(_opened(request, provider))


def cancel(request: Request, report: Path) -> Outcome:
    """Cancel the job of a request. If it was faster and is done, its report is written."""
    work = Work(request, report, Patience(), lambda _: None)
    return work.known() or work.cancel(_opened(request, BACKENDS[0]))


def _opened(request: Request, usual: str) -> Provider:
    """The provider that has the job already, else the one that was asked for."""
    name = record(request.read()).provider or usual
    if name not in BACKENDS:
        raise Malformed(f"{name!r:.60} is no provider of research; there are {', '.join(BACKENDS)}")
    made = cast("Callable[[], Provider]", import_module(f"{__name__}.{name}").provider)
    return made()
