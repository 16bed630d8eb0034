# SPDX-License-Identifier: BSD-3-Clause
"""Grids of ranks, and what neighbours exchange."""

from pathlib import Path

import cartesian_ranks
import pytest
from doubles_build import mpi_double
from launching import launch
from workers import run_ranks


@pytest.mark.parametrize("places", ["000000", "010011", "mpi"])
def test_coordinates_and_neighbours(places):
    env = mpi_double() if places == "mpi" else {}
    found = run_ranks(cartesian_ranks.grids, 6, env=env, places=places)
    for rank, grids in enumerate(found):
        mixed, filled, ring, part, balanced = (tuple(each) for each in grids)
        row, column = divmod(rank, 3)
        other = 3 * (1 - row) + column
        left = rank - 1 if column > 0 else None
        right = rank + 1 if column < 2 else None
        places = (other, other, left, right)
        assert mixed == ((2, 3), (row, column), places, list(places))
        assert filled[:2] == ((3, 2), divmod(rank, 2))
        ends = ((rank - 1) % 6, (rank + 1) % 6)
        assert ring == ((6,), (rank,), ends, list(ends))
        if rank > 3:
            assert part == (None,)
        else:
            i, k = divmod(rank, 2)
            near = (rank, rank, 2 * (1 - i) + k, 2 * (1 - i) + k, 2 * i + 1 - k)
            assert part[:3] == ((1, 2, 2), (0, i, k), (*near, 2 * i + 1 - k))
        assert balanced[0] == (3, 2, 1)


@pytest.mark.parametrize("places", ["0000", "0011", "mpi"])
def test_halos_are_parts_of_the_whole(places):
    env = mpi_double() if places == "mpi" else {}
    found = run_ranks(cartesian_ranks.halos, 4, env=env, places=places)
    assert found == [[]] * 4


def test_wrong_calls_say_what_is_wrong():
    for found in run_ranks(cartesian_ranks.wrong_calls, 2, places="00"):
        assert "(2, 2) has 4 places, but the group has 2 ranks" in found["large"]
        assert "(1,) has 1 places, but the group has 2 ranks" in found["small"]
        assert "3 does not divide 2" in found["undivided"]
        for name in ("negative", "none", "periods"):
            assert found[name].startswith("ValueError: a grid needs at least one dim")
        assert found["no bool"].startswith("TypeError: periods must be bools")
        assert found["no number"].startswith("TypeError: ")
        assert found["differing"] == (
            "ValueError: Cartesian: rank 0 called it with the dimensions (1, 2) and "
            "periods (False, False), rank 1 with the dimensions (2, 1) and periods "
            "(False, False)"
        )
        assert found["rank"] == "ValueError: rank 2 is not in the grid of 2"
        assert "2 coordinates for a grid of 1" in found["coords"]
        assert "dimension 1 of a grid that has 1" in found["dimension"]
        assert found["outputs"] == "ValueError: 1 outputs for 2 places of neighbours"
        assert "neighbour at place" in found["missing"]
        assert "but no output for it" in found["missing"]
        assert "no room for margins of 2" in found["thin"]


@pytest.mark.parametrize("places", ["00", "01"])
def test_an_exchange_that_fails_leaves_the_grid_usable(places):
    first, second = run_ranks(cartesian_ranks.failing, 2, places=places)
    # The sender's small message has ended before it is refused.
    assert first["long"].startswith("DistBackendError: ")
    assert "32 bytes" in first["long"] and "24 bytes" in first["long"]
    assert first["after"] == [[2.0] * 3] * 2 and second["after"] == [[1.0] * 3] * 2
    assert "timed out after 200ms" in first["late"] and first["kept"]


def test_heat_spreads_as_on_one_process():
    script = Path(__file__).parents[2] / "examples" / "heat.py"
    result = launch(["--nproc-per-node", 4, script], timeout=60)
    assert result.returncode == 0, result.stderr
    assert "[rank0]: 2 x 2 ranks, largest error 0" in result.stdout
