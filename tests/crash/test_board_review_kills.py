"""Killed at each call that writes, while a person decides or a worker answers: nothing is lost, nothing is twice."""

import os
import sys
from pathlib import Path

import pytest

from baton import clock
from baton.board import answered, files, moves, requests, review, wrote
from baton.board.actor import Actor
from baton.board.approvals import Approval, standing_approval
from baton.board.moves import Move, make
from baton.board.root import Board
from baton.board.tags import Text, state_of
from baton.stores import holder
from baton.testing import strace_sweep

ANA = Actor("ana", holder.identity())
BATON = str(Path(sys.executable).with_name("baton"))
CLEAN = ["env", "-i", "USER=ana", "XDG_STATE_HOME={directory}/state", "BATON_ROOT={directory}", BATON]
PLAN = "# Plan\n\n- Refactor auth #needs-fix #P1\n- Mend it #needs-chores\n"
WHOLE = "# Whole\n**Tags**: #needs-fix\n\nDo it.\n"
EVERY = 1 if os.environ.get("BATON_REQUIRE_PROOFS", "") not in {"", "0"} else 4
REQUEST = "FIX_REQUEST_REFACTOR_AUTH.md"


def opened(directory):
    os.environ["XDG_STATE_HOME"] = f"{directory}/state"
    for name in ("BATON_CLAIM", "BATON_ROOT"):
        os.environ.pop(name, None)
    return Board(directory)


def plan(directory):
    Path(directory, ".baton").mkdir()
    Path(directory, "plan.md").write_text(PLAN)
    Path(directory, "whole.md").write_text(WHOLE)


def work(board):
    """Every tag in the tree that says that something is to be done or was."""
    found = []
    for path in Path(board.root).glob("**/*.md"):
        tags = Text(files.read(str(path))).tags
        found += [(state, path.name) for tag in tags if (state := (state_of(tag.name) or ("", ""))[0])]
    return found


def not_sound(board):
    list(board.log.records())  # raises if the chain is broken
    for state, name in work(board):
        data = files.read(board.path(name))
        found = standing_approval(board, name, "fix", data, clock.now())
        if state == "delegated" and not isinstance(found, Approval):
            yield f"{name} is delegated, and {found}"
        logged = moves.standing(board.log.history(name, "fix"))
        if state == "needs" and isinstance(found, Approval) and logged["event"] != "delegated":
            yield f"{name} waits, and is approved"


def decided(directory, acknowledged):
    """After a review that approved the whole file and the line may have been hit, each is there once; it goes on."""
    board = opened(directory)
    yield from not_sound(board)
    said = [line.split("  ")[0] for line in acknowledged]
    if [line for line in said if line.startswith("whole.md")] and ("delegated", "whole.md") not in work(board):
        yield "it said that whole.md was approved"
    if [line for line in said if REQUEST in line] and ("delegated", REQUEST) not in work(board):
        yield "it said that the line was approved"
    review.unpromoted(board, "", ANA)
    shown = [item.title for item in review.waiting(board).items() if item.noun == "fix"]
    made = [name for state, name in work(board) if state == "delegated"]
    if len(shown) + len(made) != 2:
        yield f"two are to be done: {shown} wait, {made} go on"
    for item in review.waiting(board).items():
        if item.noun == "fix":
            review.decide(board, item, "approve", ANA)
    if sorted(work(board)) != [("delegated", REQUEST), ("delegated", "whole.md"), ("needs", "plan.md")]:
        yield f"it does not go on: {sorted(work(board))}"
    if Path(directory, "plan.md").read_text().count(f"({REQUEST})") != 1:
        yield "the line names its request not once"
    yield from not_sound(board)
    board.log.close()


@pytest.mark.proof("strace")
@pytest.mark.timeout(900)
def test_a_review_killed_at_any_call_loses_nothing():
    argv = [*CLEAN, "review", "{directory}", "--approve", "--all", "fix"]
    report = strace_sweep(argv, decided, prepare=plan, every=EVERY)
    report.assert_clean()
    assert report.kills > 10
    assert report.acknowledged > 1
    print(f"review: {report.kills} kills in {report.seconds:.0f} s")


@pytest.mark.proof("strace")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["EIO", "ENOSPC"])
def test_a_review_hit_by_an_error_loses_nothing(mode):
    argv = [*CLEAN, "review", "{directory}", "--approve", "--all", "fix"]
    report = strace_sweep(argv, decided, prepare=plan, mode=mode, every=3 * EVERY)
    report.assert_clean()
    assert report.errors == report.calls > 3


def claimed(directory):
    board = opened(directory)
    Path(directory, ".baton").mkdir()
    made = requests.new(board, requests.Wish("fix", "x", folder=directory), ANA)
    path = board.path(made.path)
    review.decide(board, review.waiting(board).items()[0], "approve", ANA)
    make(Move(board, path, "fix", "delegated", "claimed"), ANA)
    board.log.close()


def answers(directory, acknowledged):
    """After an answer that may have been hit: one response, linked once or not yet; and it can be given again."""
    board = opened(directory)
    path = f"{directory}/FIX_REQUEST_X.md"
    list(board.log.records())
    body = wrote.digest(board, "FIX_REQUEST_X.md", files.read(path))
    if acknowledged and not answered.response(board, files.read(path)):
        yield "it said that the answer is linked"
    if not answered.response(board, files.read(path)):
        requests.respond(board, path, "Complete", "it works", ANA)
    data = files.read(path)
    if data.count(b"## Response") != 1 or answered.response(board, data) != "FIX_RESPONSE_X.md":
        yield f"not linked once: {data!r}"
    if found := [one.name for one in Path(directory).glob("*RESPONSE*") if one.name != "FIX_RESPONSE_X.md"]:
        yield f"a response too many: {found}"
    if not Path(directory, "FIX_RESPONSE_X.md").read_text().endswith("- [ ]\n"):
        yield "the response is torn"
    if wrote.digest(board, "FIX_REQUEST_X.md", data) != body:
        yield "the approved text changed"
    make(Move(board, path, "fix", "claimed", "done"), ANA)
    if moves.standing(board.log.history("FIX_REQUEST_X.md", "fix"))["event"] != "done":
        yield "it cannot be done"
    board.log.close()


@pytest.mark.proof("strace")
@pytest.mark.timeout(900)
def test_an_answer_killed_at_any_call_is_given_once():
    argv = [*CLEAN, "respond", "{directory}/FIX_REQUEST_X.md", "--summary", "it works"]
    report = strace_sweep(argv, answers, prepare=claimed, every=EVERY)
    report.assert_clean()
    assert report.kills == report.calls > 5
    print(f"respond: {report.kills} kills in {report.seconds:.0f} s")
