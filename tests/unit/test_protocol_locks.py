"""Locks as values: what overlaps, and who waits for whom in a circle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.protocol.locks import Lock, Wanted, blockers, circle, overlap


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("/r/a", "/r/a", True),
        ("/r", "/r/a", True),
        ("/r/a", "/r/ab", False),
        ("/r/a/b", "/r/a", True),
        ("/", "/r", True),
        ("/r/a", "/s/a", False),
    ],
)
def test_a_folder_covers_what_is_below_it(one, other, same):
    assert overlap(Wanted(one), Wanted(other)) is same
    assert overlap(Wanted(other), Wanted(one)) is same


def test_two_names_of_one_file_overlap_and_unknown_files_do_not():
    assert overlap(Wanted("/a", "1:2"), Wanted("/b", "1:2"))
    assert not overlap(Wanted("/a", ""), Wanted("/b", ""))


def test_an_earlier_place_in_the_queue_counts_a_later_one_does_not():
    queue = [Lock(seq=n, path="/a", owner=f"o{n}", granted=n == 1) for n in (1, 2, 3)]
    found = blockers([Wanted("/a")], queue, owner="o2", shared=False, before=2)
    assert [one.owner for one in found] == ["o1"]
    assert [one.owner for one in blockers([Wanted("/a")], queue, owner="o4", shared=False)] == ["o1", "o2", "o3"]


graphs = st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef")), max_size=6)


@given(graphs)
def test_a_circle_is_found_exactly_where_one_is(waits):
    reached, front = set(), set(waits.get("a", ()))
    while front:
        reached |= front
        front = {other for one in front for other in waits.get(one, ())} - reached
    found = circle("a", waits)
    assert bool(found) == ("a" in reached)
    for one, other in zip(found, (*found[1:], "a"), strict=False):
        assert other in waits[one]
