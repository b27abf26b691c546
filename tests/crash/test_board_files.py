"""Changing a file beside whoever else has it: programs that keep it open, map it, own it, or ask without waiting."""

import errno
import fcntl
import mmap
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest

from baton import clock
from baton.board import exchange, files
from baton.cli import main
from baton.errors import Conflict, Held, Malformed, NotFound, Refused, TooLarge
from baton.testing.children import Child

TEXT = b"# A\n**Tags**: #delegated-fix #P1\n\nbody\n"
DONE = TEXT.replace(b"#delegated-fix", b"#claimed-fix")


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def claim(data):
    return data.replace(b"#delegated-fix", b"#claimed-fix")


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "a.md"
    file.write_bytes(TEXT)
    return file


def test_a_program_that_keeps_it_open_for_writing_loses_nothing(path):
    with path.open("ab", buffering=0) as file:
        with pytest.raises(Held, match="open for writing"):
            files.change(str(path), claim, patience=0.2)
        file.write(b"later\n")
    assert path.read_bytes() == TEXT + b"later\n"
    assert files.change(str(path), claim) == DONE + b"later\n"


def test_a_program_that_maps_it_loses_nothing(path):
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    with pytest.raises(Held):
        files.change(str(path), claim, patience=0.2)
    mapped[-5:-1] = b"BODY"
    mapped.close()
    assert files.change(str(path), claim) == DONE.replace(b"body", b"BODY")


def test_a_save_that_goes_on_is_waited_for(path):
    file = path.open("wb", buffering=0)

    def save():
        time.sleep(0.2)
        file.write(TEXT.replace(b"body", b"saved"))
        file.close()

    thread = threading.Thread(target=save)
    thread.start()
    assert files.change(str(path), claim) == DONE.replace(b"body", b"saved")
    thread.join()


@pytest.mark.parametrize("flags", [0, os.O_TRUNC, os.O_NONBLOCK])
def test_who_opens_it_in_the_middle_waits_or_hears_so(flags, path):
    """Between the note and the exchange; who does not wait gets an error, and never writes into what is displaced."""
    opened, began = [], threading.Event()

    def save():
        began.set()
        try:
            number = os.open(path, os.O_WRONLY | flags)
        except BlockingIOError as error:
            opened.append(error.errno)
            return
        opened.append(0)
        os.write(number, b"# B\n**Tags**: #delegated-fix\n" + b"saved\n")
        os.ftruncate(number, 34)
        os.close(number)

    thread = threading.Thread(target=save)

    def note(old, new):
        thread.start()
        began.wait()
        time.sleep(0.1)

    result = files.change(str(path), claim, note)
    thread.join()
    assert opened == [errno.EAGAIN if flags & os.O_NONBLOCK else 0]
    text = path.read_bytes()
    assert result == text
    assert text.startswith(b"# A" if flags & os.O_NONBLOCK else b"# B")
    assert b"#claimed-fix" in text
    assert names(path.parent) == ["a.md"]


def test_a_handler_of_its_signal_does_no_harm(path):
    heard = []
    before = signal.signal(signal.SIGURG, lambda *_: heard.append(1))
    try:
        test_who_opens_it_in_the_middle_waits_or_hears_so(0, path)
    finally:
        signal.signal(signal.SIGURG, before)
    assert heard


def test_threads_change_one_file_in_turn(path):
    def count(data):
        body, _, number = data.rstrip(b"\n").rpartition(b"body")
        return body + b"body" + str(int(number or 0) + 1).encode() + b"\n"

    def work():
        for _ in range(20):
            files.change(str(path), count)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes().endswith(b"body80\n")


def test_without_leases_a_late_writer_is_seen(path, monkeypatch):
    """As on a file system without leases, or in a file of another user."""
    monkeypatch.setattr(files, "_lease", lambda *_: False)
    writing = path.open("r+b", buffering=0)
    swapped = exchange.swap

    def swap(one, other):
        done = swapped(one, other)
        if not writing.closed:
            writing.write(TEXT.replace(b"body", b"late"))
            writing.close()
        return done

    monkeypatch.setattr(exchange, "swap", swap)
    assert files.change(str(path), claim) == DONE.replace(b"body", b"late")
    assert path.read_bytes() == DONE.replace(b"body", b"late")


