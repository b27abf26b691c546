"""Every kind of agent keeps the contract."""

import asyncio
import sys
import time

from baton import Relay
from baton.agents.program import ProgramAgent
from baton.agents.python import FunctionAgent
from baton.agents.relay import RelayAgent
from baton.testing.agents import Crashing, Obedient, Silent
from baton.testing.contracts.agent import AgentContract


async def answer(turn):
    return f"done: {turn.task}"


async def fail(turn):
    raise OSError("no route to host")


async def work_on(turn):
    await asyncio.Event().wait()


def sync_answer(turn):
    return f"done: {turn.task}"


def sync_fail(turn):
    raise OSError("no route to host")


def sync_work_on(turn):
    while not turn.cancelled:
        time.sleep(0.01)


class TestAsyncFunction(AgentContract):
    def make(self):
        return FunctionAgent(answer)

    def make_failing(self):
        return FunctionAgent(fail)

    def make_endless(self):
        return FunctionAgent(work_on)


class TestFunction(AgentContract):
    def make(self):
        return FunctionAgent(sync_answer)

    def make_failing(self):
        return FunctionAgent(sync_fail)

    def make_endless(self):
        return FunctionAgent(sync_work_on)


class TestRelay(AgentContract):
    def inner(self, function):
        relay = Relay()
        relay.agent("entry")(function)
        return RelayAgent(relay, "entry")

    def make(self):
        return self.inner(answer)

    def make_failing(self):
        return self.inner(fail)

    def make_endless(self):
        return self.inner(work_on)


class TestObedient(AgentContract):
    def make(self):
        return Obedient()

    def make_failing(self):
        return Crashing()

    def make_endless(self):
        return Silent()


class TestProgram(AgentContract):
    def program(self, code):
        return ProgramAgent(sys.executable, "-c", f"import json, sys, time\nwork = json.load(sys.stdin)\n{code}")

    def make(self):
        return self.program("print('done:', work['task'])")

    def make_failing(self):
        return self.program("sys.exit('no route to host')")

    def make_endless(self):
        return self.program("time.sleep(1000)")
