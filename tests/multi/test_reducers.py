# SPDX-License-Identifier: BSD-3-Clause
"""Reductions without a kernel, beside a loop over the ranks with NumPy."""

import pytest
import reducer_ranks
from doubles_build import mpi_double
from workers import rank_outcomes, run_ranks

# By rank, who shares a host: also hosts whose ranks do not follow each other.
LAYOUTS = ["0", "000", "01011", "012"]


@pytest.mark.parametrize("places", LAYOUTS)
def test_locations_are_those_of_a_loop_over_the_ranks(places):
    found = run_ranks(reducer_ranks.locations, len(places), places=places)
    assert found == [[]] * len(places)


def test_locations_over_mpi():
    few = (0, 7, 3000)
    found = run_ranks(
        reducer_ranks.locations, 3, env=mpi_double(), places="mpi", counts=few
    )
    assert found == [[]] * 3


def test_locations_at_debug_level_detail():
    env = {"DISTLITE_DEBUG": "DETAIL", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    found = run_ranks(
        reducer_ranks.locations, 2, env=env, places="00", counts=(7, 3000)
    )
    assert found == [[]] * 2


@pytest.mark.parametrize("places", ["00", "01"])
def test_what_is_no_pair_is_refused(places):
    for told in run_ranks(reducer_ranks.refused_locations, 2, places=places):
        alone, differing = told[:7], told[7:]
        for error in alone:
            assert error.startswith("ValueError: "), error
        assert "not of the shape (3,) and dtype float64" in alone[0]
        assert "a dtype with two fields" in alone[2]
        assert "MAXLOC of values of complex64" in alone[3]
        assert "byte order" in alone[4]
        for error, one, other in zip(
            differing,
            ("(float64, int32), MAXLOC", "pairs of float64", "(float64, int32)"),
            (
                "(float64, int32), MINLOC",
                "pairs of float32",
                "another dtype or reduction (#",
            ),
            strict=True,
        ):
            assert error.startswith("DistBackendError: "), error
            # Each rank names its own.
            assert f" x {one}" in error or f" x {other}" in error, error


@pytest.mark.parametrize("places", LAYOUTS)
def test_functions_are_folded_in_the_order_of_the_ranks(places):
    found = run_ranks(reducer_ranks.functions, len(places), places=places)
    assert found == [[]] * len(places)


def test_functions_over_mpi():
    few = (0, 7, 3000)
    found = run_ranks(
        reducer_ranks.functions, 3, env=mpi_double(), places="mpi", counts=few
    )
    assert found == [[]] * 3


@pytest.mark.parametrize("places", ["000", "001"])
def test_what_a_function_raises_is_an_error_of_all_ranks(places):
    for rank, found in enumerate(run_ranks(reducer_ranks.failing, 3, places=places)):
        for count in (3, 20_000):
            for name in ("all_reduce", "scan"):
                text, cause = found[f"{name} {count}"]
                assert text == (
                    f"{name} with fail (vectorized) failed on rank 2: "
                    "LookupError: no such sum"
                )
                assert cause == ("LookupError('no such sum')" if rank == 2 else "None")
            assert "failed on rank 2: LookupError" in found[f"later {count}"]
            assert found[f"kept {count}"]
        assert found["after"] == [3]
        error = "KeyboardInterrupt: " if rank == 0 else "DistBackendError: "
        assert found["stopped"].startswith(error), found["stopped"]
        assert rank == 0 or "failed on rank 0: KeyboardInterrupt" in found["stopped"]


@pytest.mark.parametrize("places", ["00", "01"])
def test_errors_of_arithmetic_are_numpy_s(places):
    """Which the core finds itself, as it runs the loops of NumPy's functions."""
    warned = []
    for found in run_ranks(reducer_ranks.arithmetic, 2, places=places):
        for count in (1, 70_001):
            assert "FloatingPointError: overflow" in found[f"raises {count}"]
            assert found[f"kept {count}"] == 1e200
            result, other = found[f"result {count}"]
            assert result == float("inf") and other == 1
            warned.append(found[f"warned {count}"])
    # Of a large array each rank combines a part.
    assert warned.count({"overflow encountered in multiply"}) == 3


@pytest.mark.parametrize("places", ["00", "01"])
def test_other_functions_are_named(places):
    for told in run_ranks(reducer_ranks.refused_functions, 2, places=places):
        integers, two, matrix, builtin, record, text, python, null = told[:8]
        assert integers.startswith("ValueError: logaddexp cannot reduce an array of")
        assert "must take two elements and return one" in two
        assert "must take two elements and return one" in matrix
        assert builtin.startswith("TypeError: Invalid function argument.")
        assert record.startswith("ValueError: add cannot reduce an array of dtype")
        assert text.startswith("TypeError: a C function or its context must be an addr")
        assert null == "ValueError: the address of the function is 0"
        assert python.startswith("TypeError: a C function or its context must be an ad")
        names, kinds, own, coalesced = told[8:]
        # Each rank names its own.
        assert "float64, add)" in names or "float64, hypot)" in names
        assert "another dtype or reduction (#" in names
        assert "rank 0 called all_reduce(3 x " in kinds
        assert "rank 1 called all_reduce(3 x float64, SUM)" in kinds
        assert "float64, m" in own and "another dtype or reduction" in own
        assert coalesced == "[[[2.0, 2.0], [2.0, 2.0]], [[6.0, 6.0]]]"


@pytest.mark.parametrize(("places", "count"), [("000", 5), ("000", 9999), ("001", 5)])
def test_a_dead_rank_is_named(places, count):
    *others, dead = rank_outcomes(reducer_ranks.killed, 3, places=places, count=count)
    assert dead.returncode == -9, dead.describe()
    for outcome in others:
        assert outcome.is_good, outcome.describe()
        assert outcome.value.startswith("DistBackendError: "), outcome.value
        assert "rank 2" in outcome.value, outcome.value
