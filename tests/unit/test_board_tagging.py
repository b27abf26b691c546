"""Every way to change a tag keeps to the table of moves: add, remove, swap, on the Tags line and in the text."""

import itertools

import pytest

from baton.board import tagging
from baton.board.actor import Actor, Claim
from baton.board.moves import APPROVED, Move, make
from baton.board.root import board_of
from baton.board.tags import LEGAL, STATES
from baton.errors import BatonError, Malformed, NotAuthorised, Refused
from baton.stores import holder

ME = Actor("ana", holder.identity())
PAIRS = [pair for pair in itertools.product((*STATES, None), repeat=2) if pair[0] != pair[1]]
WAYS = ["plain", "inline"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "tree" / ".baton").mkdir(parents=True)
    return tmp_path / "tree"


def text(state, way):
    tag = f" #{state}-fix" if state else ""
    return f"# A\n**Tags**:{tag if way == 'plain' else ''} #P1\n\n- step{tag if way == 'inline' else ''} #S\n".encode()


def spot(place, state, way, *, forced=False):
    path = place / "a.md"
    path.write_bytes(text(state, way))
    return path, tagging.place_of(str(path), 4 if way == "inline" else 0, ME, forced=forced)


def change(spot, before, after):
    if before is None:
        return tagging.add(spot, [f"{after}-fix"], ME)
    if after is None:
        return tagging.remove(spot, [f"{before}-fix"], ME)
    return tagging.swap(spot, [f"{before}-fix"], [f"{after}-fix"], ME)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_what_is_not_in_the_table_is_refused_and_changes_nothing(before, after, way, place):
    path, where = spot(place, before, way)
    if before is None and way == "inline":
        return  # nothing is added to a text
    by_approval = before == "needs" and after in APPROVED
    if (before, after) in LEGAL and not (by_approval and way == "inline"):
        change(where, before, after)
        wanted = text(after, way)
        if before is None:
            wanted = wanted.replace(b" #needs-fix #P1", b" #P1 #needs-fix")
        assert path.read_bytes() == wanted
        record = where.board.log.last("a.md", "fix")
        assert record["event"] == (after or "removed")
        assert ("approval" in record) == by_approval
    else:
        with pytest.raises(Refused):
            change(where, before, after)
        assert path.read_bytes() == text(before, way)
        assert list(where.board.log.records()) == []


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if None not in pair])
def test_a_move_keeps_to_it_too(before, after, place):
    path, where = spot(place, before, "plain")
    if (before, after) in LEGAL and not (before == "needs" and after in APPROVED):
        make(Move(where.board, str(path), "fix", before, after), ME)
        assert path.read_bytes() == text(after, "plain")
    else:
        with pytest.raises(Refused):
            make(Move(where.board, str(path), "fix", before, after), ME)
        assert path.read_bytes() == text(before, "plain")


@pytest.mark.parametrize(
    ("before", "after"), [("done", "needs"), ("delegated", "done"), ("claimed", None), (None, "done")]
)
def test_force_is_a_persons_and_the_log_says_so(before, after, place):
    path, where = spot(place, before, "plain", forced=True)
    change(where, before, after)
    assert sorted(path.read_bytes().split()) == sorted(text(after, "plain").split())
    record = where.board.log.last("a.md", "fix")
    assert (record["forced"], record["by"]) == (1, "ana")
    worker = Actor("w", holder.identity(), Claim("a.md", "fix", 1))
    with pytest.raises(NotAuthorised):
        tagging.place_of(str(path), 0, worker, forced=True)


@pytest.mark.parametrize("forced", [False, True])
def test_to_stay_is_no_move(forced, place):
    path, where = spot(place, "claimed", "plain", forced=forced)
    with pytest.raises(Refused, match="stays what it is"):
        change(where, "claimed", "claimed")
    assert path.read_bytes() == text("claimed", "plain")


def test_items_of_one_noun_on_other_lines_are_left_alone(place):
    path = place / "a.md"
    path.write_bytes(b"# A\n**Tags**: #claimed-fix\n\n- one #delegated-fix\n- two #delegated-fix\n")
    tagging.swap(tagging.place_of(str(path), 5, ME, forced=False), ["delegated-fix"], ["claimed-fix"], ME)
    assert path.read_bytes() == b"# A\n**Tags**: #claimed-fix\n\n- one #delegated-fix\n- two #claimed-fix\n"
    with pytest.raises(BatonError, match="already claimed"):
        tagging.swap(tagging.place_of(str(path), 5, ME, forced=False), ["delegated-fix"], ["claimed-fix"], ME)
    with pytest.raises(BatonError, match="already claimed"):
        tagging.swap(tagging.place_of(str(path), 0, ME, forced=False), ["delegated-fix"], ["claimed-fix"], ME)


@pytest.mark.parametrize("names", ["", "a b", "#", "-a", "a--b", "ü", "a,,b"])
def test_what_is_no_tag(names):
    with pytest.raises(Malformed):
        tagging.read_names(names)


@pytest.mark.parametrize("pattern", ["", "#", "a b", "ü*", "#needs-\n", "[a]"])
def test_what_cannot_be_looked_for(pattern):
    with pytest.raises(Malformed):
        tagging.read_pattern(pattern)


def test_a_board_is_found_by_its_file(place):
    assert board_of(str(place / "a.md"))[0].root == str(place)
