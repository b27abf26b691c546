"""Change one file: no two processes at once, no reader sees half of it, no save of a person is lost.

1. Lock the file itself, and look whether it is still the one that its name means.
2. Take a lease on it where there are leases: nobody has it open for writing, and who wants to waits for us.
3. Read, edit, write the result beside it, let the caller note what is about to happen.
4. Exchange the two names in one step. What was displaced must be what was read; if a save slipped in between,
   exchange them back and begin again with what was saved.

The result is on its way to the disk before the note is synced, and there before the names change: after a power cut the
file holds the text before or the text after, whole. What a killed process leaves behind is found by `sweep`.
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
from baton.board.tags import Text, replaced
from baton.errors import BatonError, Conflict, Held, Malformed, NotFound, Refused, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Edit = Callable[[bytes], bytes]
    Note = Callable[[bytes, bytes], None]

LARGEST = 16 * 1024 * 1024
PATIENCE = 10.0  # seconds for whoever else holds the file
SECOND_LOOK = 0.01  # where there are no leases: how long what was displaced is watched for a late writer
TRIES = 1000
SIGURG = 23  # what a lease sends when somebody wants to write; a process ignores it unless it asked for it
FRESH = 60  # seconds in which a file of ours is left alone, for its maker may not have locked it yet
MARK = ".baton-"  # in the names of our own files beside the one that is changed


def read(path: str) -> bytes:
    """The bytes of a file of the board."""
    number = _opened(path)
    try:
        return _content(number, path, clock.monotonic() + PATIENCE)[1]
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
            leased = _lease(number, path, until)
            before, old = _content(number, path, until)
            new = edit(old)
            if new == old:
                return old
            beside, made = _written(path, number, before, new)
            done = False
            try:
                exchange.begin(made)
                if note is not None:
                    note(old, new)
                    note = None
                done = _put(path, beside, made, (number, before, leased))
                if done:
                    return new
            finally:
                if done or _is(beside, made):
                    _removed(beside)
                os.close(made)
        finally:
            os.close(number)
        time.sleep(min(0.0002 * 2**attempt, 0.02))
        if clock.monotonic() > until:
            break
    raise Conflict(f"{path}: somebody saves it all the time; nothing was changed; try again when that is over")


def create(path: str, data: bytes) -> bool:
    """Make a new file, whole and on the disk; False where there is one of that name already, which is left alone."""
    try:
        folder = os.open(dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(f"{dirname(path)}: {error.strerror}; name a folder that is there") from None
    beside = ""
    try:
        try:  # without a name nothing of it is left behind if this is killed
            number = os.open(dirname(path), os.O_WRONLY | os.O_CLOEXEC | os.O_TMPFILE, 0o666)
            source = f"/proc/self/fd/{number}"
        except (OSError, AttributeError):
            source = beside = _beside(path)
            number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            _write(number, data)
            os.fsync(number)
            os.link(source, path, src_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(number)
            if beside:
                _removed(beside)
        os.fsync(folder)
    except FileExistsError:
        return False
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; it was not made") from None
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


def _lease(number: int, path: str, until: float) -> bool:
    """Whether from now on nobody writes to this file without our knowing; a save that goes on is waited for."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    pause = 0.0001
    while True:
        try:
            fcntl.fcntl(number, fcntl.F_SETSIG, SIGURG)
            fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            return True
        except OSError as error:
            if error.errno != errno.EAGAIN:
                return False  # not on this file system, or it is another user's file
        if clock.monotonic() > until:
            raise Held(
                f"{path}: a program has it open for writing, and what it writes next would be lost; "
                f"nothing was changed; `fuser -v {path}` names it"
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.01)


def _content(number: int, path: str, until: float) -> tuple[os.stat_result, bytes]:
    """What the file is and holds; read again when it changed meanwhile."""
    while True:
        before = os.fstat(number)
        if before.st_size > LARGEST:
            raise TooLarge(f"{path}: {before.st_size} bytes; {LARGEST} are the most for a file with tags")
        data = os.pread(number, before.st_size + 1, 0)
        if len(data) == before.st_size and _same(before, os.fstat(number)):
            return before, data
        if clock.monotonic() > until:
            raise Conflict(f"{path}: somebody writes to it all the time; try again when that is over")
        time.sleep(0.0005)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_dev, one.st_mtime_ns, one.st_size) == (
        other.st_ino,
        other.st_dev,
        other.st_mtime_ns,
        other.st_size,
    )


