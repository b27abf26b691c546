"""Delegate in writing: a request from its template, and the response that is linked in it.

A response is written whole before the request names it, and what is written into the request is in the log before it
stands there. So whatever is killed in between, doing it again ends the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from baton import clock, config
from baton.board import answered, dispatch, files, moves, sessions, template, trust, wrote
from baton.board.actor import Actor, same_process
from baton.board.root import Board, board_of
from baton.board.tags import EFFORTS, PRIORITIES, Text, escaped, is_name, state_of
from baton.errors import Conflict, Fenced, Malformed, NotFound, Refused, safe
from baton.protocol import codec

Status = Literal["Complete", "Partial", "Blocked"]
STATUSES: tuple[Status, ...] = ("Complete", "Partial", "Blocked")
REQUESTED = "requested"
RESPONDED = "responded"
SUMMARY = 2000
ORIGINAL = b"*   **Original Request**: "


class Wish(msgspec.Struct, frozen=True):
    """What somebody asks for: a skill or noun, a topic, the fields of its template, weights, and the session folder."""

    skill: str
    topic: str
    fields: Mapping[str, list[str]] = {}
    weights: tuple[str, ...] = ()
    folder: str = ""


class Made(msgspec.Struct, frozen=True):
    """A file that was written, as the log knows it, and what it is for."""

    path: str
    noun: str
    request: str = ""


def new(board: Board, wish: Wish, actor: Actor) -> Made:
    """Write a request and put it on the list; nothing is ever overwritten."""
    noun = noun_of(board, wish.skill)
    topic = " ".join(safe(wish.topic).split())
    if not topic or len(topic) > template.TOPIC:
        raise Malformed(f"the topic {topic[:40]!r}: write 1 to {template.TOPIC} characters that say what it is about")
    wrong = [weight for weight in wish.weights if weight not in PRIORITIES + EFFORTS]
    if wrong:
        raise Malformed(f"{wrong[0][:40]!r} is no weight; write {', '.join(PRIORITIES + EFFORTS)}")
    folder = _folder(board, wish.folder, noun, topic, actor)
    words = {
        "topic": topic,
        "noun": noun,
        "session": board.name(str(folder)) or ".",
        "requester": actor.by,
        "date": codec.iso(clock.now())[:10],
    }
    text = template.filled(template.read(board, noun, "REQUEST"), words, wish.fields)
    data = checked(text.encode(), noun, wish.weights)
    return Made(_put(board, folder, (noun, "REQUEST", topic), data, actor), noun)


def checked(data: bytes, noun: str, weights: tuple[str, ...]) -> bytes:
    """The text of a request with its weights, if its Tags line says that it waits, and no other line is work."""
    inline = [tag for tag in Text(data).tags if tag.inline and state_of(tag.name)]
    data = escaped(data, inline)
    text = Text(data)
    own = [tag for tag in text.own() if state_of(tag.name)]
    if len(data) > template.LONGEST:
        raise Malformed(f"{len(data)} bytes in a request; at most {template.LONGEST}, put the rest into a file")
    if [tag.name for tag in own] != [f"needs-{noun}"] or any(state_of(tag.name) for tag in text.tags if tag.inline):
        raise Malformed(
            f"the template of #{noun} needs the line `**Tags**: #needs-{noun}` below its title, and no other"
        )
    at = own[0].end
    return data[:at] + b"".join(b" #" + weight.encode() for weight in dict.fromkeys(weights)) + data[at:]


def respond(board: Board, path: str, status: Status, summary: str, actor: Actor) -> Made:
    """Write the response to a request from its template into the responder's session, and link it in the request."""
    name, data = board.name(path), files.read(path)
    noun = noun_in(board, name, data, actor)
    _answers(board, name, noun, data, actor)
    if found := answered.response(board, data):
        raise Conflict(f"{name}: {found} answers it already; go on writing there")
    if len(summary) > SUMMARY:
        raise Malformed(
            f"a summary of {len(summary)} characters; at most {SUMMARY}, the response has room for the rest"
        )
    said = template.plain(summary) or "see the response"
    folder = _responding(board, name, noun, actor)
    made = _unlinked(board, folder, name)
    if not made:
        words = {
            "topic": _topic(data, name),
            "request": name,
            "requester": _requester(data),
            "session": board.name(str(folder)) or ".",
            "status": status,
            "summary": said,
        }
        text = template.filled(template.read(board, noun, "RESPONSE"), words, {})
        words_of = (noun, "RESPONSE", _topic(data, name))
        made = _put(board, folder, words_of, text.encode(), actor)
    lines = [answered.RESPONSE.decode(), *answered.section(made, f"{status}: {said}")]

    def edit(before: bytes) -> bytes:
        current(board, name, noun, actor)
        _answers(board, name, noun, before, actor)
        if found := answered.response(board, before):
            raise Conflict(f"{name}: {found} answers it already; go on writing there")
        return wrote.section(board, name, before, lines)

    files.change(path, edit, lambda _old, _new: _note(board, name, noun, made, actor))
    return Made(made, noun, name)


