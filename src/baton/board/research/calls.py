"""HTTP with JSON to a provider: one call, one answer, and no doubt about what is known after it.

The client of the standard library, a new connection for each call: minutes lie between two of them. TLS is verified.
Redirects are not followed, so the key goes to one host only. Proxies in the environment are not used.
The key stands in one header; what the provider sends back is searched for it before anybody reads it.
"""

from __future__ import annotations

import http.client
import math
import ssl
import threading
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from baton import clock
from baton.board.research.base import Job, said
from baton.errors import Malformed

SILENCE = 30.0  # seconds without a byte
WHOLE = 120.0  # seconds for a call, however many bytes drip in
LARGEST = 16 * 1024 * 1024
SHORTEST = 8  # characters of a key: what is shorter would be found in any answer
LONGEST_WAIT = 3600.0  # what a Retry-After may ask for

# What a server says when it is not known whether it did what it was asked.
_DOUBTFUL = frozenset({302, 303, 408, 409, 425})


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call. `sent` is False only where the request surely never reached the provider."""

    sent: bool
    status: int = 0
    body: dict[str, Any] | None = None
    again: float | None = None
    why: str = ""


class Caller:
    """Calls one provider at one base URL with one key."""

    def __init__(self, base: str, key: str, header: tuple[str, str], **headers: str) -> None:
        """`header` is the name of the header with the key, and what stands in it before the key."""
        if not (len(key) >= SHORTEST and key.isascii() and key.isprintable() and " " not in key):
            raise Malformed(
                "the API key is too short, or holds characters that no key has; set it again, and nothing else"
            )
        self._key = key
        self._base = _checked(base)
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._headers |= {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "baton"}
        self._headers[header[0]] = header[1] + key

    def __repr__(self) -> str:
        return f"Caller({self._base.hostname!r})"

    def call(self, method: str, path: str, body: object = None) -> Answer:
        """Ask once; every error that the network has is an answer, too."""
        data = None if body is None else msgspec.json.encode(body)
        connection = self._connection()
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            again = None if isinstance(error, ssl.SSLError) else 0.0  # a wrong certificate does not mend itself
            return Answer(sent=False, again=again, why=f"{self._base.hostname} cannot be reached: {_named(error)}")
        watch = threading.Timer(WHOLE, _cut, [connection])
        watch.daemon = True
        watch.start()
        try:
            connection.request(method, self._base.path.rstrip("/") + path, data, self._headers)
            return self._read(connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            return Answer(sent=True, why=f"{self._base.hostname} gave no whole answer: {_named(error)}")
        finally:
            watch.cancel()
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = str(self._base.hostname), self._base.port
        if self._base.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=SILENCE)
        return http.client.HTTPSConnection(host, port, timeout=SILENCE, context=ssl.create_default_context())

    def _read(self, response: http.client.HTTPResponse) -> Answer:
        raw = bytearray()
        while len(raw) <= LARGEST and (some := response.read1(1 << 16)):
            raw += some
        if len(raw) > LARGEST:
            return Answer(sent=True, why=f"the answer is larger than {LARGEST} bytes")
        if response.length:  # read1 does not mind that the connection ended before the length that was promised
            return Answer(sent=True, why="the connection was cut in the middle of the answer")
        body = _document(bytes(raw).replace(self._key.encode(), b"[key]"))
        why = f"{self._base.hostname} answered {response.status}{_complaint(body)}"
        return Answer(
            sent=True, status=response.status, body=body, again=_retry_after(response.getheader("Retry-After")), why=why
        )


def trouble(answer: Answer, job: str = "") -> Job | None:
    """What an answer without the document that was asked for says of the job; None where the document is there."""
    good = 200 <= answer.status < 300
    if good and answer.body is not None:
        return None
    if job and answer.status in {404, 410}:
        return Job(state="unknown", id=job, reason=answer.why)
    if not answer.sent:
        return Job(state="refused", id=job, reason=answer.why, again=answer.again)
    if answer.status == 429:
        return Job(state="refused", id=job, reason=answer.why, again=answer.again or 0.0)
    if 300 <= answer.status < 500 and answer.status not in _DOUBTFUL:
        return Job(state="refused", id=job, reason=answer.why)
    reason = f"{answer.why}, and not with a JSON object" if good else answer.why
    return Job(state="unanswered", id=job, reason=reason, again=answer.again or 0.0)


def _checked(base: str) -> SplitResult:
    try:
        parts = urlsplit(base)
        port = parts.port
        local = parts.scheme == "http" and parts.hostname == "127.0.0.1" and port is not None
        plain = base.isascii() and base.isprintable() and " " not in base and not (parts.query or parts.fragment)
        if (local or parts.scheme == "https") and parts.hostname and plain and "@" not in parts.netloc:
            return parts
    except ValueError:
        pass
    raise Malformed(
        "the provider's URL is neither https://HOST nor http://127.0.0.1:PORT; unset it to use the usual one"
    )


def _cut(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # it ended at the same moment
        connection.sock.shutdown(2)


def _named(error: BaseException) -> str:
    words = getattr(error, "strerror", None) or getattr(error, "reason", None)
    return said(words or type(error).__name__)


def _document(raw: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(found, list) and found:  # Google wraps some errors into a list
        found = found[0]
    return found if isinstance(found, dict) else None


def _complaint(body: dict[str, Any] | None) -> str:
    error = (body or {}).get("error")
    words = error.get("message") if isinstance(error, dict) else error
    return f": {said(words)}" if isinstance(words, str) and words else ""


def _retry_after(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - clock.now() / clock.SECOND
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST_WAIT) if math.isfinite(seconds) else None
