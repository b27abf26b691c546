"""What is read from a file or from standard input: no more of it than a document may be."""

from __future__ import annotations

import sys
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from baton.errors import Malformed, TooLarge
from baton.protocol.codec import MAX_DOCUMENT

if TYPE_CHECKING:
    from collections.abc import Callable


def data(path: str, option: str) -> bytes:
    """The bytes of a file; - is standard input."""
    if path != "-":
        with Path(path).open("rb", buffering=0) as stream:
            return _bounded(stream.read, path)
    if sys.stdin is None:
        raise Malformed(f"{option} -: standard input is closed; give it a file or a pipe")
    return _bounded(sys.stdin.buffer.read, f"{option} -")


def _bounded(read: Callable[[int], bytes | None], what: str) -> bytes:
    found = bytearray()
    while len(found) <= MAX_DOCUMENT:
        piece = read(MAX_DOCUMENT + 1 - len(found))
        if not piece:
            return bytes(found)
        found += piece
    raise TooLarge(f"{what}: more than {MAX_DOCUMENT} bytes; name a large file with --artifact instead")


def text(given: str, option: str) -> str:
    """The text of an option, or standard input where it is -."""
    if given != "-":
        return given
    found = data("-", option)
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"{option} -: byte {error.start} is not UTF-8; write it as UTF-8") from None


def digest(file: Path) -> str:
    """The SHA-256 of a file, however large; nothing where it is none."""
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()
