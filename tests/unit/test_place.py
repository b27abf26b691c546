"""A log that was removed or replaced is missed, by the records that stand elsewhere."""

import pytest

from baton import Relay
from baton.errors import AuditBroken, StoreError
from baton.protocol.handoff import Handoff
from baton.protocol.profile import Profile


def written(path, state, task="x"):
    """A log of one record that was sealed and checkpointed; its id."""
    with Relay(str(path), checkpoints=state) as relay:
        relay.store.register(Profile(agent_id="a"))
        relay.hand_off(Handoff(from_agent="user", to_agent="a", task=task))
        return relay.store.id


def kinds(path, state):
    with Relay(str(path), checkpoints=state) as relay:
        return [one.kind for one in relay.audit.verify().findings]


@pytest.fixture
def place(tmp_path):
    return tmp_path / "s.db"


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def swap(path, state):
    """Another log in the place of the first; the first one is kept."""
    path.rename(path.with_name("old.db"))
    return written(path, state)


def test_a_log_is_not_missed_while_it_stands(place, state):
    written(place, state)
    written(place, state)
    assert kinds(place, state) == []
    assert len((next(state.glob("*.jsonl"))).read_bytes().splitlines()) == 1


def test_stores_may_share_a_directory_of_checkpoints(place, state, tmp_path):
    written(place, state)
    written(tmp_path / "other.db", state)
    assert kinds(place, state) == kinds(tmp_path / "other.db", state) == []


def test_a_moved_log_is_still_held_to_its_checkpoints(place, state, tmp_path):
    written(place, state)
    place.rename(tmp_path / "moved.db")
    with Relay(str(tmp_path / "moved.db"), checkpoints=state) as relay:
        report = relay.audit.verify()
    assert (report.ok, report.checkpoints) == (True, 1)


def test_what_was_accepted_counts_for_one_log_only_and_stays_noted(place, state):
    first = written(place, state)
    second = swap(place, state)
    assert kinds(place, state) == ["replaced"]
    with Relay(str(place), checkpoints=state) as relay:
        assert relay.audit.accept(by="ana", reason="a new year") == [first]
        assert relay.audit.accept(by="ben") == []
        [said] = relay.audit.accepted
        assert (said.log, said.instead_of, said.by, said.reason) == (second, (first,), "ana", "a new year")
        assert relay.audit.verify().ok
    place.unlink()
    third = written(place, state)
    assert kinds(place, state) == ["replaced", "replaced"]
    place.unlink()
    place.with_name("old.db").rename(place)
    with Relay(str(place), checkpoints=state) as relay:
        assert relay.store.id == first
        assert relay.audit.replaced == [second, third]


def test_a_log_in_memory_replaces_nothing():
    with Relay() as relay:
        assert (relay.audit.replaced, relay.audit.accepted, relay.audit.accept(by="ana")) == ([], [], [])


def test_half_a_line_of_a_writer_that_died_is_dropped(place, state):
    written(place, state)
    [notes] = state.glob("*.jsonl")
    with notes.open("ab") as file:
        file.write(b'{"log":"x')
    swap(place, state)
    assert kinds(place, state) == ["replaced"]
    assert len(notes.read_bytes().splitlines()) == 2


def test_notes_that_were_damaged_are_an_error(place, state):
    written(place, state)
    [notes] = state.glob("*.jsonl")
    notes.write_bytes(b"nonsense\n")
    with Relay(str(place), checkpoints=state) as relay, pytest.raises(AuditBroken, match="damaged"):
        relay.audit.verify()


def test_notes_are_no_link(place, state, tmp_path):
    written(place, state)
    [notes] = state.glob("*.jsonl")
    notes.rename(tmp_path / "elsewhere")
    notes.symlink_to(tmp_path / "elsewhere")
    place.rename(place.with_name("old.db"))
    with Relay(str(place), checkpoints=state) as relay:
        relay.store.register(Profile(agent_id="a"))
        relay.hand_off(Handoff(from_agent="user", to_agent="a", task="y"))
        with pytest.raises(StoreError, match="is a link"):
            relay.audit.seal()
