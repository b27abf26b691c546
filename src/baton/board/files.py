"""Change one file: no two processes at once, no reader sees half of it, no save of a person is lost.

1. Lock the file itself, and look whether it is still the one that its name means.
2. Take a lease on it where there are leases: nobody has it open for writing, and who wants to waits for us.
3. Read, edit, write the result beside it, let the caller note what is about to happen.
4. Exchange the two names in one step. What was displaced must be what was read; if a save slipped in between,
   exchange them back and begin again with what was saved.

The result is on its way to the disk before the note is synced, and there before the names change: after a power cut the
file holds the text before or the text after, whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from os.path import basename, dirname, join

from baton import clock
from baton.board import exchange
from baton.errors import Conflict, Held, Malformed, NotFound, Refused, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Edit = Callable[[bytes], bytes]
    Note = Callable[[bytes, bytes], None]

LARGEST = 16 * 1024 * 1024
PATIENCE = 10.0  # seconds for whoever else holds the file
OPEN_FOR_LONG = 1.0  # a program that has the file open for writing longer than this keeps it open, and saves nothing
TRIES = 1000
SIGURG = 23  # what a lease sends when somebody wants to write; a process ignores it unless it asked for it
MARK = ".baton-"  # in the names of our own files beside the one that is changed


def read(path: str) -> bytes:
    """The bytes of a file of the board."""
    number = _opened(path)
    try:
        return _content(number, path)[1]
    finally:
        os.close(number)


def change(path: str, edit: Edit, note: Note | None = None, patience: float = PATIENCE) -> bytes:
    """Change a file to what `edit` makes of it, after `note` has been told both; the bytes that it has now.

    `edit` may be called again when somebody else saves meanwhile, `note` is called once; both may refuse by an error.
    """
    until = clock.monotonic() + patience
    for attempt in range(TRIES):
        number = _locked(path, until)
        try:
            leased = _lease(number, until)
            before, old = _content(number, path)
            new = edit(old)
            if new == old:
                return old
            beside, made = _written(path, before, new)
            try:
                exchange.begin(made)
                if note is not None:
                    note(old, new)
                    note = None
                if _put(path, beside, made, (number, before, leased)):
                    return new
            finally:
                os.close(made)
                _removed(beside)
        finally:
            os.close(number)
        time.sleep(min(0.0002 * 2**attempt, 0.02))
        if clock.monotonic() > until:
            break
    raise Conflict(f"{path}: somebody saves it all the time; nothing was changed; try again when that is over")


def create(path: str, data: bytes) -> bool:
    """Make a new file, whole and on the disk; False where there is one of that name already, which is left alone."""
    beside = _beside(path)
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        _write(number, data)
        os.fsync(number)
        os.link(beside, path, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; it was not made") from None
    finally:
        os.close(number)
        _removed(beside)
    folder = os.open(dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _opened(path: str) -> int:
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Conflict(f"{path}: it became a link just now; nothing was changed") from None
        raise NotFound(f"{path}: {error.strerror}; name a Markdown file that is there") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise Malformed(f"{path}: not a regular file; name a Markdown file")
    return number


def _locked(path: str, until: float) -> int:
    """The file that this name means, locked."""
    pause = 0.0001
    while True:
        number = _opened(path)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine, there = os.fstat(number), os.stat(path, follow_symlinks=False)
            if (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev):
                return number
        except FileNotFoundError:
            pass  # removed just now: the next look says so
        except BlockingIOError:
            if clock.monotonic() > until:
                os.close(number)
                raise Held(f"{path}: another process has locked it for {PATIENCE:g} s; try again, or end it") from None
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
        except BaseException:
            os.close(number)
            raise
        os.close(number)


def _lease(number: int, until: float) -> bool:
    """Whether from now on nobody writes to this file without our knowing; a save that goes on is waited for."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    pause, least = 0.0001, min(until, clock.monotonic() + OPEN_FOR_LONG)
    while True:
        try:
            fcntl.fcntl(number, fcntl.F_SETSIG, SIGURG)
            fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            return True
        except OSError as error:
            if error.errno != errno.EAGAIN or clock.monotonic() > least:
                return False  # no leases here, or it is open for writing and stays so
        time.sleep(pause)
        pause = min(2 * pause, 0.01)


