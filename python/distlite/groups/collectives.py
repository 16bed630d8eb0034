# SPDX-License-Identifier: BSD-3-Clause
"""Collectives made of others: several arrays at once, and arrays of unknown shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._C import (
    ProcessGroup,
    all_gather,
    all_gather_single,
    reduce_scatter_single as reduce_scatter_tensor,
)
from ..futures import Future, collect_all
from .packing import Coalesced, Target, gather_lists, reduce_all
from .reduce_op import ReduceOp
from .world import get_world_size, is_outside

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "all_gather_arrays",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_reduce_coalesced",
    "reduce_scatter_tensor",
]

# torch's older name.
all_gather_into_tensor = all_gather_single


def all_gather_arrays(
    tensor: np.ndarray, group: ProcessGroup | None = None
) -> list[np.ndarray]:
    """Collects arrays whose shapes and dtypes the other ranks do not know.

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

    from ..objects.object_collectives import all_gather_object

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


def all_reduce_coalesced(
    tensors: Sequence[Any],
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Future | None:
    """Combines each array of a list with those of all ranks, as `all_reduce` does.

    Small arrays travel together.

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
