"""One use of a verb: its arguments, its store and its screen, and what an error means for the exit code."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from baton import config
from baton.cli.exits import code_of
from baton.cli.screen import Columns, Screen, complain, in_store
from baton.cli.verbs import VERBS, function
from baton.errors import BatonError, HandoffsDisabled, Malformed, NotFound
from baton.protocol import codec

if TYPE_CHECKING:
    from baton.relay import Relay

CURE = "check the name and the folder; `baton agents register AGENT` makes a store, `baton demo` shows how it works"


class Argument(NamedTuple):
    """One argument of a verb, as argparse takes it."""

    names: tuple[str, ...]
    options: dict[str, Any]


class Verb(NamedTuple):
    """A verb: what it does, what it takes, and how it is used."""

    run: Callable[[Call], int]
    arguments: tuple[Argument, ...]
    examples: tuple[str, ...]
    columns: tuple[Columns, ...]  # of what it prints as a table
    stored: bool  # whether it works on a store


def argument(*names: str, **options: Any) -> Argument:
    """Describe one argument."""
    return Argument(names, options)


def verb(
    *arguments: Argument, examples: tuple[str, ...], columns: tuple[Columns, ...] = (), stored: bool = True
) -> Callable[[Callable[[Call], int]], Verb]:
    """Make a function a verb; its docstring is the help."""
    return lambda function: Verb(function, arguments, examples, columns, stored)


def alone(what: str) -> None:
    """Refuse to hand work on where whoever started this process said that it finishes alone."""
    if not config.hands_on():
        raise HandoffsDisabled(
            f"{what}: this run finishes alone; do it yourself, or say in the response what is left. A person lets "
            "it ask others with `baton run /SKILL FILE --enable-handoffs`"
        )


def counting(least: int) -> Callable[[str], int]:
    """A whole number from `least` on, as an argument's type."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 15 or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a whole number from {least} on")
        return int(text)

    return read


def seconds(text: str, option: str) -> float:
    """A length of time, as every option takes it: 90, 90s, 1h30m or PT90S."""
    bare = text.isascii() and text.replace(".", "", 1).isdecimal()
    return codec.seconds(f"{text}s" if bare else text, option)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise Malformed(f"{self.prog}: {message}; `{self.prog} --help` shows an example")


class Call:
    """What a verb is given."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.screen = Screen(as_json=args.json, store=args.store or "")
        self.url = config.store_url(args.store)
        self.agents = config.agents_file(args.agents)
        self.missing = self.path is not None and not self.path.exists()
        self._relay: Relay | None = None

    @property
    def path(self) -> Path | None:
        """The store's file, where it is one."""
        url = self.url.removeprefix("sqlite://")
        return None if url == ":memory:" or "://" in url else Path(url)

    def relay(self, *, create: bool = False) -> Relay:
        """The relay on the store; only a verb that brings in something new makes a store."""
        if self._relay is None:
            from baton.relay import Relay

            if self.missing and not create:
                raise NotFound(f"store {self.url}: not there; {CURE}")
            self._relay = Relay(self.url)
            if self.agents is not None:
                self._relay.read_registry(self.agents, enrol=create)
            self.observe(self._relay)
        return self._relay

    def observe(self, relay: Relay) -> None:
        """Tell whom the environment or the command line names of each step; log lines go to standard error."""
        hooks = config.telemetry(getattr(self.args, "telemetry", None))
        relay.observe(hooks)
        if hooks and not (logger := logging.getLogger("baton.telemetry")).handlers:
            logger.addHandler(logging.StreamHandler())
            logger.setLevel(logging.INFO)

    def gone(self) -> str:
        """The log that stood where there is no store any more, and how far it is known to have come."""
        if not self.missing:
            return ""
        from baton.stores.place import Place

        place = Place(self.url)
        noted = place.stood()
        return place.described(noted[-1].log) if noted else ""

    def close(self) -> None:
        """Close the store, if one was opened."""
        if self._relay is not None:
            self._relay.close()


def parser(name: str) -> argparse.ArgumentParser:
    """The parser of one verb."""
    found = load(name)
    made = Parser(
        prog=f"baton {name}",
        description=cleandoc(found.run.__doc__ or ""),
        epilog="\n".join(
            [
                "example:" if len(found.examples) == 1 else "examples:",
                *map("  {}".format, found.examples),
                *(f"columns{one.of and f' of {one.of}'}: {', '.join(one.names)}" for one in found.columns),
            ]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for names, options in found.arguments:
        made.add_argument(*names, **options)
    made.add_argument("--json", action="store_true", help="one JSON document, or JSON Lines where there may be many")
    if not found.stored:
        made.set_defaults(store=None, agents=None)
        return made
    made.add_argument("--store", metavar="URL", help="where it is remembered; else BATON_STORE, else .baton/baton.db")
    made.add_argument("--agents", metavar="FILE", help="the agents.toml that is in force; else BATON_AGENTS, else none")
    return made


def load(name: str) -> Verb:
    """Import a verb."""
    found: Verb = getattr(import_module(f"baton.cli.{VERBS[name][0]}"), function(name))
    return found


def _more(error: BatonError) -> dict[str, str]:
    """Where to look, of an error that ended a workflow."""
    result = getattr(error, "result", None)
    return {"workflow_id": result.workflow_id, "status": result.status} if result is not None else {}


def run(name: str, words: list[str]) -> int:
    """Parse, run, and say errors."""
    call = None
    try:
        found = load(name)
        call = Call(parser(name).parse_intermixed_args(words))
        return found.run(call)
    except BatonError as error:
        said = in_store(str(error), call.screen.store if call else "")
        complain(said, type(error).__name__, as_json="--json" in words, more=_more(error))
        return code_of(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        complain(f"{error.filename or ''}: {error.strerror}".lstrip(": "), "OSError", as_json="--json" in words)
        return 2
    finally:
        if call is not None:
            call.close()
