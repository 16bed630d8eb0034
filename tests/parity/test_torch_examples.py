# SPDX-License-Identifier: BSD-3-Clause
"""The examples that need torch or Ray, and GradientReducer with torch's tensors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch

import distlite
from distlite.data_parallel import GradientReducer

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_torch_model_trains_the_same_on_any_number_of_ranks(ranks):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    words = ["--nproc-per-node", ranks, EXAMPLES / "train_torch.py", "--check"]
    result = launch(words, timeout=500)
    assert result.returncode == 0, result.stderr
    assert "parameters equal on every rank, and to a single" in result.stdout


@pytest.mark.slow
def test_the_backend_serves_ddp():
    pytest.importorskip("torch", reason="torch is not installed")
    result = launch(["--nproc-per-node", 2, EXAMPLES / "ddp.py"], timeout=500)
    assert result.returncode == 0, result.stderr
    assert "100% of other points are told apart, by distlite" in result.stdout


@pytest.mark.slow
@pytest.mark.limit(200)
def test_the_notebook_of_ddp(tmp_path, monkeypatch):
    from test_notebooks import test_a_notebook as run

    run("ddp", tmp_path, monkeypatch)


@pytest.mark.slow
def test_actors_of_ray_are_ranks():
    pytest.importorskip("ray", reason="ray is not installed")
    words = [sys.executable, EXAMPLES / "ray_actors.py", "--actors", "3", "--check"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stderr
    assert "the same as one process finds, on every actor" in result.stdout


@pytest.fixture
def torch():
    module = pytest.importorskip("torch", reason="torch is not installed")
    distlite.init_process_group(store=distlite.HashStore(), rank=0, world_size=1)
    yield module
    distlite.destroy_process_group()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_tensors_of_torch(torch, dtype):
    """Types that NumPy does not know as well."""
    kind = getattr(torch, dtype)
    parameters = {"w": torch.ones(5, 3, dtype=kind), "b": torch.ones((), dtype=kind)}
    reducer = GradientReducer(parameters)
    gradient = torch.arange(15, dtype=kind).reshape(3, 5).T
    reducer.ready("b", torch.full((), 2.0, dtype=kind))
    reducer.ready("w", gradient)
    reducer.finish()
    assert torch.equal(gradient, torch.arange(15, dtype=kind).reshape(3, 5).T)
    assert float(reducer.gradients["b"]) == 2.0
    assert reducer.gradients["w"].dtype == kind
    with pytest.raises(TypeError, match="'w' is a ndarray, not an array of the"):
        reducer.ready("w", gradient.float().numpy())


def test_tensors_on_no_device_that_has_memory(torch):
    with pytest.raises(TypeError, match="'w' is on meta"):
        GradientReducer({"w": torch.ones(2, device="meta")})
    with pytest.raises(TypeError, match=r"'n' is int64\[2\], which cannot be averaged"):
        GradientReducer({"n": torch.ones(2, dtype=torch.int64)})


def test_a_class_derived_from_torchs(torch):
    class Weight(torch.nn.Parameter):
        pass

    reducer = GradientReducer([Weight(torch.zeros(3))])
    gradient = torch.arange(3.0)
    reducer.ready(0, gradient)
    reducer.finish()
    assert gradient.tolist() == [0, 1, 2]


def test_gradients_that_have_a_graph(torch):
    """As backward(create_graph=True) makes them."""
    weight = torch.nn.Parameter(torch.ones(3))
    reducer = GradientReducer([weight])
    for _ in range(2):
        (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
        reducer.ready(0, gradient)
        reducer.finish()
        assert gradient.requires_grad and gradient.tolist() == [3, 3, 3]
    assert not reducer.gradients[0].requires_grad
