"""The moves of an item: is it legal, is it the owner's to make, then log and file, in this order."""

from __future__ import annotations

from baton.board import files
from baton.board import log as records
from baton.board.actor import comes_from, same_process
from baton.board.tags import HEAD, LEGAL, Tag, Text, refusal, replaced, state_of
from baton.errors import BatonError, Conflict, Fenced, Held, NotFound, Refused
from baton.stores import holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from baton.board.actor import Actor
    from baton.board.log import Record
    from baton.board.root import Board

    Event = tuple[str, str, Record]  # its name, the noun of the item, what else is said

REMOVED = "removed"
WITHDRAWN = records.WITHDRAWN
LATE = "late"
APPROVED = frozenset({"delegated", "next"})  # where an item gets from needs by a person's approval
STATES = frozenset({"needs", "delegated", "next", "claimed", "done", REMOVED})


class Move:
    """One move of one item of the board."""

    __slots__ = ("also", "board", "forced", "line", "more", "noun", "origin", "path", "seen", "to")

    def __init__(self, board: Board, path: str, noun: str, origin: str, to: str | None) -> None:
        self.board = board
        self.path = path  # the real one
        self.noun = noun
        self.origin = origin  # the state it must be in
        self.to = to  # None: the tag is removed
        self.line = 0  # of an inline tag; 0 is the Tags line
        self.more: dict[str, str | int] = {}  # what else goes into the record
        self.also: Callable[[bytes], bytes] | None = None  # what else changes in the text, in the same step
        self.seen = -1  # the record that somebody with the right to decided on; the move counts while it is the newest
        self.forced = False

    @property
    def name(self) -> str:
        """The file as the log knows it."""
        return self.board.name(self.path)


def make(move: Move, actor: Actor) -> int:
    """Make a move; the position of its record, which is the epoch where it claims."""
    _legal(move)
    _look(move)

    def edit(data: bytes) -> bytes:
        found = _found(move, data, actor)
        if move.seen >= 0:
            _unchanged(move)
        elif move.origin != "claimed" and not move.forced:
            _free(move, actor)
        elif move.origin == "claimed" and not move.forced:
            _owned(move, actor)
        new = replaced(data, found, [f"{move.to}-{move.noun}"] if move.to else [])
        new = move.also(new) if move.also is not None else new
        _approved(move)
        _answered(move, data)
        return new

    def events(_old: bytes, _new: bytes) -> list[Event]:
        fields: Record = {"from": move.origin, **move.more}
        if move.to == "claimed":
            fields.update(holder=actor.holder, supervised=int(actor.supervised))
        if move.line:
            fields["line"] = move.line
        if move.forced:
            fields["forced"] = 1
        return [(move.to or REMOVED, move.noun, fields)]

    return write(move.board, move.path, edit, events, actor)[0]


def _answered(move: Move, data: bytes) -> None:
    """A request is done when it has its response, unless somebody with the right to decided so."""
    if move.to == "done" and move.seen < 0 and not move.forced:
        from baton.board.answered import demand

        demand(move.board, move.path, move.noun, data)


def write(
    board: Board, path: str, edit: Callable[[bytes], bytes], events: Callable[[bytes, bytes], list[Event]], actor: Actor
) -> list[int]:
    """Change a file, after the records of what is about to happen; none where nothing is to be changed."""
    log, name = board.log, board.name(path)
    written: list[tuple[str, int]] = []
    wanted = b""

    def edited(data: bytes) -> bytes:
        nonlocal wanted
        wanted = edit(data)
        return wanted

    def note(old: bytes, new: bytes) -> None:
        for event, noun, fields in events(old, new):
            written.append((noun, log.append(event, name, noun, by=actor.by, **fields)))

    try:
        files.change(path, edited, note)
    except BaseException:
        if written and not _holds(path, wanted):  # the last step may have been done before it was interrupted
            for noun, position in written:
                log.append(WITHDRAWN, name, noun, of=position, by=actor.by)
        raise
    return [position for _, position in written]


