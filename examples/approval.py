"""An approval: the work waits in the store until a person says yes, here from another process."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from baton import Limits, Relay


def team(url):
    relay = Relay(url, limits=Limits(approve=("deploy",)))

    @relay.agent("deploy")
    async def deploy(turn):
        return f"{turn.task}: done"

    return relay


def approve(url):
    with Relay(url) as relay:
        for handoff in relay.waiting():
            relay.approve(handoff.id, by="ana", reason="tests are green")


def main(url):
    with team(url) as relay:
        asked = relay.run_sync("deploy", "release version 2", wait=False)
        print(asked.status)
        # This process could end here, and somebody approve days later.
        subprocess.run([sys.executable, __file__, url], check=True)
        result = asyncio.run(relay.resume(asked.workflow_id))
        print(result.output)
        said = relay.audit.query(to_agent="deploy")
        print([(record.event_type, record.by, record.reason) for record in said if record.by == "ana"])


if __name__ == "__main__":
    if sys.argv[1:]:
        approve(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as place:
            main(str(Path(place) / "team.db"))
