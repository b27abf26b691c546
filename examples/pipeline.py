"""Research, plan, implement, validate: a line of agents that pass on artifacts and how far the work is."""

from baton import Command, Relay

STEPS = ["research", "plan", "implement", "validate"]
relay = Relay(":memory:")


def done(step, **artifacts):
    """What a finished step adds to the shared state; `artifacts` and `workflow_state` are merged by key."""
    rest = STEPS[STEPS.index(step) + 1 :]
    state = {"phase": step, "next_phase": rest[0], "completed_steps": STEPS[: -len(rest)], "remaining_steps": rest}
    return {"artifacts": artifacts, "workflow_state": state}


@relay.agent("docs-researcher")
async def research(turn):
    return Command(goto="planner", update=done("research", ResearchPack="ResearchPack-Redis.md"))


@relay.agent("planner")
async def plan(turn):
    assert "ResearchPack" in turn.state["artifacts"]
    return Command(goto="implementer", update=done("plan", ImplementationPlan="plan.md"))


@relay.agent("implementer")
async def implement(turn):
    assert turn.state["workflow_state"]["next_phase"] == "implement"
    return Command(goto="validator", update=done("implement", Code="cache.py"))


@relay.agent("validator")
async def validate(turn):
    return f"{turn.task}: valid, made {', '.join(turn.state['artifacts'])}"


result = relay.run_sync("docs-researcher", "cache with Redis")
print(result.output)
print(" -> ".join(["docs-researcher", *(h.to_agent for h in result.handoffs)]))
print(result.state["workflow_state"]["completed_steps"])
# ruff: noqa: ARG001 - an agent takes a turn, used or not
