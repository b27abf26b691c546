"""`tag …`: the same verbs as in `fast.py`, as far as they are explained or not written in the plain way."""

from __future__ import annotations

from typing import Any

from baton.cli import fast
from baton.cli.call import Call, argument, verb
from baton.errors import Malformed

FILE = argument("file", metavar="FILE", help="a Markdown file; in a linked worktree, that of the main one is meant")
INLINE = argument(
    "--inline", metavar="N", type=fast.line_number, default=0, help="the tag on line N of the text, not the Tags line"
)
FORCE = argument("--force", action="store_true", help="a person's: what the rules refuse; the log says that it was")


def _given(call: Call, *names: str) -> Any:
    """What the plain reader would have made of it."""
    given = call.args
    given.words = [word for name in names for word in _list(getattr(given, name))]
    return given


def _list(value: Any) -> list[str]:
    return list(value) if isinstance(value, list) else [value]


@verb(
    FILE,
    argument("tags", metavar="TAG[,TAG]", help="with or without #, in quotes where a shell reads it"),
    FORCE,
    examples=("baton tag add sessions/plan.md '#needs-review'", "baton tag add sessions/plan.md needs-fix,P0,S"),
    stored=False,
)
def tag_add(call: Call) -> int:
    """Put tags on the Tags line of a file, which is made below the title where there is none.

    Of the states of work only #needs-X can be added: it puts work on the list, where a person approves it.
    What stands there already stays as it is, exit 0; exit 1 says that the item is under way in another state.
    """
    return fast.add(_given(call, "file", "tags"))


@verb(
    FILE,
    argument("tags", metavar="TAG[,TAG]", help="with or without #"),
    INLINE,
    FORCE,
    examples=("baton tag remove sessions/plan.md '#P1'", "baton tag remove sessions/plan.md '#needs-fix' --inline 12"),
    stored=False,
)
def tag_remove(call: Call) -> int:
    """Take tags away. Of the states of work only #needs-X can go: it dismisses the item.

    A tag that is not on the Tags line is no error; with --inline it is, exit 1.
    """
    return fast.remove(_given(call, "file", "tags"))


@verb(
    FILE,
    argument("old", metavar="OLD[,OLD]", help="whichever of these stands there"),
    argument("new", metavar="NEW[,NEW]", help="takes its place"),
    INLINE,
    FORCE,
    examples=(
        "baton tag swap sessions/fix.md '#delegated-fix' '#claimed-fix'   # take it: exit 0 is yours, 1 is somebody's",
        "baton tag swap sessions/fix.md '#claimed-fix' '#done-fix'        # it is done",
        "baton tag swap sessions/fix.md '#claimed-fix' '#needs-fix'       # give it back",
        "baton tag swap sessions/fix.md '#P2,#P1' '#P0'                   # weights change the same way",
    ),
    stored=False,
)
def tag_swap(call: Call) -> int:
    """Replace a tag by another one in one step, which exactly one of many processes makes.

    This is how work is taken: whoever swaps #delegated-X to #claimed-X has it, exit 0; all others hear who has it,
    exit 1. An item goes needs, delegated or next, claimed, done; back to needs it goes from each of them but done.
    From needs on it goes by a person's approval. Anything else is refused, exit 3, with the list of what may be.
    """
    return fast.swap(_given(call, "file", "old", "new"))


@verb(
    argument("tag", metavar="TAG", help="'#needs-fix', or with * for any text: '#needs-*'"),
    argument(
        "paths",
        nargs="*",
        default=[],
        metavar="PATH",
        help="folders or files; else ./sessions, or here where there is none",
    ),
    argument("--context", action="store_true", help="show the line of each tag, and those around it"),
    argument("--tags-only", action="store_true", help="only on Tags lines, not within the text"),
    examples=(
        "baton tag find '#needs-*'",
        "baton tag find '#needs-fix' sessions/ --context",
        "baton tag find '#claimed-*' --json",
    ),
    stored=False,
)
def tag_find(call: Call) -> int:
    """List the Markdown files with a tag, one a line, sorted; nothing and exit 0 where there is none.

    Code, comments, front matter and links hold no tags. Hidden folders, node_modules and links are left out.
    """
    return fast.find(_given(call, "tag", "paths"))


@verb(
    argument("words", nargs="+", metavar="FILE TAG", help="the file, and the tag; with --dir only the tag"),
    argument("--dir", metavar="PATH", default="", help="any file in this folder"),
    argument("--timeout", metavar="TIME", default="", help="give up after this long, exit 124; else it waits"),
    examples=(
        "baton await-tag sessions/RESEARCH_REQUEST_SIZE.md '#done-research' --timeout 30m",
        "baton await-tag --dir sessions '#needs-*'",
    ),
    stored=False,
)
def await_tag(call: Call) -> int:
    """Wait until a tag stands on the Tags line of a file; at once where it stands there already.

    It wakes when the file changes. Exit 1 says that the file is gone.
    """
    code = fast.await_tag(call.args)
    if code is None:
        raise Malformed("baton await-tag: give FILE and TAG, or --dir PATH and TAG; `baton await-tag --help` shows it")
    return code
