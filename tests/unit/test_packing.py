# SPDX-License-Identifier: BSD-3-Clause
"""Coalesced calls: one operation, right for any aliasing, and compared as a whole."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pending import hold_back

import distlite
from distlite import DistBackendError, HashStore, ProcessGroup, ReduceOp
from distlite.groups.coalescing import _coalescing_manager
from distlite.groups.packing import LARGE

LONG = 60.0


def make_groups(size):
    store = HashStore()
    with ThreadPoolExecutor(size) as threads:
        joining = [
            threads.submit(ProcessGroup, store, rank, size, LONG)
            for rank in range(size)
        ]
        return [each.result(LONG) for each in joining]


@pytest.fixture
def pair():
    groups = make_groups(2)
    yield groups
    for group in groups:
        group.shutdown()


def both(groups, run):
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(run, groups, timeout=LONG))


def count(group):
    return group._get_sequence_number_for_group()


SHAPES = [(3,), (), (0,), (2, 5), (1,), (LARGE // 4 + 1,), (7,)]


def arrays_of(rank, dtypes=("f4",), times=1):
    """Of all shapes, strides and dtypes, with a value of its own in each place."""
    made, at = [], 1
    for i, shape in enumerate(SHAPES):
        dtype = dtypes[i % len(dtypes)]
        shape = (shape[0] * times, *shape[1:]) if shape else (times,)
        size = int(np.prod(shape))
        whole = np.zeros(2 * size, dtype)
        array = whole[::-2] if i % 3 == 1 else whole[:size]
        array[:] = (np.arange(at, at + size) * (rank + 1)) % 4096
        made.append(array.reshape(shape) if i % 3 != 1 else array)
        at += size
    return made


def same(left, right):
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("dtypes", [("f4",), ("f4", "i8")])
@pytest.mark.parametrize("way", ["function", "async", "method", "manager"])
def test_a_reduction_is_one_operation_per_dtype(pair, way, dtypes):
    def run(group):
        arrays, began = arrays_of(group.rank(), dtypes), count(group)
        if way == "function":
            distlite.all_reduce_coalesced(arrays, group=group)
        elif way == "async":
            distlite.all_reduce_coalesced(arrays, group=group, async_op=True).wait()
        elif way == "method":
            group.allreduce_coalesced(arrays).wait()
        else:
            with _coalescing_manager(group):
                for each in arrays:
                    distlite.all_reduce(each, group=group)
        expected = [
            one + other
            for one, other in zip(
                arrays_of(0, dtypes), arrays_of(1, dtypes), strict=True
            )
        ]
        assert same(arrays, expected)
        return count(group) - began

    # The large array gains nothing from being copied, and goes alone.
    assert both(pair, run) == [len(dtypes) + 1] * 2


def test_reductions_that_differ_go_apart(pair):
    def run(group):
        began = count(group)
        arrays = [np.full(2, float(group.rank() + i)) for i in range(6)]
        ops = [ReduceOp.SUM, ReduceOp.MAX, ReduceOp.SUM, ReduceOp.MAX]
        # Of factors each rank knows only its own, so that those never go together.
        ops += [ReduceOp.PREMUL_SUM(2.0 + group.rank()), ReduceOp.PREMUL_SUM(2.0)]
        with _coalescing_manager(group):
            for array, op in zip(arrays, ops, strict=True):
                distlite.all_reduce(array, op, group)
        return [float(each[0]) for each in arrays], count(group) - began

    assert both(pair, run) == [([1, 2, 5, 4, 23, 22], 4)] * 2


@pytest.mark.parametrize("way", ["function", "method"])
def test_lists_are_gathered_in_one_operation(pair, way):
    def run(group):
        inputs, began = arrays_of(group.rank()), count(group)
        outputs = [[np.zeros_like(each) for each in inputs] for _ in range(2)]
        if way == "function":
            distlite.all_gather_coalesced(outputs, inputs, group=group)
        else:
            group.allgather_coalesced(outputs, inputs).wait()
        assert same(outputs[0], arrays_of(0)) and same(outputs[1], arrays_of(1))
        return count(group) - began

    assert both(pair, run) == [2, 2]


@pytest.mark.parametrize("way", ["method", "manager"])
def test_blocks_are_gathered_in_one_operation(pair, way):
    def run(group):
        inputs, began = (
            [np.atleast_1d(a) for a in arrays_of(group.rank())],
            count(group),
        )
        outputs = [np.zeros((2 * len(each), *each.shape[1:]), "f4") for each in inputs]
        if way == "method":
            group.allgather_into_tensor_coalesced(outputs, inputs).wait()
        else:
            with _coalescing_manager(group):
                for output, given in zip(outputs, inputs, strict=True):
                    distlite.all_gather_single(output, given, group=group)
        expected = [
            np.concatenate(np.atleast_1d(*rows))
            for rows in zip(arrays_of(0), arrays_of(1), strict=True)
        ]
        assert same(outputs, expected)
        return count(group) - began

    assert both(pair, run) == [2, 2]


@pytest.mark.parametrize("way", ["method", "manager"])
def test_blocks_are_scattered_in_one_operation(pair, way):
    def run(group):
        inputs, began = arrays_of(group.rank(), times=2), count(group)
        outputs = [np.zeros((len(a) // 2, *a.shape[1:]), "f4") for a in inputs]
        if way == "method":
            group.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
        else:
            with _coalescing_manager(group):
                for output, given in zip(outputs, inputs, strict=True):
                    distlite.reduce_scatter_single(output, given, group=group)
        for output, one, other in zip(
            outputs, arrays_of(0, times=2), arrays_of(1, times=2), strict=True
        ):
            start = len(output) * group.rank()
            assert np.array_equal(output, (one + other)[start : start + len(output)])
        return count(group) - began

    assert both(pair, run) == [2, 2]


LENGTHS = [4, LARGE // 4 + 4]  # packed, and alone


@pytest.mark.parametrize("length", LENGTHS)
def test_only_one_rank_s_arrays_share_memory(pair, length):
    def run(group):
        whole = np.ones(length + 2, "f4")
        if group.rank() == 0:
            arrays = [whole[:length], whole[2:], whole[:length]]
        else:
            arrays = [np.full(length, 2.0, "f4") for _ in range(3)]
        distlite.all_reduce_coalesced(arrays, group=group)
        return all(bool((each == 3).all()) for each in arrays)

    assert both(pair, run) == [True, True]


@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_in_place_and_inputs_that_are_others_outputs(pair, length):
    def run(group):
        rank = group.rank()
        outputs = [np.zeros((2, length), "f4") for _ in range(3)]
        # Its own block, another's output, and apart.
        inputs = [outputs[0][rank], outputs[0][1 - rank], np.zeros(length, "f4")]
        for i, each in enumerate(inputs):
            each[:] = 10 * i + rank
        group.allgather_into_tensor_coalesced(outputs, inputs).wait()
        return [[float(row[-1]) for row in each] for each in outputs]

    assert both(pair, run) == [[[0, 1], [10, 11], [20, 21]]] * 2


@pytest.mark.parametrize("length", LENGTHS)
def test_results_of_a_scatter_may_lie_in_its_inputs(pair, length):
    def run(group):
        rank = group.rank()
        inputs = [np.full((2, length), 1.0 + i + rank, "f4") for i in range(3)]
        outputs = [inputs[0][rank], inputs[0][1 - rank], inputs[1][0]]
        group.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
        return [float(each[-1]) for each in outputs]

    assert both(pair, run) == [[3, 5, 7]] * 2


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        # As many elements in all, which a pack alone would not tell.
        (
            [(2, 3), (3, 2)],
            "all_reduce_coalesced(5 x float32, SUM, in blocks of sizes #",
        ),
        (
            [(2, 3), (2, 4)],
            "all_reduce_coalesced(5 x float32, SUM, in blocks of sizes #",
        ),
        ([(2, 3), (2, 3, 1)], "all_reduce_coalesced(6 x float32"),
    ],
)
def test_lists_that_differ_are_named_on_both_ranks(pair, sizes, text):
    def run(group):
        arrays = [np.zeros(size, "f4") for size in sizes[group.rank()]]
        with pytest.raises(DistBackendError) as caught:
            distlite.all_reduce_coalesced(arrays, group=group)
        return text in str(caught.value)

    assert both(pair, run) == [True, True]


def test_a_counterpart_of_another_size_is_named():
    (group,) = make_groups(1)
    inputs, outputs = [np.zeros(2), np.zeros(3)], [np.zeros(3), np.zeros(2)]
    with pytest.raises(ValueError, match="own block of array 0 has 2 elements in the"):
        group.allgather_into_tensor_coalesced(outputs, inputs)
    with pytest.raises(
        ValueError, match="array 1 of the list has dtype float64 and array 0"
    ):
        group.allgather_into_tensor_coalesced(
            [np.zeros(2, "f4"), np.zeros(3)], [np.zeros(2, "f4"), np.zeros(3, "f4")]
        )
    with pytest.raises(ValueError, match="there are 1 outputs, but 2 inputs"):
        group.reduce_scatter_tensor_coalesced(outputs[:1], inputs)
    with pytest.raises(ValueError, match="read-only"):
        distlite.all_reduce_coalesced(
            [np.zeros(2), np.frombuffer(bytes(16))], group=group
        )
    with pytest.raises(ValueError, match="elements of the array share memory"):
        twice = np.lib.stride_tricks.as_strided(np.zeros(2), (2, 2), (0, 8))
        distlite.all_reduce_coalesced([np.zeros(2), twice], group=group)
    assert count(group) == 0
    group.shutdown()


def test_arrays_that_were_moved_meanwhile(pair):
    arrays = [np.ones(4), np.ones(4)]
    let_begin = hold_back(pair)
    work = pair[0].allreduce_coalesced(arrays)
    arrays[1].resize(1 << 16, refcheck=False)
    let_begin()
    with pytest.raises(DistBackendError, match="resized"):
        distlite.all_reduce_coalesced([np.ones(4), np.ones(4)], group=pair[1])
    with pytest.raises(DistBackendError, match="resized by"):
        work.wait()


def test_details_tell_the_sizes():
    level = distlite.get_debug_level()
    distlite.set_debug_level(distlite.DebugLevel.DETAIL)
    try:
        groups = make_groups(2)

        def run(group):
            arrays = [np.zeros(2 + group.rank()), np.zeros(3 - group.rank())]
            with pytest.raises(RuntimeError) as caught:
                distlite.all_reduce_coalesced(arrays, group=group)
            return "[2], [3]" in str(caught.value) and "[3], [2]" in str(caught.value)

        assert both(groups, run) == [True, True]
    finally:
        distlite.set_debug_level(level)


def test_groups_in_python_get_the_arrays():
    seen = []

    class Own(ProcessGroup):
        def __init__(self):
            super().__init__(0, 1)

        def allreduce(self, tensors, opts=None):
            seen.extend(tensors)
            return Done()

    class Done(distlite.Work):
        def wait(self, timeout=None):
            return True

    arrays = [np.ones(2), np.ones(3)]
    distlite.all_reduce_coalesced(arrays, group=Own())
    assert all(one is other for one, other in zip(seen, arrays, strict=True))


def test_a_pack_tells_its_arrays():
    arrays = [np.ones(3), np.ones((2, 2))]
    found = distlite._C._pack_arrays(distlite._C._pack(arrays))
    assert [each is array for each, array in zip(found, arrays, strict=True)] == [
        True
    ] * 2
    with pytest.raises(TypeError, match="a pack was expected"):
        distlite._C._pack_arrays(arrays)
