# SPDX-License-Identifier: BSD-3-Clause
import pytest
from group_ranks import broadcast_grid
from workers import run_ranks


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_every_root_dtype_and_count(world_size):
    assert run_ranks(broadcast_grid, world_size, timeout=50) == [[]] * world_size
