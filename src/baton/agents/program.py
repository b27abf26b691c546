"""A program as an agent: it is started for each turn, reads the work from its standard input, and writes its answer.

What it reads is one JSON document:

    {"task", "state", "messages": [{"role", "content", …}], "attempt", "idempotency_key", "files_in_progress",
     "handoff": the record, as the protocol writes it}

`messages` is the part of the conversation that crossed. What it writes to its standard output is its answer, as text.
To say more, it writes a return of the protocol, `{"return": {"handoff_id": …, "status": …, "result": …}}`, as the last
line, or into the file that BATON_RETURN names. An exit code that is not 0 is a failure, with the end of its standard
error.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from baton import clock, config, processes
from baton.agents.base import OwnThread
from baton.errors import BatonError, Malformed, NotFound, TimedOut, TooLarge
from baton.protocol import codec, handoff, secrets
from baton.protocol.results import Return, read_return

if TYPE_CHECKING:
    from baton.agents.base import Turn

LARGEST = 8 * 1024 * 1024  # bytes of an answer
TAIL = 2000  # bytes of the standard error that a failure shows
GRACE = 5.0  # seconds between the request to end and the order
LOOK = 0.05
CHUNK = 64 * 1024


class ProgramFailed(BatonError):
    """A program ended with an exit code that is not 0."""


class _CalledOffError(Exception):
    """Nobody waits for the program any more."""


class ProgramAgent:
    """Runs a command for each turn: no shell, an environment of its own, and nothing of it left when the turn ends.

    `environment` names what the program gets besides the usual (NAME or PREFIX*), `set` what is set to a value.
    What such a variable holds is masked in what the program says.
    """

    def __init__(
        self,
        *argv: str,
        timeout: float = 3600.0,
        environment: Sequence[str] = (),
        set: Mapping[str, str] | None = None,  # noqa: A002 - the same word as in clis.toml
        folder: str | Path | None = None,
        largest: int = LARGEST,
    ) -> None:
        if not argv or not argv[0] or any("\0" in codec.text(one, "argv") for one in argv):
            raise Malformed("ProgramAgent: name a program and its arguments, each as a text of its own")
        self.argv = argv
        self.timeout = codec.seconds(timeout, "timeout")
        self.environment = codec.names(environment, "environment")
        self.set = dict(set or {})
        self.folder = folder
        self.largest = largest

    async def run(self, turn: Turn) -> Any:
        """Start the program, wait for it, and read its answer."""
        document = _document(turn)
        thread, work = OwnThread(), _Work(self)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(thread, work.run, turn.handoff.id, document)
        except asyncio.CancelledError:
            work.stop()
            if not thread.call.done():
                turn.outlast(thread.call)
            raise

    async def aclose(self) -> None:
        """Nothing to close: whatever was started ends with its turn."""


class _Work:
    """One run of the program."""

    def __init__(self, agent: ProgramAgent) -> None:
        self._agent = agent
        self._stopped = False

    def stop(self) -> None:
        """End it at the next look."""
        self._stopped = True

    def run(self, handoff_id: str, document: bytes) -> Any:
        """From the start of the program to its answer."""
        agent = self._agent
        own = config.environment()
        passed = {**processes.passed(own, agent.environment), **agent.set}
        mask = secrets.known(passed[name] for name in passed.keys() - processes.passed(own, ()).keys()).redact
        program = shutil.which(agent.argv[0], path=passed.get("PATH"))
        if program is None:
            raise NotFound(f"{agent.argv[0]}: not found on PATH; install it, or name the program by its path")
        with tempfile.TemporaryDirectory(prefix="baton-") as folder:
            answer = Path(folder, "return.json")
            child = subprocess.Popen(
                [str(Path(program).absolute()), *agent.argv[1:]],
                cwd=agent.folder,
                env={**passed, "BATON_RETURN": str(answer)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            began = processes.started(child.pid) or ""
            talk = _Talk(child, document, agent.largest)
            try:
                said, complaint = talk.until_end(self._check)
            finally:
                processes.end(child.pid, began, GRACE)
                child.wait()
                talk.close()
            if child.returncode:
                raise ProgramFailed(f"{agent.argv[0]} ended with {child.returncode}: {mask(_end(complaint))}")
            return _answer(_read(answer, agent.largest), mask(said.decode(errors="replace")), handoff_id, mask)

    def _check(self, seconds: float) -> None:
        if self._stopped:
            raise _CalledOffError
        if seconds > self._agent.timeout:
            raise TimedOut(f"{self._agent.argv[0]}: no end after {self._agent.timeout:g} s; it was ended")


class _Talk:
    """What is written to a program, and what it says, as far as there is room."""

    def __init__(self, child: subprocess.Popen[bytes], document: bytes, largest: int) -> None:
        self._child = child
        self._stdin, self._stdout, self._stderr = streams = _streams(child)
        for stream in streams:
            os.set_blocking(stream.fileno(), False)
        self._left = memoryview(document)
        self._largest = largest
        self._said = bytearray()
        self._complaint = bytearray()

    def until_end(self, check: Callable[[float], None]) -> tuple[bytes, bytes]:
        """Both outputs once the program has ended; what it left running is not waited for."""
        begun = clock.monotonic()
        child = self._child
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdin, selectors.EVENT_WRITE)
            for stream in (self._stdout, self._stderr):
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ended = child.poll() is not None
                ready = selector.select(0 if ended else LOOK)
                for key, _ in ready:
                    if not self._move(key.fileobj):
                        selector.unregister(key.fileobj)
                if ended and not any(key.fileobj is not self._stdin for key, _ in ready):
                    break
                check(clock.monotonic() - begun)
        while child.poll() is None:
            check(clock.monotonic() - begun)
            with suppress(subprocess.TimeoutExpired):
                child.wait(LOOK)
        return bytes(self._said), bytes(self._complaint)

    def close(self) -> None:
        """Let go of the pipes."""
        for stream in (self._stdin, self._stdout, self._stderr):
            with suppress(OSError):  # what was not written is of no use any more
                stream.close()

    def _move(self, stream: Any) -> bool:
        """Write or read a piece; False where the stream is at its end."""
        try:
            if stream is self._stdin:
                self._left = self._left[os.write(stream.fileno(), self._left[:CHUNK]) :]
                if self._left:
                    return True
                stream.close()
                return False
            piece = os.read(stream.fileno(), CHUNK)
        except BlockingIOError:
            return True
        except BrokenPipeError:  # it does not want to read all of it
            return False
        if stream is self._stderr:
            self._complaint = (self._complaint + piece)[-TAIL:]
        else:
            self._said += piece
            if len(self._said) > self._largest:
                raise TooLarge(f"the program said more than {self._largest} bytes; let it write files, and name those")
        return bool(piece)


def _streams(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    if child.stdin is None or child.stdout is None or child.stderr is None:
        raise TypeError("all three are pipes")
    return child.stdin, child.stdout, child.stderr


def _document(turn: Turn) -> bytes:
    return codec.canonical(
        {
            "task": turn.task,
            "state": dict(turn.state),
            "messages": [codec.plain(one) for one in turn.messages],
            "attempt": turn.attempt,
            "idempotency_key": turn.idempotency_key,
            "files_in_progress": turn.files_in_progress,
            **handoff.document(turn.handoff),
        }
    )


def _read(file: Path, largest: int) -> bytes:
    """What stands in the file for the return; nothing where there is none."""
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    with os.fdopen(number, "rb") as opened:
        data = opened.read(largest + 1)
    if len(data) > largest:
        raise TooLarge(f"the return is larger than {largest} bytes; let it name files")
    return data


def _answer(written: bytes, said: str, handoff_id: str, mask: Callable[[str], str]) -> Any:
    """The return that was written or said last; else what was said is the answer."""
    last = said.rstrip().rpartition("\n")[2]
    document = mask(written.decode(errors="replace")) if written.strip() else last if _is_return(last) else ""
    if not document:
        return said.rstrip("\n")
    found: Return = read_return(document)
    if found.handoff_id != handoff_id:
        raise Malformed(f"return.handoff_id: {found.handoff_id!r:.60} is not the handoff of this turn, {handoff_id}")
    return found


def _is_return(line: str) -> bool:
    """Whether a line means to be a return of the protocol."""
    if not line.startswith("{"):
        return False
    try:
        document = codec.read_object(line, "return")
    except BatonError:
        return False
    inner = document.get("return", document)
    return isinstance(inner, dict) and bool(inner.keys() & {"handoff_id", "handoffId"})


def _end(complaint: bytes) -> str:
    return " ".join(complaint.decode(errors="replace").split()) or "it said nothing to its standard error"
