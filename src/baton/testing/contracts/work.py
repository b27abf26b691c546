"""Small pieces of work to put into a store, and claims on them."""

from __future__ import annotations

from typing import Any

from baton import clock
from baton.guards.base import ALLOW, Facts, Verdict
from baton.protocol.context import Context
from baton.protocol.handoff import Handoff, ReturnProtocol, fingerprint
from baton.protocol.limits import Limits
from baton.protocol.results import Account, Result, Return
from baton.stores.base import Claim, Decide, Offer, Workflow

LEASE = 1_000_000


def allow(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:  # noqa: ARG001 - a Decide
    """Say yes to everything."""
    return ALLOW


def refuse(handoff: Handoff, facts: Facts, limits: Limits) -> Verdict:  # noqa: ARG001 - a Decide
    """Say no to everything."""
    return Verdict("refuse", "no more", limit="max_handoffs")


def always(verdict: Verdict) -> Decide:
    """A decision that is the same every time."""
    return lambda _handoff, _facts, _limits: verdict


def request(to: str = "a", *, limits: Limits | None = None, **more: Any) -> Offer:
    """The first handoff of a workflow of its own."""
    handoff_id, flow = clock.new_id(), clock.new_id()
    handoff = Handoff(
        **{
            "id": handoff_id,
            "from_agent": "user",
            "to_agent": to,
            "task": "t",
            "workflow_id": flow,
            "root_id": handoff_id,
            "line_id": handoff_id,
            "context": Context(task_id=flow),
            **more,
        }
    )
    workflow = Workflow(id=flow, root_id=handoff_id, conversation_id=flow, limits=limits or Limits())
    return Offer(handoff=handoff, fingerprint=fingerprint(handoff), workflow=workflow)


def delegation(parent: Handoff, to: str = "b", **more: Any) -> Offer:
    """A handoff with a line of its own, whose end answers the parent."""
    handoff_id = clock.new_id()
    return _below(
        parent, to, {"id": handoff_id, "line_id": handoff_id, "part": handoff_id, "type": "delegation", **more}
    )


def following(before: Handoff, to: str = "b", **more: Any) -> Offer:
    """The next handoff of the same line."""
    return _below(before, to, {"id": clock.new_id(), "line_id": before.line_id, **more})


def _below(parent: Handoff, to: str, more: dict[str, Any]) -> Offer:
    handoff = Handoff(
        **{
            "from_agent": parent.to_agent,
            "to_agent": to,
            "task": "t",
            "workflow_id": parent.workflow_id,
            "root_id": parent.root_id,
            "parent_id": parent.id,
            "hop": parent.hop + 1,
            "context": parent.context,
            "return_protocol": ReturnProtocol(expected=True, timeout=3600.0),
            **more,
        }
    )
    return Offer(handoff=handoff, fingerprint=fingerprint(handoff))


def claim_of(handoff_id: str, holder: str = "h") -> Claim:
    """A claim on one handoff."""
    return Claim(holder=holder, id=handoff_id, lease=LEASE)


def answer(body: str = "done", *, tokens: int = 0, cost: float = 0.0) -> Return:
    """A return that says what it used."""
    return Return(result=Result(body=body), audit=Account(tokens_consumed=tokens, cost=cost))
