"""`baton demo`: six short scenes with real processes; whatever they tell is checked against the store."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any

from baton import BatonError, Fenced, Limits, Refused
from baton.cli.demo_team import FIGURES, ran_log, team
from baton.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from baton import Result
    from baton.protocol.audit import AuditRecord

PATIENCE = 30.0
PAUSE = 2.2
APPROVER, FORGED = "ana", "ann"
TUTORIAL = Path(__file__).parents[3] / "docs/tutorial/first-handoff.md"  # in a clone only


class NotAsTold(Exception):
    """A scene did not come out as the demo says."""


class Teller:
    """Says what happens: as a page for people, as plain lines into a pipe, or as JSON lines."""

    def __init__(self, *, as_json: bool, fast: bool) -> None:
        self.n = 0
        self._json = as_json
        self._console: Console | None = None
        if sys.stdout.isatty() and not as_json:
            from rich.console import Console

            self._console = Console(highlight=False)
        self._pause = 0.0 if fast or self._console is None else PAUSE

    def _tell(self, event: str, text: str, facts: dict[str, Any] | None = None, style: str = "") -> None:
        if self._json:
            print(json.dumps({"event": event, "scene": self.n, "text": text, **(facts or {})}), flush=True)
        elif self._console is None:
            print(
                fill(text, 100, initial_indent="   ", subsequent_indent="   ", break_on_hyphens=False),
                flush=True,
            )
        else:
            from rich.padding import Padding
            from rich.text import Text

            self._console.print(Padding(Text(text, style=style), (0, 0, 0, 3)))

    async def scene(self, title: str, why: str) -> None:
        """Begin a scene, and give a person time to read what it is about."""
        self.n += 1
        if self._json:
            self._tell("scene", title)
        elif self._console is None:
            print(f"\n{self.n}. {title}")
        else:
            self._console.print(f"\n{self.n}. {title}", style="bold cyan")
        self.say(why)
        await asyncio.sleep(self._pause)

    def gap(self) -> None:
        """Leave a line empty."""
        if not self._json:
            print(flush=True)

    def say(self, text: str) -> None:
        """Say what happens, in plain words."""
        self._tell("say", text)

    def command(self, line: str) -> None:
        """Show a command on one line, to be copied."""
        if self._json:
            self._tell("command", line)
        else:
            print(f"      {line}", flush=True)

    def check(self, holds: object, text: str, **facts: Any) -> None:
        """Say that something is so, after looking."""
        if not holds:
            raise NotAsTold(f"scene {self.n}: this did not hold: {text}")
        self._tell("checked", text if self._json else f"ok  {text}", facts, "green")

    def trail(self, records: list[AuditRecord]) -> None:
        """Show audit records."""
        if self._json:
            for one in records:
                facts = {"from": one.from_agent, "to": one.to_agent, "attempt": one.attempt}
                self._tell("audit", one.event_type, facts)
            return
        head = ("time", "event", "from -> to", "attempt", "reason")
        rows = [
            (
                f"{one.timestamp:%H:%M:%S.%f}"[:-3],
                one.event_type,
                f"{one.from_agent} -> {one.to_agent}",
                str(one.attempt or ""),
                shorten(one.reason, 48),
            )
            for one in records
        ]
        if self._console is None:
            for row in (head, *rows):
                print("      {:13} {:19} {:18} {:8} {}".format(*row).rstrip())
            return
        from rich.padding import Padding
        from rich.table import Table

        table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
        for name in head:
            table.add_column(name, no_wrap=name != "reason")
        for row in rows:
            table.add_row(*row)
        self._console.print(Padding(table, (0, 0, 0, 3)))


class Stage:
    """What the scenes share: the directory, the relay on it, and who tells."""

    def __init__(self, place: Path, tell: Teller) -> None:
        self.url = str(place / "demo.db")
        self.place = place
        self.tell = tell
        ran_log(self.url).touch()
        self.relay = team(self.url)
        self.workers: dict[int, subprocess.Popen[bytes]] = {}

    def ran(self) -> list[str]:
        """Which agents really ran, in order."""
        return ran_log(self.url).read_text(encoding="utf-8").splitlines()

    def hire(self) -> None:
        """Start a worker process; it stops when its standard input is closed."""
        argv = [sys.executable, "-m", "baton.cli.demo_team", self.url]
        worker = subprocess.Popen(argv, stdin=subprocess.PIPE)
        self.workers[worker.pid] = worker

    async def command(self, *words: str) -> None:
        """Run `baton` in a process of its own, as a person would in another terminal."""
        self.tell.command(shlex.join(["baton", *words]))
        argv = [sys.executable, "-m", "baton.cli", *words, "--store", self.url]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.DEVNULL, stderr=pipe)
        _, said = await process.communicate()
        if process.returncode:
            raise NotAsTold(f"scene {self.tell.n}: `baton {words[0]}` failed: {said.decode().strip()}")

    async def until(self, look: Callable[[], Any], what: str) -> Any:
        """Wait for something that another process does."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        while not (found := look()):
            if loop.time() > end:
                raise NotAsTold(f"scene {self.tell.n}: waited {PATIENCE:.0f} s in vain for {what}")
            await asyncio.sleep(0.02)
        return found

    async def refused(self, agent: str, task: str, error: str, **options: Any) -> Result:
        """Run what a rule has to refuse."""
        try:
            result = await self.relay.run(agent, task, **options)
        except Refused as refusal:
            name = type(refusal).__name__
            self.tell.check(name == error, f"{name}: {refusal}", error=name)
            return self.relay.result(str(options["workflow_id"]))
        raise NotAsTold(f"scene {self.tell.n}: {agent} was not refused, its answer is {result.output!r}")


