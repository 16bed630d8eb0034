# SPDX-License-Identifier: BSD-3-Clause
"""Collectives that return their results, NumPy's; tests/parity has other arrays."""

from __future__ import annotations

import functional_ranks
import pytest

from distlite.testing import run_ranks


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_results_are_new_arrays(world_size):
    run_ranks(functional_ranks.everything, world_size)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_shapes_and_dtypes_need_not_be_known(world_size):
    run_ranks(functional_ranks.unknown_shapes, world_size)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_numbers_give_numbers(world_size):
    for found in run_ranks(functional_ranks.numbers, world_size):
        assert found["large"].startswith("OverflowError: ")
        assert f"each of {world_size} ranks" in found["rows"] or world_size == 1
        if world_size == 1:
            continue
        assert "for each of 3" in found["blocks"] or "dtypes" in found["blocks"]
        assert "all_reduce" in found["differ"]
        assert "int64" in found["differ"]
        assert "float64" in found["differ"]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_objects_are_returned(world_size):
    for rank, found in enumerate(run_ranks(functional_ranks.objects, world_size)):
        assert "rank 0: an object" in found[1]
        assert ("rank 0: an object" in found[2]) == (rank == 0)
        assert "rank 0: object 0, of type function, cannot be pickled" in found[0]
        assert "rank 0: an object of type function cannot be pickled" in found[3]
        assert f"1 objects for {world_size} ranks" in found[4] or world_size == 1


def test_roots_and_peers_of_a_part_of_the_ranks():
    run_ranks(functional_ranks.in_a_part, 3)


def test_mistakes_are_told_on_all_ranks_that_wait():
    first, second = run_ranks(functional_ranks.mistakes, 2)
    for found in (first, second):
        assert found["list"] == (
            "TypeError: functional.all_reduce in group 0: a number or an array of "
            "NumPy, torch, JAX or CuPy is needed, not list: convert it, as with "
            "numpy.asarray(x)"
        )
        assert "mask" in found["masked"]
        assert found["rows"] == (
            "ValueError: functional.all_to_all in group 0: an array with one row for "
            "each of 2 ranks is needed, but the shape is (3,)"
        )
        assert "but the shape is ()" in found["no rows"]
        assert "rank 9 is not in it, of 2" in found["far"]
        assert found["group"].startswith("ValueError: Process group 5 is not")
    told = {
        "broadcast": ("TypeError", "JAX or CuPy is needed, not str"),
        "masked source": (
            "ValueError",
            "the array is masked, and its mask would not be sent",
        ),
        "blocks": ("ValueError", "for each of 2 ranks is needed, but there are 1"),
        "dtypes": ("ValueError", "blocks of several dtypes: ['float64', 'int64']"),
    }
    for name, (kind, text) in told.items():
        source, other = (second, first) if name == "broadcast" else (first, second)
        assert source[name].startswith(f"{kind}: functional.")
        assert text in source[name]
        rank = 1 if name == "broadcast" else 0
        assert other[name].startswith(f"DistBackendError: rank {rank} gave up: ")
        assert text in other[name]
    assert first["objects"].startswith("TypeError: ")
    assert "holds Python objects" in first["objects"]
    assert "holds Python objects" in second["objects"]
    assert second["not an array"].endswith(
        "the message from rank 0 was not sent by functional.send"
    )
