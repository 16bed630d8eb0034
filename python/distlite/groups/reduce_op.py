# SPDX-License-Identifier: BSD-3-Clause
"""How a reduction combines elements: the members, and the wrapper around one of them.

``ReduceOp.SUM`` is a ``RedOpType``, as in torch; ``isinstance(ReduceOp.SUM, ReduceOp)``
holds all the same, so annotations and checks need to know only ``ReduceOp``.
"""

from __future__ import annotations

import warnings
from enum import IntEnum

from .. import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["RedOpType", "ReduceOp", "reduce_op"]


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
        """``ReduceOp.PREMUL_SUM(factor)``: multiply by ``factor``, then sum."""
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


# What RedOpType is called inside ReduceOp, where that name is an attribute.
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

    MINLOC and MAXLOC pick pairs of a value and an index: the pair of the smallest or
    largest value, and of equal values that of the lowest index. The array has a dtype
    with two fields, first the value, then the index, or the shape `(..., 2)`. NaN
    counts as smaller and as larger than every number, as in `np.argmin` and
    `np.argmax`. They are for arrays in the CPU's memory.

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
        # A number or an array of one element; text would fail far from here.
        if factor is None or isinstance(factor, str | bytes):
            raise TypeError(f"PREMUL_SUM takes a number or an array, not {factor!r}")
        made = cls(op)
        made._factor = factor
        return made

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


def _make_nccl_premul_sum(factor: Any) -> ReduceOp:
    """As ``ReduceOp.PREMUL_SUM(factor)``; of a float, or an array of one element."""
    if isinstance(factor, int):
        raise TypeError(f"the factor must be a float or an array, not {factor!r}")
    return ReduceOp._with_factor(RedOpType.PREMUL_SUM, factor)


def supports_complex(reduceOp: Any) -> bool:
    """Tells whether a reduction can combine arrays of complex numbers.

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


def _make_reducer(op: Any, array: Any, dtype: str) -> _C._Reducer:
    from .reducers import make_reducer

    return make_reducer(op, array, dtype)


_C._set_reduce_op_types(RedOpType, ReduceOp, _make_reducer)
