# SPDX-License-Identifier: BSD-3-Clause
import pytest
from failing_ranks import late_to_barrier
from group_ranks import barrier_orders
from workers import SOON, run_ranks


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_nobody_passes_before_all_have_come(world_size, tmp_path):
    results = run_ranks(barrier_orders, world_size, folder=str(tmp_path))
    assert results == [[world_size] * world_size] * world_size


def test_timeout_of_one_call():
    result, _ = run_ranks(late_to_barrier, 2)
    kind, text, _, seconds = result
    assert kind == "DistBackendError"
    assert "rank 1" in text
    assert 0.2 <= seconds < SOON
