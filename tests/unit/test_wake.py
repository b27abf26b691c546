"""Who is told that something changed."""

import asyncio

from baton import Limits, Relay
from baton.testing import virtual


def test_a_process_that_serves_and_waits_does_not_wake_itself():
    """Whoever finds nothing has nothing to tell; else the worker and the waiting run keep each other busy for ever."""
    with Relay(":memory:", limits=Limits(approve=("a",))) as relay:
        relay.agent("a")(lambda turn: turn.task)
        asked, claim = [], relay.store.claim

        def counted(*given):
            asked.append(given)
            assert len(asked) < 50
            return claim(*given)

        relay.store.claim = counted

        async def main():
            run, serve = asyncio.create_task(relay.run("a", "work")), asyncio.create_task(relay.work())
            await asyncio.sleep(3)
            for task in (run, serve):
                task.cancel()
            return await asyncio.gather(run, serve, return_exceptions=True)

        virtual.run(main())
        assert 3 <= len(asked) <= 20
