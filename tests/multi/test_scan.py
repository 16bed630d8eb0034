# SPDX-License-Identifier: BSD-3-Clause
"""scan and exscan; test_collectives.py has them with every dtype, op and count."""

import pytest
import scan_ranks
from workers import rank_outcomes, run_ranks

# By rank, who shares a host: also hosts whose ranks do not follow each other.
LAYOUTS = ["00000", "00111", "01011", "012", "0101"]


@pytest.mark.parametrize("places", LAYOUTS)
def test_results_are_those_of_a_loop_over_the_ranks(places):
    found = run_ranks(scan_ranks.results, len(places), places=places)
    assert found == [[]] * len(places)


@pytest.mark.parametrize("places", ["00", "01"])
def test_other_calls_are_named(places):
    for average, *told in run_ranks(scan_ranks.mismatch, 2, places=places):
        assert average.startswith("ValueError: scan of AVG is not supported")
        for error, other in zip(told, ("all_reduce", "exscan"), strict=True):
            assert "scan(2 x float64, SUM)" in error, error
            assert f"{other}(2 x float64, SUM)" in error, error


@pytest.mark.parametrize(
    ("places", "count"), [("000", 5), ("000", 300_000), ("001", 5)]
)
def test_a_dead_rank_is_named(places, count):
    *others, dead = rank_outcomes(scan_ranks.killed, 3, places=places, count=count)
    assert dead.returncode == -9, dead.describe()
    for outcome in others:
        assert outcome.is_good, outcome.describe()
        assert outcome.value.startswith("DistBackendError: "), outcome.value
        assert "rank 2" in outcome.value, outcome.value
