# SPDX-License-Identifier: BSD-3-Clause
"""Jobs in a store that survive the workers that do them.

    key below jobs/NAME    written by
    pushed                 who pushes: how many numbers have been given to jobs
    job/N                  who pushes: "+" and the data, by compare_set; "-" if a worker
                           found the number without data and gave it up
    wake                   a queue: an item for each job that became free, or nothing at
                           all where a process died before
    table                  the workers, by compare_set only: the last number that was
                           given out, the numbers that were given back, and who has
                           which job, and how often its lease was renewed

Nothing is ever taken out of the store before it is in the table under the name of its
worker, so a process may die between any two requests. The queue `wake` only spares
workers that wait from looking all the time: they look now and then also without it.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from os import urandom
from typing import Any

from .._C import DistError, DistStoreError, PrefixStore, QueueEmptyError, Store
from ..groups.members import MemberId, describe, is_known_dead
from ..stores.leases import RENEWALS, now, start_renewing
from ..stores.timeouts import end_after, seconds_of

__all__ = ["Job", "JobQueue"]

# Seconds between two looks of a worker that waits.
LOOK = 0.25
# Seconds for which a number may have no data: between two requests of who pushes it.
GRACE = 2.0

# Of a job, in the table: a token of this hold, the lease in seconds, and the renewals.
_Holder = list[Any]


class Job:
    """A job that a worker has taken, made by `JobQueue.take`.

    A with statement acknowledges it at its end, or gives it back after an exception.

    Args:
        queue: The queue.
        number: Its number, from 1 in the order in which jobs were pushed.
        token: The value that marks this worker's hold in the queue's table.
        renewed: When its lease began.

    Example:
        >>> queue = dist.elastic.JobQueue(dist.HashStore())
        >>> _ = queue.push("paint the fence")
        >>> with queue.take() as job:
        ...     job.number, job.data, job.is_held
        (1, b'paint the fence', True)
    """

    def __init__(
        self, queue: JobQueue, number: int, token: str, renewed: float
    ) -> None:
        self.number = number
        self.data = b""
        self._queue, self._token = queue, token
        self._renewed, self._is_over = renewed, False

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._is_over:
            return
        try:
            if error is None:
                self.done()
            else:
                with suppress(DistError):
                    self.give_back()
        finally:
            self._is_over = True  # without a lease, it is given to others

    @property
    def is_held(self) -> bool:
        """Whether no other worker can have got this job. It sends no request."""
        return not self._is_over and now() < self._renewed + self._queue.lease

    def done(self) -> None:
        """Acknowledges the job; no worker gets it again.

        Raises:
            DistStoreError: Another worker has got the job, because this one did not
                renew its lease in time; or the store cannot be reached.
        """
        self._end(is_free=False)
        self._queue._store.delete_key(f"job/{self.number}")

    def give_back(self) -> None:
        """Lets another worker have the job at once.

        Raises:
            DistStoreError: As for `done`.
        """
        self._end(is_free=True)
        self._queue._store.queue_push("wake", "")

    def _end(self, is_free: bool) -> None:
        is_ours = self._queue._let_go(self.number, self._token, is_free)
        self._is_over = True
        if not is_ours:
            raise DistStoreError(
                f"job {self.number} is no longer this worker's: its lease of "
                f"{self._queue.lease:g} s ran out and another worker got the job, or "
                "an earlier call ended it"
            )


class JobQueue:
    """A queue of jobs in a store; if a worker dies, another one gets its job.

    A worker takes a job and acknowledges it when it is done. If its process ends before
    that, or is stopped for longer than the lease, another worker gets the job; a thread
    renews the leases while the process lives. So every job is done at least once, and
    acknowledged once: write jobs that do no harm the second time, such as a `store.set`
    of an answer. A worker notices at once that another one on its machine has ended; on
    other machines, it waits until the lease has run out by its own clock. Several
    threads may use a queue.

    Args:
        store: A store with queues (not a `FileStore`), which outlives the workers.
        name: The name of the queue in the store.
        lease: The time without a sign of life after which a worker's job is given to
            another one, a `timedelta` or seconds.

    Raises:
        ValueError: The lease is not positive, or the name is not a text without "/".

    Example:
        >>> queue = dist.elastic.JobQueue(dist.HashStore(), lease=10)
        >>> queue.push("paint the fence")
        1
        >>> with queue.take() as job:
        ...     print(job.data)
        b'paint the fence'
        >>> queue.unfinished()
        0
    """

    def __init__(
        self, store: Store, name: str = "jobs", lease: timedelta | float = 30.0
    ) -> None:
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(f"name must be a text without '/', not {name!r}")
        self.name, self.lease = name, seconds_of(lease, "lease")
        if not 0 < self.lease < float("inf"):
            raise ValueError(f"lease must be a positive time, not {lease}")
        self._store = PrefixStore(f"jobs/{name}", store)
        self._id = MemberId()
        self._lock = threading.Lock()  # of what follows
        self._jobs: weakref.WeakSet[Job] = weakref.WeakSet()
        # By number: the holder as this process saw it last, and since when.
        self._seen: dict[str, tuple[_Holder, float]] = {}
        self._looks_at = 0.0
        self._is_renewing = False

    def push(self, data: str | bytes) -> int:
        """Adds a job.

        Args:
            data: The data for the worker; text becomes UTF-8.

        Returns:
            The number of the job, from 1.

        Raises:
            DistStoreError: The store cannot be reached; the job may have been added.
        """
        value = b"+" + (data.encode() if isinstance(data, str) else bytes(data))
        while True:
            number = self._store.add("pushed", 1)
            # Workers have given the number up if this process was stopped for long.
            if self._store.compare_set(f"job/{number}", "", value) == value:
                self._store.queue_push("wake", "")
                return number
            self._store.delete_key(f"job/{number}")

    def take(self, timeout: timedelta | float | None = None) -> Job:
        """Waits for a job, and takes it.

        Args:
            timeout: The time to wait, a `timedelta` or seconds; None is the store's
                timeout, and negative waits forever.

        Raises:
            QueueEmptyError: No job became free in that time.
            DistStoreError: The store cannot be reached.
        """
        end = end_after(self._store.timeout if timeout is None else timeout)
        pause = 0.0
        while True:
            with suppress(DistError):  # the next request has the time to reconnect
                self._store.queue_pop("wake", timeout=pause)
            job = self._take()
            if job is not None:
                return job
            left = end - time.monotonic()
            if left <= 0:
                raise QueueEmptyError(
                    f"no job became free in {self.name}{self._holders()}"
                )
            pause = min(LOOK, self.lease / RENEWALS, left)

    def unfinished(self) -> int:
        """Returns the number of jobs that wait or are with a worker.

        Raises:
            DistStoreError: The store cannot be reached.
        """
        table = self._parsed(self._read("table"))
        waiting = self._store.add("pushed", 0) - table["last"]
        return int(waiting) + len(table["free"]) + len(table["held"])

    def _holders(self) -> str:
        held = self._parsed(self._read("table"))["held"].values()
        names = ", ".join(describe(token.partition(" ")[0]) for token, _, _ in held)
        return f"; jobs are with {names}" if names else ""

    def _read(self, key: str) -> str:
        return self._store.compare_set(key, "", "").decode(errors="replace")

    def _parsed(self, raw: str) -> dict[str, Any]:
        try:
            table = json.loads(raw or '{"last": 0, "free": [], "held": {}}')
            assert {int} >= {*map(type, [table["last"], *table["free"]])}
            for number, (token, lease, _) in table["held"].items():
                assert int(number) > 0 and token.split(" ")[0].count(":") == 3
                assert lease > 0
        except (ValueError, TypeError, LookupError, AttributeError, AssertionError):
            raise DistStoreError(
                f"the key jobs/{self.name}/table does not hold what this version "
                f"writes there, but {raw[:60]!r}: another program uses it"
            ) from None
        return table  # type: ignore[no-any-return]

    def _change(self, change: Callable[[dict[str, Any]], object]) -> bool:
        """Replaces the table by what `change` makes of it, unless that returns None.

        Each change has a text of its own, by which the store's answer tells whose it
        was."""
        raw = self._read("table")
        while True:
            table = self._parsed(raw)
            if change(table) is None:
                return False
            table["change"] = urandom(8).hex()
            text = json.dumps(table)
            found = self._store.compare_set("table", raw, text).decode()
            if found == text:
                return True
            # A store also answers with what was expected if there is no such key.
            raw = found if found != raw else self._read("table")

    def _take(self) -> Job | None:
        while True:
            began, token = now(), f"{self._id.text} {urandom(8).hex()}"
            number = self._hold(token)
            if number is None:
                return None
            job = Job(self, number, token, began)
            self._renew(job)
            try:
                data = self._data(number)
            except BaseException:
                job._is_over = True  # another worker gets it after the lease
                raise
            if data is not None:
                job.data = data
                return job
            job._is_over = True
            self._let_go(number, token, is_free=False)

    def _hold(self, token: str) -> int | None:
        """Writes a free job's number into the table as this worker's."""
        found: list[int] = []

        def hold(table: dict[str, Any]) -> object:
            found[:] = self._free(table)
            for number in found:
                table["held"][str(number)] = [token, self.lease, 0]
            return found or None

        return found[0] if self._change(hold) else None

    def _let_go(self, number: int, token: str, is_free: bool) -> bool:
        """Ends a worker's hold; returns False if it has lost the job."""

        def let_go(table: dict[str, Any]) -> bool | None:
            if not _has(table, number, token):
                return None
            del table["held"][str(number)]
            if is_free:
                table["free"].append(number)
            return True

        return self._change(let_go)

    def _free(self, table: dict[str, Any]) -> list[int]:
        """Takes a free job, if there is one, out of a table: a lost worker's first."""
        lost = self._lost(table["held"])
        if lost:
            return lost[:1]
        if table["free"]:
            return [table["free"].pop(0)]
        if table["last"] >= self._store.add("pushed", 0):
            return []
        table["last"] += 1
        return [table["last"]]

    def _data(self, number: int) -> bytes | None:
        """Returns the data of a job, or None if who pushed it died before it did."""
        key = f"job/{number}"
        try:
            found = self._store.get(key, timeout=GRACE)
        except DistError:
            found = self._store.compare_set(key, "", "-")
        return None if found == b"-" else found[1:]

    def _lost(self, held: dict[str, _Holder]) -> list[int]:
        """Returns the jobs whose worker has ended, or has not renewed its lease."""
        with self._lock:
            here, lost = now(), []
            for number, holder in held.items():
                if self._seen.get(number, [None])[0] != holder:
                    self._seen[number] = holder, here
            self._seen = {number: self._seen[number] for number in held}
            if here < self._looks_at:
                return []
            self._looks_at = here + LOOK / 2
            for number, ((token, lease, _), since) in self._seen.items():
                worker = token.partition(" ")[0]
                if here - since >= lease or is_known_dead(worker, self._id.text):
                    lost.append(int(number))
        return lost

    def _renew(self, job: Job) -> None:
        """Has a thread renew the lease of a job while somebody refers to it."""
        with self._lock:
            self._jobs.add(job)
            if self._is_renewing:
                return
            self._is_renewing = True
        is_freed = threading.Event()
        weakref.finalize(self, is_freed.set)
        start_renewing(self, self.lease, self.name, is_freed)

    def _renew_once(self) -> None:
        with self._lock:
            jobs = [job for job in self._jobs if not job._is_over]
        if not jobs:
            return
        began = now()
        ours: list[Job] = []

        def renew(table: dict[str, Any]) -> object:
            ours[:] = [j for j in jobs if _has(table, j.number, j._token)]
            for job in ours:
                table["held"][str(job.number)][2] += 1
            return ours or None

        self._change(renew)
        for job in ours:
            job._renewed = began
        with self._lock:
            self._jobs -= {*jobs} - {*ours}


def _has(table: dict[str, Any], number: int, token: str) -> bool:
    return bool(table["held"].get(str(number), [""])[0] == token)
