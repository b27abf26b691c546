"""What an agent is, and what it is handed while it works.

An agent is one method. Adding a way to run agents is one file beside this one and one line where it is registered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Unpack

from baton.errors import Malformed
from baton.protocol.handoff import HUMAN

if TYPE_CHECKING:
    from os import PathLike

    from baton.protocol.context import Message
    from baton.protocol.groups import Answers
    from baton.protocol.handoff import Handoff
    from baton.protocol.options import GroupOptions, PartOptions
    from baton.protocol.results import Return, Send


class Turn(Protocol):
    """One attempt at one handoff, as the agent sees it.

    A function without `async` gets the same turn, and calls everything without `await`: it blocks its own thread.
    """

    handoff: Handoff  # the record itself

    @property
    def task(self) -> str:
        """What has to be done."""
        ...

    @property
    def state(self) -> Mapping[str, Any]:
        """The shared variables as they were handed over, to read: changes go into `update` of what you return."""
        ...

    @property
    def files_in_progress(self) -> list[dict[str, str]]:
        """The files that agents of this workflow have locked now: path, owner and lock_type of each."""
        ...

    @property
    def messages(self) -> list[Message]:
        """The part of the conversation that crossed, oldest first."""
        ...

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt; give it to whatever the work does outside."""
        ...

    @property
    def alone(self) -> str:
        """Why this agent may hand nothing on and delegate nothing; empty where it may."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the claim was lost or the work was called off; a function in a thread should look now and then."""
        ...

    async def delegate(self, to: str, task: str, *, key: str = "", **options: Unpack[PartOptions]) -> Return:
        """Give a part of the work to another agent and wait for its answer, also where that is a failure.

        Remembered by `key` (by default: the order and content of the calls): a body that runs again gets the
        stored answer, and the other agent does not work twice. A refusal of a guard is raised under its name.

        Options: timeout, on_failure ("fail", "retry", "escalate"), on_timeout, max_attempts, budget, priority,
        deadline, reason, goal, capabilities that are required, risk, rationale, update of the variables that the
        other one sees, share as the names of those that cross (by default all), transfer of the conversation: "full",
        "relevant_only" or "summary" (the default).
        """
        ...

    async def broadcast(
        self, to: Sequence[str | Send], task: str = "", *, key: str = "", **options: Unpack[GroupOptions]
    ) -> Answers:
        """Give several agents the same task at once, or each its own with `Send`, and wait for what it comes to.

        `aggregate`: "all" waits for everybody, "any" for the first success, "majority" for more than half of those
        asked to agree in one `field` of their answers; whoever is not needed any more is called off and told. Where
        no majority is possible, Undecided is raised; not caught, a person decides. Two that change one variable need
        `Relay(reducers={…})`. Made together or not at all, and remembered by `key` like `delegate`.

        Further options: visible=True to tell each who else is asked, and those of `delegate`.
        """
        ...

    async def escalate(self, question: str, *, key: str = "", **options: Unpack[PartOptions]) -> Return:
        """Ask whoever is next up on the ladder (in the end a person) for a decision, and wait for the answer.

        `rationale=` says why it cannot be decided here, and is required. Whoever is asked sees the whole conversation,
        and may answer or send it further up. Remembered by `key`, with the options of `delegate`; a level that fails
        or is late passes it on.
        """
        ...

    async def ask(self, question: str, *, to: str = HUMAN, key: str = "", **options: Unpack[PartOptions]) -> Any:
        """Ask a person (or an agent) and wait for the answer, also over restarts; raises HandoffFailed without one.

        The options are those of `delegate`.
        """
        ...

    async def charge(self, tokens: int = 0, cost: float = 0.0) -> None:
        """Count what the work used; raises BudgetExceeded when the workflow cannot afford it."""
        ...

    def lock(self, *paths: str | PathLike[str], shared: bool = False, timeout: float = 60.0) -> Any:
        """Lock files while this turn works on them: `async with turn.lock("src/a.py"):` (`with` without async).

        All of them or none, waiting at most so many seconds for others. Whatever is not given back before is free
        when the claim ends. The parts that this turn delegates may use the files as well.
        """
        ...

    def progress(self, note: str) -> None:
        """Say what is going on, to whoever listens."""
        ...

    def outlast(self, call: Future[Any]) -> None:
        """For an agent that was cancelled and cannot stop: keep the claim until this call has ended."""
        ...


class Agent(Protocol):
    """Who can work: gets a turn, gives back a return, a command, or plain content."""

    async def run(self, turn: Turn) -> Any:
        """Do the work of one turn."""
        ...

    async def aclose(self) -> None:
        """Let go of what it holds."""
        ...


class OwnThread(Executor):
    """A thread for one call, for which the end of the process does not wait.

    A shared pool would be full of functions that wait for others, which then find no thread.
    """

    def __init__(self) -> None:
        self.call: Future[Any] = Future()

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:  # type: ignore[override]
        """Begin the call."""
        threading.Thread(target=self._run, args=(function, *args), daemon=True).start()
        return self.call

    def _run(self, function: Callable[..., Any], *args: Any) -> None:
        if not self.call.set_running_or_notify_cancel():
            return
        try:
            result = function(*args)
        except StopIteration as error:  # which a future cannot carry
            told = RuntimeError("the function raised StopIteration")
            told.__cause__ = error
            self.call.set_exception(told.with_traceback(error.__traceback__))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the call
            self.call.set_exception(error)
        else:
            self.call.set_result(result)


def _read_only(*_: object, **__: object) -> NoReturn:
    raise Malformed(
        "turn.state: a copy to read, a change of it would be lost; return Command(update={…}) or answer(…, update={…})"
    )


class _Shared(dict[str, Any]):
    """A dict that refuses changes; its copies are plain."""

    __setitem__ = __delitem__ = __ior__ = _read_only
    clear = pop = popitem = setdefault = update = _read_only

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class _SharedList(list[Any]):
    """A list that refuses changes; its copies are plain."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _read_only
    append = extend = insert = pop = remove = clear = sort = reverse = _read_only

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def shared(value: Any) -> Any:
    """Variables as an agent sees them: what would change only its own copy is refused."""
    if isinstance(value, str):  # most are, and the next question takes longer than all the rest
        return value
    if isinstance(value, Mapping):
        return _Shared({key: shared(one) for key, one in value.items()})
    return _SharedList(map(shared, value)) if isinstance(value, list | tuple) else value
