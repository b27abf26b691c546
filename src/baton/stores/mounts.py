"""Which file system holds a path."""

from __future__ import annotations

import os

NETWORK = (
    "9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs",
    "vboxsf", "virtiofs",
)  # fmt: skip


def file_system(path: str | os.PathLike[str], mounts: str | None = None) -> str:
    """The type of the file system that holds a path, or "" where it cannot be told."""
    if mounts is None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
                mounts = file.read()
        except OSError:
            return ""
    target = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, rest = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not rest:
            continue
        point = fields[4].encode().decode("unicode_escape") if "\\" in fields[4] else fields[4]
        below = target == point or target.startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best):
            best, kind = point, rest.split(" ")[0]
    return kind
