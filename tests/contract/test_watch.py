"""One contract for every way to watch: real files, written by real processes; nothing that happens is lost."""

import contextlib
import importlib.util
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from baton.board.tree import is_document, look_into
from baton.board.watch import Watch
from baton.errors import Malformed, NotFound

LINUX = sys.platform == "linux"
HAS_HINTS = importlib.util.find_spec("watchfiles") is not None
KERNEL = ["inotify"] * LINUX
WAYS = KERNEL + ["polling"] + ["watchfiles"] * HAS_HINTS
QUIET = 0.4
LONG = 20.0


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "above" / "tree"
    (top / "old" / "deep").mkdir(parents=True)
    (top / "old" / "one.md").write_text("0")
    time.sleep(0.03)  # for those that poll, what is younger may change again under the same time
    return str(top)


@pytest.fixture
def file(tree):
    return os.path.join(tree, "old", "one.md")


def opened(path, way):
    return Watch(path, way=way, every=0.05)


def other(program, *words):
    """Run a program in another process, to its end."""
    subprocess.run([sys.executable, "-S", "-c", "import os, sys\n" + program, *words], check=True)


def write(path, text="x"):
    other("open(sys.argv[1], 'w').write(sys.argv[2])", path, text)


def told(watch, seconds=LONG, *, until=()):
    """What is told until all of these paths were (or, without any, the first that is told)."""
    paths, rescan, gone = set(), False, False
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        changes = watch.wait(end - time.monotonic())
        paths, rescan, gone = paths | changes.paths, rescan or changes.rescan, gone or changes.gone
        if (until and paths >= set(until)) or (not until and changes):
            break
    return paths, rescan, gone


def quiet(watch):
    """Let what was told twice pass."""
    while watch.wait(QUIET):
        pass


def everything(top):
    files, folders = [], [top]
    while folders:
        more, below = look_into(folders.pop())
        files += more
        folders += below
    return set(files)


# --- a tree -------------------------------------------------------------------------------------


def test_a_change_between_opening_and_waiting_is_told(way, tree, file):
    with opened(tree, way) as watch:
        write(file, "1")
        assert told(watch) == ({file}, False, False)


def test_files_appear_change_are_replaced_and_go(way, tree, file):
    new = os.path.join(tree, "old", "deep", "new.md")
    with opened(tree, way) as watch:
        for program, path in (
            ("open(sys.argv[1], 'w')", new),
            ("open(sys.argv[1], 'a').write('more')", file),
            ("open(sys.argv[2] + '/.t', 'w').write('2'); os.replace(sys.argv[2] + '/.t', sys.argv[1])", file),
            ("os.unlink(sys.argv[1])", new),
            ("os.link(sys.argv[1].replace('new', '../one'), sys.argv[1])", new),
        ):
            other(program, path, tree)
            assert path in told(watch, until={path})[0], program
            quiet(watch)


EXCHANGE = """
import ctypes
libc, (one, two) = ctypes.CDLL(None), map(os.fsencode, sys.argv[1:])
linux = sys.platform == "linux"
assert 0 == (libc.renameat2(-100, one, -100, two, 2) if linux else libc.renamex_np(one, two, 2))
"""


def test_two_files_that_are_exchanged_are_both_told(way, tree, file):
    second = os.path.join(tree, "old", "two.md")
    write(second)
    with opened(tree, way) as watch:
        quiet(watch)
        other(EXCHANGE, file, second)
        assert told(watch, until={file, second})[0] == {file, second}


