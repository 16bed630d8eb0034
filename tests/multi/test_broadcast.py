# SPDX-License-Identifier: BSD-3-Clause
import pytest
from group_ranks import broadcast_grid
from workers import run_ranks
from world_sizes import WORLD_SIZES


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_every_root_dtype_and_count(world_size):
    assert run_ranks(broadcast_grid, world_size, timeout=50) == [[]] * world_size
