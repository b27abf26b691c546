"""The shared variables: whose they are, what an update makes of them, and how they are stored.

Everybody reads all of them. An agent writes those that it made, those that nobody has made yet, and those that its
profile names in `writes`. A variable with a reducer is everybody's: what is written is joined to what is there. They
are stored as one canonical object in which large values stand by digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from baton.errors import Malformed, OutOfScope, TooLarge
from baton.protocol import codec
from baton.protocol.context import Blob, Fetch, stored

Reducer = Callable[[Any, Any], Any]
Reducers = Mapping[str, Reducer]

LARGE = 512
MAX_KEYS = 1000
RESERVED = ("context", "artifacts", "workflow_state", "metrics")  # objects, merged by name, everybody's
DECISIONS = "decisions_made"
DERIVED = ("task_id", "task_status", "task_priority", "files_in_progress")  # read from elsewhere, never written
_ABSENT = object()


class _State(msgspec.Struct, frozen=True, omit_defaults=True):
    values: dict[str, Any] = {}
    refs: dict[str, str] = {}
    owners: dict[str, str] = {}
    added: dict[str, str] = {}


_read = msgspec.json.Decoder(_State).decode


class Variables(msgspec.Struct, frozen=True):
    """The variables as they stand."""

    values: Mapping[str, Any] = {}
    owners: Mapping[str, str] = {}  # who made each; one that came with the request is nobody's yet
    added: Mapping[str, Any] = {}  # what the line of work added to those that have a reducer
    ref: str = ""  # the digest under which they are stored; empty while they are not
    base: _State = _State()  # what is stored of them already
    new: frozenset[str] = frozenset()  # and what is not


NOTHING = Variables()


class Decision(codec.Record, frozen=True, kw_only=True):
    """What somebody decided on the way; number, author and time are the supervisor's."""

    decision_id: str
    description: str
    made_by: str
    timestamp: codec.Time


class Writer(msgspec.Struct, frozen=True):
    """Who writes, and the patterns of names that its profile lets it write, asked only where it matters."""

    agent: str
    writes: Callable[[], Sequence[str]] = tuple

    def may(self, key: str) -> bool:
        """Whether it may write what others made."""
        return any(key == pattern or fnmatchcase(key, pattern) for pattern in self.writes())


def begin(values: Mapping[str, Any]) -> Variables:
    """Variables that nobody has made yet."""
    _refuse_derived(values)
    for key in RESERVED:
        _merged(key, _ABSENT, values.get(key, {}))
    return _changed(NOTHING, dict(values), {}, {}, values)


def reducer_of(key: str, reducers: Reducers) -> Reducer | None:
    """What two writes of this variable come to; `*` is that of all which are neither named nor reserved."""
    if not reducers or key == DECISIONS:
        return None
    return reducers.get(key) or (None if key in RESERVED else reducers.get("*"))


def write(before: Variables, update: Mapping[str, Any], by: Writer, reducers: Reducers) -> Variables:
    """Apply what an agent wrote, or refuse what is not in its scope."""
    _refuse_derived(update)
    for key, value in update.items():
        owner = before.owners.get(key, by.agent)
        if owner == by.agent or reducer_of(key, reducers) or same(before.values.get(key, _ABSENT), value):
            continue
        if by.may(key):
            continue
        raise OutOfScope(
            f"state.{key}: it is {owner}'s, {by.agent} may only read it; register {by.agent} with writes=[{key!r}], or "
            f"give Relay(reducers={{{key!r}: …}}) to join what both write"
        )
    return apply(before, update, dict.fromkeys(update, by.agent), reducers)


def apply(before: Variables, update: Mapping[str, Any], makers: Mapping[str, str], reducers: Reducers) -> Variables:
    """Apply an update whose scope was judged: by reducer, else by kind, else what is new counts."""
    values, owners, added = dict(before.values), dict(before.owners), dict(before.added)
    for key, value in update.items():
        known = values.get(key, _ABSENT)
        if reducer := reducer_of(key, reducers):
            values[key] = value if known is _ABSENT else _joined(key, reducer, known, value)
            added[key] = _joined(key, reducer, added[key], value) if key in added else value
        elif key in RESERVED or key == DECISIONS:
            values[key] = _merged(key, known, value)
            continue
        elif same(known, value):
            continue  # and takes nothing
        else:
            values[key] = value
        if key in makers:
            owners.setdefault(key, makers[key])
    return _changed(before, values, owners, added, update)


def _joined(key: str, reducer: Reducer, known: Any, value: Any) -> Any:
    """What a reducer makes of copies: others hold what is there, and it may change what it is given."""
    return reducer(*(msgspec.json.decode(codec.canonical(one, f"state.{key}")) for one in (known, value)))


def overlay(before: Variables, update: Mapping[str, Any], by: str) -> Variables:
    """What a part of the work sees besides, or differently. What is another's stays that one's."""
    _refuse_derived(update)
    values = dict(before.values)
    for key, value in update.items():
        values[key] = _merged(key, values.get(key, _ABSENT), value) if key in (*RESERVED, DECISIONS) else value
    owners = {key: by for key in update if key not in before.values and key not in RESERVED and key != DECISIONS}
    return _changed(before, values, {**owners, **before.owners}, dict(before.added), update)


def part(whole: Variables, share: Iterable[str] | None = None) -> Variables:
    """What a part of the work begins with; of what it does not see, it still knows whose it is."""
    if share is None and not whole.added:
        return whole
    if share is None:
        return Variables(whole.values, whole.owners, {}, "", whole.base, whole.new)
    seen = {key: whole.values[key] for key in share if key in whole.values}
    small = {key: value for key, value in whole.base.values.items() if key in seen}
    refs = {key: ref for key, ref in whole.base.refs.items() if key in seen}
    return Variables(seen, whole.owners, {}, "", _State(small, refs), whole.new & seen.keys())