def test_only_documents_outside_of_hidden_folders_count(way, tree, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in (".git", "node_modules", "old/.hidden"):
        os.mkdir(os.path.join(tree, folder))
    os.symlink(outside, os.path.join(tree, "link"))
    with opened(tree, way) as watch:
        os.symlink(outside, os.path.join(tree, "later"))
        names = (
            ".git/a.md", "node_modules/a.md", "old/.hidden/a.md", "old/a.txt", "old/.a.md", "old/amd", "link/a.md",
            "later/a.md",
        )  # fmt: skip
        for name in names:
            write(os.path.join(tree, name))
        assert not watch.wait(QUIET)
        write(os.path.join(tree, "a.md"))
        assert told(watch)[0] == {os.path.join(tree, "a.md")}


def test_a_folder_moved_within_the_tree_is_watched_at_its_new_place(way, tree, file):
    with opened(tree, way) as watch:
        os.rename(os.path.join(tree, "old"), os.path.join(tree, "new"))
        moved = os.path.join(tree, "new", "one.md")
        paths, rescan, _ = told(watch, until={moved})
        assert moved in paths
        assert rescan or file in paths, "what went must be looked for"
        quiet(watch)
        write(moved, "1")
        assert told(watch)[0] == {moved}
        quiet(watch)
        write(os.path.join(tree, "new", "deep", "x.md"))
        assert told(watch)[0] == {os.path.join(tree, "new", "deep", "x.md")}


def test_folders_moved_out_are_told_and_then_nobody_s(way, tree, file, tmp_path):
    with opened(tree, way) as watch:
        os.rename(os.path.join(tree, "old"), tmp_path / "out")
        paths, rescan, gone = told(watch)
        assert rescan or file in paths
        assert not gone
        quiet(watch)
        write(str(tmp_path / "out" / "one.md"), "1")
        assert not watch.wait(QUIET)


def test_folders_moved_in_are_told_with_all_that_is_in_them(way, tree, tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a.md").write_text("")
    with opened(tree, way) as watch:
        os.rename(tmp_path / "in", os.path.join(tree, "in"))
        inside = os.path.join(tree, "in", "deep", "a.md")
        assert inside in told(watch, until={inside})[0]


def test_a_removed_tree_below_is_told_file_by_file(way, tree, file):
    with opened(tree, way) as watch:
        shutil.rmtree(os.path.join(tree, "old"))
        assert file in told(watch, until={file})[0]
        os.makedirs(os.path.join(tree, "old"))
        write(file)
        assert file in told(watch, until={file})[0]


@pytest.mark.parametrize("moved", ["tree", "above"])
def test_the_tree_itself_is_gone_until_it_is_back(way, tree, tmp_path, moved):
    place = tree if moved == "tree" else os.path.dirname(tree)
    with opened(tree, way) as watch:
        os.rename(place, tmp_path / "away")
        while not watch.wait(LONG).gone:
            pass
        began = time.monotonic()
        assert watch.wait(LONG).gone, "it is said again"
        assert 0.1 < time.monotonic() - began < LONG, "and at a steady pace"
        os.rename(tmp_path / "away", place)
        while (changes := watch.wait(LONG)).gone:
            pass
        assert changes.rescan
        quiet(watch)
        write(os.path.join(tree, "old", "deep", "x.md"))
        assert told(watch)[0] == {os.path.join(tree, "old", "deep", "x.md")}


def test_a_tree_replaced_by_another_one_is_looked_at_anew(way, tree, file, tmp_path):
    shutil.copytree(tree, tmp_path / "copy")
    with opened(tree, way) as watch:
        other("os.rename(sys.argv[1], sys.argv[1] + '~'); os.rename(sys.argv[2], sys.argv[1])", tree, tmp_path / "copy")
        paths, rescan, gone = told(watch)
        assert rescan or file in paths
        assert not gone
        quiet(watch)
        write(file, "in the other one")
        assert told(watch)[0] == {file}


# --- one file -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        "open(sys.argv[1], 'a').write('more')",
        "open(sys.argv[1] + '~', 'w').write('2'); os.replace(sys.argv[1] + '~', sys.argv[1])",
        "os.rename(sys.argv[1], sys.argv[1] + '~'); open(sys.argv[1], 'w').write('2')",
        "os.unlink(sys.argv[1]); open(sys.argv[1], 'w').write('2')",
    ],
    ids=["in place", "renamed over", "moved aside", "unlinked"],
)
def test_a_file_that_an_editor_saves_is_told_and_not_gone(way, file, program):
    with opened(file, way) as watch:
        for _ in range(3):
            other(program, file)
            assert told(watch) == ({file}, False, False)
            quiet(watch)


