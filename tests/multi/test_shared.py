# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory that the ranks of a host reach in place."""

import numpy as np
import pytest
import shared_ranks
from workers import run_ranks

import distlite
from distlite import HashStore, ProcessGroup


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_operations(size):
    run_ranks(shared_ranks.everything, size)


def test_they_outlive_their_group():
    assert run_ranks(shared_ranks.after_the_group, 2) == [(2.0, 4.0, b"4")] * 2


def test_nothing_is_left_behind():
    for before, after in run_ranks(shared_ranks.churn, 2):
        assert after[0] <= before[0] + 4096
        assert after[1] <= before[1] + 4
        assert after[2] <= before[2]


@pytest.fixture
def alone():
    return ProcessGroup(HashStore(), 0, 1)


def test_alone(alone):
    array = distlite.shared_zeros((2, 3), group=alone)
    assert (array.shape, array.dtype, array.sum()) == ((2, 3), np.float64, 0)
    array += 1
    distlite.all_reduce(array, group=alone)
    assert distlite.shared_zeros(0, group=alone).shape == (0,)
    assert distlite.shared_zeros((), "f4", alone).shape == ()
    for shape in ([2, 3], np.array([2, 3]), (np.int8(2), np.uint64(3)), range(2, 4)):
        assert distlite.shared_zeros(shape, group=alone).shape == (2, 3)


def test_outside():
    assert distlite.shared_zeros(3, np.int8, -100).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (((2, -1),), ValueError),
        ((3, object), TypeError),
        ((1 << 60, np.int8), MemoryError),
        (("x",), TypeError),
        ((2.0,), TypeError),
        (((2, 3.0),), TypeError),
        (((np.int64(1 << 32), np.int64(1 << 32)),), MemoryError),
    ],
)
def test_wrong_arguments(alone, arguments, kind):
    with pytest.raises(kind):
        distlite.shared_zeros(*arguments, group=alone)


def test_a_closed_group(alone):
    alone.shutdown()
    with pytest.raises(distlite.DistError):
        distlite.shared_zeros(3, group=alone)
