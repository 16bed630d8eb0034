# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of groups.  Does not import pytest: every rank pays."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import numpy as np

import distlite
from distlite import ReduceOp, distributed_c10d as c10d


def init(rank: int, world_size: int, init_method: str, seconds: float = 60) -> None:
    distlite.init_process_group(
        "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=seconds),
    )


def all_reduce_special(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Values that a kernel may get wrong."""
    init(rank, world_size, init_method)
    infinity = float("inf")
    columns = {
        "overflow": np.array([2**31 - 1], np.int32),
        "infinity": np.array([infinity if rank == 0 else 1.0, -infinity]),
        "nan": np.array([np.nan if rank == world_size - 1 else 1.0, 2.0]),
        "scalar": np.array(rank + 1.0),
        "matrix": np.full((3, 5), rank + 1.0, np.float32),
        "gaps": np.full(2000, rank + 1.0)[::2],
        "mixed": np.full((300, 7), rank + 1.0, order="CF"[rank % 2]),
        "unaligned": np.zeros(8 * 900 + 1, np.uint8)[1:].view("f8"),
    }
    columns["unaligned"][:] = rank + 1
    for tensor in columns.values():
        distlite.all_reduce(tensor)
    extremes = np.array([np.nan if rank == 0 else 1.0, 2.0, np.nan])
    for op in "MIN", "MAX":
        columns[op] = extremes.copy()
        distlite.all_reduce(columns[op], getattr(ReduceOp, op))
    distlite.destroy_process_group()
    return columns


def two_groups(rank: int, world_size: int, init_method: str) -> list[float]:
    """One thread per group: a blocked group does not delay the other."""
    init(rank, world_size, init_method)
    store = distlite.PrefixStore("other", distlite.group.WORLD.get_group_store())
    other = distlite.ProcessGroup(store, rank, world_size, group_name="other")
    done = threading.Event()
    tensor = np.ones(10)

    def blocked() -> None:
        distlite.all_reduce(tensor)
        done.set()

    thread = threading.Thread(target=blocked)
    if rank == 0:
        thread.start()
    results = []
    for _ in range(20):
        # Before the last call: after it the other rank may let the blocked one go.
        assert not done.is_set()
        small = np.ones(10)
        distlite.all_reduce(small, group=other)
        results.append(float(small[0]))
    if rank != 0:
        thread.start()
    thread.join()
    results.append(float(tensor[0]))
    distlite.destroy_process_group()
    other.shutdown()
    return results


def sum_of_ranks(rank: int, world_size: int) -> float:
    tensor = np.array([float(rank)])
    distlite.all_reduce(tensor)
    distlite.barrier()
    return float(tensor[0])


def of_two_jobs(rank: int, world_size: int, folder: str) -> list[object]:
    """Ranks 0 and 1 are one job, rank 2 is another; a group joins them, as trainers and
    actors are joined."""
    job, own, size = (0, rank, 2) if rank < 2 else (1, 0, 1)
    distlite.init_process_group(
        "gloo", f"file://{folder}/job{job}", 60, rank=own, world_size=size
    )
    store = distlite.FileStore(f"{folder}/both", 3)
    joined, _ = c10d._new_process_group_helper(
        3, rank, [], "gloo", store, "both", timeout=timedelta(seconds=60)
    )
    c10d._world.pg_group_ranks[joined] = {i: i for i in range(3)}
    weights = np.array([rank + 1.0])
    distlite.broadcast(weights, src=2, group=joined)
    objects = [None] * 3
    distlite.all_gather_object(objects, (job, own), group=joined)
    total = np.array([1.0])
    distlite.all_reduce(total)
    distlite.destroy_process_group(joined)
    distlite.destroy_process_group()
    return [weights.tolist(), objects, total.tolist()]


def made_by_hand(rank: int, world_size: int, folder: str) -> list[object]:
    """A group that knows its ranks, and a backend that is registered in it, which meet
    at one store, as model servers make theirs."""
    keys = distlite.PrefixStore("m", distlite.FileStore(f"{folder}/store", world_size))
    group = distlite.ProcessGroup(keys, rank, world_size)
    native = distlite.ProcessGroupGloo(keys, rank, world_size, timedelta(seconds=60))
    group._set_default_backend(distlite.ProcessGroup.BackendType.GLOO)
    native._set_sequence_number_for_group()
    kind = distlite.ProcessGroup.BackendType.GLOO
    group._register_backend("cpu", kind, native)
    group._set_group_name("by hand")
    c10d._register_process_group("by hand", group)
    total = np.array([rank + 1.0])
    distlite.all_reduce(total, group=c10d._resolve_process_group("by hand"))
    sizes = (3, 1, 40_000, 0, 7)
    arrays = [np.full(size, 10.0 * rank + i) for i, size in enumerate(sizes)]
    arrays.append(np.full(5, rank, np.int16))
    distlite._broadcast_coalesced(native, arrays, 256, 1)
    arrived = [sorted(set(array.tolist())) for array in arrays]
    calls = native._get_sequence_number_for_group()
    c10d._unregister_process_group("by hand")
    group.shutdown()
    return [total.tolist(), arrived, calls]


def of_split_and_merged(rank: int, world_size: int, folder: str) -> list[object]:
    """Only the members of a part call; then all parts and the rest become one again."""
    world = distlite.group.WORLD
    assert world is not None
    assert world.split_group([(rank + 1) % 4]) is None
    part = world.split_group([0, 2] if rank % 2 == 0 else [1, 3], 60, group_desc="part")
    assert part is not None
    total = np.array([float(rank)])
    part.allreduce(total).wait()
    again = part.split_group([part.rank()], group_name=f"own{rank}")
    assert again is not None and again.group_name == f"own{rank}"
    store = distlite.FileStore(f"{folder}/merge", 4)
    merged = part.merge_remote_group(store, 4, 60, "all", "merged")
    sums = np.array([float(rank)])
    merged.allreduce(sums).wait()
    try:
        part.merge_remote_group(store, 4, 60, "all")
        raise AssertionError("the store was used twice")
    except ValueError as error:
        text = str(error)
    return [total.tolist(), part.rank(), merged.rank(), sums.tolist(), text]
