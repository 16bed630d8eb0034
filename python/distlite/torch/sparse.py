# SPDX-License-Identifier: BSD-3-Clause
"""The sum of sparse tensors, as gradients of embeddings are."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import torch

import distlite

from .errors import raises_as_torch

__all__ = ["all_reduce_sparse"]


@raises_as_torch
def all_reduce_sparse(group: Any, tensor: Any, opts: Any) -> Any:
    """Replaces a sparse tensor by the sum of those of all ranks, and returns it.

    Ranks may have different numbers of elements, so these come first, with what has to
    be the same: indices beyond a tensor's shape would go unnoticed.
    """
    op = getattr(opts, "reduceOp", torch.distributed.ReduceOp.SUM)
    if op != torch.distributed.ReduceOp.SUM:
        raise RuntimeError("unsupported reduction operation: sparse tensors are summed")
    with torch.no_grad():
        own = tensor.detach().coalesce()
        size = group.size()
        form = (tuple(own.shape), own.sparse_dim())
        facts = torch.tensor([own._nnz(), crc32(repr(form).encode())])
        everybodys = torch.zeros(size, 2, dtype=torch.int64)
        distlite.all_gather_single(everybodys, facts, group=group)
        many = everybodys[:, 0].tolist()
        others = (everybodys[:, 1] != facts[1]).nonzero().flatten().tolist()
        if others:
            raise RuntimeError(
                f"Sparse dimensions do not match: rank {group.rank()} in group "
                f"{group.group_name} has shape {form[0]} with {form[1]} sparse "
                f"dimension(s), and other ones are on ranks {others}"
            )
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
