"""Searching for tags: what of a tree counts, and that an index never hides what is there."""

import os
import random
import time
from binascii import crc32
from pathlib import Path

import pytest

from baton.board.find import find
from baton.board.index import LEAST, Index
from baton.board.root import board_of
from baton.errors import NotFound

NEEDS = b"# A\n**Tags**: #needs-fix #P1\n"
PLAIN = b"# A\n**Tags**: #done-fix #P1\n"  # of the same size as the next one
OTHER = b"# A\n**Tags**: #next-fix #P1s\n"


@pytest.fixture(autouse=True)
def top(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "tree"
    (folder / ".baton").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def found(pattern="needs-*", *paths, **options):
    return [hit.path for hit in find(pattern, list(paths) or ["."], **options)]


def forest(top, count=LEAST + 20):
    for number in range(count):
        put(top / f"d{number % 7}" / f"{number}.md", NEEDS if number % 50 == 0 else PLAIN)
    long_ago = time.time() - 3600
    for path in sorted(top.rglob("*")):
        os.utime(path, (long_ago, long_ago))


def settle(top):
    """Make an index, after what was written here is older than a clock's tick."""
    time.sleep(0.05)
    found()
    return next(Path(board_of(str(top))[0].state).glob("find-*"))


def test_what_counts_and_what_does_not(top):
    put(top / "a.md", NEEDS)
    put(top / "b" / "c d.md", NEEDS)
    for name in (".git/x.md", "node_modules/x.md", ".hidden.md", "x.txt", "b/.x.md.baton-1", "b/x.MD"):
        put(top / name, NEEDS)
    (top / "link.md").symlink_to(top / "a.md")
    (top / "linked").symlink_to(top / "b")
    os.mkfifo(top / "pipe.md")
    (top / "folder.md").mkdir()
    assert found() == ["a.md", "b/c d.md"]
    assert found("needs-fix", "b", "a.md", ".") == ["a.md", "b/c d.md"]
    assert found("needs-fi") == []
    assert found("*-fix", "a.md") == ["a.md"]


def test_only_what_is_a_tag(top):
    put(top / "a.md", b"# A\n**Tags**: #P1\n\nabout `#needs-a`\n```\n#needs-b\n```\n[x](#needs-c) y#needs-d\n")
    put(top / "b.md", b"# B\n\ninline #needs-e\n")
    assert found() == ["b.md"]
    assert found(tags_only=True) == []


def test_a_folder_that_is_not_there_is_an_error():
    with pytest.raises(NotFound, match="nowhere"):
        find("needs-*", ["nowhere"])


def test_files_that_cannot_be_read_are_left_out(top):
    put(top / "a.md", NEEDS)
    (top / "a.md").chmod(0)
    assert found() in ([], ["a.md"])  # root reads everything


def test_an_index_says_the_same_as_a_search(top):
    forest(top)
    first = found()
    assert len(first) > 10
    before = Index(str(settle(top).parent), str(top))
    before.load()
    assert len(before._old) == 8
    assert found() == first
    assert found("done-fix") == [hit.path for hit in find("*one-fix", ["."])]


def test_every_change_is_seen_through_an_index(top):
    forest(top)
    settle(top)
    expected = set(found())
    changed = top / "d1" / "1.md"
    info = changed.stat()
    changed.write_bytes(NEEDS[: len(PLAIN)].ljust(len(PLAIN)))
    os.utime(changed, ns=(info.st_atime_ns, info.st_mtime_ns))  # the same size and the same time
    put(top / "d2" / "new.md", NEEDS)
    put(top / "deep" / "er" / "new.md", NEEDS)
    (top / "d0" / "0.md").unlink()
    (top / "d3").rename(top / "moved")
    expected = {path.replace("d3/", "moved/") for path in expected} - {"d0/0.md"}
    assert set(found()) == expected | {"d1/1.md", "d2/new.md", "deep/er/new.md"}


def test_an_index_never_lies_while_files_change(top):
    forest(top)
    dice = random.Random(4)
    names = sorted(path for path in top.rglob("*.md"))
    for _ in range(30):
        for path in dice.sample(names, 5):
            if dice.random() < 0.5:
                path.write_bytes(dice.choice([NEEDS, PLAIN, OTHER]))
            else:
                put(path.with_suffix(".new"), dice.choice([NEEDS, PLAIN, OTHER]))
                path.with_suffix(".new").replace(path)
        for state in ("needs", "done", "next"):
            wanted = sorted(str(path.relative_to(top)) for path in names if f"#{state}-".encode() in path.read_bytes())
            assert found(f"{state}-*") == wanted


def test_a_spoiled_index_is_thrown_away(top):
    forest(top)
    path = settle(top)
    wanted = found()
    good = path.read_bytes()
    dice = random.Random(7)
    for number in range(60):
        bad = bytearray(good)
        if number % 2:
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        else:
            del bad[dice.randrange(len(bad)) :]
        path.write_bytes(bad)
        assert found() == wanted


@pytest.mark.parametrize(("there", "instead"), [(b"\x00d1\x00", b"\x00..\x00"), (b"\x001.md", b"\x00/.md")])
def test_an_index_names_nothing_outside(there, instead, top):
    forest(top)
    path = settle(top)
    data = path.read_bytes()
    assert there in data
    body = data[48:].replace(there, instead, 1)
    path.write_bytes(data[:40] + crc32(body).to_bytes(8, "little") + body)
    spoiled = Index(str(path.parent), str(top))
    spoiled.load()
    assert spoiled._old == {}
