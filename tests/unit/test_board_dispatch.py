"""The table §TAG_DISPATCH: what is read, what is refused with its line, and how a mode is done."""

import contextlib
import itertools
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from baton.board.dispatch import DEFAULT, MAX_ROWS, MAX_TEXT, MODES, Route, read_routes, way
from baton.errors import BatonError, Malformed, TooLarge

HEAD = "# Tags\n\n## §TAG_DISPATCH\n\n| Tag | Skill | Mode | Priority |\n|-----|-------|------|----------|\n"
ORIGIN = """\
| `#delegated-brainstorm` | `/brainstorm` | interactive | 1 (exploration unblocks decisions) |
| `#delegated-research` | `/research` | async (Gemini) | 2 (queue early) |
| `#delegated-fix` | `/fix` | interactive/agent | 3 (bugs block progress) |
| `#delegated-implementation` | `/implement` | interactive/agent | 4 |
| `#delegated-loop` | `/loop` | interactive | 4.5 (iteration workloads) |
| `#delegated-chores` | `/chores` | interactive | 5 (quick wins, filler) |
| `#delegated-documentation` | `/document` | interactive | 6 |
"""


def read(text):
    return read_routes(text.encode() if isinstance(text, str) else text)


def refused(rows, head=HEAD):
    with pytest.raises(Malformed) as caught:
        read(head + rows)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_the_seven_rows_are_the_default_and_read_as_they_are_written():
    assert read("# Tags\n\nThe daemon reads §TAG_DISPATCH.\n") is DEFAULT
    found = read(HEAD + ORIGIN)
    assert {noun: (one.skill, one.mode, one.priority) for noun, one in found.items()} == {
        noun: (one.skill, one.mode, one.priority) for noun, one in DEFAULT.items()
    }
    assert [one.line for one in found.values()] == list(range(7, 14))
    assert DEFAULT["loop"] == Route("loop", "loop", "interactive", 4.5)


@pytest.mark.parametrize("heading", ["# TAG_DISPATCH", "### ¶TAG_DISPATCH: routing", "## The table (`§TAG_DISPATCH`)"])
def test_the_heading_may_say_more(heading):
    assert list(read(HEAD.replace("## §TAG_DISPATCH", heading) + "| #delegated-x | /y | agent | 1 |")) == ["x"]


def test_columns_are_known_by_their_names_and_what_is_around_does_not_count():
    found = read(
        "\ufeff## §TAG_DISPATCH\r\nWhat the daemon starts.\r\n\r\n"
        "| priority | MODE | tag | Skill |\r\n|:--|--:|:-:|---|\r\n"
        "| 4.25 | agent | `#delegated-2fa-keys` | /a_b-c |\r\n"
        "\r\nAbove is all.\r\n### more of it\r\n## Next\r\n| another | table |\r\n|---|---|\r\n"
    )
    assert found == {"2fa-keys": Route("2fa-keys", "a_b-c", "agent", 4.25, 6)}


def test_code_and_comments_are_no_table():
    row = "| #delegated-x | /x | agent | 1 |\n"
    assert read(f"~~~\n{HEAD}{row}~~~~\n<!--\n{HEAD}{row}-->\n") is DEFAULT
    assert read(f"```\n{HEAD}{row}~~~\n{HEAD}{row}") is DEFAULT  # a fence that nothing closes
    assert list(read(f"```\n{HEAD}```\n{HEAD}{row}")) == ["x"]


