"""Who does something on the board: the process that counts as its owner, and the claim that it works under."""

from __future__ import annotations

import os

from baton import config
from baton.errors import Malformed
from baton.stores import holder


class Claim:
    """An item and the epoch of a claim on it, as it is handed to the program that does the work."""

    __slots__ = ("epoch", "noun", "path")

    def __init__(self, path: str, noun: str, epoch: int) -> None:
        self.path = path
        self.noun = noun
        self.epoch = epoch

    def __str__(self) -> str:
        return f"{self.path}#{self.noun}:{self.epoch}"


class Actor:
    """Who acts: a name for people, the holder of what is claimed, and the claim of the work it belongs to."""

    __slots__ = ("by", "claim", "holder", "supervised")

    def __init__(self, by: str, holder: str, claim: Claim | None = None, *, supervised: bool = False) -> None:
        self.by = by
        self.holder = holder
        self.claim = claim
        self.supervised = supervised  # whether a wrapper watches the holder, so that its death proves something


def from_shell() -> Actor:
    """Who called this command: a shell or an agent, which lives on when the command is over."""
    given = config.board_claim()
    return Actor(config.person(), holder.name_of(os.getppid()), read_claim(given) if given else None)


def read_claim(text: str) -> Claim:
    """Read what `str(claim)` wrote."""
    item, _, epoch = text.rpartition(":")
    path, _, noun = item.rpartition("#")
    if not path or not noun or not epoch.isdecimal():
        raise Malformed(f"BATON_CLAIM={text[:80]!r}: write PATH#NOUN:EPOCH, or unset it")
    return Claim(path, noun, int(epoch))


def comes_from(pid: int) -> bool:
    """Whether this process descends from another one; where the system does not tell, nothing speaks against it."""
    mine = os.getpid()
    while mine > 0 and mine != pid:
        try:
            number = os.open(f"/proc/{mine}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return not os.path.exists("/proc/self/stat")
        try:
            mine = int(os.read(number, 4096).rpartition(b")")[2].split()[1])
        finally:
            os.close(number)
    return mine == pid


def same_process(one: str, other: str) -> bool:
    """Whether two holders are one process; their last part tells its claims apart."""
    return one.rpartition("/")[0] == other.rpartition("/")[0]
