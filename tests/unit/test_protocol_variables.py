"""P7, C10: shared variables: stored once, read back, whose they are, and what several writes come to."""

import operator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import Contradiction, Malformed, OutOfScope, TooLarge
from baton.protocol import codec
from baton.protocol.groups import Branch, Gained, combine
from baton.protocol.variables import (
    DERIVED,
    NOTHING,
    Variables,
    Writer,
    begin,
    changes,
    document,
    freeze,
    overlay,
    part,
    read,
    thaw,
    write,
)

KEYS = st.sampled_from(["a", "b", "größe", "context", "metrics"])
SMALL = st.none() | st.booleans() | st.integers(-9, 9) | st.text("aé", max_size=5)
LARGE = st.integers(500, 700).map("x".__mul__)
VALUES = st.one_of(SMALL, LARGE, st.lists(SMALL, max_size=3), st.dictionaries(KEYS, SMALL | LARGE, max_size=3))
OBJECTS = st.dictionaries(KEYS, SMALL | LARGE, max_size=3)
STATES = st.fixed_dictionaries(
    {}, optional={"a": VALUES, "b": VALUES, "größe": VALUES, "context": OBJECTS, "metrics": OBJECTS}
)
ADD = {"found": operator.add}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Blobs(dict):
    def keep(self, variables):
        frozen, blobs = freeze(variables)
        new = {blob.digest for blob in blobs} - set(self)
        for blob in blobs:
            assert codec.digest(blob.data) == blob.digest
            self[blob.digest] = blob.data
        self.new = len(new)
        return frozen.ref

    fetch = dict.__getitem__


def by(agent, update, before=NOTHING, writes=(), reducers=None):
    return write(before, update, Writer(agent, lambda: writes), reducers or {})


def branch(agent, changed, began=0, ended=1, group=""):
    moment = [NOON + timedelta(seconds=second) for second in (began, ended)]
    makers = dict.fromkeys(changed, agent)
    return Branch(agent=agent, began=moment[0], ended=moment[1], group=group, changed=changed, makers=makers)


# --- stored --------------------------------------------------------------------------------------


@given(STATES)
def test_variables_are_read_back(values):
    blobs = Blobs()
    assert thaw(blobs.keep(begin(values)), blobs.fetch).values == values


@given(STATES, STATES)
def test_an_update_is_stored_as_storing_all_would_do(values, update):
    blobs = Blobs()
    before = thaw(blobs.keep(begin(values)), blobs.fetch)
    after = by("a", update, before)
    ref = blobs.keep(after)
    read_back = thaw(ref, blobs.fetch)
    assert (read_back.values, read_back.owners) == (after.values, after.owners)
    assert ref == freeze(Variables(after.values, after.owners, new=frozenset(after.values)))[0].ref


def test_the_digest_names_values_and_owners_and_nothing_else():
    one = freeze(by("x", {"a": 1, "b": 2}))[0].ref
    assert one == freeze(by("x", {"b": 2}, by("x", {"a": 1})))[0].ref
    assert one == freeze(by("x", {"a": 1}, by("x", {"a": 9, "b": 2})))[0].ref
    assert one != freeze(by("y", {"a": 1, "b": 2}))[0].ref
    assert one != freeze(begin({"a": 1, "b": 2}))[0].ref
    assert freeze(begin({"a": 1}))[0].ref == codec.digest(codec.canonical({"values": {"a": 1}}))


def test_an_update_neither_reads_nor_stores_again_what_it_leaves_alone():
    blobs = Blobs()
    before = thaw(blobs.keep(begin({f"k{n}": str(n) * 1000 for n in range(100)})), blobs.fetch)
    frozen, new = freeze(by("a", {"small": 1}, before))
    assert [blob.digest for blob in new] == [frozen.ref]
    assert freeze(frozen) == (frozen, [])


def test_large_values_are_stored_once():
    blobs = Blobs()
    blobs.keep(begin({"big": "x" * 10_000, "also": "x" * 10_000}))
    assert blobs.new == 2  # the value and the head
    blobs.keep(begin({"big": "x" * 10_000, "n": 1}))
    assert blobs.new == 1


def test_what_was_stored_does_not_change_with_the_dict():
    blobs, values = Blobs(), {"list": [1]}
    head = blobs.keep(begin(values))
    values["list"].append(2)
    thaw(head, blobs.fetch).values["list"].append(3)
    assert thaw(head, blobs.fetch).values == {"list": [1]}


def test_nothing_is_stored_for_nothing():
    assert freeze(begin({})) == (begin({}), [])
    assert thaw("", Blobs().fetch).values == {}
    assert freeze(by("a", {}))[0].ref == ""


