"""Every verb, in this process: what it does, what it says as JSON, and its exit code."""

import json
import re
import sys
from pathlib import Path

import pytest

from baton import Artifact, Command, Escalate, Limits, Relay, clock
from baton.cli.call import load
from baton.cli.verbs import GROUPS, VERBS
from baton.guards import health
from baton.protocol.codec import to_microseconds
from baton.protocol.context import Context
from baton.protocol.handoff import Handoff, Rationale
from baton.protocol.locks import Wanted
from baton.protocol.profile import Profile
from baton.stores.base import LockRequest

STORE = ".baton/baton.db"


pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def team(baton):
    assert baton("agents", "register", "billing", "--capability", "refunds=0.9", "--capability", "invoices")[0] == 0
    assert baton("agents", "register", "triage", "--description", "sorts questions")[0] == 0


@pytest.fixture
def sent(team, documents):
    def send(*words, to="billing"):
        return documents("handoff", "send", "--to", to, "--task", "Refund order 7", *words)[0]

    return send


def stands(handoff_id):
    with Relay(STORE) as relay:
        return relay.get(handoff_id)


# --- finding the way ---------------------------------------------------------------------------


def test_alone_it_shows_what_a_person_may_want(baton):
    code, out, _ = baton()
    assert code == 0
    for heading, group in GROUPS.items():
        assert heading in out
        assert all(verb in out for verb in group)


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"demo"}))
def test_every_id_may_be_cut_to_the_same_length(verb):
    ids = [
        options for _, options in load(verb).arguments if options.get("metavar") in {"ID", "WORKFLOW", "CONVERSATION"}
    ]
    assert all("first 4 characters" in one["help"] or "in full" in one["help"] for one in ids), ids


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_teaches_with_an_example(verb, baton):
    code, out, _ = baton(*verb.split(), "--help")
    assert code == 0
    assert f"baton {verb}" in out
    if verb != "demo":
        assert "example" in out
        assert "--json" in out
        assert ("--store" in out) == load(verb).stored
    assert baton("help", *verb.split())[1] == out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["hndoff", "list"], "handoff list"),
        (["docter"], "doctor"),
        (["handoff", "lst"], "handoff list"),
        (["?!"], "--help"),
        (["list"], "`baton handoff list`"),
        (["accept", "3fa2"], "`baton handoff accept`"),
        (["reset", "billing"], "`baton breaker reset`"),
    ],
)
def test_an_unknown_verb_suggests_the_nearest(words, meant, baton, documents):
    code, out, err = baton(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert meant in err
    assert documents(*words, code=2)[0]["kind"] == "UnknownVerb"


def test_a_group_alone_lists_its_verbs(baton):
    code, out, err = baton("handoff")
    assert (code, out) == (2, "")
    assert "handoff accept" in err
    code, out, _ = baton("handoff", "--help")
    assert code == 0
    assert "handoff accept" in out


def test_options_of_every_verb_may_stand_before_it(baton, team):
    code, out, _ = baton("--json", "--store", STORE, "agents", "list")
    assert code == 0
    assert json.loads(out.splitlines()[0])["agent_id"] == "billing"
    assert baton("--version")[1].startswith("baton ")


# --- stores ------------------------------------------------------------------------------------

NO_STORE = [
    "handoff list", "handoff list --watch", "handoff show 3fa2c81b", "waiting", "alerts", "history", "agents list",
    "agents match refunds", "audit query", "audit verify", "audit verify --accept-new", "audit export",
    "audit prune", "stats", "graph", "breaker list", "breaker reset billing", "recover", "recover --dry-run",
    "handoff accept --agent billing", "handoff cancel 3fa2c81b", "approve 3fa2c81b",
]  # fmt: skip


@pytest.mark.parametrize("store", [[], ["--store", "new/typo.db"]])
@pytest.mark.parametrize("verb", NO_STORE)
def test_without_a_store_none_is_made_and_the_error_says_what_to_do(verb, store, baton, place):
    code, out, err = baton(*verb.split(), *store)
    assert (code, out) == (1, "")
    assert (store[-1] if store else STORE) in err
    assert "agents register AGENT" in err
    assert list(place.iterdir()) == []


def test_doctor_and_migrate_make_no_store_either(baton, place):
    code, out, _ = baton("doctor")
    assert code == 0
    assert "not there yet" in out
    code, out, _ = baton("doctor", "--store", "typo.db")
    assert code == 3
    assert "typo.db: not there yet; check its name" in out
    assert baton("store", "migrate")[0] == 1
    assert list(place.iterdir()) == []


def test_the_default_store_is_for_its_owner_only(sent, place):
    sent()
    assert (place / ".baton").stat().st_mode & 0o777 == 0o700
    assert (place / STORE).stat().st_mode & 0o777 == 0o600


def test_the_store_can_be_named_by_option_and_environment(baton, team, documents, monkeypatch):
    assert documents("agents", "list", "--store", f"sqlite://{STORE}")
    monkeypatch.setenv("BATON_STORE", "other.db")
    assert documents("agents", "list", code=1)[0]["kind"] == "NotFound"
    assert not Path("other.db").exists()


@pytest.mark.parametrize("store", ["team.db", "my team.db"])
def test_commands_in_hints_and_errors_go_to_the_same_store(store, baton, documents):
    baton("agents", "register", "billing", "--store", store)
    made = documents("handoff", "send", "--to", "billing", "--task", "x", "--approval", "--store", store)[0]
    named = f"--store '{store}'" if " " in store else f"--store {store}"
    short = made["id"][:8]
    _, _, err = baton("waiting", "--store", store)
    assert f"`baton approve {short} {named}` or `baton deny {short} {named}`" in err
    assert f"`baton handoff list {named}`" in baton("handoff", "show", "ffff0000", "--store", store)[2]
    assert f"`baton waiting {named}`" in baton("doctor", "--store", store)[1]
    assert "--store" not in baton("waiting")[2]
    _, _, err = baton("handoff", "list", "--state", "failed", "--store", store)
    assert f'`baton handoff send --to AGENT --task "…" {named}`' in err
    assert "`baton demo`" in err


# --- handing over ------------------------------------------------------------------------------


def test_send_writes_down_every_condition(sent, documents):
    Path("notes.md").write_text("x")
    made = sent(
        "--from", "triage", "--reason", "a billing question", "--priority", "urgent", "--timeout", "5m",
        "--on-timeout", "escalate", "--type", "delegation", "--require", "refunds=0.8", "--require", "invoices",
        "--budget", "500", "--max-cost", "0.5", "--risk", "medium", "--rationale", "the customer insists",
        "--artifact", "notes.md", "--set", "customer=42", "--set", "name=Ana", "--conversation", "talk",
    )  # fmt: skip
    handoff = stands(made["id"])
    assert (handoff.from_agent, handoff.to_agent, handoff.task) == ("triage", "billing", "Refund order 7")
    assert (handoff.reason, handoff.priority, handoff.type) == ("a billing question", "critical", "delegation")
    assert (handoff.return_protocol.timeout, handoff.return_protocol.on_timeout) == (300.0, "escalate")
    assert [one.min_proficiency for one in handoff.validation.required_capabilities] == [0.8, 0.0]
    assert (handoff.budget.max_tokens, handoff.budget.max_cost) == (500, 0.5)
    assert (handoff.audit.risk_level, handoff.audit.decision_rationale) == ("medium", "the customer insists")
    assert [one.path for one in handoff.context.artifacts] == ["notes.md"]
    assert handoff.conversation_id == "talk"
    [shown] = documents("handoff", "show", made["id"][:6])
    assert shown["variables"] == {"customer": 42, "name": "Ana"}
    assert [one["content"] for one in shown["messages"]] == ["Refund order 7"]
    assert shown["audit"][0]["event_type"] == "initiated"
    assert shown["handoff"]["state"] == "offered"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", ""], "--task: nothing stands there; say what has to be done"),
        (["--task", " \n"], "--task: nothing stands there"),
        (["--task", "x", "--artifact", "nofile.md"], "--artifact nofile.md: there is no such file"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(words, said, team, documents, baton):
    code, _, err = baton("handoff", "send", "--to", "billing", *words)
    assert code == 2
    assert said in err
    assert documents("handoff", "list") == []


@pytest.mark.parametrize(
    "words",
    [
        "handoff list --limit -1", "handoff list --limit 0", "handoff list --limit many", "history --limit -1",
        "audit query --limit -1", "stats --workflows 0", "handoff return 3fa2c81b --tokens -1",
        "handoff send --to billing --task x --budget -5", "agents register x --max-concurrent 0",
    ],
)  # fmt: skip
def test_a_number_that_counts_nothing_is_refused(words, baton):
    code, out, err = baton(*words.split())
    assert (code, out) == (2, "")
    assert re.search(r"argument --[a-z-]+: '?-?\w+'? is not a whole number from [01] on", err)


@pytest.mark.parametrize("wait", ["200ms", "0.2", "0.2s", "PT0.2S"])
def test_every_time_is_written_as_people_write_it(wait, team, baton):
    code, _, err = baton("handoff", "send", "--to", "billing", "--task", "x", "--wait", wait)
    assert code == 124
    assert "within 0.2 s" in err
    code, _, err = baton("handoff", "send", "--to", "billing", "--task", "x", "--wait", "soon")
    assert code == 2
    assert "--wait: 'soon' is not a duration" in err


@pytest.mark.parametrize("lease", ["90", "90s", "1.5m"])
def test_seconds_need_no_unit(lease, sent, documents):
    made = sent()
    before = Later(0).now()
    documents("handoff", "accept", made["id"], "--lease", lease)
    assert 89e6 < to_microseconds(stands(made["id"]).due_at) - before < 95e6


def test_send_reads_a_request_from_a_file(team, documents, place):
    request = {"fromAgentId": "triage", "toAgentId": "billing", "task": "x", "return_protocol": {"timeout": "90s"}}
    (place / "request.json").write_text(json.dumps(request))
    [made] = documents("handoff", "send", "--file", "request.json", "--task", "y")
    assert (made["task"], made["type"]) == ("y", "delegation")


def test_list_filters(sent, documents):
    first = sent("--conversation", "talk")
    second = sent("--from", "billing", to="triage")
    ids = lambda *words: [one["id"] for one in documents("handoff", "list", *words)]  # noqa: E731
    assert ids() == [second["id"], first["id"]]
    assert ids("--to", "triage") == [second["id"]]
    assert ids("--from", "billing") == [second["id"]]
    assert ids("--conversation", "talk") == [first["id"]]
    assert ids("--workflow", first["workflow_id"][:8]) == [first["id"]]
    assert ids("--state", "claimed") == []
    assert ids("--state", "accepted") == []
    assert ids("--state", "offered", "--state", "claimed", "--limit", 1) == [second["id"]]


def test_accept_and_return(sent, documents, baton):
    made = sent()
    [taken] = documents("handoff", "accept", made["id"][:8])
    assert (taken["state"], taken["epoch"], taken["holder"]) == ("claimed", 1, "shell:ana")
    assert baton("handoff", "accept", made["id"])[0] == 1
    assert baton("handoff", "return", made["id"], "--text", "done")[0] == 2
    [done] = documents("handoff", "return", made["id"], "--epoch", 1, "--text", "done", "--tokens", 7)
    assert done["state"] == "completed"
    with Relay(STORE) as relay:
        assert relay.store.returned(made["id"]).output == "done"
        assert relay.store.workflow(made["workflow_id"]).tokens_spent == 7


def test_a_shell_reads_and_sets_variables_decides_and_sees_the_files_in_progress(sent, documents, baton):
    made = sent("--set", "draft=1", "--set", "decisions_made=hurry")
    documents("handoff", "accept", made["id"])
    with Relay(STORE) as relay:
        relay.store.lock(LockRequest(owner=made["id"], epoch=1, wanted=(Wanted("/r/a.py"),), shared=True))
    [shown] = documents("handoff", "show", made["id"])
    laid_out = shown["handoff"]["context"]["context_variables"]
    assert laid_out["custom"] == {"draft": 1}
    assert laid_out["files_in_progress"] == [{"path": "/r/a.py", "owner": "billing", "lock_type": "shared"}]
    assert (laid_out["task_status"], laid_out["task_priority"]) == ("in_progress", "normal")
    assert [(one["made_by"], one["description"]) for one in laid_out["decisions_made"]] == [("user", "hurry")]
    text = baton("handoff", "show", made["id"])[1]
    assert "decisions\n  user: hurry\n" in text
    assert "files in progress\n  /r/a.py  shared  billing\n" in text
    wrong = documents("handoff", "return", made["id"], "--epoch", 1, "--text", "x", "--set", "task_status=done", code=2)
    assert "update.task_status: this is read, not written" in wrong[0]["error"]
    documents(
        "handoff", "return", made["id"], "--epoch", 1, "--text", "x", "--set", "draft=2", "--set",
        "decisions_made=no refund",
    )  # fmt: skip
    with Relay(STORE) as relay:
        state = relay.result(made["workflow_id"]).state
        assert relay.locks() == []
    assert state["draft"] == 2
    assert [(one["made_by"], one["description"]) for one in state["decisions_made"]][1:] == [("billing", "no refund")]


def test_what_the_audit_calls_accepted_is_found_as_a_state(sent, documents):
    made = sent()
    documents("handoff", "accept", made["id"])
    assert [one["id"] for one in documents("handoff", "list", "--state", "accepted")] == [made["id"]]


def test_a_claim_of_a_shell_outlives_the_command_and_its_sweepers(sent, documents):
    made = sent()
    documents("handoff", "accept", "--agent", "billing")
    assert documents("recover") == []
    assert stands(made["id"]).status == "claimed"


def test_an_old_epoch_is_late_and_refused(sent, documents, baton):
    made = sent()
    documents("handoff", "accept", made["id"])
    documents("handoff", "return", made["id"], "--epoch", 1, "--json-body", '{"paid": true}')
    code, _, err = baton("handoff", "return", made["id"], "--epoch", 1, "--text", "other")
    assert code == 3
    assert "late" in err
    assert documents("handoff", "return", made["id"], "--epoch", 9, "--text", "x", code=3)[0]["kind"] == "Fenced"
    with Relay(STORE) as relay:
        assert relay.store.returned(made["id"]).output == {"paid": True}
        assert [one.event_type for one in relay.audit.query(handoff_id=made["id"])][-1] == "late"


def test_return_of_a_failure(sent, documents):
    made = sent()
    documents("handoff", "accept", made["id"])
    [done] = documents("handoff", "return", made["id"], "--epoch", 1, "--status", "failed", "--error", "no such order")
    assert done["state"] == "failed"
    assert documents("handoff", "show", made["id"])[0]["return"]["error"] == "no such order"


@pytest.mark.parametrize("claimed", [False, True])
def test_reject_and_defer_before_and_after_a_claim(claimed, sent, documents):
    states = []
    for verb in ("reject", "defer"):
        made = sent()
        epoch = ["--epoch", documents("handoff", "accept", made["id"])[0]["epoch"]] if claimed else []
        states.append(documents("handoff", verb, made["id"], "--reason", "not now", *epoch)[0]["state"])
    assert states == ["rejected", "deferred"]


def test_cancel_and_reroute(sent, documents, baton):
    made = sent()
    documents("handoff", "reject", made["id"], "--reason", "not mine")
    [moved] = documents("handoff", "reroute", made["id"], "triage")
    assert (moved["state"], moved["to_agent"]) == ("offered", "triage")
    assert baton("handoff", "reroute", made["id"], "nobody")[0] == 1
    assert documents("handoff", "cancel", made["id"], "--reason", "enough")[0]["state"] == "cancelled"
    assert documents("handoff", "cancel", made["id"], code=1)[0]["kind"] == "IllegalTransition"


# --- people ------------------------------------------------------------------------------------


def test_approve_and_deny(sent, documents, baton):
    yes, no = sent("--approval"), sent("--approval")
    assert yes["state"] == "waiting"
    assert {one["kind"] for one in documents("waiting")} == {"approval"}
    assert documents("approve", yes["id"], "--reason", "fine")[0]["state"] == "offered"
    assert documents("deny", no["id"])[0]["state"] == "refused"
    assert documents("waiting") == []
    assert baton("approve", no["id"])[0] == 1
    with Relay(STORE) as relay:
        assert relay.audit.query(handoff_id=yes["id"])[-1].by == "ana"


def refused(baton, documents, *words):
    """What is said where the state of a handoff does not allow the verb."""
    code, _, err = baton(*words)
    assert code == 1
    assert documents(*words, code=1)[0]["kind"] == "Conflict"
    assert "possible:" not in err
    return err


def test_what_was_decided_already_says_by_whom(sent, documents, baton):
    yes, no = sent("--approval")["id"], sent("--approval")["id"]
    documents("approve", yes, "--by", "ann")
    documents("deny", no, "--by", "ben")
    for verb in ("approve", "deny"):
        assert f"handoff {yes}: approved by ann already" in refused(baton, documents, verb, yes)
        assert f"handoff {no}: denied by ben already" in refused(baton, documents, verb, no)


def test_only_what_waits_for_an_approval_is_approved(sent, documents, baton):
    question, offered, over = sent(to="human")["id"], sent()["id"], sent("--approval")["id"]
    documents("handoff", "cancel", over)
    said = refused(baton, documents, "approve", question)
    assert f"this is a question: `baton handoff return {question[:8]} --text …` answers it" in said
    said = refused(baton, documents, "approve", offered)
    assert "offered, so there is nothing to approve; a worker of billing takes it" in said
    assert f"handoff {over}: it was cancelled, and has ended" in refused(baton, documents, "deny", over)


def test_an_answer_that_cannot_be_given_says_what_can_be_done(sent, documents, baton):
    over, offered, waits = sent()["id"], sent()["id"], sent("--approval")["id"]
    documents("handoff", "cancel", over)
    said = refused(baton, documents, "handoff", "return", over, "--text", "x")
    assert f"handoff {over}: it was cancelled, and has ended" in said
    said = refused(baton, documents, "handoff", "return", offered, "--text", "x")
    assert f"take it first: `baton handoff accept {offered[:8]}`" in said
    assert "`baton approve" in refused(baton, documents, "handoff", "return", waits, "--text", "x")
    documents("handoff", "accept", offered)
    code, _, err = baton("handoff", "return", offered, "--text", "x")
    assert code == 2
    assert "claimed by shell:ana; say --epoch 1, the number of that claim, if it is yours" in err


def test_a_question_is_answered_and_its_alert_resolved(sent, documents):
    asked = sent(to="human")
    [alert] = documents("alerts")
    assert alert["subject"] == asked["id"]
    assert documents("waiting")[0]["kind"] == "question"
    documents("handoff", "return", asked["id"], "--text", "the blue one")
    assert documents("alerts") == []
    assert stands(asked["id"]).status == "completed"


def test_an_alert_is_resolved_by_hand(sent, documents):
    sent(to="human")
    [alert] = documents("alerts")
    assert documents("alerts", "--resolve", alert["id"][:5])[0]["resolved_by"] == "ana"
    assert documents("alerts") == []
    assert documents("alerts", "--all")[0]["resolved_by"] == "ana"
    assert documents("alerts", "--resolve", alert["id"], code=1)[0]["kind"] == "Conflict"


def test_history(sent, documents):
    made = sent("--conversation", "talk-1")
    [flow] = documents("history")
    assert (flow["workflow_id"], flow["conversation_id"]) == (made["workflow_id"], "talk-1")
    assert [one["id"] for one in documents("history", "talk")] == [made["id"]]
    assert [one["id"] for one in documents("history", made["id"][:8])] == [made["id"]]


# --- agents ------------------------------------------------------------------------------------


def test_register_list_and_match(team, documents, baton):
    listed = documents("agents", "list")
    assert [one["agent_id"] for one in listed] == ["billing", "triage"]
    assert listed[0]["profile"]["capabilities"] == {"refunds": 0.9, "invoices": 1.0}
    assert documents("agents", "match", "refunds", "--explain")[0]["why"] == "capability refunds"
    assert documents("agents", "match", "nonsense", code=1)[0]["kind"] == "NotFound"
    assert "capability refunds" in baton("agents", "match", "refunds", "--explain")[1]


def test_an_agent_that_was_not_well_is_reset(team, documents, baton):
    with Relay(STORE) as relay:
        relay.store.mark("billing", lambda known: health.failed(known, "no pulse", relay.store.now(), ill=True))
    assert "`baton agents reset billing` once it is cured" in baton("agents", "list")[2]
    assert documents("agents", "reset", "billing") == [{"agent_id": "billing", "state": "available", "reset": True}]
    assert documents("agents", "list")[0]["state"] == "available"
    assert baton("agents", "reset", "billing") == (0, "billing  available already\n", "")
    assert documents("agents", "reset", "biling", code=1)[0]["kind"] == "NotFound"


def test_register_with_every_limit(documents):
    [made] = documents(
        "agents", "register", "x", "--max-concurrent", 2, "--max-time", "10m", "--max-risk", "low", "--max-tokens", 9,
        "--allow-target", "y", "--specialization", "s", "--example", "e", "--no-handoffs",
        "--write", "draft",
    )  # fmt: skip
    assert made == {
        "agent_id": "x", "max_concurrent_tasks": 2, "max_execution_time": 600.0, "specialization": "s",
        "autonomy_budget": {"max_risk": "low", "max_tokens": 9}, "allowed_targets": ["y"], "examples": ["e"],
        "accepts_handoffs": False, "writes": ["draft"],
    }  # fmt: skip


def test_register_from_a_file(documents, place):
    (place / "p.json").write_text('[{"agentId": "a", "capabilities": ["x"]}, {"agent_id": "b"}]')
    assert [one["agent_id"] for one in documents("agents", "register", "--file", "p.json")] == ["a", "b"]
    assert documents("agents", "register", "human", code=2)[0]["kind"] == "Malformed"


# --- what happened -----------------------------------------------------------------------------


def test_audit_query_verify_and_export(sent, documents, baton, place):
    made = sent("--from", "triage")
    for words in (
        ["--handoff", made["id"][:8]],
        ["--task", made["workflow_id"]],
        ["--task", made["workflow_id"][:6]],
        ["--from", "triage"],
        ["--to", "billing"],
    ):
        assert [one["event_type"] for one in documents("audit", "query", *words)] == ["initiated"]
    assert documents("audit", "query", "--to", "triage") == []
    files = documents("audit", "export", "--project", "shop")
    assert all("core/logs/shop/handoff-audit" in one["file"] for one in files)
    assert documents("audit", "verify")[0]["ok"] is True
    assert baton("audit", "verify", "core/logs/shop/handoff-audit")[0] == 0
    assert baton("audit", "verify", "nowhere")[0] == 1


def test_a_process_is_named_as_a_person_says_it(place, documents, baton):
    worked(place)
    holder = documents("audit", "query", "--to", "clerk")[1]["by"]
    host, _, process, *_ = holder.split("/")
    said = f"process {process} on {host.partition('.')[0]}"
    _, out, _ = baton("audit", "query", "--to", "clerk")
    assert [line.split("\t")[4] for line in out.splitlines()] == ["triage", said, "clerk"]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\t", out)


def unsealed():
    """A record whose process died before it sealed."""
    relay = Relay(STORE)
    relay.hand_off(Handoff(from_agent="user", to_agent="billing", task="x"))
    relay.store.close()


def test_verify_seals_what_is_good(sent, documents, baton):
    assert "no record yet" in baton("audit", "verify")[2]
    sent()
    unsealed()
    assert baton("audit", "verify")[1] == "verified: 2 records, all as written; 2 checkpoints agree\n"


def test_a_changed_trail_is_broken(team, documents, place):
    import apsw

    unsealed()
    database = apsw.Connection(str(place / STORE))
    database.execute("UPDATE audit SET record = CAST(replace(CAST(record AS TEXT), 'user', 'evil') AS BLOB)")
    database.close()
    for _ in range(2):
        [report] = documents("audit", "verify", code=3)
        assert report["ok"] is False
    checks = {one["name"]: one for one in documents("doctor", code=3)[0]["checks"]}
    assert checks["audit"]["ok"] is False


def test_a_replaced_log_is_missed_until_a_person_accepts_it(team, documents, baton, place):
    with Relay(STORE) as relay:
        relay.hand_off(Handoff(from_agent="user", to_agent="billing", task="the truth"))
        old = relay.store.id
    with Relay("fresh.db") as relay:
        relay.store.register(Profile(agent_id="billing"))
        relay.hand_off(Handoff(from_agent="user", to_agent="billing", task="another story"))
    for file in (place / ".baton").iterdir():
        file.unlink()
    Path("fresh.db").rename(STORE)
    code, out, _ = baton("audit", "verify")
    assert code == 3
    assert f"replaced: log {old}, which reached record 1: " in out
    assert "--accept-new" in out
    assert documents("audit", "verify", code=3)[0]["report"]["findings"][0]["kind"] == "replaced"
    assert {one["name"]: one["ok"] for one in documents("doctor", code=3)[0]["checks"]}["audit"] is False
    code, out, err = baton("audit", "verify", "--accept-new", "--by", "ana", "--reason", "moved house")
    assert (code, out.splitlines()[0][:9]) == (0, "verified:")
    assert f"stands in place of {old}, as ana said on " in err
    assert "moved house" in err
    [said] = documents("audit", "verify")[0]["accepted"]
    assert (said["by"], said["reason"], said["instead_of"]) == ("ana", "moved house", [old])
    for file in (place / ".baton").iterdir():
        file.unlink()
    baton("agents", "register", "billing")
    [report] = documents("audit", "verify", code=3)
    assert report["report"]["problems"] == 2  # what was accepted for one log is not for another


def test_a_deleted_log_is_missed(team, documents, baton, place):
    with Relay(STORE) as relay:
        relay.hand_off(Handoff(from_agent="user", to_agent="billing", task="x"))
        old = relay.store.id
    for file in (place / ".baton").iterdir():
        file.unlink()
    code, out, err = baton("audit", "verify")
    assert (code, out) == (3, "")
    assert f"log {old}, which reached record 1" in err
    assert documents("audit", "verify", code=3)[0]["kind"] == "AuditBroken"
    checks = {one["name"]: one for one in documents("doctor", code=3)[0]["checks"]}
    assert old in checks["store"]["found"]
    assert list((place / ".baton").iterdir()) == []
    assert baton("audit", "verify", "--accept-new")[0] == 3
    baton("agents", "register", "billing")
    assert baton("audit", "verify")[0] == 3
    assert baton("audit", "verify", "--accept-new")[0] == 0
    assert baton("audit", "verify")[0] == 0


def test_an_export_is_checked_without_a_store(sent, baton, place):
    sent()
    assert baton("audit", "export", "--project", "shop")[0] == 0
    exported = place / "core" / "logs" / "shop" / "handoff-audit"
    assert baton("audit", "verify", exported, "--accept-new")[0] == 2
    for file in (place / ".baton").iterdir():
        file.unlink()
    assert baton("audit", "verify", exported)[1].startswith("verified: 1 record")
    assert list((place / ".baton").iterdir()) == []


def test_nothing_to_export_makes_no_folder(team, baton, place):
    code, out, err = baton("audit", "export", "--root", ".")
    assert (code, out) == (0, "")
    assert "nothing new to export" in err
    assert not (place / "core").exists()
    assert baton("audit", "export", "--root", "nowhere")[0] == 2


def worked(place):
    """A workflow of two hops with a delegation, and a failure."""
    (place / ".baton").mkdir(exist_ok=True)
    with Relay(STORE) as relay:

        @relay.agent("triage")
        async def triage(turn):
            await turn.delegate("clerk", "look it up")
            return Command(goto="billing", reason='a "billing" <question>')

        @relay.agent("clerk")
        async def clerk(turn):
            await turn.charge(tokens=100, cost=0.25)
            return "found"

        @relay.agent("billing")
        async def billing(turn):
            return "refunded"

        return relay.run_sync("triage", "please refund").workflow_id


def test_stats(place, documents, baton):
    worked(place)
    [found] = documents("stats")
    assert found["handoffs"] == {"total": 3, "by_state": {"completed": 3}}
    assert found["latency"]["to_end"]["count"] == 3
    assert 0 < found["latency"]["to_end"]["average"] <= found["latency"]["to_end"]["p99"]
    agents = {one["name"]: one for one in found["agents"]}
    assert (agents["clerk"]["tokens"], agents["clerk"]["cost"], agents["clerk"]["success"]) == (100, 0.25, 1.0)
    assert "triage → billing" in {one["name"] for one in found["routes"]}
    assert found["workflows"][0]["handoffs"] == 2
    assert (found["workflows"][0]["tokens"], found["loops_caught"]) == (100, 0)
    _, out, err = baton("stats")
    assert "\nagents\nNAME\tWORK\tSUCCESS\tTOKENS\tMONEY\n" in out
    assert "clerk\t1\t100%\t100\t0.25" in out
    assert err == ""


@pytest.mark.parametrize(
    "verb", ["history", "handoff list", "agents list", "audit query", "waiting", "alerts", "recover --dry-run"]
)
def test_a_pipe_gets_data_only_and_the_help_names_its_columns(verb, sent, baton):
    sent()
    sent(to="human")
    with clock.use(Later(60)):
        _, out, err = baton(*verb.split())
    assert "columns" not in err
    columns = re.search(r"^columns: (.*)$", baton(*verb.split(), "--help")[1], re.MULTILINE)[1].split(", ")
    assert {len(line.split("\t")) for line in out.splitlines()} == {len(columns)}
    assert not any(name in out for name in columns)


def test_the_help_names_the_columns_of_each_table(baton):
    _, out, _ = baton("history", "--help")
    assert "columns: WORKFLOW, CONVERSATION, STATUS, SINCE, HANDOFFS, FIRST, TASK\n" in out
    assert "columns of a conversation: ID, STATE, FROM → TO, PRIORITY, AGE, TASK\n" in out


def test_there_is_one_count_of_the_handoffs_of_a_workflow(place, documents, baton):
    """The request that starts it is none."""
    workflow = worked(place)
    with Relay(STORE) as relay:
        made = len(relay.result(workflow).handoffs)
    assert made == 2
    assert documents("history")[0]["handoffs"] == made
    assert baton("history")[1].split("\t")[4] == str(made)
    assert f"  {made} handoffs  " in baton("graph")[1].splitlines()[0]
    assert documents("stats")[0]["workflows"][0]["handoffs"] == made


def test_an_offer_to_nobody_makes_no_agent(place, documents, baton):
    workflow = worked(place)
    code, _, err = baton("handoff", "send", "--to", "nobody", "--task", "x")
    assert code == 1
    assert "`baton agents register nobody`" in err
    assert "start its worker first: `baton worker --app …`" in err
    assert documents("graph")[0]["workflow_id"] == workflow
    [found] = documents("stats")
    assert found["handoffs"]["by_state"] == {"completed": 3, "refused": 1}
    assert "nobody" not in json.dumps(found)


def test_only_offers_to_nobody_are_still_drawn(baton):
    baton("handoff", "send", "--to", "nobody", "--task", "x")
    assert "nobody  refused" in baton("graph")[1]


def test_graph(place, documents, baton):
    workflow = worked(place)
    [drawn] = documents("graph", workflow[:8])
    assert [(one["from"], one["to"]) for one in drawn["edges"]] == [
        ("user", "triage"),
        ("triage", "clerk"),
        ("triage", "billing"),
    ]
    _, out, _ = baton("graph", drawn["edges"][1]["id"])
    lines = out.splitlines()[1:]
    assert lines[0] == "user"
    assert lines[1].startswith("└─▶ triage  completed")
    assert lines[2].startswith("    ├┄▶ clerk  completed  look it up")
    assert lines[3].startswith('    └─▶ billing  completed  a "billing" <question>')
    _, out, _ = baton("graph", "--mermaid")
    assert out.startswith("flowchart TD\n")
    assert '-.->|"2 look it up (completed)"|' in out
    assert "a #quot;billing#quot; #lt;question#gt;" in out


def test_what_crossed_is_shown(place, documents, baton):
    workflow = worked(place)
    [drawn] = documents("graph", workflow, "--context")
    crossing = drawn["edges"][1]["context"]
    assert (crossing["had"]["count"], crossing["passed"]["count"], crossing["by_room"]) == (2, 1, 1)
    assert (crossing["mode"], crossing["summarised"], crossing["withheld"]) == ("summary", 1, [])
    assert "look it up · 1 of 2 messages, 0 variables, ≈ " in baton("graph", "--context")[1]
    assert "(completed, 1 of 2 messages, 0 variables, ≈ " in documents("graph", "--context")[0]["mermaid"]
    [shown] = documents("handoff", "show", drawn["edges"][1]["id"])
    assert shown["crossing"] == crossing
    _, out, _ = baton("handoff", "show", drawn["edges"][1]["id"])
    assert "\nwhat crossed\nmessages       1 of 2 (summary, at most 1)\n" in out
    assert "not passed on  1 for which there was no room (1 in a summary)\n" in out


def test_stats_of_a_window_and_for_prometheus(place, documents, baton):
    worked(place)
    [found] = documents("stats", "--since", "1h")
    assert (found["handoffs"]["total"], found["per_workflow"]["count"], found["events"]["accepted"]) == (3, 1, 3)
    with clock.use(Later(7200)):
        assert documents("stats", "--since", "1h")[0]["handoffs"]["total"] == 0
        assert "no handoff was offered in that time" in baton("stats", "--since", "1h")[2]
    code, out, _ = baton("stats", "--prometheus")
    assert code == 0
    assert 'baton_agent_tokens{agent="clerk"} 100\n' in out
    assert baton("stats", "--prometheus", "--json")[0] == 2


def test_graph_edges_show_artifacts(team, baton):
    with Relay(STORE) as relay:
        context = Context(artifacts=(Artifact(id="1", path="docs/plan.md"),))
        relay.hand_off(Handoff(from_agent="triage", to_agent="billing", task="pay", context=context))
    assert "pay [docs/plan.md]" in baton("graph")[1]


# --- upkeep ------------------------------------------------------------------------------------


def test_recover_says_what_is_due_and_does_it(sent, documents):
    made = sent()
    documents("handoff", "reject", made["id"], "--reason", "no")
    [due] = documents("recover", "--dry-run")
    assert due["handoff"]["id"] == made["id"]
    assert stands(made["id"]).status == "rejected"
    [done] = documents("recover")
    assert (done["event"], done["handoff"]["state"]) == ("parked", "parked")
    [waits] = documents("waiting")
    assert waits["kind"] == "parked"
    assert waits["why"]


class Later(clock.SystemSource):
    """The same machine, a while later."""

    def __init__(self, seconds):
        self.microseconds = seconds * 1_000_000

    def now(self):
        return super().now() + self.microseconds


def test_work_that_no_worker_takes_is_reported_until_somebody_does(sent, documents, baton):
    made = sent()
    with clock.use(Later(60)):
        [due] = documents("recover", "--dry-run")
        assert due["handoff"]["id"] == made["id"]
        code, out, err = baton("recover")
        assert (code, err) == (0, "")
        assert out.split("\t")[:2] == [made["id"], "postponed"]
        assert "no worker of billing has taken it for 30 s; start one: `baton worker --app …`" in out
        assert "nothing was due" in baton("recover")[2]
        [alert] = documents("alerts")
        assert (alert["subject"], alert["text"]) == (made["id"], out.rstrip("\n").split("\t")[3])
        documents("handoff", "accept", made["id"])
        assert documents("alerts") == []
        assert documents("alerts", "--all")[0]["resolved_by"] == "shell:ana"


def test_recover_tells_a_program_what_was_left(sent, documents):
    made = sent()
    with clock.use(Later(60)):
        [left] = documents("recover")
    assert (left["event"], left["handoff"]["id"], left["handoff"]["state"]) == ("postponed", made["id"], "offered")
    assert left["reason"].startswith("no worker of billing")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "whether a worker has taken it"),
        (["handoff", "accept"], "whether its owner is still there, or its time is over"),
        (["handoff", "defer", "--reason", "later"], "it is offered again"),
        (["handoff", "reject", "--reason", "no"], "who else can do it"),
    ],
)
def test_the_next_look_is_not_taken_for_a_deadline(words, said, sent, documents, baton):
    made = sent()
    if words:
        documents(*words[:2], made["id"], *words[2:])
    shown = baton("handoff", "show", made["id"])[1].splitlines()
    assert not any(line.startswith(("due", "deadline")) for line in shown)
    [line] = [line for line in shown if line.startswith("next look")]
    assert line.endswith(f"UTC: {said}")


