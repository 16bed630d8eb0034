# SPDX-License-Identifier: BSD-3-Clause
"""The other launchers of a job whose nodes come and go.

A launcher takes a number, and the one that serves the store waits at its end for the
others. With `--on-failure continue`, who takes part and who waits as a spare is decided
by the ranks in the records of their world (distlite.elastic), and a node that is lost
is no failure. With restarts, rounds.py decides it.

Keys, below "launch/": job, nnodes and alike (told by the first), arrived (how many have
begun to come), came and over (the numbers of those that have come, and that have left
in order), beat/<n>, node/<n> (its ranks and its host), journal (whether the store may
come back).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from distlite._C import DistError, PrefixStore
from distlite.launch.environment import Place
from distlite.launch.nodes import Failure, Nodes, host
from distlite.launch.options import Options


class OpenNodes(Nodes):
    """This node's connection to the store that all of them use."""

    _has_failed = False
    _is_refused = False  # to serve the store that is lost

    def __init__(self, options: Options) -> None:
        # Of the nodes that have not left: their last beats, and since when.
        self._beats: dict[int, tuple[bytes, float]] = {}
        super().__init__(options)

    def are_ready(self) -> bool:
        """Returns whether as many nodes have come as the job needs."""
        return self.place is not None

    def have_ended(self, attempt: int) -> bool:
        """Returns whether no other node needs the store of this one any more."""
        return not self._is_host or self._ended == attempt

    def fail(self, attempt: int, text: str, leaves: bool = False) -> None:
        """Tells nobody: the others go on."""
        self._has_failed = True

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        path = self._options.journal
        if self._is_host and path is not None:
            with contextlib.suppress(OSError, DistError):
                if self._is_job_over():
                    # The next job would find this one at its end.
                    os.unlink(path)

    def _is_job_over(self) -> bool:
        """Returns whether nothing of the journal is needed any more."""
        return self._ended == self._attempt and not self._has_failed

    @property
    def place_number(self) -> int:
        """Returns this node's number, which no other node ever has."""
        return self._number

    def _join(self) -> None:
        options = self._options
        self._store = PrefixStore("launch", self._find_store())
        if self._is_host and options.journal:
            self._store.set("journal", "")  # before the others are let in
        self._check_job()
        self._check_alike()
        self._may_come_back = self._store.check(["journal"])
        number = self._number = self._store.add("arrived", 1) - 1
        self._store.append("over", "")  # from now on the key exists
        self._store.set(f"beat/{number}", "0")
        self._store.set(f"node/{number}", f"{options.nproc_per_node} {host(options)}")
        self._store.append("came", f"{number} ")
        self._settle_in()
        self._store.set_timeout(self._limit)
        self._heard = time.monotonic()
        self._tell()

    def _check_alike(self) -> None:
        self._compare("alike", self._options.nproc_per_node, "--nproc-per-node")

    def _compare(self, key: str, own: int, option: str) -> None:
        """Checks that this node was given the same number as the first one."""
        told = self._store.compare_set(key, "", str(own)).decode()
        if told != str(own):
            raise Failure(
                f"the nodes of the job have {option} {told}, but this one was given "
                f"{own}"
            )

    def _settle_in(self) -> None:
        """Waits until as many nodes have come as the job needs, and takes a place."""
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
        nodes = max(options.nnodes, self._number + 1)
        counts = [options.nproc_per_node] * nodes
        self.place = Place(options.run_id, options.port, counts, self._number)

    def _beat(self) -> None:
        try:
            self._count += 1
            self._store.set(f"beat/{self._number}", self._words())
            self._act()
        except DistError:
            # Ranks need the store for the next epoch or restart only. Whoever starts
            # its launcher again has as long as a node has to join.
            silence = time.monotonic() - self._heard
            if self._options.is_standby and not self._is_host:
                self._take_over()
            elif not self._may_come_back or silence > self._options.join_timeout:
                raise
        else:
            self._heard, self._is_refused = time.monotonic(), False

    def _words(self) -> str:
        """Returns what this node tells of itself; it differs from beat to beat."""
        return str(self._count)

    def _act(self) -> None:
        ends = self._ended_here == self._attempt >= 0
        if self._is_host and ends and not self._others():
            self._ended = self._attempt
            self._tell()

    def _others(self) -> dict[int, bytes]:
        """Returns the last beats of all other nodes that have come and are neither over
        nor silent for too long; for the node that serves the store."""
        came, over = self._store.multi_get(["came", "over"])
        left = {self._number, *map(int, over.split())}
        numbers = [n for n in map(int, came.split()) if n not in left]
        if not numbers:
            return {}
        beats = self._store.multi_get([f"beat/{n}" for n in numbers])
        now, before = time.monotonic(), self._beats
        found = dict(zip(numbers, beats, strict=True))
        self._beats = {
            n: before[n] if before.get(n, (b"",))[0] == beat else (beat, now)
            for n, beat in found.items()
        }
        return {n: b for n, b in found.items() if now - self._beats[n][1] < self._limit}

    def _take_over(self) -> None:
        """Serves the store that is lost, if the address and the journal are free."""
        options, silence = self._options, time.monotonic() - self._heard
        address, port = options.second or (options.address, options.port)
        if options.journal is not None and not os.path.exists(options.journal):
            # A new one would be that of a job which has not begun.
            raise Failure(
                "the job's store is lost, and its journal is gone: the job has ended"
            )
        try:
            self._store = PrefixStore("launch", self._serve((address, port)))
        except (Failure, OSError, DistError, ValueError) as error:
            if silence > options.join_timeout:
                raise Failure(f"the job's store is lost: {error}") from error
            if not self._is_refused:
                say(f"the job's store is lost, and cannot be served here yet: {error}")
            self._is_refused = True
            return
        self._store.set_timeout(self._limit)
        say(f"this node now serves the job's store at {address}:{port}")

    def _is_done(self) -> bool:
        if not self._is_closing:
            return False
        self._store.append("over", f"{self._number} ")
        return True


def say(text: str) -> None:
    """Prints a line on stderr, by the thread that must not wait for the ranks' loop."""
    print(f"distlite: {text}", file=sys.stderr, flush=True)
