# SPDX-License-Identifier: BSD-3-Clause
"""The other launchers of a job whose nodes come and go (`--on-failure continue`).

Who takes part, and who waits as a spare, is decided by the ranks in the records of
their world (distlite.elastic). So launchers only take a number each, and the one that
serves the store waits at its end for the others: one that is lost is no failure.

Keys, below "launch/": job, nnodes and nproc (told by the first), arrived (how many have
come), node/<n>, beat/<n> and over/<n> (in order), journal (whether the store may come
back).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from distlite._C import DistError, PrefixStore
from distlite.launch.environment import Place
from distlite.launch.nodes import Failure, Nodes


class OpenNodes(Nodes):
    """This node's connection to the store that all of them use."""

    _has_failed = False

    def are_ready(self) -> bool:
        """Returns whether as many nodes have come as the job needs."""
        return self.place is not None

    def have_ended(self, attempt: int) -> bool:
        """Returns whether no other node needs the store of this one any more."""
        return not self._is_host or self._ended == attempt

    def fail(self, attempt: int, text: str) -> None:
        """Tells nobody: the others go on."""
        self._has_failed = True

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        path = self._options.journal
        is_done = self._ended == self._attempt and not self._has_failed
        if self._is_host and path is not None and is_done:
            # The next job would find the work of this one done.
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _join(self) -> None:
        options = self._options
        self._store = PrefixStore("launch", self._find_store())
        if self._is_host and options.journal:
            self._store.set("journal", "")  # before the others are let in
        self._check_job()
        self._may_come_back = self._store.check(["journal"])
        count = str(options.nproc_per_node)
        told = self._store.compare_set("nproc", "", count).decode()
        if told != count:
            raise Failure(
                f"the nodes of the job have {told} ranks each, but this one was given "
                f"{count} (--nproc-per-node)"
            )
        node = self._store.add("arrived", 1) - 1
        self._store.set(f"node/{node}", "")
        self._wait_for_enough()
        self._store.set_timeout(self._limit)
        self._changes: dict[int, tuple[int, float]] = {}  # what changed last, and when
        self._heard = time.monotonic()
        nodes = max(options.nnodes, node + 1)
        counts = [options.nproc_per_node] * nodes
        self.place = Place(options.run_id, self._port, counts, node)
        self._tell()

    def _wait_for_enough(self) -> None:
        options = self._options
        try:
            last = f"node/{options.nnodes - 1}"
            self._store.wait([last], options.join_timeout)
        except DistError as error:
            raise Failure(
                f"after {options.join_timeout:g} s {self._store.add('arrived', 0)} of "
                f"at least {options.nnodes} nodes have joined at "
                f"{options.address}:{options.port}"
            ) from error

    def _beat(self) -> None:
        try:
            self._store.add(f"beat/{self.place_number}", 1)
            if self._is_host and self._ended_here == self._attempt >= 0:
                self._look_for_others()
        except DistError:
            # Ranks need the store for the next epoch only. Whoever starts its launcher
            # again has as long as a node has to join.
            silence = time.monotonic() - self._heard
            if self._options.is_standby and not self._is_host:
                self._take_over()
            elif not self._may_come_back or silence > self._options.join_timeout:
                raise
        else:
            self._heard = time.monotonic()

    def _take_over(self) -> None:
        """Serves the store that is lost, if the address and the journal are free."""
        silence = time.monotonic() - self._heard
        try:
            self._store = PrefixStore("launch", self._serve())
        except (Failure, OSError, DistError) as error:
            if silence > self._options.join_timeout:
                raise Failure(f"the job's store is lost: {error}") from error
            return
        self._store.set_timeout(self._limit)
        where = f"{self._options.address}:{self._options.port}"
        text = f"distlite: this node now serves the job's store at {where}"
        print(text, file=sys.stderr, flush=True)

    def _look_for_others(self) -> None:
        """Finds out whether all other nodes have ended or are lost."""
        now, busy = time.monotonic(), False
        for node in range(self._store.add("arrived", 0)):
            if node == self.place_number or self._store.check([f"over/{node}"]):
                continue
            beat = self._store.add(f"beat/{node}", 0)
            before, since = self._changes.get(node, (-1, now))
            if beat != before:
                since = now
            self._changes[node] = beat, since
            busy = busy or now - since <= self._limit
        if not busy:
            self._ended = self._attempt
            self._tell()

    def _is_done(self) -> bool:
        if not self._is_closing:
            return False
        self._store.set(f"over/{self.place_number}", "")
        return True
