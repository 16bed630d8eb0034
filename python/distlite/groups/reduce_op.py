# SPDX-License-Identifier: BSD-3-Clause
"""Reductions of collectives: the members, and the class ReduceOp.

``ReduceOp.SUM`` is a ``RedOpType``, as in torch; ``isinstance(ReduceOp.SUM, ReduceOp)``
holds all the same, so annotations and checks need to know only ``ReduceOp``.
"""

from __future__ import annotations

import warnings
from enum import IntEnum
from importlib import import_module
from typing import Any

from .. import _C

__all__ = ["CFunction", "RedOpType", "ReduceOp", "has_kernel", "reduce_op"]


class RedOpType(IntEnum):
    """One kind of reduction; the values up to PREMUL_SUM are torch's."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8
    MINLOC = 9
    MAXLOC = 10

    def __call__(self, factor: Any) -> ReduceOp:
        """Returns ``ReduceOp.PREMUL_SUM(factor)``: multiply by ``factor``, then sum."""
        if self is not RedOpType.PREMUL_SUM:
            raise RuntimeError(
                f"Only PREMUL_SUM supports calling with a factor, got {self}"
            )
        return ReduceOp._with_factor(self, factor)

    # An IntEnum would print the bare number.
    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


# The name of RedOpType inside of ReduceOp, where RedOpType is an attribute.
_Member = RedOpType


class _ReduceOpMeta(type):
    """Makes members count as instances, and gives the class its members."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RedOpType) or super().__instancecheck__(instance)