def test_other_files_wake_nobody(way, file):
    with opened(file, way) as watch:
        write(file + ".md")
        write(os.path.join(os.path.dirname(file), "deep", "one.md"))
        assert not watch.wait(QUIET)


@pytest.mark.parametrize("moved", ["file", "folder", "above"])
def test_a_file_is_gone_when_it_or_a_folder_above_is_moved_away_and_is_told_when_back(way, file, tmp_path, moved):
    place = {"file": file, "folder": os.path.dirname(file), "above": str(tmp_path / "above")}[moved]
    with opened(file, way) as watch:
        other("os.rename(*sys.argv[1:])", place, tmp_path / "away")
        while not (changes := watch.wait(LONG)).gone:
            assert changes
        assert watch.wait(0).gone
        other("os.rename(*sys.argv[1:])", tmp_path / "away", place)
        while (changes := watch.wait(LONG)).gone:
            pass
        assert changes.paths == {file}
        quiet(watch)
        write(file, "1")
        assert told(watch) == ({file}, False, False)


def test_a_deleted_file_is_gone_after_a_moment_or_at_once_where_nobody_waits(way, file):
    with opened(file, way) as watch:
        os.unlink(file)
        while not (changes := watch.wait(LONG)).gone:
            assert changes
        assert watch.wait(0).gone


def test_a_link_is_told_when_its_file_changes_and_when_it_points_elsewhere(way, file, tmp_path):
    link, second = str(tmp_path / "link.md"), str(tmp_path / "second.md")
    write(second)
    os.symlink(file, link)
    with opened(link, way) as watch:
        write(file, "1")
        assert told(watch) == ({link}, False, False)
        other("os.symlink(sys.argv[2], sys.argv[1] + '~'); os.replace(sys.argv[1] + '~', sys.argv[1])", link, second)
        assert told(watch) == ({link}, False, False)
        quiet(watch)
        write(second, "longer")
        assert told(watch) == ({link}, False, False)


# --- waiting ------------------------------------------------------------------------------------


def test_the_time_ends_and_nothing_is_told(way, tree):
    with opened(tree, way) as watch:
        began = time.monotonic()
        assert not watch.wait(0)
        assert not watch.wait(0.2)
        assert 0.2 <= time.monotonic() - began < LONG


def test_another_thread_stops_it_for_good(way, tree, file):
    with opened(tree, way) as watch:
        threading.Timer(0.1, watch.stop).start()
        assert not watch.wait(1e12)
        assert watch.stopped
        assert not watch.wait()
    watch.stop()  # and may come late


def test_a_signal_handler_stops_it(way, tree):
    with opened(tree, way) as watch:
        before = signal.signal(signal.SIGUSR1, lambda *_: watch.stop())
        try:
            program = "import time; time.sleep(0.1); os.kill(int(sys.argv[1]), 10)"
            with subprocess.Popen([sys.executable, "-S", "-c", "import os, sys\n" + program, str(os.getpid())]):
                assert not watch.wait()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert watch.stopped


def test_selectors_wake_on_its_descriptor(way, tree, file):
    with opened(tree, way) as watch, selectors.DefaultSelector() as selector:
        selector.register(watch, selectors.EVENT_READ)
        assert not selector.select(0.2)
        write(file, "1")
        paths = set()
        end = time.monotonic() + LONG
        while file not in paths and time.monotonic() < end:
            if selector.select(end - time.monotonic()):
                paths |= watch.wait(0).paths
        assert paths == {file}
        quiet(watch)
        assert not selector.select(0.1), "what was taken wakes no more"


def test_closing_gives_everything_back(way, tree):
    def held():
        return len(os.listdir("/dev/fd")) + threading.active_count()

    opened(tree, way).close()
    before = held()
    for _ in range(20):
        watch = opened(tree, way)
        watch.close()
        watch.close()
    end = time.monotonic() + LONG
    while held() > before and time.monotonic() < end:  # watchfiles closes what it holds a little later
        time.sleep(0.05)
    assert held() <= before


