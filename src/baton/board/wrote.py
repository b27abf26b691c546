"""What baton itself wrote into a file: it is no part of what a person approves.

A session line, a `## Recovery` or `## Response` section, the link in the place of an inline tag: each is noted in the
log byte for byte before it stands in the file. Taken out again, what is left is what people and agents wrote, and
only that is hashed. A text that merely looks like one of these sections is theirs.
"""

from __future__ import annotations

from baton.board.tags import HEAD, Text
from baton.digest import sha256
from baton.errors import TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from baton.board.root import Board

WROTE = "wrote"
LONGEST = 16 * 1024


def section(board: Board, name: str, data: bytes, lines: list[str]) -> bytes:
    """The text with a section at its end, behind an empty line; noted in the log."""
    newline = _newline(data)
    gap = newline if data and not data.endswith(b"\n") else b""
    piece = newline + b"".join(_encoded(line) + newline for line in lines)
    _note(board, name, b"", piece)
    return data + gap + piece


def below_tags(board: Board, name: str, data: bytes, line: str) -> bytes:
    """The text with one more line right below its Tags line; noted in the log."""
    text, newline = Text(data), _newline(data)
    end = data.find(b"\n", text.head) if text.head >= 0 else text.markdown.body - 1
    if end < 0 <= text.head:  # the Tags line is the last one, without a newline
        data, end = data + newline, len(data) + len(newline) - 1
    at = end + 1
    piece = _encoded(line) + newline
    _note(board, name, b"", piece)
    return data[:at] + piece + data[at:]


def instead(board: Board, name: str, data: bytes, place: tuple[int, int], line: bytes) -> bytes:
    """The text with another line in the place of one that begins and ends there; noted in the log."""
    start, end = place
    _note(board, name, data[start:end], line)
    return data[:start] + line + data[end:]


def theirs(board: Board, name: str, data: bytes) -> bytes:
    """The text as it is without what we wrote, the newest of it taken out first."""
    for record in board.log.history(name, ""):
        if record["event"] == WROTE:
            data = _without(data, _bytes(str(record["text"])), _bytes(str(record["was"])))
    return data


def digest(board: Board, name: str, data: bytes) -> str:
    """The SHA-256 of what people and agents wrote, without the tags of the Tags line and the newlines at the end."""
    data = theirs(board, name, data)
    text = Text(data)
    if text.head >= 0:
        end = data.find(b"\n", text.head)
        end = end if end >= 0 else len(data)
        words = _words(text, end)
        data = data[: text.head] + words + (b"\n" if words else b"") + data[end + 1 :]
    hashed: str = sha256(data.rstrip(b"\r\n")).hexdigest()
    return hashed


def _words(text: Text, end: int) -> bytes:
    """What stands on the Tags line beside its tags: whoever does the work reads it, too."""
    at, pieces = text.head, list[bytes]()
    for tag in text.own():
        pieces.append(text.data[at : tag.start])
        at = tag.end
    pieces.append(text.data[at:end])
    line = b" ".join(pieces).removeprefix(HEAD)
    return b" ".join(line.split())


def _without(data: bytes, piece: bytes, was: bytes) -> bytes:
    """The text with whole lines that we wrote turned back into what stood there."""
    at = data.find(piece)
    while at > 0 and data[at - 1] != 10:
        at = data.find(piece, at + 1)
    end = at + len(piece)
    whole = piece.endswith(b"\n") or data[end : end + 1] in {b"", b"\n"} or data[end : end + 2] == b"\r\n"
    return data[:at] + was + data[end:] if at >= 0 and whole else data


def _note(board: Board, name: str, was: bytes, piece: bytes) -> None:
    if len(was) + len(piece) > LONGEST:
        raise TooLarge(f"{name}: {len(piece)} bytes in one section; {LONGEST} are the most, put the rest into a file")
    board.log.append(WROTE, name, "", text=_text(piece), was=_text(was))


def _newline(data: bytes) -> bytes:
    return b"\r\n" if b"\r\n" in data[:4096] else b"\n"


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_bytes = _encoded
