"""A generalist keeps the conversation: it delegates to test, then to deploy, and answers the user itself."""

from baton import Relay

relay = Relay(":memory:")


@relay.agent("generalist")
async def generalist(turn):
    tests = await turn.delegate("test", f"test this: {turn.task}")
    if not tests.success:
        return f"not deployed: {tests.error}"
    deployed = await turn.delegate("deploy", f"deploy build {tests.output['build']}")
    return f"{tests.output['passed']} tests passed, {deployed.output}"


@relay.agent("test", capabilities=["testing"])
async def test(turn):
    if "broken" in turn.task:
        raise RuntimeError("2 tests failed")
    return {"passed": 120, "build": 7}


@relay.agent("deploy", capabilities=["deployment"])
async def deploy(turn):
    return f"{turn.task.removeprefix('deploy ')} is live"


for request in ("ship it", "ship the broken one"):
    result = relay.run_sync("generalist", request)
    print(result.output)
    print([(h.from_agent, h.to_agent, h.status) for h in result.handoffs])
