"""Every Python and shell block of the README, the tutorials and the how-to pages runs as written.

The blocks of a page run in order in one new directory:

- `python` is a program. When its first line is a comment with a file name (`# team.py`), it is saved under
  that name instead, for later blocks to run.
- `sh` runs with `sh -eu`; later blocks see the variables that it set.
- `output` is what the block before it printed. A line `...` stands for any lines, `...` within a line for
  any characters.
- `python error` is a program that fails, and its `output` is the last line of what it says.

Blocks in another language (`text`, `mermaid`, `json`) illustrate and are not run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
FENCE = re.compile(r"^```(.*)$")
NAMED = re.compile(r"# ([\w-]+\.py)$")
KINDS = {"python", "python error", "sh", "output", "text", "mermaid", "json", "toml"}


def blocks(text):
    """(kind, first line, body) of each fenced block."""
    found, kind, start, body = [], None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence is None:
            body.append(line)
        elif kind is None:
            kind, start, body = fence[1].strip(), number, []
        else:
            found.append((kind, start, "\n".join(body)))
            kind = None
    assert kind is None, f"line {start}: the block does not end"
    return found


def matches(wanted, got):
    lines = []
    for line in wanted.strip().splitlines():
        if line.strip() == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*".join(re.escape(part.rstrip()) for part in line.split("...")) + r"[^\S\n]*\n")
    return re.fullmatch("".join(lines), got.strip() + "\n") is not None


class Shelf:
    """One directory in which the blocks of a page run."""

    def __init__(self, place):
        self.place = place
        self.env = {
            "HOME": str(place / "home"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "USER": "ana",
            "COLUMNS": "120",
        }

    def run(self, kind, body):
        if kind == "sh":
            kept = "[ ! -f .variables ] || . ./.variables\nset -a\n"
            argv = ["sh", "-eu", "-c", f"{kept}{body}\nexport -p > .variables\n"]
        elif named := NAMED.match(body.partition("\n")[0]):
            (self.place / named[1]).write_text(body + "\n")
            return None
        else:
            argv = [sys.executable, "-c", body]
        done = subprocess.run(
            argv, cwd=self.place, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        if kind == "python error":
            assert done.returncode == 1, f"it did not fail:\n{done.stdout}"
            return done.stderr.strip().splitlines()[-1]
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_as_written(page, tmp_path):
    shelf, printed = Shelf(tmp_path), None
    for kind, line, body in blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name}, line {line}"
        assert kind in KINDS, f"{where}: {kind!r} is none of {sorted(KINDS)}"
        if kind == "output":
            assert printed is not None, f"{where}: no block before this one printed anything"
            assert matches(body, printed), f"{where}: expected\n{body}\nbut it printed\n{printed}"
        elif kind in {"python", "python error", "sh"}:
            try:
                printed = shelf.run(kind, body)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                pytest.fail(f"{where}: {error}", pytrace=False)


LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_lead_somewhere(page):
    links = LINK.findall(page.read_text(encoding="utf-8"))
    dead = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not dead


def linked(page):
    return {
        (page.parent / link).resolve() for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link
    }


def test_the_index_leads_to_every_page():
    docs = ROOT / "docs"
    pages = set(docs.rglob("*.md")) - {docs / "index.md"}
    assert sorted(page.name for page in pages - linked(docs / "index.md")) == []


WORDS = (
    "handoff", "request", "line", "hop", "workflow", "conversation", "claim", "epoch", "lease", "fenced", "late",
    "acknowledge", "breaker", "parked", "checkpoint", "seal",
)  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_our_own_is_explained(word):
    said = (ROOT / "docs" / "reference" / "words.md").read_text(encoding="utf-8")
    assert re.search(rf"(?im)^\*\*{word}\*\* \S", said)


@pytest.mark.parametrize(
    "page", ["docs/index.md", "docs/tutorial/first-handoff.md", "docs/explanation/architecture.md"]
)
def test_the_words_are_near_where_they_are_met(page):
    assert (ROOT / "docs" / "reference" / "words.md") in linked(ROOT / page)


def test_what_is_not_built_yet_is_for_contributors():
    before, _, after = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").partition("**Work on it.**")
    for page in ("conformance.md", "explanation/seam-trial.md"):
        assert page not in before
        assert page in after


def test_the_commands_that_the_readme_names_are_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in ("script/demo", "script/test"):
        assert command in text
        assert os.access(ROOT / command, os.X_OK)


@pytest.mark.parametrize(
    ("wanted", "got", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc\n", False),
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a\n...\nd", "a\nd\n", True),
        ("a ... c", "a 17 c\n", True),
        ("a ... c", "a 17 d\n", False),
        ("a", "a\nb\n", False),
    ],
)
def test_expected_output_is_compared(wanted, got, same):
    assert matches(wanted, got) is same
