"""Messages and files that go along with the work: a file by its path, which has to stay inside."""

from baton import Agent, Artifact, BatonError, Command, Message, Relay, Return, Turn, answer

relay = Relay(":memory:", sequence={"interviewer": "writer"})


class Interviewer:
    """An agent need not be a function: this is all that one has to have."""

    async def run(self, turn: Turn) -> Return:
        asked = Message("assistant", f"What about {turn.task}?", name="interviewer")
        return Return(messages=(asked, Message("user", "Please be short.")))

    async def aclose(self) -> None:
        """Nothing to close."""


interviewer: Agent = Interviewer()
relay.add("interviewer", interviewer)


@relay.agent("writer")
async def writer(turn: Turn) -> Command:
    draft = Artifact(id="report", path="reports/draft.md", type="document", description=turn.messages[-1].content)
    return Command(goto="editor", artifacts=(draft,), reason="a first draft")


@relay.agent("editor")
async def editor(turn: Turn) -> Return:
    (draft,) = turn.handoff.context.artifacts
    path = "../../etc/passwd" if "secrets" in turn.task else "reports/final.md"
    final = Artifact(id=draft.id, path=path, type="document", status="final")
    return answer(f"edited {draft.path} ({draft.description})", update={"words": 90}, artifacts=(final,), tokens=1200)


for task in ("the third quarter", "our secrets"):
    try:
        result = relay.run_sync("interviewer", task)
    except BatonError as error:
        print(f"{type(error).__name__}: {error}")
        continue
    print(result.output, result.state["words"], result.tokens)
    print([(one.path, one.status) for one in result.answer.context_updates.artifacts_produced])
