"""A conversation in a provider's words: writing and reading it, and estimating its tokens.

usage: python benchmarks/history.py [--quick | --full] [--json FILE]
"""

import argparse
import json
import time
from pathlib import Path

from baton.protocol.context import Message, ToolCall
from baton.protocol.conversation import anthropic, chat, normal, responses
from baton.protocol.tokens import estimate

DOCS = Path(__file__).parents[1] / "docs" / "explanation"
TURN = [
    Message("user", "Look into both, please."),
    Message(
        "assistant",
        "I look at the orders and at the invoices.",
        tool_calls=(
            ToolCall(id="a", name="search_orders", arguments='{"customer": "jo@example.org", "limit": 20}'),
            ToolCall(id="b", name="search_invoices"),
        ),
    ),
    Message("tool", "an invoice " * 180, tool_call_id="b"),
    Message("tool", "an order " * 220, tool_call_id="a"),
]


def took(work, given, rounds):
    """The least of some rounds, in milliseconds of processor time."""
    best = 1e9
    for _ in range(rounds):
        start = time.process_time()
        work(given)
        best = min(best, time.process_time() - start)
    return best * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--full", action="store_true", help="more rounds")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    rounds = 5 if args.quick else 200 if args.full else 50
    talk, long_talk = TURN * 50, TURN * 2500
    found = {"to the normal form": (took(normal, talk, rounds), took(normal, long_talk, 5))}
    for wire in (chat, responses, anthropic):
        name = wire.__name__.rpartition(".")[2]
        found[f"{name}, write"] = took(wire.write, talk, rounds), took(wire.write, long_talk, 5)
        found[f"{name}, read"] = took(wire.read, wire.write(talk), rounds), took(wire.read, wire.write(long_talk), 5)
    print("what                    200 messages   10,000 messages, for each 200")
    for what, (short, long) in found.items():
        print(f"{what:22} {short:10.2f} ms   {long / 50:10.2f} ms")
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md")))
    speed = len(text.encode()) / took(estimate, text, 5) / 1000
    print(f"estimate of tokens: {speed:.1f} MB/s")
    if args.json:
        results = {what: {"200_ms": short, "10000_ms": long} for what, (short, long) in found.items()}
        Path(args.json).write_text(json.dumps({"results": results, "estimate_mb_s": speed}, indent=1))


if __name__ == "__main__":
    main()
