# SPDX-License-Identifier: BSD-3-Clause
"""Makes the reducers of reductions that have no kernel: MINLOC and MAXLOC.

The core calls `make_reducer` with the reduction and one of the arrays.  A reducer knows
the layout of the elements, so there is one for each dtype; they are kept.
"""

from __future__ import annotations

from functools import cache, lru_cache

from .. import _C
from .reduce_op import RedOpType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["make_reducer"]


def make_reducer(op: Any, array: Any, dtype: str) -> _C._Reducer:
    """The reducer of `op` for arrays like `array`; `dtype` is its name in the core."""
    member = getattr(op, "op", op)
    if dtype == "bytes":
        return _of_records(member, getattr(array, "dtype", None))
    shape = tuple(getattr(array, "shape", ()))
    if not shape or shape[-1] != 2:
        raise ValueError(
            f"{member.name} takes pairs of a value and an index: an array of a dtype "
            "with two fields, such as np.dtype([('value', 'f8'), ('index', 'i8')]), or "
            f"one of the shape (..., 2), not of the shape {shape} and dtype {dtype}"
        )
    return _of_rows(member, dtype)


@cache
def _of_rows(member: RedOpType, dtype: str) -> _C._Reducer:
    import numpy as np

    # The core knows types that NumPy does not, all of them with the size in their name.
    size = int(_SIZES.get(dtype) or np.dtype(dtype).itemsize)
    is_max = member is RedOpType.MAXLOC
    return _C._pair_reducer(
        is_max, f"pairs of {dtype}", 2 * size, dtype, 0, dtype, size
    )


_SIZES = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


@lru_cache(maxsize=64)
def _of_records(member: RedOpType, dtype: Any) -> _C._Reducer:
    names = getattr(dtype, "names", None) or ()
    if len(names) != 2:
        raise ValueError(
            f"{member.name} takes a dtype with two fields, a value and an index, such "
            f"as np.dtype([('value', 'f8'), ('index', 'i8')]), not {dtype}"
        )
    (value, at), (index, index_at) = (dtype.fields[name][:2] for name in names)
    for name, field in zip(names, (value, index), strict=True):
        if not field.isnative:
            raise ValueError(
                f"{member.name}: field {name!r} is not in this machine's byte order; "
                "convert the array with astype()"
            )
    text = f"({value}, {index})"
    if dtype.itemsize != value.itemsize + index.itemsize or at != 0:
        text += f" at {at} and {index_at} of {dtype.itemsize} bytes"
    is_max = member is RedOpType.MAXLOC
    return _C._pair_reducer(
        is_max, text, dtype.itemsize, str(value), at, str(index), index_at
    )
