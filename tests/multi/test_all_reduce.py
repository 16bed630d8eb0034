# SPDX-License-Identifier: BSD-3-Clause
import numpy as np
import pytest
from group_ranks import (
    all_reduce_special,
    two_groups,
)
from workers import run_ranks


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


def test_groups_do_not_delay_each_other():
    assert run_ranks(two_groups, 2) == [[2.0] * 21] * 2
