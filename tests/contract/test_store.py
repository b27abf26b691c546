"""The public suites over every store: in memory, SQLite in memory, SQLite in a file."""

import tempfile
from pathlib import Path

import pytest

from baton import clock
from baton.board.actor import Actor
from baton.board.approvals import approve
from baton.board.claims import FileClaims
from baton.board.moves import Move
from baton.board.root import board_of
from baton.stores import open_store
from baton.testing.contracts import (
    BudgetContract,
    ClaimsContract,
    GroupContract,
    LineContract,
    LockContract,
    RetentionContract,
    StoreContract,
    TransitionContract,
)


class InMemory:
    def make(self):
        return open_store(":memory:")


class InSqlite:
    def make(self):
        return open_store("sqlite://:memory:")


class InFile:
    def make(self):
        self._opened.enter_context(folder := tempfile.TemporaryDirectory())
        return open_store(f"{folder.name}/store.db", durability="process")


class OnBoard:
    """Items are files, made and approved by a person."""

    RANKS = ("critical", "high", "normal", "low")

    def make(self):
        self._opened.enter_context(folder := tempfile.TemporaryDirectory())
        self._opened.enter_context(pytest.MonkeyPatch.context()).setenv("XDG_STATE_HOME", f"{folder.name}/state")
        Path(folder.name, "board", ".baton").mkdir(parents=True)
        return FileClaims(board_of(f"{folder.name}/board")[0])

    def put(self, agent="a", priority="normal"):
        rank = self.RANKS.index(priority)
        board, name = self.store.board, f"{clock.new_id()}.md"
        path = Path(board.path(name))
        path.write_text(f"# t\n**Tags**: #needs-{agent} #P{min(rank, 2)}\n")
        move = Move(board, str(path), agent, "needs", "delegated")
        move.more = {"rank": rank}
        approve(move, Actor("ann", ""))
        return f"{name}#{agent}"


class TestClaimsInMemory(InMemory, ClaimsContract): ...


class TestClaimsInSqlite(InSqlite, ClaimsContract): ...


class TestClaimsInFile(InFile, ClaimsContract): ...


class TestClaimsOnBoard(OnBoard, ClaimsContract): ...


class TestStoreInMemory(InMemory, StoreContract): ...


class TestStoreInSqlite(InSqlite, StoreContract): ...


class TestStoreInFile(InFile, StoreContract): ...


class TestBudgetInMemory(InMemory, BudgetContract): ...


class TestBudgetInSqlite(InSqlite, BudgetContract): ...


class TestBudgetInFile(InFile, BudgetContract): ...


class TestTransitionsInMemory(InMemory, TransitionContract): ...


class TestTransitionsInSqlite(InSqlite, TransitionContract): ...


class TestTransitionsInFile(InFile, TransitionContract): ...


class TestLocksInMemory(InMemory, LockContract): ...


class TestLocksInSqlite(InSqlite, LockContract): ...


class TestLocksInFile(InFile, LockContract): ...


class TestLinesInMemory(InMemory, LineContract): ...


class TestLinesInSqlite(InSqlite, LineContract): ...


class TestLinesInFile(InFile, LineContract): ...


class TestGroupsInMemory(InMemory, GroupContract): ...


class TestGroupsInSqlite(InSqlite, GroupContract): ...


class TestGroupsInFile(InFile, GroupContract): ...


class TestRetentionInMemory(InMemory, RetentionContract): ...


class TestRetentionInSqlite(InSqlite, RetentionContract): ...


class TestRetentionInFile(InFile, RetentionContract): ...
