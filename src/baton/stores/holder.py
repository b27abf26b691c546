"""Who holds a claim: a name that says on which host, boot and process, so that death can be proved.

Doubt is not death: only a process of this host that is certainly gone counts as dead. A process that has turned into
another program (exec) is gone, too: it keeps its number and its start time, but its stack begins elsewhere.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from baton import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

Life = Literal["alive", "dead", "unknown"]
_PARTS = 5
LEASED = "~"  # ends a holder that counts only as long as its lease, whatever its process does


class Machine(Protocol):
    """What is asked of the operating system; `use` puts another one in its place."""

    def place(self) -> tuple[str, str]: ...
    def pid(self) -> int: ...
    def started(self, pid: int) -> str | None: ...


class SystemMachine:
    """The machine that this process runs on."""

    @cache  # noqa: B019 - there is but one
    def place(self) -> tuple[str, str]:
        """The host (with its space of process ids), and its boot."""
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            space = str(Path("/proc/self/ns/pid").stat().st_ino)
        except OSError:
            return socket.gethostname(), "-"
        return f"{socket.gethostname()}.{space}", boot

    def pid(self) -> int:
        """The number of this process."""
        return os.getpid()

    def started(self, pid: int) -> str | None:
        """When a live process began, and `.` its image; "" where it cannot be told, None when it is certainly gone."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None if Path("/proc/self/stat").exists() else _signalled(pid)
        except OSError:
            return ""
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19] + _image(fields[25])


def _image(stack: str) -> str:
    """What tells one program of a process from the next: where its stack begins, which only an exec changes.

    Four digits of a digest: the address itself is nobody else's business.
    """
    return "" if stack == "0" else f".{sha256(stack.encode()).hexdigest()[:4]}"


def _signalled(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""


_machine: Machine = SystemMachine()


@contextmanager
def use(machine: Machine) -> Iterator[Machine]:
    """Ask another machine while the block runs."""
    global _machine  # noqa: PLW0603 - the one switch that makes simulated deaths possible
    before, _machine = _machine, machine
    try:
        yield machine
    finally:
        _machine = before


def identity() -> str:
    """A name for one worker of this process, never used twice."""
    (host, boot), pid = _machine.place(), _machine.pid()
    return f"{host}/{boot}/{pid}/{_machine.started(pid) or '-'}/{clock.new_id()[:8]}"


def life(holder: str) -> Life:
    """Whether the process behind a holder lives, as far as it can be proved from here."""
    parts = holder.split("/")
    if len(parts) != _PARTS or not parts[2].isdigit() or holder.endswith(LEASED):
        return "unknown"
    host, boot = _machine.place()
    if parts[0] != host:
        return "unknown"
    if parts[1] != boot:
        return "dead"
    started = _machine.started(int(parts[2]))
    if started is None:
        return "dead"
    ticks, _, image = parts[3].partition(".")
    now, _, seen = started.partition(".")
    if not now or ticks == "-":
        return "unknown"
    replaced = image and seen and image != seen
    return "alive" if now == ticks and not replaced else "dead"


def readable(holder: str) -> str:
    """The holder as a person reads it."""
    parts = holder.split("/")
    return f"process {parts[2]} on {parts[0].partition('.')[0]}" if len(parts) == _PARTS else holder
