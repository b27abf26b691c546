"""The only reader of settings and of the environment."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from baton.errors import Malformed

STORE = ".baton/baton.db"


def store_url(given: str | None = None) -> str:
    """The store to use: what was named, else BATON_STORE, else a file below the working directory."""
    return given or os.environ.get("BATON_STORE") or STORE


def state_dir() -> Path:
    """Where this user's own records stand, outside of every repository."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "baton"


def person() -> str:
    """Who sits at this terminal."""
    return os.environ.get("BATON_USER") or os.environ.get("USER") or _login()


def _login() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise Malformed(f"user {os.getuid()} has no name here; say who you are with --by NAME or BATON_USER") from None


def coloured() -> bool:
    """Whether this user wants colours on a terminal."""
    return not any(os.environ.get(name) for name in ("BATON_NO_COLOR", "NO_COLOR")) and os.environ.get("TERM") != "dumb"