def _changed(
    before: Variables, values: dict[str, Any], owners: dict[str, str], added: dict[str, Any], update: Iterable[str]
) -> Variables:
    return Variables(values, owners, added, "", before.base, before.new.union(update))


def _refuse_derived(update: Mapping[str, Any]) -> None:
    for key in DERIVED:
        if key in update:
            cure = "turn.lock says which files you work on" if key == "files_in_progress" else "the handoff says it"
            raise Malformed(f"update.{key}: this is read, not written: {cure}; use another name for your own value")


def listed(given: Any) -> Sequence[Any]:
    """Decisions as they are given: several, or one alone."""
    return given if isinstance(given, list | tuple) else [given]


def _fresh(known: Any, given: Any) -> list[Any]:
    """The decisions that are not there yet; a store of the first schema has them without a number."""
    there = {_number(one) for one in listed(known)}
    return [one for one in listed(given) if _number(one) not in there]


def _number(decision: Any) -> Any:
    numbered = isinstance(decision, Mapping) and "decision_id" in decision
    return decision["decision_id"] if numbered else codec.canonical(decision)


def _merged(key: str, before: Any, value: Any) -> Any:
    if key == DECISIONS:
        known = () if before is _ABSENT else listed(before)
        return [*known, *_fresh(known, value)]
    if not isinstance(value, Mapping):
        raise Malformed(f"update.{key}: a reserved key takes an object; use another key for your own value")
    return {**({} if before is _ABSENT else before), **value}


def same(one: Any, other: Any) -> bool:
    """Whether two values are written alike; 1, 1.0 and True are equal, and not the same."""
    return one is other or (one == other and codec.canonical(one) == codec.canonical(other))


def changes(before: Variables, after: Variables) -> dict[str, Any]:
    """What is new or different: of a reserved object by name, of what has a reducer that which was added."""
    changed: dict[str, Any] = {}
    for key, value in after.values.items():
        known = before.values.get(key, _ABSENT)
        if key in after.added:
            changed[key] = after.added[key]
        elif known is _ABSENT:
            changed[key] = value
        elif same(known, value):
            continue
        elif key == DECISIONS:
            changed[key] = _fresh(known, value)
        elif key in RESERVED and isinstance(known, Mapping):
            changed[key] = {name: one for name, one in value.items() if not same(known.get(name, _ABSENT), one)}
        else:
            changed[key] = value
    return changed


def freeze(variables: Variables) -> tuple[Variables, list[Blob]]:
    """Store variables: what they are called by, and the content to keep. What is stored already is left alone."""
    if variables.ref or not (variables.values or variables.owners):  # stored already, or nothing to store
        return variables, []
    base, values = variables.base, variables.values
    small, refs = dict(base.values), dict(base.refs)
    blobs = []
    for key in variables.new:
        small.pop(key, None)
        refs.pop(key, None)
        data = codec.canonical(values[key], f"state.{codec.name(key, 'state: key')}")
        if len(data) <= LARGE:
            small[key] = values[key]
        else:
            refs[key] = codec.digest(data)
            blobs.append(Blob(refs[key], data))
    if len(small) + len(refs) > MAX_KEYS:
        raise TooLarge(f"state: {len(small) + len(refs)} keys, at most {MAX_KEYS}; group them under fewer keys")
    added = {}
    for key, value in variables.added.items():
        data = codec.canonical(value, f"state.{key}")
        added[key] = codec.digest(data)
        blobs.append(Blob(added[key], data))
    base = _State(small, refs, dict(variables.owners), added)
    data = codec.canonical_record(base)
    head = Blob(codec.digest(data), data)
    return Variables(values, variables.owners, variables.added, head.digest, base), [*blobs, head]


def thaw(ref: str, fetch: Fetch) -> Variables:
    """Read variables back."""
    if not ref:
        return NOTHING
    state = stored(_read, fetch, ref)
    large = {key: stored(msgspec.json.decode, fetch, one) for key, one in state.refs.items()}
    added = {key: stored(msgspec.json.decode, fetch, one) for key, one in state.added.items()}
    return Variables(state.values | large, state.owners, added, ref, state)


def reach(ref: str, fetch: Fetch, seen: set[str]) -> None:
    """Add to `seen` all content that stored variables stand on, as far as it is there (else empty)."""
    if ref and ref not in seen:
        seen.add(ref)
        if fetch(ref):
            state = stored(_read, fetch, ref)
            seen.update(state.refs.values(), state.added.values())


def document(values: Mapping[str, Any], **derived: Any) -> dict[str, Any]:
    """The variables as the protocol lays them out: what is derived, what is reserved, and all else as `custom`."""
    reserved = {key: values[key] for key in (DECISIONS, *RESERVED) if key in values}
    custom = {key: value for key, value in values.items() if key not in reserved}
    return {**derived, **reserved, **({"custom": custom} if custom else {})}


def read(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Variables from such a document; what is derived is left out, for it is not the sender's to say."""
    plain = {key: value for key, value in given.items() if key not in DERIVED}
    custom = plain.get("custom")
    if not isinstance(custom, Mapping):
        return plain
    del plain["custom"]
    for key in custom:
        if key in plain or key in DERIVED:
            raise Malformed(f"{where}.custom: {codec.short(key)} stands beside it or is reserved; use another name")
    return {**plain, **custom}
