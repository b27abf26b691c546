"""The drawn workflow: what moved the work, what happened on the way, and names that would like to be syntax."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from baton import Artifact, Command, Handoff, Reject, Relay, clock
from baton.cli.graph import _edges
from baton.cli.mermaid import flowchart, quoted
from baton.lifecycle import State
from baton.testing.virtual import VirtualClock

HOSTILE = [
    'a"] --> evil["b', "a|b|c", "%%{init: {'theme': 'forest', 'themeCSS': 'x'}}%%", "x\nevil --> y", "`**bold**`",
    "end", "<script>alert(1)</script>", "#quot;", "&quot;", "1. first", "- item", "* item", "+ item", "> quote",
    "click a0 href", "style a0 fill:#f00;", "linkStyle 0 stroke:#f00;", "subgraph x", ":::danger", "\u202eevil", "a\\",
    "{}", "[[x]]", "\u2028x",
]  # fmt: skip
NODE = re.compile(r'    a\d+\["([^"`|%{}<>\\:;]|#\w+;)*"\]')
EDGE = re.compile(r'    a\d+ (-->|-\.->|==>)\|"([^"`|%{}<>\\:;]|#\w+;)*"\| a\d+')
STYLE = re.compile(r"    linkStyle \d+ stroke:[a-z]+")


def checked(drawn):
    first, *lines = drawn.split("\n")
    assert first == "flowchart TD"
    for line in lines:
        assert NODE.fullmatch(line) or EDGE.fullmatch(line) or STYLE.fullmatch(line), line
    return lines


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_and_no_text_becomes_syntax(text):
    one = Handoff(id="1", from_agent=text, to_agent=f"{text}2", task=text, state=State.COMPLETED)
    lines = checked(flowchart([(one, text, [text])]))
    assert len(lines) == 4
    label = re.search(r'\["(.*)"\]', lines[0])[1]
    assert not re.match(r"\s*([-*+>]|\d+[.)])", label)


@given(st.text(max_size=80))
@example("%%{")
def test_whatever_the_text_it_stays_in_its_label(text):
    assert re.fullmatch(r'([^"`|%{}<>\\:;\n]|#\w+;)*', quoted(text))


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_a_colour(state):
    one = Handoff(id="1", from_agent="a", to_agent="b", task="x", state=state)
    assert STYLE.fullmatch(checked(flowchart([(one, "x", ())]))[-1])


def test_detours_and_groups_are_on_the_edges():
    with Relay(backoff=0.01) as relay:
        tries = []

        @relay.agent("triage")
        async def triage(turn):
            await turn.broadcast(["clerk", "other"], "vote", aggregate="any")
            await turn.delegate("flaky", "try", on_failure="retry")
            return Command(goto="shy", artifacts=(Artifact(id="plan", path="docs/plan.md"),), reason="needs courage")

        relay.agent("clerk")(lambda turn: "a")
        relay.agent("other")(lambda turn: "b")
        relay.agent("shy", capabilities=["courage"])(lambda turn: Reject("not me"))
        relay.agent("bold", capabilities=["courage"])(lambda turn: "done")

        @relay.agent("flaky")
        def flaky(turn):
            tries.append(turn.attempt)
            if len(tries) < 2:
                raise OSError("again")
            return "at last"

        result = relay.run_sync("triage", "x", timeout=10)
        edges = _edges(relay, result.workflow_id, context=True)
    notes = {one.handoff.to_agent: one.notes for one in edges}
    assert notes["clerk"] == notes["other"] == ("group 1: any of 2",)
    assert notes["flaky"] == ("retried",)
    assert notes["bold"] == ("rerouted from shy",)
    last = edges[-1]
    assert last.moved_by == "needs courage [docs/plan.md]"
    assert re.fullmatch(r"\d of \d messages?, 0 variables, 1 artifact, ≈ \d+ tokens", last.crossed)
    assert [one.files for one in edges[:-1]] == [()] * 4
    drawn = checked(flowchart([(one.handoff, one.moved_by, one.notes) for one in edges]))
    assert sum("-.->" in line for line in drawn) == 3


def test_artifacts_that_came_along_are_on_the_first_edge_only():
    with clock.use(VirtualClock()), Relay() as relay:
        relay.agent("a")(lambda turn: Command(goto="b", artifacts=(Artifact(id="p", path="p.md"),)))
        relay.agent("b")(lambda turn: Command(goto="c", reason="next"))
        relay.agent("c")(lambda turn: "done")
        result = relay.run_sync("a", "x")
        edges = _edges(relay, result.workflow_id, context=False)
    assert [one.files for one in edges] == [(), ("p.md",), ()]
