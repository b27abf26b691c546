"""Child processes to be killed.

A fork is safe only in a process with one thread, which a test runner is not. So a sweep first moves into
a clean process, spawned for it, and forks its children there: milliseconds each, and whatever a child
does to its memory, its patched functions and its locks ends with it. What is handed to the clean process
must be importable: functions at the top of a module, or `functools.partial` of them.
"""

from __future__ import annotations

import functools
import importlib.util
import multiprocessing
import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

PATIENCE = 60.0  # seconds until a child counts as hung

_HEAD = struct.Struct("!cI")
_write, _close = os.write, os.close  # a tap may replace those of os in a child

T = TypeVar("T")
Tell = Callable[[bytes, str], None]


@dataclass(frozen=True)
class Outcome:
    """What came of a child: its messages by kind, and the signal or exit status that ended it."""

    messages: tuple[tuple[bytes, str], ...]
    status: int
    hung: bool

    def of(self, kind: bytes) -> list[str]:
        """Return the messages of one kind, in order."""
        return [text for tag, text in self.messages if tag == kind]

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL and not self.hung


class Child:
    """A forked process that runs `body(tell)`; a message told is safe, whatever happens next."""

    def __init__(self, body: Callable[[Tell], object]) -> None:
        self._reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _live(body, writing)
        os.close(writing)

    def finish(self, patience: float = PATIENCE) -> Outcome:
        """Wait for the end, kill what hangs, and return what was told."""
        deadline, received, hung = time.monotonic() + patience, bytearray(), False
        while True:
            if not select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
                hung = True
                os.kill(self.pid, signal.SIGKILL)
                break
            chunk = os.read(self._reading, 1 << 16)
            if not chunk:
                break
            received += chunk
        os.close(self._reading)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return Outcome(tuple(_messages(bytes(received))), status, hung)


def _live(body: Callable[[Tell], object], pipe: int) -> None:
    def tell(kind: bytes, text: str) -> None:
        encoded = text.encode()
        _write(pipe, _HEAD.pack(kind, len(encoded)) + encoded)

    status = 1
    try:
        body(tell)
        status = 0
    except BaseException:  # noqa: BLE001 - a child must never return into its parent's program
        tell(b"E", traceback.format_exc())
    finally:
        os._exit(status)


def _messages(received: bytes) -> list[tuple[bytes, str]]:
    found, at = [], 0
    while at + _HEAD.size <= len(received):
        kind, size = _HEAD.unpack_from(received, at)
        at += _HEAD.size + size
        if at <= len(received):
            found.append((kind, received[at - size : at].decode()))
    return found


def in_clean_process(function: Callable[..., T], *args: Any) -> T:
    """Call a function in a fresh process with one thread, and return or raise what it did."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    payload = pickle.dumps((function, args))
    process = context.Process(target=_serve, args=(theirs, _sources(args), payload))
    process.start()
    theirs.close()
    try:
        done, value, trace = ours.recv()
    except EOFError:
        raise RuntimeError(f"the process of {function.__qualname__} died") from None
    finally:
        ours.close()
        process.kill()
        process.join()
        process.close()
    if not done:
        value.add_note(trace)
        raise value
    return cast("T", value)


def _sources(args: tuple[Any, ...]) -> dict[str, str]:
    names: set[str] = set()
    for arg in args:
        plain = arg
        while isinstance(plain, functools.partial):
            plain = plain.func
        if callable(plain):
            names.add(getattr(plain, "__module__", None) or type(plain).__module__)
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names - {"__main__"}}
    return {name: file for name, file in files.items() if file}


def _serve(answer: Connection, sources: dict[str, str], payload: bytes) -> None:
    try:
        for name, file in sources.items():
            _load(name, file)
        function, args = pickle.loads(payload)  # noqa: S301 - our own parent wrote it
        message = (True, function(*args), "")
    except Exception as error:  # noqa: BLE001 - raised again on the other side
        message = (False, error, "".join(traceback.format_exception(error)))
    answer.send(message)


def _load(name: str, file: str) -> None:
    # A test runner can import a module that is on no path, under a name of its own.
    try:
        importlib.import_module(name)
    except ImportError:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


def scratch() -> str | None:
    """Return a directory in memory where there is one: neither kill nor image needs a real disk."""
    memory = Path("/dev/shm")  # noqa: S108 - directories below it are made by tempfile
    return str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
