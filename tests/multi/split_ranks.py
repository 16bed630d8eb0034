# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of split: see test_split.py."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
from collective_ranks import error_of
from operations import wait_until_ahead
from reducer_ranks import join

import distlite


def parts(
    rank: int, world_size: int, init_method: str, places: str
) -> list[tuple[Any, ...]]:
    """Of each group: whom it has in which order, and what its operations give."""
    join(rank, world_size, init_method, places)
    found = []
    for color, key in (
        (rank % 2, 0),
        (-(2**63), -rank),
        (None if rank == 1 else rank // 2, 2**63 - 1 if rank == 0 else 0),
        (rank, 5),
    ):
        group = distlite.split(color, key)
        if group is None:
            found.append(())
            continue
        ranks = distlite.get_process_group_ranks(group)
        order = np.full(20_000, float(group.rank() + 1))
        distlite.scan(order, group=group)
        gathered: list[Any] = [None] * group.size()
        distlite.all_gather_object(gathered, rank, group)
        again = distlite.split(0, -group.rank(), group)
        assert again is not None
        others = distlite.get_process_group_ranks(again)
        found.append((ranks, gathered, others, order[-1], group.rank()))
    distlite.barrier()  # with the store's server goes what others join groups by
    return found


def wrong(rank: int, world_size: int, init_method: str, places: str) -> list[str]:
    join(rank, world_size, init_method, places)
    found = [
        error_of(distlite.split, "red"),
        error_of(distlite.split, 0, 0.5),
        error_of(distlite.split, 2**63),
        error_of(distlite.split, 0, None),
    ]
    distlite.barrier()
    return found


def killed(rank: int, world_size: int, init_method: str, places: str) -> str:
    join(rank, world_size, init_method, places)
    distlite.barrier()
    if rank == world_size - 1:
        wait_until_ahead(set(range(world_size - 1)))
        os.kill(os.getpid(), signal.SIGKILL)
    told = error_of(distlite.split, rank)
    path = init_method.removeprefix("file://")
    distlite.FileStore(path, world_size).barrier("told", world_size - 1, 60)
    return told
