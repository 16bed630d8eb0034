# SPDX-License-Identifier: BSD-3-Clause
"""Locks between all users of a store, with and without a lease."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from datetime import timedelta
from typing import Any

from .._C import DistError, DistStoreError, Store
from .leases import now, start_renewing
from .timeouts import seconds_of

__all__ = ["StoreLock"]

# A waiter that dies between two of its steps may have taken the notice of a release
# away; the others then find the lock free at their next try.
RETRY_SECONDS = 1.0


class StoreLock:
    """A lock that one user of a store can hold at a time, by a with statement.

    `Store.lock` makes it. It is not re-entrant. An object may be used again, but serves
    one holder at a time: each thread calls `store.lock(name)`.

    The lock is the value of the key `name`: empty or absent if it is free, otherwise
    the owner, "host:pid:...". Without a lease, a holder that dies keeps the lock, and
    others time out with an error that names it. If you know that it is dead, free the
    lock with `store.delete_key(name)`; if it is alive after all, the end of its with
    statement raises DistStoreError.

    With a lease, the value also has the length of the lease and the number of renewals;
    a thread of the holder renews it three times in each lease. A waiting process takes
    the lock if the value has not changed for the length of the lease, by its own clock.
    A holder that was stopped for that long, or lost its connection, has lost the lock:
    `is_held` is false from the moment at which others may take it, and the end of the
    with statement raises DistStoreError, without an effect on the next holder. No lock
    can undo what such a holder has begun: check `is_held` before each step that must
    not be taken twice.

    Waiting processes get the lock in no particular order.

    Args:
        store: The store.
        name: The name of the lock, a key of the store.
        timeout: The time to wait for it, a `timedelta` or seconds; None is the store's
            timeout.
        lease: The time after which others may take the lock if the holder does not
            renew it, a `timedelta` or seconds; None: they never do.

    Example:
        >>> from distlite.stores import StoreLock
        >>> with StoreLock(dist.HashStore(), "checkpoint", timeout=5.0):
        ...     print("held")
        held
    """

    def __init__(
        self,
        store: Store,
        name: str,
        timeout: timedelta | float | None = None,
        lease: timedelta | float | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be str, not {type(name).__name__}")
        if timeout is not None:
            seconds_of(timeout)
        self.store = store
        self.name = name
        self.timeout = timeout
        self.lease = _lease_of(lease)
        # Guards what the holder and the renewing thread share.
        self._renewing = threading.RLock()
        self._owner = ""
        self._value = b""
        self._renewals = 0
        # The time at which the renewal that is in the store was begun, by now().
        self._renewed = 0.0
        self._is_lost = False
        self._has_ended = threading.Event()
        # The key exists from a release until the next try for the lock.
        self._released = f"{name}/released"

    def __repr__(self) -> str:
        return f"<StoreLock {self.name!r}, {'held' if self.is_held else 'not held'}>"

    def __enter__(self) -> StoreLock:
        self.acquire()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.release()
        except Exception:
            # The exception of the body is more important.
            if error is None:
                raise

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock, and no other can have taken it. It sends
        no request: for a lock with a lease it compares the time of the last renewal
        with the clock.
        """
        if not self._value or self._is_lost:
            return False
        return self.lease is None or now() < self._renewed + self.lease

    def locked(self) -> bool:
        """Returns whether anybody holds the lock, by one request to the store.

        A lease that has run out counts as held until another takes the lock.

        Raises:
            DistStoreError: The store is closed, or its server cannot be reached.
        """
        return bool(self._read())

    def acquire(self, timeout: timedelta | float | None = None) -> None:
        """Waits for the lock.

        Args:
            timeout: The time to wait, a `timedelta` or seconds; None is the lock's own.

        Raises:
            DistStoreError: The timeout has ended; the message names the holder.
            RuntimeError: This object holds the lock already.

        Example:
            >>> lock = dist.HashStore().lock("checkpoint")
            >>> lock.acquire(timeout=5.0)
            >>> lock.release()
        """
        if self._value:
            raise RuntimeError(f"lock {self.name!r} is held already by this object")
        self._owner = f"{os.uname().nodename}:{os.getpid()}:{os.urandom(16).hex()}"
        value, limit, seen = self._value_of(0), self._limit(timeout), _Seen()
        ends = time.monotonic() + limit if limit >= 0 else float("inf")
        try:
            while (won := self._try(value, seen)) is None:
                left = ends - time.monotonic()
                if left <= 0:
                    raise DistStoreError(self._timeout_text(limit))
                self._wait_for_release(min(left, RETRY_SECONDS, seen.left()))
        except BaseException:
            # An interrupt may have come just after the lock was won.
            with contextlib.suppress(DistError):
                self.store.compare_set(self.name, value, b"")
            raise
        self._value, self._renewals, self._renewed = value, 0, won
        self._is_lost = False
        if self.lease is not None:
            try:
                self._has_ended = threading.Event()
                start_renewing(self, self.lease, self.name, self._has_ended)
            except BaseException:
                # For example no more threads: nobody would renew or free the lock.
                with contextlib.suppress(DistError):
                    self.release()
                raise

    def _try(self, value: bytes, seen: _Seen) -> float | None:
        """Returns when the request that won the lock was begun, or None if another
        holder has it."""
        # Deleted before the lock is read, so that a release after that is not missed.
        self.store.delete_key(self._released)
        began = now()
        found = self.store.compare_set(self.name, b"", value)
        if found != value and seen.has_run_out(found):
            began = now()
            found = self.store.compare_set(self.name, found, value)
        return began if found == value else None

    def _renew(self) -> None:
        """Extends the lease, held under `_renewing`, to its full length from now on."""
        began = now()
        if self._swap(self._value_of(self._renewals + 1)):
            self._renewals += 1
            self._renewed = began
        else:
            self._is_lost = True

    def _renew_once(self) -> None:
        with self._renewing:
            if not (self._has_ended.is_set() or self._is_lost):
                self._renew()

    def release(self) -> None:
        """Frees the lock.

        Raises:
            DistStoreError: This object has lost the lock.
            RuntimeError: This object does not hold the lock.
        """
        with self._renewing:
            if not self._value:
                raise RuntimeError(f"lock {self.name!r} is not held by this object")
            # If the store does not answer, the lock is held as before, and release()
            # can be called again.
            is_freed = self._swap(b"")
            self._value = b""
            self._has_ended.set()
        if not is_freed:
            raise DistStoreError(f"lock {self.name!r} was taken away from its holder")
        self.store.set(self._released, b"")

    def _value_of(self, renewals: int) -> bytes:
        text = self._owner
        if self.lease is not None:
            text += f" lease={self.lease!r} renewals={renewals}"
        return text.encode()

    def _swap(self, desired: bytes) -> bool:
        """Replaces this holder's value by `desired`; returns False if it is not there.

        A renewal whose reply was lost may have been carried out: then the value is this
        holder's with another number, which counts as the expected one.
        """
        while True:
            found = self.store.compare_set(self.name, self._value, desired)
            # A store answers with the expected value if the key does not exist.
            if found == desired:
                self._value = desired
                return True
            is_own = _owner_in(found) == self._owner and found != self._value
            if not is_own:
                return False
            self._value = found

    def _limit(self, timeout: timedelta | float | None) -> float:
        """Returns a timeout in seconds; negative is forever."""
        for each in (timeout, self.timeout, self.store.timeout):
            if each is not None:
                return seconds_of(each)
        raise AssertionError

    def _wait_for_release(self, seconds: float) -> None:
        try:
            self.store.wait([self._released], seconds)
        except DistStoreError:
            # Time to try again, which also raises the error of a store that is closed
            # or lost.
            return

    def _read(self) -> bytes:
        try:
            return self.store[self.name]
        except KeyError:
            return b""

    def _timeout_text(self, limit: float) -> str:
        holder = _owner_in(self._read()) or "nobody"
        return (
            f"lock timeout after {int(limit * 1000)}ms, key: {self.name}, "
            f"held by: {holder}"
        )


StoreLock.__module__ = "distlite.stores"


class _Seen:
    """Measures how long another holder's value has been the same, by this process's
    clock."""

    def __init__(self) -> None:
        self._value = b""
        self._ends: float | None = None

    def has_run_out(self, value: bytes) -> bool:
        """Returns whether the lease in the value has passed since the value was first
        seen."""
        if value != self._value:
            self._value = value
            lease = _lease_in(value)
            self._ends = None if lease is None else now() + lease
        return self._ends is not None and now() >= self._ends

    def left(self) -> float:
        """Seconds."""
        return float("inf") if self._ends is None else max(self._ends - now(), 0.001)


def _lease_of(lease: timedelta | float | None) -> float | None:
    if lease is None:
        return None
    seconds = seconds_of(lease, "lease")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"lease must be positive, not {lease}")
    return seconds


def _owner_in(value: bytes) -> str:
    return value.decode(errors="replace").split(" ", 1)[0]


def _lease_in(value: bytes) -> float | None:
    """Returns the lease in a value; None if it has none, or is not a value of a
    StoreLock."""
    for word in value.split(b" ")[1:]:
        name, _, number = word.partition(b"=")
        if name == b"lease":
            try:
                return float(number)
            except ValueError:
                return None
    return None
