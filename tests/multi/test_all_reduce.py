# SPDX-License-Identifier: BSD-3-Clause
import numpy as np
import pytest
from group_ranks import (
    all_reduce_grid,
    all_reduce_special,
    many_rounds,
    threads_at_once,
    two_groups,
)
from workers import run_ranks
from world_sizes import WORLD_SIZES


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_every_dtype_op_and_count_agrees_with_numpy(world_size):
    results = run_ranks(all_reduce_grid, world_size, timeout=50)
    assert [wrong for wrong, _ in results] == [[]] * world_size
    # Not only close: the same bits everywhere, or models drift apart.
    assert len({digest for _, digest in results}) == 1


@pytest.mark.parametrize("world_size", [2, 3])
def test_special_values_and_shapes(world_size):
    for result in run_ranks(all_reduce_special, world_size):
        total = world_size * (world_size + 1) / 2
        np.testing.assert_array_equal(result["scalar"], np.array(total))
        np.testing.assert_array_equal(result["matrix"], np.full((3, 5), total))
        for name in "gaps", "mixed", "unaligned":
            assert (result[name] == total).all(), name
        wrapped = np.int64(2**31 - 1) * world_size
        assert result["overflow"][0] == np.array(wrapped).astype(np.int32)
        assert list(result["infinity"]) == [np.inf, -np.inf]
        assert np.isnan(result["nan"][0]) and result["nan"][1] == 2 * world_size
        assert np.isnan(result["MIN"][2]) and result["MAX"][1] == 2


def test_special_values_are_the_same_everywhere():
    first, *rest = run_ranks(all_reduce_special, 4)
    for result in rest:
        for name, tensor in result.items():
            assert tensor.tobytes() == first[name].tobytes(), name


def test_more_ranks_than_cores():
    assert run_ranks(many_rounds, 8, timeout=50, rounds=60) == [0] * 8


def test_many_operations():
    assert run_ranks(many_rounds, 3, timeout=50, rounds=600) == [0] * 3


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_threads_share_a_group(world_size):
    assert run_ranks(threads_at_once, world_size, timeout=50) == [0] * world_size


def test_groups_do_not_delay_each_other():
    assert run_ranks(two_groups, 2) == [[2.0] * 21] * 2