def test_a_table_without_rows_dispatches_nothing():
    assert read(HEAD) == {}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("| #delegated-fix | /fix | agent |", "line 7: 3 cells instead of 4"),
        ("| #delegated-fix | /fix | agent | 1 | 2 |", "line 7: 5 cells"),
        ("| #needs-fix | /fix | agent | 1 |", "only what a person approved is dispatched; write #delegated-"),
        ("| #next-fix | /fix | agent | 1 |", "only what a person approved"),
        ("| #done-fix | /fix | agent | 1 |", "only what a person approved"),
        ("| fix | /fix | agent | 1 |", "'fix' is no tag for the daemon; write #delegated-"),
        ("| #delegated- | /fix | agent | 1 |", "no tag for the daemon"),
        ("| #delegated-a--b | /fix | agent | 1 |", "no tag for the daemon"),
        ("| #delegated-#(touch x) | /fix | agent | 1 |", "no tag for the daemon"),
        ("| #delegated-fix; | /fix | agent | 1 |", "no tag for the daemon"),
        ("| #delegated-ｆix | /fix | agent | 1 |", "no tag for the daemon"),
        (f"| #delegated-{'x' * 61} | /fix | agent | 1 |", "no tag for the daemon"),
        ("| #delegated-review | /check | agent | 1 |", "for a person, the daemon never starts it; remove the row"),
        ("| #delegated-rework | /check | agent | 1 |", "for a person"),
        ("| #delegated-check | /review | agent | 1 |", "for a person"),
        ("| #delegated-fix | fix | agent | 1 |", "skill 'fix'; write / and a name"),
        ("| #delegated-fix | /../fix | agent | 1 |", "skill '/../fix'"),
        ("| #delegated-fix | /bin/sh | agent | 1 |", "skill '/bin/sh'"),
        ("| #delegated-fix | /fix;x | agent | 1 |", "skill '/fix;x'"),
        ("| #delegated-fix | /$(x) | agent | 1 |", "skill '/$(x)'"),
        ("| #delegated-fix | /#(x) | agent | 1 |", "skill '/#(x)'"),
        ("| #delegated-fix | /-x | agent | 1 |", "skill '/-x'"),
        ("| #delegated-fix | /Fix | agent | 1 |", "small letters"),
        ("| #delegated-fix | /fix | agents | 1 |", "mode 'agents'; write interactive, agent, async or"),
        ("| #delegated-fix | /fix | agent/interactive | 1 |", "mode 'agent/interactive'; write"),
        ("| #delegated-fix | /fix | agent | soon |", "priority 'soon'; write a number such as 4 or 4.5"),
        ("| #delegated-fix | /fix | agent | -1 |", "priority '-1'"),
        ("| #delegated-fix | /fix | agent | nan |", "priority 'nan'"),
        ("| #delegated-fix | /fix | agent | 1e99 |", "priority '1e99'"),
        ("| #delegated-fix | /fix | agent | ４ |", "priority"),
        (
            "| #delegated-fix | /fix | agent | 1 (a\x1b[2Jb) |",
            "line 7: the character U+001B, which nobody sees; remove",
        ),
        ("| #delegated-fix | /fix | agent | 1 (\u202eb) |", "U+202E"),
        ("| #delegated-fix | /fix | agent | 1 |\x0b| x |", "U+000B"),
        ("| #delegated-fix | /fix | agent\r | 1 |", "U+000D"),
        ("#delegated-fix | /fix | agent | 1 |", "line 7: no row of the table; begin it with |"),
        (
            "| #delegated-a | /a | agent | 1 |\n\n| #delegated-b | /b | agent | 1 |",
            "line 9: a row apart from the table",
        ),
        (
            "| #delegated-a | /a | agent | 1 |\n| #delegated-a | /b | agent | 1 |",
            "line 8: #delegated-a stands in line 7 already",
        ),
        (
            "| #delegated-a | /a | agent | 1 |\n| #delegated-b | /a | agent | 1 |",
            "line 8: /a stands in line 7 already: one tag has one skill, and one skill has one tag; keep one",
        ),
    ],
)
def test_what_is_not_certainly_right_is_refused_with_its_line_and_the_cure(row, said):
    assert said in refused(row)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("## §TAG_DISPATCH\nsoon\n", "line 1: no table below this heading; write | Tag | Skill"),
        ("## §TAG_DISPATCH\n| Tag | Skill | Mode |\n", "line 2: the columns are not Tag"),
        ("## §TAG_DISPATCH\n| Tag | Skill | Mode | Priority | Run |\n", "line 2: the columns"),
        ("## §TAG_DISPATCH\n| Tag | Tag | Mode | Priority |\n", "line 2: the columns"),
        ("## §TAG_DISPATCH\n| Tag | Skill | Mode | Priority |", "line 2: no line |---|"),
        ("## §TAG_DISPATCH\n| Tag | Skill | Mode | Priority |\n| #delegated-x | /x | agent | 1 |", "line 2: no line"),
        (HEAD + HEAD, "line 9: §TAG_DISPATCH begins in line 3 already; keep one"),
    ],
)
def test_a_section_without_a_right_table_is_not_an_empty_one(text, said):
    assert said in refused(text, head="")


