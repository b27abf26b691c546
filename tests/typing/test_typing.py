"""The public names carry types that a strict checker accepts, and that say what they are."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def check(path, cache):
    options = ["--strict", "--no-error-summary", "--cache-dir", str(cache), "--config-file", "", "--follow-imports"]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "silent", str(path)], capture_output=True, text=True, check=False
    )
    return run.stdout + run.stderr


def test_a_program_of_public_names_is_typed(tmp_path):
    assert check(HERE / "api.py", tmp_path) == ""


def test_a_wrong_use_is_an_error(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from baton import Limits, Relay, Turn\n"
        "Limits(max_handoffs='five')\n"
        "Relay(durability='none')\n"
        "with Relay() as relay:\n"
        "    number: int = relay.run_sync('a', 'work').status\n"
        "    relay.run_sync('a', 'work', on_failure='perhaps')\n"
        "    relay.run_sync('a', 'work', approved_by='me')\n"
        "async def agent(turn: Turn) -> None:\n"
        "    await turn.delegate('b', 'part', epoch=3)\n"
        "    turn.state['x'] = 1\n"
    )
    found = check(wrong, tmp_path / "cache")
    assert [line.partition(": error")[0].rpartition(":")[2] for line in found.splitlines() if ": error" in line] == [
        "2",
        "3",
        "5",
        "6",
        "7",
        "9",
        "10",
    ], found
