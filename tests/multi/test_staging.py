# SPDX-License-Identifier: BSD-3-Clause
"""CUDA arrays by backends of the CPU, with a stand-in for the CUDA runtime.

On a real device with `-m device`.
"""

import cuda_device
import pytest
import staging_ranks
from doubles_build import mpi_double, nccl_doubles
from workers import run_ranks


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_everything(world_size):
    found = run_ranks(
        staging_ranks.everything, world_size, kit="fake", env=nccl_doubles()
    )
    assert found == [[]] * world_size


def test_streams_come_first_and_the_host_waits():
    for found in run_ranks(staging_ranks.streams, 2, env=nccl_doubles()):
        assert found["at once"] is False
        assert found["after"] == found["sync"] == [3.0] * 4
        assert found["future"] == [6.0] * 4
        assert "gloo's operations cannot be captured into a graph" in found["capture"]
        assert found["then"] == [12.0] * 4
        assert found["spoilt"] == 0
        # Two of the test's own; those for copies are gone.
        assert found["left"] == [2, 0]


def test_what_a_group_says_of_itself_and_refuses():
    env = {**nccl_doubles(), "DISTLITE_NCCL_LIBRARY": "/nowhere/libnccl.so.2"}
    for found in run_ranks(staging_ranks.refusals, 2, env=env):
        assert found["best"] == "gloo"
        assert found["config"] == "cpu:gloo,cuda:gloo"
        assert found["devices"] == ["cpu", "cuda"]
        assert found["coalescing"] is False
        for name, operation in (("send", "send"), ("irecv", "recv"), ("batch", "send")):
            assert found[name].startswith(
                f"NotImplementedError: {operation}: the gloo backend has no "
                "point-to-point messages for arrays on devices"
            ), name
        assert "is not contiguous; the gloo backend needs a" in found["strided"]
        assert "the array is read-only" in found["read-only"]
        assert "is for arrays in the CPU's memory" in found["function"]
        assert "has no backend for that device" in found["not served"]
        assert found["its config"] == "cpu:gloo"
        assert found["by hand"] == [2.0, 2.0]


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_mesh_for_devices_makes_a_group_for_devices(backend):
    env = nccl_doubles()
    if backend == "gloo":
        env["DISTLITE_NCCL_LIBRARY"] = "/nowhere/libnccl.so.2"
    (found,) = run_ranks(staging_ranks.mesh, 1, env=env)
    assert found == (f"cpu:gloo,cuda:{backend}", [1.0, 1.0])


@pytest.mark.slow
def test_by_mpi():
    env = {**nccl_doubles(), **mpi_double()}
    found = run_ranks(staging_ranks.everything, 2, kit="fake", backend="mpi", env=env)
    assert found == [[]] * 2


@pytest.mark.device
@pytest.mark.parametrize("world_size", [1, 2])
def test_everything_on_a_device(world_size):
    path, reason = cuda_device.cudart()
    if not path:
        pytest.skip(reason)
    found = run_ranks(staging_ranks.everything, world_size, kit="cuda", env={})
    assert found == [[]] * world_size


@pytest.mark.device
def test_everything_with_torch_on_a_device():
    path, reason = cuda_device.cudart()
    torch = pytest.importorskip("torch")
    if not path or not torch.cuda.is_available():
        pytest.skip(reason or "torch sees no device")
    found = run_ranks(staging_ranks.everything, 2, kit="torch", env={})
    assert found == [[]] * 2