def _written(path: str, old: int, like: os.stat_result, new: bytes) -> tuple[str, int]:
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
        for name in os.listxattr(old) if hasattr(os, "listxattr") else ():
            os.setxattr(number, name, os.getxattr(old, name))
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
        _exchange(beside, path)
    except FileNotFoundError:
        raise NotFound(f"{path}: it was removed just now; nothing was changed") from None
    if _same(before, os.stat(beside, follow_symlinks=False)) and _unwanted(number, before, leased=leased):
        return True
    _undo(path, beside, os.fstat(made))
    return False


def _replace(beside: str, path: str) -> None:
    """Like an exchange, for file systems without one: what is displaced gets a second name first.

    A file that is renamed to this name between the two steps is lost: without an exchange nobody can see it.
    """
    second = _beside(path)
    try:
        os.link(path, second, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Refused(
            f"{dirname(path)}: {error.strerror}; this file system can neither exchange two files nor give one two "
            "names, so that a save could get lost; keep the board on another one"
        ) from None
    os.replace(beside, path)
    os.rename(second, beside)


def _unwanted(number: int, before: os.stat_result, *, leased: bool) -> bool:
    """Whether nobody waits to write to the file that was displaced, nor has begun to."""
    if not leased:
        time.sleep(SECOND_LOOK)
        return _same(before, os.fstat(number))
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
    _exchange(beside, path)
    if os.stat(beside, follow_symlinks=False).st_ino == ours.st_ino:
        return
    _exchange(beside, path)  # the newer one goes back to its place
    kept = f"{path}.displaced-{clock.new_id()[:8]}"
    os.rename(beside, kept)
    raise Conflict(f"{path}: two saves came at once; the newer one is in place, the other one is kept in {kept}")


def _exchange(beside: str, path: str) -> None:
    if not exchange.swap(beside, path):
        _replace(beside, path)


def _is(name: str, number: int) -> bool:
    """Whether a name means this open file."""
    try:
        return os.path.samestat(os.stat(name, follow_symlinks=False), os.fstat(number))
    except OSError:
        return False


def _removed(beside: str) -> None:
    try:
        os.unlink(beside)
    except OSError:
        return  # it is swept later: what was done is done


def sweep(folder: str) -> list[str]:
    """Clear a folder of what killed processes left in it; the files that were kept, under names that can be seen.

    What differs from its file only in tags says nothing that is not there. Anything else may be somebody's save.
    """
    kept = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []  # it went away, or is not ours to read
    for name in names:
        if name.startswith(".") and MARK in name:
            path = join(folder, name)
            try:
                number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue  # gone, or no file of ours
            try:
                kept += _swept(path, number)
            finally:
                os.close(number)
    return kept


def _swept(path: str, number: int) -> list[str]:
    info = os.fstat(number)
    if not stat.S_ISREG(info.st_mode) or clock.now() - info.st_ctime_ns // 1000 < FRESH * clock.SECOND:
        return []
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return []  # its maker is at work
    if not _is(path, number):
        return []
    stem, _, mark = basename(path)[1:].rpartition(MARK)
    visible = join(dirname(path), stem or f"file{MARK}{mark}")
    if not info.st_size or (stem and _says_no_more(number, info, visible)):
        _removed(path)
        return []
    kept = f"{visible}.displaced-{mark}"
    if os.path.lexists(kept):
        return []
    os.rename(path, kept)
    return [kept]


def _says_no_more(number: int, info: os.stat_result, path: str) -> bool:
    """Whether a text differs from that of a file only in its tags."""
    if info.st_size > LARGEST:
        return False
    try:
        there = read(path)
    except BatonError:
        return False
    return _bare(os.pread(number, info.st_size, 0)) == _bare(there)


def _bare(data: bytes) -> bytes:
    return replaced(data, Text(data).tags, [])
