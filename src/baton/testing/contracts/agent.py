"""What every agent must do, tried through a relay: nobody else ever calls one."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from baton import Result
from baton.agents.base import Agent
from baton.errors import HandoffFailed
from baton.relay import Relay

PATIENCE = 10.0


class AgentContract:
    """Subclass with three agents: one that answers with its task, one that fails, one that never ends by itself."""

    def make(self) -> Agent:
        """Make an agent whose answer to any task is a text that contains the task."""
        raise NotImplementedError

    def make_failing(self) -> Agent:
        """Make an agent that cannot do any task."""
        raise NotImplementedError

    def make_endless(self) -> Agent:
        """Make an agent that works until it is called off."""
        raise NotImplementedError

    def test_answers_its_task(self) -> None:
        """The answer is one, and it can be stored."""
        relay = self._relay(self.make())
        result = self._finish(relay, relay.run("it", "count the stars"))
        assert result.status == "completed"
        assert "count the stars" in str(result.output)
        assert relay.result(result.workflow_id).output == result.output

    def test_answers_each_of_many_at_once(self) -> None:
        """Turns do not mix, neither at once nor one after the other."""
        relay = self._relay(self.make())

        async def many() -> list[Result]:
            first = [await relay.run("it", f"task-{number}-") for number in range(2)]
            return [*first, *await asyncio.gather(*(relay.run("it", f"task-{n}-") for n in range(2, 6)))]

        results = self._finish(relay, many())
        assert [f"task-{number}-" in str(one.output) for number, one in enumerate(results)] == [True] * 6

    def test_serves_a_second_event_loop(self) -> None:
        """An agent is bound to no event loop."""
        relay = self._relay(self.make())
        for _ in range(2):
            assert "again" in str(asyncio.run(relay.run("it", "again", timeout=PATIENCE)).output)
        self._finish(relay, asyncio.sleep(0))

    def test_says_that_it_failed(self) -> None:
        """A failure is raised or returned with a reason; it is never an empty success."""
        relay = self._relay(self.make_failing())

        async def failing() -> str:
            try:
                await relay.run("it", "work", timeout=PATIENCE)
            except HandoffFailed as error:
                return str(error)
            raise AssertionError("the work succeeded")

        assert len(self._finish(relay, failing())) > len("failed")
        assert relay.audit.query(to_agent="it")[-1].event_type == "failed"

    def test_stops_when_it_is_called_off(self) -> None:
        """A cancelled turn ends soon, and the work is free for others."""
        relay = self._relay(self.make_endless())

        async def called_off() -> None:
            run = asyncio.create_task(relay.run("it", "work"))
            while not relay.store.held():  # noqa: ASYNC110 - the claim belongs to another task
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            run.cancel()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(run, return_exceptions=True)
            assert run.cancelled()

        self._finish(relay, called_off())
        deadline = time.monotonic() + PATIENCE
        while relay.store.held() and time.monotonic() < deadline:  # a function in a thread sees it at its next look
            time.sleep(0.01)
        assert [one.status for one in relay.store.find()] == ["offered"]

    def test_stops_when_its_claim_is_cancelled(self) -> None:
        """A claim that is taken away ends the work as well."""
        relay = self._relay(self.make_endless())

        async def taken_away() -> str:
            run = asyncio.create_task(relay.run("it", "work"))
            while not relay.store.held():  # noqa: ASYNC110 - the claim belongs to another task
                await asyncio.sleep(0.01)
            relay.cancel(relay.store.find()[0].id, by="the contract")
            try:
                async with asyncio.timeout(PATIENCE):
                    await run
            except HandoffFailed as error:
                return str(error)
            raise AssertionError("the work succeeded")

        assert "the contract" in self._finish(relay, taken_away())

    def test_closes_twice(self) -> None:
        """Closing what is closed does nothing, used or not."""
        for used in (False, True):
            agent = self.make()
            relay = self._relay(agent)

            async def close(agent: Agent = agent, relay: Relay = relay, *, used: bool = used) -> None:
                if used:
                    await relay.run("it", "work", timeout=PATIENCE)
                await agent.aclose()
                await agent.aclose()

            self._finish(relay, close())

    def _relay(self, agent: Agent) -> Relay:
        relay = Relay()
        relay.add("it", agent)
        self._agent = agent
        return relay

    def _finish(self, relay: Relay, work: Any) -> Any:
        async def finished() -> Any:
            try:
                return await work
            finally:
                await self._agent.aclose()

        try:
            return asyncio.run(finished())
        finally:
            self._relays = [*getattr(self, "_relays", []), relay]

    def teardown_method(self) -> None:
        """Close the stores."""
        for relay in getattr(self, "_relays", []):
            relay.close()
