# SPDX-License-Identifier: BSD-3-Clause
"""The other launchers of a job on several nodes, for the launcher of one node.

They meet in a store, served by one of them, which the ranks use as well.  A thread of
each launcher writes a beat there, and reads that of the next node and what has
happened; it wakes the loop over the ranks through a pipe, so that the loop never waits
for the network.

What a node asks of the store does not grow with the number of nodes: the last one to
come reads what all have written, and leaves the others its sum; each watches only the
node after it, and leaves a word for all others when that is lost.

Keys, below "launch/": job (its name), nnodes, node/<n> (ranks, restarts, host),
come/<n> (a bit for each of COUNTED nodes from n on), come (how many of these are
complete), all (what node/<n> add up to), met (how many know that this is an error),
beat/<n>, and of each attempt ready/<k> and ended/<k> (how many nodes are), failure/<k>
(what ended it: ENDED, FAILED, CHANGED or OVER, whichever comes first, and a text),
told/<k> (a word for each of these that all have to know), and seen/<k> (how many nodes
have read how it ended).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

from distlite._C import DistError, DistStoreError, PrefixStore, Store, TCPStore
from distlite.launch.environment import Place
from distlite.launch.options import Options

LIMIT_VARIABLE = "DISTLITE_HEARTBEAT_TIMEOUT"
LEAST_LIMIT, DEFAULT_LIMIT = 0.2, 5.0
# Seconds between two beats; a limit is at least ten of them.  In a large job they are
# longer, so that one server can answer all nodes, and a limit at least five of them.
BEAT_TIME = 0.2
BEATS_PER_SECOND = 5000
# Nodes that have a bit in one counter.
COUNTED = 62
# Seconds for the node that serves the store to name the job there; in a store that no
# node serves, the first node to come names it.
HOST_TIME = 2.0
# What the nodes have in common if it is not the number of restarts.
DIFFERENT = "different restarts"
# How an attempt ends: all ranks complete it; or not all do, because of a failure, which
# counts against --max-restarts, because other nodes are to take part in the next, or
# because there is no next.
ENDED, FAILED, CHANGED, OVER = "ended", "failed", "changed", "over"


class Failure(Exception):
    """The job cannot go on; the text is for the user."""


class Nodes:
    """This node's connection to the others, until `close`, which lets them read the
    last report."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._limit = _limit()
        self.fd, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Written by the caller's thread only, and read by the other one.
        self._attempt = -1
        self._own_failure: tuple[int, str, str] | None = None
        self._ended_here = -1
        self._is_closing = False
        # Whether the job has ended without this node, which has waited for a place.
        self.was_spare = False
        # Written by the other thread only, and read by the caller's.
        self.place: Place | None = None
        self._is_host = self._has_joined = False
        self._ready = self._ended = -1
        self._counted = {"ready": -1, "ended": -1}
        self._verdicts: dict[int, tuple[str, str]] = {}
        self._lost: str | None = None
        self._seen: set[int] = set()
        self._count = 0  # of beats
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        self._wake.set()
        # A node that is still looking for the others has told them nothing.
        self._thread.join(self._limit if self._has_joined else 0)

    @property
    def serves_store(self) -> bool:
        """Returns whether the store is in this process; known once there is a place."""
        return self._is_host

    @property
    def is_over(self) -> bool:
        """Returns whether another attempt would be useless."""
        return self._lost is not None

    @property
    def attempt(self) -> int:
        """Returns the number of the attempt for which all nodes are ready."""
        return self._attempt

    @property
    def size(self) -> int:
        """Returns how many nodes take part."""
        return self._options.nnodes

    def restarts_left(self, attempt: int) -> int:
        """Returns how often all ranks may be started again after the attempt that
        follows this one; negative if none may follow."""
        return self._options.max_restarts - 1 - attempt

    def begin(self, attempt: int) -> None:
        """Tells the others that this node is ready for an attempt."""
        self._attempt = attempt
        self._wake.set()

    def are_ready(self) -> bool:
        """Returns whether all nodes are ready."""
        return self._ready == self._attempt

    def end(self, attempt: int) -> None:
        """Tells the others that all ranks of this node have succeeded."""
        self._ended_here = attempt
        self._wake.set()

    def have_ended(self, attempt: int) -> bool:
        """Returns whether all ranks of all nodes have succeeded."""
        return self._ended == attempt

    def fail(self, attempt: int, text: str, leaves: bool = False) -> None:
        """Tells the others of a failure on this node, which with `leaves` takes no part
        in another attempt; the first one of all nodes counts."""
        self._own_failure = attempt, self._kind_of_leaving() if leaves else FAILED, text
        self._wake.set()

    def take_failure(self, attempt: int) -> str | None:
        """Returns the failure that has ended an attempt on another node."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)
        if self._ended == attempt:
            return None  # the store may have gone since
        return self._lost or self._verdicts.get(attempt, (None, None))[1]

    def has_verdict(self, attempt: int) -> bool:
        """Returns whether it is known to all nodes what has ended an attempt."""
        return attempt in self._verdicts

    def _kind_of_leaving(self) -> str:
        return OVER

    def _tell(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_end, b"!")

    def _run(self) -> None:
        try:
            self._join()
            self._has_joined = True
            pause = beat_time(self._options.max_nodes, self._limit)
            while not self._is_done():
                self._wake.wait(pause)
                self._wake.clear()
                self._beat()
        except Failure as failure:
            self._lost = str(failure)
            if self._is_host and self.place is not None:
                self._tell()
                with contextlib.suppress(DistError):
                    self._wait_for_readers(f"seen/{self._attempt}", less=1)
        except DistError as error:
            where = f"{self._options.address}:{self._options.port}"
            self._lost = f"the job's store at {where} is lost: {error}"
        except Exception as error:
            # Whatever ends this thread must wake the loop over the ranks, which would
            # wait forever.
            self._give_up(error)
        self._tell()

    def _give_up(self, error: Exception) -> None:
        """Ends the job: the store holds what no launcher of this version writes."""
        where = f"{self._options.address}:{self._options.port}"
        why = f"{type(error).__name__}: {error}"
        self._lost = f"the job's store at {where} holds values of other programs: {why}"
        text = f"node {host(self._options)}: {self._lost}"
        attempt = max(0, self.attempt)
        with contextlib.suppress(DistError, AttributeError):
            self._store.compare_set(f"failure/{attempt}", "", f"{OVER} {text}")
            self._store.append(f"told/{attempt}", "failed ")

    def _is_done(self) -> bool:
        """Returns whether the thread may end: the last report has been stored and, if
        this node serves the store, been read by all others."""
        if not self._is_closing:
            return False
        if not self._is_host:
            return self._own_failure is None
        return self._store.add(f"seen/{self._attempt}", 0) >= self._options.nnodes - 1

    def _join(self) -> None:
        options = self._options
        self._store = PrefixStore("launch", self._find_store())
        self._check_job()
        node = self._take_place()
        about = f"{options.nproc_per_node} {options.max_restarts} {host(options)}"
        self._store.set(f"beat/{node}", "0")
        self._store.set(f"node/{node}", about)
        told = self._wait_for_all(node).decode()
        if told == DIFFERENT:
            self._store.add("met", 1)
            if self._is_host:
                self._wait_for_readers("met")
            raise Failure("the nodes were given different --max-restarts")
        runs = [map(int, run.split("x")) for run in told.split()]
        counts = [count for many, count in runs for _ in range(many)]
        self._next = (node + 1) % options.nnodes
        self._beat_of_next, self._heard = b"", time.monotonic()
        self.place = Place(options.run_id, options.port, counts, node)

    def _check_job(self) -> None:
        """Checks that this node belongs to the job."""
        options = self._options
        where, count = f"{options.address}:{options.port}", options.size_text
        if not self._is_host:
            # The node that serves the store, if one does, writes first.
            with contextlib.suppress(DistStoreError):
                self._store.wait(["job"], min(HOST_TIME, options.join_timeout))
        name = self._store.compare_set("job", "", options.run_id).decode()
        if name != options.run_id:
            raise Failure(
                f"the nodes at {where} run the job {name!r}, but this one runs "
                f"{options.run_id!r} (--rdzv-id)"
            )
        told = self._store.compare_set("nnodes", "", count).decode()
        if told != count:
            raise Failure(
                f"the job at {where} has {told} nodes, but this one was given {count} "
                f"({'--nnodes, --spares' if options.is_open else '--nnodes'})"
            )

    def _find_store(self) -> Store:
        from distlite.launch.master import await_name

        options = self._options
        where = f"{options.address}:{options.port}"
        if options.second is None or options.hosts_store:
            await_name(options.address, options.join_timeout)
        if options.second is not None:
            # The standby may serve it already.
            may_host = options.hosts_store is True
        elif options.arrives:
            may_host = options.hosts_store is not False
        else:
            may_host = options.node_rank == 0
        if may_host:
            try:
                return self._serve((options.address, options.port))
            except (Failure, ValueError) as error:  # a journal, or a malformed token
                if options.second is None:
                    raise Failure(str(error)) from None
                text = f"distlite: {error}: looking for the standby"
                print(text, file=sys.stderr, flush=True)
            except (OSError, DistError) as error:
                if not options.arrives or options.hosts_store:
                    reason = getattr(error, "strerror", None)
                    text = reason or f"cannot listen on {where}: {error}"
                    raise Failure(text) from None
        try:
            store = TCPStore(
                options.address,
                options.port,
                timeout=options.join_timeout,
                tls=options.tls,
            )
        except ValueError as error:
            raise Failure(str(error)) from None
        except DistError as error:
            raise Failure(f"no other node's launcher at {where}: {error}") from None
        return store

    def _serve(self, where: tuple[str, int]) -> TCPStore:
        from distlite.launch.master import listen_for_nodes

        options = self._options
        with listen_for_nodes(*where) as listener:
            try:
                store = TCPStore(
                    *where,
                    is_master=True,
                    wait_for_workers=False,
                    timeout=options.join_timeout,
                    master_listen_fd=listener.detach(),
                    tls=options.tls,
                    journal=options.journal,
                    # What is acknowledged is there on another host, too.
                    journal_sync="interval" if options.second is None else "always",
                )
            except (OSError, DistError) as error:
                if options.journal is None:
                    raise
                raise Failure(f"--rdzv-conf journal: {error}") from None
        self._is_host = True
        return store

    def _take_place(self) -> int:
        nnodes = self._options.nnodes
        if not self._options.arrives:
            node = self._options.node_rank
            if self._store.add(f"taken/{node}", 1) > 1:
                raise Failure(f"another launcher is node {node} already (--node-rank)")
            return node
        node = self._store.add("arrived", 1) - 1
        if node >= nnodes:
            raise Failure(f"the job has its {nnodes} nodes already (--nnodes)")
        return node

    def _wait_for_all(self, node: int) -> bytes:
        """Returns what the nodes have in common."""
        try:
            if self._count_in(node):
                return self._sum_up()
            return self._store.get("all", timeout=self._options.join_timeout)
        except DistError as error:
            if missing := self._missing():
                raise Failure(
                    f"after {self._options.join_timeout:g} s node(s) "
                    f"{', '.join(map(str, missing))} of {self._options.nnodes} have "
                    f"not joined at {self._options.address}:{self._options.port}"
                ) from error
            # The last one has come, and is gone before it could say so.
            return self._sum_up()
        finally:
            self._store.set_timeout(self._limit)

    def _count_in(self, node: int) -> bool:
        """Returns whether this is the last node to come."""
        first, bits = self._bits_of(node)
        if self._store.add(f"come/{first}", 1 << node - first) != bits:
            return False
        return self._store.add("come", 1) == -(-self._options.nnodes // COUNTED)

    def _bits_of(self, node: int) -> tuple[int, int]:
        """Returns the first node whose bit is in the same counter, and all its bits."""
        first = node - node % COUNTED
        return first, (1 << min(COUNTED, self._options.nnodes - first)) - 1

    def _missing(self) -> list[int]:
        missing = []
        for first in range(0, self._options.nnodes, COUNTED):
            bits = self._bits_of(first)[1] & ~self._store.add(f"come/{first}", 0)
            missing += [first + i for i in range(COUNTED) if bits >> i & 1]
        return missing

    def _sum_up(self) -> bytes:
        """Tells all nodes how many ranks each has: "2x8 1x4" are two nodes of eight and
        one of four."""
        keys = [f"node/{n}" for n in range(self._options.nnodes)]
        nodes = [n.decode().split(" ", 2) for n in self._store.multi_get(keys)]
        runs: list[list[int]] = []
        for count, _, _ in nodes:
            if runs and runs[-1][1] == int(count):
                runs[-1][0] += 1
            else:
                runs.append([1, int(count)])
        are_alike = len({restarts for _, restarts, _ in nodes}) == 1
        told = " ".join(f"{many}x{count}" for many, count in runs)
        return self._store.compare_set("all", "", told if are_alike else DIFFERENT)

    def _wait_for_readers(self, key: str, less: int = 0) -> None:
        """Waits until all nodes, less some, have read what is wrong, before the store
        ends; the key counts them."""
        deadline = time.monotonic() + self._limit
        count = self._options.nnodes - less
        while self._store.add(key, 0) < count and time.monotonic() < deadline:
            time.sleep(BEAT_TIME / 10)

    def _beat(self) -> None:
        assert self.place is not None
        self._count += 1
        self._store.set(f"beat/{self.place.node}", str(self._count))
        attempt = self._attempt
        if attempt < 0:
            return
        self._count_here("ready", attempt, attempt)
        self._count_here("ended", attempt, self._ended_here)
        self._report_failure(attempt)
        keys = [f"beat/{self._next}", f"told/{attempt}"]
        beat, told = self._store.multi_get(keys)
        if attempt not in self._seen:
            self._read(attempt, told.decode().split())
            self._check_beat(attempt, beat)

    def _count_here(self, what: str, attempt: int, here: int) -> None:
        """Counts this node once."""
        if self._counted[what] == attempt or here != attempt:
            return
        self._counted[what] = attempt
        is_last = self._store.add(f"{what}/{attempt}", 1) == self.size
        if is_last and what == "ended":
            self._end_for_all(attempt, ENDED)
        elif is_last or what == "ready":
            # From now on the key exists.
            self._store.append(f"told/{attempt}", f"{what} " if is_last else "")

    def _read(self, attempt: int, words: list[str]) -> None:
        """Learns what all nodes have to know."""
        if "failed" in words:
            self._take_verdict(attempt, self._store.get(f"failure/{attempt}"))
        if "ready" in words and self._ready != attempt:
            self._ready = attempt
            self._tell()
        if "ended" in words:
            self._take_verdict(attempt, ENDED.encode())

    def _take_verdict(self, attempt: int, value: bytes) -> None:
        kind, _, text = value.decode().partition(" ")
        self._mark_seen(attempt)
        if kind == OVER:
            raise Failure(text)
        if kind == ENDED:
            self._ended = attempt
        else:
            self._verdicts[attempt] = kind, text
        self._tell()

    @property
    def place_number(self) -> int:
        """Returns this node's number."""
        assert self.place is not None
        return self.place.node

    def _report_failure(self, attempt: int) -> None:
        own = self._own_failure
        if own is not None:
            text = f"node {self.place_number} ({host(self._options)}): {own[2]}"
            self._end_for_all(own[0], own[1], text)
            # Unless `fail` has stored another one meanwhile.
            if self._own_failure is own:
                self._own_failure = None

    def _end_for_all(self, attempt: int, kind: str, text: str = "") -> None:
        """Ends an attempt on all nodes, unless something else did so before."""
        first = self._store.compare_set(f"failure/{attempt}", "", f"{kind} {text}")
        # Not by the first one alone, which may be gone before it does.
        word = "ended " if first.startswith(ENDED.encode()) else "failed "
        self._store.append(f"told/{attempt}", word)
        self._take_verdict(attempt, first)

    def _mark_seen(self, attempt: int) -> None:
        if attempt not in self._seen:
            self._seen.add(attempt)
            if not self._is_host:
                self._store.add(f"seen/{attempt}", 1)

    def _check_beat(self, attempt: int, beat: bytes) -> None:
        now = time.monotonic()
        if beat != self._beat_of_next:
            self._beat_of_next, self._heard = beat, now
        elif now - self._heard > self._limit and attempt not in self._seen:
            about = self._store.get(f"node/{self._next}").decode()
            name = about.split(" ", 2)[2]
            text = (
                f"node {self._next} ({name}) is lost: no sign of life for "
                f"{self._limit:g} s"
            )
            self._store.add(f"seen/{attempt}", 1)  # by the one that reads no more
            self._end_for_all(attempt, OVER, text)


def beat_time(nnodes: int, limit: float) -> float:
    """Returns the seconds between two beats of a node."""
    least = min(BEAT_TIME, limit / 10)
    return max(least, min(nnodes / BEATS_PER_SECOND, limit / 5))


def host(options: Options) -> str:
    """Returns the name of this node's host, for the others."""
    return options.local_address or os.uname().nodename


def _limit() -> float:
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return DEFAULT_LIMIT
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not LEAST_LIMIT <= limit <= threading.TIMEOUT_MAX:
        raise OSError(
            f"{LIMIT_VARIABLE}={text} is not a number of seconds, {LEAST_LIMIT} or more"
        )
    return limit
