"""Steps as counters and histograms of prometheus_client, beside what else a program exposes with it."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from baton.errors import Malformed
from baton.telemetry.base import Hook, Passed


class Prometheus(Hook):
    """Counts steps and their seconds by agent. What the store knows, of all processes, `baton stats` exposes."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        try:
            self._steps = Counter("baton_steps", "Steps of handoffs.", ("step", "agent", "outcome"), registry=registry)
            self._seconds = Histogram(
                "baton_step_seconds", "How long each step took.", ("step", "agent"), registry=registry
            )
        except ValueError:
            raise Malformed(
                "telemetry: this process counts for prometheus already; make one Prometheus() and give it to each Relay"
            ) from None

    def passed(self, step: Passed) -> None:
        """Count it."""
        agent = step.handoff.to_agent
        self._steps.labels(step.step, agent, step.outcome).inc()
        self._seconds.labels(step.step, agent).observe(max(0.0, step.seconds))
