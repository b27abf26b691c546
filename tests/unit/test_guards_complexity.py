import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.guards.complexity import assess, classify
from baton.protocol.limits import TIERS

SIMPLE = [
    "",
    "What is the capital of France?",
    "How does the retry policy work?",
    "Why is the build slow?",
    "Translate this sentence into French: good morning",
    "Fix the typo in README.md",
    "Summarise the release notes",
    "Rename the function foo to bar",
    "please refund me",
    "Can you review this paragraph?",
    "Add a docstring to parse_line",
    "List the open pull requests",
]
MEDIUM = [
    "Fix the login bug, add a test and update the changelog",
    "Update config.toml, settings.py and README.md",
    "Research Redis caching patterns and then write a summary, then report back",
    "Refactor the parser and add tests for every branch",
    "Find all usages of the old API",
    "Review the diff, then fix what you find and run the tests",
    "Write a script that fetches the data. Convert it to CSV and validate the columns",
    "Translate the whole manual",
    "Could you add a retry to client.py and document it in docs/client.md, then update the tests?",
    "Investigate why the service leaks memory",
]
COMPLEX = [
    "Build a web app with a frontend, a backend and a payment service, then deploy it",
    "Migrate the entire codebase from Flask to FastAPI, update all tests, and then deploy",
    "Design and implement an end-to-end pipeline: research, plan, build, test and release it",
    "Rewrite the platform from scratch",
    "1. Research caching\n2. Plan the change\n3. Implement it\n4. Validate it\n5. Report",
    "- add a login page\n- add sessions\n- add password reset\n- write tests\n- deploy to production",
    "Refactor auth.py, users.py, models.py, views.py and urls.py, add tests for each and update docs/auth.md",
    "Redesign the architecture of the billing system, migrate its data, then remove the old service",
]


@pytest.mark.parametrize(
    ("tier", "task"),
    [(tier, task) for tier, tasks in (("simple", SIMPLE), ("medium", MEDIUM), ("complex", COMPLEX)) for task in tasks],
)
def test_examples(tier, task):
    assert classify(task) == tier, assess(task)


def test_it_says_why():
    found = assess("Research caching, and then implement it in a.py and b.py")
    assert found.tier == "medium"
    assert found.reasons == (
        "2 actions (research, implement): +1",
        "steps that follow one another: +1",
        "files: +1",
    )
    assert found.points == 3
    assert assess("Is it done?").reasons == ("a question",)
    assert assess("Fix it").reasons == ("one small action",)


def test_length_alone_makes_no_task_complex():
    assert classify("word " * 100_000) == "medium"


@given(st.text(max_size=300))
def test_every_text_has_a_tier_and_a_reason(task):
    found = assess(task)
    assert found.tier in TIERS
    assert found.reasons
    assert found == assess(task)


@given(
    st.sampled_from([task for task in MEDIUM + COMPLEX if "?" not in task]),
    st.sampled_from([" And then deploy it.", "\n- one more thing"]),
)
def test_more_to_do_is_never_less_work(task, more):
    assert assess(task + more).points > assess(task).points
