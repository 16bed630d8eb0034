# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in test_late.py."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np
from deadlock_ranks import join

import distlite as dist


def miss(
    rank: int,
    world_size: int,
    path: str,
    hints: str,
    late: list[int],
    is_busy: bool,
    limit: float = 1.5,
) -> str:
    """The `late` ranks do not come to a collective of a group with a timeout: what the
    others raise."""
    join(rank, world_size, path, hints, 60.0)
    group = dist.new_group(timeout=timedelta(seconds=limit))
    store = dist.distributed_c10d._get_default_store()
    dist.barrier(group=group)
    told = [f"told/{each}" for each in range(world_size) if each not in late]
    text = ""
    if rank not in late:
        try:
            dist.all_reduce(np.ones(3), group=group)
        except dist.DistBackendError as error:
            text = str(error)
    elif is_busy:
        work = dist.irecv(np.ones(4), src=0, tag=7)
    store.set(f"told/{rank}", b"")
    # A wait in the store would be what the rank does.
    while not store.check(told):
        time.sleep(0.02)
    if is_busy and rank in late:
        work.wait()
    elif is_busy and rank == 0:
        for each in late:
            dist.send(np.ones(4), dst=each, tag=7)
    return text


def miss_messages(rank: int, world_size: int, path: str, hints: str) -> list[str]:
    """No message of rank 0's many receives with one timeout comes: what it raises, and
    the seconds that passed."""
    join(rank, world_size, path, hints, 60.0)
    group = dist.new_group(timeout=timedelta(seconds=1))
    store = dist.distributed_c10d._get_default_store()
    dist.barrier(group=group)
    texts = []
    if rank == 0:
        begun = time.monotonic()
        arrays = [np.ones(4) for _ in range(400)]
        works = [dist.irecv(each, src=1, group=group) for each in arrays]
        for work in works:
            try:
                work.wait()
            except dist.DistBackendError as error:
                texts.append(str(error))
        texts.append(str(time.monotonic() - begun))
        store.set("told/0", b"")
    while not store.check(["told/0"]):
        time.sleep(0.02)
    return texts
