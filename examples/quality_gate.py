"""A gate: work goes on at a score of 80, else back. The loop is declared: it may repeat, not for ever."""

from baton import Command, Limits, Refused, Relay

relay = Relay(":memory:")
SOURCES = {"Redis": ["the manual", "our code", "a benchmark"], "rumours": ["a rumour"]}


@relay.agent("docs-researcher")
async def docs_researcher(turn):
    known = turn.state.get("sources", [])
    return Command(goto="analyzer", update={"sources": [*known, *SOURCES[turn.task][len(known) :][:1]]})


@relay.agent("analyzer")
async def analyzer(turn):
    score = 45 + 15 * len(turn.state["sources"])
    if score < 80:
        return Command(goto="docs-researcher", update={"score": score, "retry": True}, reason=f"{score} of 80")
    return Command(goto="implementer", update={"score": score, "retry": False, "validated": True}, reason="good enough")


@relay.agent("implementer")
async def implementer(turn):
    return f"implemented at a score of {turn.state['score']}, with {' and '.join(turn.state['sources'])}"


limits = Limits(max_handoffs=20, loops={"analyzer->docs-researcher": 2, "docs-researcher->analyzer": 2})
result = relay.run_sync("docs-researcher", "Redis", limits=limits)
print(result.output)
print([h.reason for h in result.handoffs if h.from_agent == "analyzer"])

try:
    relay.run_sync("docs-researcher", "rumours", limits=limits)
except Refused as error:
    print(f"{type(error).__name__}: {error}")
