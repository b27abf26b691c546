"""The ten steps of a handoff, and those who are told of them."""

import asyncio
import itertools
import logging
import re
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry, generate_latest

from baton import (
    Command,
    Escalate,
    Handoff,
    HandoffFailed,
    Limits,
    Malformed,
    Refused,
    Reject,
    Relay,
    ReturnProtocol,
    TimedOut,
)
from baton.lifecycle import STEPS
from baton.telemetry.base import Hook
from baton.telemetry.log import Log
from baton.telemetry.otel import OpenTelemetry
from baton.telemetry.prometheus import Prometheus

ROOT = Path(__file__).parents[2]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def team(*hooks, **options):
    relay = Relay(telemetry=hooks, **options)

    @relay.agent("triage")
    async def triage(turn):
        await turn.delegate("clerk", "look it up")
        return Command(goto="billing")

    relay.agent("clerk")(lambda turn: "found")
    relay.agent("billing")(lambda turn: "refunded")
    return relay


def by_receiver(told):
    found = {}
    for one in told:
        found.setdefault(one.handoff.to_agent, []).append(one.step)
    return found


# --- the steps -----------------------------------------------------------------------------------


def test_every_handoff_takes_the_ten_steps_in_their_order():
    told = []
    with team(told.append) as relay:
        assert relay.run_sync("triage", "please refund").output == "refunded"
    assert by_receiver(told) == {key: list(STEPS) for key in ("triage", "clerk", "billing")}
    for receiver in ("triage", "clerk", "billing"):
        times = [(one.began, one.ended) for one in told if one.handoff.to_agent == receiver]
        assert all(began <= ended for began, ended in times)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))
    assert {one.outcome for one in told if one.step == "validate"} == {"allow"}
    assert {one.outcome for one in told if one.step == "complete"} == {"completed"}


def test_the_steps_have_the_names_of_the_protocol_in_the_code_and_on_the_page():
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \d+ (\w+)", page, re.MULTILINE) == list(STEPS)
    code = (ROOT / "src/baton/flow/__init__.py").read_text(encoding="utf-8")
    assert re.findall(r"^\| \d+ (\w+)", code, re.MULTILINE) == [name.upper() for name in STEPS]


def test_a_refused_handoff_ends_at_its_offer_and_the_sender_goes_on():
    told = []
    with team(told.append, limits=Limits(approve=()), handoffs=True) as relay, pytest.raises(Refused):
        relay.run_sync("triage", "x", limits=Limits(max_handoffs=1))
    steps = [(one.step, one.outcome) for one in told if one.handoff.to_agent == "billing"]
    assert [step for step, _ in steps] == ["trigger", "prepare", "validate", "initiate"]
    assert steps[2:] == [("validate", "refuse"), ("initiate", "refused")]
    assert ("complete", "failed") in [(one.step, one.outcome) for one in told if one.handoff.to_agent == "triage"]


