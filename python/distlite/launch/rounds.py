# SPDX-License-Identifier: BSD-3-Clause
"""The other launchers of a job whose ranks are restarted with the nodes that are there
(`--nnodes MIN:MAX` with `--on-failure restart`).

Each attempt has a record of the nodes that take part.  The node that serves the store
writes it, of those whose beats say that they wait, and ends the attempt when one of
them is lost or has left, or when others are to take part.  What it has to know for that
is in the store, so that a standby can go on.  How ranks end and fail is told as between
a fixed number of nodes.

Keys, below "launch/", beside those of nodes.py and open_nodes.py: round (the record of
the last attempt; at the end OVER, and what is wrong).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from distlite.launch.environment import Place
from distlite.launch.nodes import CHANGED, ENDED, FAILED, OVER, Nodes, host
from distlite.launch.open_nodes import OpenNodes, say


class Round:
    """An attempt: "3 1 0:8 2:4" is number 3, after one failure, and takes place on node
    0 with eight ranks and node 2 with four."""

    def __init__(self, record: str) -> None:
        number, failures, *nodes = record.split() or ["-1", "0"]
        self.number, self.failures = int(number), int(failures)
        pairs = (node.split(":") for node in nodes)
        self.ranks = {int(node): int(count) for node, count in pairs}


class Rounds(OpenNodes):
    """This node's connection to the store, and its part in the attempts."""

    _round = -1  # the last attempt in which this node takes part
    _failures = 0  # before that
    _nodes: Sequence[int] = ()  # of it
    _is_told = False  # the user, that this node waits
    have_ended = Nodes.have_ended

    @property
    def attempt(self) -> int:
        """Returns the number of the last attempt in which this node takes part."""
        return self._round

    @property
    def size(self) -> int:
        """Returns how many nodes take part in that attempt."""
        return len(self._nodes)

    @property
    def _is_waiting(self) -> bool:
        return self._attempt > self._round and not (self._is_closing or self._lost)

    def are_ready(self) -> bool:
        """Returns whether this node is to start its ranks, or will never be."""
        return self._round >= self._attempt >= 0 or self.was_spare

    def restarts_left(self, attempt: int) -> int:
        """Returns how many failures may follow that of an attempt, if it was one."""
        kind, _ = self._verdicts[attempt]
        return self._options.max_restarts - self._failures - (kind == FAILED)

    def fail(self, attempt: int, text: str, leaves: bool = False) -> None:
        """Tells the others of a failure, if this node takes part."""
        if attempt == self._round:
            Nodes.fail(self, attempt, text, leaves)

    def _kind_of_leaving(self) -> str:
        return OVER if self._is_host else CHANGED

    def _is_job_over(self) -> bool:
        # One that was refused has the journal of a job that may go on.
        over = OVER.encode()
        return self._has_joined and self._store.get("round").startswith(over)

    def _check_alike(self) -> None:
        self._compare("alike", self._options.max_restarts, "--max-restarts")

    def _settle_in(self) -> None:
        self._store.compare_set("round", "", "")  # from now on the key exists
        self._idle_since = self._short_since = time.monotonic()

    def _words(self) -> str:
        """Returns the number of the beat and, of a node that waits, that of the first
        attempt for which it does."""
        return f"{self._count} {self._attempt if self._is_waiting else ''}"

    def _act(self) -> None:
        if self._is_host:
            self._lead()
        if self._is_waiting:
            self._enter(self._store.get("round").decode())
        elif self._round >= 0:
            self._take_part(self._round)

    def _take_part(self, attempt: int) -> None:
        self._count_here("ended", attempt, self._ended_here)
        self._report_failure(attempt)
        if attempt not in self._seen:
            self._read(attempt, self._store.get(f"told/{attempt}").decode().split())

    def _take_verdict(self, attempt: int, value: bytes) -> None:
        if attempt != self._round:
            return  # this node only leads it
        kind, _, text = value.decode().partition(" ")
        self._seen.add(attempt)
        if kind == ENDED:
            self._ended = attempt
        else:
            self._verdicts[attempt] = kind, text
        if kind == OVER:
            self._lost = text
        self._tell()

    def _mark_seen(self, attempt: int) -> None:
        self._seen.add(attempt)

    def _enter(self, record: str) -> None:
        """Takes the place that the record of the last attempt has for this node."""
        kind, _, text = record.partition(" ")
        if kind == OVER:
            self._lost, self.was_spare = text or None, not text
            self._tell()
            return
        found = Round(record)
        if found.number < self._attempt:
            return
        nodes = list(found.ranks)
        if self._number in nodes:
            if gone := [n for n in self._nodes if n not in nodes]:
                say(f"goes on without {self._names(gone)}")
            options, counts = self._options, list(found.ranks.values())
            self._failures, self._nodes = found.failures, nodes
            number = nodes.index(self._number)
            self.place = Place(options.run_id, options.port, counts, number)
            self._round, self._is_told = found.number, False
            self._tell()
        elif self._places(len(nodes) + 1) == len(nodes) and not self._is_told:
            self._is_told = True
            say(f"the job has its {len(nodes)} nodes; this one waits")

    def _places(self, count: int) -> int:
        """Returns how many of so many nodes take part."""
        options = self._options
        return min(options.max_nodes, max(options.nnodes, count - options.spares))

    def _lead(self) -> None:
        """Begins and ends attempts, for all nodes."""
        record = self._store.get("round").decode()
        if record.startswith(OVER):
            return
        last, verdict = Round(record), ""
        if last.ranks:
            key = f"failure/{last.number}"
            verdict = self._store.compare_set(key, "", "").decode()
        waits = {n: waits_in(n, beat, last) for n, beat in self._others().items()}
        waits[self._number] = self._is_waiting
        if last.ranks and not verdict:
            self._watch(last, waits)
        else:
            self._begin_next(last, verdict, waits)

    def _watch(self, last: Round, waits: dict[int, bool]) -> None:
        """Ends the attempt if a node is missing, or a further one has a place."""
        self._idle_since = time.monotonic()
        ended, count = self._store.add(f"ended/{last.number}", 0), len(last.ranks)
        if ended == count:
            self._end_for_all(last.number, ENDED)
            return
        further = sorted(n for n in waits if waits[n] and n not in last.ranks)
        missing = [n for n in last.ranks if n not in waits]
        if missing:
            has_left = str(missing[0]) in self._store.get("over").decode().split()
            why = f"is lost: no sign of life for {self._limit:g} s"
            kind, why = (CHANGED, "has left") if has_left else (FAILED, why)
            self._end_for_all(last.number, kind, f"{self._names(missing[:1])} {why}")
        elif further and not ended and self._places(count + len(further)) > count:
            text = f"{self._names(further)} can take part"
            self._end_for_all(last.number, CHANGED, text)

    def _begin_next(self, last: Round, verdict: str, waits: dict[int, bool]) -> None:
        """Begins an attempt once all nodes of the last one that live have ended it, and
        enough of them wait."""
        options, now = self._options, time.monotonic()
        kind, _, text = verdict.partition(" ")
        failures = last.failures + (kind == FAILED)
        if kind == ENDED:
            self._store.set("round", OVER)
            return
        if kind == OVER or failures > options.max_restarts:
            self._end_job(text)
            return
        if not all(waits.get(n, True) for n in last.ranks):
            self._idle_since = now
            return
        waiting = sorted(n for n in waits if waits[n])
        if len(waiting) < options.nnodes:
            self._short_since = now
            if now - self._idle_since > options.join_timeout:
                self._end_job(self._shortage(last, waiting))
            return
        # At first further nodes may be on their way.
        is_full = last.ranks or len(waiting) >= options.max_nodes
        if not is_full and now - self._short_since < options.last_call:
            return
        chosen = waiting[: self._places(len(waiting))]
        nodes = self._store.multi_get([f"node/{n}" for n in chosen])
        ranks = [about.decode().split(" ")[0] for about in nodes]
        pairs = " ".join(f"{n}:{count}" for n, count in zip(chosen, ranks, strict=True))
        number = last.number + 1
        self._store.append(f"told/{number}", "")  # from now on the key exists
        self._store.set("round", f"{number} {failures} {pairs}")

    def _shortage(self, last: Round, waiting: list[int]) -> str:
        options = self._options
        missing = [n for n in last.ranks if n not in waiting]
        return (
            f"after {options.join_timeout:g} s {len(waiting)} of at least "
            f"{options.nnodes} nodes have joined at {options.address}:{options.port}"
            + (f"; {self._names(missing)} did not come back" if missing else "")
        )

    def _names(self, nodes: list[int]) -> str:
        """Returns the numbers and hosts of nodes."""
        about = self._store.multi_get([f"node/{n}" for n in nodes])
        hosts = [value.decode().split(" ", 1)[1] for value in about]
        pairs = zip(nodes, hosts, strict=True)
        return ", ".join(f"node {node} ({name})" for node, name in pairs)

    def _end_job(self, text: str) -> None:
        """Ends the job, for nodes that take part and for those that wait."""
        record = self._store.get("round").decode()
        if not record.startswith(OVER):
            self._store.set("round", f"{OVER} {text}")
            if (number := Round(record).number) >= 0:
                self._end_for_all(number, OVER, text)

    def _is_done(self) -> bool:
        if not self._is_closing or self._own_failure is not None:
            return False
        if self._is_host:
            if self._ended == self._round >= 0:
                self._store.set("round", OVER)
            self._lead()  # the job may be at its end for another reason
            own = f"node {self._number} ({host(self._options)})"
            self._end_job(f"{own}, which serves the job's store, has ended")
            if self._others():
                return False
        return super()._is_done()


def waits_in(node: int, beat: bytes, last: Round) -> bool:
    """Returns whether a node waits for an attempt after the last one; the beat of one
    that has been lost since may be older than that."""
    words = beat.split()[1:]
    return bool(words) and (node not in last.ranks or int(words[0]) > last.number)
