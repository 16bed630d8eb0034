# SPDX-License-Identifier: BSD-3-Clause
"""What ranks run that are each on a host of its own, or two: see test_many_hosts.py."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
import time
from datetime import timedelta

import numpy as np
from hosts_ranks import values
from wrapped_store import Wrapped

import distlite as dist
from distlite.groups import lifecycle


def _join(rank: int, size: int, init_method: str) -> dist.FileStore:
    """Every fifth host has two ranks.  The store is a file, whose server nobody is."""
    os.environ["DISTLITE_HOST_HINT"] = f"host {rank - rank // 6}"
    store = dist.FileStore(init_method.removeprefix("file://"), size)
    limit = timedelta(seconds=60)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=size, timeout=limit
    )
    dist.barrier()
    return store


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def end_before_it_shows(
    rank: int, world_size: int, init_method: str, victim: int
) -> str:
    """The victim has checked in, and is killed before others know where it is."""
    os.environ["DISTLITE_HOST_HINT"] = f"host {rank}"
    if rank == victim:
        lifecycle.make_group = _die  # type: ignore[assignment]
    try:
        dist.init_process_group(
            init_method=init_method,
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=3),
        )
    except dist.DistError as error:
        return str(error)
    return "joined"


class SlowStore(Wrapped):
    """Reads no record of a rank before all others were told."""

    def get(self, key: str) -> bytes:
        if "/cpu/" in key:
            self.below.wait(["told"])
        return self.below.get(key)


def come_too_late(rank: int, world_size: int, init_method: str, victim: int) -> str:
    """Each rank is on a host; the victim shows where it is, and never greets."""
    os.environ["DISTLITE_HOST_HINT"] = f"host {rank}"
    store = dist.FileStore(init_method.removeprefix("file://"), world_size)
    own: dist.Store = SlowStore(store) if rank == victim else store
    try:
        dist.init_process_group(
            store=own, rank=rank, world_size=world_size, timeout=timedelta(seconds=3)
        )
    except dist.DistError as error:
        if rank != victim and store.add("number", 1) == world_size - 1:
            store.set("told", "")
        return str(error)
    return "joined"


class Waiting(Wrapped):
    """Waits as the store below it does."""

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        self.below.wait(keys, timeout)


class Polling(Wrapped):
    """Waits in Python."""

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        end = time.monotonic() + timeout.total_seconds()
        while not self.below.check(keys):
            if time.monotonic() > end:
                raise dist.DistStoreError("a key is not there")
            time.sleep(0.01)


class LastWord(Wrapped):
    """Its process dies in place of telling which ranks of its host it has reached."""

    def set(self, key: str, value: bytes) -> None:
        if "/apart/" in key:
            _die()
        self.below.set(key, value)


def end_before_it_tells(
    rank: int, world_size: int, init_method: str, victim: int, kind: str
) -> str:
    """Each two ranks are on a host, and the victim leads one.  `kind`: how the stores
    of the others wait."""
    kinds = {"waiting": Waiting, "polling": Polling}
    os.environ["DISTLITE_HOST_HINT"] = f"host {rank // 2}"
    store: dist.Store = dist.FileStore(init_method.removeprefix("file://"), world_size)
    if rank == victim:
        store = LastWord(store)
    elif kind in kinds:
        store = kinds[kind](store)
    try:
        dist.init_process_group(store=store, rank=rank, world_size=world_size)
    except dist.DistError as error:
        return str(error)
    return "joined"


class DyingStore(Wrapped):
    """Its process dies some time after it has begun to gather records."""

    def __init__(self, below: dist.Store, seconds: float) -> None:
        super().__init__(below)
        self.seconds = seconds

    def add(self, key: str, amount: int) -> int:
        if "/gathering/" in key:
            end = threading.Timer(self.seconds, _die)
            end.daemon = True
            end.start()
        return self.below.add(key, amount)


def end_at_some_time(
    rank: int, world_size: int, init_method: str, victim: int, seconds: float
) -> str:
    """Each four ranks are on a host, and share a table of all ranks."""
    os.environ["DISTLITE_HOST_HINT"] = f"host {rank // 4}"
    store: dist.Store = dist.FileStore(init_method.removeprefix("file://"), world_size)
    if rank == victim:
        store = DyingStore(store, seconds)
    try:
        dist.init_process_group(store=store, rank=rank, world_size=world_size)
    except dist.DistError as error:
        return str(error)
    return "joined"


class StoppingStore(Wrapped):
    """Its process is stopped when it has read the last record of a neighbour and begins
    to gather those of all, or some time later."""

    def __init__(self, below: dist.Store, last: int, seconds: float) -> None:
        super().__init__(below)
        self.last = f"/cpu/{last}"
        self.is_begun = False
        self.timer = threading.Timer(seconds, _stop)
        self.timer.daemon = True

    def get(self, key: str) -> bytes:
        value = self.below.get(key)
        if key.endswith(self.last) and not self.is_begun:  # it may be read again
            self.is_begun = True
            self.below.set("pid", str(os.getpid()))
            if self.timer.interval == 0:
                _stop()
            else:
                self.timer.start()
        return value


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_at_some_time(
    rank: int, world_size: int, init_method: str, victim: int, seconds: float
) -> str:
    """Each four ranks are on a host; the last that was told continues the victim."""
    os.environ["DISTLITE_HOST_HINT"] = f"host {rank // 4}"
    file = dist.FileStore(init_method.removeprefix("file://"), world_size)
    child = 2 * rank + 2
    last = child if child < world_size else (rank - 1) // 2
    store: dist.Store = StoppingStore(file, last, seconds) if rank == victim else file
    text = "joined"
    try:
        dist.init_process_group(
            store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=6)
        )
    except dist.DistError as error:
        text = str(error)
    if rank == victim:
        file.set("continues", "")
    elif file.add("number", 1) == world_size - 1:
        pid = int(file.get("pid"))
        while not file.check(["continues"]):
            with contextlib.suppress(ProcessLookupError):  # it ends meanwhile
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.02)
    return text


def count_sent(port: int) -> tuple[int, int]:
    """Segments with data, of which each is a request, and bytes both ways of this
    process's connections to the port."""
    segments = size = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as end:
                if end.family != socket.AF_INET or end.getpeername()[1] != port:
                    continue
                facts = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
                size += sum(struct.unpack_from("QQ", facts, 120))
                segments += struct.unpack_from("I", facts, 156)[0]
    return segments, size


