# SPDX-License-Identifier: BSD-3-Clause
"""The sum of sparse tensors, as gradients of embeddings are."""

from __future__ import annotations

import torch

import distlite

from .errors import raises_as_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["all_reduce_sparse"]


@raises_as_torch
def all_reduce_sparse(group: Any, tensor: Any, opts: Any) -> Any:
    """Replaces a sparse tensor by the sum of those of all ranks, and returns it.

    Ranks may have different numbers of elements, so these come first.
    """
    op = getattr(opts, "reduceOp", torch.distributed.ReduceOp.SUM)
    if op != torch.distributed.ReduceOp.SUM:
        raise RuntimeError("unsupported reduction operation: sparse tensors are summed")
    with torch.no_grad():
        own = tensor.detach().coalesce()
        size = group.size()
        counts = torch.zeros(size, dtype=torch.int64)
        distlite.all_gather_single(counts, torch.tensor([own._nnz()]), group=group)
        many = [int(count) for count in counts]
        inner = own.values().shape[1:]
        indices = [own.indices().new_empty(each, own.sparse_dim()) for each in many]
        values = [own.values().new_empty(each, *inner) for each in many]
        distlite.all_gather(indices, own.indices().t().contiguous(), group=group)
        distlite.all_gather(values, own.values().contiguous(), group=group)
        total = torch.sparse_coo_tensor(
            torch.cat(indices).t(), torch.cat(values), tensor.shape
        ).coalesce()
        # A detached sparse tensor has indices and values of its own.
        tensor.copy_(total)
    return tensor
