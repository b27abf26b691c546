"""What was done on a board: one line of JSON an event, only ever appended, each line bound to the one before it.

It is evidence, and decides where a tag alone can't: who holds an item, which approval it has, what we wrote. A
record is on the disk before `append` returns, and before the tag changes. The position of a record is a number that
only grows: that of a claim is its epoch.
"""

from __future__ import annotations

import fcntl
import os
from _thread import allocate_lock
from os.path import join

from baton import clock
from baton.board.heads import Heads, key_of
from baton.digest import sha256
from baton.errors import AuditBroken, Malformed, StoreError
from baton.stores import holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Record = dict[str, str | int]

WITHDRAWN = "withdrawn"
CHAIN = b',"chain":"'
LAST = len(CHAIN) + 64 + 3  # how much of a line its digest takes: {…,"chain":"…"}\n
LONGEST = 64 * 1024
PAGE = 1024 * 1024


class Log:
    """The log of one board, in a folder that only this user may look into."""

    __slots__ = ("_folder", "_heads", "_mine", "_number", "_process", "_root")

    def __init__(self, folder: str, root: str) -> None:
        self._folder = folder
        self._root = root
        self._number = -1
        self._heads: Heads | None = None
        self._mine = allocate_lock()  # the lock of the file is one for all threads
        self._process = 0

    @property
    def path(self) -> str:
        """Where it stands."""
        return join(self._folder, "log.jsonl")

    def append(self, event: str, path: str, noun: str, **more: str | int) -> int:
        """Write one record durably; its position. When this fails, nothing was written."""
        number, heads = self._locked()
        try:
            self._catch_up(number, heads)
            key = key_of(path, noun)
            fields: Record = {"time": clock.now(), "event": event, "path": path, "noun": noun, **more}
            at = _write(number, heads, {**fields, "prev": heads.get(key)})
            heads.note(key, at)
        finally:
            self._unlock(number)
        try:
            _sync(number)
        except OSError as error:
            self._take_back(at, path, noun)
            raise StoreError(f"{self.path}: {error.strerror}; nothing was changed; check the disk") from None
        return at

    def _take_back(self, position: int, path: str, noun: str) -> None:
        """A record that may not be on the disk counts for nobody."""
        number, heads = self._locked()
        try:
            self._catch_up(number, heads)
            fields: Record = {"time": clock.now(), "event": WITHDRAWN, "path": path, "noun": noun, "of": position}
            key = key_of(path, noun)
            heads.note(key, _write(number, heads, {**fields, "prev": heads.get(key)}))
        finally:
            self._unlock(number)

    def last(self, path: str, noun: str) -> Record | None:
        """The newest record of an item."""
        return next(iter(self.history(path, noun)), None)

    def history(self, path: str, noun: str) -> Iterator[Record]:
        """The records of an item, the newest first."""
        if not os.path.exists(self.path):
            return
        number, heads = self._locked()
        try:
            self._catch_up(number, heads)
            at = heads.get(key_of(path, noun))
        finally:
            self._unlock(number)
        while at >= 0:
            record = self.at(at)
            if (record["path"], record["noun"]) != (path, noun):
                raise AuditBroken(
                    f"{self._folder}/heads: it does not fit the log; remove it, for it is made anew from the log"
                )
            yield record
            at = int(record["prev"])

    def at(self, position: int) -> Record:
        """The record that begins at a position."""
        number, _ = self._open()
        line = os.pread(number, LONGEST, position)
        end = line.find(b"\n")
        if position < 0 or end < 0:
            raise Malformed(f"{self.path}: no record begins at {position}; `baton audit query --item FILE` lists them")
        return {"at": position, **decode(line[:end])}

    def records(self, after: int = -1) -> Iterator[Record]:
        """Every record after the one at a position, in order, each checked against the one before it."""
        if not os.path.exists(self.path):
            return
        number, _ = self._open()
        chain = bytes(32)
        for at, line in _lines(number, max(after, 0)):
            if at == after:
                chain = bytes.fromhex(line[-66:-2].decode("ascii"))
                continue
            chain = _checked(self.path, chain, at, line)
            yield {"at": at, **decode(line)}

    def of(self, event: str, word: str = "", likely: Callable[[bytes], bool] | None = None) -> Iterator[Record]:
        """The records of one event with a word in them, in order; looked for as bytes, so that a long log is no matter.

        `likely` looks at the line of such a record, and says whether it is worth reading. What it finds is not checked
        against the chain: who decides by it asks `at` or `history`.
        """
        if not os.path.exists(self.path):
            return
        number, _ = self._open()
        named, wanted = f'"event":"{event}"'.encode(), word.encode("ascii")
        for at, line in _lines(number, 0):
            if named not in line or wanted not in line or (likely is not None and not likely(line)):
                continue
            if (record := decode(line))["event"] == event:
                yield {"at": at, **record}

    def events(self, after: int = -1) -> Iterator[tuple[int, str, bytes]]:
        """Position, event and item of every record after one, as fast as lines can be read; nothing is checked.

        The item is as the line has it: `item_of` reads it.
        """
        if not os.path.exists(self.path):
            return
        number, _ = self._open()
        for at, line in _lines(number, max(after, 0)):
            if at != after:
                event = line.find(b'"event":"') + 9
                ends = line.find(b'"', event)
                noun = line.find(b',"noun":"', ends) + 9
                yield at, line[event:ends].decode("ascii", "replace"), line[ends + 2 : line.find(b'"', noun) + 1]

    def __del__(self) -> None:
        self.close()  # they are numbers to Python, which gives none back by itself

    def close(self) -> None:
        """Give the files back."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1
        if self._heads is not None:
            self._heads.close()
            self._heads = None

    def _locked(self) -> tuple[int, Heads]:
        """The log and its table, for this thread of this process alone."""
        if self._process != os.getpid():
            self._mine = allocate_lock()  # a thread that was not forked along may have held it
        self._mine.acquire()
        try:
            while True:
                number, heads = self._open()
                fcntl.flock(number, fcntl.LOCK_EX)
                if os.fstat(number).st_nlink:
                    return number, heads
                self.close()  # somebody removed it; the others write to another one by now
        except BaseException:
            self._mine.release()
            raise

    def _unlock(self, number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_UN)
        self._mine.release()

    def _open(self) -> tuple[int, Heads]:
        if self._process != os.getpid():  # what a forked child inherits is one lock with its parent
            self.close()
            self._process = os.getpid()
        if self._heads is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                self._number = os.open(self.path, flags, 0o600)
            except OSError as error:
                raise StoreError(f"{self.path}: {error.strerror}; the log of the board has to be writable") from None
            self._heads = Heads(join(self._folder, "heads"), holder.here()[1])
        return self._number, self._heads

    def _catch_up(self, number: int, heads: Heads) -> None:
        """Take what others wrote into the table; what a writer that died left behind half-written is no record."""
        size = os.fstat(number).st_size
        heads.load(size)
        if heads.upto and os.pread(number, 64, heads.upto - 67) != heads.chain.hex().encode():
            heads.forget()  # it was half written, or it is not the table of this log
        if heads.upto == size and size:
            return
        try:
            end = self._read(number, heads)
        except OSError as error:
            heads.forget()
            raise StoreError(f"{self._folder}/heads: {error.strerror}; make room, then try again") from None
        if end < size:
            os.ftruncate(number, end)
        if not end:
            self._begin(number, heads)

    def _read(self, number: int, heads: Heads) -> int:
        """Take what the table does not know of; where the last whole record ends."""
        chain, end = heads.chain, heads.upto
        for at, line in _lines(number, heads.upto):
            if b"\0" in line:  # after a power cut, what was never synced may be zeros; nor was what follows
                self._keep(number, at)
                break
            chain = _checked(self.path, chain, at, line)
            record = decode(line)
            heads.put(key_of(str(record["path"]), str(record["noun"])), at)
            end = at + len(line) + 1
        heads.save(end, chain)
        return end

    def _keep(self, number: int, at: int) -> None:
        """Put what is cut off the log aside, should it be somebody's doing and no power cut."""
        kept = os.open(
            f"{self.path}.cut-{clock.new_id()[:8]}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        try:
            while page := os.pread(number, PAGE, at):
                at += os.write(kept, page)
        finally:
            os.close(kept)

    def _begin(self, number: int, heads: Heads) -> None:
        """The first record says whose log this is, so that no position is 0."""
        first: Record = {"time": clock.now(), "event": "begun", "path": self._root, "noun": "", "log": clock.new_id()}
        _write(number, heads, {**first, "prev": -1})
        heads.save(heads.upto, heads.chain)
        _sync(number)
        folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write(number: int, heads: Heads, record: Record) -> int:
    """Append one line, whole or not at all; where it begins."""
    body, at = encode(record)[:-1], heads.upto
    chain = sha256(heads.chain + body).digest()
    line = body + CHAIN + chain.hex().encode() + b'"}\n'
    if len(line) > LONGEST:
        raise Malformed(f"a record of {len(line)} bytes for the board's log; {LONGEST} are the most")
    try:
        written = os.write(number, line)
    except OSError as error:
        raise StoreError(f"the board's log cannot be written: {error.strerror}; make room, then try again") from None
    if written < len(line):
        os.ftruncate(number, at)
        raise StoreError("the board's log cannot be written: no space left on the device; make room, then try again")
    heads.upto, heads.chain = at + len(line), chain
    return at


def _sync(number: int) -> None:
    getattr(os, "fdatasync", os.fsync)(number)


def _lines(number: int, at: int) -> Iterator[tuple[int, bytes]]:
    """The complete lines from a position on, without their newlines."""
    rest = b""
    place = at
    while page := os.pread(number, PAGE, place):
        place += len(page)
        *lines, rest = (rest + page).split(b"\n")
        for line in lines:
            yield at, line
            at += len(line) + 1


def _checked(path: str, chain: bytes, at: int, line: bytes) -> bytes:
    """The digest of this line, if it is bound to the one before it."""
    body, tail = line[: 1 - LAST], line[1 - LAST :]
    digest: bytes = sha256(chain + body).digest()
    if tail != CHAIN + digest.hex().encode() + b'"}':
        raise AuditBroken(
            f"{path}: the record at byte {at} is not what was written there; somebody or a disk changed the log. "
            "Compare it with a backup; the tags in the files are untouched"
        )
    return digest


def item_of(raw: bytes) -> tuple[str, str]:
    """The path and the noun that `Log.events` found."""
    record = decode(b"{" + raw + b"}")
    return str(record["path"]), str(record["noun"])


def encode(record: Record) -> bytes:
    """A flat document as JSON, in the order given."""
    parts = [f'"{name}":{value if isinstance(value, int) else _quoted(value)}' for name, value in record.items()]
    return ("{" + ",".join(parts) + "}").encode("ascii")


def _quoted(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escape(letter) for letter in text) + '"'


def _escape(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    number = ord(letter)
    if 32 <= number < 127:
        return letter
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


def decode(line: bytes) -> Record:
    """Read what `encode` wrote, of text and whole numbers; json would slow down the fast verbs."""
    text, at = line.decode("ascii", "replace"), 1
    record: Record = {}
    try:
        while at < len(text):
            name, at = _string(text, at)
            if text[at + 1] == '"':
                record[name], at = _string(text, at + 1)
            else:
                end = text.find(",", at)
                end = end if end >= 0 else text.index("}", at)
                record[name], at = int(text[at + 1 : end]), end
            at += 1
    except (ValueError, IndexError):
        raise Malformed(f"the board's log: no record: {text[:80]!r}; compare the log with a backup") from None
    return record


def _string(text: str, at: int) -> tuple[str, int]:
    """The string that begins here, and where the text goes on."""
    if text[at] != '"':
        raise ValueError
    end = text.index('"', at + 1)
    if "\\" not in (found := text[at + 1 : end]):
        return found, end + 1
    letters, at = [], at + 1
    while text[at] != '"':
        letter = text[at]
        if letter == "\\":
            at += 1
            letter = text[at]
            if letter == "u":
                letter, at = chr(int(text[at + 1 : at + 5], 16)), at + 4
        letters.append(letter)
        at += 1
    joined = "".join(letters)
    if any("\ud800" <= letter < "\udc00" for letter in letters):  # written as two, as JSON has it
        joined = joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return joined, at + 1
