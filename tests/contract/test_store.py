"""The public suites over SQLite, in memory and in a file."""

import tempfile

from baton.stores import open_store
from baton.testing.contracts import BudgetContract, ClaimsContract, StoreContract, TransitionContract


class InMemory:
    def make(self):
        return open_store(":memory:")


class InFile:
    def make(self):
        self._opened.enter_context(folder := tempfile.TemporaryDirectory())
        return open_store(f"{folder.name}/store.db", durability="process")


class TestClaimsInMemory(InMemory, ClaimsContract): ...


class TestClaimsInFile(InFile, ClaimsContract): ...


class TestStoreInMemory(InMemory, StoreContract): ...


class TestStoreInFile(InFile, StoreContract): ...


class TestBudgetInMemory(InMemory, BudgetContract): ...


class TestBudgetInFile(InFile, BudgetContract): ...


class TestTransitionsInMemory(InMemory, TransitionContract): ...


class TestTransitionsInFile(InFile, TransitionContract): ...
