"""Which program an agent is: rows of `clis.toml`, the lists of arguments made from them, the environment of children.

The package brings rows for a few coding agents. A repository's file counts only when it is trusted; the user's own file
wins over both. A row is replaced as a whole.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from baton import config, processes
from baton.errors import Malformed, NotFound, TooLarge
from baton.protocol import codec
from baton.protocol.toml import read_toml

Mode = Literal["interactive", "headless"]
MODES: tuple[Mode, ...] = ("interactive", "headless")
FILE = "clis.toml"
IN_REPOSITORY = f".baton/{FILE}"

# What an argument may be replaced by, as a whole. A value never begins with a dash, so none can become an option.
PLACEHOLDERS = {
    "request": "the absolute path of the request",
    "skill": "the name of the skill, without /",
    "prompt": "what to do, in words",
    "session": "the absolute path of the session's folder",
    "root": "the absolute path of the coordination root",
}
BATON_ITSELF = "baton"
BATON = (sys.executable, "-P", "-m", "baton")  # -P: what stands in the folder of the board is none of its modules
RESEARCH = "research"  # the row of what works in mode async

MAX_ROWS = 100
MAX_ARGUMENTS = 100
MAX_ARGUMENT = 4096

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?", re.ASCII)
_WORD = re.compile(r"\{([A-Za-z_]+)\}")


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row. `environment` names what is passed on (NAME or PREFIX*), `set` what is set to a value."""

    interactive: tuple[str, ...] = ()
    headless: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    set: Mapping[str, str] = {}
    cure: str = ""
    name: str = ""
    file: str = ""


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """All rows, which one is meant by default or for a skill, and what a person should know of the files."""

    rows: Mapping[str, Program]
    default: str
    skills: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()

    def of(self, skill: str, name: str | None = None, *, usual: str = "") -> Program:
        """The program for a skill: the one that is named, else the skill's, else what is usual, else the default."""
        wanted = name or self.skills.get(skill) or usual or self.default
        if wanted not in self.rows:
            raise NotFound(f"no program {codec.short(wanted)}; {codec.near(wanted, self.rows)}; {_add(wanted)}")
        return self.rows[wanted]


def load(root: Path | None = None, trusted: Callable[[Path, bytes], bool] = lambda _path, _data: False) -> Programs:
    """The rows of the package, of the repository (if `trusted` says yes to exactly these bytes), and of the user."""
    found, notes = _packaged(), []
    if root is not None and (data := _read(path := root / IN_REPOSITORY)) is not None:
        if trusted(path, data):
            found = _over(found, read_toml(data, str(path)), str(path))
        else:
            notes.append(f"{path} counts only after `baton trust`; until then no row of it is used")
    path = config.config_dir() / FILE
    if (data := _read(path)) is not None:
        found = _over(found, read_toml(data, str(path)), str(path))
    return msgspec.structs.replace(found, notes=tuple(notes))


def command(program: Program, mode: Mode, values: Mapping[str, str]) -> list[str]:
    """The arguments to start it with; the first one is the absolute path of the program."""
    template = getattr(program, mode)
    if not template:
        other = next((one for one in MODES if getattr(program, one)), mode)
        cure = f"add {mode} = [...] to [programs.{program.name}] in your {FILE}, or name another program"
        raise NotFound(f"{program.file}: {program.name} is only for {other} work; {cure}")
    for name in values:
        if name not in PLACEHOLDERS:
            raise Malformed(f"{{{name}}} is no placeholder; {codec.near(name, PLACEHOLDERS)}")
    first = [*BATON] if template[0] == BATON_ITSELF else [_found(program, template[0])]
    return [*first, *(_filled(program, mode, one, values) for one in template[1:])]


