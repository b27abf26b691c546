"""Without agent functions: a program offers work, takes it, and answers it. A late answer changes nothing."""

import asyncio
import tempfile
from pathlib import Path

from baton import Fenced, Handoff, Held, Profile, Relay, ReturnProtocol, State


def main(url):
    with Relay(url) as relay:
        relay.store.register(Profile(agent_id="printer", capabilities={"printing": 0.9}))
        soon = ReturnProtocol(timeout=3600, on_timeout="escalate")
        request = Handoff(from_agent="office", to_agent="printer", task="print 10 pages", return_protocol=soon)
        offered = relay.hand_off(request)
        print(offered.status, offered.state is State.OFFERED)

        first = relay.claim("printer", lease=600).handoff
        print(first.status, first.epoch, relay.claim("printer").handoff)  # nobody else gets it

        try:
            asyncio.run(relay.resume(first.workflow_id))
        except Held:
            print("Held: it is being worked on")

        done = relay.give_back(first.id, "printed", epoch=first.epoch)
        print(done.status, relay.result(done.workflow_id).output)

        try:
            relay.give_back(first.id, "printed twice", epoch=first.epoch)
        except Fenced as error:
            print(f"Fenced: {str(error).partition(': ')[2]}")
        print([record.event_type for record in relay.audit.query(handoff_id=first.id)])


with tempfile.TemporaryDirectory() as place:
    main(str(Path(place) / "team.db"))
