"""Each invariant of the board, by what happens to real files and processes when somebody does otherwise."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baton.board.dispatch import BY_PERSONS, DEFAULT
from baton.cli import call


def events(plain, path, event):
    return [one for one in plain.log() if one["path"] == f"sessions/{path.name}" and one["event"] == event]


def test_claim_before_work(plain, agent):
    """Of many that are started for one item at once one works, and finds it claimed."""
    agent('note("seen", open(request).read().split("\\n")[1])')
    path = plain.item("one", "implementation", "easy")
    argv = [sys.executable, "-m", "baton", "run", "/implement", str(path), "--mode", "agent"]
    started = [
        subprocess.Popen(argv, cwd=plain.root, env=plain.environment, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started].count(0) == 1, said
    assert plain.lines("seen") == ["**Tags**: #claimed-implementation #P1"]
    assert len(events(plain, path, "claimed")) == 1


def test_daemon_stateless(plain):
    """Killed whenever something has begun, it goes on from the files: nothing is lost, nothing is done twice."""
    plain.daemon()
    paths = [plain.item(f"n{number}", "implementation", "easy") for number in range(3)]
    for kill in range(1, 4):
        plain.until(lambda kill=kill: len(plain.lines("begun")) >= kill)
        plain.daemons[-1].kill()
        plain.daemons[-1].wait()
        plain.daemon()
    plain.until(lambda: all("#done-" in plain.tags(path) for path in paths))
    assert sorted(plain.lines("effects")) == [f"sessions/n{number}.md#implementation" for number in range(3)]
    (folder,) = Path(plain.environment["XDG_STATE_HOME"], "baton", "boards").iterdir()
    known = {"log.jsonl", "heads", "daemon.lock", "windows", "workers", "trusted", "find"}
    assert {one.name for one in folder.iterdir()} <= known  # none of it is the daemon's memory


@pytest.mark.parametrize("state", ["needs", "next"])
def test_needs_is_staging_and_next_is_immediate(plain, state):
    """A daemon starts neither, however urgent, and neither is in the way of what was approved."""
    path = plain.item("staged", "implementation", "easy", "P0", approve=False)
    if state == "next":
        plain.baton("tag", "swap", str(path), "#needs-implementation", "#next-implementation")
    before = path.read_bytes()
    plain.daemon()
    witness = plain.item("witness", "implementation", "easy", "P2")
    plain.until(lambda: "#done-" in plain.tags(witness))
    time.sleep(1)
    assert plain.lines("begun") == ["sessions/witness.md#implementation"]
    assert path.read_bytes() == before


def test_dispatch_approval_required(plain, agent):
    """Neither a tag that somebody wrote nor the wish of an agent starts anything."""
    other = plain.item("other", "implementation", "easy", approve=False)
    forged = plain.item("forged", "implementation", "easy", approve=False)
    forged.write_text(forged.read_text().replace("#needs-", "#delegated-"))
    agent(
        f"other = {str(other)!r}\n"
        'for to in ("delegated", "next"):\n'
        '    note("codes", baton("tag", "swap", other, "#needs-implementation", f"#{to}-implementation"))\n'
        'note("codes", baton("review", "--approve", other))\n'
        'note("codes", baton("tag", "swap", other, "#needs-implementation", "#delegated-implementation", "--force"))'
    )
    good = plain.item("good", "implementation", "easy")
    plain.daemon()
    plain.until(lambda: "#done-" in plain.tags(good) and "#needs-" in plain.tags(forged))
    assert plain.lines("codes") == ["3"] * 4
    assert "#needs-" in plain.tags(other)
    assert plain.lines("begun") == ["good.md"]
    assert len(events(plain, forged, "alert")) == 1


def test_daemon_debounce(plain):
    """Three seconds after the last thing that was approved, not after the first."""
    options = {names[0]: given for names, given in call.load("run --monitor-tags").arguments}
    assert options["--quiet"]["default"] == "3s"
    plain.daemon("--quiet", "3s")
    plain.until(lambda: "looking after" in plain.said())
    plain.item("one", "implementation", "easy")
    time.sleep(1.5)
    plain.item("two", "implementation", "easy")
    approved = time.monotonic()
    plain.until(lambda: plain.lines("begun"))
    assert 2.5 < time.monotonic() - approved < 20
    plain.until(lambda: len(plain.lines("effects")) == 2)


def test_one_tag_has_one_skill(plain, agent):
    """A table with two skills for a tag, or two tags for a skill, starts nothing; one row decides who works."""
    agent("")
    path = plain.item("one", "implementation", "easy")
    table = "# T\n\n## §TAG_DISPATCH\n\n| Tag | Skill | Mode | Priority |\n|---|---|---|---|\n"
    row = "| #delegated-{} | /{} | agent | 1 |\n"
    build, fix = row.format("implementation", "build"), row.format("fix", "build")
    for second in (row.format("implementation", "other"), fix):
        (plain.root / "TAGS.md").write_text(table + build + second)
        plain.baton("trust", "--yes")
        refused = json.loads(plain.baton("run", "/build", str(path), "--json", code=2))
        assert "line 8: " in refused["error"]
        assert "one tag has one skill, and one skill has one tag" in refused["error"]
        assert plain.daemon().wait(20) == 2  # it says why, and starts nothing
    assert plain.lines("begun") == []
    (plain.root / "TAGS.md").write_text(table + build)
    plain.baton("trust", "--yes")
    now = plain.item("two", "implementation", "easy")
    plain.daemon()
    plain.until(lambda: "#done-" in plain.tags(now) and "#needs-" in plain.tags(path))
    assert [one["skill"] for one in events(plain, now, "claimed")] == ["build"]
    assert events(plain, path, "claimed") == []  # it was approved for another skill
    assert len({route.skill for route in DEFAULT.values()}) == len(DEFAULT)
    assert not BY_PERSONS & DEFAULT.keys()


def test_delegation_via_templates(plain, agent):
    """A request that was made from a template is done only with a response that it links."""
    made = json.loads(plain.baton("request", "new", "implement", "A parser", "--json"))
    path = plain.root / made["path"]
    assert "## 4. Acceptance Criteria" in path.read_text()
    approve = ("tag", "swap", str(path), "#needs-implementation", "#delegated-implementation")
    run = ("run", "/implement", str(path), "--mode", "agent", "--json")
    plain.baton(*approve)
    agent("")
    assert json.loads(plain.baton(*run, code=1))["status"] == "failed"
    assert "#delegated-implementation" in plain.tags(path)  # once more
    agent('note("codes", baton("respond", request, "--summary", "it parses"))')
    assert json.loads(plain.baton(*run))["status"] == "completed"
    assert plain.tags(path) == "**Tags**: #done-implementation"
    answer = next(line for line in path.read_text().splitlines() if "**Fulfilled by**: " in line).split(": ")[1]
    assert Path(answer).name.startswith("IMPLEMENTATION_RESPONSE_")
    assert made["path"] in (plain.root / answer).read_text()
