# SPDX-License-Identifier: BSD-3-Clause
"""A rank whose threads use, abort, drop and destroy groups as they like: whatever they
are told, nothing crashes, nothing hangs, and nothing of it is left."""

from __future__ import annotations

import contextlib
import gc
import operator
import os
import random
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import distlite

THREADS = 3
TIMEOUT = 1.5
# One operation may wait behind a few others of the group, each of which times out.
LATE = 40.0
# Threads and descriptors that come and go; a leak is three in each round, or more.
SPARE = 2
ROUNDS = 4


def raise_something(_: Any) -> None:
    raise ZeroDivisionError("of a callback")


class Chaos:
    """What the threads of one rank share."""

    def __init__(self, groups: list[Any], seconds: float) -> None:
        self.groups = groups
        self.until = time.monotonic() + seconds
        self.works: list[Any] = []
        self.latest = 0.0
        self.wrong: list[str] = []


def use(chaos: Chaos, choice: random.Random, group: Any) -> None:
    """One operation, blocking or not, which the other ranks may or may not call."""
    size = group.size()
    count = choice.choice([0, 1, 100, 5000, 300_000])
    array = np.ones(count, np.float32)
    kind = choice.randrange(9)
    later = choice.random() < 0.6
    peer = choice.randrange(size)
    work: Any = None
    if kind == 0:
        work = distlite.all_reduce(array, group=group, async_op=later)
    elif kind == 1:
        work = distlite.broadcast(array, group=group, group_src=peer, async_op=later)
    elif kind == 2:
        outputs = [np.empty_like(array) for _ in range(size)]
        work = distlite.all_gather(outputs, array, group, later)
    elif kind == 3:
        work = distlite.barrier(group, later)
    elif kind == 4 and peer != group.rank():
        work = distlite.isend(array, group=group, group_dst=peer)
    elif kind == 5:
        work = distlite.irecv(array, group=group)
    elif kind == 6:
        distlite.all_gather_object([None] * size, {"a": array[:10]}, group)
    elif kind == 7:
        distlite.monitored_barrier(group, 0.2)
    else:
        work = distlite.reduce(array, group=group, group_dst=peer, async_op=later)
    if work is None:
        return
    how = choice.randrange(6)
    if how == 0:
        work.get_future().add_done_callback(raise_something)
    elif how == 1:
        with contextlib.suppress(RuntimeError):
            work.get_future().then(raise_something)
    elif how == 2:
        work.wait(choice.choice([0.001, 0.05]))
    elif how == 3:
        work.wait()
    elif how == 4:
        chaos.works.append(work)  # for any thread to wait for


def disturb(chaos: Chaos, choice: random.Random, group: Any) -> None:
    kind = choice.random()
    if kind < 0.02:
        group.abort()
    elif kind < 0.03:
        group.shutdown()
    elif kind < 0.1:
        gc.collect()
    elif kind < 0.3 and chaos.works:
        with contextlib.suppress(IndexError):
            chaos.works.pop(choice.randrange(len(chaos.works))).wait()
    elif kind < 0.32:
        group.set_timeout(choice.choice([0.05, TIMEOUT]))
    else:
        use(chaos, choice, group)


def run_thread(chaos: Chaos, seed: str) -> None:
    choice = random.Random(seed)
    while time.monotonic() < chaos.until:
        began = time.monotonic()
        try:
            disturb(chaos, choice, choice.choice(chaos.groups))
        except (distlite.DistError, RuntimeError, ValueError):
            pass  # what others do is told in any words
        except BaseException as error:
            chaos.wrong.append(f"{type(error).__name__}: {error}")
            raise
        chaos.latest = max(chaos.latest, time.monotonic() - began)


def thread_count() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def descriptors() -> dict[str, int]:
    """How many there are of what; sockets and the like without their numbers."""
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            what = os.readlink(f"/proc/self/fd/{name}").partition(":[")[0]
            found[what] = found.get(what, 0) + 1
    return found


def descriptor_count(has_hosts: bool) -> int:
    """Other hosts' calls for groups that have ended here stay until the world ends."""
    found = descriptors()
    return sum(found.values()) - (found.get("socket", 0) if has_hosts else 0)


def settled(count: Any, most: int) -> int:
    """What is counted, once it is at most so much, or after a while."""
    deadline = time.monotonic() + 10
    while count() > most and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    return int(count())


def run_chaos(
    rank: int,
    world_size: int,
    init_method: str,
    seed: int,
    seconds: float,
    host_of: list[int],
) -> list[str]:
    os.environ["DISTLITE_HOST_HINT"] = f"host{host_of[rank]}"
    distlite.init_process_group(
        "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    wrong: list[str] = []
    has_hosts = len(set(host_of)) > 1
    counts: list[list[int]] = []
    for number in range(ROUNDS):
        groups = [
            distlite.new_group(list(range(world_size)), timedelta(seconds=TIMEOUT))
            for _ in range(3)
        ]
        chaos = Chaos(groups, seconds)
        threads = [
            threading.Thread(
                target=run_thread, args=(chaos, f"{seed}/{rank}/{number}/{thread}")
            )
            for thread in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wrong += chaos.wrong
        if chaos.latest > LATE:
            wrong.append(f"an operation took {chaos.latest:.1f} s")
        for group in groups:
            distlite.destroy_process_group(group)
        del groups, group, threads, thread, chaos
        # The world has nothing to do with what became of the others.
        total = np.ones(5000)
        distlite.all_reduce(total)
        if total[0] != world_size:
            wrong.append(f"the sum is {total[0]}")
        # What the first round has left may stay: caches, the thread for callbacks.
        limits = [count + SPARE for count in counts[0]] if counts else [0, 0]
        counts.append(
            [
                settled(thread_count, limits[0]),
                settled(lambda: descriptor_count(has_hosts), limits[1]),
            ]
        )
        if number and any(map(operator.gt, counts[-1], limits)):
            wrong.append(f"threads, descriptors by round: {counts}: {descriptors()}")
        distlite.barrier()
    distlite.destroy_process_group()
    return wrong
