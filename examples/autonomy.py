"""How far an agent may go by itself, what it may spend, and what a program does when the answer is no."""

from baton import Autonomy, BatonError, Budget, Command, HandoffFailed, Limits, Refused, Relay, Result

relay = Relay(":memory:", limits=Limits(max_handoffs=3, max_tokens=10_000))
PAGES = {"page": 1, "chapter": 15, "book": 200}


@relay.agent("intern", autonomy=Autonomy(max_tokens=1000))
async def intern(turn):
    if "printer" in turn.task:
        raise ValueError("out of paper")
    await turn.charge(tokens=100 * PAGES[turn.task])  # what a model call has used
    return f"intern: copied a {turn.task}"


@relay.agent("boss")
async def boss(turn):
    if "again" in turn.task:
        return Command(goto="boss")
    part = await turn.delegate("intern", turn.task, budget=Budget(max_tokens=500))  # set aside
    return part.output if part.success else f"boss: did it myself, {part.error.partition(':')[0]}"


def told(to, task):
    try:
        result: Result = relay.run_sync(to, task, timeout=1)
    except Refused as error:  # a rule said no: a limit, a loop, a budget, a person
        return f"refused: {type(error).__name__}: {str(error).partition(':')[0]}"
    except HandoffFailed as error:  # it was tried, and no attempt is left
        return f"{error.result.status}: {error}"
    except BatonError as error:  # it is under way still, or could not be written down
        return f"{type(error).__name__}: {[(one.to_agent, one.task) for one in relay.waiting()]}"
    return result.output


print(told("boss", "page"))
print(told("boss", "book"))  # more than the workflow may use; a part that fails is an answer, its parent decides
print(told("boss", "again and again"))
print(told("intern", "mend the printer"))
print(told("intern", "chapter"))  # beyond its autonomy: a person has to decide