@pytest.mark.parametrize("key", [1, None, "", " a", "a\nb", "a\0b", "\ud800", "x" * 201])
def test_keys_are_names(key):
    with pytest.raises(Malformed, match="state: key"):
        freeze(begin({key: 1}))


def test_the_number_of_keys_is_bounded():
    with pytest.raises(TooLarge, match="1001 keys, at most 1000"):
        freeze(begin({f"k{n}": n for n in range(1001)}))


def test_a_value_that_is_not_json_is_named():
    with pytest.raises(Malformed, match=r"^state\.a\.b\[1\]: nan"):
        freeze(begin({"a": {"b": [1, float("nan")]}}))


@pytest.mark.parametrize("change", [lambda: by("a", {"metrics": 5}), lambda: begin({"metrics": 5})], ids=["w", "b"])
def test_a_reserved_key_takes_an_object(change):
    with pytest.raises(Malformed, match=r"update\.metrics"):
        change()


def test_damaged_content_is_named():
    head = Blobs().keep(begin({"a": 1}))
    with pytest.raises(Malformed, match=r"stored content .* backup"):
        thaw(head, lambda ref: b"{")


# --- whose they are ------------------------------------------------------------------------------


def test_who_made_a_variable_may_write_it_and_others_may_not():
    made = by("ana", {"draft": 1})
    assert by("ana", {"draft": 2}, made).values == {"draft": 2}
    with pytest.raises(OutOfScope) as caught:
        by("ben", {"draft": 2}, made)
    assert str(caught.value) == (
        "state.draft: it is ana's, ben may only read it; register ben with writes=['draft'], or give "
        "Relay(reducers={'draft': …}) to join what both write"
    )


@pytest.mark.parametrize("writes", [["draft"], ["*"], ["dr*"], ["other", "draft"]])
def test_writes_let_an_agent_write_what_another_made_and_it_stays_that_ones(writes):
    after = by("ben", {"draft": 2}, by("ana", {"draft": 1}), writes)
    assert (after.values, after.owners) == ({"draft": 2}, {"draft": "ana"})


def test_other_writes_do_not():
    with pytest.raises(OutOfScope):
        by("ben", {"draft": 2}, by("ana", {"draft": 1}), ["drafts", "d?"])


def test_a_name_with_the_letters_of_a_pattern_is_itself():
    assert by("ben", {"a[1]": 2}, by("ana", {"a[1]": 1}), ["a[1]"]).values == {"a[1]": 2}


def test_what_came_with_the_request_is_taken_by_the_first_who_changes_it():
    begun = begin({"n": 1})
    assert begun.owners == {}
    assert by("ana", {"n": 1}, begun).owners == {}
    taken = by("ana", {"n": 2}, begun)
    assert taken.owners == {"n": "ana"}
    with pytest.raises(OutOfScope):
        by("ben", {"n": 3}, taken)


def test_the_same_value_is_no_conflict():
    made = by("ana", {"x": {"y": [1, 2]}})
    assert by("ben", {"x": {"y": [1, 2]}}, made).owners == {"x": "ana"}


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), ([1], [1.0])])
def test_what_is_equal_in_python_is_not_the_same(one, other):
    made = by("ana", {"x": one})
    assert type(by("ana", {"x": other}, made).values["x"]) is type(other)
    with pytest.raises(OutOfScope):
        by("ben", {"x": other}, made)
    assert list(changes(made, by("ana", {"x": other}, made))) == ["x"]


def test_a_refused_update_changes_nothing_at_all():
    made = by("ana", {"x": 1})
    with pytest.raises(OutOfScope):
        by("ben", {"y": 2, "x": 2}, made)
    assert (made.values, made.owners) == ({"x": 1}, {"x": "ana"})


def test_reserved_objects_are_everybodys_and_merged_by_name():
    made = by("ana", {"workflow_state": {"phase": "plan", "next": "do"}})
    after = by("ben", {"workflow_state": {"phase": "do"}}, made)
    assert after.values == {"workflow_state": {"phase": "do", "next": "do"}}
    assert after.owners == {}


@pytest.mark.parametrize("key", DERIVED)
@pytest.mark.parametrize(
    "way", [lambda one: by("a", one), begin, lambda one: overlay(NOTHING, one, "a")], ids=["update", "begin", "part"]
)
def test_what_is_derived_is_not_written(key, way):
    with pytest.raises(Malformed, match=f"update.{key}: this is read, not written"):
        way({key: "x"})


