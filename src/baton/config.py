"""The only reader of settings and of the environment."""

from __future__ import annotations

import os
import stat

from baton.errors import Malformed, NotFound, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

STORE = ".baton/baton.db"
MAX_FILE = 1024 * 1024


def store_url(given: str | None = None) -> str:
    """The store to use: what was named, else BATON_STORE, else a file below the working directory."""
    return given or os.environ.get("BATON_STORE") or STORE


def agents_file(given: str | None = None) -> str | None:
    """The operator's registry: the file that was named, else BATON_AGENTS; none is looked for."""
    return given or os.environ.get("BATON_AGENTS") or None


def provider_key(name: str) -> str:
    """The key for a provider of research, from the environment and nowhere else."""
    key = os.environ.get(f"{name.upper()}_API_KEY", "").strip()
    if not key:
        raise NotFound(f"{name.upper()}_API_KEY is not set; set it to your key for {name}, or choose another provider")
    return key


def provider_url(name: str, usual: str) -> str:
    """Where a provider of research is called: BATON_<NAME>_URL, else the usual place."""
    return os.environ.get(f"BATON_{name.upper()}_URL") or usual


def provider_model(name: str, usual: str) -> str:
    """Which model or agent of a provider does the research: BATON_<NAME>_MODEL, else the usual one."""
    return os.environ.get(f"BATON_{name.upper()}_MODEL") or usual


def research_provider() -> str:
    """Which provider does research where nobody names one: BATON_RESEARCH, else gemini."""
    return os.environ.get("BATON_RESEARCH") or "gemini"


def read_file(path: str | Path) -> bytes:
    """A settings file; only a regular one of a sensible size."""
    try:
        # Without waiting: opening a pipe would block until somebody writes to it.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise Malformed(f"{path}: not a regular file; name one")
            with open(number, "rb", closefd=False) as file:
                data = file.read(MAX_FILE + 1)
        finally:
            os.close(number)
    except (ValueError, TypeError):
        raise Malformed(f"{str(path)!r:.60}: not a path; name a file") from None
    except OSError as error:
        raise NotFound(f"{path!s:.1000}: {error.strerror}; name a file that is there and that you may read") from None
    if len(data) > MAX_FILE:
        raise TooLarge(f"{path}: larger than {MAX_FILE} bytes; this is no settings file")
    return data


def state_home() -> str:
    """Where this user's own records stand, outside of every repository."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "baton")


def state_dir() -> Path:
    """The same as a path."""
    from pathlib import Path

    return Path(state_home())


def config_dir() -> Path:
    """Where this user's own settings stand, outside of every repository."""
    from pathlib import Path

    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "baton"


def max_agents(given: int | None = None) -> int:
    """How many agents may run at once: what was named, else as many as there are cores for this process; 0 is any."""
    if given is not None:
        return given
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment() -> dict[str, str]:
    """What this process was started with; who passes it on chooses what."""
    return dict(os.environ)


def person() -> str:
    """Who sits at this terminal."""
    return os.environ.get("BATON_USER") or os.environ.get("USER") or _login()


def _login() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise Malformed(f"user {os.getuid()} has no name here; say who you are with --by NAME or BATON_USER") from None


def telemetry(given: str | None = None) -> str:
    """Who is told of the ten steps: what was named, else BATON_TELEMETRY, else nobody."""
    return given or os.environ.get("BATON_TELEMETRY", "")


def coloured() -> bool:
    """Whether this user wants colours on a terminal."""
    return not any(os.environ.get(name) for name in ("BATON_NO_COLOR", "NO_COLOR")) and os.environ.get("TERM") != "dumb"


def board_root() -> str:
    """The folder that is the board, where it cannot be told from the files: BATON_ROOT."""
    return os.environ.get("BATON_ROOT", "")


def board_claim() -> str:
    """Which claim this process works under, as `PATH#NOUN:EPOCH`: BATON_CLAIM, set by whoever started it."""
    return os.environ.get("BATON_CLAIM", "")


def editor() -> str:
    """What this user edits text with, as a command line: VISUAL, else EDITOR, else vi."""
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"


def approval_lasts() -> str:
    """How long an approval counts: BATON_APPROVAL_LASTS, else a week."""
    return os.environ.get("BATON_APPROVAL_LASTS") or "7d"


def hands_on() -> bool:
    """Whether this process may ask others for work: not where BATON_HANDOFFS=off, set by whoever started it."""
    return os.environ.get("BATON_HANDOFFS", "") != "off"


def session() -> str:
    """The folder of the session that this process belongs to: BATON_SESSION, set by whoever started it."""
    return os.environ.get("BATON_SESSION", "")