def _holds(path: str, data: bytes) -> bool:
    try:
        return files.read(path) == data
    except BatonError:
        return False


def origin_of(board: Board, path: str, line: int, noun: str, states: list[str]) -> str:
    """In which of these states an item is, at a first look; the first one where it is in none."""
    if len(states) == 1:
        return states[0]
    there = _states(Text(files.read(path)), line, noun)
    found = [state for state in states if f"{state}-{noun}" in there]
    if len(found) > 1:
        raise Conflict(f"{board.name(path)}: it is {' and '.join(f'#{one}-{noun}' for one in found)}; name only one")
    return found[0] if found else states[0]


def already(move: Move, actor: Actor) -> bool:
    """Whether a program asks again for what it holds: then it has it, and nothing is to be done."""
    mine = actor.claim
    if mine is None or move.to != "claimed" or (mine.path, mine.noun) != (move.name, move.noun) or move.line:
        return False
    if f"claimed-{move.noun}" not in _states(Text(files.read(move.path)), 0, move.noun):
        return False
    _current(move, actor)
    return True


def standing(history: Iterable[Record], line: int = 0) -> Record | None:
    """The newest record of an item that says where it stands, of its history with the newest first."""
    withdrawn = set()
    for record in history:
        if record["event"] == WITHDRAWN:
            withdrawn.add(record["of"])
        elif record["event"] in STATES and record["at"] not in withdrawn and record.get("line", 0) == line:
            return record
    return None


def _standing(move: Move) -> Record | None:
    return standing(move.board.log.history(move.name, move.noun), move.line)


def _legal(move: Move) -> None:
    if move.origin == move.to:
        raise Refused(f"{move.name}: #{move.origin}-{move.noun} stays what it is; name the state that it is to go to")
    if not move.forced and (move.origin, move.to) not in LEGAL:
        reason = refusal([f"{move.origin}-{move.noun}"], [f"{move.to}-{move.noun}"] if move.to else [])
        raise Refused(f"{move.name}: {reason}. A person may --force it")


def _approved(move: Move) -> None:
    """From needs on an item goes by the approval of a person, which `approvals` has noted."""
    if move.origin == "needs" and move.to in APPROVED and "approval" not in move.more and not move.forced:
        raise Refused(
            f"{move.name}: #{move.to}-{move.noun} takes the approval of a person; give it in `baton review`, "
            "or in a terminal of your own with `baton review --approve FILE`"
        )


def _states(text: Text, line: int, noun: str) -> list[str]:
    """The tags that say in which state an item is: one, unless somebody wrote more."""
    there = text.at(line) if line else text.own()
    return [tag.name for tag in there if (state_of(tag.name) or ("", ""))[1] == noun]


def _look(move: Move) -> None:
    """Answer who comes too late without a lock; only what certainly stands there counts, for a save may go on."""
    data = files.read(move.path)
    if f"#{move.origin}-{move.noun}".encode() in data or move.line:
        return
    head = data.find(HEAD)
    if head >= 0 and f"#claimed-{move.noun}".encode() in data[head : data.find(b"\n", head) + 1 or len(data)]:
        raise _lost(move, [f"claimed-{move.noun}"])


def _found(move: Move, data: bytes, actor: Actor) -> list[Tag]:
    """The tag that is to move, perhaps written twice; else who was faster.

    Where an old text was saved over the tag of a claim, its owner still finds it: the log says whose it is.
    """
    text = Text(data)
    states = _states(text, move.line, move.noun)
    there = text.at(move.line) if move.line else text.own()
    wanted = f"{move.origin}-{move.noun}"
    found = [tag for tag in there if tag.name == wanted]
    if not found and move.origin == "claimed" and len(set(states)) == 1 and _is_mine(move, actor):
        return [tag for tag in there if tag.name == states[0]]
    if not found or (set(states) != {wanted} and not move.forced):
        raise _lost(move, states)
    return found


