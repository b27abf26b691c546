"""Where tags stand, what they mean, and how one is changed: tables of cases, a line each."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from baton.board import tags
from baton.board.tags import Text


def names(data):
    return [tag.name for tag in Text(data).tags]


WHAT_IS_A_TAG = [
    (b"#needs-fix", ["needs-fix"]),
    (b"#needs-fix and more", ["needs-fix"]),
    (b"Mend it. #needs-fix.", ["needs-fix"]),
    (b"Is it #needs-fix? Or #needs-docs!", ["needs-fix", "needs-docs"]),
    (b"(#needs-fix)", ["needs-fix"]),
    (b"**#needs-fix**, _#a_ ~~#b~~", ["needs-fix", "a", "b"]),
    (b"#a,#b;#c|#d", ["a", "b", "c", "d"]),
    (b"| work | #needs-fix |", ["needs-fix"]),
    (b"|[t](https://a/b)|#needs-fix|", ["needs-fix"]),
    (b"<b>#needs-fix</b>", ["needs-fix"]),
    (b"# A heading #needs-fix", ["needs-fix"]),
    (b"#hashtag at the start is no heading", ["hashtag"]),
    (b"####### seven are no heading #a", ["a"]),
    (b"- [ ] #needs-fix #P0 #S", ["needs-fix", "P0", "S"]),
    (b"    #indented-far is prose", ["indented-far"]),
    (b"> #quoted is prose", ["quoted"]),
    (b"#P0 #P1 #P2 #S #M #L", ["P0", "P1", "P2", "S", "M", "L"]),
    (b"#needs-v2-1", ["needs-v2-1"]),
    ("“#a” – #b… 「#c」".encode(), ["a", "b", "c"]),
    (b"[^1]: #needs-fix in a footnote", ["needs-fix"]),
    (b"[label]: #needs-fix it is no link", ["needs-fix"]),
    (b"- [ ]: #needs-fix", ["needs-fix"]),
    (b"[#needs-fix](https://a/b)", ["needs-fix"]),
    # no tags
    (b"#", []),
    (b"# Title", []),
    (b"#1 #12 #-a #_a", []),
    (b"#needs- #needs--fix #needs-fix-", []),
    (b"a#b 1#b )#b /#b", []),
    (b"##a", []),
    (b"#a#b", []),
    (b"\\#a", []),
    (b"#a/b #a=b #a@b #a(b) #a+", []),
    (b"#a_b #a.b #a:b #a'b #a*b", []),
    ("#needs-café é#a #a\u0301".encode(), []),
    (b"#caf\xe9 \xe9#a", []),
    (b"https://a.b/c#needs-fix", []),
    (b"https://a.b/#needs-fix https://a.b/c,#d https://a.b/_#c", []),
    (b"[text](#needs-fix) [text]( #needs-fix ) [text](<#needs-fix>)", []),
    (b"[text][#needs-fix] [[#needs-fix]] ![[a#needs-fix]]", []),
    (b"[label]: #needs-fix", []),
    (b'> [label]:  #needs-fix "with a title"', []),
    (b"[label]:\n  #needs-fix\n", []),
    (b"<a href=\"#needs-fix\"> <a href='#needs-fix'>", []),
    (b"{#needs-fix} &#a; #{a}", []),
    (b"`#needs-fix", []),
    (b"#needs-fix`", []),
]


@pytest.mark.parametrize(("data", "expected"), WHAT_IS_A_TAG)
def test_what_is_a_tag(data, expected):
    assert names(data) == expected
    assert names(b"x\r\n\r\n" + data + b"\r\n\r\nx") == expected


# Tags named #t… are tags, those named #x… are text.
WHAT_IS_TEXT = [
    b"`#x` #t",
    b"`` ` #x`` #t",
    b"`a\n#x\nb` #t",
    b"`a\n\n#t b`",
    b"# a `\n#t `",
    b"a `\n===\n#t `",
    b"a `\n- #t `",
    b"a `\n2. #x `",
    b"> a `\n#x ` lazy",
    b"> a `\n\n#t `",
    b"a ` #t `` #t",
    b"\\` #t `#x`",
    b"\\\\`#x`",
    b"``` #x ```",
    b"```\n#x\n```\n#t",
    b"```#x\n#x\n```\n#t",
    b"~~~ ` #x\n#x\n```\n#x\n~~~\n#t",
    b"````\n#x\n```\n#x\n````\n#t",
    b"``` a`b\n#t",
    b"``\n#x\n``\n#t",
    b"```\n#x",
    b"   ```\n#x\n   ```\n#t",
    b"    ```\n#t",
    b"a\n    ```\n#t",
    b"```\n#x\n    ```\n#x\n```\n#t",
    b"```\n#x\n``` a\n#x\n```\n#t",
    b"- ```\n  #x\n- #t",
    b"- ```\n  #x\n\n  #x\n  ```\n  #t",
    b"- a\n\n  ```\n  #x\n#t",
    b"- a\n  1. b\n     ~~~\n     #x\n     ~~~\n     #t",
    b"10) ```\n    #x\n    ```\n    #t",
    b"-\t```\n\t#x\n\t```\n\t#t",
    b"> ```\n> #x\n> ```\n> #t",
    b"> ```\n> #x\n#t",
    b"> - ```\n>   #x\n>\n>   #x\n> #t",
    b"> > ```\n> > #x\n> #t",
    b"- - -\n  ```\n#x\n```\n#t",
    b"-\n  ```\n  #x\n  ```\n#t",
    b"-\n\n  #t",
    b"* * *\n```\n#x\n```\n#t",
    b"<!-- #x --> #t",
    b"<!--\n#x\n\n#x --> #t",
    b"<!-- #x",
    b"a <!-- #x\n#x --> #t",
    b"a <!-- #t\n\n#t --> #t",
    b"\\<!-- #t -->",
    b"<!--> #t <!---> #t",
    b"`<!--` #t -->",
    b"<!-- ` --> #t `",
    b"<!-- -->\n`#x` #t",
    b"- <!--\n  #x\n#t",
    b"> <!-- #x\n#t",
    b"<pre>\n#x\n\n#x\n</pre>\n#t",
    b"<SCRIPT src='a'>#x\n#x</script>\n#t",
    b"<preface> #t",
    b"<div>\n#t\n</div>",
    b"---\nt: '#x'\n---\n#t",
    b"---\nt: #x\n...\n#t",
    b"---\n#t",
    b"\n---\n#t\n---",
    b"--- \nt: #x\n--- \n#t",
    b"---\n```\n---\n#t",
]


@pytest.mark.parametrize("data", WHAT_IS_TEXT)
def test_what_is_text(data):
    for same in (data, b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"), data.replace(b"a", b"\xff\xfe")):
        assert names(same) == ["t"] * data.count(b"#t")
        assert [same[tag.start : tag.end] for tag in Text(same).tags] == [b"#t"] * data.count(b"#t")


THE_TAGS_LINE = [
    (b"# T\n**Tags**: #a #b\n#c", ["a", "b"]),
    (b"**Tags**: #a\n**Tags**: #b", ["a"]),
    (b"**Tags**:", []),
    (b"**Tags**:#a", ["a"]),
    (b"**Tags**: #a", ["a"]),
    (b"\xef\xbb\xbf**Tags**: #a", ["a"]),
    (b"**Tags**: #a\r\n#b", ["a"]),
    (b"**Tags**: #a `#b` <!-- #c --> #d", ["a", "d"]),
    (b"```\n**Tags**: #a\n```\n**Tags**: #b", ["b"]),
    (b"<!--\n**Tags**: #a\n-->\n**Tags**: #b", ["b"]),
    (b"---\n**Tags**: #a\n---\n**Tags**: #b", ["b"]),
    (b"`a\n**Tags**: #a`\n\n**Tags**: #b", ["b"]),
    (b" **Tags**: #a", []),
    (b"- **Tags**: #a", []),
    (b"> **Tags**: #a", []),
    (b"x **Tags**: #a", []),
    (b"**Tags:** #a", []),
    (b"Tags: #a", []),
]


@pytest.mark.parametrize(("data", "own"), THE_TAGS_LINE)
def test_the_tags_line(data, own):
    text = Text(data)
    assert [tag.name for tag in text.own()] == own
    assert all(tag.inline for tag in text.tags if tag not in text.own())


def test_lines_and_places():
    text = Text(b"\xef\xbb\xbf# T\r\n**Tags**: #a\r\n\r\n- #b c #d\r\n`\r\n#x`\r\n\r\n#e")
    assert [(tag.name, tag.line) for tag in text.tags] == [("a", 2), ("b", 4), ("d", 4), ("e", 8)]
    assert [tag.name for tag in text.at(4)] == ["b", "d"]
    assert text.at(2) == []
    assert [text.data[tag.start : tag.end] for tag in text.tags] == [b"#a", b"#b", b"#d", b"#e"]


ITEMS = [
    (b"1. Refactor auth module #needs-implementation #P1 #M", "Refactor auth module"),
    (b"  - [ ] Mend `it` #needs-fix.", "Mend `it`."),
    (b"> ## #needs-fix Mend it\r", "Mend it"),
    (b"* [x] a [ ] b #needs-fix", "a [ ] b"),
    (b"#needs-fix", ""),
    (b"a `#needs-fix`", "a `#needs-fix`"),
    ("| é #a | b |\xff".encode("latin-1"), "| \ufffd | b |\ufffd"),
]


@pytest.mark.parametrize(("line", "said"), ITEMS)
def test_the_text_of_an_item(line, said):
    assert Text(b"# T\n" + line + b"\n#needs-fix other").item(2) == said


def test_an_item_behind_the_end_says_nothing():
    assert Text(b"a\nb").item(2) == "b"
    assert Text(b"a\nb").item(9) == ""


TITLES = [
    (b"# A title #\n", "A title"),
    (b"A title\n=======\n", "A title"),
    (b"---\na: b\n---\n\n# A title\r\n", "A title"),
    (b"text\n\n# A title", "A title"),
    (b"```\n# no\n```\n# A title", "A title"),
    (b"> # no\n\n# A title", "A title"),
    (b"## Second level\n# First", ""),
    (b"#hashtag", ""),
    (b"", ""),
]


@pytest.mark.parametrize(("data", "title"), TITLES)
def test_the_title(data, title):
    assert Text(data).title() == title


def test_weights():
    assert tags.priority([]) == "P2"
    assert tags.priority(["P1", "P0", "x"]) == "P0"
    assert tags.effort([]) is None
    assert tags.effort(["S", "L"]) == "L"
    assert [*tags.WEIGHTS] == [*tags.PRIORITIES, *tags.EFFORTS]


@pytest.mark.parametrize("name", ["a", "needs-fix", "P0", "needs-v2-1", "A-b"])
def test_names(name):
    assert tags.is_name(name)


@pytest.mark.parametrize("name", ["", "1", "-a", "a-", "a--b", "a b", "a_b", "#a", "é", "a\n", "a."])
def test_no_names(name):
    assert not tags.is_name(name)


def test_states():
    assert tags.state_of("needs-fix-login") == ("needs", "fix-login")
    for name in ("needs", "needs-", "P0", "active-alert", "done-alert", "needing-x"):
        assert tags.state_of(name) is None


FITS = [
    ("needs-fix", "needs-fix", True),
    ("needs-fixture", "needs-fix", False),
    ("needs-fix", "needs-*", True),
    ("needs", "needs-*", False),
    ("needs-fix", "*", True),
    ("needs-fix", "*-fix", True),
    ("needs-fix", "n*d*f*x", True),
    ("aba", "ab*ba", False),
    ("abba", "ab*ba", True),
    ("axbxc", "a*x*x*c", True),
    ("axc", "a*x*x*c", False),
    ("needs-fix", "*?*", False),
]


@pytest.mark.parametrize(("name", "pattern", "expected"), FITS)
def test_patterns(name, pattern, expected):
    assert tags.fits(name, pattern) is expected


WAYS = {
    (None, "needs"), ("needs", "delegated"), ("needs", "next"), ("needs", None), ("delegated", "claimed"),
    ("delegated", "needs"), ("next", "claimed"), ("next", "needs"), ("claimed", "done"), ("claimed", "needs"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [*itertools.product([None, *tags.STATES], repeat=2)])
def test_every_pair_of_states_is_legal_or_refused_with_what_is_legal(old, new):
    said = tags.refusal([f"{old}-fix"] if old else [], [f"{new}-fix"] if new else [])
    if old == new or (old, new) in WAYS:
        assert said == ""
    else:
        assert said.startswith(f"#{old or new}-fix cannot ")
        for before, after in WAYS:
            if before == old:
                assert (f"#{after}-fix (" if after else "removed (") in said.partition("legal: ")[2]


REFUSALS = [
    (["needs-a", "P1"], ["delegated-a", "P0"], ""),
    (["needs-a"], ["delegated-b"], "#delegated-b cannot be added"),
    (["needs-a", "needs-b"], ["delegated-a", "next-b"], ""),
    (["needs-a", "delegated-a"], ["claimed-a"], "#needs-a cannot become #claimed-a"),
    (["needs-a"], ["delegated-a", "next-a"], "#delegated-a and #next-a exclude each other"),
    (["P1"], ["needs-a"], ""),
    (["active-alert"], ["done-alert"], ""),
    (["done-a"], [], "nothing"),
]


@pytest.mark.parametrize(("old", "new", "said"), REFUSALS)
def test_refusals(old, new, said):
    found = tags.refusal(old, new)
    assert said in found
    assert bool(found) is bool(said)


def test_the_page_shows_the_table_of_moves_and_the_weights():
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "tags.md").read_text(encoding="utf-8")
    for (before, after), when in tags.LEGAL.items():
        assert f"| {f'`#{before}-X`' if before else '–'} | {f'`#{after}-X`' if after else 'removed'} | {when} |" in page
    assert page.count("-X` | ") == len([state for pair in tags.LEGAL for state in pair if state])
    for name, meaning in tags.WEIGHTS.items():
        assert f"| `#{name}` | {meaning} |" in page


ADDED = [
    (b"# T\n", b"# T\n**Tags**: #n\n"),
    (b"# T", b"# T\n**Tags**: #n"),
    (b"# T\r\n\r\na\r\n", b"# T\r\n**Tags**: #n\r\n\r\na\r\n"),
    (b"# T\na", b"# T\n**Tags**: #n\n\na"),
    (b"# T\n---\n", b"# T\n**Tags**: #n\n\n---\n"),
    (b"T\n===\n", b"T\n===\n**Tags**: #n\n"),
    (b"\xef\xbb\xbf# T\n", b"\xef\xbb\xbf# T\n**Tags**: #n\n"),
    (b"<!-- a -->\n# T\n", b"<!-- a -->\n# T\n**Tags**: #n\n"),
    (b"---\na: b\n---\n# T\n", b"---\na: b\n---\n# T\n**Tags**: #n\n"),
    (b"---\na: b\n---\ntext", b"---\na: b\n---\n**Tags**: #n\n\ntext"),
    (b"---\n---", b"---\n---\n**Tags**: #n"),
    (b"", b"**Tags**: #n\n"),
    (b"\xef\xbb\xbf", b"\xef\xbb\xbf**Tags**: #n\n"),
    (b"text", b"**Tags**: #n\n\ntext"),
    (b"\ntext", b"**Tags**: #n\n\ntext"),
    (b"```\n# T\n```\n", b"**Tags**: #n\n\n```\n# T\n```\n"),
    (b"#hashtag", b"**Tags**: #n\n\n#hashtag"),
    (b"**Tags**: #n", b"**Tags**: #n"),
    (b"**Tags**: #n-b", b"**Tags**: #n-b #n"),
    (b"**Tags**: #a\r\n", b"**Tags**: #a #n\r\n"),
    (b"**Tags**: #a  \nb", b"**Tags**: #a #n  \nb"),
    (b"**Tags**:\n", b"**Tags**: #n\n"),
    (b"**Tags**:", b"**Tags**: #n"),
    (b"**Tags**:`#n`\n", b"**Tags**: #n `#n`\n"),
    (b"**Tags**: #a `b\nc`", b"**Tags**: #a #n `b\nc`"),
    (b"```\n**Tags**: #a\n```\n**Tags**: #b", b"```\n**Tags**: #a\n```\n**Tags**: #b #n"),
    (b"# T\n#n inline", b"# T\n**Tags**: #n\n\n#n inline"),
]


@pytest.mark.parametrize(("before", "after"), ADDED)
def test_added(before, after):
    assert tags.added(before, "n") == after
    assert tags.added(after, "n") == after


REPLACED = [  # text, old ones, new ones, text
    (b"**Tags**: #a #b\n", ["a"], ["c"], b"**Tags**: #c #b\n"),
    (b"**Tags**: #a #b\n", ["b"], ["c"], b"**Tags**: #a #c\n"),
    (b"**Tags**: #a-b #a\n", ["a"], ["c"], b"**Tags**: #a-b #c\n"),
    (b"**Tags**: #a #b #c", ["a", "c"], ["d"], b"**Tags**: #d #b"),
    (b"**Tags**: #a #b", ["a", "b"], ["c", "d"], b"**Tags**: #c #d"),
    (b"**Tags**: #a #b", ["a"], ["b"], b"**Tags**: #b"),
    (b"**Tags**: #a #b #b", ["a", "b"], ["b"], b"**Tags**: #b"),
    (b"**Tags**: #a #b", ["a"], ["c", "c"], b"**Tags**: #c #b"),
    (b"**Tags**: #a\n#a #b", ["a"], ["b"], b"**Tags**: #b\n#a #b"),
    (b"**Tags**: #a\n", ["a"], [], b"**Tags**:\n"),
    (b"**Tags**: #a #b\r\n", ["a"], [], b"**Tags**: #b\r\n"),
    (b"**Tags**: #b  #a\n", ["a"], [], b"**Tags**: #b \n"),
    (b"**Tags**: #a", [], ["b"], b"**Tags**: #a"),
]


@pytest.mark.parametrize(("before", "old", "new", "after"), REPLACED)
def test_replaced_on_the_tags_line(before, old, new, after):
    taken = [tag for tag in Text(before).own() if tag.name in old]
    assert tags.replaced(before, taken, new) == after


REPLACED_INLINE = [
    (b"`#a` - Mend it #a.", ["a"], ["b"], b"`#a` - Mend it #b."),
    (b"Mend it #a.", ["a"], [], b"Mend it."),
    (b"#a Mend it", ["a"], [], b"Mend it"),
    (b"#a #b", ["a"], ["b"], b"#b"),
    (b"#a ```\n#b", ["a"], [], b"&nbsp; ```\n#b"),
    (b"#a <!--\n#b", ["a"], [], b"&nbsp; <!--\n#b"),
    (b"[x]: #b #a", ["a"], [], b"[x]: #b &nbsp;"),
]


@pytest.mark.parametrize(("before", "old", "new", "after"), REPLACED_INLINE)
def test_replaced_on_a_line(before, old, new, after):
    taken = [tag for tag in Text(before).at(1) if tag.name in old]
    assert tags.replaced(before, taken, new) == after


ESCAPED = [
    (b"a #x b", b"a `#x` b"),
    (b"`a` #x", b"`a` `#x`"),
    (b"a ` #x", b"a ` ``#x``"),
    (b"a ` b `` #x", b"a ` b `` ```#x```"),
    (b"a ` b\n\n#x", b"a ` b\n\n`#x`"),
    (b"a `` #x `b", b"a `` `#x` `b"),
    (b"#x #x", b"`#x` `#x`"),
    (b"\\` #x `` #x", b"\\` `#x` `` `#x`"),
    (b"**Tags**: #x", b"**Tags**: `#x`"),
]


@pytest.mark.parametrize(("before", "after"), ESCAPED)
def test_escaped(before, after):
    assert tags.escaped(before, Text(before).tags) == after
    assert names(after) == []


def test_importing_it_brings_nothing_with_it():
    """The verbs that agents call all the time start with these modules."""
    program = """if True:
        import sys, baton
        before = set(sys.modules)
        import baton.board.tags
        print(sorted(set(sys.modules) - before))
    """
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.split("'")[1::2] == ["baton.board", "baton.board.markdown", "baton.board.tags"]