def test_a_deadline_is_shown_as_one(team, documents, baton, place):
    (place / "request.json").write_text(
        json.dumps({"from_agent": "triage", "to_agent": "billing", "task": "x", "deadline": "2099-01-02T03:04:05Z"})
    )
    [made] = documents("handoff", "send", "--file", "request.json")
    assert "deadline      2099-01-02 03:04:05 UTC\n" in baton("handoff", "show", made["id"])[1]


def test_breakers(sent, documents, baton):
    for _ in range(3):
        made = sent()
        documents("handoff", "accept", made["id"])
        documents("handoff", "return", made["id"], "--epoch", 1, "--status", "failed")
    listed = documents("breaker", "list")
    assert {(one["subject"], one["state"]) for one in listed} == {
        ("agent:billing", "open"),
        ("route:user->billing", "open"),
    }
    assert documents("breaker", "reset", "route:user->billing")[0] == {"subject": "route:user->billing", "closed": 1}
    assert documents("breaker", "reset", "billing")[0] == {"subject": "billing", "closed": 1}
    assert baton("breaker", "reset", "billing")[0] == 1


@pytest.mark.parametrize("name", ["billing", "agent:billing"])
def test_an_agent_is_reset_with_the_routes_to_it(sent, documents, name):
    for _ in range(3):
        made = sent()
        documents("handoff", "accept", made["id"])
        documents("handoff", "return", made["id"], "--epoch", 1, "--status", "failed")
    assert documents("breaker", "reset", name)[0]["closed"] == 2
    assert documents("breaker", "list") == []


