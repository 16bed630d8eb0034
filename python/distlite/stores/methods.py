# SPDX-License-Identifier: BSD-3-Clause
"""The methods of Store that are written in Python, as the extension calls them.

The signatures and docstrings are those of `_C.pyi`; a test compares the signatures.
Modules are imported by the methods that need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from datetime import timedelta
    from typing import Any

    from .._C import Store
    from .store_dict import StoreDict
    from .store_lock import StoreLock
    from .watching import Change


def lock(
    store: Store,
    name: str,
    timeout: timedelta | float | None = None,
    *,
    lease: timedelta | float | None = None,
) -> StoreLock:
    from .store_lock import StoreLock

    return StoreLock(store, name, timeout, lease)


def dict(store: Store, prefix: str = "") -> StoreDict:
    from .store_dict import StoreDict

    return StoreDict(store, prefix)


def items(store: Store, prefix: str = "") -> list[tuple[str, bytes]]:
    from .reading import read_items

    return read_items(store, prefix)


def watch(
    store: Store,
    prefix: str = "",
    timeout: timedelta | float | None = None,
    initial: bool = False,
    *,
    interval: float = 1.0,
) -> Iterator[Change]:
    from .watching import Watcher, watch

    return watch(Watcher(store, prefix, timeout, initial, interval))


def awatch(
    store: Store,
    prefix: str = "",
    timeout: timedelta | float | None = None,
    initial: bool = False,
    *,
    interval: float = 1.0,
) -> AsyncIterator[Change]:
    from .async_methods import awatch
    from .watching import Watcher

    return awatch(Watcher(store, prefix, timeout, initial, interval))


def reduce(store: Store) -> tuple[Any, ...]:
    from .handles import reduce

    return reduce(store)


def __getattr__(name: str) -> Any:
    """Returns the coroutines, by the table of async_methods.py."""
    from .async_methods import METHODS

    if name not in METHODS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return METHODS[name]
