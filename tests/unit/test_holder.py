"""Who holds a claim, and what can be proved about the process behind the name."""

import os
import signal
import subprocess
import sys

import pytest

from baton.stores import holder


def other(name, **changed):
    """The same name with other parts."""
    parts = dict(zip(("host", "boot", "pid", "started", "worker"), name.split("/"), strict=True))
    return "/".join({**parts, **changed}.values())


def test_a_process_that_lives_and_what_differs_from_it():
    mine = holder.identity()
    started = mine.split("/")[3]
    ticks, _, image = started.partition(".")
    assert len(image) == 4
    said = {
        mine: "alive",
        other(mine, worker="another"): "alive",
        other(mine, started=ticks): "alive",  # as an older version wrote it
        other(mine, started=f"{int(ticks) + 1}.{image}"): "dead",
        other(mine, started=f"{ticks}.{'0000' if image != '0000' else '1111'}"): "dead",
        other(mine, started="-"): "unknown",
        other(mine, boot="earlier"): "dead",
        other(mine, host="elsewhere"): "unknown",
        f"{mine}{holder.LEASED}": "unknown",
    }
    assert {name: holder.life(name) for name in said} == said


def test_where_the_image_cannot_be_read_the_process_lives(monkeypatch):
    mine = holder.identity()
    monkeypatch.setattr(holder, "_image", lambda _: "")
    assert holder.life(mine) == "alive"
    assert holder.identity().split("/")[3].isdigit()


@pytest.mark.parametrize("body", ["", "import os; os.execv(sys.executable, [sys.executable, '-c', wait])"])
def test_a_process_that_became_another_program_is_gone(body):
    wait = "import sys; print('there', flush=True); sys.stdin.read()"
    program = f"import sys; wait = {wait!r}\nfrom baton.stores.holder import identity; print(identity(), flush=True)\n"
    command = [sys.executable, "-c", f"{program}{body}\nexec(wait)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        name = child.stdout.readline().strip()
        assert child.stdout.readline() == "there\n"
        assert holder.life(name) == ("dead" if body else "alive")
        assert name.split("/")[2] == str(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert holder.life(name) == "dead"
