# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of a job come together in the store, before any backend is made.

Each rank reads which initialisation is the latest, and its world size, claims its rank
there, and counts itself; the last one to come sets a key for which all wait.  So a rank
makes five requests, however many ranks there are, and however long it waits.
Ranks that cannot belong to one job, because they were started with different world
sizes or two of them with the same rank, notice it here; the first one that does tells
the others by that key, so that none waits for the timeout.
"""

from __future__ import annotations

# The import of socket takes longer than all the rest of joining a group.
import _socket
import contextlib
import errno
import os
import struct
import time
import weakref
from datetime import timedelta
from typing import ClassVar

from .._C import (
    DistBackendError,
    DistError,
    DistStoreError,
    PrefixStore,
    Store,
    TCPStore,
)

__all__ = ["Arrivals", "Attempt", "CheckIn", "Presence"]

# The latest initialisation: its number, world size and job name, and who opened it.
LATEST = "default_pg/latest"
# Seconds for which a rank that fails stays, if others may use its store: they need time
# to read why.
LINGER = 0.6
# Seconds after which a rank checks whether another process has its rank and has met the
# others: not at once, because a job may end while the next one begins.
ALONE = 0.7
# Seconds; of a wait that never ends, the longest part.
LONGEST = 1e6
NAMED_RANKS = 8
# Each rank has a bit in a counter, so that one request counts and names it.
RANKS_PER_KEY = 62
# The key that the last rank to arrive sets, and for which all wait; or whoever knows
# that they wait in vain, who sets it to the reason.
ALL_ARE_HERE = "all_are_here"
HERE, NEXT = b"here", b"next"
# Takes the place of the record of a rank whose process was killed, for the core.
_REPLACED = "fault: another process has come as rank"


class Attempt:
    """One initialisation, on whose number all of its ranks agree.

    A store may outlive its groups, and what ranks of an earlier one left there must not
    be taken for this one's.  The store keeps the latest number, and for each rank a
    claim with the one it last took part in.  A rank that has claimed the latest opens
    the next; one that has not, joins it, and those that wait in an earlier one follow.
    So ranks need not have failed equally often, and no two processes have the same rank
    in one attempt: a second one opens an attempt of its own, and finds the claim of the
    first.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.who = f"pid {os.getpid()} on host {os.uname().nodename}"
        self.nonce = os.urandom(8).hex()
        offer = f"{size} {os.urandom(6).hex()} rank {rank} ({self.who})"
        held = store.compare_set(LATEST, "", f"1 {offer}").decode()
        before, self.claim = "", f"{_number_in(held)} {self.nonce} {self.who}"
        while (found := self._replace_claim(before)) != self.claim:
            # After a change the reply may be of another rank, which was faster.
            while _number_in(found) >= _number_in(held):
                following = f"{_number_in(held) + 1} {offer}"
                held = store.compare_set(LATEST, held, following).decode()
            before, self.claim = found, f"{_number_in(held)} {self.nonce} {self.who}"
        # The claim that this one has replaced.
        self.before = before
        number, size_text, self.job, self.opener = held.split(" ", 3)
        self.number, self.opener_size = int(number), int(size_text)
        self.keys = _keys_of(self.number, store)
        if self.number > 1 and held.endswith(offer):
            # Those that wait in the one before are to follow.
            _end_wait(_keys_of(self.number - 1, store), NEXT.decode())

    def is_latest(self) -> bool:
        return _number_in(self.store.get(LATEST).decode()) == self.number

    def _replace_claim(self, before: str) -> str:
        return self.store.compare_set(_claim_of(self.rank), before, self.claim).decode()