@pytest.mark.proof("setpriv")
def test_a_file_of_another_user_is_left_as_it_is():
    def change(tell):
        os.setresuid(65534, 65534, 65534)
        with pytest.raises(Refused, match="not permitted"):
            files.change(f"{folder}/a.md", claim)
        tell(b"R", "refused")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.md")
        path.write_bytes(TEXT)
        path.chmod(0o666)
        path.parent.chmod(0o777)
        outcome = Child(change).finish()
        assert outcome.of(b"R") == ["refused"], outcome
        assert path.read_bytes() == TEXT
        assert names(folder) == ["a.md"]


def test_what_is_no_file_of_the_board(tmp_path, path):
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "link.md").symlink_to(path)
    (tmp_path / "second.md").write_bytes(TEXT)
    os.link(tmp_path / "second.md", tmp_path / "hard.md")
    with (tmp_path / "large.md").open("wb") as file:
        file.truncate(files.LARGEST + 1)
    for name, kind in [
        ("pipe.md", Malformed),
        ("folder.md", Malformed),
        ("link.md", Conflict),
        ("hard.md", Refused),
        ("large.md", TooLarge),
        ("none.md", NotFound),
    ]:
        with pytest.raises(kind):
            files.change(str(tmp_path / name), lambda data: data + b"x")


def test_rights_and_attributes_stay(path):
    path.chmod(0o640)
    try:
        os.setxattr(path, "user.note", b"kept")
        attributes = ["user.note"]
    except OSError:
        attributes = []
    files.change(str(path), claim)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [name for name in os.listxattr(path) if name.startswith("user.")] == attributes
    path.chmod(0o440)
    with pytest.raises(Refused, match="read-only"):
        files.change(str(path), lambda data: data + b"x")


class Later(clock.SystemSource):
    def now(self):
        return super().now() + 2 * files.FRESH * clock.SECOND


def test_what_a_killed_process_left_is_swept(path):
    folder = path.parent
    (folder / ".a.md.baton-tags").write_bytes(DONE)
    (folder / ".a.md.baton-save").write_bytes(TEXT + b"what a person wrote\n")
    (folder / ".gone.md.baton-last").write_bytes(TEXT)
    (folder / ".a.md.baton-empty").write_bytes(b"")
    (folder / ".other").write_bytes(b"not ours")
    held = (folder / ".a.md.baton-held").open("wb")
    fcntl.flock(held, fcntl.LOCK_EX)
    assert files.sweep(str(folder)) == []
    assert len(names(folder)) == 7
    with clock.use(Later()):
        kept = files.sweep(str(folder))
    held.close()
    assert kept == [f"{path}.displaced-save", f"{folder}/gone.md.displaced-last"]
    assert (folder / "a.md.displaced-save").read_bytes() == TEXT + b"what a person wrote\n"
    assert names(folder) == [
        ".a.md.baton-held", ".other", "a.md", "a.md.displaced-save", "gone.md.displaced-last"
    ]  # fmt: skip


def test_recover_sweeps_the_board_and_names_what_it_keeps(path, monkeypatch, capsys):
    folder = path.parent / "tree" / "deep"
    (path.parent / "tree" / ".baton").mkdir(parents=True)
    folder.mkdir()
    (folder / "b.md").write_bytes(TEXT)
    (folder / ".b.md.baton-tags").write_bytes(DONE)
    (folder / ".b.md.baton-save").write_bytes(TEXT + b"more\n")
    monkeypatch.chdir(path.parent / "tree")
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent / "state"))
    monkeypatch.setenv("BATON_USER", "ana")
    assert main(["tag", "add", "deep/b.md", "#P0"]) == 0
    with clock.use(Later()):
        assert main(["recover", "--dry-run"]) == 0
        assert len(names(folder)) == 3
        assert main(["recover"]) == 0
    assert names(folder) == ["b.md", "b.md.displaced-save"]
    assert "b.md.displaced-save: left by a killed process" in capsys.readouterr().err
