"""One trace over two processes: who begins a workflow, and the worker that does it."""

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from baton.lifecycle import STEPS

TEAM = """
import atexit, json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from baton import Command, Relay

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

def dump():
    with open(f"spans-{os.environ['ROLE']}.jsonl", "w") as file:
        for span in exporter.get_finished_spans():
            record = json.loads(span.to_json(indent=None))
            file.write(json.dumps({"pid": os.getpid(), **record}) + "\\n")

atexit.register(dump)
relay = Relay("work.db", telemetry="opentelemetry" if os.environ["ROLE"] == "asker" else ())

if os.environ["ROLE"] == "worker":
    @relay.agent("triage")
    async def triage(turn):
        await turn.delegate("clerk", "look it up")
        return Command(goto="billing")

    relay.agent("clerk")(lambda turn: "found")
    relay.agent("billing")(lambda turn: "refunded")
"""
ASKER = """
from team import relay, trace

with relay, trace.get_tracer("shop").start_as_current_span("POST /refunds"):
    print(relay.run_sync("triage", "please refund", timeout=60).output)
"""


@pytest.fixture
def spans(tmp_path):
    (tmp_path / "team.py").write_text(TEAM)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    baton = [str(Path(sys.executable).with_name("baton")), "worker", "--app", "team:relay", "--telemetry"]
    with subprocess.Popen(
        [*baton, "opentelemetry,log"], cwd=tmp_path, env={**env, "ROLE": "worker"}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as worker:  # fmt: skip
        try:
            assert "serving" in worker.stdout.readline()
            done = subprocess.run(
                [sys.executable, "-c", ASKER], cwd=tmp_path, env={**env, "ROLE": "asker"}, capture_output=True,
                text=True, timeout=90, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stdout) == (0, "refunded\n"), done.stderr
            ended = (line for line in worker.stdout if "  completed " in line)  # told after the spans
            assert len(list(islice(ended, 3))) == 3
        finally:
            worker.send_signal(signal.SIGTERM)
            _, err = worker.communicate(timeout=60)
    assert "step=execute handoff=" in err
    files = [(tmp_path / f"spans-{role}.jsonl").read_text() for role in ("asker", "worker")]
    return [json.loads(line) for file in files for line in file.splitlines()]


def test_a_workflow_is_one_trace_across_processes(spans):
    assert len({span["context"]["trace_id"] for span in spans}) == 1
    made_by = {span["context"]["span_id"]: span["pid"] for span in spans}
    assert len(set(made_by.values())) == 2
    name_of = {span["context"]["span_id"]: span["name"] for span in spans}
    above = {span["name"]: name_of.get(span["parent_id"]) for span in spans}
    assert above["POST /refunds"] is None
    assert above["handoff triage"] == "POST /refunds"
    assert above["invoke_agent triage"] == "handoff triage"
    assert (above["handoff clerk"], above["handoff billing"]) == ("invoke_agent triage", "invoke_agent triage")
    assert (above["invoke_agent clerk"], above["invoke_agent billing"]) == ("handoff clerk", "handoff billing")
    steps = {}
    for span in sorted(spans, key=lambda span: STEPS.index(span["attributes"].get("handoff.step", "trigger"))):
        if "handoff.step" in span["attributes"]:
            own = name_of[span["parent_id"]]
            steps.setdefault(own, []).append((span["attributes"]["handoff.step"], made_by[span["context"]["span_id"]]))
    assert steps.keys() == {"handoff triage", "handoff clerk", "handoff billing"}
    for found in steps.values():
        assert tuple(step for step, _ in found) == STEPS
    asker = made_by[next(key for key, name in name_of.items() if name == "POST /refunds")]
    crossing = [pid == asker for _, pid in steps["handoff triage"]]
    assert crossing == [True] * 4 + [False] * 6
    assert {pid == asker for _, pid in steps["handoff billing"]} == {False}
