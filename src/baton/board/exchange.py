"""Exchange two names in one step, and see that a file is on the disk: calls of the system that Python has no names for.

`_ctypes` is what ctypes stands on; it loads ten times faster, and its two functions are enough for calls with plain
numbers and byte strings. Where it has changed, ctypes itself is asked.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HERE = -100  # AT_FDCWD: names begin at the working directory
EXCHANGE = 2  # RENAME_EXCHANGE, and RENAME_SWAP of macOS
BEGIN = 2  # SYNC_FILE_RANGE_WRITE
SETTLE = 7  # wait, write, wait

_found: dict[str, Callable[..., int] | None] = {}


def swap(one: str, other: str) -> bool:
    """Exchange two names; False where the file system cannot. A missing file is an error."""
    if sys.platform == "darwin":
        call, arguments = _call("renamex_np"), (os.fsencode(one), os.fsencode(other), EXCHANGE)
    else:
        call, arguments = _call("renameat2"), (HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE)
    if call is not None and call(*arguments) == 0:
        return True
    for name in (one, other):
        os.stat(name, follow_symlinks=False)
    return False


def begin(number: int) -> None:
    """Start to write a file to the disk, without waiting."""
    if (call := _call("sync_file_range")) is not None:
        call(number, 0, 0, BEGIN)


def settle(number: int) -> None:
    """Wait until the content of a file is on the disk, so that its new name can't get there first.

    Where a file system has a device to itself, its journal keeps the order of what follows. Others (btrfs, overlays)
    have none, and may remember late where the content stands.
    """
    call = _call("sync_file_range")
    if call is None or os.major(os.fstat(number).st_dev) == 0 or call(number, 0, 0, SETTLE) != 0:
        os.fsync(number)


def _call(name: str) -> Callable[..., int] | None:
    """A function of the C library; None where it has none of this name."""
    if name not in _found:
        _found[name] = _quick(name)
    return _found[name]


def _quick(name: str) -> Callable[..., int] | None:
    try:
        from _ctypes import call_function, dlopen, dlsym

        address = dlsym(dlopen(None, 0), name)  # type: ignore[arg-type]  # None: what is loaded already
    except (ImportError, TypeError):
        return _slow(name)
    except OSError:
        return None
    return lambda *arguments: int(call_function(address, arguments))


def _slow(name: str) -> Callable[..., int] | None:
    import ctypes

    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return function
