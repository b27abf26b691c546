"""Who holds a claim: a name that says on which host, boot and process, so that death can be proved.

Doubt is not death: only a process of this host that is certainly gone counts as dead. A process that has turned into
another program (exec) is gone, too: it keeps its number and its start time, but its stack begins elsewhere.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Literal

from baton import clock

Life = Literal["alive", "dead", "unknown"]
_PARTS = 5
LEASED = "~"  # ends a holder that counts only as long as its lease, whatever its process does


@cache
def _place() -> tuple[str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return socket.gethostname(), "-"
    return f"{socket.gethostname()}.{space}", boot


def _started(pid: int) -> tuple[str, str] | None:
    """Start ticks and image of a live process, each "" where it cannot be read; None when it is certainly gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _signalled(pid)
    except OSError:
        return "", ""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else (fields[19], _image(fields[25]))


def _image(stack: str) -> str:
    """What tells one program of a process from the next: where its stack begins, which only an exec changes.

    Four digits of a digest: the address itself is nobody else's business.
    """
    return "" if stack == "0" else sha256(stack.encode()).hexdigest()[:4]


def _signalled(pid: int) -> tuple[str, str] | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return "", ""
    return "", ""


def identity() -> str:
    """A name for one worker of this process, never used twice."""
    host, boot = _place()
    ticks, image = _started(os.getpid()) or ("", "")
    return f"{host}/{boot}/{os.getpid()}/{ticks or '-'}{image and '.'}{image}/{clock.new_id()[:8]}"


def life(holder: str) -> Life:
    """Whether the process behind a holder lives, as far as it can be proved from here."""
    parts = holder.split("/")
    if len(parts) != _PARTS or not parts[2].isdigit() or holder.endswith(LEASED):
        return "unknown"
    host, boot = _place()
    if parts[0] != host:
        return "unknown"
    if parts[1] != boot:
        return "dead"
    started = _started(int(parts[2]))
    if started is None:
        return "dead"
    ticks, _, image = parts[3].partition(".")
    if not started[0] or ticks == "-":
        return "unknown"
    replaced = image and started[1] and image != started[1]
    return "alive" if started[0] == ticks and not replaced else "dead"


def readable(holder: str) -> str:
    """The holder as a person reads it."""
    parts = holder.split("/")
    return f"process {parts[2]} on {parts[0].partition('.')[0]}" if len(parts) == _PARTS else holder
