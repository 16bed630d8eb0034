# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of shared arrays."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
from group_ranks import init

import distlite
from distlite import ReduceOp

EXACT = [np.float32, np.float16]


def pattern(count: int, dtype: Any, rank: int) -> np.ndarray:
    """Small numbers, different at each place and rank, whose sums are exact."""
    return (np.arange(count) % 13 + 3 * rank).astype(dtype)


def total(count: int, dtype: Any, size: int) -> np.ndarray:
    return sum(pattern(count, dtype, rank) for rank in range(size)).astype(dtype)


def sums(sharers: Any = None, group: Any = None) -> None:
    """all_reduce of views into arrays that are shared on the ranks `sharers`."""
    rank, size = distlite.get_rank(group), distlite.get_world_size(group)
    for dtype in EXACT:
        for count in (1, 1000, 70_001, 300_001):
            is_shared = sharers is None or rank in sharers
            make = distlite.shared_zeros if is_shared else np.zeros
            whole = make(count + 5, dtype)
            view = whole[2 : 2 + count]
            for _ in range(2):
                view[:] = pattern(count, dtype, rank)
                distlite.all_reduce(view, group=group)
                np.testing.assert_array_equal(view, total(count, dtype, size))
            assert not whole[:2].any() and not whole[2 + count :].any()


def everything(rank: int, world_size: int, init_method: str) -> None:
    init(rank, world_size, init_method)
    sums()
    sums(sharers=[0])
    sums(sharers=[world_size - 1])
    pair = distlite.new_group([0, 1])
    if rank < 2:
        sums(group=pair)
    other_operations(rank, world_size)
    asynchronous(world_size)


def other_operations(rank: int, size: int) -> None:
    array = distlite.shared_zeros((300, 1000), np.float32)
    array[:] = rank
    distlite.broadcast(array, 1)
    assert (array == 1).all()
    distlite.all_reduce(array.T, ReduceOp.MAX)
    distlite.all_reduce(array[:, ::2], ReduceOp.AVG)
    assert (array == 1).all()
    gathered = distlite.shared_zeros((size * 300, 1000), np.float32)
    distlite.all_gather_single(gathered, array)
    assert (gathered == 1).all()
    for sharers in (range(size), [0], range(1, size)):
        moved(rank, size, rank in sharers)
        reduced(rank, size, rank in sharers)


def block(source: int, destination: int) -> np.ndarray:
    return np.arange(70_001) % 1009 + 10_000 * source + 100_000 * destination


def blocks(is_shared: bool, values: list[np.ndarray]) -> list[np.ndarray]:
    """Arrays of their own, or views into them."""
    make = distlite.shared_zeros if is_shared else np.zeros
    arrays = [make(len(value) + 3, np.int64)[2:-1] for value in values]
    for array, value in zip(arrays, values, strict=True):
        array[:] = value
    return arrays


def moved(rank: int, size: int, is_shared: bool) -> None:
    ranks = range(size)
    equal = np.testing.assert_array_equal
    mine = blocks(is_shared, [block(rank, to) for to in ranks])
    got = blocks(is_shared, [block(9, 9)] * size)
    distlite.all_to_all(got, mine)
    equal(got, [block(source, rank) for source in ranks])
    mixed = [mine[0], *(array.copy() for array in mine[1:])]
    distlite.all_to_all(got, mixed if rank == 0 else mine)
    equal(got, [block(source, rank) for source in ranks])
    distlite.all_gather(got, mine[0])
    equal(got, [block(source, 0) for source in ranks])
    distlite.scatter(got[0], mine if rank == 1 else None, 1)
    equal(got[0], block(1, rank))
    distlite.gather(mine[1], got if rank == 1 else None, 1)
    if rank == 1:
        equal(got, [block(source, 1) for source in ranks])
    whole = blocks(is_shared, [np.concatenate(mine), np.zeros(size * 70_001)])
    distlite.all_to_all_single(whole[1], whole[0])
    equal(whole[1], np.concatenate([block(source, rank) for source in ranks]))


def reduced(rank: int, size: int, is_shared: bool) -> None:
    ranks = range(size)
    mine = blocks(is_shared, [block(rank, to) for to in ranks])
    (got,) = blocks(is_shared, [block(9, 9)])
    wanted = sum(block(source, rank) for source in ranks)
    distlite.reduce_scatter(got, mine)
    np.testing.assert_array_equal(got, wanted)
    (whole,) = blocks(is_shared, [np.concatenate(mine)])
    distlite.reduce_scatter_single(got, whole)
    np.testing.assert_array_equal(got, wanted)
    distlite.reduce(mine[0], 1, ReduceOp.MAX)
    np.testing.assert_array_equal(mine[0], block(size - 1 if rank == 1 else rank, 0))


def asynchronous(size: int) -> None:
    works = []
    for turn in range(4):
        array = distlite.shared_zeros(200_000)
        array += turn
        works.append(distlite.all_reduce(array, async_op=True))
        del array
    for turn, work in enumerate(works):
        work.wait()
        assert (work.result()[0] == turn * size).all()


def after_the_group(
    rank: int, world_size: int, init_method: str
) -> tuple[float, float, bytes]:
    """The memory outlives the group, serves another one, and forked children."""
    init(rank, world_size, init_method)
    array = distlite.shared_zeros(500_000, np.float32)
    array += 1
    distlite.all_reduce(array)
    distlite.destroy_process_group()
    first = float(array[-1])
    init(rank, world_size, init_method)
    distlite.all_reduce(array)
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.write(write_end, b"%d" % array[0])
        os._exit(0)
    os.wait()
    seen = os.read(read_end, 10)
    os.close(read_end)
    os.close(write_end)
    return first, float(array[-1]), seen


def shared_kilobytes() -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if "RssShmem" in line)


def mapped() -> int:
    with open("/proc/self/maps") as lines:
        return sum(1 for _ in lines)


def churn(rank: int, world_size: int, init_method: str) -> list[tuple[int, int, int]]:
    """Memory, mappings and descriptors after so many arrays have come and gone."""
    init(rank, world_size, init_method)
    found = []
    for turn in range(80):
        array = distlite.shared_zeros(1 << 18, np.float32)
        distlite.all_reduce(array)
        view = array[1:]
        del array
        view[0] = 1
        del view
        if turn in (39, 79):
            distlite.barrier()
            gc.collect()
            fds = len(os.listdir("/proc/self/fd"))
            found.append((shared_kilobytes(), mapped(), fds))
            distlite.barrier()
    return found