class Arrivals:
    """The ranks that have come to some keys of a store, which are new."""

    def __init__(self, keys: Store, size: int) -> None:
        self._keys, self._size = keys, size
        self._parts = -(-size // RANKS_PER_KEY)

    def add(self, rank: int) -> None:
        """The last rank to arrive sets the key for which all wait."""
        first, bits = self._bits_of(rank)
        if self._keys.add(f"arrived/{first}", 1 << rank - first) != bits:
            return
        if self._parts == 1 or self._keys.add("arrived", 1) == self._parts:
            _end_wait(self._keys, HERE.decode())

    def take_back(self, rank: int) -> bool:
        """Counts this rank no more, so that nobody meets a rank that has given up;
        False if all have come meanwhile."""
        first, bits = self._bits_of(rank)
        own = 1 << rank - first
        self._keys.add(f"gave_up/{first}", own)
        if self._keys.add(f"arrived/{first}", -own) != bits - own:
            return True
        if self._parts > 1 and self._keys.add("arrived", -1) != self._parts - 1:
            return True
        self.add(rank)
        return False

    def absent(self, gave_up: bool = False) -> list[int]:
        """Returns the ranks that have not arrived, or those that have given up."""
        absent = []
        for first in range(0, self._size, RANKS_PER_KEY):
            missing = self._bits_of(first)[1] & ~self._keys.add(f"arrived/{first}", 0)
            given_up = self._keys.add(f"gave_up/{first}", 0)
            missing &= given_up if gave_up else ~given_up
            absent += [first + i for i in range(RANKS_PER_KEY) if missing >> i & 1]
        return absent

    def clean(self) -> None:
        """Deletes the keys: all have come."""
        for first in range(0, self._size, RANKS_PER_KEY):
            self._keys.delete_key(f"arrived/{first}")
            self._keys.delete_key(f"gave_up/{first}")
        self._keys.delete_key("arrived")
        self._keys.delete_key(ALL_ARE_HERE)

    def _bits_of(self, rank: int) -> tuple[int, int]:
        """Returns the first rank whose bit is in the same counter, and all its bits."""
        first = rank - rank % RANKS_PER_KEY
        return first, (1 << min(RANKS_PER_KEY, self._size - first)) - 1


class CheckIn:
    """One rank's arrival at an attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._store, self._keys = attempt.store, attempt.keys
        self._rank, self._size, self._who = attempt.rank, attempt.size, attempt.who
        self._arrivals = Arrivals(attempt.keys, attempt.size)
        self.presence = Presence(attempt.nonce)

    def meet(self, label: str, timeout: timedelta, since: float | None = None) -> bool:
        """Returns True when all ranks have arrived at the same attempt, and False when
        another rank has opened the next one before, at which this rank is to arrive.

        `since` is the time.monotonic() at which the timeout began; None is now.
        """
        self._compare_sizes()
        self._arrivals.add(self._rank)
        begin = time.monotonic()
        limit = timeout.total_seconds()
        limit = limit if limit >= 0 else float("inf")
        if since is not None:
            limit -= begin - since
        # Only one that follows another process looks for that one.
        pause = min(ALONE if self._other()[0] else LONGEST, limit)
        while not self._have_all_come(pause):
            self._look_for_faults()
            if not self._attempt.is_latest():
                return self._follow()
            waited = time.monotonic() - begin
            if waited >= limit:
                self._fail_absent(label, timeout)
                # The last one is about to set the key, unless it has been killed.
                self._keys.wait([ALL_ARE_HERE], timedelta(seconds=LINGER))
                break
            self._fail_if_taken()
            self._release_others()
            pause = min(LONGEST, limit - waited)
        outcome = self._keys.get(ALL_ARE_HERE)
        if outcome == NEXT:
            # Another process may have taken this one's rank there.
            self._look_for_faults()
            return self._follow()
        if outcome not in (HERE, b""):
            raise DistBackendError(outcome.decode())
        return True

    def _follow(self) -> bool:
        self.presence.close()
        return False

    def _release_others(self) -> None:
        """Lets those follow that have met the process before this one in its attempt,
        where it was killed before it began to connect."""
        number = _number_in(self._attempt.before or "0")
        if 0 < number < self._attempt.number:
            keys = _keys_of(number, self._store)
            text = f"{_REPLACED} {self._rank}: {self._who}"
            keys.compare_set(f"cpu/{self._rank}", "", text)

    def may_follow(self) -> bool:
        """Returns whether ranks meet anew, because one that had met this one was killed
        before it began to connect; for a rank that has failed to connect."""
        with contextlib.suppress(DistError):
            # It is there; a store that does not answer is not asked any more.
            self._keys.wait([ALL_ARE_HERE], LINGER)
            ranks = range(0 if self._attempt.is_latest() else self._size)
            records = (self._keys.compare_set(f"cpu/{r}", "", "") for r in ranks)
            if any(each.startswith(_REPLACED.encode()) for each in records):
                return not self._follow()
        return False

    def _have_all_come(self, pause: float) -> bool:
        try:
            self._keys.wait([ALL_ARE_HERE], max(0.001, pause))
        except DistStoreError:
            # A failure other than the timeout makes the next call fail as well.
            return False
        return True

    def _compare_sizes(self) -> None:
        size, other = self._attempt.opener_size, self._attempt.opener
        if size != self._size:
            self._fail(
                f"rank {self._rank} ({self._who}) was started with world_size "
                f"{self._size}, {other} with world_size {size}: all ranks of a job "
                "need the same WORLD_SIZE"
            )

    def _look_for_faults(self) -> None:
        nonce = self._attempt.nonce
        fault = self._keys.compare_set("fault", "", "").decode()
        fault = fault or self._store.compare_set(_fault_of(nonce), "", "").decode()
        if fault:
            self._fail(fault)
        claim = self._store.get(_claim_of(self._rank)).decode()
        if claim != self._attempt.claim:
            number, nonce, other = claim.split(" ", 2)
            fault = _started_twice(self._rank, self._who, other)
            self._store.set(_fault_of(nonce), fault)
            _end_wait(_keys_of(int(number), self._store), fault)
            self._fail(fault)

    def _fail(self, fault: str) -> None:
        self._publish_fault(fault)
        raise DistBackendError(fault)

    def _publish_fault(self, fault: str) -> None:
        # The core reads these keys as well (csrc/pg/cpu/join_fault.h).
        self._keys.set("fault", fault)
        self._keys.set(f"cpu/{self._rank}", f"fault: {fault}")
        _end_wait(self._keys, fault)

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
                self._publish_fault(fault)
        has_guests = self._rank == 0 and self._size > 1
        if has_guests and not isinstance(error, DistStoreError):
            # This process may serve the store: the others need time to read the error.
            time.sleep(LINGER)

    def _fail_absent(self, label: str, timeout: timedelta) -> None:
        what = "joined"
        absent = self._arrivals.absent()
        if not absent and (absent := self._arrivals.absent(gave_up=True)):
            what = "waited so long"
        if not absent or not self._arrivals.take_back(self._rank):
            return  # the last one has come only now
        names = ", ".join(str(rank) for rank in absent[:NAMED_RANKS])
        if len(absent) > NAMED_RANKS:
            names += f" and {len(absent) - NAMED_RANKS} more"
        many = len(absent) > 1
        raise DistStoreError(
            f"joining group {label} as rank {self._rank} of {self._size}: timed out "
            f"after {round(timeout.total_seconds() * 1000)}ms: waiting for "
            f"rank{'s' if many else ''} {names}, which {'have' if many else 'has'} not "
            f"{what}{self._earlier()}{self._private()}{self._denied()}"
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

    def _other(self) -> tuple[str, str]:
        """Returns the nonce and the name of the process that claimed the rank before;
        empty if there is none."""
        _, nonce, other = (self._attempt.before or "0  ").split(" ", 2)
        return nonce, other

    def _earlier(self) -> str:
        """Returns a remark if another process, maybe on another host, has joined as
        this rank."""
        _, other = self._other()
        if not other or other == self._who:
            return ""
        return (
            f"; {other} has already joined as rank {self._rank}: was it started twice?"
        )

    def _fail_if_taken(self) -> None:
        # The process must still be in its group, on this machine.
        nonce, other = self._other()
        if nonce and Presence.shows(nonce):
            self._fail(_started_twice(self._rank, other, self._who))


class Presence:
    """Shows other processes of this machine that this one is in a group, or joins it.

    The kernel closes the socket when the process ends, in whatever way; a forked child
    does not keep it, nor does a process whose join was interrupted.  Other users can
    see its name, and use it when it is free, so a presence counts only if it belongs to
    the same user.
    """

    _all: ClassVar[weakref.WeakSet[Presence]] = weakref.WeakSet()
    _socket: _socket.socket | None = None

    def __init__(self, nonce: str) -> None:
        # A sandbox may refuse it; then the others cannot see this process.
        with contextlib.suppress(OSError):
            self._socket = _socket.socket(_socket.AF_UNIX)
            self._socket.bind(_presence_of(nonce))
            # Connections are never accepted, so each check takes a place in the queue.
            self._socket.listen(_socket.SOMAXCONN)
        Presence._all.add(self)

    @staticmethod
    def shows(nonce: str, if_full: bool = False) -> bool:
        """Returns whether the process is there; `if_full` where the socket's queue has
        no place for one more check, which earlier checks or strangers may have
        taken, or this process has no descriptor or memory left."""
        try:
            with contextlib.closing(_socket.socket(_socket.AF_UNIX)) as probe:
                probe.setblocking(False)
                probe.connect(_presence_of(nonce))
                sender = probe.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        except BlockingIOError:
            return if_full
        except OSError as error:
            own = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
            return if_full and error.errno in own
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


def _started_twice(rank: int, first: str, second: str) -> str:
    return (
        f"rank {rank} was started twice, as {first} and as {second}: "
        "each process of a job needs a RANK of its own"
    )


def _keys_of(number: int, store: Store) -> PrefixStore:
    """Returns the keys of an attempt."""
    return PrefixStore(f"default_pg/{number}", store)


def _end_wait(keys: Store, outcome: str) -> None:
    """Ends the wait for all ranks, unless it has an outcome already."""
    keys.compare_set(ALL_ARE_HERE, "", outcome)


def _claim_of(rank: int) -> str:
    return f"default_pg/claim_of/{rank}"


def _number_in(text: str) -> int:
    """Returns the number of the attempt with which the value of a key begins."""
    return int(text.partition(" ")[0])


def _fault_of(nonce: str) -> str:
    return f"default_pg/fault_of/{nonce}"