def test_a_variable_with_a_reducer_is_everybodys_and_each_write_is_joined():
    first = by("ana", {"found": [1]}, reducers=ADD)
    second = by("ben", {"found": [2]}, first, reducers=ADD)
    assert by("ana", {"found": [3]}, second, reducers=ADD).values == {"found": [1, 2, 3]}


def test_the_reducer_of_any_variable_leaves_reserved_objects_alone():
    last = {"*": lambda before, value: value}
    made = by("ana", {"x": 1, "metrics": {"a": 1}}, reducers=last)
    after = by("ben", {"x": 2, "metrics": {"b": 2}}, made, reducers=last)
    assert after.values == {"x": 2, "metrics": {"a": 1, "b": 2}}


# --- parts of the work ---------------------------------------------------------------------------


def test_a_part_sees_what_is_put_over_it_and_what_is_anothers_stays_so():
    made = by("ana", {"draft": 1})
    seen = overlay(made, {"draft": 2, "new": 3}, "lead")
    assert seen.values == {"draft": 2, "new": 3}
    assert seen.owners == {"draft": "ana", "new": "lead"}
    for agent in ("lead", "ben"):
        with pytest.raises(OutOfScope, match="ana's"):
            by(agent, {"draft": 4}, seen)


def test_what_a_part_does_not_see_it_cannot_write_either():
    made = by("ana", {"draft": 1, "shown": 2})
    seen = part(made, ["shown"])
    assert seen.values == {"shown": 2}
    with pytest.raises(OutOfScope, match="ana's"):
        by("ben", {"draft": 4}, seen)


def test_what_a_line_added_is_told_apart_from_what_was_there():
    blobs = Blobs()
    whole = by("ana", {"found": [1]}, reducers=ADD)
    begun = thaw(blobs.keep(part(whole)), blobs.fetch)
    one = thaw(blobs.keep(by("b", {"found": [2]}, begun, reducers=ADD)), blobs.fetch)
    two = thaw(blobs.keep(by("c", {"found": [3]}, one, reducers=ADD)), blobs.fetch)
    assert two.values == {"found": [1, 2, 3]}
    assert changes(begun, two) == {"found": [2, 3]}


def extended(known, value):
    """A reducer that changes what it is given."""
    known.extend(value)
    value.append("spoilt")
    return known


def test_a_reducer_that_changes_its_arguments_changes_nobody_elses():
    mine, there = [1], [0]
    before = begin({"found": there})
    one = by("ana", {"found": mine}, before, reducers={"found": extended})
    two = by("ana", {"found": [2]}, one, reducers={"found": extended})
    assert (before.values, one.values, two.values) == ({"found": [0]}, {"found": [0, 1]}, {"found": [0, 1, 2]})
    assert (one.added, two.added) == ({"found": [1]}, {"found": [1, 2]})
    assert (there, mine) == ([0], [1])
    fresh = by("ana", {"new": mine}, reducers={"new": extended})
    assert by("ben", {"new": [2]}, fresh, reducers={"new": extended}).added == {"new": [1, 2]}
    assert fresh.values == fresh.added == {"new": [1]}


def test_a_reducer_is_given_nothing_that_could_not_be_stored():
    with pytest.raises(Malformed, match=r"^state\.found"):
        by("ana", {"found": {1}}, begin({"found": {}}), reducers={"found": lambda known, value: sorted(value)})


def test_changes_of_a_reserved_object_are_those_of_its_names():
    made = by("ana", {"metrics": {"a": 1, "b": 1}, "x": 1})
    assert changes(made, by("ana", {"metrics": {"b": 2}}, made)) == {"metrics": {"b": 2}}
    assert changes(made, made) == {}


def test_branches_beside_each_other_that_differ_contradict():
    for other in (branch("c", {"x": 2}), branch("b", {"x": 2}, 0.5, 3)):
        with pytest.raises(Contradiction, match=r"state\.x: b and . set it differently; give Relay\(reducers="):
            combine(Gained(NOTHING), [branch("b", {"x": 1}), other], {})
    with pytest.raises(Contradiction, match=r"state\.metrics\.n:"):
        combine(Gained(NOTHING), [branch("b", {"metrics": {"n": 1}}), branch("c", {"metrics": {"n": 2}})], {})


def test_those_of_one_group_are_beside_each_other_whatever_the_clock_says():
    with pytest.raises(Contradiction):
        combine(Gained(NOTHING), [branch("b", {"x": 1}, 0, 1, "g"), branch("b", {"x": 2}, 1, 2, "g")], {})