def _lost(move: Move, found: list[str]) -> Exception:
    where = f"line {move.line}" if move.line else "the Tags line"
    wanted = f"{move.name}: no #{move.origin}-{move.noun} on {where}"
    if f"claimed-{move.noun}" in found:
        return Held(_Taken(move, wanted))
    if f"{move.origin}-{move.noun}" in found:
        return Conflict(f"{move.name}: it is #{' and #'.join(found)} at once; remove all but one with --force")
    if found:
        return Conflict(f"{wanted}: it is #{', #'.join(found)} by now")
    return NotFound(f"{wanted}; `baton tag find '#*-{move.noun}'` shows where it stands")


class _Taken:
    """That an item has an owner, and who it is when somebody reads it: a loser that goes on asks no log."""

    __slots__ = ("_move", "_wanted")

    def __init__(self, move: Move, wanted: str) -> None:
        self._move = move
        self._wanted = wanted

    def __str__(self) -> str:
        record = _standing(self._move)
        if record is None or record["event"] != "claimed":
            return f"{self._wanted}: already claimed, by somebody of whom the log knows nothing"
        owner = holder.readable(str(record["holder"]))
        return f"{self._wanted}: already claimed by {owner} (claim {record['at']})"


def _unchanged(move: Move) -> None:
    record = _standing(move)
    if record is None or record["at"] != move.seen:
        raise Conflict(f"{move.name}: somebody moved #{move.origin}-{move.noun} just now; look again")


def _owned(move: Move, actor: Actor) -> None:
    """What is claimed moves on by its owner, or when its owner is certainly gone."""
    mine = actor.claim
    if mine is not None and (mine.path, mine.noun) == (move.name, move.noun):
        _current(move, actor)
        return
    record = _standing(move)
    if record is None or record["event"] != "claimed":
        return  # a tag that somebody wrote by hand; the log says that this move was made without a claim
    owner = str(record["holder"])
    if same_process(owner, actor.holder) or holder.life(owner) == "dead":
        return
    raise Held(
        f"{move.name}: {holder.readable(owner)} holds it (claim {record['at']}) and is not known to be dead; "
        "end it first, or --force if you know better"
    )


def _free(move: Move, actor: Actor) -> None:
    """What the log says is claimed is nobody else's, though its tag was put back, as by an old text that was saved."""
    record = _standing(move)
    if record is None or record["event"] != "claimed":
        return
    owner = str(record["holder"])
    life = holder.life(owner)
    if life == "alive" or (move.to == "claimed" and life != "dead" and not same_process(owner, actor.holder)):
        raise Held(
            f"{move.name}: #{move.origin}-{move.noun} was put back, and {holder.readable(owner)} still works on it "
            f"(claim {record['at']}); wait for it or end it, or --force if you know better"
        )


def _is_mine(move: Move, actor: Actor) -> bool:
    mine, record = actor.claim, _standing(move)
    if mine is None or record is None or (mine.path, mine.noun) != (move.name, move.noun):
        return False
    return record["event"] == "claimed" and record["at"] == mine.epoch


def _current(move: Move, actor: Actor) -> None:
    """The claim of a program must be the one that counts; else what it wants is noted as late."""
    record, mine = _standing(move), actor.claim
    if mine is not None and (record is None or record["at"] != mine.epoch):
        move.board.log.append(LATE, move.name, move.noun, by=actor.by, epoch=mine.epoch, to=move.to or REMOVED)
        raise Fenced(f"{move.name}: claim {mine.epoch} is over, a newer one counts; nothing was changed")
    if mine is None or record is None or not record.get("supervised"):
        return
    owner = str(record["holder"])
    if holder.life(owner) == "alive" and not comes_from(int(owner.split("/")[2])):
        raise Held(
            f"{move.name}: {holder.readable(owner)} holds it (claim {mine.epoch}), and this process does not come from "
            "it, though BATON_CLAIM says so; who works on something else unsets it"
        )
