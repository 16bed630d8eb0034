# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests that look for what is left behind."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
from group_ranks import init

import distlite


def cycle(rank: int, world_size: int) -> None:
    """A group that comes and goes, asynchronous work in it, and messages."""
    everybody = list(range(world_size))
    group = distlite.new_group(everybody)
    works = [
        distlite.all_reduce(np.zeros(size), group=group, async_op=True)
        for size in (3, 3000, 100_000)
    ]
    works[0].get_future()
    for work in works[1:]:
        work.wait()
    distlite.barrier(group)
    peer = 1 - rank
    for group_of_messages in (group, None):
        works = [
            distlite.isend(np.zeros(5000), group_dst=peer, group=group_of_messages),
            distlite.irecv(np.zeros(5000), group_src=peer, group=group_of_messages),
        ]
        for work in works:
            work.wait()
    local = distlite.new_group(everybody, use_local_synchronization=True)
    distlite.all_reduce(np.zeros(50_000), group=local)
    distlite.destroy_process_group(local)
    distlite.destroy_process_group(group)


def status(field: str) -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field))


def usage() -> dict[str, int]:
    gc.collect()
    with open("/proc/self/maps") as lines:
        mappings = sum(1 for _ in lines)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "mappings": mappings,
        "private KiB": status("RssAnon:"),
        "shared KiB": status("RssShmem:"),
    }


def cycles(
    rank: int, world_size: int, init_method: str, turns: int
) -> tuple[dict[str, int], dict[str, int]]:
    """What is in use after some cycles, and after many more."""
    init(rank, world_size, init_method)
    # Every page of the rings of the default group is in use from now on.
    works = [
        distlite.isend(np.zeros(600_000), group_dst=1 - rank),
        distlite.irecv(np.zeros(600_000), group_src=1 - rank),
    ]
    for work in works:
        work.wait()
    found: list[Any] = []
    for count in (turns // 4, turns):
        for _ in range(count):
            cycle(rank, world_size)
        distlite.barrier()
        found.append(usage())
        distlite.barrier()
    return found[0], found[1]
