"""Every verb: where it stands, and in a few words what it is for."""

from __future__ import annotations

# heading → verb → (module, what it does); the function is named like the verb
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Hand work over": {
        "handoff send": ("send", "offer work to an agent"),
        "handoff list": ("show", "the newest handoffs; --watch keeps looking"),
        "handoff show": ("show", "one handoff: record, variables, messages, audit"),
        "handoff cancel": ("answer", "call work off"),
        "handoff reroute": ("answer", "give rejected or parked work to another agent"),
    },
    "Do the work": {
        "handoff accept": ("answer", "take offered work for this shell"),
        "handoff return": ("answer", "give the answer back"),
        "handoff reject": ("answer", "say no, so that another agent takes it"),
        "handoff defer": ("answer", "put work off"),
        "worker": ("work", "serve the agents of your own module"),
        "run": ("work", "run one workflow and print its answer"),
    },
    "Coordinate with tags in Markdown files": {
        "init": ("init", "set a board up: pages and skills that teach agents its commands"),
        "tag add": ("tag", "put work on the list: #needs-X; or any other tag"),
        "tag swap": ("tag", "take work, or say that it is done; one of many wins"),
        "tag remove": ("tag", "take a tag away, or dismiss what nobody approved yet"),
        "tag find": ("tag", "the files with a tag; '#needs-*' is what waits"),
        "await-tag": ("tag", "wait until a file has a tag"),
        "escape-tags": ("mentions", "put tags in a text between backticks"),
        "session check": ("mentions", "whether a session may end"),
        "request new": ("request", "write a request from the template of a skill"),
        "request list": ("request", "the requests, and where each stands"),
        "respond": ("request", "answer a request, and link the answer in it"),
    },
    "Run agents on the board": {
        "run /SKILL": ("board", "claim a request, start its agent, watch it"),
        "run --monitor-tags": ("board", "the daemon: start agents for approved work"),
        "research": ("research", "the work of mode async: let a provider do the research of a claimed request"),
        "research cancel": ("research", "ask the provider to end the job of a request"),
        "research adopt": ("research", "say which job belongs to a request whose answer was lost"),
        "research forget": ("research", "let the next run start a new job, and pay for it"),
        "agents status": ("agents_board", "who works on what, how it is, and by what evidence"),
        "agents attach": ("agents_board", "look at an agent: its window or its log"),
        "agents stop": ("agents_board", "end an agent with all that it started"),
    },
    "Decide as a person": {
        "waiting": ("people", "what waits for a person"),
        "approve": ("people", "let a waiting handoff start"),
        "deny": ("people", "refuse a waiting handoff for good"),
        "alerts": ("people", "what a person should look at"),
        "review": ("review", "what waits on the board, one by one: approve, next, dismiss …"),
        "alert raise": ("alert", "tell everybody who works on the board"),
        "alert list": ("alert", "the open alerts of the board"),
        "alert resolve": ("alert", "say that an alert is over, and what was done"),
        "trust": ("trust", "let what a repository brings along count, after a look"),
    },
    "Know the agents": {
        "agents register": ("agents", "add or replace an agent"),
        "agents list": ("agents", "who there is"),
        "agents match": ("agents", "who fits a capability or task"),
        "agents reset": ("agents", "give an agent work again that was not well"),
    },
    "Share files": {
        "lock": ("locks", "lock files, or list who holds which"),
        "unlock": ("locks", "give locked files back"),
    },
    "See what happened": {
        "history": ("people", "conversations, or the handoffs of one"),
        "graph": ("graph", "draw a workflow in the terminal or as Mermaid"),
        "stats": ("stats", "counts, tokens, money, latency, success"),
        "audit query": ("audit", "audit records by handoff, task or agent"),
        "audit verify": ("audit", "check that nobody changed the trail"),
        "audit export": ("audit", "write the trail as JSON Lines"),
        "audit prune": ("prune", "remove what was kept long enough"),
    },
    "Keep it running": {
        "doctor": ("doctor", "check the machine and the store"),
        "recover": ("upkeep", "move what is due and free what dead workers held"),
        "breaker list": ("upkeep", "which agents and routes rest after failures"),
        "breaker reset": ("upkeep", "let an agent or route work again now"),
        "store migrate": ("doctor", "bring a store to this version"),
        "demo": ("demo", "watch it work; needs no key and no network"),
    },
}
VERBS = {verb: place for group in GROUPS.values() for verb, place in group.items()}


BOARD = "run --monitor-tags"
SKILL = "run /SKILL"


def named(words: list[str]) -> str | None:
    """The verb that these words begin with."""
    if words[0] == "run" and "--monitor-tags" in words:
        return BOARD
    if words[0] == "run" and any(word.startswith("/") for word in words[1:2]):
        return SKILL
    return next((name for name in (" ".join(words[:2]), words[0]) if name in VERBS), None)


def after(name: str, words: list[str]) -> list[str]:
    """The words that follow a verb."""
    return words[1 if name in {BOARD, SKILL} else len(name.split()) :]


def function(name: str) -> str:
    """The name of a verb's function."""
    return "_".join(name.lower().replace("-", " ").replace("/", " ").split())