async def handed_on(stage: Stage) -> None:
    """A handoff."""
    tell, relay = stage.tell, stage.relay
    await tell.scene(
        "Work is handed on",
        "A customer writes. The agent `triage` sees a billing question and hands it to `billing`, with what "
        "it knows: the customer's number. Each step is one transaction with its audit record.",
    )
    result = await relay.run("triage", "please refund me")
    tell.trail(relay.audit.query(to_agent="billing"))
    moved = [(one.from_agent, one.to_agent, one.status) for one in result.handoffs]
    tell.check(moved == [("triage", "billing", "completed")], "triage -> billing, completed")
    tell.check(result.output == "refunded customer 42", f"the answer: {result.output}", output=result.output)


async def approved(stage: Stage) -> None:
    """An approval."""
    tell, relay = stage.tell, stage.relay
    await tell.scene(
        "Work waits for a person",
        "Paying money back needs a yes. The handoff to `payout` is written down and waits; no answer is not a yes.",
    )
    limits = Limits(approve=("payout",))
    running = asyncio.create_task(relay.run("clerk", "pay back order 17", limits=limits))
    try:
        held = (await stage.until(relay.waiting, "the handoff that waits"))[0]
        tell.check(held.to_agent == "payout", f"{held.from_agent} -> {held.to_agent} is {held.status}")
        tell.check("payout" not in stage.ran(), "`payout` has not started")
        tell.say("Somebody approves it, in another process; it could be days later:")
        await stage.command("approve", held.id, "--by", APPROVER)
        result = await asyncio.wait_for(running, PATIENCE)
    finally:
        running.cancel()
    records = relay.audit.query(handoff_id=held.id)
    tell.trail(records)
    said = [one.by for one in records if one.event_type == "approved"]
    tell.check(said == [APPROVER], f"the audit says who approved: {', '.join(said)}")
    tell.check(result.output == "paid 900", f"the answer: {result.output}", output=result.output)


async def taken_over(stage: Stage) -> None:
    """A kill and a takeover."""
    tell, relay = stage.tell, stage.relay
    await tell.scene(
        "A worker is killed, another one takes over",
        "Two worker processes stand by. One claims the work of `analyst`, which first has `reader` read "
        "figures and then takes its time. In the middle of that we kill -9 the process that holds the claim.",
    )
    stage.hire()
    stage.hire()
    flow = (await relay.run("analyst", "add up the sales", wait=False)).workflow_id
    await stage.until(lambda: "analyst 1" in stage.ran(), "a worker in the middle of its work")
    held = relay.store.find(workflow_id=flow, to_agent="analyst")[0]
    victim = stage.workers.pop(next(pid for pid in stage.workers if f"/{pid}/" in held.holder))
    killed_at = relay.store.now()
    victim.kill()
    victim.communicate()
    tell.check(victim.returncode == -9, f"process {victim.pid} held claim 1 and was killed with signal 9")
    await stage.until(lambda: relay.result(flow).status == "completed", "the other worker")
    records = relay.audit.query(handoff_id=held.id)
    tell.trail(records)
    took = next(one for one in records if one.event_type == "accepted" and one.epoch == held.epoch + 1)
    seconds = round(took.timestamp.timestamp() - killed_at / 1e6, 2)
    (other,) = stage.workers
    tell.check(f"/{other}/" in took.by, f"process {other} took over after {seconds:.1f} s", seconds=seconds)
    tell.check((took.attempt, took.epoch) == (2, 2), "it is attempt 2, under claim 2")
    output = relay.result(flow).output
    tell.check(output == f"total {sum(FIGURES)}", f"the answer: {output}", output=output)
    tell.check(stage.ran().count("reader") == 1, "`reader` was done before the kill and did not run again")
    _answer_late(stage, held.id)
    stage.workers[other].communicate()


def _answer_late(stage: Stage, handoff_id: str) -> None:
    tell, relay = stage.tell, stage.relay
    tell.say("Had the first worker only been asleep, it would now answer under its old claim:")
    try:
        relay.give_back(handoff_id, "total 0", epoch=1)
    except Fenced as error:
        tell.say(f"Fenced: {error}")
    late = [one for one in relay.audit.query(handoff_id=handoff_id) if one.event_type == "late"]
    tell.check(len(late) == 1, "an answer under claim 1 is stored as late")
    now = relay.get(handoff_id)
    tell.check((now.status, now.attempt) == ("completed", 2), "it changed nothing")