def listed(board: Board, folder: str = "") -> Iterator[tuple[str, str, Text]]:
    """Every request below a folder, with the tag that says where it stands, and its text."""
    for above, folders, names in os.walk(folder or board.root):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one != "node_modules")
        for one in sorted(names):
            if "_REQUEST" in one.upper() and one.endswith(".md") and not one.startswith("."):
                path = os.path.join(above, one)
                try:
                    text = Text(files.read(path))
                except (NotFound, Malformed, Conflict):
                    continue
                for tag in text.own():
                    if state_of(tag.name):
                        yield board.name(path), tag.name, text


def noun_of(board: Board, word: str) -> str:
    """The noun that a skill resolves: `/implement`, `implementation` and `#needs-implementation` are one."""
    bare = word.removeprefix("/").removeprefix("#").removeprefix("needs-")
    for route in routes(board).values():
        if bare in {route.skill, route.noun}:
            return route.noun
    if not is_name(bare) or len(bare) > template.NAME:
        raise Malformed(f"{word[:60]!r} is no skill: letters and digits from a letter on, in words joined by hyphens")
    return bare


def routes(board: Board) -> dispatch.Routes:
    """The dispatch table that counts: that of TAGS.md if it is trusted, else the default."""
    data = trust.read(board, "TAGS.md")
    return dispatch.DEFAULT if data is None else dispatch.read_routes(data)


# --- where it goes --------------------------------------------------------------------------------


def _folder(board: Board, given: str, noun: str, topic: str, actor: Actor) -> Path:
    """The session that asks: the one that was named, that of this process or of its claim, else a new one."""
    if given or config.session():
        return inside(board, given or config.session())
    session = _session(board, actor.claim.path, actor.claim.noun) if actor.claim else ""
    return inside(board, board.path(session)) if session else sessions.make(board, noun, topic)


def _responding(board: Board, name: str, noun: str, actor: Actor) -> Path:
    """The session that answers: that of this process or of its claim, else the one where the request stands."""
    if config.session():
        return inside(board, config.session())
    item = (actor.claim.path, actor.claim.noun) if actor.claim else (name, noun)
    session = _session(board, *item)
    return inside(board, board.path(session) if session else os.path.dirname(board.path(name)))


def inside(board: Board, folder: str) -> Path:
    """A folder of the board, made where it is not there yet."""
    found, real = board_of(folder)
    if found.root != board.root or not (real == board.root or real.startswith(board.root.rstrip("/") + "/")):
        raise Malformed(f"{folder}: not a folder of the board {board.root}; name one below it")
    if safe(real) != real:
        raise Malformed(f"{real}: letters in its name that nobody sees; rename it")
    try:
        Path(real).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise Malformed(f"{folder}: a file stands there, or above it; name a folder of the board") from None
    return Path(real)


