# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of functional collectives on torch's and JAX's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import distlite as dist
from distlite import functional


def torch_tensors() -> None:
    import torch

    rank = dist.get_rank()
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        x = torch.arange(6).reshape(2, 3).to(dtype).t() + rank
        twice = x + x + 1 - 2 * rank
        for found, expected in (
            (functional.all_reduce(x), twice),
            (functional.all_gather(x)[rank], x),
            (functional.reduce_scatter(torch.stack([x, x])), twice),
            (functional.broadcast(x if rank == 1 else None, 1), x + 1 - rank),
            (functional.scatter([x, x] if rank == 1 else None, 1), x + 1 - rank),
            (functional.sendrecv(x, 1 - rank), x + 1 - 2 * rank),
        ):
            assert type(found) is torch.Tensor
            assert found.dtype == dtype
            assert torch.equal(found, expected), (rank, dtype, found, expected)
        for dim in 0, 1:
            whole = torch.cat([x, x], dim)
            for found, expected in (
                (functional.all_gather_single(x, dim).chunk(2, dim)[rank], x),
                (functional.reduce_scatter_single(whole, scatter_dim=dim), twice),
            ):
                assert type(found) is torch.Tensor and torch.equal(found, expected)
        counts = [1 + rank, 2 - rank]
        rows = functional.all_to_all_single(x, counts, counts)
        of_0, of_1 = x - rank, x - rank + 1
        expected = [(of_0[:1], of_1[:2]), (of_0[1:], of_1[2:])][rank]
        assert torch.equal(rows, torch.cat(expected))
    lazy = torch.tensor([1 + 2j]).conj()
    assert functional.broadcast(lazy if rank == 0 else None).tolist() == [1 - 2j]
    assert functional.all_reduce(lazy).tolist() == [2 - 4j]
    sparse = torch.eye(2).to_sparse()
    try:
        functional.broadcast(sparse if rank == 0 else None)
    except (ValueError, dist.DistBackendError) as error:
        assert "sparse tensors are not supported: pass x.to_dense()" in str(error)
    else:
        raise AssertionError("no error")
    grown = torch.ones(2, requires_grad=True)
    try:
        functional.all_reduce(grown)
    except ValueError as error:
        assert "pass x.detach()" in str(error)
    else:
        raise AssertionError("no error")
    assert functional.all_reduce(grown.detach()).tolist() == [2.0, 2.0]


def torch_neighbours() -> None:
    """Parts of one tensor are arrays to receive in and to send, as of one of NumPy."""
    import torch

    rank = dist.get_rank()
    grid = dist.Cartesian(2, periods=True)
    out = torch.zeros(2, 3)
    grid.neighbor_all_gather(out, torch.full((3,), rank + 1.0))
    assert out.tolist() == [[2.0 - rank] * 3] * 2
    there = torch.tensor([[10.0, 0.0], [20.0, 0.0]]) + rank
    works = grid.neighbor_all_to_all(out[:, :2], there, async_op=True)
    assert works is not None
    for work in works:
        work.wait()
    assert out[:, 0].tolist() == [21.0 - rank, 11.0 - rank]
    alone = dist.Cartesian((1, 2), (True, False))
    own = torch.zeros(4, 1)
    alone.neighbor_all_to_all(own, torch.arange(4.0).reshape(4, 1))
    assert own.flatten().tolist() == [[1.0, 0.0, 0.0, 2.0], [1.0, 0.0, 3.0, 0.0]][rank]
    cells = torch.tensor([0.0, rank + 1.0, rank + 1.0, 0.0])
    grid.exchange_halos(cells)
    assert cells[0] == cells[3] == 2 - rank


def jax_arrays() -> None:
    import jax
    import jax.numpy as jnp

    rank = dist.get_rank()
    for dtype in (jnp.float32, jnp.bfloat16, jnp.int32):
        x = jnp.arange(6, dtype=dtype).reshape(2, 3).T + rank
        alias = x
        for found, expected in (
            (functional.all_reduce(x), x + x + 1 - 2 * rank),
            (functional.all_gather(x)[rank], x),
            (functional.all_to_all(x[:2])[rank], x[rank]),
            (functional.broadcast(x if rank == 1 else None, 1), x + 1 - rank),
            (functional.sendrecv(x, 1 - rank), x + 1 - 2 * rank),
        ):
            assert isinstance(found, jax.Array)
            assert found.dtype == dtype
            assert jnp.array_equal(found, expected), (rank, dtype, found, expected)
        assert jnp.array_equal(alias, jnp.arange(6, dtype=dtype).reshape(2, 3).T + rank)


def without_wide_numbers() -> None:
    """float64 of JAX comes to a rank whose JAX would make float32 of it."""
    import jax

    rank = dist.get_rank()
    jax.config.update("jax_enable_x64", rank == 0)
    x: Any = jax.numpy.asarray(np.arange(3.0)) if rank == 0 else None
    try:
        found = functional.broadcast(x)
    except ValueError as error:
        assert rank == 1
        assert "jax_enable_x64" in str(error)
    else:
        assert rank == 0
        assert found is x
