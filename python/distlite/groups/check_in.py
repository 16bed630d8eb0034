# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of a job come together in the store, before any backend is made.

Each rank writes its rank and world size to the store, and counts itself; the last one
to come sets a key for which all wait.  So no request grows with the number of ranks.
Ranks that cannot belong to one job, because they were started with different world
sizes or two of them with the same rank, notice it here; the first one that does tells
the others, so that none waits for the timeout.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from .._C import DistBackendError, DistError, DistStoreError, Store, TCPStore

if TYPE_CHECKING:
    from _socket import socket

__all__ = ["CheckIn"]

# Seconds between two checks for an error of another rank.  The pause grows, because one
# store serves all ranks.
FIRST_CHECK, LAST_CHECK = 0.2, 0.5
# Seconds after which a rank checks whether another process has its rank and has met the
# others: not at once, because a job may end while the next one begins.
ALONE = 0.7
NAMED_RANKS = 8


class CheckIn:
    """One rank's arrival at the store.

    `store` is shared by all attempts: the claim of a rank lies there, so that a second
    process with the same rank is noticed although it opens an attempt of its own.
    `keys` is the store of this attempt.
    """

    def __init__(self, store: Store, keys: Store, rank: int, size: int) -> None:
        self._store, self._keys = store, keys
        self._rank, self._size = rank, size
        self._key = f"default_pg/claim_of/{rank}"
        self._who = f"pid {os.getpid()} on host {os.uname().nodename}"
        nonce = os.urandom(8).hex()
        self._claim = f"{nonce} {self._who}"
        before = store.compare_set(self._key, "", self._claim).decode()
        self._before = "" if before == self._claim else before
        store.set(self._key, self._claim)
        self.presence = Presence(nonce)

    def meet(self, label: str, timeout: timedelta, since: float | None = None) -> None:
        """Returns when all ranks have arrived at the same `keys`.

        `since` is the time.monotonic() at which the timeout began; None is now.
        """
        self._compare_sizes()
        self._arrive()
        begin = time.monotonic()
        limit = timeout.total_seconds()
        limit = limit if limit >= 0 else float("inf")
        if since is not None:
            limit -= begin - since
        pause, has_checked = max(0.001, min(FIRST_CHECK, limit)), False
        while not self._have_all_come(pause):
            self._look_for_faults()
            waited = time.monotonic() - begin
            if waited >= limit:
                self._fail_absent(label, timeout)
                return
            if waited > ALONE and not has_checked:
                has_checked = True
                self._fail_if_taken()
            pause = max(0.001, min(pause * 1.5, LAST_CHECK, limit - waited))

    def _arrive(self) -> None:
        """The last rank to arrive sets the key for which all wait.

        A second process with this rank is not counted.
        """
        key = f"here/{self._rank}"
        held = self._keys.compare_set(key, "", self._claim).decode()
        if held == self._claim and self._keys.add("arrived", 1) == self._size:
            self._keys.set("all_are_here", "")

    def _have_all_come(self, pause: float) -> bool:
        from datetime import timedelta

        try:
            self._keys.wait(["all_are_here"], timedelta(seconds=pause))
        except DistStoreError:
            # A failure other than the timeout makes the next call fail as well.
            return False
        return True

    def _compare_sizes(self) -> None:
        own = f"{self._size} rank {self._rank} ({self._who})"
        first = self._keys.compare_set("world_size", "", own).decode()
        size, _, other = first.partition(" ")
        if int(size) != self._size:
            self._fail(
                f"rank {self._rank} ({self._who}) was started with world_size "
                f"{self._size}, {other} with world_size {size}: all ranks of a job "
                "need the same WORLD_SIZE"
            )

    def _look_for_faults(self) -> None:
        fault = self._keys.compare_set("fault", "", "").decode()
        nonce = self._claim.partition(" ")[0]
        fault = fault or self._store.compare_set(_fault_of(nonce), "", "").decode()
        if fault:
            self._fail(fault)
        claim = self._store.get(self._key).decode()
        if claim != self._claim:
            nonce, _, other = claim.partition(" ")
            fault = _twice(self._rank, self._who, other)
            self._store.set(_fault_of(nonce), fault)
            self._fail(fault)

    def _fail(self, fault: str) -> None:
        # The core reads this key as well (csrc/pg/cpu/join_fault.h).
        self._keys.set("fault", fault)
        raise DistBackendError(fault)

    def give_up(self, error: BaseException) -> None:
        """Tells the ranks that wait for this one, here or in the core, why it
        failed."""
        self.presence.close()
        if not isinstance(error, DistError):
            # The core, and the code here that raises a DistError, has reported those.
            cause = f"{type(error).__name__}: {error}"
            if isinstance(error, KeyboardInterrupt):
                cause = "it was interrupted"
            fault = f"rank {self._rank} ({self._who}) could not join: {cause}"
            with contextlib.suppress(Exception):
                self._keys.set("fault", fault)
        has_guests = self._rank == 0 and self._size > 1
        if has_guests and not isinstance(error, DistStoreError):
            # This process may serve the store: the others need time to read the error.
            time.sleep(LAST_CHECK + 0.1)

    def _absent(self) -> list[int]:
        ranks = range(self._size)
        return [rank for rank in ranks if not self._keys.check([f"here/{rank}"])]

    def _fail_absent(self, label: str, timeout: timedelta) -> None:
        absent = self._absent()
        if not absent:
            return  # the last one has come only now
        names = ", ".join(str(rank) for rank in absent[:NAMED_RANKS])
        if len(absent) > NAMED_RANKS:
            names += f" and {len(absent) - NAMED_RANKS} more"
        many = len(absent) > 1
        raise DistStoreError(
            f"joining group {label} as rank {self._rank} of {self._size}: timed out "
            f"after {round(timeout.total_seconds() * 1000)}ms: waiting for "
            f"rank{'s' if many else ''} {names}, which {'have' if many else 'has'} not "
            f"joined{self._earlier()}{self._private()}{self._denied()}"
        )

    def _private(self) -> str:
        """Returns a remark if the store that this rank serves is private to its host,
        else ""."""
        host = self._store.host if isinstance(self._store, TCPStore) else ""
        if self._rank != 0 or not (host.startswith("127.") or host == "::1"):
            return ""
        return (
            f"; the store listens at {host} only, which ranks on other hosts cannot "
            "reach: set MASTER_ADDR to a name or address of this host that they can "
            "reach"
        )

    def _denied(self) -> str:
        """Returns a remark if the store's server has turned away clients without the
        token, else "".

        It is called only after a timeout: the clients may have been strangers, which
        must not end a job.
        """
        count = 0
        # Not every store has statistics, and its class may be the user's: an error of
        # it must not hide the timeout.
        with contextlib.suppress(Exception):
            count = self._store.stats().get("closed", {}).get("denied", 0)
        if count == 0:
            return ""
        return (
            f"; the store's server has turned away {count} "
            f"connection{'s' if count > 1 else ''} without the job's token or TLS: "
            "every rank needs the same DISTLITE_TOKEN and DISTLITE_TLS"
        )

    def _other(self) -> str:
        """Returns the process of this machine that claimed the rank before and is still
        in its group; "" if there is none that this process can see."""
        nonce, _, other = self._before.partition(" ")
        return other if nonce and Presence.shows(nonce) else ""

    def _earlier(self) -> str:
        """Returns a remark if another process, maybe on another host, has joined as
        this rank."""
        other = self._before.partition(" ")[2]
        if not other or other == self._who:
            return ""
        return (
            f"; {other} has already joined as rank {self._rank}: was it started twice?"
        )

    def _fail_if_taken(self) -> None:
        if other := self._other():
            self._fail(_twice(self._rank, other, self._who))


