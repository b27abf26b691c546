"""SHA-256 for the verbs that agents call all the time: Python's own, since hashlib first loads OpenSSL."""

from __future__ import annotations

try:
    from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]  # Python 3.12 and later
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from hashlib import sha256

__all__ = ["sha256"]