def test_what_cannot_be_watched_is_named(way, tree):
    with pytest.raises(NotFound, match="no such folder"):
        opened(os.path.join(tree, "none", "a.md"), way)
    with pytest.raises(Malformed, match="auto, inotify"):
        Watch(tree, way="fswatch")


def test_a_changed_file_is_looked_at_once_more_for_it_may_change_again_within_the_same_tick(tree, file):
    with Watch(tree, way="polling", every=LONG * 10) as watch:
        polling = watch._polling
        polling._look()
        assert polling._look() in (set(), {file})
        time.sleep(0.05)
        polling._look()
        assert polling._look() == set()
        write(file)
        os.utime(file)
        assert polling._look() == {file}
        assert polling._look() == {file}
        time.sleep(0.05)
        assert polling._look() == {file}
        assert polling._look() == set()


def test_a_network_file_system_is_polled_and_said(tree, file, monkeypatch):
    monkeypatch.setattr("baton.stores.mounts.file_system", lambda _: "nfs4")
    said = []
    with Watch(tree, every=0.05, warn=said.append) as watch:
        assert watch.way == "polling"
        assert ["nfs4" in text for text in said] == [True]
        write(file, "1")
        assert told(watch)[0] == {file}


# --- where the kernel has no room ---------------------------------------------------------------

FULL = """
import sys, warnings
sys.path[:0] = sys.argv[5:]
from baton.board.watch import Watch
limit, number, way, top = sys.argv[1:5]
open(f"/proc/sys/user/{limit}", "w").write(number)
said = []
with Watch(top, way=way, every=0.05, warn=said.append) as watch:
    while way == "watchfiles" and not said:
        watch.wait(0.1)
    print(len(said), *said, sep="\\n", flush=True)
    print("ready", flush=True)
    while True:
        for path in watch.wait(20).paths:
            print(path, flush=True)
"""


@pytest.mark.proof("unshare")
@pytest.mark.parametrize(
    ("way", "limit", "number", "cure"),
    [
        ("inotify", "max_inotify_instances", 0, "max_user_instances"),
        ("inotify", "max_inotify_watches", 0, "max_user_watches"),
        ("inotify", "max_inotify_watches", 40, "max_user_watches"),
        ("inotify", "max_inotify_watches", 1000, ""),
        ("watchfiles", "max_inotify_instances", 0, "no hints"),
    ],
)
def test_what_the_kernel_refuses_is_said_with_the_cure_and_polled(tree, way, limit, number, cure):
    """In a user namespace of its own, which has limits of its own."""
    folders = [os.path.join(tree, f"{n}", "deep") for n in range(100)]
    for folder in folders:
        os.makedirs(folder)
    argv = ["unshare", "-Ur", sys.executable, "-c", FULL, limit, str(number), way, tree, *sys.path]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
        try:
            said = [line.strip() for line in iter(watching.stdout.readline, "ready\n")]
            assert said[0] == ("1" if cure else "0")
            assert cure in "".join(said)
            wanted = {os.path.join(folder, "a.md") for folder in folders}
            later = {os.path.join(tree, "later", str(n), "a.md") for n in range(50)}
            for path in wanted | later:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w"):
                    pass
            found = set()
            while not found >= wanted | later:
                found.add(watching.stdout.readline().strip())
        finally:
            watching.kill()


# --- cheap --------------------------------------------------------------------------------------

CHEAP = """
import sys
sys.path[:0] = sys.argv[2:]
import baton.clock, baton.errors
before = set(sys.modules)
import baton.board.watch
print(*sorted(set(sys.modules) - before))
before = set(sys.modules)
baton.board.watch.Watch(sys.argv[1])
print(*sorted(set(sys.modules) - before))
"""


def test_importing_costs_next_to_nothing(file):
    done = subprocess.run([sys.executable, "-c", CHEAP, file, *sys.path], capture_output=True, text=True, check=True)
    imported, on_opening = (set(line.split()) for line in done.stdout.splitlines())
    assert imported == {"baton.board", "baton.board.watch", "select"}
    if LINUX:
        assert on_opening <= {
            "_ctypes", "_struct", "ctypes", "ctypes._endian", "errno", "struct", "types", "baton.board.inotify",
            "baton.board.tree", "baton.stores", "baton.stores.mounts",
        }  # fmt: skip


