"""What crosses with a handoff and what stays behind, worked out from what is stored."""

import pytest

from baton import Command, Message, Relay
from baton.protocol.context import Context, Include, ToolCall, Transfer
from baton.protocol.crossing import Amount
from baton.protocol.tokens import estimate

TALK = (
    Message("system", "be brief"),
    Message("user", "refund order 7"),
    Message("assistant", "", tool_calls=(ToolCall(id="1", name="find", arguments='{"order": 7}'),)),
    Message("tool", "order 7: paid", tool_call_id="1"),
    Message("assistant", "It was paid.", reasoning="hm, the tool says so"),
    Message("user", "so refund it"),
    Message("assistant", "I will."),
    Message("user", "now please"),
)


def run(transfer=None, **options):
    """A conversation to one agent; what that agent saw, and what is said to have crossed."""
    seen = []
    with Relay() as relay:

        @relay.agent("billing")
        async def billing(turn):
            seen.extend(turn.messages)
            return "done"

        context = Context(conversation_history=TALK, transfer=transfer)
        result = relay.run_sync("billing", "now please", context=context, **options)
        return seen, relay.crossing(relay.store.find(workflow_id=result.workflow_id)[0].id)


@pytest.mark.parametrize(
    "transfer",
    [
        None,
        Transfer(transfer_mode="full"),
        Transfer(transfer_mode="full", include=Include(system_messages=True, agent_reasoning=True)),
        Transfer(transfer_mode="relevant_only", max_messages=2),
        Transfer(transfer_mode="full", max_messages=0),
        Transfer(transfer_mode="summary"),
        Transfer(transfer_mode="full", include=Include(tool_calls=False, tool_results=False)),
    ],
)
def test_what_is_said_to_have_crossed_is_what_the_receiver_saw(transfer):
    seen, crossing = run(transfer)
    own = crossing.summary.count
    assert own == (transfer is not None and transfer.transfer_mode == "summary")
    assert crossing.passed.count == len(seen) - own
    assert crossing.had.count == len(TALK) == crossing.passed.count + crossing.dropped
    text = "".join(
        message.content + message.reasoning + "".join(call.name + call.arguments for call in message.tool_calls)
        for message in seen
    )
    assert crossing.passed.bytes + crossing.summary.bytes == len(text.encode())
    assert 0 <= crossing.tokens - estimate(text) <= 2 * len(seen)


def test_why_a_message_stayed_behind():
    _, crossing = run(Transfer(transfer_mode="relevant_only", max_messages=3))
    assert (crossing.mode, crossing.max_messages) == ("relevant_only", 3)
    assert (crossing.by_kind, crossing.by_room, crossing.passed.count) == (1, 4, 3)
    _, crossing = run(Transfer(transfer_mode="full", include=Include(tool_calls=False)))
    assert (crossing.max_messages, crossing.by_kind, crossing.by_room) == (None, 3, 0)
    _, crossing = run(Transfer(transfer_mode="summary"))
    assert (crossing.passed.count, crossing.summarised, crossing.summary.count) == (1, 7, 1)


def test_variables_that_were_shared_and_withheld():
    with Relay() as relay:

        @relay.agent("triage")
        async def triage(turn):
            await turn.delegate("clerk", "look", share=["order"], update={"hint": "é"})
            await turn.broadcast(["clerk", "billing"], "vote", share=[])
            return Command(goto="billing")

        @relay.agent("clerk")
        async def clerk(turn):
            return sorted(turn.state)

        relay.agent("billing")(lambda turn: sorted(turn.state))
        result = relay.run_sync("triage", "x", state={"order": 7, "card": "4111", "name": "Ana"})
        found = [relay.crossing(one.id) for one in relay.store.find(workflow_id=result.workflow_id)]
    shared = [(one.to_agent, one.variables, one.withheld) for one in found]
    assert shared == [
        ("triage", ("card", "name", "order"), ()),
        ("clerk", ("hint", "order"), ("card", "name")),
        ("clerk", (), ("card", "name", "order")),
        ("billing", (), ("card", "name", "order")),
        ("billing", ("card", "name", "order"), ()),
    ]
    assert found[1].state == Amount(2, 5, estimate('"é"') + estimate("7"))


def test_nothing_is_stored_for_it_but_the_names_that_were_withheld():
    with Relay() as relay:

        @relay.agent("triage")
        async def triage(turn):
            await turn.delegate("clerk", "look")
            await turn.delegate("clerk", "look again", share=["a"])
            return "done"

        relay.agent("clerk")(lambda turn: "found")
        result = relay.run_sync("triage", "x", state={"a": 1, "b": 2})
        made = relay.store.find(workflow_id=result.workflow_id)
        details = [relay.audit.query(handoff_id=one.id)[0].detail for one in made]
    assert details == [{}, {}, {"withheld": ["b"]}]