class Presence:
    """Shows other processes of this machine that this one is in a group, or joins it.

    The kernel closes the socket when the process ends, in whatever way; a forked child
    does not keep it, nor does a process whose join was interrupted.  Other users can
    see its name, and use it when it is free, so a presence counts only if it belongs to
    the same user.
    """

    _all: ClassVar[weakref.WeakSet[Presence]] = weakref.WeakSet()
    _socket: socket | None = None

    def __init__(self, nonce: str) -> None:
        # The import of socket takes longer than all the rest of joining a group.
        import _socket

        # A sandbox may refuse it; then the others cannot see this process.
        with contextlib.suppress(OSError):
            self._socket = _socket.socket(_socket.AF_UNIX)
            self._socket.bind(_presence_of(nonce))
            # Connections are never accepted, so each check takes a place in the queue.
            self._socket.listen(_socket.SOMAXCONN)
        Presence._all.add(self)

    @staticmethod
    def shows(nonce: str) -> bool:
        import _socket

        try:
            with contextlib.closing(_socket.socket(_socket.AF_UNIX)) as probe:
                probe.setblocking(False)
                probe.connect(_presence_of(nonce))
                sender = probe.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        except OSError:
            # There is no such socket, or strangers have filled its queue.
            return False
        _, user, _ = struct.unpack("iII", sender)
        return bool(user == os.geteuid())

    def close(self) -> None:
        Presence._all.discard(self)
        if self._socket is not None:
            self._socket.close()

    __del__ = close

    @staticmethod
    def close_all() -> None:
        for presence in list(Presence._all):
            presence.close()


os.register_at_fork(after_in_child=Presence.close_all)


def _presence_of(nonce: str) -> str:
    return f"\0distlite-rank-{nonce}"


def _twice(rank: int, first: str, second: str) -> str:
    return (
        f"rank {rank} was started twice, as {first} and as {second}: "
        "each process of a job needs a RANK of its own"
    )


def _fault_of(nonce: str) -> str:
    return f"default_pg/fault_of/{nonce}"
