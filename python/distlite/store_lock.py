# SPDX-License-Identifier: BSD-3-Clause
"""A lock between all users of a store: what `store.lock(name)` returns."""

from __future__ import annotations

import os
import socket
import time
import uuid
from datetime import timedelta

from ._C import DistStoreError

# typing.TYPE_CHECKING without importing typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from ._C import Store

__all__ = ["StoreLock"]

# A waiter that dies between two of its steps may swallow the news of a release; the
# others then find the lock free when they next look by themselves.
LOOK_AGAIN_SECONDS = 1.0


class StoreLock:
    """A lock that at most one with statement holds at a time, of all users of a store.

    `Store.lock` makes it. It is not re-entrant. An object may be used again, but serves
    one holder at a time: each thread calls `store.lock(name)`.

    The lock is the value of the key `name`: empty or absent if it is free, otherwise
    the owner, "host:pid:...". It is not a lease: a holder that dies keeps it, and the
    timeouts of the others name it. Whoever knows that it is dead frees the lock with
    `store.delete_key(name)`; if it is alive after all, it gets a DistStoreError at the
    end of its with statement.

    Args:
        store: The store.
        name: The name of the lock, a key of the store.
        timeout: The time to wait for it, a `timedelta` or seconds; None is the store's
            own.

    Example:
        >>> from distlite.store_lock import StoreLock
        >>> with StoreLock(dist.HashStore(), "checkpoint", timeout=5.0):
        ...     print("held")
        held
    """

    def __init__(
        self, store: Store, name: str, timeout: timedelta | float | None = None
    ) -> None:
        self.store = store
        self.name = name
        self.timeout = timeout
        self._token = b""
        # Exists from a release until somebody tries for the lock again.
        self._released = f"{name}/released"

    def __repr__(self) -> str:
        return f"<StoreLock {self.name!r}, {'held' if self._token else 'not held'}>"

    def __enter__(self) -> StoreLock:
        self.acquire()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Waits for the lock.

        Raises:
            DistStoreError: The timeout has ended; the message names the holder.
            RuntimeError: This object holds the lock already.
        """
        if self._token:
            raise RuntimeError(f"lock {self.name!r} is held already by this object")
        token = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}".encode()
        try:
            self._wait_for_turn(token, self._limit())
        except BaseException:
            # Interrupted just after it was won, perhaps.
            self.store.compare_set(self.name, token, b"")
            raise
        self._token = token

    def release(self) -> None:
        """Frees the lock.

        Raises:
            DistStoreError: The lock had been taken away from this object.
            RuntimeError: This object does not hold the lock.
        """
        if not self._token:
            raise RuntimeError(f"lock {self.name!r} is not held by this object")
        # A store answers with the expected value when the key is gone.  If it does not
        # answer, the lock is held as before, and release() can be called again.
        found = self.store.compare_set(self.name, self._token, b"")
        self._token = b""
        if found != b"":
            raise DistStoreError(f"lock {self.name!r} was taken away from its holder")
        self.store.set(self._released, b"")

    def _wait_for_turn(self, token: bytes, limit: float) -> None:
        deadline = time.monotonic() + limit
        while not self._try(token):
            left = LOOK_AGAIN_SECONDS if limit < 0 else deadline - time.monotonic()
            if left <= 0:
                raise DistStoreError(self._timeout_text(limit))
            self._wait_for_release(min(left, LOOK_AGAIN_SECONDS))

    def _try(self, token: bytes) -> bool:
        # Cleared before the look, so that a release after the look is not missed.
        self.store.delete_key(self._released)
        return self.store.compare_set(self.name, b"", token) == token

    def _limit(self) -> float:
        """Seconds; negative for ever."""
        timeout = self.store.timeout if self.timeout is None else self.timeout
        if isinstance(timeout, timedelta):
            return timeout.total_seconds()
        return float(timeout)

    def _wait_for_release(self, seconds: float) -> None:
        try:
            self.store.wait([self._released], seconds)
        except DistStoreError:
            # Time to look again.  A store that is closed or lost says so then, too.
            return

    def _timeout_text(self, limit: float) -> str:
        try:
            owner = self.store[self.name].decode(errors="replace") or "nobody"
        except KeyError:
            owner = "nobody"
        milliseconds = int(limit * 1000)
        return (
            f"lock timeout after {milliseconds}ms, key: {self.name}, held by: {owner}"
        )


def __dir__() -> list[str]:
    return __all__
