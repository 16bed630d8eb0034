# SPDX-License-Identifier: BSD-3-Clause
"""Operations that are prepared once and started many times."""

import persistent_ranks
import pytest
from doubles_build import mpi_double
from workers import run_ranks


@pytest.mark.parametrize("places", ["000", "001", "mpi"])
def test_each_start_takes_what_the_arrays_hold_then(places):
    env = mpi_double() if places == "mpi" else {}
    found = run_ranks(persistent_ranks.rounds, 3, env=env, places=places)
    assert found == [[]] * 3


def test_wrong_calls_are_refused_before_anything_starts():
    for rank, found in enumerate(
        run_ranks(persistent_ranks.wrong_calls, 2, places="00")
    ):
        assert "cannot be persistent; these can: all_reduce" in found["object"]
        assert "omit `async_op`" in found["asynchronous"]
        assert "the array is read-only" in found["read-only"]
        assert "AVG of int64" in found["average"]
        assert "Invalid destination rank" in found["itself"]
        assert "Must specify global_rank or group_rank" in found["nobody"]
        assert found["unknown"].startswith("TypeError: irecv() got an unexpected")
        assert found["no array"].startswith("TypeError: ")
        assert tuple(found["outside"]) == (True, True, [1, 1, 1])
        assert "was not started" in found["early"]
        assert rank == 1 or "has not completed" in found["twice"]
        assert tuple(found["sum"]) == (True, [2, 2, 2])
        assert found["kept"] and found["freed"]
        assert found["moved"].startswith("DistBackendError: ")
