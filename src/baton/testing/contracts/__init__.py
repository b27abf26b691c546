"""Contract suites: subclass one in a test, say how your store is made, and its promises are tested.

class TestMyStore(StoreContract):
    def make(self):
        return MyStore()
"""

from baton.testing.contracts.budgets import BudgetContract as BudgetContract
from baton.testing.contracts.claims import ClaimsContract as ClaimsContract
from baton.testing.contracts.evidence import flaws as flaws
from baton.testing.contracts.groups import GroupContract as GroupContract
from baton.testing.contracts.lines import LineContract as LineContract
from baton.testing.contracts.locks import LockContract as LockContract
from baton.testing.contracts.retention import RetentionContract as RetentionContract
from baton.testing.contracts.store import StoreContract as StoreContract
from baton.testing.contracts.transitions import TransitionContract as TransitionContract
