"""Research for an item of the board: its request is changed as the board changes files, under the claim of the item.

What is written into the request is noted as ours, so its approval still fits when another process goes on with the
job. Whatever only a person can mend stops the work for good, with the reason.
"""

from __future__ import annotations

import os
from pathlib import Path

from baton.board import answered, files, requests, stopped, template, wrote
from baton.board.actor import Actor
from baton.board.moves import Move, make
from baton.board.research import Outcome, Patience, Record, record, research, section
from baton.board.research.flow import Tell
from baton.board.research.request import JOB, Change, ended, section_edit, title
from baton.board.root import Board
from baton.errors import BatonError, Conflict, Refused

BY = "research"
PATIENCE = 60.0  # seconds for whoever else holds the file: after a job was started, its id must get into it


class ItemRequest:
    """The request of an item. With a claim, it may begin a job and answer while that claim counts."""

    def __init__(self, board: Board, path: str, noun: str, actor: Actor) -> None:
        self.board = board
        self.path = Path(path)
        self.noun = noun
        self.actor = actor

    def name(self, path: Path) -> str:
        """The file as the log knows it."""
        return self.board.name(str(path))

    def read(self) -> bytes:
        """The text as it is now."""
        return files.read(str(self.path))

    def note(self, title: str, change: Change) -> None:
        """Change one section, and note that it is ours."""
        name = self.name(self.path)

        def edit(data: bytes) -> bytes:
            before = section(data, title)
            lines = change(before)
            if title != JOB or Record.of(before).is_free:  # what became of a job is written in any case
                requests.current(self.board, name, self.noun, self.actor)
            if lines == before:
                return data
            data = ended(data)
            start, end, piece = section_edit(data, title, lines)
            return wrote.instead(self.board, name, data, (start, end), piece)

        files.change(str(self.path), edit, patience=PATIENCE)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def report(self) -> Path:
        """Where the report goes: the one that is linked, or that an earlier session wrote, else into this session."""
        name, data = self.name(self.path), self.read()
        if linked := answered.response(self.board, data):
            return Path(self.board.path(linked))
        file = f"{self.noun.upper().replace('-', '_')}_RESPONSE_{template.topic_name(title(data))}.md"
        job = record(data).id
        places = [
            Path(self.board.root, str(one["session"]), file)
            for one in self.board.log.history(name, self.noun)
            if one["event"] == "claimed" and one.get("session")
        ]
        for path in places if job else []:
            if path.is_file() and not path.is_symlink() and job.encode() in files.read(str(path)):
                return path
        return places[0] if places and self.actor.claim else self.path.with_name(file)


def run(request: ItemRequest, provider: str, patience: Patience, tell: Tell) -> Outcome:
    """Do the research of a claimed item, and tag it done; where only a person can go on, the work is stopped."""
    claim, name = request.actor.claim, request.name(request.path)
    if claim is None or (claim.path, claim.noun) != (name, request.noun):
        raise Refused(f"{name}: research works under a claim on it; `baton run /research {name}` makes one")
    requests.current(request.board, name, request.noun, request.actor)
    try:
        outcome = research(request, request.report(), provider=provider, patience=patience, tell=tell)
        if outcome.state == "done":
            make(Move(request.board, str(request.path), request.noun, "claimed", "done"), request.actor)
    except Conflict:
        raise  # somebody else was faster, or saves the file: the next look decides
    except BatonError as fault:
        stopped.stop(request.board, claim, BY, str(fault))
        raise
    if outcome.state not in {"done", "waiting"}:
        stopped.stop(request.board, claim, BY, f"{outcome.state}: {outcome.reason}")
    return outcome
