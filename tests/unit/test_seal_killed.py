"""Killed at every write while it seals, notes checkpoints and exports: nothing lost, torn or sealed twice."""

from pathlib import Path

import pytest

from baton.guards.base import ALLOW
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Limits
from baton.stores import open_store
from baton.stores.base import Offer, Workflow
from baton.stores.export import export
from baton.stores.seal import checkpoint, checkpoints, seal
from baton.stores.verify import verify
from baton.testing import kill_sweep, power_loss

ROWS = 6
FILE = "000000000001-000000000006.jsonl"


def prepare(directory):
    store = open_store(f"{directory}/team.db")
    for number in range(ROWS):
        name = f"h{number}"
        handoff = Handoff(
            id=name, root_id=name, line_id=name, workflow_id=name, conversation_id=name,
            from_agent="triage", to_agent="billing",
        )  # fmt: skip
        flow = Workflow(id=name, root_id=name, conversation_id=name, limits=Limits())
        store.offer(Offer(handoff=handoff, fingerprint="ab" * 32, workflow=flow), lambda *_: ALLOW)
    store.close()


def work(directory, acknowledge):
    store = open_store(f"{directory}/team.db")
    seal(store, limit=4)
    acknowledge("sealed")
    checkpoint(f"{directory}/state", store)
    acknowledge("checkpoint")
    export(store, directory, "shop")
    acknowledge("exported")
    store.close()


def all_is_whole(directory, acknowledged):
    store = open_store(f"{directory}/team.db")
    folder = Path(directory, "core", "logs", "shop", "handoff-audit")
    points = checkpoints(f"{directory}/state")
    report = verify(store, checkpoints=points)
    assert report.ok, report
    assert report.records + report.unsealed == ROWS
    assert report.unsealed == 0 or "sealed" not in acknowledged
    assert len(points) == 1 or "checkpoint" not in acknowledged
    exported = verify(folder) if folder.exists() else None
    assert exported is None or exported.ok, exported
    assert "exported" not in acknowledged or exported.records == ROWS

    work(directory, lambda _: None)
    again = verify(folder, checkpoints=checkpoints(f"{directory}/state"))
    assert (again.ok, again.records, again.checkpoints) == (True, ROWS, 1), again
    store.close()


@pytest.mark.parametrize("mode", ["kill", "torn", "ENOSPC"])
def test_killed_at_every_write(mode):
    report = kill_sweep(work, all_is_whole, prepare=prepare, mode=mode)
    report.assert_clean()
    assert report.points > 15
    if mode == "kill":
        seen = set(report.operations)
        assert {"write team.db-wal", "sync audit-checkpoints.jsonl", f"rename .{FILE}.part"} <= seen


def test_the_power_fails():
    report = power_loss(work, all_is_whole, prepare=prepare)
    report.assert_clean()