def test_an_attempt_that_fails_and_one_that_is_rejected_say_so():
    told = []
    with Relay(telemetry=[told.append], backoff=0.01) as relay:
        relay.agent("broken")(lambda turn: 1 // 0)
        relay.agent("shy")(lambda turn: Reject("not mine"))
        relay.agent("unsure")(lambda turn: Escalate("who pays?"))
        with pytest.raises(Exception, match="ZeroDivisionError"):
            relay.run_sync("broken", "x", on_failure="retry", max_attempts=2)
        for name in ("shy", "unsure"):
            with pytest.raises(TimedOut):
                relay.run_sync(name, "x", timeout=0.2)
    steps = [(one.step, one.outcome, one.handoff.attempt) for one in told if one.handoff.to_agent == "broken"]
    assert [one[1:] for one in steps if one[0] == "execute"] == [("ZeroDivisionError", 1), ("ZeroDivisionError", 2)]
    assert [one[1] for one in steps if one[0] == "complete"] == ["deferred", "failed"]
    assert [one.outcome for one in told if (one.handoff.to_agent, one.step) == ("shy", "complete")] == ["rejected"]
    assert [one.outcome for one in told if (one.handoff.to_agent, one.step) == ("unsure", "complete")] == ["parked"]


def test_an_answer_that_comes_too_late_is_told_as_late():
    told = []
    with Relay(telemetry=[told.append]) as relay:

        @relay.agent("slow")
        async def slow(turn):
            relay.cancel(turn.handoff.id)
            return "too late"

        with pytest.raises(HandoffFailed):
            relay.run_sync("slow", "x")
    assert [(one.step, one.outcome) for one in told if one.step == "complete"] == [
        ("complete", "cancelled"),
        ("complete", "late"),
    ]


def test_work_by_hand_is_told_too():
    told = []
    with Relay(telemetry=[told.append]) as relay:
        relay.agent("billing")(lambda turn: "never")
        made = relay.hand_off(Handoff(from_agent="triage", to_agent="billing", task="pay"))
        grant = relay.claim("billing", handoff_id=made.id)
        relay.give_back(made.id, "paid", epoch=grant.handoff.epoch)
    assert [one.step for one in told] == [step for step in STEPS if step != "execute"]


# --- hooks ---------------------------------------------------------------------------------------


class Bad(Hook):
    """Fails at everything."""

    def __init__(self):
        self.asked = set()

    def fail(self, what):
        self.asked.add(what)
        raise RuntimeError(what)

    def passed(self, step):
        self.fail("passed")

    def carry(self, handoff, began):
        self.fail("carry")

    def working(self, handoff):
        self.fail("working")

    def joined(self, parent_id, parts):
        self.fail("joined")


class Leaving(Hook):
    left = 0

    @contextmanager
    def working(self, handoff):
        yield
        Leaving.left += 1
        raise RuntimeError("leaving")


def test_a_hook_that_raises_stops_nothing_and_nobody_else(caplog):
    told, bad = [], Bad()
    with team(bad, Leaving(), told.append) as relay:

        @relay.agent("asker")
        async def asker(turn):
            return (await turn.broadcast(["clerk", "billing"], "what?")).status

        assert relay.run_sync("triage", "x").output == "refunded"
        assert relay.run_sync("asker", "x").output == "success"
    assert bad.asked == {"passed", "carry", "working", "joined"}
    assert Leaving.left == 6
    assert by_receiver(told)["triage"] == list(STEPS)
    assert "the telemetry hook Bad failed at handoff" in caplog.text
    assert "the telemetry hook Leaving failed at handoff" in caplog.text


def test_a_hook_around_the_work_sees_its_error_and_does_not_change_it(caplog):
    seen = []

    class Around(Hook):
        @contextmanager
        def working(self, handoff):
            try:
                yield
            except ZeroDivisionError as error:
                seen.append(error)
                raise

    class Swallowing(Hook):
        @contextmanager
        def working(self, handoff):
            with suppress(ZeroDivisionError):
                yield

    with Relay(telemetry=[Around(), Swallowing()]) as relay:
        relay.agent("broken")(lambda turn: 1 // 0)
        with pytest.raises(Exception, match="ZeroDivisionError"):
            relay.run_sync("broken", "x")
    assert len(seen) == 1
    assert "telemetry hook" not in caplog.text


def test_nobody_is_told_by_default_and_nothing_is_imported():
    program = (
        "import sys; from baton import Relay\n"
        "with Relay() as relay:\n"
        "    relay.agent('a')(lambda turn: 1)\n"
        "    relay.run_sync('a', 'x')\n"
        "print([name for name in sys.modules if 'telemetry' in name or name.startswith(('open', 'prom'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("given", ["lgo", "opentelemetri", 7])
def test_what_is_no_hook_is_refused_with_what_is(given):
    with pytest.raises(Malformed, match=r"telemetry: .*(log|Hook|mean opentelemetry)"):
        Relay(telemetry=[given])


def test_hooks_are_chosen_by_name_once_or_by_what_is_installed():
    with Relay(telemetry="log, opentelemetry") as relay:
        relay.observe("log", "opentelemetry")
        relay.observe()
        assert [type(hook) for hook in relay._crew.trace.hooks] == [Log, OpenTelemetry]
    from baton import telemetry

    assert telemetry._several("installed") == ["log", "opentelemetry", "prometheus"]


def test_the_log_has_one_line_for_each_step_and_no_content(caplog):
    with caplog.at_level(logging.INFO, "baton.telemetry"), team("log") as relay:
        relay.run_sync("triage", "the secret task", from_agent='a "b"=c')
    lines = [one for one in caplog.records if one.name == "baton.telemetry"]
    assert [one.handoff["step"] for one in lines if one.handoff["to"] == "triage"] == list(STEPS)
    first = lines[0].getMessage()
    assert re.match(r'step=trigger handoff=[\w-]+ workflow=[\w-]+ from="a \\"b\\"=c" to=triage type=sequential ', first)
    assert "secret" not in caplog.text


def test_prometheus_counts_steps():
    registry = CollectorRegistry()
    with team(Prometheus(registry)) as relay:
        relay.run_sync("triage", "x")
        relay.run_sync("triage", "x")
    text = generate_latest(registry).decode()
    assert 'baton_steps_total{agent="billing",outcome="completed",step="complete"} 2.0' in text
    assert 'baton_step_seconds_count{agent="clerk",step="execute"} 2.0' in text
    with pytest.raises(Malformed, match="counts for prometheus already"):
        Prometheus(registry)


# --- spans ---------------------------------------------------------------------------------------


@pytest.fixture
def traced():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter
    provider.shutdown()


def spans_of(exporter):
    spans = exporter.get_finished_spans()
    return spans, {span.context.span_id: span for span in spans}


def test_steps_are_spans_below_their_handoff_and_work_below_its_sender(traced):
    provider, exporter = traced
    with team(OpenTelemetry(provider)) as relay:

        @relay.agent("asker")
        async def asker(turn):
            with provider.get_tracer("own").start_as_current_span("a model call"):
                await turn.broadcast(["clerk", "billing"], "what?")
            return Command(goto="triage")

        relay.run_sync("asker", "x")
    spans, by_id = spans_of(exporter)
    assert len({span.context.trace_id for span in spans}) == 1
    above = {
        (span.name, span.attributes.get("handoff.from")): by_id[span.parent.span_id].name
        for span in spans
        if span.parent
    }
    assert above["handoff triage", "asker"] == "invoke_agent asker"
    assert above["handoff clerk", "asker"] == "invoke_agent asker"
    assert above["invoke_agent clerk", "triage"] == "handoff clerk"
    assert above["a model call", None] == "invoke_agent asker"
    assert {span.name for span in spans if not span.parent} == {"handoff asker"}
    made = [span for span in spans if span.name == "handoff triage"]
    below = [span for span in spans if span.parent and span.parent.span_id == made[0].context.span_id]
    assert sorted((span.attributes["handoff.step"] for span in below), key=STEPS.index) == list(STEPS)
    work = next(span for span in spans if span.name == "invoke_agent asker")
    assert work.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert work.attributes["gen_ai.agent.name"] == "asker"
    linked = {by_id[link.context.span_id].name for link in work.links}
    assert linked == {"handoff clerk", "handoff billing"}
    assert len(work.links) == 2


def test_what_goes_wrong_is_an_error_without_its_text(traced):
    provider, exporter = traced
    with Relay(telemetry=[OpenTelemetry(provider)]) as relay:

        @relay.agent("broken")
        def broken(turn):
            raise LookupError("card 4111 of Ana")

        with pytest.raises(Exception, match="LookupError"):
            relay.run_sync("broken", "x")
    spans, _ = spans_of(exporter)
    work = next(span for span in spans if span.name == "invoke_agent broken")
    assert (work.status.status_code, work.attributes["error.type"]) == (StatusCode.ERROR, "LookupError")
    assert next(span for span in spans if span.name == "complete").status.status_code is StatusCode.ERROR
    assert "Ana" not in "".join(span.to_json() for span in spans)


@pytest.mark.parametrize("given", ["explicit", "current", "nonsense", "none"])
def test_the_trace_around_it(traced, given):
    provider, exporter = traced
    options = {"explicit": {"traceparent": TRACEPARENT}, "nonsense": {"traceparent": "nonsense"}}.get(given, {})
    tracer = provider.get_tracer("caller")

    async def go(relay):
        if given == "none":
            return await relay.run("billing", "x")
        with tracer.start_as_current_span("the caller"):
            return await relay.run("billing", "x", **options)

    with team(OpenTelemetry(provider)) as relay:
        workflow = asyncio.run(go(relay)).workflow_id
        stored = relay.store.find(workflow_id=workflow)[0].traceparent
    spans, by_id = spans_of(exporter)
    made = next(span for span in spans if span.name == "handoff billing")
    assert stored == f"00-{made.context.trace_id:032x}-{made.context.span_id:016x}-{stored[-2:]}"
    if given == "explicit":
        assert f"{made.context.trace_id:032x}" in TRACEPARENT
        assert f"{made.parent.span_id:016x}" in TRACEPARENT
    elif given == "current":
        assert by_id[made.parent.span_id].name == "the caller"
    else:
        assert made.parent is None


def test_without_an_sdk_a_given_trace_travels_unchanged():
    with team("opentelemetry") as relay:
        result = relay.run_sync("triage", "x", traceparent=TRACEPARENT, return_protocol=ReturnProtocol())
        made = relay.store.find(workflow_id=result.workflow_id)
    assert {one.traceparent for one in made} == {TRACEPARENT}
