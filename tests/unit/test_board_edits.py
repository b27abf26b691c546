"""Any edit of any text changes the tags that it names, and no byte else."""

import re

from hypothesis import event, given, settings
from hypothesis import strategies as st

from baton.board import tags
from baton.board.tags import Text

NAMES = ["needs-fix", "needs-fix-login", "claimed-fix", "done-fix", "P0", "P1", "S", "a"]
PARTS = [
    b"**Tags**:", b"**Tags**: ", b"\n**Tags**: #a #P1\n", b"**Tags**: #needs-fix", b"# T\n", b"T\n===\n", b"---\n",
    b"\n---\n", b"`", b"``", b"```", b"\n```\n", b"~~~", b"<!--", b"-->", b"<pre>", b"</pre>", b"\\", b"> ", b"- ",
    b"1. ", b"    ", b"\t", b" ", b" ", b"\n", b"\n", b"\n\n", b"\r\n", b"\r", b"#", b"# ", b"word", b".", b",", b"(",
    b")", b"[", b"]", b"]:", b"](", b"'", b'"', b"=", b"*", b"_", b"|", b"<", b">", b"https://", b"/", b"\xef\xbb\xbf",
    b"\xff", b"\xc3\xa9", b"\xe2\x80\x94", b"\0",
]  # fmt: skip
TAGS = [b"#" + name.encode() for name in NAMES]

texts = st.lists(
    st.one_of(
        st.sampled_from(PARTS),
        st.sampled_from(TAGS),
        st.sampled_from(TAGS).map(lambda tag: b" " + tag + b" "),
        st.binary(max_size=3),
    ),
    max_size=30,
).map(b"".join)
names = st.sampled_from(NAMES)
many = settings(max_examples=500, deadline=None)


def told(data):
    return [(tag.name, tag.inline) for tag in Text(data).tags]


@many
@given(texts)
def test_what_is_read_stands_there(data):
    text = Text(data)
    at = 0
    for tag in text.tags:
        assert at <= tag.start
        at = tag.end
        assert data[tag.start : tag.end] == b"#" + tag.name.encode()
        assert tags.is_name(tag.name)
        assert tag.line == data.count(b"\n", 0, tag.start) + 1
        assert tag.inline is (tag.line != data.count(b"\n", 0, text.head) + 1 or text.head < 0)
        assert not any(start < tag.end and tag.start < end for start, end in text.markdown.hidden)
    places = [place for span in text.markdown.hidden for place in span]
    assert places == sorted(places)
    assert all(0 <= place <= len(data) for place in places)
    assert told(data.replace(b"\r", b"").replace(b"\n", b"\r\n")) == told(data.replace(b"\r", b""))


@many
@given(texts, names)
def test_adding_adds_one_to_the_tags_line(data, name):
    before, after = Text(data), tags.added(data, name)
    own = [tag.name for tag in before.own()]
    if name in own:
        assert after == data
        return
    assert [tag.name for tag in Text(after).own()] == [*own, name]
    assert [pair for pair in told(after) if pair[1]] == [pair for pair in told(data) if pair[1]]
    at = next((place for place in range(len(data)) if data[place] != after[place]), len(data))
    assert data == after[:at] + after[at + len(after) - len(data) :]
    assert tags.added(after, name) == after


@st.composite
def changes(draw):
    """A text, some tags of one place in it, and what they are to become."""
    data = draw(texts)
    text = Text(data)
    place = draw(st.sampled_from([text.own(), *(text.at(line) for line in {tag.line for tag in text.tags})]))
    old = draw(st.lists(st.sampled_from(place), min_size=1, unique_by=lambda tag: tag.start)) if place else []
    return data, place, old, draw(st.lists(names, max_size=3))


@many
@given(changes())
def test_replacing_changes_what_it_names(change):
    data, place, old, new = change
    after = tags.replaced(data, old, new)
    event("nothing to replace" if not old else "replaced" if new else "held" if b"&nbsp;" in after else "removed")
    if not old:
        assert after == data
        return
    gone = {tag.start for tag in old}
    there = {tag.name for tag in place if tag.start not in gone}
    words = [name for name in dict.fromkeys(new) if name not in there]
    expected = []
    for tag in Text(data).tags:
        if tag.start == min(gone):
            expected += [(name, tag.inline) for name in words]
        if tag.start not in gone:
            expected.append((tag.name, tag.inline))
    assert told(after) == expected
    assert only_these_bytes(
        data, sorted(old, key=lambda tag: tag.start), b" ".join(b"#" + w.encode() for w in words), after
    )


def only_these_bytes(data, old, words, after):
    """Whether the two differ in the tags alone, each with at most one space beside it."""
    pattern, at = b"", 0
    for number, tag in enumerate(old):
        put = re.escape(words) if number == 0 and words else b"(?:&nbsp;)?"
        before = re.escape(data[at : tag.start])
        if before[-1:] in {b" ", b"\t"} and before[-2:-1] == b"\\":
            before = before[:-2] + b"(?:" + before[-2:] + b")?"
        pattern += before + put
        at = tag.end
        if data[at : at + 1] in {b" ", b"\t"}:
            pattern += b"[ \t]?"
            at += 1
    return re.fullmatch(pattern + re.escape(data[at:]), after, re.DOTALL) is not None and len(after) >= (
        len(data) - sum(tag.end - tag.start + 1 for tag in old) + len(words)
    )


@many
@given(texts, st.sets(st.integers(0, 20)))
def test_what_is_escaped_is_no_tag_and_the_others_stay(data, numbers):
    found = Text(data).tags
    taken = [tag for number, tag in enumerate(found) if number in numbers]
    after = tags.escaped(data, taken)
    assert told(after) == [(tag.name, tag.inline) for tag in found if tag not in taken]
    assert after.replace(b"`", b"") == data.replace(b"`", b"")
    none = tags.escaped(data, found)
    assert told(none) == []
    assert tags.escaped(none, []) == none
