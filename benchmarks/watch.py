"""From a write to the one who waits: against bare inotify in the same run; losses, arming, and what idling costs.

usage: python benchmarks/watch.py [--quick | --full] [--json FILE]
"""

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from baton.board.inotify import FOLDER, Queue
from baton.board.tree import look_into
from baton.board.watch import Watch

REACH = 5.0
WRITER = """
import os, sys, time
path = sys.argv[1]
for line in sys.stdin:
    with open(path + "~", "w") as file: file.write(line)
    time.sleep(0.002)  # who reads has gone to sleep by now
    print(time.monotonic_ns(), flush=True)
    os.replace(path + "~", path)
"""
STORM = """
import os, sys
top, writer, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(count):
    file = os.open(f"{top}/{writer}/{number % 7}-{number * 100 // count}.md", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"%08d" % number)
    os.close(file)
    if number == count // 2: print(flush=True)
"""


def start(program, *words):
    argv = [sys.executable, "-S", "-c", program, *map(str, words)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


class Bare:
    """Inotify and nothing else, on one folder: the floor."""

    def __init__(self, path):
        self._queue = Queue()
        self._queue.add(os.path.dirname(path), FOLDER)
        self._name = os.path.basename(path)
        self._poll = select.poll()
        self._poll.register(self._queue.fd, select.POLLIN)

    def changed(self):
        """Wait until the file was replaced."""
        while True:
            self._poll.poll()
            if any(name == self._name for _, _, name in self._queue.read()):
                return

    def close(self):
        self._queue.close()


class Ours:
    """A watch on the whole tree."""

    def __init__(self, top, path):
        self._watch, self._path = Watch(top, way="inotify"), path

    def changed(self):
        """Wait until the file was replaced."""
        while self._path not in self._watch.wait().paths:
            pass

    def close(self):
        self._watch.close()


def latency(watching, path, count):
    """Milliseconds from each rename until who waits is told."""
    with start(WRITER, path) as writer:
        taken = []
        for number in range(count):
            writer.stdin.write(f"{number}\n")
            watching.changed()
            told = time.monotonic_ns()
            taken.append((told - int(writer.stdout.readline())) / 1e6)
        writer.stdin.close()
    watching.close()
    return taken


def folders(top, count):
    """A tree of so many folders, with a document in each."""
    for number in range(count):
        folder = Path(top, str(number // 100), str(number))
        folder.mkdir(parents=True)
        folder.joinpath("a.md").write_text("**Tags**: #needs-fix\n")


def arming(count, rounds):
    """Milliseconds to arm a tree of so many folders, and of them those that looking into all of it takes."""
    with tempfile.TemporaryDirectory() as top:
        folders(top, count)
        armed, walked = [], []
        for _ in range(rounds):
            began = time.perf_counter()
            watch = Watch(top, way="inotify")
            armed.append((time.perf_counter() - began) * 1000)
            watch.close()
            began = time.perf_counter()
            waiting = [top]
            while waiting:
                waiting += look_into(waiting.pop())[1]
            walked.append((time.perf_counter() - began) * 1000)
        return min(armed), min(walked)


def idle(way, count, seconds):
    """The share of a core that a watch of so many folders takes while nothing happens, in percent."""
    with tempfile.TemporaryDirectory() as top:
        folders(top, count)
        with Watch(top, way=way) as watch:
            watch.wait(1)
            used = time.process_time()
            watch.wait(seconds)
            return (time.process_time() - used) / seconds * 100


def lost(writes):
    """Files whose last word went unheard, of so many writes by four processes, and how often the queue overflowed.

    The reader sleeps for the first half of them.
    """
    with tempfile.TemporaryDirectory() as top:
        for writer in range(4):
            os.mkdir(f"{top}/{writer}")
        view = {}
        with Watch(top, way="inotify") as watch:
            writers = [start(STORM, top, number, writes // 4) for number in range(4)]
            for writer in writers:
                writer.stdout.readline()
            while (changes := watch.wait(1)) or any(writer.poll() is None for writer in writers):
                paths = list(Path(top).rglob("*.md")) if changes.rescan else map(Path, changes.paths)
                view.update((path, path.read_bytes()) for path in paths)
            overflows = watch.rearmed
        for writer in writers:
            writer.communicate()
            assert writer.returncode == 0
        truth = {path: path.read_bytes() for path in Path(top).rglob("*.md")}
        return sum(view.get(path) != text for path, text in truth.items()), overflows


def spread(taken):
    cuts = statistics.quantiles(taken, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98]}


def measure(count, writes, rounds):
    """All figures."""
    with tempfile.TemporaryDirectory() as top:
        folders(top, 1000)
        path = f"{top}/5/500/a.md"
        figures = {
            "bare inotify, one folder": spread(latency(Bare(path), path, count)),
            "inotify, 1,000 folders": spread(latency(Ours(top, path), path, count)),
        }
    missed, overflows = lost(writes)
    return {
        "wake": figures,
        "lost": {"writes": writes, "lost": missed, "overflows": overflows},
        "arm_ms": {str(size): arming(size, rounds) for size in (1_000, 10_000)},
        "idle_core_percent": {way: idle(way, 1_000, 3 * rounds) for way in ("inotify", "polling")},
        "reach_p99_ms": REACH,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="300 writes, 40,000 in the storm")
    parser.add_argument("--full", action="store_true", help="10,000 writes, 100,000 in the storm")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    count, writes, rounds = (
        (300, 40_000, 3) if options.quick else (10_000, 100_000, 10) if options.full else (2_000, 100_000, 5)
    )
    figures = measure(count, writes, rounds)
    floor = figures["wake"]["bare inotify, one folder"]
    print(f"{'write to wake, ms':34} {'p50':>8} {'p99':>8} {'p50 ratio':>10}")
    for name, one in figures["wake"].items():
        print(f"{name:34} {one['p50_ms']:8.3f} {one['p99_ms']:8.3f} {one['p50_ms'] / floor['p50_ms']:10.2f}")
    print("lost: {lost} of {writes} writes, {overflows} overflows".format(**figures["lost"]))
    for size, (armed, walked) in figures["arm_ms"].items():
        print(f"arming {size} folders: {armed:.1f} ms, {armed / walked:.2f} times looking into all of them")
    for way, share in figures["idle_core_percent"].items():
        print(f"idle, 1,000 folders, {way}: {share:.2f} % of a core")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
