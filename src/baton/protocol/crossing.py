"""What of a conversation crosses with a handoff, and what stays behind: worked out from what is stored, by one rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

import msgspec

from baton.protocol.codec import canonical
from baton.protocol.context import (
    DEFAULT_TRANSFER,
    SUMMARY,
    Fetch,
    Include,
    Message,
    Mode,
    Transfer,
    allowed,
    newest_first,
    room,
    select,
    summary,
)
from baton.protocol.handoff import Handoff
from baton.protocol.variables import thaw


class Amount(msgspec.Struct, frozen=True):
    """So much content. The tokens are estimated."""

    count: int = 0
    bytes: int = 0
    tokens: int = 0


class Crossing(msgspec.Struct, frozen=True, kw_only=True):
    """What one handoff passed on, and what it dropped."""

    handoff_id: str
    from_agent: str
    to_agent: str
    mode: Mode
    max_messages: int | None  # None: all
    include: Include
    had: Amount  # messages in the sender's history
    passed: Amount  # those that the receiver sees
    summary: Amount  # what it is told of the others
    by_kind: int  # dropped, as their kind does not cross
    by_room: int  # dropped, as there was no room for them
    summarised: int  # of the dropped ones, those that a summary has a line of
    variables: tuple[str, ...]  # that the receiver sees
    withheld: tuple[str, ...]  # that the sender did not share
    state: Amount  # those that it sees
    artifacts: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """How many the receiver reads, estimated: messages, summary and variables."""
        return self.passed.tokens + self.summary.tokens + self.state.tokens

    @property
    def dropped(self) -> int:
        """How many messages the receiver does not see."""
        return self.by_kind + self.by_room


def transfer_of(handoff: Handoff, heard: Sequence[Message] = ()) -> Transfer:
    """How much of the conversation crosses: as the handoff says, else by its type; work that came up escalated."""
    return handoff.context.transfer or DEFAULT_TRANSFER["escalation" if heard else handoff.type]


def crossed(handoff: Handoff, fetch: Fetch, request: Callable[[], str], heard: Sequence[Message] = ()) -> list[Message]:
    """What the receiver sees, oldest first; `request` says what began it all, for a summary.

    `heard` is what the levels below said of work that came up.
    """
    before, messages = _parts(handoff, fetch, request, heard)
    return messages if before is None else [before, *messages]


def _walk(handoff: Handoff, fetch: Fetch, heard: Sequence[Message]) -> Iterator[Message]:
    """The whole conversation, newest first."""
    return chain(reversed(heard), newest_first(handoff.context.history_ref, fetch))


def _parts(
    handoff: Handoff, fetch: Fetch, request: Callable[[], str], heard: Sequence[Message]
) -> tuple[Message | None, list[Message]]:
    """A summary of what went before, where there is one, and the messages that cross as they are."""
    transfer = transfer_of(handoff, heard)
    messages = select(_walk(handoff, fetch, heard), transfer)
    if transfer.transfer_mode != "summary":
        return None, messages
    return summary(islice(_walk(handoff, fetch, heard), len(messages), None), request()), messages


def crossing(
    handoff: Handoff,
    fetch: Fetch,
    request: Callable[[], str],
    heard: Sequence[Message] = (),
    withheld: Sequence[str] = (),
) -> Crossing:
    """The record of what one handoff passed on. It walks the whole history, so it is made when it is asked for."""
    transfer, context = transfer_of(handoff, heard), handoff.context
    history = list(_walk(handoff, fetch, heard))
    before, messages = _parts(handoff, fetch, request, heard)
    by_kind = sum(allowed(one, transfer.include) is None for one in history)
    state = thaw(context.state_ref, fetch).values
    return Crossing(
        handoff_id=handoff.id,
        from_agent=handoff.from_agent,
        to_agent=handoff.to_agent,
        mode=transfer.transfer_mode,
        max_messages=room(transfer),
        include=transfer.include,
        had=_amount(map(_text, history)),
        passed=_amount(map(_text, messages)),
        summary=_amount([] if before is None else [_text(before)]),
        by_kind=by_kind,
        by_room=len(history) - by_kind - len(messages),
        summarised=min(SUMMARY, len(history) - len(messages)) if before is not None else 0,
        variables=tuple(sorted(state)),
        withheld=tuple(withheld),
        state=_amount(canonical(value).decode() for value in state.values()),
        artifacts=tuple(item.path for item in context.artifacts),
    )


def _text(message: Message) -> str:
    calls = (f"{call.name}{call.arguments}" for call in message.tool_calls)
    return "".join((message.content, message.reasoning, *calls))


def _amount(texts: Iterable[str]) -> Amount:
    from baton.protocol.tokens import estimate  # what a hop needs is loaded without it

    count = size = tokens = 0
    for text in texts:
        count, size, tokens = count + 1, size + len(text.encode()), tokens + estimate(text)
    return Amount(count, size, tokens)
