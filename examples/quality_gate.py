"""A gate: work goes on at a score of 80, else back. The loop is declared: it may repeat, not for ever."""

from baton import Command, Limits, Refused, Relay

relay = Relay(":memory:")
BETTER = {"first try": 15, "hopeless": 0}  # points that one more round of research brings


@relay.agent("researcher")
async def researcher(turn):
    score = turn.state.get("score", 60) + BETTER[turn.task]
    return Command(goto="analyzer", update={"score": score})


@relay.agent("analyzer")
async def analyzer(turn):
    if turn.state["score"] < 80:
        return Command(goto="researcher", reason=f"{turn.state['score']} of 80: more research")
    return Command(goto="implementer", update={"validated": True}, reason="good enough")


@relay.agent("implementer")
async def implementer(turn):
    return f"implemented at a score of {turn.state['score']}"


limits = Limits(max_handoffs=20, loops={"analyzer->researcher": 2, "researcher->analyzer": 2})
result = relay.run_sync("researcher", "first try", limits=limits)
print(result.output)
print([h.reason for h in result.handoffs if h.from_agent == "analyzer"])

try:
    relay.run_sync("researcher", "hopeless", limits=limits)
except Refused as error:
    print(f"{type(error).__name__}: {error}")
