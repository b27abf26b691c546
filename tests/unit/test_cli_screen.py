"""What is printed is harmless and aligned, whatever it came from."""

import json

import pytest

from baton.cli import records, screen
from baton.cli.screen import Columns, Screen
from baton.errors import safe

HOSTILE = [
    "\x1b[2J\x1b]0;owned\x07",
    "a\rb",
    "a\nerror: b",
    "\x9b31m",
    "\x7f",
    "abc\u202edef",
    "\u2066x\u2069",
    "zero\u200bwidth\u200d\ufeff",
    "\u3164",
    "tag\U000e0041",
    "sel\ufe0f",
    "\ud800",
    "\u2028",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_spelled_out(text):
    said = safe(text)
    assert said.isprintable()
    assert "\\" in said


def test_plain_text_of_any_language_stays_as_it_is():
    text = "Grüße 你好 שלום 🙂 ½"
    assert safe(text) == text


@pytest.mark.parametrize("text", [one for one in HOSTILE if one != "\ud800"])
def test_json_spells_it_out_and_means_the_same(text, capsys):
    Screen(as_json=True).document({"text": text, "other": "ü🙂"})
    line = capsys.readouterr().out.rstrip("\n")
    assert line.isprintable()
    assert json.loads(line) == {"text": text, "other": "ü🙂"}


def test_an_error_is_one_line(capsys):
    screen.complain("a\nb\x1b[31m", "Refused", as_json=False)
    assert capsys.readouterr().err == "error: a\\nb\\u{1b}[31m\n"


def test_tables_into_a_pipe_are_whole_and_tab_separated(capsys):
    Screen(as_json=False).table(Columns(("A", "B"), spare=("A",)), [("x" * 300, "a\tb")])
    assert capsys.readouterr() == ("x" * 300 + "\ta\\tb\n", "")


def drawn(width, columns, rows):
    """The lines of a table on a terminal of this width."""
    shown = Screen(as_json=False)
    shown.tty, shown.width = True, width
    return list(shown.drawn(columns, rows))


COLUMNS = Columns(("ID", "STATE", "ROUTE", "AGE", "TASK"), spare=("AGE", "STATE"))
ROWS = [("3fa2c81b", "completed", "a-very-long-name → another-long-name", "12 min", "word " * 40)]


@pytest.mark.parametrize("width", [20, 46, 60, 80, 120, 400])
def test_a_table_is_never_wider_than_the_terminal(width):
    assert max(map(screen._width, drawn(width, COLUMNS, ROWS))) <= width


def test_the_long_columns_give_way_together():
    head, row = drawn(80, COLUMNS, ROWS)
    assert head.split() == ["ID", "STATE", "ROUTE", "AGE", "TASK"]
    assert "a-very-long-name → anot…  12 min  word word word word word…" in row


def test_where_there_is_no_room_the_least_important_columns_are_left_out():
    assert [drawn(width, COLUMNS, ROWS)[0].split() for width in (46, 38, 30)] == [
        ["ID", "STATE", "ROUTE", "TASK"],
        ["ID", "ROUTE", "TASK"],
        ["ID", "ROUTE", "TASK"],
    ]
    assert drawn(46, COLUMNS, ROWS)[1].startswith("3fa2c81b  completed  a-very-")


def test_a_last_column_that_has_to_be_read_goes_on_below():
    columns = Columns(("ID", "ABOUT", "TEXT"), spare=("ABOUT",), folded=True)
    rows = [("3fa2c81b", "9d1e7c55", "nobody has taken it for 30 s; start a worker"), ("9d1e0000", "", "short")]
    assert drawn(34, columns, rows) == [
        "ID        TEXT",
        "3fa2c81b  nobody has taken it for",
        "          30 s; start a worker",
        "9d1e0000  short",
    ]


def test_a_column_with_nothing_in_it_is_left_out():
    assert drawn(80, Columns(("A", "B", "C")), [("1", "", "3"), ("1", "", "4")]) == ["A  C", "1  3", "1  4"]


def test_tables_for_a_person_fit_the_terminal_and_align_wide_letters():
    lines = drawn(40, Columns(("NAME", "TASK")), [("你好", "z" * 200), ("ab", "short")])
    assert len(lines) == 3
    assert all(screen._width(line) <= 40 for line in lines)
    assert lines[1].startswith("你好  zzz")
    assert lines[2] == "ab    short"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0123, "12 ms"), (3.21, "3.2 s"), (75, "75 s"), (600, "10 min"), (8000, "2 h"), (400_000, "5 d"), (-1, "0 ms")],
)
def test_lengths_of_time(seconds, said):
    assert records.lasting(seconds) == said