def environment(program: Program, own: Mapping[str, str], more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the child gets: the allow-list out of `own`, what the row names, and what the caller adds."""
    return {**processes.passed(own, program.environment), **program.set, **(more or {})}


def missing(program: Program) -> str:
    """Why the program cannot be started here; empty where it can."""
    template = program.headless or program.interactive
    try:
        _found(program, template[0])
    except NotFound as fault:
        return str(fault)
    return ""


def _found(program: Program, word: str) -> str:
    if word == BATON_ITSELF:
        return sys.executable
    path = shutil.which(word, path=config.environment().get("PATH"))
    if path is None:
        cure = f"{program.cure or f'install {word}'}, correct [programs.{program.name}] in your {FILE}, or name another"
        raise NotFound(f"{word}: not found on PATH; it is the program of {program.name} ({program.file}); {cure}")
    return os.path.abspath(path)  # not resolved: a link to a program may matter to it


def _filled(program: Program, mode: str, argument: str, values: Mapping[str, str]) -> str:
    word = _WORD.fullmatch(argument)
    if word is None:
        return argument
    if word[1] not in values:
        raise NotFound(
            f"{program.file}: programs.{program.name}.{mode}: nothing to put in the place of {argument} here"
        )
    value = values[word[1]]
    if not value or value.startswith("-") or "\0" in value:
        raise Malformed(f"{argument}: {value!r:.60} cannot be an argument; it is empty, an option, or has a NUL")
    return value


def _add(name: str) -> str:
    return f"or add [programs.{name if _NAME.fullmatch(name) else 'NAME'}] to {config.config_dir() / FILE}"


# --- files ----------------------------------------------------------------------------------------


@cache
def _packaged() -> Programs:
    data = resources.files("baton.board").joinpath(FILE).read_bytes()
    return _over(Programs(rows={}, default=""), read_toml(data, FILE), FILE)


def _read(path: Path) -> bytes | None:
    """What a file says; None only where there certainly is none."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass  # the reader says why
    return config.read_file(path)


def _over(below: Programs, document: dict[str, Any], file: str) -> Programs:
    """These rows, and what a file puts over them."""
    for key in document.keys() - {"default", "skills", "programs"}:
        raise Malformed(f"{file}: {codec.short(key)}: {codec.near(key, ('default', 'skills', 'programs'))}")
    said = _table(document, "programs", file)
    rows = {**below.rows, **{name: _row(name, fields, file) for name, fields in said.items()}}
    if len(rows) > MAX_ROWS:
        raise TooLarge(f"{file}: {len(rows)} programs, at most {MAX_ROWS}; remove some")
    skills = _table(document, "skills", file)
    default = document.get("default", below.default)
    for place, name in (("default", default), *((f"skills.{skill}", name) for skill, name in skills.items())):
        if type(name) is not str:
            raise Malformed(f'{file}: {place}: expected the name of a program, got {type(name).__name__}; write "…"')
        if name not in rows:
            raise Malformed(f"{file}: {place}: no table [programs.{codec.short(name)}]; {codec.near(name, rows)}")
    return Programs(rows=rows, default=default, skills={**below.skills, **skills})


def _table(document: dict[str, Any], name: str, file: str) -> dict[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise Malformed(f"{file}: {name}: expected a table, got {type(found).__name__}; write [{name}]")
    return found


def _row(name: str, fields: Any, file: str) -> Program:
    place = f"{file}: programs.{codec.short(name)}"
    if not _NAME.fullmatch(name):
        raise Malformed(f"{place}: name it with letters, digits, dot, - and _, at most 60")
    if not isinstance(fields, dict):
        raise Malformed(f"{place}: expected a table; write [programs.{name}]")
    known = [one for one in Program.__struct_fields__ if one not in {"name", "file"}]
    for key in fields.keys() - set(known):
        raise Malformed(f"{place}.{codec.short(key)}: {codec.near(key, known)}")
    try:
        row = msgspec.convert({**fields, "name": name, "file": file}, Program)
    except msgspec.ValidationError as error:
        cure = 'lists of texts are written ["one", "two"], `set` is a table of texts'
        raise Malformed(f"{place}: {error}; {cure}") from None
    if not row.interactive and not row.headless:
        raise Malformed(f"{place}: neither interactive nor headless; write at least one list of arguments")
    for mode in MODES:
        _check_arguments(getattr(row, mode), f"{place}.{mode}")
    _check_variables(row.environment, f"{place}.environment", star=True)
    _check_variables(row.set, f"{place}.set", star=False)
    if not row.cure.isprintable() or any("\0" in value for value in row.set.values()):
        raise Malformed(f"{place}: control characters; remove them")
    return row


def _check_arguments(arguments: tuple[str, ...], place: str) -> None:
    if len(arguments) > MAX_ARGUMENTS:
        raise TooLarge(f"{place}: {len(arguments)} arguments, at most {MAX_ARGUMENTS}; put them into a program")
    for number, one in enumerate(arguments):
        where = f"{place}[{number}]"
        if "\0" in one or len(one) > MAX_ARGUMENT:
            raise Malformed(f"{where}: a NUL, or more than {MAX_ARGUMENT} characters; shorten it")
        words = _WORD.findall(one)
        if number == 0 and (not one or words):
            raise Malformed(f"{where}: {one!r:.60}: the program itself is named, not replaced; write its name")
        for word in words:
            if word not in PLACEHOLDERS:
                raise Malformed(f"{where}: {{{word:.60}}} is no placeholder; {codec.near(word, PLACEHOLDERS)}")
            if one != f"{{{word}}}":
                raise Malformed(f"{where}: {one!r:.60}: a placeholder is a whole argument; write it apart")


def _check_variables(names: Iterable[str], place: str, *, star: bool) -> None:
    for name in names:
        if not _VARIABLE.fullmatch(name) or (name.endswith("*") and not star):
            cure = "write NAME, or PREFIX* for all that begin so" if star else "write NAME"
            raise Malformed(f"{place}: {name!r:.60} is no name of a variable; {cure}")
