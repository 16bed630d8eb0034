# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory that the ranks of a host can read in place.

They are ordinary NumPy arrays.  Collectives of the group need not copy the contents of
large ones, or of contiguous views of them, into shared memory: an all_reduce if all
ranks pass such arrays, other collectives whatever the other ranks pass. For all other
purposes they are usual arrays.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from . import _C
from ._C import ProcessGroup
from .groups.world import is_outside, world

__all__ = ["shared_zeros"]


def shared_zeros(
    shape: int | tuple[int, ...], dtype: Any = None, group: ProcessGroup | None = None
) -> np.ndarray:
    """Makes an array of zeros in memory that ranks of the host can read in place.

    Collectives of the group on large arrays of this kind need not copy them first. The
    call is not collective. It allocates the memory at once; the memory is freed with
    the last view of the array, which may outlive the group. After an operation on the
    array has failed, peers may still write to it.

    Args:
        shape: The shape, a number or a tuple.
        dtype: The dtype, float64 by default.
        group: The group; None is the default group.

    Returns:
        A NumPy array.

    Raises:
        TypeError: The dtype holds Python objects.
        ValueError: A dimension is negative, or there is no default group.

    Example:
        >>> gradient = dist.shared_zeros((2, 2))
        >>> gradient += rank
        >>> dist.all_reduce(gradient)
        >>> gradient
        array([[1., 1.],
               [1., 1.]])
    """
    import math
    import sys

    kind = np.dtype(float if dtype is None else dtype)
    if kind.hasobject:
        raise TypeError(f"arrays of {kind} cannot be shared: they hold Python objects")
    sizes = sizes_of(shape)
    if is_outside(group):
        return np.zeros(sizes, kind)
    wanted = world.require_default() if group is None else group
    if any(size < 0 for size in sizes):
        raise ValueError("negative dimensions are not allowed")
    count = math.prod(sizes) * kind.itemsize
    if count > sys.maxsize:
        raise MemoryError(f"an array of {count} bytes is larger than the address space")
    memory: Any = _C._SharedMemory(wanted, max(1, count))
    return np.ndarray(sizes, kind, buffer=memory)


def sizes_of(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """Converts a number or a sequence of numbers, for example an array."""
    try:
        return (index(shape),)
    except TypeError:
        pass
    try:
        return tuple(index(size) for size in shape)
    except TypeError:
        raise TypeError(
            f"{name} must be an integer or a sequence of integers, not {shape!r}"
        ) from None