def count_requests(
    rank: int, world_size: int, port: int, prefix: str, locals_: int, late: float
) -> tuple[int, int]:
    """What joining takes of the store: requests, and bytes both ways.  The last rank
    comes so many seconds late."""
    os.environ["DISTLITE_HOST_HINT"] = f"host {rank // locals_}"
    with dist.TCPStore("127.0.0.1", port) as store:
        store.barrier(f"begin/{prefix}", world_size)
        before = count_sent(port)
        time.sleep(late if rank == world_size - 1 else 0)
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore(prefix, store),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=60),
        )
        after = count_sent(port)
        dist.barrier()
        dist.destroy_process_group()
    return after[0] - before[0], after[1] - before[1]


def move_and_reduce(rank: int, world_size: int, init_method: str, dtype: str) -> None:
    """Small arrays, which other leaders pass on, and large ones, against NumPy."""
    _join(rank, world_size, init_method)
    ranks = range(world_size)
    for count in (1, 7, 5_000, 40_000):
        every = [values(r, count, dtype) for r in ranks]
        array = every[rank].copy()
        dist.all_reduce(array)
        np.testing.assert_array_equal(array, np.stack(every).sum(0, dtype=dtype))
        root = count % world_size
        array = every[rank].copy()
        dist.reduce(array, root, op=dist.ReduceOp.MAX)
        wanted = np.stack(every).max(0) if rank == root else every[rank]
        np.testing.assert_array_equal(array, wanted)
        array = every[rank].copy()
        dist.broadcast(array, root)
        np.testing.assert_array_equal(array, every[root])
        blocks = [np.zeros(count, dtype) for _ in ranks]
        dist.all_gather(blocks, every[rank])
        np.testing.assert_array_equal(np.stack(blocks), np.stack(every))
        sent = [values(rank, count, dtype, salt) for salt in ranks]
        got = np.zeros(count, dtype)
        dist.reduce_scatter(got, sent)
        wanted = np.stack([values(r, count, dtype, rank) for r in ranks])
        np.testing.assert_array_equal(got, wanted.sum(0, dtype=dtype))
    dist.destroy_process_group()


def average(rank: int, world_size: int, init_method: str) -> list[list[int]]:
    """Means and sums that are not exact; the bits of the results."""
    _join(rank, world_size, init_method)
    noise = np.random.default_rng(rank).standard_normal(20_003).astype("float32")
    bits = []
    for op in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
        for count in (3, 20_003):
            array = noise[:count].copy()
            dist.all_reduce(array, op=op)
            every = [np.zeros(count, "float32") for _ in range(world_size)]
            dist.all_gather(every, noise[:count])
            exact = np.stack(every).astype("float64").sum(0)
            exact /= world_size if op == dist.ReduceOp.AVG else 1
            np.testing.assert_allclose(array, exact, atol=1e-5)
            bits.append(array.view("uint32").tolist())
    dist.destroy_process_group()
    return bits


def fail(
    rank: int, world_size: int, init_method: str, victim: int, how: str, seconds: float
) -> str:
    """What a rank is told of the victim, which comes to none of the reductions."""
    is_absent = how in ("late", "stopped")
    store = _join(rank, world_size, init_method)
    if is_absent:
        dist.group.WORLD.set_timeout(seconds)
    try:
        if rank == victim and how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif rank == victim and how == "left":
            dist.destroy_process_group()
            raise RuntimeError("left")
        elif rank == victim and how == "late":
            store.wait(["told"])
        elif rank == victim and how == "stopped":
            store.set("pid", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
            return "stopped"
        elif rank == victim:
            dist.broadcast(np.zeros(3), 0)
        while True:
            dist.all_reduce(np.zeros(3))
    except (dist.DistBackendError, RuntimeError) as error:
        # Others must not learn what they are told from this rank's end.
        told = world_size - (is_absent or how == "killed")
        if rank != victim or how != "late":
            if store.add("number", 1) == told:
                store.set("told", "")
                if how == "stopped":
                    os.kill(int(store.get("pid")), signal.SIGCONT)
            store.wait(["told"])
        return str(error)
