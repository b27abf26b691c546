"""A budget: what is used is counted while the work runs, and what cannot be afforded does not start."""

from baton import BatonError, Limits, Relay

relay = Relay(":memory:")
limits = Limits(max_tokens=10_000)


@relay.agent("researcher")
async def researcher(turn):
    await turn.charge(tokens=9_000)  # what a model call has used
    answer = await turn.delegate("writer", "write it up", budget=int(turn.task))
    return answer.output


@relay.agent("writer")
async def writer(turn):
    return f"written, for at most {turn.handoff.budget.max_tokens} tokens"


for budget in ("5000", "1000"):
    try:
        result = relay.run_sync("researcher", budget, limits=limits)
        print(f"{result.output}; {result.tokens} tokens used so far")
    except BatonError as error:
        print(f"{type(error).__name__}: {error}")
