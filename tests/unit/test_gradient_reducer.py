# SPDX-License-Identifier: BSD-3-Clause
"""GradientReducer in one process: buckets, mistakes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import distlite
from distlite import HashStore, ProcessGroup
from distlite.data_parallel.gradient_buckets import Parameter, plan

np = pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def alone():
    distlite.init_process_group(store=distlite.HashStore(), rank=0, world_size=1)
    yield
    distlite.destroy_process_group()


def reducer_of(*arguments, **named):
    return distlite.data_parallel.GradientReducer(*arguments, **named)


def planned(sizes, cap, dtypes=None):
    """Numbers by bucket, of parameters of that many float64 or other elements."""
    dtypes = dtypes or ["float64"] * len(sizes)
    arrays = [np.zeros(size, dtype) for size, dtype in zip(sizes, dtypes, strict=True)]
    parameters = [Parameter(i, i, array) for i, array in enumerate(arrays)]
    buckets = plan(parameters, cap)
    return [[parameter.number for parameter in bucket] for bucket in buckets]


def test_buckets_keep_to_their_caps():
    assert planned([1 << 17] * 6, 3 << 20) == [[0], [1, 2, 3], [4, 5]]
    assert planned([8, 100, 8, 8], 128) == [[0], [1], [2, 3]]
    assert planned([8] * 4, 10**6) == [[0, 1, 2, 3]]
    assert planned([8] * 3, 1) == [[0], [1], [2]]


def test_buckets_come_in_the_order_in_which_they_fill_up():
    dtypes = ["float64", "float32", "float64", "float32", "float64"]
    assert planned([8] * 5, 10**6, dtypes) == [[1, 3], [0, 2, 4]]


class Foreign:
    """Like an array of another library, as JAX's, which cannot be written to."""

    shape, dtype = (3,), np.dtype(float)


def test_mistakes_are_told():
    reducer = reducer_of({"w": np.zeros((2, 3)), "b": np.zeros(3)})
    with pytest.raises(KeyError, match="there is no parameter 'v'"):
        reducer.ready("v")
    with pytest.raises(ValueError, match=r"of 'w' is float64\[3, 2\], and the par"):
        reducer.ready("w", np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"of 'b' is float32\[3\].* float64\[3\]"):
        reducer.ready("b", np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"of 'b' is read-only.*\.gradients\['b'\]"):
        reducer.ready("b", np.broadcast_to(1.0, 3))
    with pytest.raises(TypeError, match="of 'b' is a list, not an array"):
        reducer.ready("b", [1, 2, 3])
    with pytest.raises(TypeError, match="of 'b' is a Foreign, not an array"):
        reducer.ready("b", Foreign())
    with pytest.raises(ValueError, match=r"of 'b' is a masked array.*filled\(0\)"):
        reducer.ready("b", np.ma.masked_array(np.zeros(3), [1, 0, 0]))
    reducer.ready("b")
    with pytest.raises(RuntimeError, match="'b' is ready for the second time"):
        reducer.ready("b")
    with pytest.raises(RuntimeError, match="on rank 0: 'w'. Call ready"):
        reducer.finish()
    # As if nothing had happened.
    reducer.ready("b")
    reducer.ready("w")
    reducer.finish()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (([],), ValueError, "there are no parameters"),
        (([3],), TypeError, "parameter 0 is not an array: int"),
        (([Foreign()],), TypeError, "parameter 0 is a Foreign; .* takes NumPy arrays"),
        (
            ({"w": np.zeros(2, int)},),
            TypeError,
            r"'w' is int64\[2\], which cannot be av",
        ),
        (([np.zeros(2)], [np.zeros(2)] * 2), ValueError, r"\[0\], not \[0, 1\]"),
        (([np.broadcast_to(1.0, 2)],), ValueError, "parameter 0 is read-only"),
        (([np.zeros(2)], [np.zeros(3)]), ValueError, r"of 0 is float64\[3\]"),
        (({"a": np.zeros(2)}, {"b": np.zeros(2)}), ValueError, "not \\['b'\\]"),
    ],
)
def test_what_cannot_be_reduced(arguments, error, text):
    with pytest.raises(error, match=text):
        reducer_of(*arguments)


def test_a_bucket_has_a_size():
    with pytest.raises(ValueError, match="must be greater than 0"):
        reducer_of([np.zeros(2)], bucket_cap_mb=0)


def test_a_second_bucket_waits_for_the_first():
    arrays = [np.full(200, 3.0) for _ in range(3)]
    reducer = reducer_of(arrays, arrays, bucket_cap_mb=0.001)
    reducer.ready(0)
    reducer.ready(1)
    reducer.ready(2)
    reducer.finish()
    assert [list(bucket.views) for bucket in reducer._buckets] == [[0], [1], [2]]
    assert [bucket.size for bucket in reducer._buckets] == [1600] * 3
    assert all((array == 3).all() for array in arrays)


def test_integers_can_be_added_up():
    gradient = np.arange(3)
    reducer = reducer_of({"n": np.zeros(3, int)}, average=False)
    reducer.ready("n", gradient)
    reducer.finish()
    assert gradient.tolist() == [0, 1, 2]


def test_gradients_may_share_memory():
    """All are read, in ready(), before any of them is written to, in finish()."""
    store = HashStore()

    def run(rank):
        group = ProcessGroup(store, rank, 2, 60.0)
        parameters = [np.zeros(4) for _ in range(3)]
        reducer = reducer_of(parameters, group=group, bucket_cap_mb=32 / (1 << 20))
        whole = np.arange(6.0) * (rank + 1)
        for key, gradient in ((2, whole[:4]), (1, whole[2:]), (0, whole[:4])):
            reducer.ready(key, gradient)
        reducer.finish()
        group.shutdown()
        return whole.tolist()

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(run, range(2), timeout=60.0))
    assert found == [[1.5 * i for i in range(6)]] * 2


def test_a_gradient_whose_elements_share_memory_is_refused():
    reducer = reducer_of([np.zeros((3, 2))])
    spread = np.lib.stride_tricks.as_strided(np.zeros(2), (3, 2), (0, 8))
    with pytest.raises(ValueError, match="of 0 has strides of 0"):
        reducer.ready(0, spread)
    reducer.ready(0, np.ascontiguousarray(spread))
    reducer.finish()
