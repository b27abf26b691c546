"""Who holds a claim: a name that says on which host, boot and process, so that death can be proved.

Doubt is not death: only a process of this host that is certainly gone counts as dead. A process that has turned into
another program (exec) is gone, too: it keeps its number and its start time, but its stack begins elsewhere.
"""

from __future__ import annotations

import os

from baton import clock
from baton.digest import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, Protocol

    Life = Literal["alive", "dead", "unknown"]

    class Machine(Protocol):
        """What is asked of the operating system; `use` puts another one in its place."""

        def place(self) -> tuple[str, str]: ...
        def pid(self) -> int: ...
        def started(self, pid: int) -> str | None: ...


_PARTS = 5
LEASED = "~"  # ends a holder that counts only as long as its lease, whatever its process does


class SystemMachine:
    """The machine that this process runs on."""

    def __init__(self) -> None:
        self._place: tuple[str, str] | None = None

    def place(self) -> tuple[str, str]:
        """The host (with its space of process ids), and its boot."""
        if self._place is None:
            self._place = _place()
        return self._place

    def pid(self) -> int:
        """The number of this process."""
        return os.getpid()

    def started(self, pid: int) -> str | None:
        """When a live process began, and `.` its image; "" where it cannot be told, None when it is certainly gone."""
        try:
            stat = _read(f"/proc/{pid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            return None if os.path.exists("/proc/self/stat") else _signalled(pid)
        except OSError:
            return ""
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19] + _image(fields[25])


def _place() -> tuple[str, str]:
    name = os.uname().nodename
    try:
        return f"{name}.{os.stat('/proc/self/ns/pid').st_ino}", _read("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return name, "-"


def _read(path: str) -> str:
    """A file of the kernel's, which has its whole content ready at the first look."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(number, 4096).decode("utf-8", "replace")
    finally:
        os.close(number)


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


class use:  # noqa: N801 - used as `with holder.use(machine):`, like clock.use
    """Ask another machine while the block runs."""

    def __init__(self, machine: Machine) -> None:
        self._new = machine

    def __enter__(self) -> Machine:
        global _machine
        self._before, _machine = _machine, self._new
        return self._new

    def __exit__(self, *_error: object) -> None:
        global _machine  # noqa: PLW0603 - the one switch that makes simulated deaths possible
        _machine = self._before


def here() -> tuple[str, str]:
    """The host of this process (with its space of process ids), and its boot."""
    return _machine.place()


def name_of(pid: int) -> str:
    """A name for the claim of another process of this host, never used twice."""
    host, boot = _machine.place()
    return f"{host}/{boot}/{pid}/{_machine.started(pid) or '-'}/{clock.new_id()[:8]}"


def identity() -> str:
    """A name for one worker of this process, never used twice."""
    return name_of(_machine.pid())


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
