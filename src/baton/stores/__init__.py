"""WHERE it is remembered: `open_store` is the only place that knows the concrete stores."""

from __future__ import annotations

from os import fspath

from baton.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike

    from baton.stores.base import Store
    from baton.stores.connection import Durability


def open_store(url: str | PathLike[str], *, durability: Durability = "power", vfs: str | None = None) -> Store:
    """Open a store: a file is SQLite, ":memory:" keeps nothing."""
    url = fspath(url)
    if not url:
        raise StoreError("store: its name is empty; give a file name, or :memory: to keep nothing")
    if url == ":memory:":
        from baton.stores.memory import MemoryStore

        return MemoryStore()
    if "://" in url and not url.startswith("sqlite://"):
        scheme = url.partition("://")[0]
        raise StoreError(f"{scheme}: no such store here; give a file name or :memory:")
    from baton.stores.sqlite import SqliteStore

    return SqliteStore(url.removeprefix("sqlite://"), durability=durability, vfs=vfs)
