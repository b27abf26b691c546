"""Killed and resumed: a process dies, another one goes on, and what was done is not done again."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from baton import Relay


def team(url, *, dies=False):
    relay = Relay(url)

    @relay.agent("analyst")
    async def analyst(turn):
        figures = await turn.delegate("reader", "read the sales figures")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"total {sum(figures.output)} in attempt {turn.attempt}"

    @relay.agent("reader")
    async def reader(turn):
        print("reader reads", flush=True)
        return [17, 25]

    return relay


def main(url):
    child = subprocess.run([sys.executable, __file__, url], check=False)
    print(f"the first process ended with {child.returncode}", flush=True)
    with team(url) as relay:
        result = relay.run_sync("analyst", "add up the sales", workflow_id="sales")
        print(result.output)


if __name__ == "__main__":
    if sys.argv[1:]:
        team(sys.argv[1], dies=True).run_sync("analyst", "add up the sales", workflow_id="sales")
    else:
        with tempfile.TemporaryDirectory() as place:
            main(str(Path(place) / "team.db"))
# ruff: noqa: ARG001 - an agent takes a turn, used or not