def _session(board: Board, name: str, noun: str) -> str:
    record = moves.standing(board.log.history(name, noun))
    return str(record.get("session", "")) if record is not None and record["event"] == "claimed" else ""


def _put(board: Board, folder: Path, words: tuple[str, str, str], data: bytes, actor: Actor) -> str:
    """Write a new file of a name that is free; how the log knows it."""
    noun, kind, topic = words
    stem = f"{noun.upper().replace('-', '_')}_{kind}_{template.topic_name(topic)}"
    for number in range(1, 10_000):
        path = folder / (f"{stem}.md" if number == 1 else f"{stem}_{number}.md")
        if os.path.lexists(path):
            continue
        name = board.name(str(path))
        board.log.append(REQUESTED if kind == "REQUEST" else RESPONDED, name, noun, by=actor.by)
        if files.create(str(path), data):
            return name
    raise Malformed(f"{folder / stem}: ten thousand of that name; give it another topic")


# --- a request and its response -------------------------------------------------------------------


def noun_in(board: Board, name: str, data: bytes, actor: Actor) -> str:
    """The noun of the item that is answered: the one that is claimed, if there are several."""
    items = [item for tag in Text(data).own() if (item := state_of(tag.name))]
    if actor.claim is not None and actor.claim.path == name:
        current(board, name, actor.claim.noun, actor)
        return actor.claim.noun
    claimed = [noun for state, noun in items if state == "claimed"]
    nouns = claimed or [noun for _, noun in items]
    if len(nouns) != 1:
        raise Malformed(f"{name}: {len(nouns)} tags say that it is work; claim the one that you answer")
    current(board, name, nouns[0], actor)
    return nouns[0]


def current(board: Board, name: str, noun: str, actor: Actor) -> None:
    """A program whose claim is over answers nothing any more."""
    mine = actor.claim
    if mine is None or (mine.path, mine.noun) != (name, noun):
        return
    record = moves.standing(board.log.history(name, noun))
    if record is None or record["event"] != "claimed" or record["at"] != mine.epoch:
        board.log.append(moves.LATE, name, noun, by=actor.by, epoch=mine.epoch, to=RESPONDED)
        raise Fenced(f"{name}: claim {mine.epoch} is over, a newer one counts; nothing was written")


def _answers(board: Board, name: str, noun: str, data: bytes, actor: Actor) -> None:
    """Only what is claimed is answered, by who claimed it: what an answer adds counts as read by a person."""
    mine, record = actor.claim, moves.standing(board.log.history(name, noun))
    for tag in Text(data).own():
        if state_of(tag.name) in {("delegated", noun), ("next", noun)}:
            raise Refused(f"{name}: it is #{tag.name}, and nobody has begun it; claim it, then answer it")
    if mine is None or (mine.path, mine.noun) == (name, noun):
        return
    if record is None or not same_process(str(record.get("holder", "")), actor.holder):
        raise Refused(f"{name}: this program works on {mine.path}, and did not claim #{noun} here; answer that one")


def _unlinked(board: Board, folder: Path, name: str) -> str:
    """A response to this request that was written and never linked."""
    for path in sorted(folder.glob("*_RESPONSE_*.md")):
        if not path.is_symlink() and (ORIGINAL + template.plain(name).encode()) in files.read(str(path)).splitlines():
            return board.name(str(path))
    return ""


def _note(board: Board, name: str, noun: str, made: str, actor: Actor) -> None:
    board.log.append(RESPONDED, name, noun, by=actor.by, response=made)


def _topic(data: bytes, name: str) -> str:
    title = Text(data).title()
    return (title.partition("Request: ")[2] or title or Path(name).stem)[: template.TOPIC]


def _requester(data: bytes) -> str:
    for line in data.splitlines():
        if line.startswith(b"*   **Requester**: "):
            return line.partition(b": ")[2].decode("utf-8", "replace")[:200]
    return "unknown"
