# SPDX-License-Identifier: BSD-3-Clause
"""DistributedSampler gives the indices that torch's gives, for equal arguments."""

from __future__ import annotations

import itertools
import random

import pytest

from distlite.data_parallel import DistributedSampler
from distlite.data_parallel.sampler import permutation

torch = pytest.importorskip("torch", reason="torch is not installed")
data = pytest.importorskip("torch.utils.data")

SIZES = (0, 1, 2, 3, 7, 8, 9, 100, 1797)
RANKS = (1, 2, 3, 8, 11)
# Both ends of what a seed may be, and where 32 bits do not suffice.
SEEDS = (0, 1, 2**31, 2**32 - 1, 2**32, 2**40 + 3, 2**63, 2**64 - 1)
NEGATIVE_SEEDS = (-1, -5, -(2**32), -(2**40), -(2**63))


def theirs_of(count: int, seed: int) -> list[int]:
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.randperm(count, generator=generator).tolist()


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_rank_has_torchs_indices(shuffle, drop_last):
    for size, ranks, seed in itertools.product(SIZES, RANKS, (0, 5)):
        for rank in range(ranks):
            samplers = [
                kind(range(size), ranks, rank, shuffle, seed, drop_last)
                for kind in (DistributedSampler, data.DistributedSampler)
            ]
            for epoch in (0, 1, 30):
                for sampler in samplers:
                    sampler.set_epoch(epoch)
                ours, theirs = samplers
                assert list(ours) == list(theirs), (size, ranks, seed, rank, epoch)
                assert len(ours) == len(theirs)
            for name in ("num_samples", "total_size", "epoch", "num_replicas"):
                assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("seed", SEEDS + NEGATIVE_SEEDS)
def test_permutations_of_any_seed(seed):
    for count in (*SIZES, 2**16, 2**16 + 1):
        assert permutation(count, seed) == theirs_of(count, seed)


def test_permutations_of_many_sizes_and_seeds():
    draw = random.Random(4)
    for _ in range(200):
        count, seed = draw.randrange(3000), draw.randrange(-(2**63), 2**64)
        assert permutation(count, seed) == theirs_of(count, seed), (count, seed)


@pytest.mark.parametrize("count", [2**20 - 1, 2**20, 2**20 + 7])
def test_permutations_of_large_sets(count):
    assert permutation(count, 3) == theirs_of(count, 3)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 1.5])
def test_what_is_no_seed_is_refused_as_there(seed):
    with pytest.raises((ValueError, RuntimeError)):
        theirs_of(5, seed)
    with pytest.raises((ValueError, TypeError)):
        permutation(5, seed)


@pytest.mark.parametrize("arguments", [(2, 2), (2, -1), (0, 0)])
def test_a_wrong_rank_is_told_in_torchs_words(arguments):
    with pytest.raises(ValueError) as theirs:
        data.DistributedSampler(range(5), *arguments)
    with pytest.raises(ValueError) as ours:
        DistributedSampler(range(5), *arguments)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(("drop_last", "size"), [(False, 13), (True, 7)])
def test_a_data_set_that_has_changed_is_told(drop_last, size):
    for kind in (DistributedSampler, data.DistributedSampler):
        samples = list(range(10))
        sampler = kind(samples, 3, 1, drop_last=drop_last)
        samples[:] = range(size)
        with pytest.raises(AssertionError):
            list(sampler)


@pytest.mark.parametrize(("drop_last", "size"), [(False, 7), (True, 13)])
def test_a_data_set_that_still_suffices_is_taken(drop_last, size):
    orders = []
    for kind in (DistributedSampler, data.DistributedSampler):
        samples = list(range(10))
        sampler = kind(samples, 3, 1, drop_last=drop_last)
        samples[:] = range(size)
        orders.append(list(sampler))
    assert orders[0] == orders[1]


def test_a_loader_takes_it():
    sampler = DistributedSampler(range(10), 2, 1, seed=1)
    loader = data.DataLoader(range(10), batch_size=2, sampler=sampler)
    assert [i for batch in loader for i in batch.tolist()] == list(sampler)
