# SPDX-License-Identifier: BSD-3-Clause
"""Makes the reducers of reductions that have no kernel: MINLOC and MAXLOC, functions of
NumPy with two arguments, and C functions.

The core calls `make_reducer` with the reduction and one of the arrays.  A reducer knows
the layout of the elements, so there is one for each dtype; they are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from .. import _C
from .reduce_op import CFunction, RedOpType

__all__ = ["make_reducer"]


def make_reducer(op: Any, array: Any, dtype: str, size: int) -> _C._Reducer:
    """Returns the reducer of `op` for arrays like `array`, with items of this size;
    `dtype` is the core's name of the dtype, "bytes" if it is not a number."""
    own = getattr(array, "dtype", None)
    member = getattr(op, "op", op)
    if isinstance(member, RedOpType):
        if dtype == "bytes":
            return _of_records(member, own)
        return _of_rows(member, dtype, size, tuple(getattr(array, "shape", ())))
    if isinstance(op, CFunction):
        text = dtype if dtype != "bytes" else str(own)
        return _C._function_reducer(op.name, text, size, op.address, op.context)
    # NumPy is imported already if `op` is one of its functions.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(op, numpy.ufunc):
        return _of_ufunc(op, own if dtype == "bytes" else numpy.dtype(dtype), dtype)
    raise TypeError(
        "Invalid function argument. Expected parameter `op` of type distlite.ReduceOp\n"
        f"             but got {type(op)} instead. It has SUM, AVG, PRODUCT, MIN, MAX, "
        "BAND, BOR, BXOR, PREMUL_SUM(factor), MINLOC, MAXLOC and from_c(function); a "
        "function of NumPy with two arguments, such as np.logaddexp, may be given as "
        "it is; np.frompyfunc(f, 2, 1) makes one of a Python function."
    )


def _of_rows(
    member: RedOpType, dtype: str, size: int, shape: tuple[int, ...]
) -> _C._Reducer:
    if not shape or shape[-1] != 2:
        raise ValueError(
            f"{member.name} takes pairs of a value and an index: an array of a dtype "
            "with two fields, such as np.dtype([('value', 'f8'), ('index', 'i8')]), or "
            f"one of the shape (..., 2), not of the shape {shape} and dtype {dtype}"
        )
    return _of_row(member, dtype, size)


@cache
def _of_row(member: RedOpType, dtype: str, size: int) -> _C._Reducer:
    is_max = member is RedOpType.MAXLOC
    text = f"pairs of {dtype}"
    return _C._pair_reducer(is_max, text, 2 * size, dtype, 0, dtype, size)


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


@lru_cache(maxsize=64)
def _of_ufunc(ufunc: Any, dtype: Any, name: str) -> _C._Reducer:
    import numpy as np

    if ufunc.nin != 2 or ufunc.nout != 1 or ufunc.signature is not None:
        raise ValueError(
            f"{ufunc.__name__} cannot reduce: it must take two elements and return one"
        )
    if not isinstance(dtype, np.dtype):
        raise ValueError(f"{ufunc.__name__} cannot reduce an array of dtype {dtype}")
    # Functions of np.frompyfunc take and return objects, which are converted.
    is_of_objects = ufunc.types == ["OO->O"]
    casting = "unsafe" if is_of_objects else "same_kind"
    # A function that does not fit the dtype is an error now, before anything is sent.
    nothing = np.empty(0, dtype)
    try:
        ufunc(nothing, nothing, out=nothing, casting=casting)
    except TypeError as error:
        raise ValueError(
            f"{ufunc.__name__} cannot reduce an array of dtype {dtype}: {error}"
        ) from None
    text = str(dtype) if name == "bytes" else name
    function = _combining(ufunc, dtype, casting)
    # The core may call the loops of NumPy's own dtypes itself.
    own = ufunc if dtype.isbuiltin == 1 and name != "bytes" else None
    return _C._function_reducer(
        ufunc.__name__, text, dtype.itemsize, function, 0, own, dtype.num
    )


def _combining(
    ufunc: Any, dtype: Any, casting: str
) -> Callable[[memoryview, memoryview], None]:
    import numpy as np

    def combine(left: memoryview, right: memoryview) -> None:
        low, high = np.frombuffer(left, dtype), np.frombuffer(right, dtype)
        ufunc(low, high, out=high, casting=casting)

    return combine
