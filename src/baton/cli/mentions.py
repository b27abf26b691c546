"""`escape-tags` and `session check`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from baton.board import mentions, sessions
from baton.board.actor import from_shell
from baton.board.root import board_of
from baton.cli.call import Call, argument, verb
from baton.cli.screen import Columns
from baton.errors import Malformed

FOUND = Columns(("FILE", "LINE", "TAG"))
FAULTS = Columns(("FILE", "LINE", "FAULT"))


@verb(
    argument("path", metavar="PATH", help="a Markdown file, or a folder"),
    argument("--apply", action="store_true", help="change the files; else they are only listed"),
    examples=("baton escape-tags sessions/plan.md", "baton escape-tags sessions --apply"),
    columns=(FOUND,),
    stored=False,
)
def escape_tags(call: Call) -> int:
    """Put the tags of work within a text between backticks, so that they are mentioned and no work any more.

    Only states of work (#needs-X … #done-X) and alerts, never the Tags line; weights and other words stay. Nothing is
    changed without --apply.
    """
    found = mentions.mentions(call.args.path)
    documents = [{"path": hit.path, "line": hit.line, "tag": hit.name} for hit in found]
    call.screen.table(FOUND, [(hit.path, hit.line, f"#{hit.name}") for hit in found], documents)
    if not call.args.apply:
        call.screen.hint(f"{len(found)} to put between backticks; --apply does it" if found else "nothing to escape")
        return 0
    actor = from_shell()
    changed = [path for path in dict.fromkeys(hit.path for hit in found) if mentions.escape(path, actor)]
    call.screen.hint(f"{len(changed)} {'file' if len(changed) == 1 else 'files'} changed")
    return 0


@verb(
    argument("dir", metavar="DIR", help="the folder of the session"),
    examples=("baton session check sessions/2026_02_13_FIX",),
    columns=(FAULTS,),
    stored=False,
)
def session_check(call: Call) -> int:
    """Look whether a session may end: no bare tag of work in its texts, and each request that it got is answered.

    A tag in a text is promoted (write a request for it), acknowledged, or put between backticks by
    `baton escape-tags`. `tagCheckPassed` in .state.json says that somebody looked. Exit 1 lists what is in the way.
    """
    _, real = board_of(call.args.dir)
    requests, looked = _state(Path(real))
    found = mentions.faults(call.args.dir, requests)
    if looked:
        found = [fault for fault in found if fault[0] in requests]
    documents = [{"path": path, "line": line, "fault": what} for path, line, what in found]
    call.screen.table(FAULTS, [(path, line or "", what) for path, line, what in found], documents)
    if found:
        call.screen.hint(
            "write requests for what is work; `baton escape-tags DIR --apply` escapes what is only mentioned"
        )
    return 1 if found else 0


def _state(folder: Path) -> tuple[list[str], bool]:
    """The requests of a session, and whether somebody said that its tags are as they should be."""
    file = folder / sessions.FILE
    try:
        state = msgspec.json.decode(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return [], False
    except (OSError, msgspec.DecodeError):
        raise Malformed(f"{file}: it cannot be read; mend or remove it") from None
    if not isinstance(state, dict):
        raise Malformed(f"{file}: not a JSON object; mend or remove it")
    listed = state.get("requestFiles")
    named = [*(listed if isinstance(listed, list) else []), state.get("request")]
    board, _ = board_of(str(folder))
    requests = [one if Path(one).is_absolute() else board.path(one) for one in named if isinstance(one, str) and one]
    return list(dict.fromkeys(requests)), state.get("tagCheckPassed") is True
