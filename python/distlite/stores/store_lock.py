# SPDX-License-Identifier: BSD-3-Clause
"""Locks between all users of a store, with and without a lease."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
import weakref

from .._C import DistError, DistStoreError
from .timeouts import seconds_of

# typing.TYPE_CHECKING without importing typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from types import TracebackType

    from .._C import Store

__all__ = ["StoreLock"]

# A waiter that dies between two of its steps may swallow the news of a release; the
# others then find the lock free when they next look by themselves.
LOOK_AGAIN_SECONDS = 1.0
# Two renewals may fail before the lease has run out.
RENEWALS_PER_LEASE = 3


def _now() -> float:
    """Seconds of this host, which also pass while it is suspended.

    Only differences are used, and only in the process that took the time: clocks of
    two hosts are never compared.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class StoreLock:
    """A lock that at most one with statement holds at a time, of all users of a store.

    `Store.lock` makes it. It is not re-entrant. An object may be used again, but serves
    one holder at a time: each thread calls `store.lock(name)`.

    The lock is the value of the key `name`: empty or absent if it is free, otherwise
    the owner, "host:pid:...". Without a lease a holder that dies keeps it, and the
    timeouts of the others name it. Whoever knows that it is dead frees the lock with
    `store.delete_key(name)`; if it is alive after all, it gets a DistStoreError at the
    end of its with statement.

    With a lease the value also says how long it lasts and how often it has been
    renewed, which a thread of the holder does three times in each lease. Those who wait
    take the lock when the value has not changed for the length of the lease, by their
    own clocks. A holder that stood still for so long, or lost its connection, has lost
    the lock: `is_held` says so from the moment at which others may take it, and the end
    of the with statement raises a DistStoreError, and leaves the next holder alone. No
    lock can stop what such a holder has begun: look at `is_held` before each step that
    must not be taken twice.

    Who gets the lock next is not determined.

    Args:
        store: The store.
        name: The name of the lock, a key of the store.
        timeout: The time to wait for it, a `timedelta` or seconds; None is the store's
            own.
        lease: The time after which others take the lock if the holder does not renew
            it, a `timedelta` or seconds; None never.
        auto_renew: Whether a thread renews the lease; if not, the holder calls
            `renew()`.

    Example:
        >>> from distlite.store_lock import StoreLock
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
        auto_renew: bool = True,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be str, not {type(name).__name__}")
        if timeout is not None:
            seconds_of(timeout)
        self.store = store
        self.name = name
        self.timeout = timeout
        self.lease = _lease_of(lease)
        self.auto_renew = auto_renew
        # Between the holder and the thread that renews.
        self._renewing = threading.RLock()
        self._owner = ""
        self._value = b""
        self._renewals = 0
        # When the renewal that is in the store was begun, by _now().
        self._renewed = 0.0
        self._is_lost = False
        self._has_ended = threading.Event()
        # Exists from a release until somebody tries for the lock again.
        self._released = f"{name}/released"

    def __repr__(self) -> str:
        return f"<StoreLock {self.name!r}, {'held' if self.is_held else 'not held'}>"

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

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock, and no one else can have taken it.

        It asks nobody: of a lock with a lease it compares the time of the last renewal
        with the clock.
        """
        if not self._value or self._is_lost:
            return False
        return self.lease is None or _now() < self._renewed + self.lease

    def locked(self) -> bool:
        """Tells whether anybody holds the lock, by one request to the store.

        A lease that has run out counts as held until another takes the lock.

        Returns:
            True or False.

        Raises:
            DistStoreError: The store is closed, or its server cannot be reached.

        Example:
            >>> lock = dist.HashStore().lock("checkpoint")
            >>> lock.locked()
            False
        """
        return bool(self._look())

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
        limit = self._limit(timeout)
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
        self._renewals = 0
        value = self._value_of(0)
        try:
            renewed = self._wait_for_turn(value, limit)
        except BaseException:
            # Interrupted just after it was won, perhaps.
            self.store.compare_set(self.name, value, b"")
            raise
        self._is_lost = False
        self._renewed = renewed
        self._value = value
        if self.lease is not None and self.auto_renew:
            self._start_renewing(self.lease / RENEWALS_PER_LEASE)

    def renew(self) -> None:
        """Begins the lease anew.

        Raises:
            DistStoreError: The lock had been taken away from this object, or the store
                cannot be reached.
            RuntimeError: This object does not hold the lock, or it has no lease.

        Example:
            >>> with dist.HashStore().lock("checkpoint", lease=10.0) as lock:
            ...     lock.renew()
        """
        if self.lease is None:
            raise RuntimeError(f"lock {self.name!r} has no lease")
        with self._renewing:
            if not self._value:
                raise RuntimeError(f"lock {self.name!r} is not held by this object")
            began = _now()
            if not self._swap(self._value_of(self._renewals + 1)):
                self._is_lost = True
                raise DistStoreError(self._lost_text())
            self._renewals += 1
            self._renewed = began

    def release(self) -> None:
        """Frees the lock.

        Raises:
            DistStoreError: The lock had been taken away from this object.
            RuntimeError: This object does not hold the lock.

        Example:
            >>> lock = dist.HashStore().lock("checkpoint")
            >>> lock.acquire()
            >>> lock.release()
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
            raise DistStoreError(self._lost_text())
        self.store.set(self._released, b"")

    def _value_of(self, renewals: int) -> bytes:
        text = self._owner
        if self.lease is not None:
            text += f" lease={self.lease!r} renewals={renewals}"
        return text.encode()

    def _swap(self, desired: bytes) -> bool:
        """Puts `desired` in the place of this holder's value; False if it is not there.

        A renewal whose reply was lost may have been carried out: then the value is this
        holder's with another number, and is taken for what is expected.
        """
        while True:
            found = self.store.compare_set(self.name, self._value, desired)
            # A store answers with the expected value when the key is gone.
            if found == desired:
                self._value = desired
                return True
            is_own = _owner_in(found) == self._owner and found != self._value
            if not is_own:
                return False
            self._value = found

    def _wait_for_turn(self, value: bytes, limit: float) -> float:
        """When the request that won the lock was begun."""
        deadline = time.monotonic() + limit
        seen = _Seen()
        while True:
            # Cleared before the look, so that a release after the look is not missed.
            self.store.delete_key(self._released)
            began = _now()
            found = self.store.compare_set(self.name, b"", value)
            if found == value:
                return began
            if seen.has_run_out(found):
                began = _now()
                if self.store.compare_set(self.name, found, value) == value:
                    return began
                continue
            left = LOOK_AGAIN_SECONDS if limit < 0 else deadline - time.monotonic()
            if left <= 0:
                raise DistStoreError(self._timeout_text(limit))
            self._wait_for_release(min(left, LOOK_AGAIN_SECONDS, seen.left()))

    def _limit(self, timeout: timedelta | float | None) -> float:
        """Seconds; negative for ever."""
        for each in (timeout, self.timeout, self.store.timeout):
            if each is not None:
                return seconds_of(each)
        raise AssertionError

    def _wait_for_release(self, seconds: float) -> None:
        try:
            self.store.wait([self._released], seconds)
        except DistStoreError:
            # Time to look again.  A store that is closed or lost says so then, too.
            return

    def _start_renewing(self, interval: float) -> None:
        self._has_ended = threading.Event()
        threading.Thread(
            target=_renew_until,
            args=(weakref.ref(self), self._has_ended, interval),
            name=f"distlite lease of {self.name}",
            daemon=True,
        ).start()

    def _look(self) -> bytes:
        try:
            return self.store[self.name]
        except KeyError:
            return b""

    def _lost_text(self) -> str:
        return f"lock {self.name!r} was taken away from its holder"

    def _timeout_text(self, limit: float) -> str:
        owner = _owner_in(self._look()) or "nobody"
        milliseconds = int(limit * 1000)
        return (
            f"lock timeout after {milliseconds}ms, key: {self.name}, held by: {owner}"
        )


class _Seen:
    """How long another holder's value has been the same, by this process's clock."""

    def __init__(self) -> None:
        self._value = b""
        self._ends: float | None = None

    def has_run_out(self, value: bytes) -> bool:
        """Whether the lease that the value tells has passed since it was first seen."""
        if value != self._value:
            self._value = value
            lease = _lease_in(value)
            self._ends = None if lease is None else _now() + lease
        return self._ends is not None and _now() >= self._ends

    def left(self) -> float:
        """Seconds."""
        return float("inf") if self._ends is None else max(self._ends - _now(), 0.001)


def _renew_until(
    of: weakref.ref[StoreLock], has_ended: threading.Event, interval: float
) -> None:
    """Ends when the lock is released, lost, or forgotten while it is held."""
    while not has_ended.wait(interval):
        lock = of()
        if lock is None:
            return
        with lock._renewing:
            if has_ended.is_set() or lock._is_lost:
                return
            # The store may be back for the next renewal; is_held knows the time.
            with contextlib.suppress(DistError):
                lock.renew()
        del lock


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
    """None: it has none, or is not a value that a StoreLock writes."""
    for word in value.split(b" ")[1:]:
        name, _, number = word.partition(b"=")
        if name == b"lease":
            try:
                return float(number)
            except ValueError:
                return None
    return None


def __dir__() -> list[str]:
    return __all__