class ReduceOp(metaclass=_ReduceOpMeta):
    """The reduction of a collective: `ReduceOp.SUM` and so on.

    The members are SUM, AVG (the mean, of floating-point and complex numbers), PRODUCT,
    MIN, MAX, BAND, BOR and BXOR (of the bits of integers), and PREMUL_SUM, which
    multiplies by a factor before it adds up: `ReduceOp.PREMUL_SUM(0.5)`. Collectives
    take a member, or an object of this class, which is equal to its member.

    MINLOC and MAXLOC pick, from pairs of a value and an index, the pair with the
    smallest or largest value; of equal values, the one with the lowest index. The array
    has a dtype with two fields, first the value, then the index, or the shape `(...,
    2)`. NaN counts as smaller and as larger than every number, as in `np.argmin` and
    `np.argmax`.

    A function may be passed instead of a member: a NumPy function with two arguments
    and one result, such as `np.logaddexp`, a Python function converted by
    `np.frompyfunc(f, 2, 1)`, or a C function by `ReduceOp.from_c`. It has to be
    associative, and the elements are combined in the order of the ranks. If it raises
    an exception on any rank, all ranks raise an error, and their arrays are not
    changed.

    Functions, MINLOC and MAXLOC are for arrays in the CPU's memory.

    Args:
        op: The member.

    Raises:
        TypeError: `op` is not a member.

    Example:
        >>> values = np.array([1.0 + rank])
        >>> dist.all_reduce(values, dist.ReduceOp.AVG)
        >>> values
        array([1.5])
        >>> dist.all_reduce(values, dist.ReduceOp.PREMUL_SUM(10.0))
        >>> values
        array([30.])
        >>> best = np.array([(2.5 + rank, rank)], [("value", "f8"), ("rank", "i8")])
        >>> dist.all_reduce(best, dist.ReduceOp.MAXLOC)
        >>> best["rank"]
        array([1])
        >>> sides = np.array([3.0 + rank])
        >>> dist.all_reduce(sides, np.hypot)
        >>> sides
        array([5.])
    """

    __slots__ = ("_factor", "op")

    RedOpType = _Member
    SUM = _Member.SUM
    AVG = _Member.AVG
    PRODUCT = _Member.PRODUCT
    MIN = _Member.MIN
    MAX = _Member.MAX
    BAND = _Member.BAND
    BOR = _Member.BOR
    BXOR = _Member.BXOR
    PREMUL_SUM = _Member.PREMUL_SUM
    MINLOC = _Member.MINLOC
    MAXLOC = _Member.MAXLOC

    op: _Member

    def __init__(self, op: _Member) -> None:
        if type(op) is not _Member:
            raise TypeError(
                f"ReduceOp() takes a member such as ReduceOp.SUM, not {op!r}"
            )
        self.op = op
        self._factor: Any = None

    @classmethod
    def _with_factor(cls, op: _Member, factor: Any) -> ReduceOp:
        # A number or an array of one element; a text would fail only in the core.
        if factor is None or isinstance(factor, str | bytes):
            raise TypeError(f"PREMUL_SUM takes a number or an array, not {factor!r}")
        made = cls(op)
        made._factor = factor
        return made

    @staticmethod
    def from_c(
        function: Any, name: str | None = None, context: Any = None
    ) -> CFunction:
        """Makes a reduction of a C function.

        Its signature is::

            void function(const void *in, void *inout, size_t count, void *context);

        It sets `inout[i] = in[i] op inout[i]` for `count` elements; `in` comes from
        lower ranks. It is called without the GIL, on any thread, and must not fail.

        Args:
            function: The address as a number, or an object that has one: a function of
                ctypes or cffi, a PyCapsule, or what numba's `cfunc` makes.
            name: The name that the ranks compare and errors show; by default that of
                the function.
            context: The last argument of the function: an address, a ctypes object, or
                None.

        Returns:
            The reduction, which keeps references to function and context.

        Raises:
            TypeError: An object has no address.
            ValueError: The address is 0.

        Example:
            >>> import ctypes
            >>> @ctypes.CFUNCTYPE(
            ...     None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
            ...     ctypes.c_void_p,
            ... )
            ... def longer(left, right, count, context):
            ...     numbers = ctypes.POINTER(ctypes.c_double)
            ...     low, high = (ctypes.cast(each, numbers) for each in (left, right))
            ...     for i in range(count):
            ...         high[i] = max(low[i], high[i], key=abs)
            >>> values = np.array([-3.0, 2.0][rank : rank + 1])
            >>> dist.all_reduce(values, dist.ReduceOp.from_c(longer, "longer"))
            >>> values
            array([-3.])
        """
        return CFunction(function, name, context)

    @property
    def factor(self) -> Any:
        """The factor of `PREMUL_SUM`; RuntimeError for all other reductions."""
        if self.op is not RedOpType.PREMUL_SUM:
            raise RuntimeError("Only PREMUL_SUM supports accessing factor")
        if self._factor is None:
            raise RuntimeError(
                "PREMUL_SUM has no factor; use ReduceOp.PREMUL_SUM(factor)"
            )
        return self._factor

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ReduceOp):
            return self.op is getattr(other, "op", other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        factor = "" if self._factor is None else f", factor={self._factor!r}"
        return f"ReduceOp({self.op}{factor})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._factor is None:
            return ReduceOp, (self.op,)
        return self.op, (self._factor,)


# torch's name, private there, of what also is a call of the member.
_make_nccl_premul_sum = RedOpType.PREMUL_SUM


class CFunction:
    """What `ReduceOp.from_c` makes."""

    __slots__ = ("_kept", "address", "context", "name")

    def __init__(self, function: Any, name: str | None, context: Any) -> None:
        self.address = _address_of(function)
        if self.address == 0:
            raise ValueError("the address of the function is 0")
        self.context = 0 if context is None else _address_of(context)
        given = name or getattr(function, "__name__", None) or "function"
        # The name differs from that of a Python function, after which ranks exchange
        # failures.
        self.name = f"{given}()"
        self._kept = (function, context)

    def __repr__(self) -> str:
        return f"ReduceOp.from_c({self.name} at {self.address:#x})"


def _address_of(thing: Any) -> int:
    """Returns the address of a function or of data, given by a number, a pointer of
    ctypes or cffi, or a capsule."""
    import ctypes

    if isinstance(thing, int):
        return thing
    if isinstance(address := getattr(thing, "address", None), int):
        return address
    kind = type(thing).__name__
    if kind == "PyCapsule":
        name, pointer = (
            getattr(ctypes.pythonapi, f"PyCapsule_Get{what}")
            for what in ("Name", "Pointer")
        )
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        pointer.restype = ctypes.c_void_p
        pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        return pointer(thing, name(thing)) or 0
    if getattr(type(thing), "__module__", None) == "_cffi_backend":  # not all have one
        return int(import_module("cffi").FFI().cast("uintptr_t", thing))
    try:
        # Functions and pointers of ctypes hold the address; other objects are at it.
        if callable(thing) or hasattr(thing, "contents"):
            return ctypes.cast(thing, ctypes.c_void_p).value or 0
        if isinstance(thing, ctypes.c_void_p):
            return thing.value or 0
        return ctypes.addressof(thing)
    except (TypeError, ctypes.ArgumentError):
        raise TypeError(
            "a C function or its context must be an address, or an object of ctypes, "
            f"cffi or numba, or a PyCapsule, not {thing!r}"
        ) from None


_WITH_REDUCER = (RedOpType.MINLOC, RedOpType.MAXLOC)


def has_kernel(op: Any) -> bool:
    """Returns whether the core has a kernel for the reduction, so that several arrays
    can be combined as one."""
    member = getattr(op, "op", op)
    return isinstance(member, RedOpType) and member not in _WITH_REDUCER


def supports_complex(reduceOp: Any) -> bool:
    """Returns whether a reduction can combine arrays of complex numbers.

    Args:
        reduceOp: The reduction.

    Returns:
        True for SUM, AVG and PREMUL_SUM, otherwise False.

    Example:
        >>> dist.supports_complex(dist.ReduceOp.SUM)
        True
        >>> dist.supports_complex(dist.ReduceOp.MAX)
        False
    """
    return getattr(reduceOp, "op", reduceOp) in (
        RedOpType.SUM,
        RedOpType.AVG,
        RedOpType.PREMUL_SUM,
    )


class _ReduceOpMirror:
    """``distlite.reduce_op``, the name of ``ReduceOp`` in old programs."""

    def __getattr__(self, name: str) -> RedOpType:
        if name not in RedOpType.__members__:
            raise AttributeError(f"reduce_op has no attribute {name!r}")
        warnings.warn(
            "`distlite.reduce_op` is deprecated, "
            "please use `distlite.ReduceOp` instead",
            FutureWarning,
            stacklevel=2,
        )
        return RedOpType[name]


reduce_op = _ReduceOpMirror()

# Pickles and messages name the public place, not this file.
ReduceOp.__module__ = RedOpType.__module__ = "distlite"
RedOpType.__qualname__ = "ReduceOp.RedOpType"


def _make_reducer(op: Any, array: Any, dtype: str, size: int) -> _C._Reducer:
    from .reducers import make_reducer

    return make_reducer(op, array, dtype, size)


_C._set_reduce_op_types(RedOpType, ReduceOp, _make_reducer)
