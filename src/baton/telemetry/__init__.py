"""Who is told of the ten steps of each handoff: hooks, named by the user and imported only then.

Nothing is told to anybody by default. `Relay(telemetry="log,opentelemetry")` or `relay.observe(hook)` adds hooks; the
name `installed` stands for all whose packages are there. A hook is an object with the methods of `Hook`, or just a
function that takes a `Passed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec

from baton.errors import Malformed
from baton.protocol.codec import near
from baton.telemetry.base import Hook, Passed

# name → (what has to be installed, the extra that brings it, the module, the class)
HOOKS = {
    "log": ("logging", "", "baton.telemetry.log", "Log"),
    "opentelemetry": ("opentelemetry", "otel", "baton.telemetry.otel", "OpenTelemetry"),
    "prometheus": ("prometheus_client", "prometheus", "baton.telemetry.prometheus", "Prometheus"),
}
INSTALLED = "installed"


class Told(Hook):
    """A function as a hook."""

    def __init__(self, function: Callable[[Passed], object]) -> None:
        self._function = function

    def passed(self, step: Passed) -> None:
        """Hand it on."""
        self._function(step)


def chosen(given: Sequence[object], already: Sequence[Hook] = ()) -> list[Hook]:
    """The hooks that are meant by names (also several with commas between them), hooks and functions.

    What is named and there `already` is not made again.
    """
    found: list[Hook] = []
    for one in given:
        if isinstance(one, str):
            named = [_named(name) for said in one.split(",") if said.strip() for name in _several(said.strip())]
            found += [kind() for kind in dict.fromkeys(named) if not any(isinstance(hook, kind) for hook in already)]
        elif isinstance(one, Hook):
            found.append(one)
        elif callable(one):
            found.append(Told(one))
        else:
            raise Malformed(f"telemetry: {one!r:.60} is neither a name, nor a Hook, nor a function")
    return found


def _several(name: str) -> list[str]:
    return [one for one in HOOKS if _there(one)] if name == INSTALLED else [name]


def _there(name: str) -> bool:
    return find_spec(HOOKS[name][0]) is not None


def _named(name: str) -> type[Hook]:
    if name not in HOOKS:
        raise Malformed(f"telemetry: {name!r:.60}; {near(name, [*HOOKS, INSTALLED])}")
    package, extra, module, hook = HOOKS[name]
    if not _there(name):
        raise Malformed(f"telemetry: {name} needs {package}; pip install 'agent-baton[{extra}]'")
    kind: type[Hook] = getattr(import_module(module), hook)
    return kind
