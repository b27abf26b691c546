"""The public suites over every store: in memory, SQLite in memory, SQLite in a file."""

import tempfile

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


class TestClaimsInMemory(InMemory, ClaimsContract): ...


class TestClaimsInSqlite(InSqlite, ClaimsContract): ...


class TestClaimsInFile(InFile, ClaimsContract): ...


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
