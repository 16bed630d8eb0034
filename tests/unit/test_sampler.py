# SPDX-License-Identifier: BSD-3-Clause
"""DistributedSampler where torch is not; tests/parity has the comparison."""

from __future__ import annotations

import pytest

import distlite
from distlite.data_parallel.sampler import permutation


@pytest.fixture
def sampler_of():
    def make(size: int, *arguments: object, **named: object):
        return distlite.data_parallel.DistributedSampler(
            range(size), *arguments, **named
        )

    return make


def test_the_orders_are_those_that_torch_has():
    assert permutation(10, 0) == [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
    assert permutation(10, 7) == [5, 0, 3, 4, 1, 7, 9, 6, 8, 2]
    assert permutation(5, 2**32) == permutation(5, 0) == [4, 0, 1, 3, 2]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100])
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_every_sample_is_somebodys(sampler_of, size, ranks):
    shares = [list(sampler_of(size, ranks, rank)) for rank in range(ranks)]
    assert len({len(share) for share in shares}) == 1
    assert {index for share in shares for index in share} == set(range(size))


@pytest.mark.parametrize("size", [1, 7, 8, 100])
def test_drop_last_repeats_nothing(sampler_of, size):
    shares = [sampler_of(size, 3, rank, drop_last=True) for rank in range(3)]
    indices = [index for share in shares for index in share]
    assert len(indices) == len(set(indices)) == size - size % 3 == 3 * len(shares[0])


def test_an_epoch_has_an_order_of_its_own(sampler_of):
    sampler = sampler_of(100, 2, 1, seed=3)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(sampler) == list(sampler_of(100, 2, 1, seed=4))


def test_without_shuffling_samples_are_dealt_out(sampler_of):
    assert list(sampler_of(5, 2, 1, shuffle=False)) == [1, 3, 0]


@pytest.mark.parametrize(("ranks", "rank"), [(2, 2), (2, -1), (0, 0)])
def test_a_rank_that_is_none(sampler_of, ranks, rank):
    with pytest.raises(ValueError, match=f"Invalid rank {rank}, rank should be in"):
        sampler_of(5, ranks, rank)


def test_the_group_is_the_default(sampler_of):
    with pytest.raises(ValueError, match="Default process group has not been"):
        sampler_of(5)
    distlite.init_process_group(store=distlite.HashStore(), rank=0, world_size=1)
    try:
        sampler = sampler_of(5)
    finally:
        distlite.destroy_process_group()
    assert (sampler.num_replicas, sampler.rank) == (1, 0)
