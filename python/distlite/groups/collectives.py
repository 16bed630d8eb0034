# SPDX-License-Identifier: BSD-3-Clause
"""Collectives made of others: several arrays at once, and arrays of unknown shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._C import (
    ProcessGroup,
    Work,
    all_gather,
    all_gather_object,
    all_gather_single,
    gather,
    reduce_scatter_single as reduce_scatter_tensor,
)
from ..futures import Future, collect_all
from .packing import Coalesced, Target, gather_lists, reduce_all
from .reduce_op import ReduceOp
from .world import get_world_size, is_outside, world

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "all_gather_arrays",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_reduce_coalesced",
    "gather_single",
    "reduce_scatter_tensor",
]

# torch's older name.
all_gather_into_tensor = all_gather_single


def all_gather_arrays(
    tensor: np.ndarray, group: ProcessGroup | None = None
) -> list[np.ndarray]:
    """Collects arrays of all ranks, which may differ in shape and dtype.

    It takes two collectives: of the shapes and dtypes, and of the data.

    Args:
        tensor: The array that this rank contributes, of any shape and dtype.
        group: The group; None is the default group.

    Returns:
        New arrays, in the order of the ranks; an empty list on a process that is not a
        member of the group.

    Raises:
        TypeError: The dtype holds Python objects.
        ValueError: The array is masked.
        DistBackendError: A peer failed or timed out, or the ranks' calls differ.

    Example:
        >>> dist.all_gather_arrays(np.arange(rank + 1))
        [array([0]), array([0, 1])]
    """
    import numpy as np

    if is_outside(group):
        # Warns, as every collective does outside of its group.
        all_gather([], np.empty(0), group)
        return []
    if isinstance(tensor, np.ma.MaskedArray):
        raise ValueError(
            "all_gather_arrays: the array is masked, and its mask would not be sent; "
            "pass tensor.filled(0), or tensor.data and tensor.mask in two calls"
        )
    array = np.asarray(tensor)
    if array.dtype.hasobject:
        raise TypeError(
            f"arrays of {array.dtype} cannot be sent: they hold Python objects"
        )
    # An empty array describes the dtype, also one of ml_dtypes.
    told: list[Any] = [None] * get_world_size(group)
    all_gather_object(told, (array.shape, np.empty(0, array.dtype)), group, safe=True)
    arrays = [np.empty(shape, of.dtype) for shape, of in told]
    # The data travel as bytes, because dtypes may differ from rank to rank.
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    all_gather([each.reshape(-1).view(np.uint8) for each in arrays], flat, group=group)
    return arrays


def gather_single(
    input_tensor: Any,
    output_tensor: Any = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Collects the arrays of all ranks in one array, on one rank.

    Args:
        input_tensor: The array that this rank contributes, of the same size and dtype
            on every rank.
        output_tensor: On the destination the output, contiguous, with the blocks of the
            ranks one after the other; None on the other ranks.
        dst: The global rank of the destination, 0 by default.
        group: The group; None is the default group.
        async_op: If True, the call returns at once, and the arrays must not be used
            until the returned `Work` has completed.
        group_dst: The rank of the destination in `group`, instead of `dst`.

    Returns:
        A `Work` if `async_op` is True, otherwise None.

    Raises:
        TypeError: `input_tensor` or `output_tensor` is not an array.
        ValueError: `output_tensor` is missing on the destination or given elsewhere, is
            not contiguous, or cannot be divided into equal blocks.
        DistBackendError: A peer failed or did not call it within the group's timeout,
            or the ranks called different operations.

    Example:
        >>> together = np.zeros(2) if rank == 0 else None
        >>> dist.gather_single(np.array([rank + 0.5]), together, dst=0)
        >>> if rank == 0:
        ...     print(together)
        [0.5 1.5]
    """
    blocks = None
    if output_tensor is not None and not is_outside(group):
        members = world.require_default() if group is None else group
        blocks = _blocks_of(output_tensor, members.size())
    try:
        return gather(input_tensor, blocks, dst, group, async_op, group_dst)
    except ValueError as error:
        raise ValueError(str(error).replace("gather_list", "output_tensor")) from None


def _blocks_of(output: Any, size: int) -> list[Any]:
    """Returns views of equal parts of an array, one for each rank."""
    is_torch = hasattr(output, "is_contiguous")
    try:
        count = int(output.numel() if is_torch else output.size)
        is_dense = output.is_contiguous() if is_torch else output.flags.c_contiguous
    except AttributeError:
        raise TypeError(
            "gather_single: `output_tensor` must be an array of NumPy, CuPy or torch, "
            f"not {type(output).__name__}"
        ) from None
    if not is_dense or count % size:
        raise ValueError(
            f"gather_single: `output_tensor` must be contiguous and have {size} equal "
            f"blocks, one for each rank; it has {count} elements"
        )
    return list(output.reshape(size, count // size))


def all_reduce_coalesced(
    tensors: Sequence[Any],
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Future | None:
    """Combines each array of a list with those of all ranks, as `all_reduce` does.

    Small arrays are sent together.

    Args:
        tensors: The arrays, of the same sizes and dtypes on every rank.
        op: The reduction, `ReduceOp.SUM` by default.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.

    Returns:
        A `Future` of the list of arrays if `async_op` is True, otherwise None.

    Raises:
        TypeError: An element is not an array, or `op` not a reduction.
        DistBackendError: A peer failed or timed out, or the ranks' calls differ.

    Example:
        >>> arrays = [np.array([rank + 1.0]), np.array([rank, rank])]
        >>> dist.all_reduce_coalesced(arrays)
        >>> arrays
        [array([3.]), array([1, 1])]
    """
    arrays: list[Any] = (
        list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    )
    begun = reduce_all(arrays, op, Target(group, async_op))
    return _answer(begun, arrays, async_op, group)


def all_gather_coalesced(
    output_tensor_lists: Sequence[list[Any]],
    input_tensor_list: Sequence[Any],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Future | None:
    """Collects each array of a list from all ranks, as `all_gather` does.

    Args:
        output_tensor_lists: The outputs: `output_tensor_lists[rank][i]` is array i of a
            rank.
        input_tensor_list: The arrays that this rank contributes.
        group: The group; None is the default group.
        async_op: Return a `Work` at once; the arrays are in use until it has completed.

    Returns:
        A `Future` of the outputs if `async_op` is True, otherwise None.

    Raises:
        TypeError: An element is not an array.
        ValueError: The lists or the sizes of the arrays do not fit each other.
        DistBackendError: A peer failed or timed out, or the ranks' calls differ.

    Example:
        >>> outputs = [[np.zeros(1), np.zeros(2)] for _ in range(2)]
        >>> inputs = [np.full(1, rank + 1.0), np.full(2, rank + 3.0)]
        >>> dist.all_gather_coalesced(outputs, inputs)
        >>> outputs
        [[array([1.]), array([3., 3.])], [array([2.]), array([4., 4.])]]
    """
    target = Target(group, async_op)
    begun = gather_lists(output_tensor_lists, input_tensor_list, target)
    return _answer(begun, output_tensor_lists, async_op, group)


def _answer(
    begun: Coalesced, value: Any, async_op: bool, group: object
) -> Future | None:
    """Returns None once all is done, or a Future of `value` or the first failure."""
    if not async_op or is_outside(group):
        begun.finish()
        return None

    def take(done: Future) -> Any:
        for future in done.value():
            future.value()
        begun.finish()
        return value

    return collect_all([work.get_future() for work in begun.works]).then(take)
