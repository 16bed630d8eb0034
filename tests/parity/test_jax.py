# SPDX-License-Identifier: BSD-3-Clause
"""JAX's arrays, which never change: they are read, and never written to."""

import numpy as np
import pytest

import distlite

jax = pytest.importorskip("jax")
pytest.importorskip("jax.experimental")


@pytest.fixture
def group():
    made = distlite.ProcessGroup(distlite.HashStore(), 0, 1)
    yield made
    made.shutdown()


def test_an_array_is_no_place_for_results(group):
    array = jax.numpy.arange(4.0)
    alias = array
    work = None
    for call in (
        lambda: distlite.all_reduce(array, group=group),
        lambda: distlite.all_reduce(array, group=group, async_op=True),
        lambda: distlite.all_gather([array], np.ones(4, np.float32), group),
        lambda: distlite.scatter(array, [np.ones(4, np.float32)], group=group),
    ):
        with pytest.raises(ValueError, match="read-only.*numpy.array"):
            work = call()
    assert work is None
    assert array.tolist() == alias.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_an_array_can_be_sent(group):
    array = jax.numpy.arange(4.0)
    into = np.zeros(4, np.float32)
    distlite.all_gather([into], array, group)
    assert into.tolist() == [0.0, 1.0, 2.0, 3.0]
    mine = np.array(array)
    distlite.all_reduce(mine, distlite.ReduceOp.PREMUL_SUM(2.0), group)
    assert mine.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert array.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_traced_array_is_refused(group):
    from distlite import functional

    array = jax.numpy.arange(4.0)
    with pytest.raises(TypeError, match="JAX traces this function.*io_callback"):
        jax.jit(lambda x: functional.all_reduce(x, group=group))(array)
    result = jax.ShapeDtypeStruct(array.shape, array.dtype)
    summed = jax.jit(
        lambda x: jax.experimental.io_callback(
            lambda y: functional.all_reduce(y, group=group), result, x
        )
    )(array)
    assert summed.tolist() == [0.0, 1.0, 2.0, 3.0]
