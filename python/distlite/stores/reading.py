# SPDX-License-Identifier: BSD-3-Clause
"""Reads all values below a prefix, in as few round trips as the protocol allows."""

from __future__ import annotations

from collections.abc import Sequence

from .._C import DistStoreError, Store

# The most keys of one request (csrc/store/store.h).
KEYS_LIMIT = 131072


def read_items(store: Store, prefix: str = "") -> list[tuple[str, bytes]]:
    """Returns keys and values; see `Store.items`."""
    if not isinstance(prefix, str):  # as listed keys are
        raise TypeError(f"prefix must be str, not {type(prefix).__name__}")
    names = sorted(name for name in store.list_keys() if name.startswith(prefix))
    found: list[tuple[str, bytes]] = []
    for first in range(0, len(names), KEYS_LIMIT):
        found += _read(store, names[first : first + KEYS_LIMIT])
    return found


def _read(store: Store, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Returns the values without those of keys that have been deleted meanwhile, which
    are few: halves of what is still listed are read until these are found."""
    try:
        # The method of the base class, because overrides in Python may not take a
        # timeout.
        values = Store.multi_get(store, names, timeout=0)
        return list(zip(names, values, strict=True))
    except DistStoreError:
        there = set(store.list_keys())  # a store that is closed raises its error again
    names = [name for name in names if name in there]
    if len(names) > 1:
        half = len(names) // 2
        return _read(store, names[:half]) + _read(store, names[half:])
    try:
        return [(name, store[name]) for name in names]
    except KeyError:
        return []
