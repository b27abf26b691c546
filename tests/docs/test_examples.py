"""The programs in examples/ run and print what they should."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import baton
from baton import errors

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

PRINTED = {
    "agents_file": """\
refund order 7: by backup
suspect | its health check failed: ConnectionError: the bank does not answer
at once: 1
""",
    "artifacts": """\
edited reports/draft.md (Please be short.) 90 1200
[('reports/final.md', 'final')]
Malformed: artifact path '../../etc/passwd': has '..', or a part that is only dots or begins or ends with a space; \
leave that out
""",
    "autonomy": """\
intern: copied a page
boss: did it myself, BudgetExceeded
refused: LoopDetected: loops
failed: ValueError: out of paper
TimedOut: [('intern', 'chapter')]
""",
    "by_hand": """\
offered True
claimed 1 None
Held: it is being worked on
completed printed
Fenced: claim 1 of printer is no longer current (completed, claim 1); what it did was stored as late and not applied
['initiated', 'accepted', 'completed', 'late']
""",
    "reports": """\
build the login
- [CRITICAL] db.py:3 - SQL is joined from parts - bind the values
implementer -> reviewer: implementer is done, reviewer comes next
reviewer -> implementer: review NEEDS_REVISION: issues have to be fixed first
implementer -> reviewer: implementer is done, reviewer comes next
success
""",
    "receiver": """\
order 1: junior: refunded in attempt 1
[]
order 2, abroad: senior: refunded in attempt 2
[('rejected', 'I do not know foreign banks')]
order 3, in the lunch break: junior: refunded in attempt 1
[('deferred', 'the bank is closed')]
order 4: ana: call the customer
""",
    "approval": """\
waiting
release version 2: done
[('approved', 'ana', 'tests are green')]
""",
    "budget": """\
BudgetExceeded: max_tokens: this handoff's own budget is 5000 tokens, with 1000 tokens of 10000 tokens left \
in this workflow; give it Budget(max_tokens=1000) or less, or raise Limits.max_tokens
written, for at most 1000 tokens; 9000 tokens used so far
""",
    "trace": """\
trigger sequential
prepare -
validate allow
initiate offered
acknowledge allow
accept accepted
execute returned
return -
complete completed
release completed
billing: 1 handoff, 100%, 0 tokens, 0.0 money
clerk: 1 handoff, 100%, 120 tokens, 0.002 money
triage: 1 handoff, 100%, 0 tokens, 0.0 money
clerk sees order but not card
billing sees card order but not -
""",
    "majority": """\
ship, with {'ship': 2, 'wait': 1}
{'by': 'security', 'verdict': 'ship'} ['success', 'failed', 'failed']
""",
    "escalation": """\
renamed to orders, as reviewer said
[': drop the table', 'worker: the table has no backup\\n\\n{"rows":80000}', \
"reviewer: I may not delete customers' data\\n\\nhalf of the rows are of this year"]
worker -> reviewer: the table has no backup
reviewer -> architect: I may not delete customers' data
architect -> human: only the owner of the data decides that
parked high after 3 of 3 attempts
make a backup first
""",
    "parallel": """\
read about Redis: yes
read about caching patterns: yes
two places read the same rows
""",
    "delegation": """\
researcher: use a short time to live
scout: two places read the same rows
critic: stale prices
{('scout', 'delegation', 'completed')}
""",
    "generalist": """\
120 tests passed, build 7 is live
[('generalist', 'test', 'completed'), ('generalist', 'deploy', 'completed')]
not deployed: RuntimeError: 2 tests failed
[('generalist', 'test', 'failed')]
""",
    "nested": """\
solved in en []
refunded order 17, answered in en [('support', 'billing', 'needs money')]
""",
    "program": """\
partial rock on the left
3 rooms, for I heard: a house by the sea / build it
not painted: ended with 1: no paint left
""",
    "pipeline": """\
cache with Redis: valid, made ResearchPack, ImplementationPlan, Code
docs-researcher -> planner -> implementer -> validator
['research', 'plan', 'implement']
""",
    "quality_gate": """\
implemented at a score of 90, with the manual and our code and a benchmark
['60 of 80', '75 of 80', 'good enough']
LoopDetected: loops: this would be repeat 3 of docs-researcher->analyzer with nothing new, and 2 are declared; \
give a new task=, attach an artifact, or declare Limits(loops={"docs-researcher->analyzer": 3})
""",
    "resume": """\
reader reads
the first process ended with -9
total 42 in attempt 2
""",
    "shared_state": """\
decided: ['architect: no cache before we have measured', 'lead: customers stand apart']
plan: two tables
risks: ['it grows', 'names of customers', 'no backup']
OutOfScope: state.plan: it is architect's, meddler may only read it; register meddler with writes=['plan'], or give \
Relay(reducers={'plan': …}) to join what both write
""",
    "retry": """\
a page about caching, edited; 120 tokens
initiated -
accepted -
retried ConnectionError: 529 overloaded
resumed its time has come
accepted -
retried ConnectionError: 529 overloaded
resumed its time has come
accepted -
completed -
""",
    "triage": """\
refunded customer 42
[('triage', 'billing', 'completed')]
initiated triage billing
accepted triage billing
completed triage billing
""",
}

TOLD = {  # on standard error, of work that waits
    "escalation": "architect waits for a person: worker: the table has no backup; reviewer: ",
    "agents_file": "billing is suspect and gets no new work",
    "autonomy": "intern waits for a person: intern has used 1500 of 1000",
    "receiver": "junior waits for a person: a lawyer is involved",
}


def test_every_example_is_run_and_short():
    programs = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert set(programs) == set(PRINTED)
    for name, text in programs.items():
        assert len(text.splitlines()) <= 60, name
        assert ast.get_docstring(ast.parse(text)), name


def test_the_index_lists_every_example():
    index = (EXAMPLES.parent / "docs" / "index.md").read_text(encoding="utf-8")
    assert [name for name in PRINTED if f"../examples/{name}.py" not in index] == []


def test_every_public_name_is_used_where_people_learn():
    pages = [ROOT / "README.md", *(ROOT / "docs" / "tutorial").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*EXAMPLES.glob("*.py"), *pages])
    known = set().union(*(re.findall(r"\w+", line) for line in re.findall(r"from baton import (.*)", text)))
    kinds = {name for name in baton.__all__ if name in vars(errors)} - {"BatonError"}
    assert set(baton.__all__) - known - kinds == set()
    assert {"Refused", "HandoffFailed", "Held", "Fenced"} <= known  # what a program tells apart


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_should(name, tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if not re.search(TOLD.get(name, "$^"), line)]
    assert told == []
    assert bool(done.stderr) == (name in TOLD)
    assert done.stdout == PRINTED[name]
    assert done.returncode == 0
