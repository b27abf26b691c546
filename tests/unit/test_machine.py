"""Whether the owner of a claim lives: what is certain, and what is not."""

import os

import pytest

from baton import Handoff, Relay
from baton.stores import holder


class Machine:
    """A host whose processes are given."""

    def __init__(self, host="h1", boot="b1", pid=7, started=None):
        self.host, self.boot, self.number = host, boot, pid
        self.processes = {7: "100"} if started is None else started

    def place(self):
        return self.host, self.boot

    def pid(self):
        return self.number

    def started(self, pid):
        return self.processes.get(pid)


@pytest.fixture
def name():
    with holder.use(Machine()):
        return holder.identity()


@pytest.mark.parametrize(
    ("machine", "life"),
    [
        (Machine(), "alive"),
        (Machine(started={}), "dead"),
        (Machine(started={7: "200"}), "dead"),  # the number is used again, by a process that began later
        (Machine(started={7: "100.abcd"}), "alive"),  # an image that nobody noted
        (Machine(started={7: ""}), "unknown"),  # it may not be looked at
        (Machine(boot="b2"), "dead"),
        (Machine(host="h2"), "unknown"),
        (Machine(host="h2", boot="b2", started={}), "unknown"),
    ],
    ids=[
        "there",
        "gone",
        "number reused",
        "image unknown",
        "not to be seen",
        "booted again",
        "other host",
        "other host, gone",
    ],
)
def test_who_lives(name, machine, life):
    with holder.use(machine):
        assert holder.life(name) == life


def test_a_name_without_a_start_is_never_sure_to_live(name):
    host, boot, pid, _, unique = name.split("/")
    with holder.use(Machine()):
        assert holder.life(f"{host}/{boot}/{pid}/-/{unique}") == "unknown"
        assert holder.life(f"{host}/{boot}/x/100/{unique}") == "unknown"
        assert holder.life(name + holder.LEASED) == "unknown"
        assert holder.life("person:ana") == "unknown"


def test_this_process_lives_and_is_seen_by_its_own_machine():
    name = holder.identity()
    assert name.split("/")[2] == str(os.getpid())
    assert holder.life(name) == "alive"


def test_a_store_of_ones_own_can_be_given():
    with Relay(":memory:") as first:
        second = Relay(first.store)
        second.agent("a")(lambda turn: turn.task)
        first.hand_off(Handoff(from_agent="user", to_agent="a", task="work"))
        assert [one.task for one in second.store.find()] == ["work"]
