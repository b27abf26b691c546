"""Every error that baton raises on purpose; a message names the cause and, where there is one, the cure.

BatonError
├── Malformed            a document, field or size that the protocol refuses
│   └── TooLarge         over a size cap
├── Refused              a rule said no
│   ├── LimitExceeded    handoff, agent or depth limit
│   ├── LoopDetected     the same handoff again with nothing new
│   ├── BudgetExceeded   tokens, money or time
│   ├── BreakerOpen      the agent or route failed too often
│   ├── NotCapable       no required capability, or not enough proficiency
│   ├── NotAuthorised    beyond the autonomy or rights of the agent
│   ├── OutOfScope       a shared variable belongs to another agent
│   ├── AtCapacity       the agent has all the work it may hold
│   ├── ApprovalDenied   a person said no, or the approval expired
│   └── HandoffsDisabled handoffs are off for this run
├── NotFound             no such handoff, agent or workflow
│   └── UnknownAgent     the named agent is not registered
├── Conflict             somebody else was faster
│   ├── Held             the work has another live owner
│   ├── Locked           a file is locked by somebody else
│   ├── Deadlock         waiting for a lock would never end
│   ├── Contradiction    two branches of the work changed the same variable
│   ├── Fenced           a newer claim exists; what the old one did is not applied
│   └── IllegalTransition the state does not allow the event
├── Unfinished           the work did not end
│   ├── TimedOut         the time given is over
│   ├── HandoffFailed    the agent failed and no attempt is left
│   └── Undecided        those who were asked did not agree
├── StoreError           the store cannot be used as asked
└── AuditBroken          the audit trail does not verify
"""

from __future__ import annotations

# Letters and marks that nobody sees, although Unicode calls them printable.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_LINES = {"\n": "\\n", "\t": "\\t"}


def _seen(letter: str) -> str:
    hidden = letter in _INVISIBLE or "\ufe00" <= letter <= "\ufe0f" or "\U000e0100" <= letter <= "\U000e01ef"
    if letter.isprintable() and not hidden:
        return letter
    return _LINES.get(letter) or f"\\u{{{ord(letter):x}}}"


def safe(text: object, keep: str = "") -> str:
    """Text in which control, direction and invisible characters are spelled out; one line, unless `keep` says more."""
    said = str(text)
    if said.isascii() and said.isprintable():
        return said
    return "".join(one if one in keep else _seen(one) for one in said)


def told(error: BaseException) -> str:
    """What an error says of itself, also one that cannot."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - an error of somebody else's may not even tell what it is
        return "(it cannot say why)"


class BatonError(Exception):
    """Root of all errors that baton raises on purpose; `result` is what a run had come to, if it was one."""

    result: object = None

    def __str__(self) -> str:
        # What an agent said may stand in it, and ends up on somebody's terminal.
        return safe(super().__str__(), keep="\n\t")


class Malformed(BatonError):
    """A document or value that the protocol refuses."""


class TooLarge(Malformed):
    """Over a size cap."""


class Refused(BatonError):
    """A rule said no."""


class LimitExceeded(Refused):
    """A handoff, agent or depth limit hit."""


class LoopDetected(Refused):
    """The same handoff again with nothing new."""


class BudgetExceeded(Refused):
    """Tokens, money or time are used up."""


class BreakerOpen(Refused):
    """The agent or route failed too often."""


class NotCapable(Refused):
    """A required capability is missing."""


class NotAuthorised(Refused):
    """Beyond the autonomy or rights of the agent."""


class OutOfScope(Refused):
    """A shared variable belongs to another agent, and neither a profile nor a reducer lets this one write it."""


class AtCapacity(Refused):
    """The agent already has all the work that it may hold."""


class ApprovalDenied(Refused):
    """A person said no, or the approval expired unanswered."""


class HandoffsDisabled(Refused):
    """Handoffs are off for this run."""


class NotFound(BatonError):
    """No such handoff, agent or workflow."""


class UnknownAgent(NotFound):
    """The named agent is not registered."""


class Conflict(BatonError):
    """Somebody else was faster."""


class Held(Conflict):
    """The work has another live owner."""


class Locked(Conflict):
    """A file is locked by somebody else."""


class Deadlock(Conflict):
    """Waiting for a lock would never end: its holder waits for the one who asks."""


class Contradiction(Conflict):
    """Two branches of the work changed the same variable, and no reducer says what they come to."""


class Fenced(Conflict):
    """A newer claim exists; what the old one did is not applied."""


class IllegalTransition(Conflict):
    """The state does not allow the event."""


class Unfinished(BatonError):
    """The work did not end."""


class TimedOut(Unfinished):
    """The time given is over."""


class HandoffFailed(Unfinished):
    """The agent failed and no attempt is left."""


class Undecided(Unfinished):
    """Those who were asked did not agree; where nobody catches it, a person decides."""


class StoreError(BatonError):
    """The store cannot be used as asked."""


class AuditBroken(BatonError):
    """The audit trail does not verify."""


def named(name: str, reason: str) -> BatonError:
    """The error of that name; a plain Refused where there is none."""
    kind = globals().get(name)
    return kind(reason) if isinstance(kind, type) and issubclass(kind, BatonError) else Refused(reason)
