"""`@pytest.mark.proof("strace")`: a test that needs a tool of the machine.

Where the tool is missing, the test is deselected and the end of the run says what was not proved. With
BATON_REQUIRE_PROOFS=1 (as in CI) a missing tool is a failure.
"""

import functools
import os
import shutil
import subprocess

import pytest

REQUIRED = os.environ.get("BATON_REQUIRE_PROOFS", "") not in {"", "0"}
UNPROVED = pytest.StashKey[set[str]]()
# Being installed is not always enough: a container may forbid ptrace.
PROBES = {
    "strace": ["strace", "-o", os.devnull, "true"],
    "unshare": ["unshare", "-Ur", "true"],
    "setpriv": ["setpriv", "--reuid=65534", "true"],  # whether this is root
}


@functools.cache
def works(tool):
    if shutil.which(tool) is None:
        return False
    probe = PROBES.get(tool)
    return probe is None or subprocess.run(probe, capture_output=True, check=False).returncode == 0


def missing(item):
    tools = (mark.args[0] for mark in item.iter_markers("proof"))
    return sorted({tool for tool in tools if not works(tool)})


def pytest_configure(config):
    config.stash[UNPROVED] = set()


def pytest_collection_modifyitems(config, items):
    if REQUIRED:
        return
    unproved = [item for item in items if missing(item)]
    if unproved:
        config.hook.pytest_deselected(items=unproved)
        items[:] = [item for item in items if item not in unproved]
        for item in unproved:
            config.stash[UNPROVED].add(f"{item.nodeid} (needs {', '.join(missing(item))})")


def pytest_runtest_setup(item):
    if tools := missing(item):
        pytest.fail(f"not proved: {', '.join(tools)} is missing or does not work here", pytrace=False)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # in a worker of xdist: tell the process that reports
        session.config.workeroutput["unproved"] = sorted(session.config.stash[UNPROVED])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[UNPROVED].update(getattr(node, "workeroutput", {}).get("unproved", ()))


def pytest_terminal_summary(terminalreporter, config):
    for line in sorted(config.stash[UNPROVED]):
        terminalreporter.write_line(f"not proved here: {line}", yellow=True)