def test_doctor(sent, documents, place, baton):
    assert documents("doctor")[0]["ok"] is True
    sent()
    [found] = documents("doctor")
    checks = {one["name"]: one for one in found["checks"]}
    assert found["ok"] is True
    assert {
        "Python",
        "SQLite",
        "clock",
        "file system",
        "permissions",
        "schema",
        "WAL",
        "sync",
        "audit",
        "claims",
    } <= set(checks)
    (place / STORE).chmod(0o644)
    code, out, _ = baton("doctor")
    assert code == 3
    assert "BAD permissions: baton.db 0644; chmod 600" in out


def test_doctor_names_an_approval_that_protects_nobody(sent, documents, baton):
    sent()
    assert "approvals" not in {one["name"] for one in documents("doctor")[0]["checks"]}
    with Relay(STORE, limits=Limits(approve=("bililng", "billing", "human"))) as relay:
        relay.hand_off(Handoff(from_agent="user", to_agent="triage", task="x"))
    code, out, _ = baton("doctor")
    assert code == 0
    assert "--  approvals: asked for bililng, and no agent is called so; did you mean billing?" in out


def test_migrate(sent, documents):
    sent()
    [told] = documents("store", "migrate")
    assert told["from"] == told["to"] > 0


# --- exit codes and errors ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        ("handoff show ffff0000", 1, "NotFound"),
        ("handoff show f", 2, "Malformed"),
        ("handoff show", 2, "Malformed"),
        ("handoff list --state nonsense", 2, "Malformed"),
        ("handoff send --to billing", 2, "Malformed"),
        ("handoff send --to nobody --task x", 1, "UnknownAgent"),
        ("handoff send --to triage --task x --require refunds --wait 0.2", 124, "TimedOut"),
        ("handoff send --to billing --task x --wait 0.1", 124, "TimedOut"),
        ("handoff send --to billing --task x --artifact ../up", 2, "Malformed"),
        ("handoff send --to billing --task x --priority soon", 2, "Malformed"),
        ("handoff send --to billing --task x --timeout soon", 2, "Malformed"),
        ("handoff send --file missing.json", 2, "OSError"),
        ("handoff accept", 2, "Malformed"),
        ("handoff accept --agent billing", 1, "NotFound"),
        ("handoff list --store postgresql://x", 2, "StoreError"),
        ("run --app nowhere billing x", 1, "NotFound"),
        ("run --app json billing x", 2, "Malformed"),
        ("run --app json.nowhere:relay billing x", 1, "NotFound"),
        ("worker --app json:loads", 2, "Malformed"),
    ],
)
def test_errors_are_one_line_and_a_document(words, code, kind, team, baton, documents):
    got, _, err = baton(*words.split())
    assert got == code, err
    assert len([one for one in err.splitlines() if one.startswith("error: ")]) == 1
    assert documents(*words.split(), code=code)[-1]["kind"] == kind