# --- hard ---------------------------------------------------------------------------------------


class Naive:
    """How not to do it: watches the folders that are there, looks before it watches, does not know of overflows."""

    def __init__(self, top):
        from baton.board.inotify import FOLDER, Queue

        self._queue, self._paths, waiting = Queue(), {}, [top]
        while waiting:
            folder = waiting.pop()
            self._paths[self._queue.add(folder, FOLDER)] = folder
            waiting += look_into(folder)[1]
        self._poll = selectors.DefaultSelector()
        self._poll.register(self._queue.fd, selectors.EVENT_READ)

    def wait(self, seconds):
        """The changed paths, in the form that a Watch gives them."""
        from baton.board.watch import Changes

        changes = Changes()
        if self._poll.select(seconds):
            happened = [(self._paths.get(number), name) for number, _, name in self._queue.read()]
            changes.paths = {f"{folder}/{name}" for folder, name in happened if folder and is_document(name)}
        return changes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._poll.close()
        self._queue.close()


def naive(path, way):
    return Naive(path)


def lost_in_new_folders(tree, way, opening, *, count=1000, patience=LONG):
    """A process makes nested folders and at once a file in them; the files of which nobody was told."""
    program = """
for number in range(int(sys.argv[2])):
    os.makedirs(f"{sys.argv[1]}/{number}/a/b")
    open(f"{sys.argv[1]}/{number}/a/b/n.md", "w").close()
"""
    argv = [sys.executable, "-S", "-c", "import os, sys\n" + program, tree, str(count)]
    wanted = {f"{tree}/{number}/a/b/n.md" for number in range(count)}
    seen = set()
    with opening(tree, way) as watch, subprocess.Popen(argv) as maker:
        end = None
        while not (seen >= wanted or (end and time.monotonic() > end)):
            changes = watch.wait(QUIET)
            seen |= everything(tree) if changes.rescan else changes.paths
            if end is None and maker.poll() is not None:
                end = time.monotonic() + patience
    assert wanted <= everything(tree), "the files were made"
    return wanted - seen


def test_nothing_is_lost_in_a_thousand_new_nested_folders(way, tree):
    assert lost_in_new_folders(tree, way, opened) == set()


def test_a_naive_watch_loses_files_in_new_folders(tree):
    assert len(lost_in_new_folders(tree, "inotify", naive, patience=1.0)) > 900


def lost_between_looking_and_waiting(file, look_first, rounds):
    """Whether somebody sleeps although the file has changed; a process writes some time after it is told to."""
    program = """
import time
for number, line in enumerate(sys.stdin):
    end = time.perf_counter() + number % 20 * 0.0001
    while time.perf_counter() < end: pass
    with open(sys.argv[1], "w") as file: file.write(line)
    print(flush=True)
"""
    argv = [sys.executable, "-S", "-c", "import os, sys\n" + program, file]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    slept = False

    def there(number):
        with open(file) as text:
            return text.read() == f"{number}\n"

    with subprocess.Popen(argv, **pipes) as writer:
        for number in range(rounds):
            writer.stdin.write(f"{number}\n")
            if look_first and there(number):
                writer.stdout.readline()
                continue
            held_up = look_first and number % 50 == 49  # by a busy machine, just here
            if held_up:
                writer.stdout.readline()
            with opened(file, "inotify") as watch:
                done = not look_first and there(number)
                while not done:
                    late = not watch.wait(0.3)
                    done = there(number)
                    if late and done and not watch.wait(0.1):
                        slept = True
            if not held_up:
                writer.stdout.readline()
            if slept:
                break
        writer.stdin.close()
    return slept


def test_who_is_armed_before_he_looks_never_sleeps_through_a_change(file):
    assert not lost_between_looking_and_waiting(file, look_first=False, rounds=500)


def test_who_looks_first_does(file):
    assert lost_between_looking_and_waiting(file, look_first=True, rounds=500)


