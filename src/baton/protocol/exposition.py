"""The numbers in the text format that Prometheus reads, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from baton.protocol.stats import Spread, Stats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, dict[str, str], float]  # what is added to the name, labels, value


def exposition(stats: Stats) -> str:
    """All samples; the order is that of the numbers, and a label's value may be any text."""
    return "".join(f"{line}\n" for line in _lines(stats))


def _lines(stats: Stats) -> Iterator[str]:
    states = stats.handoffs.by_state.items()
    yield from _family("handoffs", "gauge", "Handoffs by where they stand.", (("", {"state": s}, n) for s, n in states))
    events = (("", {"event": name}, count) for name, count in stats.events.items())
    yield from _family("events", "gauge", "Audit records of these handoffs; accepted is every attempt.", events)
    for field, text in (
        ("to_accept", "Seconds from the offer to the first claim."),
        ("working", "Seconds from the last claim to the end."),
        ("to_end", "Seconds from the offer to the end."),
    ):
        yield from _family(f"{field}_seconds", "summary", text, _summary({}, getattr(stats.latency, field)))
    per_workflow = _summary({}, stats.per_workflow)
    yield from _family("workflow_handoffs", "summary", "Handoffs of each workflow.", per_workflow)
    for kind, rows in (("agent", stats.agents), ("route", stats.routes)):
        for field, text in (
            ("handoffs", "Handoffs"),
            ("completed", "Handoffs that were completed"),
            ("failed", "Handoffs that failed"),
            ("tokens", "Tokens used"),
            ("cost", "Money used"),
        ):
            samples = (("", {kind: row.name}, getattr(row, field)) for row in rows)
            yield from _family(f"{kind}_{field}", "gauge", f"{text}, by {kind}.", samples)
    agents = (sample for row in stats.agents for sample in _summary({"agent": row.name}, row.working))
    yield from _family("agent_working_seconds", "summary", "Seconds from the last claim to the end, by agent.", agents)
    open_ = (
        ("", {"subject": one.subject, "failure": one.failure, "state": one.state}, one.failures)
        for one in stats.breakers
    )
    yield from _family("breaker_failures", "gauge", "Failures in a row that a breaker counts, and its state.", open_)
    yield from _family("loops_caught", "gauge", "Handoffs refused as loops.", [("", {}, stats.loops_caught)])
    yield from _family("deadlocks", "gauge", "Work that failed by a deadlock of locks.", [("", {}, stats.deadlocks)])


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP baton_{name} {text}"
    yield f"# TYPE baton_{name} {kind}"
    for more, labels, value in samples:
        said = ",".join(f'{key}="{_quoted(label)}"' for key, label in labels.items())
        yield f"baton_{name}{more}{f'{{{said}}}' if said else ''} {value!r}"


def _summary(labels: dict[str, str], one: Spread) -> Iterator[Sample]:
    if one.average is not None and one.p50 is not None and one.p99 is not None:
        yield "", {**labels, "quantile": "0.5"}, one.p50
        yield "", {**labels, "quantile": "0.99"}, one.p99
        yield "_sum", labels, one.average * one.count
    yield "_count", labels, one.count


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
