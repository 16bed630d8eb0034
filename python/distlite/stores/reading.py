# SPDX-License-Identifier: BSD-3-Clause
"""Reads all values below a prefix, in as few round trips as the protocol allows."""

from __future__ import annotations

from collections.abc import Sequence

from .._C import DistStoreError, Store

__all__ = ["read_items"]

# The most keys of one request (csrc/store/store.h).
KEYS_LIMIT = 131072


def list_names(store: Store, prefix: str) -> list[str]:
    """Returns the keys that begin with the prefix, sorted."""
    return sorted(name for name in store.list_keys() if name.startswith(prefix))


def read_items(store: Store, prefix: str = "") -> list[tuple[str, bytes]]:
    """Returns keys and values; see `Store.items`."""
    if not isinstance(prefix, str):  # as listed keys are
        raise TypeError(f"prefix must be str, not {type(prefix).__name__}")
    names = list_names(store, prefix)
    found: list[tuple[str, bytes]] = []
    while names:
        found += _read(store, prefix, names[:KEYS_LIMIT])
        names = names[KEYS_LIMIT:]
    return found


def _read(store: Store, prefix: str, names: list[str]) -> list[tuple[str, bytes]]:
    try:
        return _read_all(store, names)
    except DistStoreError:
        # Most likely a key has been deleted since they were listed.  A store that is
        # closed raises its error again here.
        there = set(list_names(store, prefix))
    return _read_by_halves(store, [name for name in names if name in there])


def _read_all(store: Store, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Returns the values; raises DistStoreError if one of the keys does not exist."""
    # The method of the base class, because overrides in Python may not take a timeout.
    values = Store.multi_get(store, names, timeout=0)
    return list(zip(names, values, strict=True))


def _read_by_halves(store: Store, names: list[str]) -> list[tuple[str, bytes]]:
    """Returns the values without those of deleted keys, of which there are few."""
    if len(names) > 1:
        try:
            return _read_all(store, names)
        except DistStoreError:
            half = len(names) // 2
        first = _read_by_halves(store, names[:half])
        return first + _read_by_halves(store, names[half:])
    try:
        return [(name, store[name]) for name in names]
    except KeyError:
        return []
