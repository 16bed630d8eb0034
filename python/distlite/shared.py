# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory that the ranks of a host can read in place.

They are ordinary NumPy arrays.  Any collective of the group on large ones, or on
contiguous views of them, is spared copying them in: an all_reduce where all ranks bring
such arrays, others whatever the other ranks bring.  Anywhere else they are memory as
any other.
"""

from __future__ import annotations

from . import _C
from .world import is_outside, world

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

    from ._C import ProcessGroup

__all__ = ["shared_empty", "shared_empty_like", "shared_zeros", "shared_zeros_like"]


def shared_zeros(
    shape: int | tuple[int, ...], dtype: Any = None, group: ProcessGroup | None = None
) -> np.ndarray:
    """A new array of zeros, float64 by default, that the ranks of `group` can reach.

    Not collective.  The memory is taken at once (MemoryError if there is too little)
    and given back with the last view of the array; it outlives the group.  After an
    operation on it that failed, peers may still write into it.
    """
    import math

    import numpy as np

    kind = np.dtype(float if dtype is None else dtype)
    if kind.hasobject:
        raise TypeError(f"arrays of {kind} cannot be shared: they hold objects")
    if is_outside(group):
        return np.zeros(shape, kind)
    wanted = world.require_default() if group is None else group
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    if any(size < 0 for size in sizes):
        raise ValueError("negative dimensions are not allowed")
    memory: Any = _C._SharedMemory(wanted, max(1, math.prod(sizes) * kind.itemsize))
    return np.ndarray(shape, kind, buffer=memory)


def shared_zeros_like(array: Any, group: ProcessGroup | None = None) -> np.ndarray:
    """As shared_zeros(), with the shape and dtype of `array`."""
    import numpy as np

    model = np.asarray(array)
    return shared_zeros(model.shape, model.dtype, group)


# Fresh memory is zeros anyway.
shared_empty = shared_zeros
shared_empty_like = shared_zeros_like