async def loop_stopped(stage: Stage) -> None:
    """A loop."""
    await stage.tell.scene(
        "A loop is stopped",
        "`planner` thinks that `coder` should do it; `coder` thinks that `planner` should. Nothing is new.",
    )
    result = await stage.refused("planner", "make it faster", "LoopDetected", workflow_id="demo-loop")
    made = [(one.from_agent, one.to_agent) for one in result.handoffs if one.status != "refused"]
    once = [("planner", "coder"), ("coder", "planner")]
    stage.tell.check(made == once, "each got it from the other once; the third handoff was refused")


async def budget_refused(stage: Stage) -> None:
    """A budget."""
    tell = stage.tell
    await tell.scene(
        "A budget is kept",
        "The workflow may use 10,000 tokens. `researcher` used 9,000 and wants to give `writer` 5,000 more.",
    )
    limits = Limits(max_tokens=10_000)
    result = await stage.refused("researcher", "a report", "BudgetExceeded", limits=limits, workflow_id="demo-budget")
    tell.check(result.tokens == 9_000, f"{result.tokens:,} tokens are counted as used", tokens=result.tokens)
    tell.check("writer" not in stage.ran(), "`writer` never started")


async def verified(stage: Stage) -> None:
    """The audit."""
    tell = stage.tell
    await tell.scene(
        "The audit is verified",
        "Records are chained by digest, for each handoff and over the whole log. We verify the store, then "
        f"change one byte in a copy: {APPROVER} approved the payment, the copy says {FORGED}.",
    )
    stage.relay.audit.seal()
    report = stage.relay.audit.verify()
    written = len(stage.relay.store.audit())
    whole = report.ok and report.records == written and report.checkpoints > 0
    tell.check(whole, f"verified: {written} records, all as written", records=written)
    stage.relay.close()
    kinds = [one.kind for one in _forge(stage, tell)]
    tell.check("edited" in kinds, "the change was found, and where", findings=kinds)


def _forge(stage: Stage, tell: Teller) -> Any:
    copy = stage.place / "forged.db"
    data = Path(stage.url).read_bytes()
    old, new = f'"by":"{APPROVER}"'.encode(), f'"by":"{FORGED}"'.encode()
    tell.check(data.count(old) == 1, f"changed one byte of {len(data):,} in {copy.name}")
    copy.write_bytes(data.replace(old, new))
    with Relay(str(copy), checkpoints=stage.place / "checkpoints") as forged:
        found = forged.audit.verify().findings
    for one in found:
        tell.say(str(one))
    return found


SCENES = (handed_on, approved, taken_over, loop_stopped, budget_refused, verified)


async def play(place: Path, tell: Teller) -> None:
    """Play all scenes in one directory."""
    stage = Stage(place, tell)
    try:
        for scene in SCENES:
            await scene(stage)
    finally:
        for worker in stage.workers.values():
            worker.kill()
            worker.wait()
        stage.relay.close()


def program() -> str:
    """How `baton` is called from here."""
    beside = Path(sys.executable).with_name("baton")
    if shutil.which("baton") or not beside.exists():
        return "baton"
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def goodbye(place: Path, tell: Teller) -> None:
    """Say where to look next."""
    baton = program()
    store, forged = (shlex.quote(str(place / name)) for name in ("demo.db", "forged.db"))
    tell.n += 1
    tell.gap()
    tell.say("All of it happened as told. Look at what is left of it:")
    tell.command(f"{baton} audit query --to payout --store {store}")
    tell.command(f"{baton} audit verify --store {forged}")
    tell.command(f"{baton} history --store {store}")
    tell.command(f"{baton} graph demo-loop --store {store}")
    if TUTORIAL.exists():
        tell.say(f"Read on: {TUTORIAL}, and the programs in examples/ beside docs/. Clean up:")
    else:
        tell.say("Read on: `baton --help`, and in Python help(baton). Clean up:")
    tell.command(f"rm -r {shlex.quote(str(place))}")


def main(argv: list[str]) -> int:
    """Play the demo; 0 when everything was as told."""
    parser = argparse.ArgumentParser(
        prog="baton demo", description="Six scenes with real processes; needs no key and no network."
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--fast", action="store_true", help="no pauses for reading")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="play in this new directory")
    chosen = parser.parse_args(argv)
    if chosen.keep and chosen.keep.exists():
        parser.error(f"--keep {chosen.keep}: is there already; name a new directory")
    if chosen.keep:
        chosen.keep.mkdir(parents=True)
    place = (chosen.keep or Path(tempfile.mkdtemp(prefix="baton-demo-"))).resolve()
    tell = Teller(as_json=chosen.json, fast=chosen.fast)
    tell.say(f"Everything happens in {place}.")
    try:
        asyncio.run(play(place, tell))
    except (NotAsTold, BatonError) as error:
        print(f"baton demo: {error}\nWhat happened until then is in {place}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(place, ignore_errors=True)
        return 130
    goodbye(place, tell)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