def test_one_after_the_other_replaces_and_the_first_stays_the_owner():
    done = combine(Gained(NOTHING), [branch("b", {"x": 1}, 0, 1), branch("b", {"x": 2}, 1, 2)], {})
    assert (done.variables.values, done.variables.owners) == ({"x": 2}, {"x": "b"})


def test_who_was_gained_before_is_remembered():
    one = combine(Gained(NOTHING), [branch("b", {"x": 1}, 0, 2)], {})
    with pytest.raises(Contradiction):
        combine(one, [branch("b", {"x": 2}, 1, 3)], {})
    assert combine(one, [branch("b", {"x": 2}, 2, 3)], {}).variables.values == {"x": 2}


def test_branches_that_agree_or_are_joined_do_not_contradict():
    same = combine(Gained(NOTHING), [branch("b", {"x": 1}), branch("c", {"x": 1})], {})
    assert (same.variables.values, same.variables.owners) == ({"x": 1}, {"x": "b"})
    start = Gained(by("a", {"found": [0]}, reducers=ADD))
    joined = combine(start, [branch("b", {"found": [1]}), branch("c", {"found": [2]})], ADD)
    assert joined.variables.values == {"found": [0, 1, 2]}


# --- any sequence of writes ----------------------------------------------------------------------

AGENTS = ("a", "b", "c")
NAMES = ("x", "y", "z")
GRANTS = st.dictionaries(st.sampled_from(AGENTS), st.sets(st.sampled_from(NAMES)), max_size=3)
UPDATE = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1, max_size=2)
HOP = st.tuples(st.sampled_from(AGENTS), UPDATE)
ROUND = st.one_of(HOP, st.lists(st.lists(HOP, min_size=1, max_size=3), min_size=2, max_size=3))


@given(GRANTS, st.sets(st.sampled_from(NAMES), max_size=1), st.lists(ROUND, max_size=8))
def test_nobody_ever_changes_what_another_made(grants, reduced, rounds):
    """Hops one after the other, and branches of hops beside each other, in any mix, stored and read at each step."""
    blobs, reducers = Blobs(), dict.fromkeys(reduced, max)
    owner, value = {}, {}  # as a plain reading of the rule has it

    def hop(variables, agent, update, known, held):
        refused = any(
            name in known and known[name] != agent and held.get(name) != one
            for name, one in update.items()
            if name not in reduced and name not in grants.get(agent, ())
        )
        try:
            after = by(agent, update, thaw(blobs.keep(variables), blobs.fetch), grants.get(agent, ()), reducers)
        except OutOfScope:
            assert refused
            return variables
        assert not refused
        for name, one in update.items():
            known.setdefault(name, agent)
            held[name] = max(held.get(name, 0), one) if name in reduced else one
        return after

    state = NOTHING
    for one in rounds:
        if isinstance(one, tuple):
            state = hop(state, *one, owner, value)
            assert (state.values, state.owners) == (value, owner)
            continue
        before, results = part(state), []
        for hops in one:
            view, known, held = before, dict(owner), dict(value)
            for agent, update in hops:
                view = hop(view, agent, update, known, held)
            results.append((known, held, branch(hops[-1][0], changes(before, view), group="g"), view))
        branches = [
            Branch(agent=b.agent, began=b.began, ended=b.ended, group="g", changed=b.changed, makers=view.owners)
            for _, _, b, view in results
        ]
        differ = {
            name for name in set(NAMES) - reduced if len({b.changed[name] for b in branches if name in b.changed}) > 1
        }
        try:
            state = combine(Gained(state), branches, reducers).variables
        except Contradiction:
            assert differ
            continue
        assert not differ
        for known, held, b, _ in results:
            for name in b.changed:
                owner.setdefault(name, known[name])
                value[name] = max(value.get(name, 0), held[name]) if name in reduced else held[name]
        assert (state.values, state.owners) == (value, owner)


# --- on the wire ---------------------------------------------------------------------------------


@given(STATES)
def test_the_document_of_the_protocol_is_read_back(values):
    values = {**values, "custom": {"mine": 1}}
    laid_out = document(values, task_id="t", task_status="pending", task_priority="high", files_in_progress=[])
    assert set(laid_out) <= {*DERIVED, "context", "metrics", "custom"}
    assert read(laid_out, "x") == values


def test_custom_values_do_not_hide_others():
    with pytest.raises(Malformed, match=r"x\.custom: a stands beside it"):
        read({"a": 1, "custom": {"a": 2}}, "x")
    with pytest.raises(Malformed, match=r"x\.custom: task_id"):
        read({"custom": {"task_id": 2}}, "x")