def test_what_is_huge_or_no_text_is_refused():
    with pytest.raises(TooLarge, match="move what is no tag"):
        read(b"x" * (MAX_TEXT + 1))
    with pytest.raises(Malformed, match="line 2: not UTF-8"):
        read(b"a\n\xff\n")
    rows = "".join(f"| #delegated-x{n} | /x{n} | agent | 1 |\n" for n in range(MAX_ROWS + 1))
    with pytest.raises(TooLarge, match=f"more than {MAX_ROWS} rows"):
        read(HEAD + rows)
    with pytest.raises(TooLarge, match="shorten the remark"):
        read(HEAD + f"| #delegated-x | /x | agent | 1 ({'x' * 3000}) |")


PIECES = [
    "## §TAG_DISPATCH",
    "# x",
    "```",
    "<!--",
    "-->",
    "| Tag | Skill | Mode | Priority |",
    "|-|-|-|-|",
    "|",
    "",
    "x",
]
LINES = st.sampled_from(PIECES + ORIGIN.splitlines()) | st.text(
    st.sampled_from("|#-/ab1.;$()`\\\t\r\x00\u202e "), max_size=30
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=30).map("\n".join) | st.text(max_size=200))
@example(HEAD + "|" * 1999)
def test_any_text_gives_safe_rows_or_one_line(text):
    found, fault = None, "TAGS.md"
    try:
        found = read_routes(text.encode("utf-8", "surrogatepass"))
    except BatonError as error:
        fault = str(error)
    assert fault.isprintable()
    assert "TAGS.md" in fault
    for noun, one in (found or {}).items():
        assert noun == one.noun
        assert (one.noun + one.skill).replace("-", "").replace("_", "").isalnum()
        assert one.mode in MODES
    assert len({one.skill for one in (found or {}).values()}) == len(found or {})


def test_reading_takes_linear_time():
    def seconds(text):
        begun = time.process_time()
        for _ in range(3):
            with contextlib.suppress(BatonError):
                read_routes(text)
        return time.process_time() - begun

    for piece in (b"<!-- ", b"``` \n", b"## \xc2\xa7TAG_DISPATCH x", b"| a ", b"(((", b"\\|", b"# #\t"):
        big = HEAD.encode() + piece * (MAX_TEXT // 2 // len(piece))
        assert seconds(big) < 2, piece


def test_a_mode_is_done_in_one_way():
    answers = {
        (mode, shows, attached): way(mode, shows=shows, attached=attached)
        for mode, shows, attached in itertools.product(MODES, (True, False), (True, False))
    }
    for (mode, shows, attached), found in answers.items():
        if mode == "async":
            assert found.mode == "async"
        elif mode == "agent":
            assert found.mode == "agent"
        elif mode == "interactive/agent":
            assert found.mode == ("interactive" if shows and attached else "agent")
        elif shows:
            assert found.mode == "interactive"
        else:
            assert found.mode is None
            assert "install tmux" in found.reason


def test_the_page_shows_the_default_table():
    page = Path(__file__).parents[2] / "docs" / "how-to" / "dispatch-tags.md"
    shown = page.read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    assert [(one.noun, one.skill, one.mode, one.priority) for one in read(shown).values()] == [
        (one.noun, one.skill, one.mode, one.priority) for one in DEFAULT.values()
    ]
