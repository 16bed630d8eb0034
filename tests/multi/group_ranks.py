# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of groups.  Does not import pytest: every rank pays."""

from __future__ import annotations

import hashlib
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import distlite
from distlite import ReduceOp, distributed_c10d as c10d

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
# Empty, one, odd, more than a cache line, more than a page.
COUNTS = (0, 1, 3, 17, 1000, 65_537)
# Several rounds of any slot, with an uneven rest.
LARGE = 1_300_003
REDUCE = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}


def init(rank: int, world_size: int, init_method: str, seconds: float = 60) -> None:
    distlite.init_process_group(
        "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=seconds),
    )


def values_of(rank: int, count: int, dtype: str) -> np.ndarray:
    """Different for every rank, offset and order of ranks; near 1, for products."""
    index = np.arange(count, dtype=np.int64)
    if dtype in INTEGERS:
        return ((index * 7 + rank * 13) % 97 - 48).astype(dtype)
    return (1 + ((index * 7 + rank * 13) % 97) / 1009).astype(dtype)


def expected_of(op: str, world_size: int, count: int, dtype: str) -> np.ndarray:
    inputs = [values_of(rank, count, dtype) for rank in range(world_size)]
    total = inputs[0].copy()
    for values in inputs[1:]:
        total = REDUCE["SUM" if op == "AVG" else op](total, values)
    return total / np.asarray(world_size, dtype) if op == "AVG" else total


def cases() -> list[tuple[str, str, int]]:
    large = [("float32", "SUM"), ("float64", "AVG"), ("int64", "MAX")]
    return [
        (dtype, op, count)
        for dtype in FLOATS + INTEGERS
        for op in OPS
        if not (op == "AVG" and dtype in INTEGERS)
        for count in (*COUNTS, *([LARGE] if (dtype, op) in large else []))
    ]


def all_reduce_grid(rank: int, world_size: int, init_method: str) -> tuple[list, str]:
    """What differs from NumPy, and a digest of all results."""
    init(rank, world_size, init_method)
    wrong, digest = [], hashlib.sha256()
    for dtype, op, count in cases():
        tensor = values_of(rank, count, dtype)
        distlite.all_reduce(tensor, getattr(ReduceOp, op))
        expected = expected_of(op, world_size, count, dtype)
        exact = dtype in INTEGERS or op in ("MIN", "MAX")
        tolerance = 0 if exact else 1e-5 if dtype == "float32" else 1e-12
        if not np.allclose(tensor, expected, rtol=tolerance, atol=0):
            wrong.append((dtype, op, count))
        digest.update(tensor.tobytes())
    distlite.destroy_process_group()
    return wrong, digest.hexdigest()


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


BROADCAST_DTYPES = ("float32", "int64", "bool", "uint8", "float16", "complex128", "S3")


def broadcast_grid(rank: int, world_size: int, init_method: str) -> list:
    """What differs from what the root had."""
    init(rank, world_size, init_method)
    wrong = []
    for root in range(world_size):
        for dtype in BROADCAST_DTYPES:
            for count in COUNTS:
                numbers = [(np.arange(count) * 5 + r * 3) % 89 for r in (rank, root)]
                tensor, expected = (values.astype(dtype) for values in numbers)
                distlite.broadcast(tensor, src=root)
                if tensor.tobytes() != expected.tobytes():
                    wrong.append((root, dtype, count))
    big = np.arange(LARGE) * (rank + 1)
    distlite.broadcast(big, group_src=world_size - 1)
    if not np.array_equal(big, np.arange(LARGE) * world_size):
        wrong.append("big")
    read_only = np.arange(5.0) + rank
    read_only.flags.writeable = rank != 0
    distlite.broadcast(read_only, 0)
    if not np.array_equal(read_only, np.arange(5.0)):
        wrong.append("read-only root")
    distlite.destroy_process_group()
    return wrong


def barrier_orders(
    rank: int, world_size: int, init_method: str, folder: str
) -> list[int]:
    """How many ranks had come to each barrier when it let this one through."""
    init(rank, world_size, init_method)
    seen = []
    for turn in range(world_size):
        if rank == turn:
            time.sleep(0.05)  # late, so that the others come to wait
        (Path(folder) / f"{turn}-{rank}").touch()
        distlite.barrier()
        seen.append(len(list(Path(folder).glob(f"{turn}-*"))))
    distlite.destroy_process_group()
    return seen


def many_rounds(rank: int, world_size: int, init_method: str, rounds: int) -> int:
    """Small and middling operations in turn; the number of wrong results."""
    init(rank, world_size, init_method)
    wrong = 0
    for turn in range(rounds):
        tensor = np.full(1 + turn * 37 % 3000, float(rank + turn))
        distlite.all_reduce(tensor)
        total = world_size * turn + world_size * (world_size - 1) / 2
        wrong += int((tensor != total).any())
        root = turn % world_size
        distlite.broadcast(tensor, root)
        if turn % 5 == 0:
            distlite.barrier()
    distlite.destroy_process_group()
    return wrong


def threads_at_once(rank: int, world_size: int, init_method: str) -> int:
    """Calls of several threads on one group; the number of wrong results."""
    init(rank, world_size, init_method)
    wrong = []

    def call() -> None:
        for _ in range(50):
            tensor = np.ones(300)
            distlite.all_reduce(tensor)
            wrong.append(int((tensor != world_size).any()))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    distlite.destroy_process_group()
    assert len(wrong) == 200
    return sum(wrong)


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
