"""The registry."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from baton import clock, config
from baton.cli import beside, given
from baton.cli.audit_board import board_here
from baton.cli.call import Call, argument, counting, seconds, verb
from baton.cli.records import lasting
from baton.cli.screen import Columns
from baton.errors import Malformed, NotFound
from baton.protocol import codec
from baton.protocol.codec import to_time
from baton.protocol.handoff import HUMAN, USER
from baton.protocol.limits import RISKS, Autonomy
from baton.protocol.profile import Profile, read_profile
from baton.protocol.registry import narrowed, read_registry
from baton.stores.base import AgentRow

AGENTS = Columns(("AGENT", "STATE", "BUSY", "SEEN", "CAPABILITIES", "DESCRIPTION"), spare=("SEEN", "BUSY", "STATE"))
MATCHES = Columns(("AGENT", "SCORE", "CAPABILITIES"))
EXPLAINED = Columns((*MATCHES.names, "WHY"), of="--explain")


@verb(
    argument("name", nargs="?", metavar="NAME"),
    argument("--capability", action="append", default=[], metavar="CAP[=0..1]", help="what it can do; repeatable"),
    argument("--description", default="", metavar="TEXT", help="`agents match` searches it"),
    argument("--specialization", default="", metavar="TEXT"),
    argument("--example", action="append", default=[], metavar="TEXT", help="a task that it is good at; repeatable"),
    argument("--max-concurrent", type=counting(1), metavar="N", help="how much work it may hold at once"),
    argument("--max-time", metavar="TIME", help="how long one piece of work may take it"),
    argument("--max-risk", choices=RISKS, help="the riskiest work that it may do by itself"),
    argument("--max-tokens", type=counting(0), metavar="N", help="the most tokens that it may use by itself"),
    argument("--allow-target", action="append", metavar="AGENT", help="to whom it may hand over; repeatable"),
    argument("--write", action="append", metavar="NAME", help="a variable of others that it may set; repeatable"),
    argument("--no-handoffs", action="store_true", help="it takes none at present"),
    argument("--file", metavar="PATH", help="an agents.toml, or profiles as JSON; - is JSON on standard input"),
    examples=(
        'baton agents register billing --capability refunds=0.9 --description "refunds and invoices"',
        "baton agents register --file agents.toml",
    ),
)
def agents_register(call: Call) -> int:
    """Add an agent to the registry, or replace its profile. Whoever serves it, it can be sent work now."""
    args = call.args
    if bool(args.name) == bool(args.file):
        raise Malformed("baton agents register: give a NAME or --file; --help shows an example")
    profiles = _from_file(args.file) if args.file else [_from_arguments(call)]
    for profile in profiles:
        if profile.agent_id in {HUMAN, USER}:
            raise Malformed(f"agent {profile.agent_id}: this name is taken; choose another")
    relay = call.relay(create=True)
    for profile in profiles:
        relay.store.register(profile)
        call.screen.line(f"{profile.agent_id}  registered  {_skills(profile)}".rstrip())
    call.screen.records(profiles)
    return 0


def _from_file(path: str) -> list[Profile]:
    if path.endswith(".toml"):
        return [one.profile for one in read_registry(config.read_file(path), path).agents.values()]
    value = codec.read_json(given.data(path, "--file"), "profiles")
    if isinstance(value, dict) and isinstance(value.get("agents"), list):
        value = value["agents"]
    listed = value if isinstance(value, list) else [value]
    return [read_profile(codec.canonical(one, "profile")) for one in listed]


def _from_arguments(call: Call) -> Profile:
    args = call.args
    limited = args.max_risk or args.max_tokens is not None
    return Profile(
        agent_id=args.name,
        description=args.description,
        specialization=args.specialization,
        examples=tuple(args.example),
        capabilities=dict(map(_capability, args.capability)) or None,
        accepts_handoffs=not args.no_handoffs,
        max_concurrent_tasks=args.max_concurrent,
        max_execution_time=seconds(args.max_time, "--max-time") if args.max_time else None,
        autonomy_budget=Autonomy(max_risk=args.max_risk or "high", max_tokens=args.max_tokens) if limited else None,
        allowed_targets=tuple(args.allow_target) if args.allow_target else None,
        writes=tuple(args.write or ()),
    )


def _capability(text: str) -> tuple[str, float]:
    name, _, proficiency = text.partition("=")
    try:
        return name, float(proficiency or 1)
    except ValueError:
        raise Malformed(f"--capability {text}: write a name, or a name and a number: refunds=0.9") from None


def _skills(profile: Profile) -> str:
    return ", ".join(name if much == 1 else f"{name}={much:g}" for name, much in profile.abilities.items())


@verb(examples=("baton agents list", "baton agents list --agents agents.toml"), columns=(AGENTS,))
def agents_list(call: Call) -> int:
    """List the registered agents, what they can do, how they are and how busy, and those that work on the board here.

    With --agents also what that file says: agents that are not registered yet, and what it takes from the others.
    `baton agents status` says more of those on the board.
    """
    board = board_here()
    working = [] if board is None else beside.agents(board, clock.now())
    if working and call.missing:
        call.screen.table(AGENTS, [row for row, _ in working], (document for _, document in working))
        return 0
    relay = call.relay()
    described = relay.described
    stored = {one.profile.agent_id: one for one in relay.store.agents()}
    found = [stored.get(name) or AgentRow(profile=described[name].profile) for name in sorted({*stored, *described})]
    found = [replace(one, profile=narrowed(one.profile, described.get(one.profile.agent_id))) for one in found]
    now = relay.store.now()
    rows = [_row(one, now, registered=one.profile.agent_id in stored) for one in found]
    documents = [_document(one, registered=one.profile.agent_id in stored) for one in found]
    call.screen.table(AGENTS, rows + [row for row, _ in working], documents + [document for _, document in working])
    for one in found:
        if not one.available and one.health.since is not None:
            since = lasting((now - one.health.since) / 1e6)
            cure = f"; `baton agents reset {one.profile.agent_id}` once it is cured" if one.health.ill else ""
            call.screen.hint(f"{one.profile.agent_id} is {one.health.state} for {since}: {one.health.reason}{cure}")
    if not found and not working:
        call.screen.hint("no agent yet; `baton agents register NAME --capability …` adds one, so does a worker")
    return 0


def _document(one: AgentRow, *, registered: bool) -> dict[str, Any]:
    health = one.health
    return {
        "agent_id": one.profile.agent_id,
        "registered": registered,
        "available": one.available,
        "state": health.state,
        "reason": health.reason,
        "since": None if health.since is None else to_time(health.since),
        "failures": health.failures,
        "load": one.load,
        "profile": one.profile,
    }


def _row(one: AgentRow, now: int, *, registered: bool) -> tuple[object, ...]:
    profile = one.profile
    most = f"/{profile.max_concurrent_tasks}" if profile.max_concurrent_tasks else ""
    health = one.health
    seen = f"{lasting((now - health.seen_at) / 1e6)} ago" if health.seen_at else "never"
    state: str = health.state if profile.accepts_handoffs or not one.available else "takes none"
    state = state if registered else "only in the file"
    return profile.agent_id, state, f"{one.load}{most}", seen, _skills(profile), profile.description


@verb(
    argument("wanted", nargs="+", metavar="CAPABILITY_OR_TASK"),
    argument("--explain", action="store_true", help="say what each was judged by"),
    examples=("baton agents match refunds", 'baton agents match "the customer wants money back" --explain'),
    columns=(MATCHES, EXPLAINED),
)
def agents_match(call: Call) -> int:
    """Find the agents for a capability or a task, the best first. Exit 1 when no agent is a clear match."""
    from baton.routing.matching import FLOOR, MARGIN, rank

    relay = call.relay()
    wanted = " ".join(call.args.wanted)
    found = rank(wanted, [row.profile for row in relay.store.agents()])
    if not found:
        raise NotFound(f"{wanted!r:.80}: no agent is a clear match; `baton agents list` shows who can do what")
    columns = EXPLAINED if call.args.explain else MATCHES
    rows = [[one.profile.agent_id, f"{one.score:.2f}", _skills(one.profile), one.why] for one in found]
    documents = ({"agent_id": one.profile.agent_id, "score": one.score, "why": one.why} for one in found)
    call.screen.table(columns, [row[: len(columns.names)] for row in rows], documents)
    if call.args.explain:
        call.screen.hint(
            f"an exact capability or specialization comes first; words count only from a score of {FLOOR}, "
            f"and with a lead of {MARGIN:.0%} over the next"
        )
    return 0


@verb(argument("name", metavar="NAME"), examples=("baton agents reset billing",))
def agents_reset(call: Call) -> int:
    """Give an agent work again that is suspect or unavailable, for example after its fault was cured.

    Needed where no check of its own would find it well, because its program has none any more.
    """
    name = call.args.name
    reset = call.relay().reset_health(name)
    call.screen.document({"agent_id": name, "state": "available", "reset": reset})
    call.screen.line(f"{name}  available{'' if reset else ' already'}")
    return 0
