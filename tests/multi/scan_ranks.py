# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of scan and exscan: see test_scan.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
from collective_ranks import error_of, folded, same
from group_ranks import init
from operations import wait_until_ahead

import distlite
from distlite import ReduceOp

# Small ones that all ranks get, and large ones along the chain of several pieces.
COUNTS = (0, 1, 700, 5000, 300_007)
CASES = [("float32", "SUM"), ("float16", "SUM"), ("complex64", "SUM")]


def inexact(rank: int, count: int, dtype: str) -> np.ndarray:
    """Values whose results tell in which order they were combined."""
    values = np.random.default_rng(rank).standard_normal(count)
    return (values * (1 + 0.5j) if "complex" in dtype else values).astype(dtype)


def join(rank: int, world_size: int, init_method: str, places: str) -> None:
    if len(set(places)) > 1:
        os.environ["DISTLITE_HOST_HINT"] = f"host {places[rank]}"
    init(rank, world_size, init_method)


def results(rank: int, world_size: int, init_method: str, places: str) -> list[Any]:
    """The cases whose results are not those of a loop over the ranks, to the bit."""
    join(rank, world_size, init_method, places)
    wrong: list[Any] = []
    for dtype, op in CASES:
        for count in COUNTS:
            inputs = [inexact(r, count, dtype) for r in range(world_size)]
            for function, end in ((distlite.scan, rank + 1), (distlite.exscan, rank)):
                array = np.zeros((2, count), dtype).T[:, 0]
                array[:] = inputs[rank]
                work = function(array, getattr(ReduceOp, op), async_op=True)
                work.wait()
                if not (
                    count == 0 or same(array, folded(op, inputs[:end] or inputs[:1]))
                ):
                    wrong.append((function.__name__, dtype, op, count))
    for count in (3, 5000, 100_003):
        wrong += [("PREMUL_SUM", count)] if not factors(rank, count) else []
    distlite.destroy_process_group()
    return wrong


def factors(rank: int, count: int) -> bool:
    """Each rank's own factor; read-only arrays are for rank 0 of an exscan."""
    array = np.full(count, 3.0)
    distlite.scan(array, ReduceOp.PREMUL_SUM(rank + 1.0))
    is_right = (array == 3.0 * (rank + 1) * (rank + 2) / 2).all()
    array[:] = 3
    array.flags.writeable = rank > 0
    distlite.exscan(array, ReduceOp.PREMUL_SUM(rank + 1.0))
    return bool(is_right and (array == (1.5 * rank * (rank + 1) or 3)).all())


def told_of(call: Callable[..., object], *words: Any, **options: Any) -> str:
    """What the call is told; or the next one, as few bytes wait for no later rank."""
    told = error_of(call, *words, **options)
    group = options.get("group")
    return error_of(distlite.barrier, group=group) if told == "no error" else told


def mismatch(rank: int, world_size: int, init_method: str, places: str) -> list[str]:
    """What differing calls, and wrong ones, are told."""
    join(rank, world_size, init_method, places)
    found = [error_of(distlite.scan, np.ones(2), ReduceOp.AVG)]
    for other in (distlite.all_reduce, distlite.exscan):
        group = distlite.new_group()
        call = other if rank == 1 else distlite.scan
        found.append(told_of(call, np.ones(2), group=group))
    return found


def killed(
    rank: int, world_size: int, init_method: str, places: str, count: int
) -> str:
    """What the others are told when the last rank dies while they wait for it."""
    join(rank, world_size, init_method, places)
    distlite.barrier()
    if rank == world_size - 1:
        wait_until_ahead(set(range(world_size - 1)))
        os.kill(os.getpid(), signal.SIGKILL)
    told = told_of(distlite.scan, np.ones(count))
    path = init_method.removeprefix("file://")
    distlite.FileStore(path, world_size).barrier("told", world_size - 1, 60)
    return told
