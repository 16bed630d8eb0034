# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of a job come together in the store, before any backend is made.

Each says who it is, and waits until all have.  Ranks that cannot belong to one job,
because they were started with different world sizes, or two of them with the same rank,
find that out here, and whoever does tells the others: nobody waits for the timeout.
"""

from __future__ import annotations

import os
import time
import warnings

from ._C import DistBackendError, DistStoreError, TCPStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta

    from ._C import Store

__all__ = ["CheckIn"]

# Between two looks for what others have found out: soon enough, and more seldom where
# it takes long, because the store serves everybody.
FIRST_LOOK, LAST_LOOK = 0.2, 0.5
# After so long alone, a rank says that another process has had its rank.
ALONE = 0.8
NAMED_RANKS = 8


class CheckIn:
    """One rank's coming to the store.

    `store` is that of all attempts: the claim of a rank lies there, so that a second
    process with it is noticed although it opens an attempt of its own.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._key = f"default_pg/claim_of/{rank}"
        self._who = f"pid {os.getpid()} on host {os.uname().nodename}"
        self._claim = f"{os.urandom(8).hex()} {self._who}"
        self._before = store.compare_set(self._key, "", self._claim).decode()
        store.set(self._key, self._claim)

    def meet(self, keys: Store, label: str, timeout: timedelta) -> None:
        """Returns when all ranks have come to the same `keys`."""
        self._keys = keys
        self._compare_sizes()
        keys.set(f"here/{self._rank}", self._who)
        begin = time.monotonic()
        limit = timeout.total_seconds()
        pause, has_warned = FIRST_LOOK, False
        while not self._have_all_come(pause):
            self._look_for_faults()
            waited = time.monotonic() - begin
            if waited >= limit:
                self._fail_absent(label, timeout)
            if waited > ALONE and not has_warned:
                has_warned = True
                self._warn_if_taken()
            pause = max(0.001, min(pause * 1.5, LAST_LOOK, limit - waited))

    def _have_all_come(self, pause: float) -> bool:
        from datetime import timedelta

        keys = [f"here/{rank}" for rank in range(self._size)]
        try:
            self._keys.wait(keys, timedelta(seconds=pause))
        except DistStoreError:
            # If it was not the timeout, the next call fails as well.
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
            fault = (
                f"rank {self._rank} was started twice, as {self._who} and as {other}: "
                "each process of a job needs a RANK of its own"
            )
            self._store.set(_fault_of(nonce), fault)
            self._fail(fault)

    def _fail(self, fault: str) -> None:
        self._keys.set("fault", fault)
        if self._rank == 0:
            # It may serve the store, where the others are yet to read this.
            time.sleep(LAST_LOOK + 0.1)
        raise DistBackendError(fault)

    def _absent(self) -> list[int]:
        ranks = range(self._size)
        return [rank for rank in ranks if not self._keys.check([f"here/{rank}"])]

    def _fail_absent(self, label: str, timeout: timedelta) -> None:
        absent = self._absent()
        if not absent:
            return
        names = ", ".join(str(rank) for rank in absent[:NAMED_RANKS])
        if len(absent) > NAMED_RANKS:
            names += f" and {len(absent) - NAMED_RANKS} more"
        many = len(absent) > 1
        raise DistStoreError(
            f"joining group {label} as rank {self._rank} of {self._size}: timed out "
            f"after {round(timeout.total_seconds() * 1000)}ms: waiting for "
            f"rank{'s' if many else ''} {names}, which {'have' if many else 'has'} not "
            f"come{self._taken()}{self._private()}"
        )

    def _private(self) -> str:
        """That the store which this rank serves is not for other hosts."""
        host = self._store.host if isinstance(self._store, TCPStore) else ""
        if self._rank != 0 or not (host.startswith("127.") or host == "::1"):
            return ""
        return (
            f"; the store listens at {host} only, where ranks on other hosts do not "
            "come through: set MASTER_ADDR to what they know this host by"
        )

    def _taken(self) -> str:
        """That another process, which still runs here, has had this rank."""
        other = self._before.partition(" ")[2]
        host = f" on host {os.uname().nodename}"
        pid = other.removeprefix("pid ").removesuffix(host)
        is_here = other.endswith(host) and pid.isdecimal() and int(pid) != os.getpid()
        if not is_here or not os.path.exists(f"/proc/{pid}"):
            return ""
        return f"; {other}, which still runs, has joined as rank {self._rank} before"

    def _warn_if_taken(self) -> None:
        taken = self._taken()
        if taken and len(self._absent()) == self._size - 1:
            warnings.warn(
                f"no other rank has come to meet rank {self._rank} ({self._who})"
                f"{taken}: was this rank started twice?",
                stacklevel=5,
            )


def _fault_of(nonce: str) -> str:
    return f"default_pg/fault_of/{nonce}"
