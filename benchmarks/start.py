"""What starting costs: imports, what they bring along, and the first output of two verbs.

usage: python benchmarks/start.py [--quick | --full] [--json FILE]
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from baton import Relay
from baton.protocol.handoff import Handoff
from baton.protocol.profile import Profile

BATON = str(Path(sys.executable).with_name("baton"))
REACH = 150.0
LOADED = """
import sys
from importlib.metadata import packages_distributions
of = packages_distributions()
found = {name for module in list(sys.modules) for name in of.get(module.partition(".")[0], ())}
print(*sorted(found - {"agent-baton"}))
"""
FLOORS = {"python -c pass": "pass", "Python's own part": "import argparse, asyncio, inspect, json"}
IMPORTS = {
    "import baton": "import baton",
    "from baton import Relay": "from baton import Relay",
    "Relay on a file": "from baton import Relay; Relay({url!r})",
}


def first_output(argv):
    """Milliseconds until a program has printed its first byte, and of processor time until its end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.read(1)
        taken = time.perf_counter() - began
        process.stdout.read()
    assert process.returncode == 0, argv
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def imported(program):
    done = subprocess.run([sys.executable, "-c", program + "\n" + LOADED], capture_output=True, text=True, check=True)
    return done.stdout.split()


def loaded(program):
    """The distributions, besides our own, that a program imports, and Python alone here does not."""
    return sorted(set(imported(program)) - set(imported("pass")))


def measure(rounds):
    """The best of several rounds, in turns, so that a busy machine hits all alike."""
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "team.db")
        with Relay(url) as relay:
            relay.store.register(Profile(agent_id="billing"))
            relay.hand_off(Handoff(from_agent="user", to_agent="billing", task="work"))
        programs = {name: text.format(url=url) for name, text in IMPORTS.items()}
        cases = {name: [sys.executable, "-c", text] for name, text in FLOORS.items()}
        cases |= {name: [sys.executable, "-c", text] for name, text in programs.items()}
        cases |= {"baton --help": [BATON, "--help"], "baton history": [BATON, "history", "--store", url]}
        taken = {name: [] for name in cases}
        for _ in range(rounds):
            for name, argv in cases.items():
                taken[name].append(first_output(argv))
        best = {name: tuple(map(min, zip(*pairs, strict=True))) for name, pairs in taken.items()}
        (floor, floor_cpu), (_, library_cpu) = (best.pop(name) for name in FLOORS)
        return [
            {
                "what": name,
                "ms": first,
                "cpu_ms": cpu,
                "floor_ms": floor,
                "floor_cpu_ms": floor_cpu,
                "ratio": first / floor,
                "cpu_ratio": cpu / floor_cpu,
                "cpu_to_library": cpu / library_cpu,
                "distributions": loaded(programs[name]) if name in programs else None,
                "reach": REACH,
            }
            for name, (first, cpu) in best.items()
        ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 rounds")
    parser.add_argument("--full", action="store_true", help="100 rounds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = measure(5 if options.quick else 100 if options.full else 20)
    print(f"{'what':26} {'ms':>7} {'ratio':>7} {'CPU ms':>7} {'ratio':>7}  third-party distributions")
    print(f"{'python -c pass':26} {results[0]['floor_ms']:7.1f} {1:7.1f} {results[0]['floor_cpu_ms']:7.1f} {1:7.1f}")
    for one in results:
        brought = one["distributions"]
        names = "" if brought is None else f"{len(brought)} {' '.join(brought)}"
        times = f"{one['ms']:7.1f} {one['ratio']:7.1f} {one['cpu_ms']:7.1f} {one['cpu_ratio']:7.1f}"
        print(f"{one['what']:26} {times}  {names}".rstrip())
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
