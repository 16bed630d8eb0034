# SPDX-License-Identifier: BSD-3-Clause
"""A store of torch as a store of distlite, over which the ranks of a group meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed

import distlite

__all__ = ["TorchStore"]


class TorchStore(distlite.Store):
    """Passes each request on to a store of torch.

    It has a connection of its own if the store can be cloned, because a request that
    waits would otherwise block the requests of the program. wait() is made from
    check(): the core has to distinguish a timeout, after which it checks for failures,
    from other errors.
    """

    def __init__(self, store: Any) -> None:
        super().__init__()
        try:
            self._store = store.clone()
        except (NotImplementedError, RuntimeError):
            # A store that is written in Python may have no clone().
            self._store = store

    def set(self, key: Any, value: Any) -> None:
        """Stores a value under a key."""
        with _errors():
            self._store.set(key, value)

    def get(self, key: Any, *, timeout: Any = None) -> bytes:
        """Returns the value of a key, and waits for it if necessary."""
        self.wait([key], timeout)
        with _errors():
            return bytes(self._store.get(key))

    def add(self, key: Any, amount: int) -> int:
        """Adds to the number under a key, and returns the sum."""
        with _errors():
            return int(self._store.add(key, amount))

    def compare_set(self, key: Any, expected: Any, desired: Any) -> bytes:
        """Stores `desired` if the value is `expected`; returns the value afterwards."""
        with _errors():
            return bytes(self._store.compare_set(key, expected, desired))

    def delete_key(self, key: Any) -> bool:
        """Deletes a key; returns whether it existed."""
        with _errors():
            return bool(self._store.delete_key(key))

    def check(self, keys: Any) -> bool:
        """Returns whether all keys exist."""
        with _errors():
            return bool(self._store.check(list(keys)))

    def num_keys(self) -> int:
        """Returns the number of keys."""
        with _errors():
            return int(self._store.num_keys())


@contextmanager
def _errors() -> Iterator[None]:
    """Turns errors of torch's stores into those of distlite's."""
    try:
        yield
    except torch.distributed.DistNetworkError as error:
        raise distlite.DistNetworkError(str(error)) from error
    except RuntimeError as error:
        raise distlite.DistStoreError(str(error)) from error
