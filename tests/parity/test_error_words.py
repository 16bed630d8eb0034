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
