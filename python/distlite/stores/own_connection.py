# SPDX-License-Identifier: BSD-3-Clause
"""A view of a store whose requests the caller can bound without changing the store."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from .._C import PrefixStore, Store

__all__ = ["OwnConnection"]


class OwnConnection:
    """The keys of a store below a prefix, over a connection of its own.

    A store without connections, as a `HashStore` or one that is written in Python
    without `clone()`, is used itself: its timeout belongs to others and stays as it
    is."""

    def __init__(self, prefix: str, store: Store, seconds: float) -> None:
        root, limit = store, timedelta(seconds=max(0.001, min(seconds, 86400.0)))
        with suppress(NotImplementedError):
            # A store that is written in Python may have a clone() of its own.
            is_ours = type(store).clone is Store.clone
            root = store.clone(_timeout=limit) if is_ours else store.clone()
        self.is_own = _innermost(root) is not _innermost(store)
        self.store = PrefixStore(prefix, root)

    def limit(self, seconds: float) -> None:
        """Bounds the requests that follow."""
        if self.is_own:
            self.store.set_timeout(timedelta(seconds=max(0.001, seconds)))


def _innermost(store: Store) -> Store:
    """Returns the store below all prefixes."""
    if isinstance(store, PrefixStore):
        return store._underlying_non_prefix_store
    return store
