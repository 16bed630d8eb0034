# SPDX-License-Identifier: BSD-3-Clause
"""A lock between all users of a store: what `store.lock(name)` returns."""

from .stores.store_lock import StoreLock

__all__ = ["StoreLock"]

StoreLock.__module__ = __name__


def __dir__() -> list[str]:
    return __all__
