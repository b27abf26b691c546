"""What is known of a tree from the last search: which files have not changed, and which states they cannot name.

It may be thrown away any time. A file counts as unchanged while its times, size and inode are the same, unless it
changed so shortly before that search that a further change could bear the same time. The index says only which files
need no second look: what is found is always read. It is made of plain numbers and names, so that a spoiled one can be
told from a good one, and names nothing outside the tree.
"""

from __future__ import annotations

import os
from os.path import join

from baton import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    Signature = tuple[int, int, int, int]

FAMILIES = (b"#needs-", b"#delegated-", b"#next-", b"#claimed-", b"#done-", b"#active-alert")
MAGIC = b"baton find 1\n\0\0\0"
HEADER = 48  # magic, when the search began, folders, files, length of the names, checksum
FOLDER, FILE = 5, 4  # numbers of each
RACY = 10_000_000  # nanoseconds
LEAST = 500  # in smaller trees a search needs no index


def family(literal: bytes) -> int:
    """The bit of the state that a search is for; 0 where the index does not help."""
    return next((1 << bit for bit, start in enumerate(FAMILIES) if literal.startswith(start)), 0)


def signature(info: os.stat_result) -> Signature:
    """What tells one state of a file from the next."""
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino


class Folder:
    """What was known of a folder."""

    __slots__ = ("files", "folders", "seen")

    def __init__(self, seen: tuple[int, int, int]) -> None:
        self.seen = seen  # its times and inode
        self.files: list[tuple[str, int, int, int, int, int, int]] = []  # name, signature, asked for, there
        self.folders: list[str] = []


class Index:
    """The index of one tree; empty where there is none that can be trusted."""

    def __init__(self, state: str, top: str) -> None:
        from baton.digest import sha256

        name = sha256(top.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._path = join(state, f"find-{name}")
        self._began = clock.now() * 1000
        self.settled = 0  # before when a file must have changed for what is known of it to count
        self._old: dict[str, Folder] = {}
        self._new: dict[str, Folder] = {}
        self.stale = 0  # files that had to be read for want of knowledge

    def load(self) -> None:
        """Take what the last search wrote, if it can be trusted."""
        try:
            self._load()
        except (OSError, ValueError, LookupError, OverflowError):
            self._old = {}

    def folder(self, inside: str, info: os.stat_result) -> tuple[Folder, Folder | None]:
        """The folder as it will be noted, and what is known of it where its names are still the same."""
        self._new[inside] = made = Folder((info.st_mtime_ns, info.st_ctime_ns, info.st_ino))
        known = self._old.get(inside)
        if known is not None and known.seen == made.seen and max(made.seen[:2]) < self.settled:
            return made, known
        return made, None

    def before(self, inside: str) -> dict[str, tuple[str, int, int, int, int, int, int]]:
        """What was known of the files of a folder whose names have changed."""
        known = self._old.get(inside)
        return {one[0]: one for one in known.files} if known is not None else {}

    def save(self) -> None:
        """Write it down where it has learned enough."""
        count = sum(len(one.files) for one in self._new.values())
        if count >= LEAST and self.stale > count // 64:
            try:
                self._save()
            except OSError:
                return  # it is only a help

    def _load(self) -> None:
        number = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            data = os.read(number, os.fstat(number).st_size + 1)
        finally:
            os.close(number)
        from binascii import crc32

        numbers = [int.from_bytes(data[at : at + 8], "little") for at in (16, 24, 32)]
        self.settled, (folders, files) = numbers[0] - RACY, divmod(numbers[1], 1 << 32)
        names_at = HEADER + 8 * (FOLDER * folders + FILE * files)
        if (
            data[:16] != MAGIC
            or len(data) != names_at + 2 * files + numbers[2]
            or crc32(data[HEADER:]) != int.from_bytes(data[40:48], "little")
        ):
            raise ValueError
        view = memoryview(data)
        at = HEADER + 8 * FOLDER * folders
        flags = data[names_at : names_at + 2 * files]
        names = os.fsdecode(data[names_at + 2 * files :]).split("\0")
        if len(names) != folders + files or "/" in "".join(names[folders:]):
            raise ValueError
        self._fill(view[HEADER:at].cast("q"), view[at:names_at].cast("q"), flags, names)

    def _fill(self, of_folders: memoryview, of_files: memoryview, flags: bytes, names: list[str]) -> None:
        count = len(of_folders) // FOLDER
        total, first = len(names) - count, 0
        for number in range(count):
            mtime, ctime, inode, files, _ = of_folders[FOLDER * number : FOLDER * (number + 1)].tolist()
            inside = names[number]
            if "/." in f"/{inside}" or inside.startswith("/") or not 0 <= files <= total - first:
                raise ValueError
            self._old[inside] = folder = Folder((mtime, ctime, inode))
            last = first + files
            part = of_files[FILE * first : FILE * last]
            folder.files = list(
                zip(
                    names[count + first : count + last],
                    *(part[field::FILE].tolist() for field in range(FILE)),
                    flags[first:last],
                    flags[total + first : total + last],
                    strict=True,
                )
            )
            first = last
            if inside:
                above, _, name = inside.rpartition("/")
                self._old[above].folders.append(name)

    def _save(self) -> None:
        from array import array
        from binascii import crc32

        of_folders, of_files = array("q"), array("q")
        asked, there, names = bytearray(), bytearray(), list(self._new)
        for folder in self._new.values():
            of_folders.extend((*folder.seen, len(folder.files), 0))
            for name, mtime, ctime, size, inode, known, has in folder.files:
                names.append(name)
                of_files.extend((mtime, ctime, size, inode))
                asked.append(known)
                there.append(has)
        text = os.fsencode("\0".join(names))
        body = b"".join((of_folders.tobytes(), of_files.tobytes(), asked, there, text))
        numbers = (self._began, (len(self._new) << 32) + len(asked), len(text), crc32(body))
        head = MAGIC + b"".join(number.to_bytes(8, "little") for number in numbers)
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        made = f"{self._path}.{clock.new_id()[:8]}"
        number = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            for piece in (head, body):
                view = memoryview(piece)
                while view:
                    view = view[os.write(number, view) :]
            os.rename(made, self._path)
        except OSError:
            os.unlink(made)
            raise
        finally:
            os.close(number)