BROKEN = {
    "import nosuch": "own.py, line 2: ModuleNotFoundError: No module named 'nosuch'",
    "import own.nosuch": "own.py, line 2: ModuleNotFoundError: No module named 'own.nosuch'",
    "from baton import Relya": "own.py, line 2: ImportError: cannot import name 'Relya'",
    "def broken(:": "own.py, line 2: SyntaxError: invalid syntax",
    "1 / 0": "own.py, line 2: ZeroDivisionError: division by zero",
    "import parts": "parts.py, line 1: KeyError: 'x'",
    "raise SystemExit(3)": "own.py, line 2: SystemExit: 3",
}


@pytest.mark.parametrize("line", BROKEN)
@pytest.mark.parametrize("words", [["run", "a", "x"], ["worker"]])
def test_a_fault_in_your_module_is_shown_where_it_stands(words, line, baton, documents, place, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    (place / "parts.py").write_text("{}['x']\n")
    (place / "own.py").write_text(f"# the agents\n{line}\n")
    for name in ("own", "parts"):
        sys.modules.pop(name, None)
    code, out, err = baton(*words, "--app", "own:relay")
    assert (code, out) == (2, "")
    *trace, error = err.splitlines()
    assert error.startswith(f"error: --app own:relay: {BROKEN[line]}")
    assert any("own.py" in one for one in trace)
    assert len(trace) == len(set(trace))
    assert not any("baton/cli" in one or "importlib" in one for one in trace)
    assert documents(*words, "--app", "own:relay", code=2)[-1]["kind"] == "Malformed"


def test_a_rule_that_refuses_is_exit_3(team, documents):
    documents("agents", "register", "junior", "--allow-target", "triage")
    made = documents("handoff", "send", "--from", "junior", "--to", "billing", "--task", "x", code=3)
    assert made[0]["kind"] == "NotAuthorised"


def test_a_prefix_must_be_unambiguous(team, documents, baton):
    ids = ["aaaa1111-0000-4000-8000-000000000001", "aaaa2222-0000-4000-8000-000000000002"]
    with Relay(STORE) as relay:
        for one in ids:
            relay.hand_off(Handoff(id=one, from_agent="user", to_agent="billing", task="x"))
    code, _, err = baton("handoff", "show", "aaaa")
    assert code == 2
    assert all(one in err for one in ids)
    assert documents("handoff", "show", "aaaa1")[0]["handoff"]["id"] == ids[0]


HOSTILE = "pay\x1b[2J\u202e now\nerror: fake\x9b31m"


def test_hostile_text_is_printed_harmlessly(team, baton, documents):
    [made] = documents(
        "handoff", "send", "--to", "human", "--task", HOSTILE, "--reason", HOSTILE, "--set", f"k={HOSTILE}"
    )
    for words in (
        "handoff list", f"handoff show {made['id']} --full", "waiting", "alerts", "history", "graph", "graph --mermaid",
        "audit query", f"handoff return {made['id']} --text {made['id']}", f"handoff show {made['id']}",
    ):  # fmt: skip
        code, out, err = baton(*words.split())
        assert code == 0
        assert all(line.isprintable() for line in (out + err).replace("\t", " ").split("\n")), words
        assert not any(line.startswith("error:") for line in out.splitlines())
    code, _, err = baton("handoff", "show", "\x1b[31mxxxx")
    assert code == 1
    assert err.rstrip("\n").isprintable()


def test_lock_and_unlock(baton, documents, place):
    (mine,) = documents("lock", "a.py", "--as", "claude")
    assert (mine["path"], mine["lock_type"], mine["state"], mine["owner"]) == (
        str(place.resolve() / "a.py"),
        "exclusive",
        "held",
        "claude",
    )
    code, _, err = baton("lock", "a.py", "--as", "codex")
    assert code == 1
    assert "a.py is locked by claude" in err
    assert baton("lock", "docs", "--shared")[0] == 0
    assert baton("lock", "docs/x.md", "--shared", "--as", "codex")[0] == 0
    assert [(one["owner"], one["lock_type"]) for one in documents("lock")] == [
        ("claude", "exclusive"),
        ("ana", "shared"),
        ("codex", "shared"),
    ]
    assert documents("unlock", "--as", "claude") == [{"owner": "claude", "unlocked": 1}]
    assert documents("unlock", "--as", "claude", code=1) == [{"owner": "claude", "unlocked": 0}]
    assert baton("lock", "a.py", "--as", "codex", "--wait", "soon")[0] == 2


# --- what goes up -------------------------------------------------------------------------------


def test_a_shell_sends_its_work_up_with_what_it_found_out(sent, baton, documents):
    handoff = sent()
    baton("handoff", "accept", handoff["id"])
    code, out, _ = baton(
        "handoff", "return", handoff["id"], "--epoch", 1, "--escalate", "over my limit", "--json-body", '{"due": 70}'
    )
    assert (code, "it goes up" in out) == (0, True)
    (waits,) = documents("waiting")
    assert (waits["kind"], waits["why"]) == ("parked", "over my limit; a person has to decide")
    (said,) = waits["assessments"]
    assert (said["agent"], said["to"], said["reason"], said["content"]) == (
        "billing",
        "human",
        "over my limit",
        {"due": 70},
    )
    _, out, err = baton("handoff", "show", handoff["id"])
    assert 'what each level said\n  billing → human: over my limit\n    {"due":70}\n' in out
    assert f"`baton handoff return {handoff['id'][:8]} --text …` answers it" in err
    assert documents("handoff", "show", handoff["id"])[0]["assessments"] == [said]


def test_a_person_sees_who_said_what_on_the_way_up(team, baton, documents):
    with Relay(STORE, escalation=["triage"]) as relay:
        made = relay.hand_off(Handoff(from_agent="user", to_agent="billing", task="Refund order 7"))
        for agent in ("billing", "triage"):
            epoch = relay.claim(agent).handoff.epoch
            relay.give_back(made.id, Escalate(f"{agent} may not"), epoch=epoch)
    (waits,) = documents("waiting")
    assert waits["why"] == "billing: billing may not; triage: triage may not; a person has to decide"
    assert [(one["agent"], one["to"]) for one in waits["assessments"]] == [("billing", "triage"), ("triage", "human")]
    _, out, _ = baton("handoff", "show", made.id)
    assert "  billing → triage: billing may not\n  triage → human: triage may not\n" in out
    assert baton("handoff", "return", made.id, "--text", "refund it")[0] == 0
    code, _, err = baton("handoff", "return", made.id, "--text", "no")
    assert (code, "was completed, and has ended" in err) == (1, True)


def test_a_question_that_went_up_says_why(team, baton, documents):
    with Relay(STORE) as relay:
        handoff = Handoff(
            from_agent="billing",
            to_agent="human",
            type="escalation",
            task="refund 70 EUR?",
            audit=Rationale(decision_rationale="over my limit"),
        )
        relay.hand_off(handoff)
    (waits,) = documents("waiting")
    assert (waits["kind"], waits["why"]) == ("question", "over my limit")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--epoch", "1", "--status", "failed"), "it is no answer yet"),
        (("--epoch", "1", "--tokens", "7"), "it is no answer yet"),
        ((), "say --epoch 1"),
    ],
)
def test_what_does_not_go_with_escalate(sent, baton, words, error):
    handoff = sent()
    baton("handoff", "accept", handoff["id"])
    code, _, err = baton("handoff", "return", handoff["id"], "--escalate", "over my limit", *words)
    assert (code, error in err) == (2, True)


def test_nobody_stands_above_a_person(sent, baton):
    handoff = sent(to="human")
    code, _, err = baton("handoff", "return", handoff["id"], "--escalate", "not me")
    assert (code, "nobody stands above a person" in err) == (2, True)


def test_options_may_stand_between_the_words(baton):
    code, _, err = baton("run", "/implement", "--mode", "agent", "nowhere.md")
    assert (code, "nowhere.md" in err, "unrecognized" in err) == (1, True, False)
