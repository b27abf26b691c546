"""Your own module: how the relay in it is found, and what is said when the module cannot be imported."""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baton.cli.call import Call, argument
from baton.errors import BatonError, Malformed, NotFound
from baton.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

TELEMETRY = argument(
    "--telemetry", metavar="HOOKS", help="log, opentelemetry, prometheus, or installed; else BATON_TELEMETRY"
)
OURS = str(Path(__file__).parents[1])
APP = argument(
    "--app", required=True, metavar="MODULE:RELAY", help="your module, or path/to/its.py, and the Relay in it"
)


def application(call: Call) -> Relay:
    """Import the user's relay, with the working directory, or that of the named file, on the path."""
    module, name, here = _named(call.args.app)
    if here not in sys.path:
        sys.path.insert(0, here)
    found = getattr(_imported(call, module, here), name, None)
    if not isinstance(found, Relay):
        raise Malformed(f"--app {call.args.app}: {name} is not a Relay there; write module:name of one")
    if call.args.store and call.args.store != found.store.url:
        found.close()
        raise Malformed(f"--store {call.args.store}: this app keeps its work in {found.store.url}; leave --store out")
    _registry(call, found)
    if found.store.url != call.url:
        call.screen.store = found.store.url  # hints lead to where the work is
    call.observe(found)
    return found


def _registry(call: Call, found: Relay) -> None:
    """The operator's file is in force; an app that names one of its own keeps it."""
    if call.args.agents and found.registry and Path(call.args.agents).resolve() != Path(found.registry).resolve():
        own = found.registry
        found.close()
        raise Malformed(f"--agents {call.args.agents}: this app describes its agents in {own}; leave --agents out")
    if call.agents and not found.registry:
        found.read_registry(call.agents)


def _imported(call: Call, module: str, here: str) -> ModuleType:
    try:
        return import_module(module)
    except BatonError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the module does is what was to be found
        app, trace = call.args.app, list(filter(_theirs, traceback.extract_tb(error.__traceback__)))
        if isinstance(error, ModuleNotFoundError) and not trace:
            raise NotFound(f"--app {app}: {error}; name a module that can be imported from {here}") from None
        said = traceback.format_exception_only(error)
        call.screen.hint("where it happened in your code, the last step at the end:")
        for line in "".join([*traceback.format_list(trace), *said[:-1]]).splitlines():
            call.screen.hint(line)
        place = _place(error, trace, here)
        raise Malformed(f"--app {app}: {place}: {said[-1].strip()}; {_cure(error)}") from None


def _theirs(step: Any) -> bool:
    """Whether a step of a traceback is in the user's code, not in ours or in Python's import."""
    return not step.filename.startswith((OURS, "<frozen importlib", importlib.__path__[0]))


def _place(error: BaseException, trace: Sequence[Any], here: str) -> str:
    """The last place in the user's own folder, else the last one of all."""
    places = [(step.filename, step.lineno) for step in trace]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    file, line = next((one for one in reversed(places) if one[0].startswith(here)), places[-1])
    return f"{file.removeprefix(here).lstrip('/')}, line {line}"


def _cure(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"install it where {sys.executable} finds it, or correct the name"
    if isinstance(error, SystemExit):
        return 'what ends the program belongs below `if __name__ == "__main__":`'
    return "correct that, then try again"


def _named(app: str) -> tuple[str, str, str]:
    """Which module, which name in it, and the directory from which it is imported."""
    module, _, name = app.partition(":")
    here = Path.cwd()
    if module.endswith(".py"):
        file = Path(module).resolve()
        if not file.is_file():
            raise NotFound(f"--app {app}: {file} is not there; name your module and the Relay in it, as in shop:relay")
        module, here = file.stem, file.parent
    if not all(map(str.isidentifier, [*module.split("."), name or "relay"])):
        raise Malformed(f"--app {app}: write module:name of a Relay, as in shop:relay or path/to/shop.py:relay")
    return module, name or "relay", str(here)
