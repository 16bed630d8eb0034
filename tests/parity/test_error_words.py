# SPDX-License-Identifier: BSD-3-Clause
"""Words in errors that programs of torch look for; ours may say more beside them."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import distlite

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")


@pytest.fixture(params=["torch.distributed", "distlite"])
def dist(request):
    """The library, with a group of one rank."""
    library = importlib.import_module(request.param)
    library.init_process_group("gloo", store=library.HashStore(), rank=0, world_size=1)
    yield library
    library.destroy_process_group()


def ones(dist, dtype: str = "float32"):
    """An array of the library's kind."""
    if dist is distlite:
        return np.ones(2, dtype)
    return torch.ones(2, dtype=getattr(torch, dtype))


@pytest.mark.parametrize("root", [-1, 1])
@pytest.mark.parametrize("kind", ["Broadcast", "Reduce"])
def test_a_root_that_is_no_rank(dist, kind: str, root: int):
    options = getattr(dist, f"{kind}Options")()
    options.rootRank, options.rootTensor = root, 0
    method = getattr(dist.group.WORLD, kind.lower())
    with pytest.raises((RuntimeError, ValueError), match="invalid root rank"):
        method([ones(dist)], options)


def test_a_reduction_that_a_dtype_does_not_have(dist):
    with pytest.raises(ValueError, match="all_reduce does not support"):
        dist.all_reduce(ones(dist, "complex64"), dist.ReduceOp.MAX)


@pytest.mark.parametrize("name", ["send", "isend"])
def test_a_message_to_oneself(dist, name: str):
    if name == "isend" and dist is not distlite:
        pytest.skip("gloo fails in its transport")
    with pytest.raises(ValueError, match="rank should not be the same as the rank"):
        getattr(dist, name)(ones(dist), 0)


@pytest.mark.parametrize("text", ["dummy", "cpu:dummy", "CPU:DUMMY", "cpu:Dummy"])
def test_names_of_registered_backends(dist, text: str):
    dist.Backend.register_backend("DuMMy", lambda *_: None, devices=["cpu"])
    assert dist.Backend.DUMMY == dist.Backend("Dummy") == "dummy"
    assert "dummy" in dist.Backend.backend_list
    config = dist.distributed_c10d.BackendConfig(dist.Backend(text))
    assert repr(config) == "cpu:dummy"


DTYPES = {
    "all_gather": lambda dist, x, y: dist.all_gather([x], y),
    "all_to_all": lambda dist, x, y: dist.all_to_all([x], [y]),
    "all_to_all_single": lambda dist, x, y: dist.all_to_all_single(x, y),
    "gather": lambda dist, x, y: dist.gather(x, [y]),
    "reduce_scatter": lambda dist, x, y: dist.reduce_scatter(x, [y]),
    "scatter": lambda dist, x, y: dist.scatter(x, [y]),
}


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_that_differ(dist, name: str):
    with pytest.raises(ValueError, match="tensors with different dtypes"):
        DTYPES[name](dist, ones(dist), ones(dist, "float64"))


LISTS = {
    "requires a single-element tensor list": lambda pg, x: pg.reduce([x, x]),
    "requires a single-element input tensor list": lambda pg, x: pg.gather([], [x, x]),
    "requires a single-element output tensor list": lambda pg, x: pg.scatter(
        [x, x], [[x]]
    ),
    "requires a single-element input list": lambda pg, x: pg.scatter([x], [[x], [x]]),
    "requires a single-element output list": lambda pg, x: pg.gather([[x], [x]], [x]),
}


@pytest.mark.parametrize("words", LISTS)
def test_lists_of_a_wrong_length(dist, words: str):
    with pytest.raises((RuntimeError, ValueError), match=words):
        LISTS[words](dist.group.WORLD, ones(dist))


def test_a_backend_in_python_names_itself(dist):
    class Named(dist.ProcessGroup):
        def getBackendName(self):
            return "Dummy"

    assert Named(0, 1).name() == "Dummy"