STORM = """
top, writer, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(count):
    folder = f"{top}/{writer}-{number % 7}"
    path = f"{folder}/{number * 100 // count}.md"
    if number < 7: os.makedirs(folder, exist_ok=True)
    if number == count // 2: print(flush=True)
    new = path + "~" if number % 16 == 0 else path
    # Neither truncated nor often renamed: ext4 would write to the disk each time.
    file = os.open(new, os.O_WRONLY | os.O_CREAT)
    os.write(file, b"%08d" % number)
    os.close(file)
    if new != path: os.replace(new, path)
"""


def content(path):
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        return file.read()
    return None


WALK = """
import random, shutil
top, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(seed)
def path(): return top + "".join("/" + chance.choice("abc") for _ in range(chance.randint(1, 3)))
def write():
    place = path(); os.makedirs(place, exist_ok=True)
    with open(place + "/" + chance.choice(["x", "y"]) + ".md", "w") as file: file.write(str(number))
def move(): os.rename(path(), path())
def out(): os.rename(path(), f"{top}/.out-{seed}-{number}")
def remove(): shutil.rmtree(path())
for number in range(count):
    if number == count // 2: print(flush=True)
    try: chance.choices([write, move, out, remove], [20, 8, 1, 1])[0]()
    except OSError: pass
"""


def documents(tree):
    return {path: content(path) for path in everything(tree)}


def view_after_storm(watch, tree, writes, *, program=STORM, late=False, patience=LONG):
    """What somebody believes to be in the files who reads those that he is told of, and what is in them.

    If late, he begins when half of it is written.
    """
    view = {os.path.join(tree, "old", "one.md"): "0"}
    argv = [sys.executable, "-S", "-c", "import os, sys\n" + program, tree]
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(subprocess.Popen([*argv, str(n), str(writes // 4)], stdout=subprocess.PIPE))
            for n in range(4)
        ]
        for writer in writers * late:
            writer.stdout.readline()
        over = False
        while not over:
            changes = watch.wait(QUIET)
            if changes.rescan:
                view = documents(tree)
            for path in changes.paths:
                view[path] = content(path)
                if view[path] is None:
                    del view[path]
            if any(writer.poll() is None for writer in writers):
                end = time.monotonic() + patience
            else:
                over = not changes and (view == documents(tree) or time.monotonic() > end)
    assert [writer.returncode for writer in writers] == [0] * 4
    return view, documents(tree)


def test_the_last_word_of_every_file_is_heard_in_a_storm(way, tree):
    with opened(tree, way) as watch:
        view, truth = view_after_storm(watch, tree, 10_000)
    assert len(truth) > 1000
    assert view == truth


@pytest.mark.parametrize("way", KERNEL)  # two looks at the same thing cannot tell what was in between
def test_folders_that_are_made_moved_and_removed_while_they_are_watched_hide_nothing(way, tree):
    with opened(tree, way) as watch:
        view, truth = view_after_storm(watch, tree, 10_000, program=WALK)
    assert truth
    assert view == truth


@pytest.mark.parametrize("way", KERNEL)
def test_who_watches_only_old_folders_does_not_see_through_that(way, tree):
    with naive(tree, way) as watch:
        view, truth = view_after_storm(watch, tree, 4_000, program=WALK, patience=0)
    assert view != truth


def made(tree):
    """The folders of the storm: what happens in those that nobody watches yet would not fill the queue."""
    for writer in range(4):
        for number in range(7):
            os.mkdir(f"{tree}/{writer}-{number}")


@pytest.mark.parametrize("way", KERNEL)
def test_nothing_is_lost_in_a_hundred_thousand_writes_that_overflow_the_queue(way, tree):
    made(tree)
    with opened(tree, way) as watch:
        view, truth = view_after_storm(watch, tree, 100_000, late=True)
        assert watch.rearmed > 0, "the queue was to overflow"
    assert view == truth


@pytest.mark.parametrize("way", KERNEL)
def test_who_does_not_know_of_overflows_loses_writes(way, tree):
    made(tree)
    with naive(tree, way) as watch:
        view, truth = view_after_storm(watch, tree, 40_000, late=True, patience=0)
    assert view != truth
