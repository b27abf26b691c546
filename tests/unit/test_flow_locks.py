"""P7: files locked for a turn, for a person, for a shell; freed whatever happens."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from baton import Relay
from baton.errors import Deadlock, Locked, Malformed
from baton.lifecycle import Event
from baton.stores.base import Step
from baton.testing import virtual
from baton.testing.contracts.work import allow


@pytest.fixture
def relay():
    with Relay() as opened:
        yield opened


def test_one_turn_at_a_time_writes_a_file(relay, tmp_path):
    log = []

    @relay.agent("writer")
    async def writer(turn):
        async with turn.lock(tmp_path / "a.py"):
            log.append(("in", turn.task))
            await asyncio.sleep(1)
            log.append(("out", turn.task))

    async def all_at_once():
        await asyncio.gather(*(relay.run("writer", f"part {n}") for n in range(5)))

    virtual.run(all_at_once())
    assert [kind for kind, _ in log] == ["in", "out"] * 5
    assert [task for kind, task in log if kind == "in"] == [f"part {n}" for n in range(5)]
    assert relay.locks() == []


def test_a_function_without_await_locks_by_with(relay, tmp_path):
    @relay.agent("writer")
    def writer(turn):
        with turn.lock(tmp_path / "a.py"):
            return [one.path for one in relay.locks()]

    assert relay.run_sync("writer", "x").output == [os.path.realpath(tmp_path / "a.py")]
    assert relay.locks() == []


@pytest.mark.parametrize("end", [ValueError, None])
def test_what_a_turn_does_not_give_back_is_free_when_it_ends(relay, tmp_path, end):
    @relay.agent("careless")
    async def careless(turn):
        await turn.lock(tmp_path / "a.py").acquire()
        if end:
            raise end("stop")

    if end:
        with pytest.raises(Exception, match="stop"):
            relay.run_sync("careless", "x")
    else:
        relay.run_sync("careless", "x")
    assert relay.locks() == []


def test_who_waits_too_long_is_told_who_has_it(relay, tmp_path):
    async def two():
        async with relay.lock(tmp_path / "a.py", owner="ana"):
            with pytest.raises(Locked, match="is locked by ana"):
                await relay.lock(tmp_path / "a.py", owner="ben", timeout=2).acquire()
        assert relay.locks() == []

    virtual.run(two())


def test_waiting_that_would_never_end_is_refused_at_once(relay, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    seen = []

    @relay.agent("left")
    async def left(turn):
        async with turn.lock(a):
            await asyncio.sleep(1)
            async with turn.lock(b, timeout=3600):
                return "left"

    @relay.agent("right")
    async def right(turn):
        async with turn.lock(b):
            await asyncio.sleep(2)
            try:
                async with turn.lock(a, timeout=3600):
                    return "right"
            except Deadlock as error:
                seen.append(str(error))
                return "gave way"

    async def both():
        begun = asyncio.get_running_loop().time()
        results = await asyncio.gather(relay.run("left", "x"), relay.run("right", "y"))
        return [one.output for one in results], asyncio.get_running_loop().time() - begun

    outputs, seconds = virtual.run(both())
    assert outputs == ["left", "gave way"]
    assert seconds < 5
    assert "waits for" in seen[0]
    assert "left" in seen[0]
    assert relay.locks() == []


def test_delegated_work_uses_the_files_of_its_parent(relay, tmp_path):
    @relay.agent("editor")
    async def editor(turn):
        async with turn.lock(tmp_path / "src" / "a.py", timeout=1):
            return "edited"

    @relay.agent("lead")
    async def lead(turn):
        async with turn.lock(tmp_path / "src"):
            return (await turn.delegate("editor", "edit it")).output

    assert relay.run_sync("lead", "x").output == "edited"


def test_links_are_followed_and_hard_links_are_one_file(relay, tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "soft").symlink_to(tmp_path / "a")
    os.link(tmp_path / "a", tmp_path / "hard")

    async def three():
        async with relay.lock(tmp_path / "a", owner="ana"):
            for name in ("soft", "hard"):
                with pytest.raises(Locked):
                    await relay.lock(tmp_path / name, owner="ben").acquire()

    asyncio.run(three())


@pytest.mark.parametrize("path", ["", "a\nb", "a\x00b", "\x1b[31m"])
def test_odd_names_are_refused(relay, path):
    with pytest.raises(Malformed, match="lock"):
        relay.lock(path, owner="ana")


def test_no_path_and_no_owner_are_refused(relay):
    with pytest.raises(Malformed, match="no path"):
        relay.lock(owner="ana")
    with pytest.raises(Malformed, match="owner"):
        relay.lock("a", owner="")


def test_a_turn_that_lost_its_claim_gives_back_nothing_of_the_next_one(relay, tmp_path):
    """It sleeps, its work is taken back and given to the next, and then it wakes up."""
    path, holds = tmp_path / "a.py", []

    @relay.agent("editor")
    async def editor(turn):
        holds.append(turn.lock(path))
        await holds[-1].acquire()
        if turn.attempt == 1:
            relay.store.advance(Step(id=turn.handoff.id, event=Event.RECLAIM), allow)
            await asyncio.sleep(3600)
        await holds[0].release()
        with pytest.raises(Locked, match="editor"):
            await relay.lock(path, owner="ana").acquire()
        return [turn.attempt, len(relay.locks())]

    assert virtual.run(relay.run("editor", "x")).output == [2, 1]
    assert relay.locks() == []


HOLDER = """
import asyncio, sys
from baton import Relay
relay = Relay(sys.argv[1])

@relay.agent("holder")
async def holder(turn):
    async with turn.lock(sys.argv[2]):
        print("locked", flush=True)
        await asyncio.sleep(60)

asyncio.run(relay.run("holder", "x", workflow_id="w"))
"""


def test_a_killed_process_leaves_no_lock(tmp_path):
    store, path = str(tmp_path / "store.db"), str(tmp_path / "a.py")
    process = subprocess.Popen([sys.executable, "-c", HOLDER, store, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    with Relay(store) as relay:
        with pytest.raises(Locked, match="holder"):
            asyncio.run(relay.lock(path, owner="ana").acquire())
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        begun = time.monotonic()
        relay.recover()
        asyncio.run(relay.lock(path, owner="ana", timeout=5).acquire())
        assert time.monotonic() - begun < 2
        assert [one.owner for one in relay.locks()] == ["ana"]


def test_the_next_owner_of_a_killed_ones_work_locks_the_same_files(tmp_path):
    store, path = str(tmp_path / "store.db"), str(tmp_path / "a.py")
    process = subprocess.Popen([sys.executable, "-c", HOLDER, store, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with Relay(store) as relay:
        held = relay.locks()

        @relay.agent("holder")
        async def holder(turn):
            async with turn.lock(path, timeout=0):
                return [turn.attempt, len(relay.locks())]

        assert asyncio.run(relay.resume("w")).output == [2, 1]
        assert [one.path for one in held] == [os.path.realpath(path)]
        assert relay.locks() == []
