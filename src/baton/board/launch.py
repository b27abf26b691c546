"""Stands in a window in the place of the program until the window is marked as ours, then starts the program.

It is run by its path, by `python -I`, and imports nothing of baton: what stands in the working directory or in the
environment has no say in it. What to start it reads from a ticket, so neither tmux nor a list of processes sees it.
The ticket is locked by who starts; whoever dies half-way leaves an empty one, and then nothing is started.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any

NOT_STARTED = 75  # the one who began this is gone
NOT_FOUND = 127


def main() -> int:
    """`launch.py exec TICKET` becomes the program; `launch.py keep TICKET` stays beside it and records how it ends."""
    mode, ticket = sys.argv[1:]
    if mode == "keep":
        if os.fork():
            return 0
        os.setsid()
    document = _read(ticket)
    if document is None:
        _remove(ticket)
        return NOT_STARTED
    if mode == "keep":
        return _keep(document, ticket)
    _remove(ticket)
    return _become(document, {name: os.environb[name] for name in (b"TERM", b"COLORTERM") if name in os.environb})


def _read(ticket: str) -> dict[str, Any] | None:
    """What stands on the ticket once nobody writes to it any more."""
    try:
        with open(ticket, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            document: dict[str, Any] = json.loads(file.read())
    except (FileNotFoundError, ValueError):
        return None
    return document


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _raw(text: str) -> bytes:
    """The bytes of an argument: each stands for one letter on the ticket."""
    return text.encode("latin-1")


def _become(document: dict[str, Any], terminal: dict[bytes, bytes]) -> int:
    argv = [_raw(one) for one in document["argv"]]
    environment = {_raw(name): _raw(value) for name, value in document["environment"].items()} | terminal
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and that would be inherited
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(_raw(document["folder"]))
        os.execvpe(argv[0], argv, environment)  # noqa: S606 - no shell is what is wanted
    except OSError as error:
        print(f"not started: {argv[0]!r} in {document['folder']!r}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return NOT_FOUND


def _keep(document: dict[str, Any], ticket: str) -> int:
    """Start the program in a session of its own, tell its process, and record how it ends."""
    record, log = document["record"], os.open(document["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    pid = os.fork()
    if not pid:
        os.setsid()
        for number, source in enumerate((null, log, log)):
            os.dup2(source, number)
        status = NOT_FOUND
        try:
            status = _become(document, {b"TERM": b"dumb"})
        finally:
            sys.stderr.flush()
            os._exit(status)
    record["pid"], record["started"] = pid, _started(pid)
    record["keeper"] = [os.getpid(), _started(os.getpid())]
    _write(document["file"], record)
    _remove(ticket)
    sys.stdout.write(json.dumps(record))
    sys.stdout.flush()
    for number, source in enumerate((null, log, log)):
        os.dup2(source, number)
    while True:
        try:
            record["status"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            break
        except InterruptedError:
            continue
    if os.path.exists(document["file"]):
        _write(document["file"], record)
    return 0


def _started(pid: int) -> str:
    """When a process began, in the words of `processes.started`."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        import subprocess

        argv = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def _write(path: str, record: dict[str, Any]) -> None:
    new = path + ".new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        json.dump(record, file)
    os.replace(new, path)


if __name__ == "__main__":
    sys.exit(main())
