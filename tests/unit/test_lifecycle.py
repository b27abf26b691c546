"""The whole table is pinned: a change of the lifecycle is a change of the golden file, seen in review."""

from pathlib import Path

import pytest

from baton.lifecycle import AUDIT_NAME, ENDED, OPEN, TABLE, Event, State, after, legal

GOLDEN = Path(__file__).parent / "golden" / "lifecycle.txt"
BEGINNINGS = {State.OFFERED, State.WAITING}


def matrix():
    width = max(map(len, [*State, *Event])) + 1
    rows = [["", *State], *([event, *(after(state, event) or "-" for state in State)] for event in Event)]
    return "".join("".join(word.ljust(width) for word in row).rstrip() + "\n" for row in rows)


def reachable(start, step):
    seen, todo = set(start), list(start)
    while todo:
        new = step(todo.pop()) - seen
        seen |= new
        todo += new
    return seen


def test_every_pair_of_state_and_event_is_decided_as_written():
    assert matrix() == GOLDEN.read_text(encoding="utf-8")


def test_the_table_has_every_state_and_names_only_states_and_events():
    assert set(TABLE) == set(State)
    for row in TABLE.values():
        assert set(row) <= set(Event)
        assert set(row.values()) <= set(State)


def test_every_event_happens_somewhere():
    assert {event for row in TABLE.values() for event in row} == set(Event)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_an_end_is_an_end(state, event):
    if state in ENDED:
        assert after(state, event) is None
    assert (after(state, event) is not None) == (event in legal(state))


def test_open_and_ended_share_out_the_states():
    assert set(State) == OPEN | ENDED
    assert not OPEN & ENDED
    assert {State.COMPLETED, State.FAILED, State.CANCELLED, State.REFUSED} == ENDED


def test_every_state_is_reachable_from_a_beginning():
    assert reachable(BEGINNINGS, lambda state: set(TABLE[state].values())) == set(State)


@pytest.mark.parametrize("state", sorted(OPEN))
def test_every_open_state_can_reach_an_end_and_be_cancelled(state):
    assert reachable({state}, lambda now: set(TABLE[now].values())) & ENDED
    assert after(state, Event.CANCEL) is State.CANCELLED


def test_only_an_accepted_handoff_has_an_owner():
    into = {(state, event) for state, row in TABLE.items() for event, to in row.items() if to is State.CLAIMED}
    assert into == {(State.OFFERED, Event.ACCEPT), (State.CLAIMED, Event.REMIND)}


def test_only_approval_leads_from_waiting_to_work():
    assert [event for event, to in TABLE[State.WAITING].items() if to in OPEN] == [Event.APPROVE]


def test_audit_names_are_total_and_unique():
    assert set(AUDIT_NAME) == set(Event)
    assert len(set(AUDIT_NAME.values())) == len(Event)
    assert {"accepted", "rejected", "completed", "failed", "escalated"} <= set(AUDIT_NAME.values())
