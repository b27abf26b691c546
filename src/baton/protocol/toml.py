"""The reader of settings in TOML: bounded in size and time, with one line for each fault."""

from __future__ import annotations

from typing import Any

from baton.errors import Malformed, TooLarge
from baton.protocol import codec

MAX_FILE = 512 * 1024
MAX_LINE = 16 * 1024
MAX_DOTS = 200  # in a line: a key of thousands of parts takes a reader of TOML minutes


def read_toml(data: bytes, file: str) -> dict[str, Any]:
    """Parse a file of settings; an error is one line that names the file, the place and the cure."""
    import tomllib

    if len(data) > MAX_FILE:
        raise TooLarge(f"{file}: larger than {MAX_FILE} bytes; describe fewer agents, with shorter texts")
    for number, line in enumerate(data.splitlines(), 1):
        if len(line) > MAX_LINE or line.count(b".") > MAX_DOTS:
            raise Malformed(f"{file}: line {number} is too long ({len(line)} bytes); write it in several lines")
    try:
        document = tomllib.loads(str(data, "utf-8"))
    except RecursionError:
        raise Malformed(f"{file}: {codec.DEEP}") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"{file}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except ValueError as error:  # also a whole number of thousands of digits
        raise Malformed(f"{file}: not TOML: {str(error)[:200]}; correct that place") from None
    codec.check(document, file)
    return document
