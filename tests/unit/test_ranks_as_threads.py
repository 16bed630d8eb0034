# SPDX-License-Identifier: BSD-3-Clause
"""Several ranks in one process: groups made by hand over any store."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest

import distlite


class Dictionary(distlite.Store):
    """A store written in Python, by polling."""

    def __init__(self):
        super().__init__()
        self.below = distlite.HashStore()

    def set(self, key, value):
        self.below.set(key, value)

    def get(self, key):
        return self.below.get(key)

    def wait(self, keys, timeout=None):
        self.below.wait(keys, timeout)

    def check(self, keys):
        return self.below.check(keys)

    def delete_key(self, key):
        return self.below.delete_key(key)


class Bare(distlite.Store):
    """Neither looks for keys nor deletes any."""

    def __init__(self):
        super().__init__()
        self.below = distlite.HashStore()

    def set(self, key, value):
        self.below.set(key, value)

    def get(self, key):
        return self.below.get(key)

    def wait(self, keys, timeout=None):
        self.below.wait(keys, timeout)

    def add(self, key, amount):
        return self.below.add(key, amount)


class Broken(Dictionary):
    def set(self, key, value):
        raise KeyError("the disk is full")


def run_as_threads(function, size):
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(function, rank) for rank in range(size)]
        return [future.result(timeout=100) for future in futures]


def join(store, rank, size, seconds=60):
    return distlite.ProcessGroup(
        store, rank, size, timedelta(seconds=seconds), group_name="threads"
    )


@pytest.mark.parametrize("size", [1, 2, 5, 12])
@pytest.mark.parametrize("kind", [distlite.HashStore, Dictionary, Bare])
def test_collectives(kind, size):
    store = kind()

    def member(rank):
        group = join(store, rank, size)
        tensor = np.arange(1000.0) + rank
        distlite.all_reduce(tensor, group=group)
        small = np.array([rank])
        distlite.broadcast(small, size - 1, group)
        distlite.barrier(group)
        group.shutdown()
        return tensor, int(small[0])

    expected = np.arange(1000.0) * size + size * (size - 1) / 2
    for tensor, small in run_as_threads(member, size):
        np.testing.assert_array_equal(tensor, expected)
        assert small == size - 1


@pytest.mark.parametrize("size", [3, 12])
def test_a_rank_that_a_store_cannot_look_for_ends_the_join(size):
    """The last one does not come; in a tree of ranks only rank 5 waits for it, and
    tells the others."""
    store = Bare()

    def member(rank):
        with pytest.raises(distlite.DistError, match=f"cpu/{size - 1}"):
            join(store, rank, size, seconds=1)

    run_as_threads(member, size - 1)


def test_the_store_s_own_error_comes_through():
    with pytest.raises(KeyError, match="the disk is full"):
        join(Broken(), 0, 2)


def test_a_group_keeps_its_store_alive():
    group = join(Dictionary(), 0, 1)
    assert isinstance(group.get_group_store(), Dictionary)
    distlite.barrier(group)


def test_many_groups_over_one_store():
    store = distlite.HashStore()

    def member(rank):
        groups = [
            join(distlite.PrefixStore(f"group {number}", store), rank, 3)
            for number in range(10)
        ]
        totals = []
        for number, group in enumerate(groups):
            tensor = np.array([float(number * rank)])
            distlite.all_reduce(tensor, distlite.ReduceOp.MAX, group)
            totals.append(float(tensor[0]))
        for group in groups:
            group.shutdown()
        return totals

    assert run_as_threads(member, 3) == [[2.0 * n for n in range(10)]] * 3


def test_the_own_block_of_a_strided_output_may_be_the_input():
    store = distlite.HashStore()

    def member(rank):
        group = join(store, rank, 2)
        table = np.zeros((2, 3))
        column = table[:, 1]
        column[rank] = rank + 1
        distlite.all_gather_single(column, column[rank : rank + 1], group=group)
        assert table.tolist() == [[0, 1, 0], [0, 2, 0]]
        stack = np.zeros((2, 3, 8))[:, :, ::2]
        stack[rank] = rank + 1
        distlite.all_gather_single(stack, stack[rank], group=group)
        assert (stack[0] == 1).all() and (stack[1] == 2).all()

    run_as_threads(member, 2)


def test_empty_blocks_of_an_array_that_runs_backwards():
    store = distlite.HashStore()

    def member(rank):
        group = join(store, rank, 2)
        received = np.zeros(4)
        sizes = [[0, 3], [0, 4]][rank]
        sent = np.arange([0.0, 7.0][rank])
        distlite.all_to_all_single(
            received[: sum(sizes)][::-1], sent, sizes, [[0, 0], [3, 4]][rank], group
        )
        wanted = [[2, 1, 0, 0], [6, 5, 4, 3]][rank]
        assert received.tolist() == wanted

    run_as_threads(member, 2)