def _content(number: int, path: str) -> tuple[os.stat_result, bytes]:
    """What the file is and holds; read again when it changed meanwhile."""
    while True:
        before = os.fstat(number)
        if before.st_size > LARGEST:
            raise TooLarge(f"{path}: {before.st_size} bytes; {LARGEST} are the most for a file with tags")
        data = os.pread(number, before.st_size + 1, 0)
        if len(data) == before.st_size and _same(before, os.fstat(number)):
            return before, data
        time.sleep(0.0005)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_dev, one.st_mtime_ns, one.st_size) == (
        other.st_ino,
        other.st_dev,
        other.st_mtime_ns,
        other.st_size,
    )


def _written(path: str, like: os.stat_result, new: bytes) -> tuple[str, int]:
    """A file beside this one with the new text, and with its owner and rights."""
    if not like.st_mode & 0o222:
        raise Refused(f"{path}: it is read-only; make it writable if it may be changed")
    if like.st_nlink > 1:
        raise Refused(
            f"{path}: it has {like.st_nlink} names (hard links), which a change would part; remove the others"
        )
    beside = _beside(path)
    try:
        number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(
            f"{dirname(path)}: {error.strerror}; a file is changed by way of a second one beside it"
        ) from None
    try:
        fcntl.flock(number, fcntl.LOCK_EX)  # whoever finds it unlocked knows that its maker is gone
        _write(number, new)
        made = os.fstat(number)
        if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(number, like.st_uid, like.st_gid)
        os.fchmod(number, stat.S_IMODE(like.st_mode))
        for name in os.listxattr(path) if hasattr(os, "listxattr") else ():
            os.setxattr(number, name, os.getxattr(path, name))
    except OSError as error:
        os.close(number)
        _removed(beside)
        raise Refused(f"{path}: {error.strerror}; nothing was changed") from None
    return beside, number


def _write(number: int, data: bytes) -> None:
    if os.write(number, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _beside(path: str) -> str:
    name = f".{basename(path)}{MARK}{clock.new_id()[:8]}"
    return join(dirname(path), name if len(os.fsencode(name)) < 255 else f"{MARK}{clock.new_id()}")


def _put(path: str, beside: str, made: int, old: tuple[int, os.stat_result, bool]) -> bool:
    """Give the new text the file's name; False where a save of somebody else came first, and stays."""
    number, before, leased = old
    exchange.settle(made)
    try:
        if not _same(before, os.stat(path, follow_symlinks=False)):
            return False
        if not exchange.swap(beside, path):
            os.replace(beside, path)
            return True
    except FileNotFoundError:
        raise NotFound(f"{path}: it was removed just now; nothing was changed") from None
    displaced = os.stat(beside, follow_symlinks=False)
    if _same(before, displaced) and (not leased or _unwanted(number)):
        return True
    _undo(path, beside, os.fstat(made))
    return False


def _unwanted(number: int) -> bool:
    """Whether nobody waits to write to the file that was displaced, nor has begun to."""
    if fcntl.fcntl(number, fcntl.F_GETLEASE) != fcntl.F_RDLCK:
        return False
    try:
        fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return False  # who opened it in this moment means the file, not what we displaced
    return True


def _undo(path: str, beside: str, ours: os.stat_result) -> None:
    """Give the name back to what was saved; where a still newer save came, that one stays and the other is kept."""
    exchange.swap(beside, path)
    if os.stat(beside, follow_symlinks=False).st_ino != ours.st_ino:
        exchange.swap(beside, path)
        kept = f"{path}.displaced-{clock.new_id()[:8]}"
        os.rename(beside, kept)
        raise Conflict(f"{path}: two saves came at once; the newer one is in place, the other one is kept in {kept}")


def _removed(beside: str) -> None:
    try:
        os.unlink(beside)
    except FileNotFoundError:
        return  # it took the file's name
