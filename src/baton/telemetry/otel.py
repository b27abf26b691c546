"""Steps as OpenTelemetry spans, one trace across processes. Needs opentelemetry-api; an SDK exports the spans.

A handoff is one span of kind producer, named for its receiver. What is done before it is offered, and what is done
with it afterwards, in whatever process, are its children, one for each step; the work itself is `invoke_agent`, as the
GenAI conventions name it. The span's own context travels in the handoff as a W3C `traceparent`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from baton.protocol.handoff import Handoff
from baton.telemetry.base import Hook, Passed

KEPT = 4096
BAD = frozenset({"refuse", "refused", "failed", "fail", "late", "rejected", "reject", "cancelled", "parked", "park"})
_W3C = TraceContextTextMapPropagator()


class OpenTelemetry(Hook):
    """Makes the spans. No task, message or answer is in them."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer: Tracer = trace.get_tracer("baton", tracer_provider=provider)
        self._offering: OrderedDict[str, Span] = OrderedDict()
        self._work: OrderedDict[str, Span] = OrderedDict()

    def carry(self, handoff: Handoff, began: int) -> str:
        """Begin the span of a handoff: below its sender's work, else the given trace, else the caller's own span."""
        sender = self._work.get(handoff.parent_id)
        if sender is not None:
            around = trace.set_span_in_context(NonRecordingSpan(sender.get_span_context()))
        elif handoff.traceparent:
            around = _context(handoff)
        else:
            around = contexts.get_current()
        span = self._tracer.start_span(
            f"handoff {handoff.to_agent}", around, SpanKind.PRODUCER, _attributes(handoff), start_time=began * 1000
        )
        _keep(self._offering, handoff.id, span)
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, trace.set_span_in_context(span))
        return carrier.get("traceparent", handoff.traceparent)

    def passed(self, step: Passed) -> None:
        """One step as a span below its handoff."""
        if step.step == "execute":
            return  # `working` made that span, so that the agent's own ones are below it
        attributes = {**_attributes(step.handoff), "handoff.step": step.step, "handoff.outcome": step.outcome}
        span = self._tracer.start_span(
            step.step, _context(step.handoff), attributes=attributes, start_time=step.began * 1000
        )
        self._end(span, step)
        if step.step == "initiate" and (made := self._offering.pop(step.handoff.id, None)) is not None:
            self._end(made, step)
        if step.step == "release":
            self._work.pop(step.handoff.id, None)

    @staticmethod
    def _end(span: Span, step: Passed) -> None:
        if step.outcome in BAD:
            span.set_status(StatusCode.ERROR)
            span.set_attribute("error.type", step.outcome)
        span.end(step.ended * 1000)

    @contextmanager
    def working(self, handoff: Handoff) -> Iterator[None]:
        """The span of the work, which is the current one meanwhile."""
        attributes = {
            **_attributes(handoff),
            "handoff.step": "execute",
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": handoff.to_agent,
            "gen_ai.conversation.id": handoff.conversation_id,
        }
        name = f"invoke_agent {handoff.to_agent}"
        span = self._tracer.start_span(name, _context(handoff), SpanKind.INTERNAL, attributes)
        _keep(self._work, handoff.id, span)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                span.set_status(StatusCode.ERROR)
                span.set_attribute("error.type", type(error).__name__)
                raise

    def joined(self, parent_id: str, parts: Sequence[Handoff]) -> None:
        """Link the work that waited to every handoff that it waited for."""
        work = self._work.get(parent_id)
        for part in parts if work is not None else ():
            made = trace.get_current_span(_context(part)).get_span_context()
            if work is not None and made.is_valid:
                work.add_link(made, {"handoff.id": part.id})


def _context(handoff: Handoff) -> Context:
    return _W3C.extract({"traceparent": handoff.traceparent}, Context())


def _attributes(handoff: Handoff) -> dict[str, str | int]:
    return {
        "handoff.id": handoff.id,
        "handoff.workflow": handoff.workflow_id,
        "handoff.from": handoff.from_agent,
        "handoff.to": handoff.to_agent,
        "handoff.type": handoff.type,
        "handoff.attempt": handoff.attempt,
    }


def _keep(spans: OrderedDict[str, Span], handoff_id: str, span: Span) -> None:
    spans[handoff_id] = span
    if len(spans) > KEPT:
        spans.popitem(last=False)
