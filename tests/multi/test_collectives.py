# SPDX-License-Identifier: BSD-3-Clause
"""Every collective beside NumPy; all_reduce and scan have more files."""

import re
from concurrent.futures import ThreadPoolExecutor

import collective_ranks
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from workers import run_ranks
from world_sizes import WORLD_SIZES

import distlite
from distlite import HashStore, ProcessGroup

# However busy the machine is, and however slow a sanitizer makes it.
AT_LEISURE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_moving_every_dtype_count_and_form(world_size):
    results = run_ranks(collective_ranks.movement_grid, world_size)
    assert results == [[]] * world_size


@pytest.mark.parametrize(
    "world_size", [*WORLD_SIZES, pytest.param(8, marks=pytest.mark.slow)]
)
def test_combining_every_dtype_op_and_count(world_size):
    results = run_ranks(collective_ranks.reduction_grid, world_size)
    assert results == [[]] * world_size


def test_special_values():
    for found in run_ranks(collective_ranks.special_values, 4):
        assert found.pop("bool sum") == [1, 0, 1]
        assert found.pop("float16") == float(np.float16(1.0012)) > 1
        assert found.pop("bfloat16") == 1 + 2**-7
        for name in ("float16", "bfloat16"):
            for op in ("MIN", "MAX"):
                assert np.isnan(found.pop((name, op)))
        assert found.pop("PREMUL_SUM") == [5.0] * 3
        told = "ValueError: all_reduce does not support MAX of complex64"
        assert found.pop("complex MAX") == told
        for (dtype, op, name), result in found.items():
            if name == "left":
                assert result == [1, 1]
            else:
                told = rf"ValueError: (\w+ does not support )?{op} of {dtype}"
                assert re.match(told, result), name


def test_wrong_calls_are_refused_before_anything_is_sent():
    kinds = {"tuple": "TypeError", "element": "TypeError", "objects": "TypeError"}
    for rank, found in enumerate(run_ranks(collective_ranks.wrong_calls, 2)):
        assert found.pop("then") == "2.0"
        assert "must have one array for each of the group's 2 ranks" in found["length"]
        assert "Number of tensor splits" in found["split count"]
        role = "NOT be specified on non-" if rank == 1 else "be specified on "
        assert f"must {role}destination rank" in found["root's list"]
        advice = "give None there" if rank == 1 else "one array for each rank"
        assert advice in found["root's list"] and advice in found["scatter list"]
        assert f"must {role}source rank" in found["scatter list"]
        assert "Must specify global_rank or group_rank" in found["no root"]
        assert "Can't specify both" in found["two roots"]
        assert "Global rank 9 is not part of group" in found["far root"]
        assert found.pop("op").startswith("TypeError")
        for name, error in found.items():
            assert error.startswith(kinds.get(name, "ValueError") + ": "), name


def test_arrays_of_unknown_shapes_and_coalesced_forms():
    for gathered, summed, outputs in run_ranks(collective_ranks.unknown_arrays, 4):
        assert [array.shape for array in gathered] == [(2, 2), (), (0, 4), (1,)]
        assert gathered[0].tolist() == [[0.0, 2.0], [3.0, 5.0]]
        assert (gathered[1].dtype.name, int(gathered[1])) == ("bfloat16", 7)
        assert gathered[2].dtype == np.dtype("complex64")
        assert gathered[3]["b"].tolist() == [2.5]
        assert [array.tolist() for array in summed] == [[6.0], [6.0] * 3]
        expected = [[[float(r)], [float(r)] * 3] for r in range(4)]
        assert [[array.tolist() for array in row] for row in outputs] == expected


@pytest.fixture(scope="module")
def pair():
    """Two ranks of one group, in one process: for threads."""
    store = HashStore()
    with ThreadPoolExecutor(2) as threads:
        groups = [
            threads.submit(ProcessGroup, store, rank, 2, 10, "strides")
            for rank in range(2)
        ]
        yield threads, [group.result() for group in groups]
        for group in groups:
            group.result().shutdown()


@st.composite
def any_strides(draw):
    """An array whose axes are in any order, with steps and in both directions."""
    shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    steps = [draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in shape]
    room = np.zeros([n * abs(step) for n, step in zip(shape, steps, strict=True)])
    view = room[tuple(slice(None, None, step) for step in steps)]
    return view.transpose(draw(st.permutations(range(len(shape)))))


@settings(max_examples=60, **AT_LEISURE)
@given(view=any_strides(), order=st.sampled_from("CF"))
def test_any_strides(pair, view, order):
    threads, groups = pair
    shape = view.shape
    # The ranks' arrays are of one shape, and of different layouts.
    other = np.zeros(shape, order=order)
    tensors = [view, other]
    for rank, tensor in enumerate(tensors):
        tensor[...] = np.arange(tensor.size).reshape(shape) + rank
    expected = 2 * np.arange(other.size).reshape(shape) + 1
    calls = [
        threads.submit(strided_calls, tensor, group)
        for tensor, group in zip(tensors, groups, strict=True)
    ]
    for call, tensor in zip(calls, tensors, strict=True):
        gathered, scattered = call.result(10)
        assert np.array_equal(tensor, expected)
        assert np.array_equal(gathered, np.stack([expected, expected], axis=1))
        assert np.array_equal(scattered, 2 * expected)


def strided_calls(tensor, group):
    distlite.all_reduce(tensor, group=group)
    gathered = np.zeros((tensor.shape[0], 2, *tensor.shape[1:]))
    distlite.all_gather([gathered[:, 0], gathered[:, 1]], tensor, group)
    scattered = np.zeros(tensor.shape, order="F")
    distlite.reduce_scatter(scattered, [tensor, tensor], group=group)
    return gathered, scattered
