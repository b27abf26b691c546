"""A model that is overloaded now and then: a failed attempt is repeated, and what it used is counted."""

from baton import Limits, Relay, answer


class Model:
    """Stands for the client of your provider; this one answers only the third call."""

    calls = 0

    async def complete(self, prompt):
        self.calls += 1
        if self.calls < 3:
            raise ConnectionError("529 overloaded")
        return f"a page about {prompt}", 120


model = Model()
relay = Relay(":memory:", backoff=0.05, limits=Limits(max_tokens=10_000))


@relay.agent("writer")
async def writer(turn):
    text, tokens = await model.complete(turn.task)
    return answer(text, tokens=tokens)


@relay.agent("editor")
async def editor(turn):
    draft = await turn.delegate("writer", "caching", on_failure="retry", max_attempts=5, timeout="2m")
    return f"{draft.output}, edited"


result = relay.run_sync("editor", "write a page")
print(f"{result.output}; {result.tokens} tokens")
for record in relay.audit.query(to_agent="writer"):
    print(record.event_type, record.reason or "-")
