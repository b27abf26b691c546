"""Agents as plain processes: each in a session of its own, with a record and a log file in one folder."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from baton import processes
from baton.board.jobs import GRACE, Job, Ticket, Window, settled, undead
from baton.errors import Unfinished
from baton.stores.holder import SystemMachine

_KEYS = {"name", "noun", "begun", "boot", "status", "item", "request", "pid", "started", "keeper"}


class Plain:
    """The `Windows` of a machine without tmux, or of a person who wants none."""

    shows = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._boot = SystemMachine().place()[1]

    def start(self, job: Job) -> Window:
        """Start it, and somebody beside it who records how it ends."""
        ticket = Ticket(self.folder, job.noun, lambda name: self._file(name).exists())
        record = {
            "name": ticket.name, "noun": job.noun, "begun": ticket.begun, "boot": self._boot, "status": None,
            "item": os.fsencode(job.item).hex(), "request": os.fsencode(job.request).hex(),
        }  # fmt: skip
        file = self._file(ticket.name)
        try:
            with subprocess.Popen(
                ticket.argv("keep"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as keeper:
                ticket.go(job, record=record, file=str(file), log=str(file.with_suffix(".log")))
                said, fault = keeper.communicate()
        finally:
            ticket.close()
        try:
            return self._window(json.loads(said))
        except ValueError:
            raise Unfinished(f"{ticket.name}: not started: {fault.decode(errors='replace')[-300:]!r}") from None

    def list(self) -> list[Window]:
        """Those whose records are there."""
        return [*settled(self._looked)]

    def stop(self, window: Window, grace: float = GRACE) -> Window:
        """End it and remove its record; the log stays."""
        if left := processes.end(window.pid, window.started, grace):
            raise undead(window, left)
        for last in self.list():
            if (last.id, last.pid, last.started) == (window.id, window.pid, window.started):
                self._file(last.name).unlink(missing_ok=True)
                return last
        return msgspec.structs.replace(window, running=False)

    def attach(self, window: Window) -> tuple[str, ...]:
        """The log, as it grows."""
        return "tail", "-n", "+1", "-f", window.log

    def attached(self) -> bool:
        """Nobody can be."""
        return False

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _looked(self) -> tuple[Sequence[Window], bool]:
        records = [record for file in self.folder.glob("agent-*.json") if (record := _read(file))]
        found = [self._window(record) for record in records]
        done = all(
            one.running or one.status is not None or record["boot"] != self._boot or not _lives(record["keeper"])
            for one, record in zip(found, records, strict=True)
        )
        return sorted(found, key=lambda one: (one.begun, one.name)), done

    def _window(self, record: dict[str, Any]) -> Window:
        log = self._file(record["name"]).with_suffix(".log")
        ours = record["boot"] == self._boot
        return Window(
            id=record["name"],
            name=record["name"],
            noun=record["noun"],
            item=os.fsdecode(bytes.fromhex(record["item"])),
            request=os.fsdecode(bytes.fromhex(record["request"])),
            pid=record["pid"],
            started=record["started"],
            begun=record["begun"],
            active=_written(log, record["begun"]),
            running=record["status"] is None and ours and _lives((record["pid"], record["started"])),
            status=record["status"],
            log=str(log),
        )


def _lives(process: tuple[int, str]) -> bool:
    pid, began = process
    return processes.started(pid) == began


def _read(file: Path) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(file.read_bytes())
        if record.keys() >= _KEYS:
            return record
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError):
        pass
    raise Unfinished(f"{file}: not readable; end that agent by hand, then remove the file")


def _written(log: Path, begun: int) -> int:
    try:
        return max(begun, log.stat().st_mtime_ns // 1000)
    except OSError:
        return begun
